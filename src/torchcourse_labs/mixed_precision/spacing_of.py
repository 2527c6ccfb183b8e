"""The gap between a number and the next one of a format, farther from zero."""

import math

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like


def draw(rng: Inputs) -> list[tuple]:
    """For each format: values between two of its numbers, and powers of two, of both signs."""
    cases = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        eps, power, between = torch.finfo(dtype).eps, 2.0 ** rng.size(7, 12), (1.1 + 0.35 * rng.rand(1).item()) * 8.0
        almost, below = power * (1 - eps / 8), power * (1 - eps / 2)  # one rounds up to the power of two
        cases += [(each, dtype) for each in (between, 1 / between, power, 1 / power, -between, -power, almost, below)]
    return cases


def stored(value: float, dtype: torch.dtype) -> Tensor:
    """The absolute value, as the format rounds it."""
    return torch.tensor(abs(value), dtype=dtype)


def solution(value: float, dtype: torch.dtype) -> float:
    return to_neighbor(abs(value), dtype, math.inf)


def to_neighbor(value: float, dtype: torch.dtype, towards: float) -> float:
    """The distance between the rounded value and its neighbor in this direction."""
    x = torch.tensor(value, dtype=dtype)
    return abs(torch.nextafter(x, torch.tensor(towards, dtype=dtype)).double() - x).item()


exercise = Exercise(
    title="Mind the gap",
    minutes=5,
    difficulty=1,
    points=1,
    takeaway="eps is the gap at 1. It doubles with every power of two: from 2048 on, float16 has only even numbers.",
    hints=(
        "`torch.finfo(dtype).eps` is the gap after 1. How wide is it after 2, after 4, after 1000?",
        "`torch.nextafter(x, y)` gives the neighbor of `x = torch.tensor(abs(value), dtype=dtype)` in the direction of "
        "y, a tensor of the same dtype. Which y is farther from zero than x, however large it is?",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        rtol=1e-6,
        atol=0,
        look="all the way from the rounded value to its neighbor farther from zero (from the middle on, sums round to "
        "it); or `eps` times `2.0 ** math.floor(math.log2(…))`, in float64",
        says=[
            looks_like(
                "eps",
                "`torch.finfo(dtype).eps` is the gap between 1 and the next number. The gap doubles at each power of "
                "two, and stays the same from there to the next one.",
                lambda value, dtype: torch.finfo(dtype).eps,
                lambda value, dtype: torch.finfo(dtype).eps * abs(value),
                lambda value, dtype: torch.finfo(dtype).eps * stored(value, dtype).item(),
                look="`2 ** floor(log2(…))`, or `torch.nextafter`",
            ),
            looks_like(
                "other_format",
                "This is the gap of float32, or of Python's own float64, whatever the format.",
                lambda value, dtype: solution(value, torch.float32),
                lambda value, dtype: math.ulp(value),
                lambda value, dtype: math.ulp(stored(value, dtype).item()),
                look="`dtype=dtype` in every tensor that you make",
            ),
            looks_like(
                "direction",
                "Your neighbor is not always the one farther from zero: up for positive numbers, down for negative "
                "ones. At a power of two, the gap on the side of zero is half as wide.",
                lambda value, dtype: to_neighbor(value, dtype, math.inf),
                lambda value, dtype: to_neighbor(value, dtype, -math.inf),
                lambda value, dtype: to_neighbor(value, dtype, 0.0),
                look="the second argument of `torch.nextafter`",
            ),
            looks_like(
                "not_rounded",
                "The format cannot represent every value: a number that falls into a gap is rounded when it is stored. "
                "Round it first, and measure from there.",
                lambda value, dtype: torch.finfo(dtype).eps * 2 ** math.floor(math.log2(abs(value))),
                lambda value, dtype: solution(value, dtype) + stored(value, dtype).item() - abs(value),
                look="`torch.tensor(value, dtype=dtype)` before everything else",
            ),
        ],
    ),
)
