"""What can go wrong in a training loop: mistakes for any solution that trains as

    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

A probe for them trains with a `WatchedSGD` and returns what `watch_training` gives, and under CHANGED what
`probes.changes` says.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from labcheck.probes import WatchedSGD, in_order, weights
from torchcourse_labs._spec import Mistake, altered, changed, says

CHANGED = "What your function changed, and should not"
FORBIDDEN = ("layers", "requires_grad", "batches", "switch")  # what no training may change


def then(solution: Callable, action: Callable) -> Callable:
    """The solution, and something after it."""
    return lambda *given: [solution(*given), action(*given)][0]


def leaves_changed(what: str, problem: str, *wrong: Callable, look: str | None = None) -> Mistake:
    return Mistake(problem, *wrong, look=look, when=lambda yours, *_: what in yours[CHANGED])


def side_effects(solution: Callable, spoil: Callable) -> list[Mistake]:
    """spoil: a function of the same arguments that changes a batch"""
    return [
        leaves_changed(
            "switch",
            "Your function leaves gradients switched off: no `backward()` after it would work.",
            then(solution, lambda *given: torch.set_grad_enabled(False)),
            look="`with torch.no_grad():` switches them back on by itself, `torch.set_grad_enabled(False)` does not",
        ),
        leaves_changed(
            "layers",
            "Your function took the model apart: layers or weights are missing or have other shapes.",
            then(solution, lambda model, *given: model.pop(-1)),
        ),
        leaves_changed(
            "batches",
            "Your function changed the batches that it got. Other code may still need them as they were.",
            then(solution, spoil),
            look="what works in place: `pop`, `-=`, methods that end in an underscore",
        ),
        leaves_changed(
            "requires_grad",
            "Your function left parameters with another `requires_grad` than before.",
            then(solution, lambda model, *given: model.requires_grad_(False)),
        ),
    ]


def _when(condition: Callable[[list[str]], Any]) -> Callable:
    """A condition on the events of a training, in their order."""
    return lambda yours, *_: condition(yours["events"])


def _first(events: list[str], word: str) -> int:
    return next((i for i, event in enumerate(events) if event.startswith(word)), len(events))


def wrong_order(solution: Callable) -> list[Mistake]:
    """What can go wrong between forward and step. The sentences quote what happened."""
    zero, backward, step = "optimizer.zero_grad()", "loss.backward()", "optimizer.step()"
    return [
        Mistake(
            "A step changed weights that a later `backward()` still needed, and PyTorch noticed.",
            changed(solution, (backward, "pass"), (step, f"{step}; {backward}"), (zero, "pass")),
            look="the order: zero_grad, backward, step",
            when=lambda yours, *_: says(yours, "modified by an inplace operation"),
        ),
        Mistake(
            "`backward()` found no graph: the loss does not know how it was computed.",
            changed(solution, (backward, "loss.detach().backward()")),
            changed(solution, ("loss = F.cross_entropy(model(images), labels)", "loss = torch.tensor(1.0)")),
            look="`.detach()`, `.item()` or `torch.tensor(...)` before `backward()`; or gradients that are switched "
            "off: by `torch.no_grad()` around too much, or by `torch.set_grad_enabled(False)`, which stays until you "
            "undo it",
            when=lambda yours, *_: says(yours, "does not require grad"),
        ),
        Mistake(
            "You train a copy, and the model that came in stays as it was. This happened: {yours[order]}.",
            lambda model, *given: solution(copy.deepcopy(model), *given),
            when=_when(lambda events: "forward of a copy" in events and "backward" not in events),
        ),
        Mistake(
            "No gradient ever reached the weights of the model. This happened: {yours[order]}.",
            changed(solution, (backward, "pass")),
            changed(solution, (backward, "loss.detach().requires_grad_().backward()")),
            look="`loss.backward()`, with a loss that is not detached from the model",
            when=_when(lambda events: not any(event.startswith("backward") for event in events)),
        ),
        Mistake(
            "The optimizer that came in never took a step, but the weights changed. This happened: {yours[order]}.",
            changed(solution, (zero, "optimizer = torch.optim.SGD(model.parameters(), lr=0.1); " + zero)),
            look="an optimizer of your own? Call `step()` of the one that you get.",
            when=lambda yours, *_: yours["moved"] and not any(e.startswith("step") for e in yours["events"]),
        ),
        Mistake(
            "The optimizer never took a step: the weights are what they were. This happened: {yours[order]}.",
            changed(solution, (step, "pass")),
            look="`optimizer.step()`",
            when=_when(lambda events: not any(event.startswith("step") for event in events)),
        ),
        Mistake(
            "Your step comes before the backward pass: it uses old gradients, or none. This happened: {yours[order]}.",
            changed(solution, (backward, "pass"), (step, f"{step}; {backward}")),
            look="the order of `optimizer.step()` and `loss.backward()`",
            when=_when(lambda events: _first(events, "step") < _first(events, "backward")),
        ),
        Mistake(
            "The gradients are cleared between backward and step, so the step has nothing to use. This happened: "
            "{yours[order]}.",
            changed(solution, (zero, "pass"), (backward, f"{backward}; {zero}")),
            changed(solution, (backward, f"{backward}; model.zero_grad()")),
            look="zero_grad → backward → step",
            when=_when(lambda events: "step without gradients" in events),
        ),
        Mistake(
            "The optimizer takes {yours[The number of steps]} steps; with one for each batch there are "
            "{expected[The number of steps]}.",
            changed(solution, (step, f"{step}; {step}")),
            look="`optimizer.step()`",
            when=lambda yours, expected, *_: yours["The number of steps"] != expected["The number of steps"],
        ),
        Mistake(
            "The gradients of earlier batches are still there: `backward()` adds to them, so a step repeats old ones. "
            "This happened: {yours[order]}.",
            changed(solution, (zero, "pass")),
            look="`optimizer.zero_grad()` before each backward",
            when=_when(lambda events: "backward onto old gradients" in events),
        ),
    ]


def wrong_loss(solution: Callable) -> list[Mistake]:
    """Steps along another loss."""
    return altered(
        solution,
        """
        F.cross_entropy(model(images), labels) → F.cross_entropy(model(images).softmax(dim=1), labels)
            There is a softmax before the cross-entropy, which has one inside: give it the logits as they are.
        F.cross_entropy(model(images), labels)
                → F.nll_loss(model(images), labels) || F.nll_loss(model(images).softmax(dim=1), labels)
            `F.nll_loss` takes log-probabilities, and you gave it something else. `F.cross_entropy` takes the logits.
        F.cross_entropy(model(images), labels) → F.cross_entropy(model(images), labels, reduction="sum")
            Your steps use the sum of the losses, so a batch of 100 images makes them 100 times too long.
        F.cross_entropy(model(images), labels) → F.cross_entropy(model(images), labels) / len(labels)
            You divide the loss by the batch size. `F.cross_entropy` is a mean already.
        """,
    )


def watch_training(optimizer: WatchedSGD, model: nn.Module, start: nn.Module) -> dict[str, Any]:
    """What the mistakes above look at."""
    events = optimizer.events
    return {
        "events": events,
        "order": in_order(events),
        "The number of steps": sum(event.startswith("step") for event in events),
        "moved": not torch.equal(weights(model), weights(start)),
    }
