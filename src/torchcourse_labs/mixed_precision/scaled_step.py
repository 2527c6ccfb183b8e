"""One training step with autocast, a gradient scaler, and clipped gradients, in the right order."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import AnswerRaised, Exercise, Inputs, near, observe, same, wrong_if
from labcheck.probes import SLOW_START, number, weights
from torchcourse_labs.mixed_precision._shared import Watch, judge_dtypes, linear

SCALE = 4096.0


def draw(rng: Inputs) -> list[tuple]:
    """float16 with a scaler, where clipping matters; and bfloat16 without one, where it doesn't, and does."""
    pixels, classes = rng.size(5, 9), rng.size(3, 6)
    model = nn.Sequential(nn.Flatten(), linear(rng, pixels, 10, 1.5), nn.ReLU(), linear(rng, 10, classes, 1.5))
    batches = [(rng.randn(n, 1, 1, pixels), rng.ints(0, classes, (n,))) for n in rng.sizes(5, 6, 14)]
    few = [batches[0], batches[1], batches[3]]
    batches[2][0][0, 0, 0, 0] = 3e5  # float16 makes inf of it: this step has to be skipped
    F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
    length = nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
    return [
        (model, batches, torch.float16, length / 4, 1 / length),
        (model, few, torch.bfloat16, length * 50, 0.3 / length),
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
    model, seen = copy.deepcopy(model), []
    for p in model.parameters():  # what a backward pass before may have left
        p.grad = torch.full_like(p, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=2, enabled=dtype == torch.float16)
    for images, labels in batches:
        with Watch(model) as watch:
            loss = watch.call(answer, model, images.clone(), labels.clone(), optimizer, scaler, dtype, max_norm)
        after = {"scale": scaler.get_scale(), "trained": weights(model)}
        seen.append({"loss": loss.detach() if isinstance(loss, Tensor) else loss, **watch.seen(), **after})
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    for inputs in draw(rng):
        try:
            seen = observe(answer, watched_steps, *inputs)
        except AnswerRaised as raised:
            wrong_if(
                "since the last update" in str(raised) or "called after step" in str(raised),
                "call_order",
                "For each batch, the scaler wants `unscale_`, `step` and `update` once each, and in this order.",
                look="a missing `scaler.update()`, which shows at the next batch",
            )
            raise
        judge_steps(seen, watched_steps(solution, *inputs), *inputs[2:4])


def judge_steps(seen: list[dict], wanted: list[dict], dtype: torch.dtype, max_norm: float) -> None:
    for each in seen:
        judge_dtypes(each, dtype)
    losses = [number(each["loss"], "What you return") for each in seen]
    first, right = seen[0], wanted[0]
    wrong_if(
        first["added"],
        "old_gradients",
        "Old gradients are still there: `backward()` adds to them, and they were not even scaled.",
        look="`optimizer.zero_grad()` before each backward pass",
    )
    same(losses[0], right["loss"], "The loss that you return", rtol=1e-2)
    wrong_if(
        dtype == torch.float16 and first["came"] is not None and near(first["came"] * SCALE, right["came"], 0.01, 0.1),
        "not_scaled",
        "The backward pass starts from a loss that is not scaled: in float16, small gradients become zero.",
        look="`scaler.scale(loss).backward()`",
    )
    wrong_if(
        all(torch.tensor(loss).to(dtype).item() == loss for loss in losses[:2]),
        "half_loss",
        f"The loss is computed in {dtype}, from logits in half precision. Multiplied by the scale, it may overflow.",
        look="inside the `with` block, autocast computes the cross-entropy in float32",
    )
    wrong_if(
        first["steps"] and first["used"].norm() < 0.02 * right["used"].norm(),
        "divided_after",
        "The gradients that your step uses are far too small: they should be divided by the scale only once, and "
        "before they are clipped.",
        look="`scaler.unscale_(optimizer)` before the clipping: the scaler remembers that call",
    )
    wrong_if(
        any(each["steps"] > one["steps"] == 0 for each, one in zip(seen, wanted, strict=True)),
        "not_skipped",
        "A batch with infinite gradients changes the weights: this step has to be skipped.",
        look="`scaler.step(optimizer)` skips it, unless you hide inf and nan from it; `optimizer.step()` does not",
    )
    for name, what in (("steps", "The number of steps on each batch"), ("scale", "The scale after each batch")):
        same([each[name] for each in seen], [one[name] for one in wanted], what)
    for i, (each, one) in enumerate(zip(seen, wanted, strict=True), 1):
        if one["steps"]:
            clip = f"max_norm is {max_norm:.3g}; clip all gradients together, between `unscale_` and `scaler.step`"
            lengths = each["used"].norm().item(), one["used"].norm().item()
            same(*lengths, f"The length of the gradients that the step on batch {i} uses", rtol=0.02, look=clip)
            what = f"The gradients that the step on batch {i} uses"
            same(each["used"], one["used"], what, rtol=1e-2, atol=0.01 * lengths[1])
    expected = torch.tensor([one["loss"] for one in wanted])
    same(torch.tensor(losses), expected, "The row of losses that you return", rtol=1e-2)
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
        "`scaler.scale(loss).backward()`, `scaler.unscale_(optimizer)`, clip, then two more calls of the scaler: one "
        "steps, one changes the scale.",
        "`nn.utils.clip_grad_norm_(model.parameters(), max_norm)`, `scaler.step(optimizer)`, `scaler.update()`; clear "
        "old gradients before the backward pass; return `loss.item()`.",
    ),
    judge=judge,
    seconds=SLOW_START,
    lends=solution,
)
