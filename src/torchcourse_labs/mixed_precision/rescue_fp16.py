"""A run in float16 that small gradients and one overflow ruin: rescue it."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, call, equal, observe, raises_like, same, wrong_if
from labcheck.probes import SLOW_START, weights
from torchcourse_labs.mixed_precision._shared import judge_dtypes, watch

Batches = list[tuple[Tensor, Tensor]]


def draw(rng: Inputs) -> tuple[nn.Module, Batches, int]:
    features, rows, count = rng.size(5, 8), 2000, 8
    slopes = 2e-5 * rng.randn(features) + 2e-5
    slopes[0] = 3e-6  # a glitch that is clipped to fit into float16 soon has finite gradients, and goes through
    inputs = [rng.randn(rows, features) for _ in range(count)]
    batches = [(x, (x @ slopes + 1e-5).unsqueeze(1)) for x in inputs]
    inputs[-1][rng.size(0, rows - 1), 0] = 1e6  # the sensor's glitch: inf in float16; no batch after it repairs
    model = nn.Sequential(nn.Linear(features, 1))
    nn.init.constant_(model[0].weight, 1.3 + rng.rand(1).item() / 5)  # a fixed scale of 2**14 is not too large
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
    with warnings.catch_warnings(record=True), watch(model) as seen:
        call(answer, model, given, epochs, may_change=True, may_return_none=True)
    return seen | {"trained": weights(model), "changed": not equal(given, batches)}


def judge(answer: Any, rng: Inputs) -> None:
    model, batches, epochs = draw(rng)
    with (
        raises_like(
            "no_gradients",
            "The optimizer has no gradients when the scaler steps: `zero_grad` after `backward()` clears them.",
            "for this optimizer",
        ),
        raises_like(
            "no_scaler_step",
            "The scaler takes no step: call `scaler.step(optimizer)`, not `optimizer.step()`, before it is updated.",
            "prior to update",
        ),
        raises_like(
            "half_weights",
            "The weights are float16, so their gradients are, too, and the scaler refuses them. Autocast casts "
            "inside the layers, so leave `model.half()` out.",
            "unscale FP16 gradients",
        ),
    ):
        seen = observe(answer, watched_run, model, batches, epochs)
    judge_dtypes(seen, torch.float16)
    wrong_if(
        not seen["trained"].isfinite().all(),
        "nan",
        "Your weights became nan or infinite: by infinite gradients of a batch that overflows, or by steps too large.",
        look="`scaler.step` skips it and divides by the scale; `optimizer.step` doesn't, nor a scaler that is off",
    )
    wrong_if(seen["changed"], "changes_data", "You change the batches: the caller needs them as they were.")
    x, y = (torch.cat(parts).double() for parts in zip(*batches[:2], strict=True))  # without the glitch
    left = (x @ seen["trained"][:-1, None] + seen["trained"][-1] - y).square().mean() / y.var()
    passes, fewest = len(seen["layers"]), epochs * (len(batches) - 1)  # a run may leave the glitch out
    if left < 0.003:
        same(min(passes, fewest), fewest, "The number of batches that the model sees", look="all epochs")
        return
    ran = ", as the weights ran away" if seen["trained"].abs().max() > 100 else ""
    wrong_if(
        not ran and seen["steps"] < passes / 2,
        "no_step",
        f"Batches: {passes}, steps: {seen['steps']}. With infinite gradients (too large a scale?), a step is skipped.",
        look="make the scaler once, with its own `init_scale`; `zero_grad`, step and update belong to each batch",
    )
    kept = equal(seen["trained"], weights(model))
    wrong_if(kept, "another_model", "The model that you got has not changed: the caller looks at it, not at a copy.")
    look = (
        "mean loss and rate as in the script, divided once by the scale, float32, all epochs; `zero_grad` for each "
        "batch. Skip the glitch: clipped to fit into float16, or with numbers in place of inf and nan, it is still one"
    )
    zero = ", some of them with zero gradients (float16 lost them)" if seen["zeros"] and left <= 1 else ""
    raise Incorrect(
        f"The run does not get close enough in {passes} batches and {seen['steps']} steps{ran or zero}: too much of "
        "the variance of the targets is left.",
        expected=f"less than 0.003 of it, after {epochs} epochs of {len(batches)} batches",
        yours=f"{left:.3g} of it",
        look="compute the loss in float32, and scale it before `backward()`" if zero else look,
    )


exercise = Exercise(
    title="Rescue a run",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Weights in float32, layers in float16, a scale that finds its own size: it takes all three.",
    hints=(
        "Three things go wrong in the script: the weights are float16, gradients of small errors become zero, and "
        "a batch that overflows destroys everything. Which tool helps with which?",
        "Autocast leaves the weights in float32. `torch.amp.GradScaler(device)` lifts small gradients and skips a step "
        "whose gradients are infinite. Create it once, then in the loop `scaler.scale(loss).backward()`, "
        "`scaler.step(optimizer)`, `scaler.update()`.",
    ),
    judge=judge,
    seconds=SLOW_START,
    lends=solution,
)
