"""A training loop with five silent faults, to be repaired: the check names one at a time and counts the others."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, call, same, wrong_if
from labcheck.probes import SLOW_START, Batch, weights
from torchcourse_labs.training_loop._shared import WatchedSGD, judge_changes, judge_order, observed, watch_passes
from torchcourse_labs.training_loop._shared import draw as draw_batches

LARGE = 20  # images of a training batch; all validation batches together have fewer


def solution(
    model: nn.Module, training_batches: list[Batch], validation_batches: list[Batch], optimizer: Any, epochs: int
) -> tuple[list[float], list[float]]:
    losses, accuracies = [], []
    for _ in range(epochs):
        model.train()
        for images, labels in training_batches:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        right, count = 0, 0
        with torch.no_grad():
            for images, labels in validation_batches:
                right += (model(images).argmax(dim=1) == labels).sum().item()
                count += len(labels)
        accuracies.append(right / count)
    return losses, accuracies


def one_training(
    answer: Callable, model: nn.Module, training: list[Batch], validation: list[Batch], epochs: int
) -> dict[str, Any]:
    """A probe: what comes back from a training, and what happened on the way."""
    start, model, given = model, *copy.deepcopy((model, [training, validation]))
    optimizer, passes = WatchedSGD(model, lr=0.3), watch_passes(model)
    with torch.enable_grad():
        returned = call(answer, model, *given, optimizer, epochs, may_change=True)
        changed = probes.changes(model, start, given[0] + given[1], training + validation)
    seen = {"returned": returned, "changed": changed, "events": optimizer.events, "weights": weights(model)}
    return seen | {"passes": passes}


def draw(rng: Inputs) -> tuple:
    """A training whose accuracy is another one after each epoch, so that a count that runs on shows."""
    epochs, accuracies = rng.size(2, 3), []
    while len({*accuracies}) < epochs or 0 in accuracies:
        model, batches = draw_batches(rng, [LARGE] * 4 + rng.sizes(2, 4, 9), norm=True)
        given = model, batches[:4], batches[4:], epochs
        accuracies = one_training(solution, *given)["returned"][1]
    return given


def judge(answer: Any, rng: Inputs) -> None:
    model, training, _, epochs = given = draw(rng)
    seen, right = observed(answer, one_training, *given), one_training(solution, *given)
    lists = seen["returned"]
    if not (isinstance(lists, tuple | list) and [isinstance(one, tuple | list) for one in lists] == [True, True]):
        raise Incorrect("Your function should return two lists.", "(losses, accuracies)", lists)
    losses, accuracies = lists
    look = "a loss for each training batch, none for validation; an accuracy for each epoch; `append` and `return`"
    same([len(losses), len(accuracies)], [len(training) * epochs, epochs], "The pair of lengths", look=look)
    judge_changes(seen["changed"])
    judge_faults(seen, losses, accuracies, model, training[0])
    judge_order(seen["events"])
    same(sum(event == "step" for event in seen["events"]), len(losses), "The number of steps")
    after, look = "The trained model (all its weights in one row)", "the loss, and which batches you train on"
    same(seen["weights"], right["weights"], after, look=look)
    looks = (
        "the mean of each batch, before its step",
        "right answers in all validation batches, divided by the number of their images, both from 0 in each epoch",
    )
    for what, yours, expected, look in zip(("losses", "accuracies"), lists, right["returned"], looks, strict=True):
        numbers = torch.tensor([probes.number(one, "A number in your lists") for one in yours], dtype=torch.float64)
        same(numbers, torch.tensor(expected, dtype=torch.float64), f"Your list of {what}", look=look)


def judge_faults(seen: dict, losses: list, accuracies: list, model: nn.Module, first: Batch) -> None:
    with torch.no_grad():
        softmax = F.cross_entropy(copy.deepcopy(model).train()(first[0]).softmax(1), first[1]).item()
    loss = probes.plain_number(losses[0])
    quiet = [each for each in seen["passes"] if each["images"] < LARGE]
    faults = {
        "eval mode": any(each["graph"] and not each["train"] for each in seen["passes"] if each["images"] == LARGE),
        "old gradients": "backward onto old gradients" in seen["events"],
        "softmax": loss is not None and abs(loss - softmax) < 1e-4,
        "tensors": any(isinstance(one, torch.Tensor) for one in [*losses, *accuracies]),
        "graph": any(each["graph"] for each in quiet),
        "train mode": any(each["train"] for each in quiet),
    }
    left = sum(faults.values()) - 1
    rest = f"Faults that remain after this one: {left}." if left else "No fault remains after this one."
    look = "`model.train()` at the start of each epoch"
    wrong_if(
        faults["eval mode"], "eval_mode", f"In at least one epoch, the model trains in eval mode. {rest}", look=look
    )
    wrong_if(
        faults["old gradients"],
        "old_gradients",
        f"The gradients of batches add up: not every backward pass starts from cleared ones. {rest}",
        look="`optimizer.zero_grad()` belongs in the inner loop",
    )
    wrong_if(faults["softmax"], "softmax", f"There is still a softmax before the cross-entropy, which has one. {rest}")
    wrong_if(
        faults["tensors"],
        "tensors_kept",
        f"Your lists hold tensors; the exercise asks for Python floats. {rest}",
        look="`.item()` takes the number out, for both lists. (A loss that keeps its graph fills the memory.)",
    )
    wrong_if(
        faults["graph"],
        "graph",
        f"The validation still records a graph, although no backward pass follows. {rest}",
        look="`with torch.no_grad():` around the validation loop",
    )
    wrong_if(
        faults["train mode"],
        "train_mode",
        f"The validation runs in train mode: batch norm learns from the validation images. {rest}",
        look="`model.eval()` before the validation loop",
    )


exercise = Exercise(
    title="Repair a loop",
    minutes=8,
    difficulty=4,
    points=3,
    takeaway="None of the five faults raises an error. Check every loop for mode, zero_grad, logits, item and no_grad.",
    hints=(
        "Five questions: which mode, and in the second epoch? whose gradients, and in the second batch? what does "
        "cross_entropy want? what is kept in the lists? where do you need a graph?",
        "`model.train()` and `optimizer.zero_grad()` move inside; no softmax; `losses.append(loss.item())`; "
        "`with torch.no_grad():` around the validation loop.",
    ),
    judge=judge,
    seconds=SLOW_START,
)
