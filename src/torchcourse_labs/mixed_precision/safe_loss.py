"""A loss under autocast in which one operation overflows: find it, and let it compute in float32."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from labcheck.authoring import Exercise, Inputs, near, not_none, observe, same, wrong_if
from labcheck.probes import SLOW_START
from torchcourse_labs.mixed_precision._shared import Watch, judge_dtypes, linear


def draw(rng: Inputs) -> tuple:
    pixels, width, classes, count = rng.size(6, 12), rng.size(10, 16), rng.size(4, 8), rng.size(9, 14)
    encoder = nn.Sequential(nn.Flatten(), linear(rng, pixels, width, size=700.0))
    nn.init.zeros_(encoder[1].bias)
    images = rng.randn(count, 1, 1, pixels)
    images[::2] *= 5e-5  # dark ones: features that are made smaller in float16 have squares that become zero
    return encoder, linear(rng, width, classes, size=2.0), images, rng.ints(0, classes, (count,))


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
            self.found = function.overloadpacket.__name__.strip("_"), str(out.dtype)
        return out


def finite(value: Any) -> bool:
    return not isinstance(value, Tensor) or not value.is_floating_point() or bool(value.isfinite().all())


def watched_loss(answer: Callable, encoder: nn.Module, head: nn.Module, images: Tensor, labels: Tensor) -> dict:
    """A probe: the loss, its gradients, and what happens on the way to it."""
    both = nn.ModuleList(copy.deepcopy((encoder, head)))
    with Watch(both) as watch, FirstOverflow() as overflow:
        loss = watch.call(answer, *both, images.clone(), labels.clone())
    seen = {"loss": loss, "overflow": overflow.found, **watch.seen()}
    if isinstance(loss, Tensor) and loss.requires_grad and loss.numel() == 1:
        seen["loss"] = loss.detach()
        (loss * 1024).backward()  # scaled, so that nothing underflows
    gradients = [None if p.grad is None else p.grad.float() / 1024 for p in both.parameters()]
    return seen | {"gradients": gradients}


def judge(answer: Any, rng: Inputs) -> None:
    for _ in range(3):  # two wrong losses may be equal by chance in one case
        inputs = draw(rng)
        judge_loss(observe(answer, watched_loss, *inputs), watched_loss(solution, *inputs))


def judge_loss(seen: dict, wanted: dict) -> None:
    judge_dtypes(seen, torch.float16)
    not_none(seen["loss"])
    name, dtype = seen["overflow"]
    wrong_if(
        name and dtype != "torch.float32",
        "overflow",
        f"The first operation to turn finite numbers into inf or nan is `{name}` in {dtype}. A cast after it comes too "
        "late, and switching autocast off casts nothing by itself.",
        look="cast the input: in float16, the squares of large numbers are inf, and those of small ones are 0",
    )
    where = "compare your lines with those of `unsafe_loss`: only casts may be new"
    same(seen["loss"], wanted["loss"], "Your loss", rtol=1e-2, look=where)
    pairs = zip(seen["gradients"], wanted["gradients"], strict=True)
    wrong_if(
        not all(near(yours, right, 0.05, 0.05 * right.norm().item()) for yours, right in pairs),
        "other_gradient",
        "The loss is right, but its gradient is not that of the loss in float32.",
        look="`detach`, `no_grad` and `.item()` cut the graph, `clamp` clips numbers; `.float()` does neither",
    )


exercise = Exercise(
    title="One operation too many",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Autocast knows many operations that need float32, but not all: check squares, sums, and means yourself.",
    hints=(
        "Which of the intermediate results can pass 65504, the largest number of float16? Print their `.max()`, line "
        "by line.",
        "Features of a few hundred are fine. Their squares are not. The cast has to come *before* the numbers become "
        "too large.",
        "In the line of `power`, write `features.float()` where `features` stood; leave all other lines alone.",
    ),
    judge=judge,
    seconds=SLOW_START,
)
