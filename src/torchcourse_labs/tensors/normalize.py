"""Each channel to mean 0 and deviation 1: statistics over several axes, and shapes that meet them."""

from functools import partial

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like

CHANNELS = (0, 2, 3)  # the axes over which each channel has its own statistics
OTHERS = ((1, 2, 3), (2, 3), (0,), (1,), (0, 1), (0, 1, 2), (0, 1, 2, 3))


def draw(rng: Inputs) -> list[tuple]:
    """First, images as wide as they have channels, where a mean of shape [3] runs along the width, unnoticed.

    There are many pixels, so that both definitions of the deviation, with N and N - 1, are within the tolerance.
    """
    count, wide, cases = rng.size(10, 14), rng.size(10, 13), []
    for n, channels, height, width in ((count, 3, 22, 3), (count, 4, 9, wide), (1, 1, 30, 31)):
        images = rng.randn(n, channels, height, width) + rng.randn(n, 1, 1, 1)  # some images are brighter than others
        spread = torch.tensor([0.5, 1.0, 2.0, 3.0])[:channels]
        cases.append((images * spread[:, None, None] + (rng.randn(channels) * 3)[:, None, None],))
    return cases


def solution(images: Tensor, axes: tuple[int, ...] = CHANNELS, correction: int = 1) -> Tensor:
    deviation = images.std(axes, correction=correction, keepdim=True)
    return (images - images.mean(axes, keepdim=True)) / deviation


def mean(images: Tensor) -> Tensor:
    return images.mean(CHANNELS, keepdim=True)


def deviation(images: Tensor) -> Tensor:
    return images.std(CHANNELS, keepdim=True)


exercise = Exercise(
    title="Normalize each channel",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="Statistics of shape [C] meet images [N, C, H, W] only as [C, 1, 1]: shapes line up from the right.",
    hints=(
        "Over which axes, so that only C remains? `dim=` takes several; `keepdim=True` leaves a shape that broadcasts.",
        "`mean = images.mean(dim=(0, 2, 3), keepdim=True)`, the same with `std`, then subtract and divide.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        rtol=2e-3,
        atol=1e-4,
        look="the mean of each channel of your result should be 0 and its deviation 1, whatever the images: take both "
        "numbers of all channels from `images`, and write none of them into your code",
        says=[
            looks_like(
                "along_the_width",
                "Your mean and deviation have shape [C], and broadcasting lined them up with the last axis, the width.",
                lambda images: (images - images.mean(CHANNELS)) / images.std(CHANNELS),
                look="the shape of the mean: [C, 1, 1] meets the channels; `keepdim=True` or `[:, None, None]`",
            ),
            looks_like(
                "other_axes",
                "You took mean and deviation over other axes: take them for each channel, over all images and pixels.",
                *(partial(solution, axes=axes, correction=correction) for axes in OTHERS for correction in (0, 1)),
                look="`dim=` names the axes that disappear: all but C",
            ),
            looks_like(
                "one_step",
                "Two steps, in this order: subtract the mean of the channel, then divide by its deviation.",
                lambda images: images - mean(images),
                lambda images: images / deviation(images),
                lambda images: images / deviation(images) - mean(images),
            ),
            looks_like(
                "parentheses",
                "You divided only the mean: `(images - mean) / deviation` needs the parentheses.",
                lambda images: images - mean(images) / deviation(images),
            ),
            looks_like(
                "variance",
                "You divided by the variance: the standard deviation is its square root.",
                lambda images: (images - mean(images)) / deviation(images) ** 2,
                look="`var` or `std`",
            ),
        ],
    ),
)
