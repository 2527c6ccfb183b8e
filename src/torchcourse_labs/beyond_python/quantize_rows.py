"""One int8 number for each weight and one scale for each row."""

from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, call, looks_like, near, same, wrong_if


def draw(rng: Inputs) -> list[tuple]:
    """No value is near the middle between two numbers. Rows differ in size; each has positive values, too."""
    found = []
    for _ in range(2):
        rows, columns = rng.sizes(2, 5, 9)
        steps = rng.ints(-100, 101, (rows, columns)) + (rng.rand(rows, columns) - 0.5) * 0.8
        steps[:, 0], steps[::2, 1], steps[1::2, 1] = steps[:, 0].abs() + 1, -127, 127
        powers = torch.tensor([1, 8, *rng.ints(1, 5, (rows - 2,)).tolist()])
        found.append((steps * (0.2 + 0.7 * rng.rand(rows, 1)) * 10.0 ** -powers[:, None],))
    return found


def solution(weight: Tensor) -> tuple[Tensor, Tensor]:
    largest = weight.abs().amax(dim=1)
    scales = torch.where(largest > 0, largest / 127, 1.0)
    return (weight / scales[:, None]).round().to(torch.int8), scales


def explain(yours: Any, expected: tuple, weight: Tensor) -> None:
    right, scales = expected[1].double(), yours[-1]
    if not isinstance(scales, Tensor) or scales.dtype != torch.float32 or scales.shape not in ((), right.shape):
        return
    wrong_if(
        len({*scales.flatten().tolist()}) == 1,
        "one_scale",
        "You have one scale for all: the largest row takes the whole range, and small rows become zeros.",
        look="the maximum over each row: `dim=1`",
    )
    wrong_if(
        near(scales, weight.amax(dim=1) / 127, atol=0),
        "no_abs",
        "Your scales come from the largest value of each row, but a negative weight may be larger without its sign.",
        look="`abs` before the maximum",
    )
    wrong_if(
        0.999 < scales.max() / right.max() < 1.007 and scales.min() > 1.001 * right.min(),
        "floor",
        "You limit the scales from below, or add a small number to them, so a row of small weights loses its "
        "precision. Only a row of zeros needs a scale that is not its own.",
    )


def afterward(answer: Any, case: tuple, _: tuple) -> None:
    """A row of zeros among others."""
    weight = case[0].clone()
    weight[2] = 0
    numbers, scales = call(answer, weight)
    wrong_if(
        not 0 < scales[2] < torch.inf,
        "zero_scale",
        f"The scale of a row of zeros is {scales[2]:g}. Let it be positive and finite: 0 / 0 is not a number.",
        look="the division",
    )
    same(numbers, solution(weight)[0], "With a row of zeros, the tensor of numbers")


exercise = Exercise(
    title="One byte for each weight",
    minutes=7,
    difficulty=2,
    points=2,
    takeaway="Each row has a range of its own, so no weight is off by more than half of its row's scale.",
    hints=(
        "The scale is what one step of the integers is worth. The largest value of a row is worth 127 steps.",
        "`weight.abs().amax(dim=1)` has the largest of each row. Replace scales of 0 (`torch.where`) before you divide "
        "by `scales[:, None]`, then `.round().to(torch.int8)`.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        atol=1e-10,
        explain=explain,
        afterward=afterward,
        look="the scale of a row: its largest absolute value divided by 127; each number: weight / scale, `.round()`",
        says=[
            looks_like(
                "not_rounded",
                "Your numbers are not rounded to the nearest integer, which keeps the error within half a scale.",
                lambda weight: ((weight / solution(weight)[1][:, None]).to(torch.int8), solution(weight)[1]),
                look="`.round()` before `.to(torch.int8)`, which cuts off what comes after the decimal point",
            )
        ],
    ),
    lends=solution,
)
