"""A training loop with five silent faults, to be repaired: the check names one at a time and counts the others."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, same, wrong_if
from labcheck.probes import SLOW_START, Batch, network, weights
from torchcourse_labs.training_loop._shared import WatchedSGD, judge_changes, judge_order, make_batches

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
    answer: Callable, model: nn.Module, training: list[Batch], validation: list[Batch], lr: float, epochs: int
) -> dict[str, Any]:
    """A probe: what comes back from a training, and what happened on the way."""
    start, model, given = model, *copy.deepcopy((model, [training, validation]))
    optimizer = WatchedSGD(model, lr)
    with torch.enable_grad():
        returned = call(answer, model, *given, optimizer, epochs, may_change=True)
        changed = probes.changes(model, start, given[0] + given[1], training + validation)
    return {
        "returned": returned,
        "changed": changed,
        "events": optimizer.events,
        "passes": [dict(each) for each in optimizer.passes],
        "weights": weights(model),
    }


def draw(rng: Inputs) -> tuple:
    """A training whose accuracy is another one after each epoch, so that a count that runs on shows."""
    (height, width), classes, epochs = rng.sizes(2, 3, 5), rng.size(3, 5), rng.size(2, 3)
    while True:
        model = network(rng, height * width, classes, norm=True)
        training = make_batches(rng, [LARGE] * 4, height, width, classes)
        validation = make_batches(rng, rng.sizes(2, 4, 9), height, width, classes)
        accuracies = one_training(solution, model, training, validation, 0.3, epochs)["returned"][1]
        if len({*accuracies}) == epochs and 0 not in accuracies:
            return model, training, validation, 0.3, epochs


def judge(answer: Any, rng: Inputs) -> None:
    given = draw(rng)
    model, training, epochs = given[0], given[1], given[-1]
    seen, right = observe(answer, one_training, *given), one_training(solution, *given)
    lists = seen["returned"]
    if not (isinstance(lists, tuple | list) and [isinstance(one, tuple | list) for one in lists] == [True, True]):
        raise Incorrect("Your function should return two lists.", "(losses, accuracies)", lists)
    losses, accuracies = lists
    wrong_if(
        (len(losses), len(accuracies)) != (len(training) * epochs, epochs),
        "lengths",
        "The lists have the wrong lengths: return a loss for each batch of each epoch, and an accuracy for each epoch.",
        look="`for epoch in range(epochs)`; in which loop is each `append`, and where does the function return?",
        expected=f"{len(training) * epochs} losses and {epochs} accuracies",
        yours=f"{len(losses)} losses and {len(accuracies)} accuracies",
    )
    judge_changes(seen["changed"])
    judge_faults(seen, losses, accuracies, model, training[0])
    judge_order(seen["events"])
    same(sum(event == "step" for event in seen["events"]), len(losses), "The number of steps")
    after = "The trained model (all its weights in one row)"
    same(
        seen["weights"], right["weights"], after, rtol=1e-4, atol=1e-5, look="the loss, and which batches you train on"
    )
    for what, yours, expected in zip(("losses", "accuracies"), lists, right["returned"], strict=True):
        numbers = torch.tensor([probes.number(one, "A number in your lists") for one in yours], dtype=torch.float64)
        same(numbers, torch.tensor(expected, dtype=torch.float64), f"Your list of {what}")


def judge_faults(seen: dict, losses: list, accuracies: list, model: nn.Module, first: Batch) -> None:
    with torch.no_grad():
        softmax = F.cross_entropy(copy.deepcopy(model).train()(first[0]).softmax(1), first[1]).item()
    quiet = [each for each in seen["passes"] if each["images"] < LARGE]
    modes = [each["mode"] for each in seen["passes"] if each["images"] == LARGE and each["graph"]]
    loss = probes.plain_number(losses[0])
    faults = {
        "eval mode": "eval" in modes,
        "old gradients": "backward onto old gradients" in seen["events"],
        "softmax": loss is not None and abs(loss - softmax) < 1e-4,
        "tensors": any(isinstance(one, torch.Tensor) for one in [*losses, *accuracies]),
        "graph": any(each["graph"] for each in quiet),
        "train mode": any(each["mode"] != "eval" for each in quiet),
    }
    found = [name for name, there in faults.items() if there]
    first, left = found[0] if found else None, len(found) - 1
    rest = f"Faults that remain after this one: {left}." if left else "No fault remains after this one."
    wrong_if(
        first == "eval mode",
        "eval_mode",
        f"In at least one epoch, the model trains in eval mode. {rest}",
        look="`model.train()` at the start of each epoch",
    )
    wrong_if(
        first == "old gradients",
        "old_gradients",
        f"The gradients of batches add up: not every backward pass starts from cleared ones. {rest}",
        look="`optimizer.zero_grad()` belongs in the inner loop",
    )
    wrong_if(
        first == "softmax",
        "softmax",
        f"There is still a softmax before the cross-entropy, which has one inside. {rest}",
    )
    wrong_if(
        first == "tensors",
        "tensors_kept",
        f"Your lists hold tensors; the exercise asks for Python floats. {rest}",
        look="`.item()` takes the number out of a tensor. (A loss that keeps its graph keeps it in memory, too.)",
    )
    wrong_if(
        first == "graph",
        "graph",
        f"The validation still records a graph, although no backward pass follows. {rest}",
        look="`with torch.no_grad():` around the validation loop",
    )
    wrong_if(
        first == "train mode",
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
        "Go through the loop with five questions: which mode? whose gradients? what does cross_entropy want? "
        "what is kept in the lists? where do you need a graph?",
        "The first epoch trains in train mode. Does the second? Who clears the gradients for the second batch?",
        "`model.train()` and `optimizer.zero_grad()` move inside; no softmax; `losses.append(loss.item())`; "
        "`with torch.no_grad():` around the validation loop.",
    ),
    judge=judge,
    seconds=SLOW_START,
)
