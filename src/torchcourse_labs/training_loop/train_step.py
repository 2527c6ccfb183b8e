"""One step of training on one batch: mode, prediction, loss, gradients of this batch alone, step."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import Exercise, Inputs, call, near, raises_like, same, wrong_if
from labcheck.probes import SLOW_START, Batch, weights
from torchcourse_labs.training_loop._shared import WatchedSGD, draw, judge_changes, judge_order, observed, watch_passes


def solution(model: nn.Module, images: Tensor, labels: Tensor, optimizer: Any) -> float:
    model.train()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def one_step(answer: Callable, model: nn.Module, batch: Batch) -> dict[str, Any]:
    """A probe: what happens in a step. The model comes in eval mode, with old gradients."""
    start, model, given = model, *copy.deepcopy((model, batch))
    optimizer, passes, inputs = WatchedSGD(model.eval(), lr=0.3), watch_passes(model), []
    model[0].register_forward_pre_hook(lambda _, images: inputs.append(images[0].detach().clone()))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    with torch.enable_grad():
        loss = call(answer, model, *given, optimizer, may_change=True)
        changed = probes.changes(model, start, [given], [batch])
    seen = {"loss": loss, "changed": changed, "weights": weights(model), "events": optimizer.events}
    return seen | {"passes": passes, "inputs": inputs}


def judge(answer: Any, rng: Inputs) -> None:
    model, (batch,) = draw(rng, [rng.size(5, 11)])
    with raises_like(
        "step_inside",
        "A later `backward()` still needed a tensor that was changed in place, as the weights are by a step.",
        "modified by an inplace operation",
        look="the order: zero_grad, backward, step",
    ):
        seen = observed(answer, one_step, model, batch)
    right = one_step(solution, model, batch)
    judge_changes(seen["changed"])
    loss = probes.number(seen["loss"], "The loss that you return")
    judge_order(seen["events"])
    wrong_if(
        "backward onto old gradients" in seen["events"],
        "old_gradients",
        "`backward()` adds to gradients that are still there, those of earlier batches or of a part of this one.",
        look="`optimizer.zero_grad()`, then one `backward()` of the whole batch",
    )
    wrong_if(
        any(each["graph"] and not each["train"] for each in seen["passes"]),
        "eval_mode",
        "The model was in eval mode when it got the images. In that mode, dropout is off, and batch norm uses its "
        "running statistics.",
        look="`model.train()` at the start, before the forward pass",
    )
    what, look = "What the model gets", "`model(images)`: the images as they are, neither flattened nor scaled"
    same(seen["inputs"][0], batch[0], what, look=look)
    look = "call `model(images)` once, for the loss and for the number that you return: batch norm counts every pass"
    same(sum(each["train"] for each in seen["passes"]), 1, "The number of passes through the model", look=look)
    same(sum(event.startswith("step") for event in seen["events"]), 1, "The number of steps with one batch")
    wrong_if(
        near(loss, F.cross_entropy(model(batch[0]).softmax(dim=1), batch[1]).item()),
        "softmax",
        "There is a softmax before the cross-entropy, which has one inside: give it the logits as they are.",
    )
    look = "the loss: `F.cross_entropy` of the logits, the mean of the batch, as it is before the step"
    same(loss, right["loss"], "The loss that you return", rtol=1e-5, atol=1e-6, look=look)
    after = "The model after your step (all its weights in one row)"
    look = "`backward()` of the mean loss that you return; between it and the step, nothing changes the gradients"
    same(seen["weights"], right["weights"], after, rtol=1e-5, atol=3e-6, look=look)


exercise = Exercise(
    title="One step of training",
    minutes=7,
    difficulty=3,
    points=2,
    takeaway="Clear, backward, step: the order counts, and no error tells you when it is wrong.",
    hints=(
        "In this order: mode, prediction, loss, gradients, step. Clear the old gradients before you compute new ones.",
        "`model.train()`, `F.cross_entropy(model(images), labels)`, `optimizer.zero_grad()`, `loss.backward()`, "
        "`optimizer.step()`; return the number, `loss.item()`.",
    ),
    judge=judge,
    seconds=SLOW_START,
    lends=solution,
)
