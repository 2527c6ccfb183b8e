"""One int8 number for each weight and one scale for each row."""

from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, call, looks_like, same, wrong_if


def draw(rng: Inputs) -> list[tuple]:
    """No value is near the middle between two numbers. Rows differ in size; each has positive values, too."""
    found = []
    for _ in range(2):
        rows, columns = rng.sizes(2, 5, 9)
        steps = rng.ints(-100, 101, (rows, columns)) + (rng.rand(rows, columns) - 0.5) * 0.8
        for row, column in enumerate(rng.ints(0, columns, (rows,)).tolist()):
            steps[row, column] = 127 if row % 2 else -127
            steps[row, column - 1] = steps[row, column - 1].abs() + 1
        powers = rng.ints(1, 5, (rows, 1))
        powers[0], powers[1] = 1, 6
        found.append((steps * (0.2 + rng.rand(rows, 1)) * 10.0**-powers,))
    return found


def solution(weight: Tensor) -> tuple[Tensor, Tensor]:
    largest = weight.abs().amax(dim=1)
    return numbers_for(weight, torch.where(largest > 0, largest / 127, 1.0))


def numbers_for(weight: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    return (weight / scales[:, None]).round().clamp(-128, 127).to(torch.int8), scales


def explain(yours: Any, expected: tuple, weight: Tensor) -> None:
    if len(yours) != 2 or not all(isinstance(part, Tensor) for part in yours):
        return
    scales, right = yours[1], expected[1]
    if scales.shape != right.shape:
        return
    wrong_if(
        scales.float().allclose(weight.amax(dim=1) / 127, atol=0),
        "no_abs",
        "Your scales come from the largest value of each row. The weight with the largest absolute value may be "
        "negative.",
        look="`abs` before the maximum",
    )
    factor, smallest = (scales[0] / right[0]).item(), scales[right.argmin()].item()
    wrong_if(
        abs(factor - 1) > 1e-3 and scales.float().allclose(factor * right, atol=0),
        "factor",
        f"Your scales are {factor:.4g} times what they should be: the largest absolute value of a row is worth 127 "
        "scales, as the numbers reach from -127 to 127.",
        look="what you divide the largest absolute value by",
    )
    others = (right.clamp(min=smallest), right + (smallest - right.min()))
    wrong_if(
        1.001 * right.min() < smallest < 0.9 * right.max()
        and any(scales.float().allclose(each, atol=0) for each in others),
        "floor",
        "You limit the scales from below, or add a small number to them, so a row of small weights loses its "
        "precision. Only a row of zeros needs a scale that is not its own.",
        look="`clamp(min=…)`, `+`",
    )


def afterward(answer: Any, case: tuple, _: tuple) -> None:
    """A row of zeros among others."""
    weight = case[0].clone()
    weight[2] = 0
    (numbers, scales), expected = call(answer, weight), solution(weight)
    scale = scales[2].item()
    wrong_if(
        not 0 < scale < torch.inf,
        "zero_scale",
        f"The scale of a row of zeros is {scale:g}. Any positive, finite scale is right for such a row; 0 is not, "
        "because 0 divided by 0 is not a number.",
        look="the division",
    )
    same(numbers, expected[0], "With a row of zeros, the tensor of numbers")
    scales = torch.where(weight.any(dim=1), scales, expected[1])  # any positive one is right
    same(scales, expected[1], "With a row of zeros, the tensor of scales", atol=1e-8)


exercise = Exercise(
    title="One byte for each weight",
    minutes=7,
    difficulty=2,
    points=2,
    takeaway="Each row has a range of its own, so no weight is off by more than half of its row's scale.",
    hints=(
        "The scale is what one step of the integers is worth. The largest value of a row is worth 127 steps.",
        "`weight.abs().amax(dim=1)` has the largest value of each row. Give the scales a second axis when you divide: "
        "`scales[:, None]`.",
        "Replace a scale of 0 before you divide (`torch.where`, or `clamp(min=...)` with a very small number), then "
        "`.round().to(torch.int8)`.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        atol=1e-8,
        explain=explain,
        afterward=afterward,
        look="the scale of a row: its largest absolute value divided by 127; and each number: weight / scale, rounded",
        says=[
            looks_like(
                "one_scale",
                "You have one scale for all: the largest row takes the whole range, and small rows become zeros.",
                lambda weight: numbers_for(weight, (weight.abs().max() / 127).expand(len(weight))),
                lambda weight: (numbers_for(weight, weight.abs().max()[None] / 127)[0], weight.abs().max() / 127),
                look="the maximum over each row: `dim=1`",
            ),
            looks_like(
                "not_rounded",
                "Your numbers are not rounded to the nearest integer, which keeps the error within half a scale.",
                lambda weight: ((weight / solution(weight)[1][:, None]).to(torch.int8), solution(weight)[1]),
                lambda weight: ((weight / solution(weight)[1][:, None]).floor().to(torch.int8), solution(weight)[1]),
                look="`.round()` before `.to(torch.int8)`, which cuts off what comes after the decimal point",
            ),
        ],
    ),
    lends=solution,
)
