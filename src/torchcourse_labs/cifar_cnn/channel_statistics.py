"""Mean and standard deviation of each channel."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like


def draw(rng: Inputs) -> list[tuple]:
    """Many pixels: n and n - 1 are both right. Each channel and each image has its own brightness."""
    cases = []
    for n, channels, height, width in (rng.sizes(4, 8, 16), (20, 3, 9, 11), (1200, 1, 6, 7)):
        levels, spread = rng.rand(1, channels, 1, 1) * 90 + 60, rng.rand(1, channels, 1, 1) * 25 + 8
        pixels = levels + rng.randn(n, 1, 1, 1) * 30 + rng.randn(n, channels, height, width) * spread
        cases.append((pixels.round().clamp(0, 250).to(torch.uint8),))
    return cases


def solution(images: Tensor) -> tuple[Tensor, Tensor]:
    scaled = images.float() / 255
    return scaled.mean(dim=(0, 2, 3)), scaled.std(dim=(0, 2, 3))


def over(dim: Any, **options: Any) -> Callable:
    return lambda images: ((images / 255).mean(dim, **options), (images / 255).std(dim, **options))


class PairSpec(Spec):
    """Takes two tensors in one for a pair, too."""

    @staticmethod
    def result(function: Any, case: tuple) -> Any:
        result = Spec.result(function, case)
        return tuple(result) if isinstance(result, Tensor) and result.dim() > 1 else result


exercise = Exercise(
    title="Mean and standard deviation of each channel",
    minutes=5,
    difficulty=1,
    points=1,
    takeaway="Two numbers for each channel, from the training images alone; every later image is normalized with them.",
    hints=(
        "All images and all pixels of a channel together make one mean. Which axes disappear?",
        "`scaled = images.float() / 255`, then `scaled.mean(dim=(0, 2, 3))`, and `scaled.std(...)` in the same way.",
    ),
    judge=PairSpec(
        draw=draw,
        solution=solution,
        dtype=False,
        rtol=1e-3,
        look="(means, standard deviations), in this order, two tensors of shape [C]: of `images.float() / 255`, over "
        "`dim=(0, 2, 3)`",
        says=[
            looks_like(
                "axes",
                "There should be one number for each channel, over all images and all their pixels.",
                *(over(dim) for dim in (None, 0, (2, 3), (1, 2, 3))),
                over((0, 2, 3), keepdim=True),
                look="`dim=(0, 2, 3)`: every axis except the channels; and leave out `keepdim`",
            ),
            looks_like(
                "not_scaled",
                "Your numbers are those of pixels from 0 to 255, but the scale is 0 to 1.",
                lambda images: solution(images * 255.0),
                look="`images.float() / 255`, before mean and std",
            ),
            looks_like(
                "within_images",
                "You took the standard deviation within each image, or that of the images' means. A channel has only "
                "one, over all pixels of all images together.",
                lambda images: (solution(images)[0], (images / 255).std((2, 3)).mean(0)),
                lambda images: (solution(images)[0], (images / 255).mean((2, 3)).std(0)),
            ),
            looks_like(
                "reshape",
                "`reshape` and `view` don't move axes: each of your rows holds a part of the images, with all their "
                "channels, not one channel of all images.",
                lambda images: [f(images.reshape(images.shape[1], -1) / 255, 1) for f in (torch.mean, torch.std)],
                look="`images.transpose(0, 1)` first, or `dim=(0, 2, 3)` without a reshape",
            ),
        ],
    ),
)
