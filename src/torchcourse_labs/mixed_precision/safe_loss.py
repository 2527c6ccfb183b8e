"""A loss under autocast in which one operation overflows: find it, and let it compute in float32."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from labcheck.authoring import Exercise, Inputs, call, not_none, observe, same, wrong_if
from labcheck.probes import SLOW_START
from torchcourse_labs.mixed_precision._shared import judge_dtypes, watch


def draw(rng: Inputs) -> tuple:
    pixels, width, classes, count = rng.size(6, 12), rng.size(10, 16), rng.size(4, 8), rng.size(9, 14)
    encoder, head = nn.Sequential(nn.Flatten(), nn.Linear(pixels, width, bias=False)), nn.Linear(width, classes)
    encoder[1].weight.data = rng.randn(width, pixels) * 700 / pixels**0.5
    head.weight.data, head.bias.data = rng.randn(classes, width) * 2 / width**0.5, rng.randn(classes) / 5
    images = rng.randn(count, 1, 1, pixels)
    images[::2] *= 5e-5  # dark ones: features that are made smaller in float16 have squares that become zero
    return encoder, head, images, rng.ints(0, classes, (count,))


def solution(encoder: nn.Module, head: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    with torch.autocast(images.device.type, dtype=torch.float16):
        features = encoder(images)
        power = features.float().square().mean(dim=1, keepdim=True)
        logits = head(features / power.sqrt())
        penalty = logits.logsumexp(dim=1).square().mean()
        return F.cross_entropy(logits, labels) + 0.01 * penalty


class FirstOverflow(TorchDispatchMode):
    """Finds the first operation that makes inf or nan out of finite numbers: its name and its dtype."""

    found = "", ""

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if not self.found[0] and not finite(out) and all(map(finite, args)):
            name = function.overloadpacket.__name__.strip("_")
            self.found = "half" if name == "to_copy" else name, str(out.dtype)
        return out


def finite(value: Any) -> bool:
    return not isinstance(value, Tensor) or bool(value.isfinite().all())


def watched_loss(answer: Callable, encoder: nn.Module, head: nn.Module, images: Tensor, labels: Tensor) -> dict:
    """A probe: the loss, its gradients, and what happens on the way to it."""
    both = nn.ModuleList(copy.deepcopy((encoder, head)))
    with watch(both) as seen, FirstOverflow() as overflow:
        loss = call(answer, *both, images.clone(), labels.clone(), may_change=True, may_return_none=True)
    if isinstance(loss, Tensor) and loss.requires_grad and loss.numel() == 1:
        (loss * 1024).backward()  # scaled, so that nothing underflows
        loss = loss.detach()
    gradients = [None if p.grad is None else p.grad.float() / 1024 for p in both.parameters()]
    return seen | {"loss": loss, "overflow": overflow.found, "gradients": gradients}


def judge(answer: Any, rng: Inputs) -> None:
    for _ in range(3):  # two wrong losses may be equal by chance in one case
        inputs = draw(rng)
        seen, wanted = observe(answer, watched_loss, *inputs), watched_loss(solution, *inputs)
        judge_dtypes(seen, torch.float16)
        not_none(seen["loss"])
        name, dtype = seen["overflow"]
        wrong_if(
            name and dtype != "torch.float32",
            "overflow",
            f"The first operation to turn finite numbers into inf or nan is `{name}` in {dtype}. A cast after it comes "
            "too late, and switching autocast off casts nothing by itself.",
            look="cast its input, or that of an operation before: squares of large numbers are inf, of small ones 0",
        )
        where = "compare your lines with those of `unsafe_loss`: only casts may be new"
        same(seen["loss"], wanted["loss"], "Your loss", rtol=1e-2, look=where)
        look = "`detach`, `no_grad` and `.item()` cut the graph, `clamp` clips numbers; `.float()` does neither"
        for yours, right in zip(seen["gradients"], wanted["gradients"], strict=True):
            same(yours, right, "A gradient of encoder or head", rtol=0.05, atol=0.05 * right.norm().item(), look=look)


exercise = Exercise(
    title="One operation too many",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Autocast knows many operations that need float32, but not all: check squares, sums, and means yourself.",
    hints=(
        "Which of the intermediate results can pass 65504, the largest number of float16? Print their `.max()`, line "
        "by line.",
        "Features of a few hundred are fine, their squares are not. Cast *before* the numbers become too large: in the "
        "line of `power`, write `features.float()` where `features` stood.",
    ),
    judge=judge,
    seconds=SLOW_START,
)
