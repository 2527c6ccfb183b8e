"""Loss and accuracy over many batches: eval mode, no graph, each image counts the same, the model as it was."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, call, near, observe, same, wrong_if
from labcheck.probes import SLOW_START, Batch, network
from torchcourse_labs.training_loop._shared import KEPT, Passes, judge_changes, make_batches


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
    passes = Passes(model)
    with torch.enable_grad():
        returned = call(answer, model, given, may_change=True)
        changed = probes.changes(model, start, given, batches)
    return {
        "returned": returned,
        "changed": changed,
        "in train mode": sum(each["mode"] != "eval" for each in passes),
        "graphs": sum(each["graph"] for each in passes),
    }


def judge(answer: Any, rng: Inputs) -> None:
    """Once in train mode, with a short last batch that is all right or all wrong: there the mean of the means is off.
    Once in eval mode, with batches of the same size."""
    (height, width), classes = rng.sizes(2, 3, 6), rng.size(3, 6)
    model = network(rng, height * width, classes, norm=True)
    batches = make_batches(rng, [*([rng.size(9, 14)] * rng.size(2, 3)), rng.size(2, 4)], height, width, classes)
    (images, _), rest = batches[-1], solution(model, batches[:-1])[1]
    logits = copy.deepcopy(model).eval()(images)
    batches[-1] = images, logits.argmax(1) if rest < 0.5 else logits.argmin(1)
    judge_case(answer, model, batches, True)
    judge_case(answer, model, make_batches(rng, [rng.size(5, 8)] * 2, height, width, classes), False)


def judge_case(answer: Any, model: nn.Module, batches: list[Batch], training: bool) -> None:
    seen = observe(answer, one_evaluation, model, batches, training)
    wrong_if(
        seen["in train mode"],
        "train_mode",
        "The model, or a part of it, was in train mode when it got the images. In that mode, batch norm uses the "
        "statistics of the batch and changes its running ones.",
        look="`model.eval()` before the loop: it reaches every layer",
    )
    wrong_if(
        seen["graphs"],
        "graph",
        "PyTorch recorded a graph that no backward pass will use: wasted memory and time.",
        look="`with torch.no_grad():` around the loop",
    )
    judge_changes(seen["changed"], KEPT | {"weights": "the weights of the model", "gradients": "all gradients"})
    wrong_if(
        "modes" in seen["changed"],
        "mode_left",
        "The model, or a part of it, is not in its old mode afterward, so what runs next would run in the wrong one.",
        look="keep `model.training` before `model.eval()`, which sets it to False; after the loop, pass it to "
        "`model.train(…)`, which reaches every layer",
    )
    pair = seen["returned"]
    if not (isinstance(pair, tuple | list) and len(pair) == 2):
        raise Incorrect("Your function should return two numbers.", "(loss, accuracy)", pair)
    expected, each = solution(model, batches), [solution(model, [batch]) for batch in batches]
    with_softmax = solution(nn.Sequential(copy.deepcopy(model), nn.Softmax(dim=1)), batches)[0]
    for i, what in enumerate(("loss", "accuracy")):
        yours, right, of_batches = probes.number(pair[i], f"Your {what}"), expected[i], [pair[i] for pair in each]
        wrong = not near(yours, right)
        wrong_if(
            wrong and near(yours, sum(of_batches) / len(of_batches)),
            "mean_of_means",
            f"Your {what} is the mean of the batches' means: the short last batch counts as much as any.",
            look="weight each batch by `len(labels)`, divide once at the end",
            expected=right,
            yours=yours,
        )
        wrong_if(
            wrong and what == "loss" and any(near(yours, one) for one in of_batches),
            "one_batch",
            "Your loss is that of one batch alone.",
            look="add up inside the loop, with `+=`; is there a `return` in it?",
            expected=right,
            yours=yours,
        )
        wrong_if(
            wrong and what == "loss" and near(yours, with_softmax),
            "softmax",
            "There is a softmax before the cross-entropy, which has one inside.",
            look="give the logits to `F.cross_entropy` as they are",
        )
        same(yours, right, f"Your {what}", look=f"the {what} of all images: a sum over them, divided by their number")


exercise = Exercise(
    title="How good is it?",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="Sum over images, divide once: then it does not matter how the images were cut into batches.",
    hints=(
        "Four things around the loop: eval mode, no gradients, sums over images, and the old mode back at the end.",
        "`was = model.training`, `model.eval()`, `with torch.no_grad():` … `model.train(was)`. In the loop, "
        "a batch's loss is a mean: what is its sum?",
        "`loss_sum += F.cross_entropy(logits, labels).item() * len(labels)`, `right += (…).sum().item()`, "
        "`images_seen += len(labels)`.",
    ),
    judge=judge,
    seconds=SLOW_START,
    lends=solution,
)
