"""A tensor like another one, filled with one value: shape, dtype, and device come from that one."""

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like


def draw(rng: Inputs) -> list[tuple]:
    """Floats and an integer value, then other dtypes; numbers of all kinds, and no axis as long as another."""
    rows, columns, more = rng.sizes(3, 2, 9)
    return [
        (rng.randn(rows, columns), rng.size(2, 9)),
        (rng.randn(more).double(), 0.1),
        (rng.ints(0, 9, (rows, columns, more)), rng.size(2, 9)),
        (rng.images(1, 1, rows, columns), 7),
    ]


def solution(tensor: Tensor, value: float) -> Tensor:
    return torch.full_like(tensor, value)


exercise = Exercise(
    title="A tensor like another one",
    minutes=2,
    difficulty=1,
    points=1,
    takeaway="`full_like`, `zeros_like`, and `rand_like` take shape, dtype, and device from another tensor: on a GPU, "
    "the same line works unchanged.",
    hints=(
        "The lecture's `torch.full` takes a shape and a value. Some functions take a whole tensor instead of a shape.",
        "Their names end in `_like`: `torch.zeros_like(tensor)` is one.",
        "`torch.full_like(tensor, value)`",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        look="`torch.full_like`, which needs a tensor and a value",
        says=[
            looks_like(
                "dtype",
                "Your dtype comes from the value, or is always float32; it should be that of the tensor.",
                lambda tensor, value: torch.full(tensor.shape, value),
                lambda tensor, value: torch.full(tensor.shape, float(value)),
                look="`torch.full_like`, or `dtype=tensor.dtype`",
            ),
            looks_like(
                "ones",
                "Your tensor is all ones or all zeros. Every element should be the value that comes in.",
                lambda tensor, value: torch.ones_like(tensor),
                lambda tensor, value: torch.zeros_like(tensor),
            ),
        ],
    ),
)
