"""Rewrite a module so that two compilations are enough, whatever sizes, calls and flags come."""

import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from labcheck.authoring import Exercise, Inputs, call, near, observe, same, wrong_if
from labcheck.probes import SLOW_START
from torchcourse.lectures import compiling

CALLS = 10


class SteadyStep(nn.Module):
    def __init__(self, width: int, backend: Any) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("calls", torch.zeros(()))
        self.compiled = torch.compile(self.compute, backend=backend, dynamic=True)

    def forward(self, x: Tensor, mirror: bool) -> Tensor:
        return self.compiled(x, torch.tensor(-1.0 if mirror else 1.0))

    def compute(self, x: Tensor, sign: Tensor) -> Tensor:
        self.calls += 1
        warm = (self.calls / 5).clamp(max=1)
        return (x - x.mean(dim=0)) * self.scale * warm * sign


solution = SteadyStep


def draw(rng: Inputs) -> tuple[int, list[Tensor], list[bool], Tensor]:
    """Width, batches of different sizes, flags, and the scale."""
    width, flags = rng.size(2, 5), [rng.size(0, 1) == 1 for _ in range(CALLS)]
    flags[1], flags[-1] = not flags[0], not flags[-2]
    # Never as large as wide: PyTorch would take equal sizes for one and the same.
    return width, [rng.randn(size, width) + 1 for size in rng.sizes(CALLS, 6, 64)], flags, rng.rand(width) + 0.5


def stepped(answer: Any, width: int, batches: list[Tensor], flags: list[bool], scale: Tensor) -> dict[str, Any]:
    """A probe: what the module returns call by call, the gradient of its parameter, and what was compiled."""
    runs: list[bool] = []  # one for each time that something compiled ran
    # `torch.compile` without a backend takes one that needs no compiler, and no seconds.
    without = mock.patch("torch.compile", partial(torch.compile, backend="eager"))
    with compiling.counting() as backend, warnings.catch_warnings(action="ignore"), without:

        def noting(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
            run = backend(graph, inputs)
            return lambda *args: (runs.append(True), run(*args))[1]

        model = call(answer, width, noting, may_change=True)
        parameters = [*model.parameters()] if isinstance(model, nn.Module) else []
        seen: dict[str, Any] = {"parameters": [p.detach().clone() for p in parameters], "results": [], "uncompiled": 0}
        if [tuple(parameter.shape) for parameter in parameters] != [(width,)]:
            return seen
        parameters[0].data.copy_(scale)
        for x, mirror in zip(batches, flags, strict=True):
            before = len(runs)
            seen["results"].append(call(model, x, mirror))
            seen["uncompiled"] += len(runs) == before
            each = seen["results"][-1]
            if isinstance(each, Tensor) and each.requires_grad:  # now: the next call may change a buffer in place
                (each * torch.linspace(0.5, 2, each.numel()).view(each.shape)).sum().backward()
        counts = {"graphs": len(backend.graphs), "reasons": [*backend.reasons], "outside": outside(backend.graphs)}
        seen["results"].append(call(call(answer, width, noting, may_change=True), batches[0], flags[0]))  # a new module
        seen["results"] = [each.detach() if isinstance(each, Tensor) else each for each in seen["results"]]
        return {**seen, "gradient": parameters[0].grad, **counts}


def outside(graphs: list[torch.fx.GraphModule]) -> str:
    """What the graphs lack: the mean, which is some reduction over the rows, or the scale."""
    nodes = [node for graph in graphs for node in graph.graph.nodes]
    if not any(re.search("mean|sum|norm|mm|mul_?mat|matmul|linear|einsum|reduce", str(node.target)) for node in nodes):
        return "mean"
    leaves = [node.meta.get("example_value") for node in nodes if node.op in ("placeholder", "get_attr")]
    return "" if any(isinstance(leaf, nn.Parameter) for leaf in leaves) else "scale"


def judge(answer: Any, rng: Inputs) -> None:
    inputs = draw(rng)
    right, seen = (observe(each, stepped, *inputs) for each in (solution, answer))
    look = "`self.scale` alone, ones at the start"
    same(seen["parameters"], right["parameters"], "The list of your module's parameters", look=look)
    calls = zip(seen["results"], right["results"], [*inputs[2], None], strict=True)
    for number, (yours, expected, mirror) in enumerate(calls, 1):
        what = f"The result of call {number}, mirror={mirror}," if number <= CALLS else "A second module's first result"
        if isinstance(yours, Tensor) and yours.shape == expected.shape:
            factor = float((yours * expected).sum() / expected.square().sum())
            wrong_if(
                near(yours, factor * expected) and not near(factor, 1.0, rtol=1e-3),
                "factor",
                f"{what} is the right one times {factor:.3g}.",
                look="the warm-up: in call n of each new module, the factor is n / 5, but never more than 1 (count in "
                "`self`, not in the class); and the sign, which changes with `mirror`",
            )
        same(yours, expected, what, look="what `RestlessStep` returns: mean over the batch, scale, warm-up, sign")
    look = "what cuts the results off from their graph: `.detach()`, `torch.no_grad()`"
    same(seen["gradient"], right["gradient"], "The gradient of the scale", look=look)
    wrong_if(
        seen["uncompiled"] and seen["graphs"] <= 2,
        "uncompiled",
        f"In {seen['uncompiled']} of {CALLS} calls, nothing runs that your backend has compiled.",
        look="`torch.compile(..., backend=backend)`; call what it returns in each call, whatever `mirror` says",
    )
    wrong_if(
        seen["outside"],
        "outside",
        f"You compute the {seen['outside']} outside of what is compiled. Mean and scale belong to the compiled part.",
    )
    wrong_if(
        seen["graphs"] > 2,
        "too_often",
        f"There are {seen['graphs']} compilations in {CALLS} calls; two are enough.",
        look="PyTorch's reasons. A size: `dynamic=True`. A Python value that changes, a flag or a counter: make it a "
        "tensor, or use it outside of what is compiled. None: `print` or `.item()` cuts the code into pieces",
        yours=f"PyTorch's first reasons: {'; '.join([*dict.fromkeys(seen['reasons'])][:3]) or 'none'}",
    )


exercise = Exercise(
    title="Compiled once, for all",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="PyTorch compiles for what it saw: Python numbers are part of the code, tensors are data.",
    hints=(
        "Three things change from call to call: the batch size, the counter and the flag. `dynamic=False` compiles for "
        "every size; and does the compiled code see counter and flag as Python values, or as tensors?",
        'The counter may be a buffer, `self.register_buffer("calls", torch.zeros(()))`, with the factor '
        "`(self.calls / 5).clamp(max=1)`. In `forward`, make the flag `torch.tensor(-1.0 if mirror else 1.0)`.",
    ),
    judge=judge,
    seconds=SLOW_START,
)
