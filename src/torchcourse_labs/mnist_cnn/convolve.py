"""A convolution by hand: windows times kernels."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labcheck import probes
from labcheck.authoring import Exercise, Inputs, Spec, looks_like, near, observe, raises_like, wrong_if


def draw(rng: Inputs) -> list[tuple]:
    """All sizes differ; as many kernels as the output has columns; a kernel as large as its image."""
    b, c, o = rng.sizes(3, 2, 6)
    (h, w), (height, width) = rng.sizes(2, 2, 4), rng.sizes(2, 7, 10)
    weight, bias = rng.randn(o, c, h, w), rng.randn(o)
    return [
        (rng.randn(b, c, height, width), weight, bias),
        (rng.randn(b, c, height, o + w - 1), weight, bias),
        (rng.randn(1, 1, 3, 2), rng.randn(1, 1, 3, 2), rng.randn(1)),
    ]


def solution(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    windows = images.unfold(2, weight.shape[2], 1).unfold(3, weight.shape[3], 1)  # [B, C, rows, columns, h, w]
    return torch.einsum("bcijhw,ochw->boij", windows, weight) + bias[:, None, None]


def explain(yours: Tensor, expected: Tensor, images: Tensor, weight: Tensor, bias: Tensor) -> None:
    first = expected[:, :, :-1, :-1]
    larger = yours.dim() != 4 or yours.shape[2:] > expected.shape[2:]
    wrong_if(
        not larger and first.numel() and near(yours[:, :, : first.shape[2], : first.shape[3]], first, 1e-3, 1e-4),
        "last_places",
        "All of the output is right except the last row or column, which is missing or has wrong values.",
        look="`range(H - h + 1)` for rows, `range(W - w + 1)` for columns: images and kernels need not be square",
    )


def afterward(answer: Any, *cases: tuple) -> None:
    wrong_if(
        any("conv" in name for name in observe(answer, probes.operations, *cases[0])),
        "library",
        "The result is right, but PyTorch's convolution made it. Here you write your own.",
        look="loops, `unfold`, `einsum` and `@` instead of conv2d",
    )


exercise = Exercise(
    seconds=probes.SLOW_START,
    title="A convolution by hand",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="A convolution is a matrix product of windows and kernels; that is why processors are so fast at it.",
    hints=(
        "For one place: cut the window out of all images and channels, multiply with each kernel, add up over channel, "
        "row and column.",
        "`torch.einsum('bchw,ochw->bo', window, weight)` does one place for all images and all kernels.",
        "Two loops over the places fill `output[:, :, row, column]`; or `windows = images.unfold(2, h, 1)."
        "unfold(3, w, 1)` has all of them, [B, C, rows, columns, h, w], for one einsum.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        explain=explain,
        afterward=afterward,
        rtol=1e-3,
        atol=1e-4,
        look="at each place, and then `return`: the sum over all channels, rows and columns of window · kernel (as it "
        "is, not flipped), plus the bias of the kernel, once; in the order [B, O, rows, columns]: `permute` "
        "and `transpose` move axes, `reshape` does not",
        says=[
            looks_like(
                "no_bias",
                "The bias is missing: each output channel adds one number.",
                lambda images, weight, bias: F.conv2d(images, weight),
            ),
            looks_like(
                "bias_axis",
                "Your bias needs two more axes: broadcasting lines its only one up with the columns of the output.",
                lambda images, weight, bias: F.conv2d(images, weight) + bias,
                look="`bias[:, None, None]`: one number for each output channel",
            ),
            raises_like(
                "window",
                "A window and the kernel have different sizes: [B, C, h, w] of the images belongs to [O, C, h, w].",
                "does not broadcast with previously seen size",
                look="rows and H go with h, columns and W with w; there are H − h + 1 rows and W − w + 1 columns",
            ),
        ],
    ),
)
