"""A step of gradient descent for weights in bfloat16, with a float32 copy of them in which small updates add up."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labcheck.authoring import Exercise, Inputs, call, equal, observe, raises_like, same, wrong_if
from torchcourse_labs.mixed_precision._shared import NO_GRADIENT

SMALL = 40  # steps, each less than half a gap long


def solution(model: nn.Module, master: dict[str, Tensor], rate: float) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                master.setdefault(name, parameter.detach().float())
                master[name] -= rate * parameter.grad.float()
                parameter.copy_(master[name])


def trained(answer: Callable, start: list[Tensor], slopes: list[Tensor], rates: list[float]) -> dict[str, Any]:
    """A probe: the weights after each step, until they change. The second has no gradient, the third none at first."""
    model, master, after = nn.ParameterList(value.clone() for value in start), {}, []
    own = [*model.parameters()]
    for rate in rates:
        for parameter, slope in zip((own[0], own[3], own[2]), slopes[: 2 + len(after)], strict=False):
            parameter.grad = slope.clone()
        call(answer, model, master, rate, may_change=True, may_return_none=True)
        after.append([p.detach().clone() for p in model.parameters()])
        replaced = [*map(id, own)] != [*map(id, model.parameters())]
        if replaced or [(p.shape, p.dtype) for p in own] != [(value.shape, value.dtype) for value in start]:
            break
    graph = any(isinstance(value, Tensor) and value.grad_fn for value in master.values())
    return {"after": after, "graph": graph, "replaced": replaced}


def judge(answer: Any, rng: Inputs) -> None:
    """A step of many gaps, many steps of less than half a gap, a larger one: sums of powers of two, so exact."""
    shapes = rng.sizes(2, 2, 5), [3], [(many := rng.size(6, 9))], [many]
    start = [(1 + rng.ints(40, 90, shape) / 128).bfloat16() for shape in shapes]
    slopes = [rng.pick((-1, 1)) * (1 + rng.ints(0, 50, start[i].shape) / 64).bfloat16() for i in (0, 3, 2)]
    start[2], slopes[2] = start[2] * 2**20, slopes[2] * 2**20  # beyond the range of float16
    rates = [2.0**-4, *[2.0**-10] * SMALL, 2.0**-5]  # the gap is 2 ** -7
    graph = raises_like("recorded", "Your step is recorded in a graph: it needs `torch.no_grad()`.", "a leaf Variable")
    with graph, NO_GRADIENT:
        seen, right = (observe(each, trained, start, slopes, rates) for each in (answer, solution))
    yours, wanted = seen["after"], right["after"]
    look = "methods that work in place, such as `parameter.copy_(…)`"
    wrong_if(seen["replaced"], "replaced", "The model has other parameters now: change those that it has.", look=look)
    own, kinds = "torch.bfloat16", ", ".join(sorted({str(value.dtype) for value in yours[-1]}))
    look = "`parameter.copy_(…)` rounds what it gets, `parameter.data = …` takes over the dtype"
    wrong_if(kinds != own, "not_bfloat16", "The model's weights should stay in bfloat16.", look, own, kinds)
    look = "all of `model.parameters()`, also those of no layer: `parameter.copy_(…)`; `parameter = …` is a new name"
    wrong_if(equal(yours[0], start), "not_moved", "Your step moves no weight of the model at all.", look=look)
    look = "minus the rate times the gradient; one without a gradient is skipped, and the loop goes on"
    same(yours[0], wanted[0], "The list of weights after one step, a large one,", look=look)
    wrong_if(
        equal(yours[0], yours[-2]),
        "swallowed",
        f"{SMALL} steps in a row, each of less than half a gap, have moved no weight: each was added to a number in "
        "bfloat16, or to a copy that was just made from one.",
        look="the copy is made in the first step only, and stays in the dict that you get; `master = …` is another",
    )
    look = "each step changes the copy of its own parameter in float32, by minus its own rate times gradient; "
    look += "a parameter without a gradient is skipped, and the loop goes on: no `return`, no `break`"
    same(yours[-1], wanted[-1], f"The list of weights after {len(rates)} steps", look=look)
    look = "`.detach()`, or `no_grad` around the whole step"
    wrong_if(seen["graph"], "graph", "Your copy has a graph, which grows with each step.", look=look)


exercise = Exercise(
    title="The master weight",
    minutes=8,
    difficulty=2,
    points=3,
    takeaway="Add up in float32, compute with a rounded copy: then steps below half a gap add up instead of vanishing.",
    hints=(
        "In the first step, the copy is `parameter.detach().float()`. From then on, only the copy is changed, and the "
        "parameter gets its rounded value.",
        "For each parameter with a gradient, and without a graph: `master.setdefault(name, parameter.float())`, "
        "`master[name] -= rate * parameter.grad.float()`, `parameter.copy_(master[name])`.",
    ),
    judge=judge,
    lends=solution,
)
