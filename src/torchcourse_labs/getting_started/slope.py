"""The slope of any function at one place: a first gradient by autograd."""

from collections.abc import Callable
from typing import Any

import torch

from labcheck.authoring import Exercise, Inputs, Spec, looks_like, raises_like, wrong_if


class Cubic:
    """A polynomial and 1000·x, which autograd takes for a constant: a difference quotient is off by 1000."""

    def __init__(self, a: float, b: float, c: float) -> None:
        self.a, self.b, self.c = a, b, c

    def __call__(self, x: Any) -> Any:
        constant = x.detach() if isinstance(x, torch.Tensor) else x
        return self.a * x**3 + self.b * x**2 + self.c * x + 1000 * constant


def draw(rng: Inputs) -> list[tuple]:
    """A float, an integer, and 0, which `if x` takes for none. One function goes up, another one down."""
    places = round(0.5 + 1.5 * rng.rand(1).item(), 3), rng.size(1, 3), 0
    sign = rng.pick([-1, 1])
    return [(Cubic(*(s * (1 + rng.rand(3))).tolist()), x) for x, s in zip(places, (sign, -sign, sign), strict=True)]


def solution(f: Callable, x: float) -> float:
    x = torch.tensor(float(x), requires_grad=True)
    f(x).backward()
    return x.grad.item()


def explain(yours: float, expected: float, f: Callable, x: float) -> None:
    wrong_if(
        abs(yours - (expected + 1000)) < 200,
        "difference_quotient",
        "You compared values of f at nearby points. This f has a term that autograd treats as a constant.",
        look="autograd needs one point and no step: `.backward()`, then `.grad`",
    )


exercise = Exercise(
    title="A slope by autograd",
    minutes=3,
    difficulty=2,
    points=2,
    takeaway="A tensor that requires gradients, `backward()` on the result, `.grad` of the input: for any function.",
    hints=(
        "Make a float tensor with `requires_grad=True`, compute with it, go backward. Then the slope is in the "
        "`.grad` of the tensor you started from, and `.item()` turns it into a Python number.",
        "`x = torch.tensor(float(x), requires_grad=True)`, then `f(x).backward()`, then return `x.grad.item()`.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        rtol=2e-6,
        atol=0,
        explain=explain,
        says=[
            looks_like(
                "value",
                "That is the value of f at x, not its slope there.",
                lambda f, x: f(x),
                look="return `.grad` of x, after `.backward()`",
            ),
            raises_like(
                "no_graph",
                "There is no graph to go back through: no gradient leads from your result to x.",
                "does not require grad",
                look="what you pass to f: a tensor with `requires_grad=True`, and no `detach`, `no_grad`, or `.item()`",
            ),
            raises_like(
                "plain_number",
                "You used a plain Python number where you need a tensor: for a number, f returns a number.",
                "'float' object has no attribute",
                "'int' object has no attribute",
                look="make a tensor of x first, then call f with that tensor",
            ),
            raises_like(
                "no_gradient",
                "You took None for the gradient: `.grad` is None before `backward()`, and `backward()` returns None.",
                "'NoneType'",
                look="`.grad` of the very tensor that you made with `requires_grad=True`, not of one computed from it",
            ),
        ],
    ),
    lends=solution,
)
