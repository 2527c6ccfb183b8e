"""Dynamic loss scaling by hand: halve after an overflow, double after good steps in a row."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labcheck.authoring import Exercise, Inputs, call, near, observe, same, wrong_if
from labcheck.probes import SLOW_START


def draw(rng: Inputs) -> list[tuple]:
    """A longer run in which every rule shows, and a short one in which each good step doubles the scale."""
    interval = rng.size(2, 3)
    good = ["good"] * interval
    long = [*good, "first", "second", *good[1:], "corner", "both", *good, "good", "nan", "all", *good]
    return [(*draw_run(rng, long), interval), (*draw_run(rng, ["good", "good", "second", "good"]), 1)]


def draw_run(rng: Inputs, kinds: list[str]) -> tuple[list[Tensor], list[tuple]]:
    """Parameters at the start; for each step the gradients of the first two and one summand, all without the scale."""
    start = [rng.randn(rng.size(2, 4), 3), rng.randn(rng.size(3, 6)), rng.randn(3), rng.randn(2)]
    steps = []
    for kind in kinds:
        first, second = (0.25 + 0.5 * rng.rand(*value.shape) for value in start[:2])
        # float16 ends at 65504, and the scale is about a thousand. Mostly, one gradient of one parameter overflows.
        first.view(-1)[rng.size(1, first.numel() - 1)] += 3e3 * (kind in ("first", "both"))
        second[rng.size(1, len(second) - 1)] += 3e3 * (kind in ("second", "both"))
        second[0] += 3e3 * (kind == "corner")
        big = 3e3 * (kind == "all")
        steps.append((first + big, second + big, math.inf if kind == "nan" else 0.0))
    return start, steps


def solution(loss, optimizer, state, growth_interval):
    scale = state["scale"]
    (loss * scale).backward()
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    for parameter in parameters:
        parameter.grad /= scale
    if not all(parameter.grad.isfinite().all() for parameter in parameters):
        state.update(scale=scale / 2, good=0)
        return False
    optimizer.step()
    state["good"] += 1
    if state["good"] == growth_interval:
        state.update(scale=scale * 2, good=0)
    return True


def scaled_steps(answer: Callable, start: list[Tensor], steps: list[tuple], growth_interval: int) -> list[dict]:
    """A probe: the weights, the scale and what comes back after each step."""
    # The third never gets a gradient; that of the fourth is float32, and scaled it is beyond float16, but finite.
    first, second, third, fourth = parameters = [nn.Parameter(value.clone()) for value in start]
    others = {"params": [second], "lr": 0.05}, {"params": [fourth], "lr": 1e-5}
    optimizer = torch.optim.SGD([{"params": [first, third], "momentum": 0.5}, *others], lr=0.1)
    state, seen = {"scale": 2.0**10, "good": 0}, []
    for one, other, infinite in steps:
        optimizer.zero_grad()
        loss = sum((p.half() * g.half()).float().sum() for p, g in ((first, one), (second, other)))
        loss = loss + 300 * fourth.sum() + second[1] * 0.0 * infinite  # the derivative of 0 · second · inf is nan
        took = call(answer, loss, optimizer, state, growth_interval, may_change=True, may_return_none=True)
        one = isinstance(took, np.bool_) or (isinstance(took, Tensor) and took.numel() == 1)
        weights = torch.cat([p.detach().flatten() for p in parameters])
        seen.append({"took": bool(took) if one else took, "scale": state.get("scale"), "weights": weights})
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    for inputs in draw(rng):
        judge_run(observe(answer, scaled_steps, *inputs), scaled_steps(solution, *inputs), *inputs)


def judge_run(seen: list[dict], wanted: list[dict], start: list[Tensor], steps: list, growth_interval: int) -> None:
    before = torch.cat([value.flatten() for value in start])
    moved, right_move = before - seen[0]["weights"], before - wanted[0]["weights"]
    wrong_if(
        not moved.any(),
        "no_step",
        "No weight has moved after a step whose gradients are all finite.",
        look="`optimizer.step()`; a gradient in float32 may be beyond 65504",
    )
    wrong_if(
        near(moved, right_move * 1024, 0.01, 0.1),
        "still_scaled",
        "Your step uses gradients that are still multiplied by the scale.",
        look="divide every `.grad` by the scale before `optimizer.step()`",
    )
    for number, (step, right) in enumerate(zip(seen, wanted, strict=True), 1):
        wrong_if(
            not step["weights"].isfinite().all(),
            "infinite",
            "Infinite or nan gradients reached the weights. Step only if every element of every gradient is finite.",
            look="`.isfinite().all()` of each `.grad`, in all groups of the optimizer, after `backward()`",
        )
        wrong_if(
            not right["took"] and not near(step["weights"], before, 0, 0),
            "partial_step",
            "In a step with a gradient that is not finite, weights moved: skip the whole step. Zeros in place of "
            "gradients are not enough, because momentum and the other gradients still move weights.",
            look="`if` before `optimizer.step()`",
        )
        so_far = ", ".join("good" if each["took"] else "not finite" for each in wanted[:number])
        here = {"look": f"the gradients so far: {so_far}; growth_interval = {growth_interval}", "dtype": False}
        same(step["weights"], right["weights"], f"The row of all weights after step {number}", rtol=1e-3, **here)
        same(step["scale"], right["scale"], f"The scale after step {number}", **here)
        same(step["took"], right["took"], f"What you return in step {number}", **here)
        before = step["weights"]


exercise = Exercise(
    title="Your own scaler",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Dynamic scaling is a search that never ends: double until it overflows, then halve, skip one step, and "
    "continue.",
    hints=(
        "Scale the loss, run `backward()`, and divide the gradients by the same scale. Then one question decides "
        "everything: are *all* gradients finite?",
        "Finite: step, and that is one more good step in a row; after growth_interval of them, double the scale and "
        "start counting again. Not finite: no step, halve the scale, start counting again.",
        "`good = all(p.grad.isfinite().all() for p in parameters if p.grad is not None)`; the parameters are in "
        '`group["params"] for group in optimizer.param_groups`.',
    ),
    judge=judge,
    seconds=SLOW_START,
)
