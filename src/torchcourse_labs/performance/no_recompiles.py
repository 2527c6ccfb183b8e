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
        if not isinstance(model, nn.Module):
            return {"parameters": model}
        parameters = [*model.parameters()]
        seen: dict[str, Any] = {"parameters": [tuple(parameter.shape) for parameter in parameters]}
        if seen["parameters"] != [(width,)]:
            return seen
        seen["start"] = parameters[0].detach().clone()
        parameters[0].data.copy_(scale)
        results, graphs, uncompiled = [], [], 0
        for x, mirror in zip(batches, flags, strict=True):
            before = len(runs)
            results.append(call(model, x, mirror))
            graphs.append(len(backend.graphs))
            uncompiled += len(runs) == before
        weighted = [
            (result * torch.linspace(0.5, 2, result.numel()).view(result.shape)).sum()
            for result in results
            if isinstance(result, Tensor) and result.requires_grad
        ]
        if weighted:
            sum(weighted).backward()
        return seen | {
            "results": [result.detach() if isinstance(result, Tensor) else result for result in results],
            "gradient": parameters[0].grad,
            "graphs": graphs,
            "uncompiled": uncompiled,
            "outside": outside(backend.graphs),
            "reasons": backend.reasons,
        }


def outside(graphs: list[torch.fx.GraphModule]) -> str:
    """What the graphs lack: the mean, which is some reduction over the rows, or the scale."""
    nodes = [node for graph in graphs for node in graph.graph.nodes]
    if not any(re.search("mean|sum|norm|mm|mul_?mat|matmul|linear|einsum|reduce", str(node.target)) for node in nodes):
        return "mean"
    leaves = [node.meta.get("example_value") for node in nodes if node.op in ("placeholder", "get_attr")]
    return "" if any(isinstance(leaf, nn.Parameter) for leaf in leaves) else "scale"


def judge(answer: Any, rng: Inputs) -> None:
    for _ in range(2):
        inputs = draw(rng)
        right, seen = (observe(each, stepped, *inputs) for each in (solution, answer))
        same(seen["parameters"], right["parameters"], "The list of your parameters' shapes", look="`self.scale` alone")
        same(seen["start"], right["start"], "The scale at the start")
        judge_results(seen, right, inputs[2])
        judge_compilations(seen)


def judge_results(seen: dict[str, Any], right: dict[str, Any], flags: list[bool]) -> None:
    for number, (result, expected, mirror) in enumerate(zip(seen["results"], right["results"], flags, strict=True), 1):
        what = f"The result of call {number}, with mirror={mirror},"
        if isinstance(result, Tensor) and result.shape == expected.shape:
            factor = float((result * expected).sum() / expected.square().sum())
            wrong_if(
                near(result, factor * expected) and not near(factor, 1.0, rtol=1e-3),
                "factor",
                f"{what} is the right one times {factor:.3g}.",
                look="the warm-up: in call n of each new module, the factor is n / 5, but never more than 1; and the "
                "sign, which changes with `mirror`",
            )
        same(result, expected, what, look="what `RestlessStep` returns: mean over the batch, scale, warm-up, sign")
    look = "what cuts the results off from their graph: `.detach()`, `torch.no_grad()`"
    same(seen["gradient"], right["gradient"], "The gradient of the scale", look=look)


def judge_compilations(seen: dict[str, Any]) -> None:
    graphs, uncompiled, reasons = seen["graphs"], seen["uncompiled"], seen["reasons"]
    first, count = graphs[0], graphs[-1]
    wrong_if(
        uncompiled and count <= 2,
        "uncompiled",
        f"In {uncompiled} of {CALLS} calls, nothing runs that your backend has compiled.",
        look="`torch.compile(..., backend=backend)`; call what it returns in each call, whatever `mirror` says",
    )
    wrong_if(
        seen["outside"],
        "outside",
        f"You compute the {seen['outside']} outside of what is compiled. Mean and scale belong to the compiled part.",
        look="what the function that you give to `torch.compile` computes",
    )
    few = "; ".join([*dict.fromkeys(reasons)][:3])
    details = {"expected": "at most 2 compilations", "yours": f"{count}. PyTorch's first reasons: {few}"}
    wrong_if(
        count > 2 and first > 1,
        "pieces",
        f"The first call alone compiles {first} times: your code is cut into pieces, and each is compiled on its own.",
        look="what PyTorch cannot put into a graph: `print`, `.item()`, an `if` that asks a tensor",
    )
    wrong_if(
        count > 2 and sum("size mismatch" in reason for reason in reasons) > 1,
        "size",
        f"There are {count} compilations in {CALLS} calls, some of them only because the batch size changes.",
        look="`dynamic=True`. With False, each size costs a compilation; without `dynamic=`, each compiled function "
        "costs two, one for the first size and one for any size",
        **details,
    )
    wrong_if(
        count > 2 and any(re.fullmatch(r"[\w.\[\]']+ == \S+", reason) for reason in reasons),
        "python_value",
        f"There are {count} compilations in {CALLS} calls: your compiled code uses a Python value that changes, and "
        "each value costs a compilation.",
        look="make it a tensor (the counter a buffer, say), or use it outside of what is compiled",
        **details,
    )
    wrong_if(
        count > 2,
        "too_often",
        f"There are {count} compilations in {CALLS} calls; two are enough.",
        look="PyTorch's reasons: what is not the same in each call?",
        **details,
    )


exercise = Exercise(
    title="Compiled once, for all",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="PyTorch compiles for what it saw: Python numbers are part of the code, tensors are data.",
    hints=(
        "Three things change from call to call: the batch size, the counter and the flag. For each, ask whether the "
        "compiled code sees a Python value or a tensor.",
        '`dynamic=False` compiles for every size. The counter may be a buffer: `self.register_buffer("calls", '
        "torch.zeros(()))`; or it may stay outside of what is compiled.",
        "Let `forward` turn the flag into a tensor before it calls the compiled function: "
        "`torch.tensor(-1.0 if mirror else 1.0)`. The factor is `(self.calls / 5).clamp(max=1)`.",
    ),
    judge=judge,
    seconds=SLOW_START,
)
