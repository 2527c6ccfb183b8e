"""One step of training on one batch: mode, prediction, loss, gradients of this batch alone, step."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import AnswerRaised, Exercise, Inputs, call, near, observe, same, wrong_if
from labcheck.probes import SLOW_START, Batch, network, weights
from torchcourse_labs.training_loop._shared import WatchedSGD, in_order, judge_changes, judge_order, make_batches


def solution(
    model: nn.Module, images: Tensor, labels: Tensor, optimizer: Any, loss_of: Callable = F.cross_entropy
) -> float:
    model.train()
    loss = loss_of(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def several_steps(answer: Callable, model: nn.Module, batches: list[Batch], lr: float) -> dict[str, Any]:
    """A probe: what happens in a step with each batch. The model comes in eval mode, with old gradients."""
    start, model, given = model, *copy.deepcopy((model, batches))
    model.eval()
    optimizer, losses, changed = WatchedSGD(model, lr), [], []
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    for images, labels in given:
        with torch.enable_grad():
            losses.append(call(answer, model, images, labels, optimizer, may_change=True))
            changed += probes.changes(model, start, given, batches)
        if {"layers", "requires_grad"} & {*changed}:  # the next step would fail
            break
    passes = [dict(each) for each in optimizer.passes if not each["copy"]]
    return {
        "changed": changed,
        "losses": losses,
        "events": optimizer.events,
        "weights": weights(model),
        "in eval mode": sum(each["graph"] and each["mode"] != "train" for each in passes),
        "in train mode": sum(each["mode"] == "train" for each in passes),
    }


def judge(answer: Any, rng: Inputs) -> None:
    (height, width), classes = rng.sizes(2, 3, 6), rng.size(3, 7)
    model = network(rng, height * width, classes)
    batches = make_batches(rng, [rng.size(5, 11) for _ in range(3)], height, width, classes)
    try:
        seen = observe(answer, several_steps, model, batches, 0.3)
    except AnswerRaised as raised:
        wrong_if(
            "modified by an inplace operation" in str(raised),
            "step_inside",
            "A later `backward()` still needed a tensor that was changed in place, as the weights are by a step.",
            look="the order: zero_grad, backward, step",
        )
        raise
    right = several_steps(solution, model, batches, 0.3)
    judge_changes(seen["changed"])
    losses = [probes.number(loss, "The loss that you return") for loss in seen["losses"]]
    judge_order(seen["events"])
    wrong_if(
        "backward onto old gradients" in seen["events"],
        "old_gradients",
        "The gradients of earlier batches are still there: `backward()` adds to them, so a step repeats old ones.",
        look="`optimizer.zero_grad()` before each backward",
        yours=in_order(seen["events"]),
    )
    wrong_if(
        seen["in eval mode"],
        "eval_mode",
        "The model, or a part of it, was in eval mode when it got the images. In that mode, dropout is off, and batch "
        "norm uses its running statistics.",
        look="`model.train()` at the start, before the forward pass",
    )
    wrong_if(
        seen["in train mode"] > len(batches),
        "second_forward",
        "In your step, the batch goes through the model more than once in train mode: batch norm would count its "
        "images twice, and dropout, or a step in between, would change the loss.",
        look="call `model(images)` once, and use its result for the loss and for the number that you return",
    )
    steps = [event for event in seen["events"] if event.startswith("step")]
    same(len(steps), len(batches), f"The number of steps with {len(batches)} batches")

    def follows(loss_of: Callable) -> bool:
        with_it = several_steps(partial(solution, loss_of=loss_of), model, batches, 0.3)
        return near(seen["weights"], with_it["weights"], rtol=1e-5, atol=3e-6)

    wrong_if(
        follows(lambda logits, labels: F.cross_entropy(logits.softmax(dim=1), labels)),
        "softmax",
        "There is a softmax before the cross-entropy, which has one inside: give it the logits as they are.",
    )
    wrong_if(
        follows(partial(F.cross_entropy, reduction="sum")),
        "sum",
        "Your steps use the sum of the losses, so a batch of 100 images makes them 100 times too long.",
        look='`reduction="sum"`, or a product with the size of the batch: the default is the mean',
    )
    after = f"The model after {len(batches)} of your steps (all its weights in one row)"
    same(seen["weights"], right["weights"], after, rtol=1e-5, atol=3e-6)
    same(len(losses), len(batches), "The number of losses")
    for yours, expected in zip(losses, right["losses"], strict=True):
        same(yours, expected, "The loss that you return", look="the mean loss of the batch, before the step")


exercise = Exercise(
    title="One step of training",
    minutes=7,
    difficulty=3,
    points=2,
    takeaway="Clear, backward, step: the order counts, and no error tells you when it is wrong.",
    hints=(
        "In this order: mode, prediction, loss, gradients, step. Clear the old gradients before you compute new ones.",
        "`model.train()`, `F.cross_entropy(model(images), labels)`, `optimizer.zero_grad()`, `loss.backward()`, "
        "`optimizer.step()`.",
        "Return the number, not the tensor: `return loss.item()`.",
    ),
    judge=judge,
    seconds=SLOW_START,
    lends=solution,
)
