"""One training step with autocast, a gradient scaler, and clipped gradients, in the right order."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, call, near, observe, raises_like, same, wrong_if
from labcheck.probes import SLOW_START, network, number, weights
from torchcourse_labs.mixed_precision._shared import judge_dtypes, watch

OLD = 0.5  # gradients that are there before the first step


def draw(rng: Inputs) -> list[tuple]:
    """bfloat16 without a scaler, where clipping doesn't matter, and does; and float16 with one."""
    pixels, classes = rng.size(5, 9), rng.size(3, 6)
    model = network(rng, pixels, classes)
    batches = [(rng.randn(n, 1, 1, pixels), rng.ints(0, classes, (n,))) for n in rng.sizes(5, 6, 14)]
    few = [batches[0], batches[1], batches[3]]
    batches[2][0][0, 0, 0, 0] = 3e5  # float16 makes inf of it: this step has to be skipped
    F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
    length = nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
    return [
        (model, few, torch.bfloat16, length * 50, 0.3 / length),
        (model, batches, torch.float16, length / 4, 1 / length),
        (model, few, torch.bfloat16, length / 4, 1 / length),
    ]


def solution(model, images, labels, optimizer, scaler, dtype, max_norm):
    with torch.autocast(images.device.type, dtype=dtype):
        loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


def watched_steps(
    answer: Callable, model: nn.Module, batches: list, dtype: torch.dtype, max_norm: float, lr: float
) -> list[dict]:
    """A probe: a step on each batch."""
    model, observed = copy.deepcopy(model), []
    for p in model.parameters():  # what a backward pass before may have left
        p.grad = torch.full_like(p, OLD)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0, growth_interval=2, enabled=dtype == torch.float16)
    for images, labels in batches:
        inputs = model, images.clone(), labels.clone(), optimizer, scaler, dtype, max_norm
        with watch(model) as seen:
            loss = call(answer, *inputs, may_change=True, may_return_none=True)
        after = {"scale": scaler.get_scale(), "trained": weights(model)}
        observed.append({"loss": loss.detach() if isinstance(loss, Tensor) else loss, **seen, **after})
    return observed


def judge(answer: Any, rng: Inputs) -> None:
    for inputs in draw(rng):
        with raises_like(
            "no_update",
            "`scaler.update()` ends each step. Yours is missing, or comes before `scaler.step(optimizer)`.",
            "called after step",
        ):
            seen, wanted = observe(answer, watched_steps, *inputs), watched_steps(solution, *inputs)
        dtype, max_norm = inputs[2:4]
        for each in seen:
            judge_dtypes(each, dtype)
            each["loss"] = number(each["loss"], "What you return")
        first, right, size = seen[0], wanted[0], wanted[0]["used"].norm().item()
        look = "the mean over the batch, before the step, and not multiplied by the scale"
        same(first["loss"], right["loss"], "The loss that you return", rtol=1e-2, look=look)
        wrong_if(
            near(first["used"], right["used"] + OLD, 1e-2, 0.01 * size),
            "old_gradients",
            "Old gradients are still there: `backward()` adds to them, and they were not even scaled.",
            look="`optimizer.zero_grad()` before each backward pass",
        )
        if all(torch.tensor(each["loss"]).to(dtype).item() == each["loss"] for each in seen[:2]):
            look = "inside the `with` block, autocast computes the cross-entropy in float32"
            raise Incorrect(f"The loss is computed in {dtype}: multiplied by the scale, it may overflow.", look=look)
        wrong_if(
            first["steps"] and 0 < first["used"].norm() < 0.02 * size,
            "divided_after",
            "The gradients that your step uses are far too small: they were still multiplied by the scale when you "
            "clipped them, or divided by it more often than multiplied.",
            look="`scaler.scale(loss).backward()`, then `scaler.unscale_(optimizer)`, once and before the clipping",
        )
        wrong_if(
            any(each["steps"] > one["steps"] == 0 for each, one in zip(seen, wanted, strict=True)),
            "not_skipped",
            "A batch with infinite gradients changes the weights: this step has to be skipped.",
            look="`scaler.step(optimizer)` skips it, unless you hide inf and nan from it; `optimizer.step()` does not",
        )
        for i, (each, one) in enumerate(zip(seen, wanted, strict=True), 1):
            same(each["steps"], one["steps"], f"The number of steps on batch {i}", look="`scaler.step`, called once")
            if one["steps"]:
                look = f"max_norm is {max_norm:.3g}; clip all gradients together, between `unscale_` and `scaler.step`"
                look = look if each["used"].any() else "`zero_grad` between `backward()` and the step clears them"
                what = f"The row of all gradients that the step on batch {i} uses"
                same(each["used"], one["used"], what, rtol=1e-2, atol=0.01 * one["used"].norm().item(), look=look)
        for name, what in (("scale", "scale after"), ("loss", "loss of")):
            yours, right = (torch.tensor([each[name] for each in run]) for run in (seen, wanted))
            look = "the scaler that comes in, no new one; `scaler.update()` once, at the end of each step"
            same(yours, right, f"The {what} each batch", rtol=1e-2, look=look)
        same(seen[-1]["trained"], wanted[-1]["trained"], "The weights after all steps", rtol=1e-2, atol=2e-3)


exercise = Exercise(
    title="The step in the right order",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="Scale, backward, unscale_, clip, step, update: nothing may look at the gradients before they are "
    "unscaled.",
    hints=(
        "Forward pass and loss are inside autocast. Everything after them goes through the scaler, and the "
        "clipping has to see gradients without the scale.",
        "Clear old gradients, `scaler.scale(loss).backward()`, `scaler.unscale_(optimizer)`, "
        "`nn.utils.clip_grad_norm_(model.parameters(), max_norm)`, then two more calls of the scaler: one steps, one "
        "changes the scale. Return `loss.item()`.",
    ),
    judge=judge,
    seconds=SLOW_START,
    lends=solution,
)
