"""Mirror and shift each image of a batch at random, all at once."""

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, wrong_if


def solution(images: Tensor, pixels: int) -> Tensor:
    count, _, height, width = images.shape
    coin = torch.rand(count, device=images.device) < 0.5
    images = torch.where(coin.view(-1, 1, 1, 1), images.flip(-1), images)
    windows = F.pad(images, (pixels,) * 4).unfold(2, height, 1).unfold(3, width, 1)  # [B, C, places, places, H, W]
    down, right = torch.randint(0, 2 * pixels + 1, (2, count), device=images.device)
    return windows[torch.arange(count, device=images.device), :, down, right]


def judge(answer: Any, rng: Inputs) -> None:
    images = rng.ints(1, 256, (600, rng.pick((2, 3, 4)), *rng.sizes(2, 8, 12)), torch.uint8)  # black only comes in
    for batch, pixels in ((images, 2), (images[:300, :1], 1)):
        judge_chance(*(moves_of(call(answer, batch, pixels), batch, pixels) for _ in range(2)), pixels)
    few, many = (observe(answer, probes.steps, batch, 2) for batch in (images[:150], images))
    wrong_if(
        many > few + 100,
        "loop",
        "Your batch is right, but your code takes more steps when there are more images: there is a loop.",
        look="windows of the padded batch, all taken by one indexing operation",
    )


def moves_of(yours: Any, images: Tensor, pixels: int) -> Tensor:
    """What was done to each image, int64 [B, 3]: mirrored (0 or 1), pixels down, pixels to the right."""
    if not isinstance(yours, Tensor) or yours.shape != images.shape or yours.dtype != torch.uint8:
        look = "windows of [H, W] pixels, as before; bytes in, bytes out, without labels: no floats are needed"
        raise Incorrect("Your function should return one batch like the one it gets.", images, yours, look)
    yours, offsets = yours.cpu(), range(-2 * pixels, 2 * pixels + 1)  # beyond what is allowed, too
    moves = list(itertools.product((False, True), offsets, offsets))
    found = torch.stack([(moved(images, *move) == yours).flatten(1).all(1) for move in moves])  # [moves, B]
    if not found.any(0).all():
        i = int((~found.any(0)).nonzero()[0])
        rolled = [(images[i].flip(-1) if mirror else images[i]).roll(move, (-2, -1)) for mirror, *move in moves]
        wrong_if(
            any(torch.equal(copy, yours[i]) for copy in rolled),
            "rolled",
            "Pixels that leave an image on one side come back in on the other: that is what `roll` does.",
            look="pad with zeros and take a window, so that black (0) comes in",
        )
        problem = f"Image {i} of your batch is not image {i} of the input, mirrored or not, and moved by a few pixels."
        look = "pad with zeros; mirror the last axis; move all channels alike, `pixels` at most; images stay in order"
        raise Incorrect(problem, look=look)
    return torch.tensor(moves, dtype=torch.int64)[found.int().argmax(0)]


def moved(images: Tensor, mirror: bool, down: int, right: int) -> Tensor:
    images = images.flip(-1) if mirror else images
    height, width = images.shape[-2:]
    reach = max(abs(down), abs(right))
    return F.pad(images, (reach,) * 4)[..., reach - down :, reach - right :][..., :height, :width]


def judge_chance(first: Tensor, second: Tensor, pixels: int) -> None:
    """Say how mirror and offsets of two calls differ from fair luck, for each image on its own."""
    mirrors, offsets = first[:, 0], first[:, 1:]
    wrong_if(
        unlikely(mirrors.bincount(minlength=2)),
        "mirror",
        f"In one call, {mirrors.double().mean():.0%} of the images were mirrored. It should be about half: every image "
        "needs its own coin toss.",
        look="`torch.rand(B) < 0.5`, or `torch.randint(0, 2, (B,))`, which never draws the 2",
    )
    counts = (offsets + 2 * pixels).flatten().bincount(minlength=4 * pixels + 1)
    wrong_if(
        counts[:pixels].any() or counts[-pixels:].any() or unlikely(counts[pixels:-pixels]),
        "offsets",
        f"Every offset from −{pixels} to {pixels} should be equally likely, and no other should occur.",
        look="each image needs two offsets of its own, from `torch.randint(low, high, (B,))`, never `high`; "
        "rounded floats, or a coin that also decides about moving, favor some",
        yours=f"how often each offset occurs, from {-2 * pixels} to {2 * pixels}: {counts.tolist()}",
    )
    if torch.equal(mirrors, second[:, 0]) or torch.equal(offsets, second[:, 1:]):
        look = "`manual_seed`, or a position in the batch that decides instead of chance"
        raise Incorrect("Two calls mirror or move all images in the same way, as each epoch would.", look=look)
    places = 2 * pixels + 1
    down, right = (offsets + pixels).T
    wrong_if(
        unlikely((mirrors * places**2 + down * places + right).bincount(minlength=2 * places**2)),
        "dependent",
        "Mirroring, the vertical offset, and the horizontal offset are not independent of each other: for each image, "
        "all combinations should be equally likely.",
        look="draw three times, each time one number for each image",
    )


def unlikely(counts: Tensor) -> bool:
    """Whether equal chances give such counts less than once in ten million times."""
    expected = counts.sum().double() / len(counts)
    chi_squared = ((counts - expected).square() / expected).sum()
    return torch.special.gammaincc(torch.tensor((len(counts) - 1) / 2).double(), chi_squared / 2).item() < 1e-7


exercise = Exercise(
    title="Change a whole batch",
    minutes=14,
    difficulty=4,
    points=3,
    takeaway="One indexing operation shifts every image by its own amount: no loop, no floats.",
    hints=(
        "Pad all images with `pixels` black pixels on each side. A shifted image is a window of the padded one: "
        "each image only needs its own upper left corner, from `torch.randint(0, 2 * pixels + 1, (B,))`.",
        "`rows = top[:, None] + torch.arange(H)` are the rows of each window, [B, H], and the columns likewise. "
        "`padded[torch.arange(B)[:, None, None], :, rows[:, :, None], columns[:, None, :]]` is [B, H, W, C]: permute.",
    ),
    judge=judge,
    seconds=probes.SLOW_START,
    lends=solution,
)
