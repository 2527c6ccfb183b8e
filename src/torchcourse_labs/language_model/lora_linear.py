"""A frozen linear layer, and two small matrices beside it that learn."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, call, near, observe, same, wrong_if


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), alpha / rank
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scale * self.up(self.down(x))

    def merged(self) -> nn.Linear:
        merged = nn.Linear(self.base.in_features, self.base.out_features, bias=self.base.bias is not None)
        with torch.no_grad():
            merged.weight.copy_(self.base.weight + self.scale * self.up.weight @ self.down.weight)
            if self.base.bias is not None:
                merged.bias.copy_(self.base.bias)
        return merged


solution = LoRALinear


def watch(answer: Callable, base: nn.Linear, rank: int, alpha: float, x: Tensor, seed: int) -> dict:
    """A probe: a new layer's output and what trains in it; with other values, outputs, gradients, and `merged`."""
    layer = call(answer, base, rank, alpha)
    if not isinstance(layer, nn.Module) or not callable(getattr(layer, "merged", None)):
        return {"instead": layer}
    trains = [p for p in layer.parameters() if p.requires_grad]
    seen = {"new": [p.detach().clone() for p in trains], "start": call(layer, x)}
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in trains:
            p.copy_(torch.randn(p.shape, generator=generator))
    seen["values"] = [p.detach().clone() for p in trains]
    given = x.clone().requires_grad_()
    seen["output"] = output = call(layer, given, may_change=True)
    if isinstance(output, Tensor) and output.requires_grad:
        seen["gradients"] = torch.autograd.grad(output.sum(), [given, *trains], allow_unused=True)
    merged = call(layer.merged)
    seen["kind"] = type(merged).__name__
    seen["merged"] = call(merged, x) if isinstance(merged, nn.Module) else merged
    return {**seen, "after": call(layer, x)}


def judge(answer: Any, rng: Inputs) -> None:
    for bias in (True, False):
        (rank, wide, out), alpha = rng.sizes(3, 2, 7), 0.5 + rng.size(8, 12)
        base = nn.Linear(wide, out, bias=bias)
        with torch.no_grad():
            for p in base.parameters():
                p.copy_(rng.randn(*p.shape))
        x = rng.randn(*((4,) if bias else (2, 3)), wide)
        seen = observe(answer, watch, base, rank, alpha, x, rng.size(0, 999))
        if "instead" in seen:
            raise Incorrect("Your class should be an nn.Module with `forward` and `merged`.", yours=seen["instead"])
        with torch.no_grad():
            down, up = judge_start(seen, base, rank, x)
            judge_rest(seen, base, alpha / rank, x, up @ down)


def judge_start(seen: dict, base: nn.Linear, rank: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """Judge a new layer. Returns the values that its matrices have later, as [rank, in] and [out, rank]."""
    out, wide = base.weight.shape
    found = {tuple(p.shape): (p, later) for p, later in zip(seen["new"], seen["values"], strict=True)}
    own = [name for name, p in base.named_parameters() if any(near(q, p) for q in seen["new"])]
    wrong_if(
        own,
        "base_trains",
        f"The base's `{''.join(own[:1])}` still trains. Only your two matrices should.",
        look="`base.requires_grad_(False)`, which freezes all that it has",
    )
    look = "two `nn.Parameter`s, or two nn.Linear without bias, of in × rank and rank × out numbers"
    same(sum(p.numel() for p in seen["new"]), rank * (wide + out), "The count of numbers that train", look=look)
    first, last = (found.get(shape) or found.get(shape[::-1]) for shape in ((rank, wide), (out, rank)))
    if not first or not last:
        raise Incorrect("Your two matrices have other shapes.", [(rank, wide), (out, rank)], [*found], look)
    wrong_if(
        not first[0].any(),
        "down_zero",
        "`down` starts at zero. Let `up` do that, alone: if both are zero, neither ever gets a gradient.",
        look="random numbers for `down`, such as those of a new nn.Linear",
    )
    look = "`up` starts at zero, so the sum is what `base` gives"
    same(seen["start"], base(x), "The output of a new layer", look=look)
    return first[1] if len(first[1]) == rank else first[1].T, last[1] if len(last[1]) == out else last[1].T


def judge_rest(seen: dict, base: nn.Linear, scale: float, x: Tensor, update: Tensor) -> None:
    right = base(x) + scale * x @ update.T
    if isinstance(seen["output"], Tensor) and seen["output"].shape == right.shape:
        added, unit = seen["output"] - base(x), x @ update.T
        factor = ((added * unit).sum() / unit.square().sum()).item()
        other = near(added, factor * unit) and not near(factor, scale, rtol=1e-3)
        wrong_if(other, "scale", f"Your update is multiplied by {factor:.3g}. Here, alpha / rank is {scale:.3g}.")
    same(seen["output"], right, "With other values in both matrices, the output")
    expected = (base.weight + scale * update).sum(0).expand_as(x)
    gradients = seen.get("gradients", [None])
    wrong_if(
        not near(gradients[0], expected) or any(each is None for each in gradients),
        "cut_off",
        "The gradient is cut off: it has to reach both matrices, and through base and update the input, since layers "
        "before this one learn, too.",
        look="no `no_grad`, `detach`, or `.data` in `forward`: `requires_grad=False` is all that freezing takes",
    )
    wrong_if(
        not near(seen["after"], right),
        "merged_into_itself",
        "After `merged()`, your layer's own output is another one. It should leave layer and base as they are.",
        look="a new nn.Linear and `copy_`: after `+=` on the weight of the base, the layer has the update twice",
    )
    look = "weight: `base.weight + alpha / rank * up @ down`; bias: that of the base, or none"
    same(seen["merged"], right, "The output of `merged()`", look=look)
    same(seen["kind"], "Linear", "The class of what `merged()` returns")


exercise = Exercise(
    title="LoRA: learn a small update",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="Few numbers train, and once they have, they cost nothing: the update goes into the weight.",
    hints=(
        "Two nn.Linear without bias, in → rank → out. What has to be zero, so that their product is, and can still "
        "learn? The base: `requires_grad_(False)`.",
        "`merged()`: make an nn.Linear of the same sizes, and under `torch.no_grad()` copy into its weight "
        "`base.weight + alpha / rank * up.weight @ down.weight`. Copy the bias, if there is one.",
    ),
    judge=judge,
    lends=solution,
)
