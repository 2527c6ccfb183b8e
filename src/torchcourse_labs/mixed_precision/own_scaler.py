"""Dynamic loss scaling by hand: halve after an overflow, double after good steps in a row."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labcheck.authoring import Exercise, Inputs, call, equal, near, observe, same, wrong_if
from labcheck.probes import SLOW_START
from torchcourse_labs.mixed_precision._shared import NO_GRADIENT


def draw(rng: Inputs) -> list[tuple]:
    """A longer run in which every rule shows, and one whose scale doubles in each good step, and falls below 1."""
    good = ["good"] * rng.size(2, 3)
    short = ["good", "good", *["nan"] * 14, "good"]
    long = [*good, "first", "second", *good[1:], "both", *good, "good", "nan", *good]
    return [(kinds, n, *map(rng.randn, rng.sizes(3, 3, 6))) for kinds, n in ((long, len(good)), (short, 1))]


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


def scaled_steps(answer: Callable, kinds: list[str], growth_interval: int, *start: Tensor) -> list[dict]:
    """A probe: the weights, the scale and what comes back after each step. Kinds say which gradients overflow."""
    first, second, third = parameters = [nn.Parameter(value.clone()) for value in start]
    groups = [{"params": [first, nn.Parameter(torch.ones(3))], "momentum": 0.5}, {"params": [second], "lr": 0.05}]
    groups.append({"params": [third], "lr": 1e-5})  # its scaled gradient is float32: beyond float16, but finite
    optimizer, state, seen = torch.optim.SGD(groups, lr=0.1), {"scale": 2.0**10, "good": 0}, []
    for kind in kinds:
        optimizer.zero_grad()
        slopes = [torch.linspace(0.25, 0.75, len(p)) for p in (first, second)]
        for name, slope in zip(("first", "second"), slopes, strict=True):  # times the scale, one is beyond float16
            slope[-1] += 3e3 * (kind in (name, "both"))
        loss = sum((p.half() * slope.half()).float().sum() for p, slope in zip((first, second), slopes, strict=True))
        loss = loss + 300 * third.sum() + second.sum() * (math.nan if kind == "nan" else 0.0)
        took = call(answer, loss, optimizer, state, growth_interval, may_change=True, may_return_none=True)
        if isinstance(took, np.bool_) or (isinstance(took, Tensor) and took.numel() == 1):
            took = bool(took)
        seen.append({"took": took, "scale": state.get("scale"), "weights": torch.cat(parameters).detach()})
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    for inputs in draw(rng):
        with NO_GRADIENT:
            seen, wanted = observe(answer, scaled_steps, *inputs), scaled_steps(solution, *inputs)
        before = torch.cat(inputs[2:])
        wrong_if(
            near(before - seen[0]["weights"], (before - wanted[0]["weights"]) * 1024, 0.01, 0.1),
            "still_scaled",
            "Your step uses gradients that are still multiplied by the scale.",
            look="divide every `.grad` by the scale before `optimizer.step()`",
        )
        for number, (step, right) in enumerate(zip(seen, wanted, strict=True), 1):
            wrong_if(
                not right["took"] and not equal(step["weights"], before),
                "partial_step",
                "In a step with a gradient that, times the scale, is not finite, weights moved: skip the whole step. "
                "Zeros in place of gradients are not enough: momentum and the other gradients still move weights.",
                look="`(loss * scale).backward()`, then `.isfinite().all()` of each `.grad`, in all groups",
            )
            so_far = ", ".join("good" if each["took"] else "not finite" for each in wanted[:number])
            so_far = f"the gradients so far: {so_far}; growth_interval = {inputs[1]}"
            look = "the scale multiplies the loss and divides the gradients of all groups, which nothing clears; if "
            look += f"one is not finite, no `optimizer.step()`, as it changes the momentum; {so_far}"
            same(step["weights"], right["weights"], f"The row of all weights after step {number}", rtol=1e-3, look=look)
            look = f"in the dict that you got: halve or double, and each time `good` is 0 again; {so_far}"
            same(step["scale"], right["scale"], f'`state["scale"]` after step {number}', dtype=False, look=look)
            same(step["took"], right["took"], f"What you return in step {number}", look=so_far)
            before = step["weights"]


exercise = Exercise(
    title="Your own scaler",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Dynamic scaling never stops searching: double until it overflows, halve, skip one step, and continue.",
    hints=(
        "Scale the loss, run `backward()`, and divide the gradients by the same scale. Then one question decides: are "
        "*all* gradients finite? If they are, step, and count; if not, halve the scale, and start counting again.",
        "`good = all(p.grad.isfinite().all() for p in parameters if p.grad is not None)`; the parameters are in "
        '`group["params"] for group in optimizer.param_groups`.',
    ),
    judge=judge,
    seconds=SLOW_START,
)
