"""A run in float16 that small gradients and one overflow ruin: rescue it."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, equal, observe, wrong_if
from labcheck.probes import SLOW_START, weights
from torchcourse_labs.mixed_precision._shared import Watch, judge_dtypes, linear

Batches = list[tuple[Tensor, Tensor]]


def draw(rng: Inputs) -> tuple[nn.Module, Batches, int]:
    features, rows, count = rng.size(5, 8), 2000, 8
    slopes = 2e-5 * rng.randn(features) + 2e-5
    inputs = [rng.randn(rows, features) for _ in range(count)]
    batches = [(x, (x @ slopes + 1e-5).unsqueeze(1)) for x in inputs]
    inputs[rng.size(3, count - 2)][rng.size(0, rows - 1), 0] = 1e6  # the sensor's glitch: inf in float16
    model = nn.Sequential(linear(rng, features, 1))
    nn.init.constant_(model[0].weight, 1.5 + rng.rand(1).item())
    nn.init.ones_(model[0].bias)
    return model, batches, rng.size(5, 6)


def solution(model: nn.Module, batches: Batches, epochs: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    scaler = torch.amp.GradScaler(batches[0][0].device.type)
    for _ in range(epochs):
        for x, y in batches:
            with torch.autocast(x.device.type, dtype=torch.float16):
                loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


def watched_run(answer: Callable, model: nn.Module, batches: Batches, epochs: int) -> dict:
    """A probe: a whole run."""
    model, given = copy.deepcopy(model), copy.deepcopy(batches)
    with warnings.catch_warnings(record=True), Watch(model) as watch:
        watch.call(answer, model, given, epochs)
    return watch.seen() | {"trained": weights(model), "changed": not equal(given, batches)}


def judge(answer: Any, rng: Inputs) -> None:
    model, batches, epochs = draw(rng)
    seen = observe(answer, watched_run, model, batches, epochs)
    judge_dtypes(seen, torch.float16)
    wrong_if(
        not seen["trained"].isfinite().all(),
        "nan",
        "The weights are nan or infinite, as they are after a step with the infinite gradients of a batch that "
        "overflows float16.",
        look="`scaler.step(optimizer)` skips such a step; `optimizer.step()` does not, nor a scaler for another device",
    )
    passes, all_batches = len(seen["layers"]), epochs * len(batches)
    wrong_if(
        0 < passes < 0.8 * all_batches,
        "ends_early",
        f"Your run ends too early: the model runs {passes} times, but there are {all_batches} batches in all epochs.",
        look="two loops, over epochs and batches; a `return` or a `break` inside",
    )
    wrong_if(
        seen["steps"] == 0 and seen["came"] is not None and not seen["came"].isfinite().all(),
        "all_skipped",
        "No step is ever taken, and the last gradients are infinite: the scale never becomes small enough.",
        look="make the scaler once, before the loops; `scaler.step(optimizer)` and `scaler.update()` follow each "
        "backward pass: after an overflow, they halve the scale",
    )
    wrong_if(seen["changed"], "changes_data", "You change the batches: the caller needs them as they were.")
    x, y = (torch.cat(parts).double() for parts in zip(*batches[:2], strict=True))  # without the glitch
    left = (x @ seen["trained"][:-1, None] + seen["trained"][-1] - y).square().mean() / y.var()
    if left < 0.003:
        return
    wrong_if(
        seen["added"],
        "old_gradients",
        "Your gradients add up: each backward pass adds to old ones.",
        look="`optimizer.zero_grad()` before each backward pass",
    )
    wrong_if(
        seen["steps"] and seen["came"] is not None and not seen["came"].any(),
        "zero_gradients",
        "The run ends with zero gradients, although it is not close enough: in float16, small gradients become zero.",
        look="scale the loss before `backward()`, in float32, and let the scaler start with a large scale",
    )
    raise Incorrect(
        "The run does not get close enough: too much of the variance of the targets is left.",
        expected="less than 0.003 of it",
        yours=f"{left:.3g} of it",
        look="is every gradient without the scale when the step uses it? Learning rate, loss, and batches may stay as "
        "in the script",
    )


exercise = Exercise(
    title="Rescue a run",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Weights in float32, layers in float16, a scale that finds its own size: it takes all three.",
    hints=(
        "Three things go wrong in the script: the weights are float16, gradients of small errors become zero, and"
        " a batch that overflows destroys everything. Which tool helps with which?",
        "Autocast leaves the weights in float32. `torch.amp.GradScaler` lifts small gradients and skips a step whose "
        "gradients are infinite. Create it once, before the loops.",
        "`scaler = torch.amp.GradScaler(device)` with the device's type, then in the loop "
        "`scaler.scale(loss).backward()`, `scaler.step(optimizer)`, `scaler.update()`.",
    ),
    judge=judge,
    seconds=SLOW_START,
    lends=solution,
)
