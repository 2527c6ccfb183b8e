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
    gray = rng.ints(1, 256, (1, 1, 9, 9), torch.uint8)
    for batch, pixels in ((images, 2), (images[:300], 1), (gray, 3)):
        first, second = (moves_of(call(answer, batch, pixels), batch, pixels) for _ in range(2))
        if len(batch) > 1:
            judge_chance(first, second, pixels)
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
        look = "labels stay as they are; bytes in, bytes out: you need no floats to shift and mirror"
        raise Incorrect("Your function should return one batch like the one it gets.", images, yours, look)
    yours, offsets = yours.cpu(), range(-pixels - 1, pixels + 2)  # one beyond what is allowed
    moves = list(itertools.product((False, True), offsets, offsets))
    found = torch.stack([alike(moved(images, *move), yours) for move in moves])  # [moves, B]
    for i in (~found.any(0)).nonzero().flatten().tolist():
        explain_lost(yours[i], images, i, moves, pixels)
    return torch.tensor(moves, dtype=torch.int64)[found.int().argmax(0)]


def alike(one: Tensor, other: Tensor) -> Tensor:
    """Which images of two batches are equal: bool [B]."""
    return (one == other).flatten(1).all(1)


def moved(images: Tensor, mirror: bool, down: int, right: int) -> Tensor:
    images = images.flip(-1) if mirror else images
    height, width = images.shape[-2:]
    reach = max(abs(down), abs(right))
    return F.pad(images, (reach,) * 4)[..., reach - down :, reach - right :][..., :height, :width]


def explain_lost(mine: Tensor, images: Tensor, i: int, moves: list[tuple], pixels: int) -> None:
    """Say what was done to image i, which is no moved copy of image i of the input."""
    own = images[i]
    wrong_if(
        any(torch.equal((own.flip(-1) if flip else own).roll(move, (-2, -1)), mine) for flip, *move in moves),
        "rolled",
        "Pixels that leave an image on one side come back in on the other: that is what `roll` does.",
        look="pad with zeros and take a window, so that black (0) comes in",
    )
    wrong_if(
        any(alike(moved(images, *move), mine[None]).any() for move in moves),
        "another_image",
        f"Image {i} of your batch is made from another image of the input, to which its label does not belong.",
        look="the index of the images: `torch.arange(B)`, in its order",
    )
    inside = [(moved(own, *move), moved(torch.ones_like(own), *move).bool()) for move in moves]
    wrong_if(
        any(torch.equal(copy[seen], mine[seen]) for copy, seen in inside if seen.sum() > 8),
        "not_black",
        "The images are moved, but what comes in at the edge is not black.",
        look="`F.pad(images, (pixels,) * 4)` pads with zeros",
    )
    raise Incorrect(
        f"Image {i} of your batch should be image {i} of the input, mirrored or not, moved by at most {pixels} pixels.",
        look="mirror left and right, along the last axis; move all channels of an image alike; try one image with "
        "`torch.arange(H * W).view(1, 1, H, W)` as pixels, and print it",
    )


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
    counts = (offsets + pixels + 1).flatten().bincount(minlength=2 * pixels + 3)
    wrong_if(
        counts[0] or counts[-1] or unlikely(counts[1:-1]),
        "offsets",
        f"Every offset from −{pixels} to {pixels} should be equally likely, and no other should occur.",
        look="each image needs its own offsets, `torch.randint(low, high, (B,))`, which never draws `high`; rounded "
        "floats, or a coin that also decides about moving, favor some",
        yours=", ".join(
            f"{offset}: {count} times" for offset, count in enumerate(counts.tolist(), -pixels - 1) if count
        ),
    )
    wrong_if(
        torch.equal(mirrors, second[:, 0]) or torch.equal(offsets, second[:, 1:]),
        "the_same_again",
        "Two calls mirror or move all images in the same way: each epoch would see the same pictures again.",
        look="`manual_seed`, or a position in the batch that decides instead of chance",
    )
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
    takeaway="One indexing operation shifts every image by its own amount: no loop, no floats, and on the device "
    "of the batch.",
    hints=(
        "Pad all images with `pixels` black pixels on each side. A shifted image is a window of the padded one: "
        "each image only needs its own upper left corner.",
        "`torch.randint(0, 2 * pixels + 1, (B,))` draws the corners. The rows of image b are `top[b] + 0 … H - 1`: "
        "`rows = top[:, None] + torch.arange(H)` is [B, H], and the columns likewise are [B, W].",
        "`padded[torch.arange(B)[:, None, None], :, rows[:, :, None], columns[:, None, :]]` is [B, H, W, C]: permute. "
        "Mirror with `torch.where(coin[:, None, None, None], images.flip(-1), images)`.",
    ),
    judge=judge,
    seconds=probes.SLOW_START,
    lends=solution,
)
