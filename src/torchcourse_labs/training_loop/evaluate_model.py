"""Loss and accuracy over many batches: eval mode, no graph, each image counts the same, the model as it was."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, call, near, observe, same, wrong_if
from labcheck.probes import SLOW_START, Batch
from torchcourse_labs.training_loop._shared import draw, judge_changes, watch_passes


def solution(model: nn.Module, batches: list[Batch]) -> tuple[float, float]:
    was_training = model.training
    model.eval()
    loss_sum, right, seen = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            loss_sum += F.cross_entropy(logits, labels).item() * len(labels)
            right += (logits.argmax(dim=1) == labels).sum().item()
            seen += len(labels)
    model.train(was_training)
    return loss_sum / seen, right / seen


def one_evaluation(answer: Callable, model: nn.Module, batches: list[Batch], training: bool) -> dict[str, Any]:
    """A probe: what comes back, what went through the model, and what is not as it was. One parameter is frozen."""
    start, model, given = copy.deepcopy(model), copy.deepcopy(model), copy.deepcopy(batches)
    for each in (start, model):
        each.train(training)
        for parameter in each.parameters():
            parameter.grad = torch.full_like(parameter, 0.5)
        next(each.parameters()).requires_grad_(False)
    passes = watch_passes(model)
    with torch.enable_grad():
        returned = call(answer, model, given, may_change=True)
        changed = probes.changes(model, start, given, batches)
    seen = {"returned": returned, "changed": changed}
    return seen | {name: any(each[name] for each in passes) for name in ("train", "graph")}


def judge(answer: Any, rng: Inputs) -> None:
    """Once in train mode, with a short last batch that is all right: there the mean of the means is off. Once in eval
    mode, with batches of the same size."""
    model, batches = draw(rng, [rng.size(9, 14)] * rng.size(2, 3) + [rng.size(2, 4)], norm=True)
    images = batches[-1][0]
    batches[-1] = images, copy.deepcopy(model).eval()(images).argmax(1)
    for training, chosen in ((True, batches), (False, batches[:2])):
        judge_case(observe(answer, one_evaluation, model, chosen, training), model, chosen)


def judge_case(seen: dict[str, Any], model: nn.Module, batches: list[Batch]) -> None:
    wrong_if(
        seen["train"],
        "train_mode",
        "The model, or a part of it, was in train mode when it got the images. In that mode, batch norm uses the "
        "statistics of the batch and changes its running ones.",
        look="`model.eval()` before the loop, as it reaches every layer; back to the old mode only after the loop",
    )
    wrong_if(
        seen["graph"],
        "graph",
        "PyTorch recorded a graph that no backward pass will use: wasted memory and time.",
        look="`with torch.no_grad():` around the loop",
    )
    judge_changes(seen["changed"], but=["modes"])
    wrong_if(
        seen["changed"],
        "mode_left",
        "The model, or a part of it, is not in its old mode afterward, so what runs next would run in the wrong one.",
        look="keep `model.training` before `model.eval()`, which sets it to False; after the loop, pass it to "
        "`model.train(…)`, which reaches every layer",
    )
    pair, expected = seen["returned"], solution(model, batches)
    if not (isinstance(pair, tuple | list) and len(pair) == 2) or near(pair, expected[::-1]):
        raise Incorrect("Your function should return two numbers, first the loss, then the accuracy.", expected, pair)
    each, sizes = [solution(model, [batch]) for batch in batches], [len(labels) for _, labels in batches]
    for i, what in enumerate(("loss", "accuracy")):
        yours, right = probes.number(pair[i], f"Your {what}"), expected[i]
        details = {"expected": right, "yours": yours}
        wrong_if(
            not near(yours, right) and near(yours, sum(one[i] for one in each) / len(each)),
            "mean_of_means",
            f"Your {what} is the mean of the batches' means: the short last batch counts as much as any.",
            look="weight each batch by `len(labels)`, divide once at the end",
            **details,
        )
        weighted = [sum(one[i] * n**power for one, n in zip(each, sizes, strict=True)) / sum(sizes) for power in (0, 2)]
        wrong_if(
            not near(yours, right) and any(near(yours, value) for value in weighted),
            "not_sums",
            f"You divide by the number of images, but what you add for a batch is not the sum of its images' {what}.",
            look="add a mean times `len(labels)`, or the sum that `reduction='sum'` gives as it is",
            **details,
        )
        look = ("the cross-entropy of the logits, without a softmax", "a share, not in percent")[i]
        look += ": a sum over all batches, divided once, after the loop, by the number of all images"
        same(yours, right, f"Your {what}", look=look)


exercise = Exercise(
    title="How good is it?",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="Sum over images, divide once: then it does not matter how the images were cut into batches.",
    hints=(
        "Four things: eval mode, no gradients, sums over images, and the old mode back at the end: "
        "`was = model.training`, `model.eval()`, `with torch.no_grad():` … `model.train(was)`.",
        "`loss_sum += F.cross_entropy(logits, labels).item() * len(labels)`, `right += (…).sum().item()`, "
        "`images_seen += len(labels)`.",
    ),
    judge=judge,
    seconds=SLOW_START,
    lends=solution,
)
