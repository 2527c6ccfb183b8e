"""The exercises of chapter 05: better networks for CIFAR-10, and how to know that they are better."""

import copy
import functools
import itertools
import math  # noqa: F401 - for the tables
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck import probes
from labcheck.answer import call
from labcheck.inputs import Inputs
from labcheck.verdict import AnswerRaised
from torchcourse import data, models
from torchcourse.lab.budget import STEPS, Budget
from torchcourse_labs._spec import Habit, Mistake, Spec, altered, changed, chapter, says  # noqa: F401 - for the tables

EXERCISES = ()  # declared below

exercise = chapter("05_cifar_cnn")


def _but(solution: Callable, *places: str) -> Callable:
    """The solution with some places changed, each given as "old -> new"."""
    return changed(solution, *(tuple(place.split(" -> ")) for place in places))


# ---------------------------------------------------------------------------------------------------------------------


def _pair(ask: Callable, images: Tensor) -> Any:
    """Both results in one float64 tensor [2, …], however they are packed."""
    yours = ask(images)
    parts = list(yours) if isinstance(yours, tuple | list) or (_real(yours) and yours.dim() > 1) else []
    if len(parts) != 2 or not all(_real(part) for part in parts):
        return {"instead": yours}
    if parts[0].shape != parts[1].shape:
        return {"shapes": tuple(tuple(part.shape) for part in parts)}
    return torch.stack([part.detach().cpu().double() for part in parts])


def _real(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_complex() and not value.is_meta and value.layout == torch.strided


def _photographs(new: Inputs) -> list[tuple]:
    def some(n: int, channels: int, height: int, width: int) -> Tensor:
        levels, spread = new.rand(1, channels, 1, 1) * 90 + 60, new.rand(1, channels, 1, 1) * 25 + 8  # of each channel
        lights = new.randn(n, 1, 1, 1) * 30  # each image has its own brightness
        pixels = levels + lights + new.randn(n, channels, height, width) * spread
        return pixels.round().clamp(0, 250).to(torch.uint8)

    # Many pixels: n and n - 1 in the denominator are both right.
    sizes = new.sizes(4, 8, 16), (20, 3, 9, 11), (1, 2, 40, 27), (1200, 1, 6, 7)
    return [(some(*size),) for size in sizes]


def _reduced(dim: Any = (0, 2, 3), scale: float = 255, **options: Any) -> Callable:
    return lambda images: ((images / scale).mean(dim, **options), (images / scale).std(dim, **options))


def _mean_and(deviation: Callable) -> Callable:
    """Wrong solutions with the right means, and deviations from the scaled images."""
    return lambda images: ((images / 255).mean((0, 2, 3)), deviation(images / 255))


def _channel_after_channel(images):
    channels = [images[:, c].numpy().astype("float64") / 255 for c in range(images.shape[1])]
    return torch.tensor([c.mean() for c in channels]), torch.tensor([c.std() for c in channels])


# Means of CIFAR-10 and of ImageNet, as many pages print them.
KNOWN = torch.tensor([[0.4914, 0.4822, 0.4465], [0.485, 0.456, 0.406]]).double()

exercise(
    "channel_statistics",
    title="Mean and standard deviation of each channel",
    minutes=5,
    difficulty=1,
    points=1,
    takeaway="Two numbers for each channel, from the training images alone; every later image is normalized with them.",
    hints=(
        "All images and all pixels of a channel together make one mean. Which axes disappear?",
        "The axes are image, channel, height, width. All but the channel go: `dim=(0, 2, 3)`.",
        "`scaled = images.float() / 255`, then `scaled.mean(dim=(0, 2, 3))`, and `scaled.std(...)` in the same way.",
    ),
    spec=Spec(
        draw=_photographs,
        solution=_reduced(),
        measure=_pair,
        rtol=1e-3,
        look="`images.float() / 255`; then mean and std with `dim=(0, 2, 3)`: every axis except the channels",
        mistakes="""
            = (images / 255).mean((0, 2, 3))
            = tuple(part.tolist() for part in _reduced()(images))
                Your function should return two tensors, (means, deviations); it returned {yours[instead]}.
                look: the return value: two tensors of shape [C], for example `return means, deviations`
                when: "instead" in yours
            = ((images / 255).mean((0, 2, 3)), (images / 255).std())
                Your means and your deviations have different shapes: {yours[shapes][0]} and {yours[shapes][1]}.
                look: the `dim` of mean and std: both need `dim=(0, 2, 3)`
                when: "shapes" in yours
            = (images.mean((0, 2, 3)), images.std((0, 2, 3)))
                PyTorch can't take the mean of bytes: turn the images into floats first.
                look: `images.float() / 255`
                when: says(yours, "could not infer", "floating point", "Byte")
            _reduced(None)
                You have one number for all channels together. Red, green and blue each need their own.
                look: the `dim` of mean and std
                when: yours.dim() == 1
            _reduced(keepdim=True)
                Your numbers may be right, but they have kept the axes of the images: the shape is {yours[0].shape}, not
                {expected[0].shape}.
                look: `keepdim=True`: leave it out
                when: yours[0].squeeze().shape == expected[0].squeeze().shape != (1,) and yours.dim() == 5
            = tuple(torch.stack([part[c] for c in range(3)]) for part in _reduced()(images))
            = tuple(part[:3] for part in _reduced()(images))
                With three channels your function works. Here the images have {images.shape[1]}.
                look: a 3 in your code: the number of channels is `images.shape[1]`
                when: images.shape[1] != 3 and (says(yours, "out of ") or yours.shape == (2, 3) or yours.shape[1] ==
                    min(3, images.shape[1]))
            _reduced((1, 2, 3))
                You have one number for each image. You need one for each channel.
                look: the `dim` of mean and std: the axis that stays is the channels, 1
                when: yours.shape == (2, len(images))
            _reduced((2, 3)), _reduced(0)
                Your means have shape {yours[0].shape}; one number for each channel makes {expected[0].shape}. Average
                over images, height and width.
                look: the `dim` of mean and std: the axis that stays is the channels, 1
                when: yours.shape != expected.shape
            = (torch.tensor(data.MEAN_STD["cifar10"][0]), torch.tensor(data.MEAN_STD["cifar10"][1]))
            = (torch.full(images.shape[1:2], 0.5), torch.full(images.shape[1:2], 0.5))
                These are numbers that many pages print. Compute them from the images that you are given.
                when: (yours == 0.5).all() or any(torch.allclose(yours[0], means, atol=2e-3) for means in KNOWN)
            = _reduced()(images)[::-1]
                You returned the deviations first; the means come first.
            _reduced(scale=1)
            = (_reduced()(images)[0], _reduced(scale=1)(images)[1])
            = (_reduced(scale=1)(images)[0], _reduced()(images)[1])
                Your numbers are those of pixels from 0 to 255: divide by 255 first.
                look: `images.float() / 255`, before mean and std
            = _reduced(scale=1)((images // 255).float())
                `//` rounds down to whole numbers, so every pixel below 255 becomes 0. Divide with `/`.
            = tuple(reduce(images.reshape(images.shape[1], -1) / 255, 1) for reduce in (torch.mean, torch.std))
                `reshape` and `view` don't move axes: each of your rows holds a part of the images, with all their
                channels, not one channel of all images.
                look: `images.transpose(0, 1)` first, or `dim=(0, 2, 3)` without a reshape
            _reduced(scale=256)
                You divided by 256. The largest byte is 255, and it becomes 1.
            = _reduced()(images * (255 / images.max()))
                You divided by the largest value in these images. Divide by 255, whatever that value is.
            = _reduced()((images / 255 - 0.5) / 0.5 * 255)
            = _reduced()((images / 255 - 0.5) * 255)
                Your pixels go from −1 to 1, or from −0.5 to 0.5. The scale here is 0 to 1: only divide by 255.
            _mean_and(lambda scaled: scaled.var((0, 2, 3)))
                Your second tensor is the variance: the standard deviation is its square root.
            _mean_and(lambda scaled: scaled.std((2, 3)).mean(0))
            _mean_and(lambda scaled: scaled.mean((2, 3)).std(0))
                You took the standard deviation within each image, or that of the images' means. But bright and dark
                images differ, and so do the pixels inside each image.
                look: one `std` over images, height and width together
            = _reduced((1, 2))(images[0])
                These are the numbers of the first image alone. Use all of them.
            _mean_and(lambda scaled: scaled.mean((0, 2, 3)))
                Your means are right, your deviations are not: {expected[1][0]:.4f} is right for the first channel, and
                yours is {yours[1][0]:.4f}.
                look: `scaled.std(dim=(0, 2, 3))`
                when: torch.allclose(yours[0], expected[0], rtol=1e-3)
        """,
        also_right=[
            lambda images: list(_reduced(scale=1)(images.double() / 255)),
            lambda images: torch.stack(torch.std_mean(images / 255, (0, 2, 3), correction=0)[::-1]),
            _channel_after_channel,
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _batches(new: Inputs) -> list[tuple]:
    channels, (height, width) = new.pick((2, 3, 4)), new.sizes(2, 8, 12)
    images = new.ints(1, 256, (600, channels, height, width), torch.uint8)  # no black: black is what comes in
    # With 1 pixel only, an answer that shifts by all or nothing would pass, and with 2 pixels only, one with a fixed 2.
    # The smaller batch is for counting steps. The gray one is a single image, as high as it is wide.
    gray = new.ints(1, 256, (1, 1, 9, 9), torch.uint8)
    return [(images[:150], 2), (images, 2), (images[:300], 1), (gray, 3)]


def _findings(ask: Callable, images: Tensor, pixels: int) -> dict[str, Any] | str:
    """What the answer did wrong: "nothing wrong" if each image is a moved copy of its own and luck is fair."""
    batches = [ask(images, pixels) for _ in range(2)]
    for batch in batches:
        if not _real(batch):
            return {"instead": batch}
        if batch.shape != images.shape:
            return {"shape": tuple(batch.shape)}
        if batch.dtype != torch.uint8:
            return {"dtype": str(batch.dtype)}
    yours, again = (batch.detach().cpu() for batch in batches)
    reach = pixels + 2  # a little beyond what is allowed
    moves = list(itertools.product((False, True), range(-reach, reach + 1), range(-reach, reach + 1)))
    found = torch.stack([_alike(_moved(images, *move), yours) for move in moves])  # [moves, B]
    if (lost := (~found.any(0)).nonzero()).numel():
        return _lost(yours, images, int(lost[0]), moves)
    if len(images) < 300:
        return "nothing wrong"
    flips, downs, rights = torch.tensor(moves)[found.int().argmax(0)].unbind(1)
    # One draw for a whole batch may come twice by chance: that is no seed.
    if torch.equal(yours, again) and all(torch.equal(yours, ask(images, pixels).detach().cpu()) for _ in range(4)):
        return {"nothing done": True} if torch.equal(yours, images) else {"seeded": True}
    alike = torch.stack([_alike(_moved(images, *move), again) for move in moves])
    mirrored_again = torch.tensor(moves)[alike.int().argmax(0)][:, 0]
    if 0 < flips.sum() < len(flips) and torch.equal(mirrored_again, flips):
        return {"same mirrored": True}
    mirrored = " and ".join(f"{which.double().mean():.0%}" for which in (flips, mirrored_again))
    return _unfair(flips, downs, rights, pixels, mirrored)


def _alike(one: Tensor, other: Tensor) -> Tensor:
    """Which images of two batches are equal: bool [B]."""
    return (one == other).flatten(1).all(1)


def _moved(images: Tensor, flip: bool, down: int, right: int, roll: bool = False) -> Tensor:
    """Mirror the images or not, then move them. Black comes in at the edge, or with `roll` the pixels that left."""
    images = images.flip(-1) if flip else images
    if roll:
        return images.roll((down, right), (-2, -1))
    height, width = images.shape[-2:]
    reach = max(abs(down), abs(right))
    return F.pad(images, (reach,) * 4)[..., reach - down :, reach - right :][..., :height, :width]


def _lost(yours: Tensor, images: Tensor, i: int, moves: list[tuple]) -> dict[str, Any]:
    """What was done to image i of the result, which is no moved copy of image i of the input."""
    mine, own = yours[i], images[i]
    moved = torch.stack([_moved(own, *move) for move in moves])  # [moves, C, H, W]
    inside = torch.stack([_moved(torch.ones_like(own), *move) for move in moves]).bool()
    if any(torch.equal(_moved(own, *move, roll=True), mine) for move in moves):
        return {"rolled": True}
    for move in moves:
        if (others := _alike(_moved(images, *move), mine[None]).nonzero().flatten().tolist()) and others[0] != i:
            return {"from another": (i, others[0])}
    if any(torch.equal(_moved(own.flip(-2), *move), mine) for move in moves):
        return {"upside down": True}
    equal = moved == mine
    if (fits := ((equal | ~inside).flatten(1).all(1) & (inside.flatten(1).sum(1) > 4)).nonzero()).numel():
        outside = ~inside[fits[0, 0]]
        return {"not black": int(mine[outside][0])}
    if len(own) > 1 and equal.flatten(2).all(2).any(0).all():
        return {"channels apart": True}
    return {"changed": i}


def _unfair(flips: Tensor, downs: Tensor, rights: Tensor, pixels: int, mirrored: str) -> dict[str, Any] | str:
    """Whether mirroring and offsets look random, for each image and independently."""
    seen_after = rights * (1 - 2 * flips)  # mirroring after moving turns a move to the right into one to the left
    if (downs == downs[0]).all() and any((r == r[0]).all() and (r[0] or downs[0]) for r in (rights, seen_after)):
        return {"one luck": f"{downs[0].abs()} up or down and {rights[0].abs()} to a side"}
    if _unlikely(flips.bincount(minlength=2), torch.full((2,), len(flips) / 2).double()):
        return {"mirrored": mirrored}
    if (far := max(downs.abs().max().item(), rights.abs().max().item())) > pixels:
        return {"too far": far}
    for coin, which in ((0, "not mirrored"), (1, "mirrored")):
        if not (downs[flips == coin].any() or rights[flips == coin].any()) and (downs.any() or rights.any()):
            return {"still": which}
    for offsets, sides in ((downs, ("up", "down")), (rights, ("left", "right"))):
        for sign, side in zip((-1, 1), sides, strict=True):
            if (sign * offsets).max() < pixels:
                return {"end": side, "range": (int(offsets.min()), int(offsets.max()))}
    places = 2 * pixels + 1
    counts = torch.stack([offsets.add(pixels).bincount(minlength=places) for offsets in (downs, rights)])
    if _unlikely(counts, torch.full_like(counts, len(flips) / places, dtype=torch.float64)):
        return {"uneven": ", ".join(f"{d}: {c} times" for d, c in enumerate(counts.sum(0).tolist(), -pixels))}
    named = {"up or down": downs + pixels, "left or right": rights + pixels, "the mirror": flips}
    for (one, a), (other, b) in itertools.combinations(named.items(), 2):
        joint = torch.zeros(places, places).double().index_put_((a, b), torch.ones(1).double(), accumulate=True)
        if _unlikely(joint, joint.sum(1, keepdim=True) * joint.sum(0) / joint.sum()):
            return {"together": (one, other)}
    return "nothing wrong"


def _unlikely(counts: Tensor, expected: Tensor) -> bool:
    """Whether fair luck gives such counts less than once in a million checks."""
    kept = expected > 0
    chi_squared = ((counts - expected).square() / expected)[kept].sum()
    return torch.special.gammaincc(kept.sum() / 2.0, (chi_squared / 2).float()).item() < 1e-6


def _augment(images, pixels):
    count, _, height, width = images.shape
    coin = torch.rand(count) < 0.5
    mirrored = torch.where(coin.view(-1, 1, 1, 1), images.flip(-1), images)
    padded = F.pad(mirrored, (pixels,) * 4)
    top, left = torch.randint(2 * pixels + 1, (2, count))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    result = windows[torch.arange(count), :, top, left]
    return result


def _by_indexing(images, pixels):
    count, _, height, width = images.shape
    padded = F.pad(images, (pixels,) * 4)
    top, left = torch.randint(0, 2 * pixels + 1, (2, count))
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    moved = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    return torch.where(torch.rand(count)[:, None, None, None] < 0.5, moved.flip(-1), moved)


def _by_offsets(images, pixels):
    result, (height, width) = torch.empty_like(images), images.shape[2:]
    padded = F.pad(images, (pixels,) * 4)
    places = torch.randint(2 * pixels + 1, (len(images), 2))
    for top in range(2 * pixels + 1):
        for left in range(2 * pixels + 1):
            chosen = (places == torch.tensor([top, left])).all(1)
            result[chosen] = padded[chosen][:, :, top : top + height, left : left + width]
    coin = torch.from_numpy(np.random.default_rng().random(len(images)) < 0.5)
    result[coin] = result[coin].flip(-1)
    return result


def _one_by_one(images, pixels):
    return torch.cat([_augment(image[None], pixels) for image in images])


exercise(
    "augment_batch",
    seconds=probes.SLOW_START,
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
    spec=Spec(
        draw=_batches,
        solution=_augment,
        measure=_findings,
        finds="nothing wrong",
        by_case=True,
        mistakes="""
            return result → return result, torch.arange(count)
                Your function should return one tensor, the changed images; it returned {yours[instead]}. Labels stay as
                they are.
                when: "instead" in yours
            return result → return padded || return result.permute(0, 2, 3, 1)
                Your batch has the shape {yours[shape]}, but the input has {images.shape}.
                when: "shape" in yours
            _, height, width = images.shape → _, height, width = images.shape; images = images.float()
                The images are no longer bytes but {yours[dtype]}. You need no floats to shift and mirror, and bytes
                take a quarter of the memory.
                look: where the floats come from: `torch.zeros` without dtype, a product with a mask, `grid_sample`
                when: "dtype" in yours
            return result → return mirrored.roll((1, pixels), (-2, -1))
                Pixels that leave an image on one side come back in on the other: that is what `roll` does.
                look: pad with zeros and take a window, so that black (0) comes in
                when: "rolled" in yours
            windows[torch.arange(count) → windows[torch.randint(count, (count,))
                Image {yours[from another][0]} of your batch is made from image {yours[from another][1]}: the labels no
                longer belong to their images.
                look: the index of the images: `torch.arange(B)`, in its order
                when: "from another" in yours
            images.flip(-1) → images.flip(-2) || images.flip(-1, -2)
                Some images are upside down: mirror left and right.
                look: the width is the last axis: `flip(-1)`
                when: "upside down" in yours
            F.pad(mirrored, (pixels,) * 4)
                    → F.pad(mirrored, (pixels,) * 4, mode='reflect') || F.pad(mirrored, (pixels,) * 4, value=128)
                The images are moved, but what comes in at the edge is not black.
                look: `F.pad(images, (pixels,) * 4)` pads with zeros
                when: "not black" in yours
            = torch.cat([_augment(channel[:, None], pixels) for channel in images.unbind(1)], 1)
                The channels of one image were shifted differently: its red no longer matches its green.
                look: the shape of your random numbers: [B], not [B, C]
                when: "channels apart" in yours
            return result → return result // 2 + 1 || return result.transpose(2, 3).reshape(result.shape)
                Image {yours[changed]} of your batch is not a moved or mirrored copy of image {yours[changed]} of the
                input.
                look: try it on one image with `torch.arange(H * W).view(1, 1, H, W)` as pixels, and print it
                when: "changed" in yours
            = images.clone()
                Your function returns the batch unchanged.
                look: what you do with the mirrored and moved images
                when: "nothing done" in yours
            coin = → torch.manual_seed(0); coin =
                Two calls give the same batch: each epoch would see the same pictures again.
                look: `manual_seed`, or nothing random at all
                when: "seeded" in yours
            torch.rand(count) < 0.5 → torch.arange(count) % 2 == 0
                Two calls mirror the same images: their position in the batch decides, not chance.
                look: `torch.rand(B) < 0.5`: a coin toss for each image in each call
                when: "same mirrored" in yours
            torch.randint(2 * pixels + 1, (2, count)) → torch.tensor([[0], [pixels]]).expand(2, count)
                All images move by the same amount, {yours[one luck]}. Each image needs its own offset.
                look: `torch.randint(…, (B,))`: B numbers, not one
                when: "one luck" in yours
            torch.rand(count) → torch.rand(1).expand(count) || torch.randn(count)
            torch.rand(count) < 0.5 → torch.randint(0, 1, (count,)).bool()
                In two calls, {yours[mirrored]} of the images were mirrored. It should be about half each time: every
                image needs its own coin toss.
                look: `torch.rand(B) < 0.5`, or `torch.randint(0, 2, (B,))`, which never draws the 2
                when: "mirrored" in yours
            = _augment(images, pixels + 1)
            = _augment(images, 2)
                Some images move by {yours[too far]}, but with pixels={pixels} none may move farther than that.
                when: "too far" in yours
            return result → return torch.where(coin.view(-1, 1, 1, 1), result, images)
                    || return torch.where(coin.view(-1, 1, 1, 1), mirrored, result)
                The images that are {yours[still]} never move: mirror and offsets depend on the same coin.
                look: move every image, whatever the coin for the mirror says
                when: "still" in yours
            torch.randint(2 * pixels + 1, → torch.randint(2 * pixels, || torch.randint(1, 4,
            return result → return mirrored
                None of {images.shape[0]} images moves {yours[end]} by {pixels}: yours move by {yours[range][0]} to
                {yours[range][1]}, and every offset from −{pixels} to {pixels} is possible.
                look: `torch.randint(low, high, …)` never draws `high` itself: there are 2 · pixels + 1 places
                when: "end" in yours
            torch.randint(2 * pixels + 1, (2, count))
                    → (torch.rand(2, count) * 2 * pixels).round().long() || torch.randint(3, (2, count)) * pixels
                Not all offsets are equally likely: {yours[uneven]}.
                look: `torch.randint` gives all numbers equal chances; rounded floats, a bell curve, or a clamp do not
                when: "uneven" in yours
            torch.randint(2 * pixels + 1, (2, count)) → torch.randint(2 * pixels + 1, (count,)).expand(2, count)
                Your random numbers are not independent: {yours[together][0]} depends on {yours[together][1]}.
                look: draw three times: for up and down, for left and right, and for the mirror
                when: "together" in yours
        """,
        habits=[
            Habit(
                "Your batch is right, but your code takes more steps when there are more images: there is a loop.",
                _one_by_one,
                probe=probes.steps,
                when=lambda few, many, *_: many > few + 100,
                look="windows of the padded batch, all taken by one indexing operation",
            )
        ],
        also_right=[_by_indexing, _by_offsets],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


class _ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        nn.init.zeros_(self.norm2.weight)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return self.shortcut(x) + y


_block = partial(_but, _ResidualBlock)


class _InOneSequence(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.same = stride == 1 and inputs == outputs
        middle = max(inputs, outputs)
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, middle, 3, stride=stride, padding="same" if stride == 1 else 1),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            nn.ZeroPad2d(1),
            nn.Conv2d(middle, outputs, 3),
            nn.BatchNorm2d(outputs),
        )
        torch.nn.init.constant_(self.layers[-1].weight, 0)
        if not self.same:
            self.match = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.layers(x)
        y += x if self.same else self.match(x)
        return y.clamp(min=0)


ACTIVATIONS = F.relu, torch.sigmoid, torch.tanh, F.gelu, F.silu, F.elu, F.leaky_relu, F.softplus, F.relu6
INSIDE = "norm(conv3×3(relu(norm(conv3×3"  # how every right branch begins


def _formula(ask: Callable, inputs: int, outputs: int, stride: int, x: Tensor) -> dict[str, Any]:
    """What a block computes, as a formula: "norm(conv3×3(relu(norm(conv3×3/2(x))))) + conv1×1/2(x)". /2 is the stride.

    Read off the values that go into each layer and come out: how ReLU and sum are written makes no difference, and
    neither does a ReLU after the sum or a batch norm in the shortcut.
    """
    seen = ask((inputs, outputs, stride), x)
    if "instead" in seen:
        return seen
    known = [("x", x)]
    if stride > 1:
        known.append((f"x[::{stride}]", x[:, :, ::stride, ::stride]))
    used, which = set(), []
    for kind, kernel, step, padding, given, output, weights, _ in seen["layers"]:
        name = _name(given, known)
        used.add(name.removeprefix("relu(").removesuffix(")") if name not in dict(known) else name)
        if kind == "conv":
            kind += f"{kernel}×{kernel}" + (f"/{step}" if step > 1 else "")
            if name.startswith("pad(") and padding == 0:
                name, padding = name[4:-1], kernel // 2
            if name.startswith("x[::") and kernel == 1:
                kind, name = f"{kind}/{stride}", "x"
            kind += f"[padding {padding}]" if padding != kernel // 2 else ""
        which.append(weights)
        known.append((f"{kind}({name})", output))
    ends = ", ".join(name for name, _ in known[1:] if name not in used and not name.startswith("x["))
    report = {"registered": all(own for *_, own in seen["layers"]), "shared": len({*which}) < len(which)}
    if "error" in seen:
        return report | {"formula": ends, "error": seen["error"]}
    output = seen["output"]
    if not isinstance(output, Tensor):
        return {"instead": output}
    formula = re.sub(r"^relu\((.* \+ .*)\)$", r"\1", _name(output, known))
    terms = [re.sub(r"^norm\((conv1×1[^()]*\(x\))\)$", r"\1", term) for term in formula.split(" + ")]
    report["formula"] = " + ".join(sorted(terms, key=len, reverse=True))
    if formula == "?":
        report |= {"formula": ends, "unclear": True}
    if stride == 1 and inputs == outputs:
        new = [y.shape == x.shape and torch.allclose(y.detach(), x.abs(), atol=1e-5) for y in seen["new"]]
        report["starts as x"] = all(new)
    return report | {"learns": seen["slope"] > 0.1}


def _name(value: Tensor, known: list[tuple[str, Tensor]]) -> str:
    """How a tensor was made from those that are known: found by its values."""
    for name, tensor in _made_of(known, value.shape):
        if tensor.shape == value.shape and torch.allclose(tensor, value.detach(), rtol=1e-4, atol=1e-4):
            return name
    return "?"


def _made_of(known: list[tuple[str, Tensor]], shape: torch.Size) -> Iterator[tuple[str, Tensor]]:
    """What may be made of these tensors, simple things first, and sums of this shape in the end."""
    yield from known
    for name, tensor in known:
        for function in ACTIVATIONS:
            yield f"{function.__name__}({name})", function(tensor)
        yield f"pad({name})", F.pad(tensor, (1,) * 4)
        yield f"pad(relu({name}))", F.pad(tensor.relu(), (1,) * 4)
    fit = [(name, tensor) for name, tensor in known if tensor.shape == shape]
    fit += [(f"relu({name})", tensor.relu()) for name, tensor in fit]
    for count in (2, 3):
        for parts in itertools.combinations_with_replacement(fit, count):
            names, total = " + ".join(name for name, _ in parts), sum(tensor for _, tensor in parts)
            yield names, total
            yield f"relu({names})", total.relu()


def _block_sizes(new: Inputs) -> list[tuple]:
    few, many = new.size(3, 5), new.size(6, 8)
    height, width = new.sizes(2, 4, 6)
    sizes = [(few, few, 1), (few, many, 1), (many, few, 1), (few, few, 2), (few, many, 2)]
    return [(*size, new.randn(5, size[0], 2 * height + 1, 2 * width)) for size in sizes]


def _computes(*parts: str) -> Callable:
    """A condition: the formula has one of these parts."""
    return lambda yours, *_: any(part in yours["formula"] for part in parts)


def _terms(yours: dict) -> list[str]:
    return yours["formula"].split(" + ")


IT_IS = "Your block computes {yours[formula]}."
FROM_TO = "With {inputs} → {outputs} channels and stride {stride}"

exercise(
    "residual_block",
    seconds=probes.SLOW_START,
    title="A residual block",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="You can stack many blocks that start as the identity: the gradient always has an open path.",
    hints=(
        "Two paths lead from the input to the sum: the branch (conv, norm, ReLU, conv, norm) and the shortcut. "
        "When can the shortcut be the input itself, and when not?",
        "The shortcut is `nn.Identity()` as long as the stride is 1 and the channels are equal; otherwise it is a"
        " 1×1 convolution with the same stride. With `nn.init.zeros_(self.norm2.weight)` the branch starts at "
        "zero.",
        "`self.branch = nn.Sequential(conv(inputs, outputs, 3, stride, padding=1), norm, ReLU, conv(outputs, outputs, "
        "3, padding=1), norm)`, and `return self.shortcut(x) + self.branch(x)`.",
    ),
    spec=Spec(
        draw=_block_sizes,
        solution=_ResidualBlock,
        probe=probes.layers,
        measure=_formula,
        mistakes=r"""
            lambda inputs, outputs, stride=1: lambda x: x
            self.shortcut(x) + y → self.shortcut(x), y
                Your block should be a module whose `forward` returns a tensor; it returns {yours[instead]}.
                look: `class ResidualBlock(nn.Module)`, and the `return` of `forward`
                when: "instead" in yours
            super().__init__() → pass
                `super().__init__()` is missing: it comes first in `__init__`, before any layer is assigned.
                when: says(yours, "before Module.__init__")
            self.conv1 = → conv1 = && self.norm1 = → self.convs = [conv1]; self.norm1 =
                    && self.conv1(x) → self.convs[0](x)
                An optimizer would not find all weights of your block.
                look: layers in a Python list, or created in `forward`: make them attributes (`self.conv1 = …`)
                when: not yours["registered"]
            self.norm2(self.conv2(y)) → self.norm1(self.conv2(y))
                Two layers of your block share their weights. {IT_IS} Each layer needs its own weights.
                look: a layer that `forward` calls twice
                when: yours["shared"]
            3, stride, padding=1 → 3, stride
                A 3×3 convolution without padding cuts off the edges. {IT_IS}
                look: `padding=1` in both convolutions of the branch
                when: _computes("[padding")
            self.shortcut(x) + y → y + self.shortcut(x) if x.shape == y.shape else y + x.mean()
            self.shortcut(x) + y → self.shortcut(x) + 0.5 * y || torch.cat([self.shortcut(x), y], 1)
                {FROM_TO}, your block should return {expected[formula]}. It returns something else, made of
                {yours[formula]}.
                look: `return self.shortcut(x) + y`, perhaps with a ReLU around it
                when: "unclear" in yours or "+ x[::" in yours["formula"]
            3, stride, padding → 3, padding
            outputs, 3, padding → outputs, 3, stride, padding
            3, stride, padding → 3, padding && outputs, outputs, 3 → outputs, outputs, 3, stride
                Of the two convolutions in the branch, the first one should have the stride, and only that one. {IT_IS}
                when: stride > 1 and (yours["formula"].count("3×3/2") != 1 or _computes("3×3/2(relu(")(yours))
            if stride != 1 or inputs != outputs → if False
            if stride != 1 or → if
            or inputs != outputs →
            1, stride, bias → 1, bias
                {FROM_TO}, branch and shortcut do not fit together: {yours[error]}.
                look: a 1×1 convolution with the same stride as shortcut, when stride or channels change
                when: "error" in yours
            self.shortcut(x) + y → x + x + y if x.shape == y.shape else self.shortcut(x) + y || self.shortcut(x) + y + y
                Your block adds something twice. {IT_IS}
                when: len(_terms(yours)) > len({*_terms(yours)})
            self.shortcut(x) + y → y || self.shortcut(x) || self.shortcut(x) + y if x.shape == y.shape else y
                {FROM_TO}, your block is not the sum of branch and shortcut. {IT_IS}
                look: the sum: `self.shortcut(x) + self.branch(x)`; a shortcut of another shape is a 1×1 convolution
                when: len(_terms(yours)) == 1
            self.norm2(self.conv2(y)) → self.norm2(y)
            outputs, 3, stride, padding=1 → outputs, 5, stride, padding=2
                The branch needs two 3×3 convolutions. {IT_IS}
                when: len(_terms(yours)) == 2 and "?" not in yours["formula"] and _terms(yours)[0].count("3×3") != 2
            self.norm1(self.conv1(x)) → self.norm1(self.conv1(x.relu()))
            F.relu(self.norm1(self.conv1(x))) → self.norm1(F.relu(self.conv1(x)))
                The layers of your branch are in a different order. {IT_IS}
                look: conv, norm, ReLU, conv, norm
                when: _computes("(norm(x)", "(relu(norm(x)", "conv3×3(relu(x)", "conv3×3/2(relu(x)", "norm(relu(",
                    "conv3×3(norm(x)")
            F.relu(self.norm1(self.conv1(x))) → self.norm1(self.conv1(x))
                Without a ReLU between them, the two convolutions of the branch are no more than a larger one. {IT_IS}
                look: `F.relu` after the first batch norm
                when: _computes("conv3×3(norm(conv", "conv3×3(conv")
            F.relu(self.norm1(self.conv1(x)))
                    → F.gelu(self.norm1(self.conv1(x))) || F.leaky_relu(self.norm1(self.conv1(x)), 0.2)
                The branch needs a ReLU between its convolutions; yours has another function. {IT_IS}
                when: re.search(r"conv3×3\((\?|\w*(tanh|elu|silu|sigmoid|relu.|leaky.*|softplus)\(norm\(conv)",
                    yours["formula"]) and "conv3×3(relu(" not in yours["formula"]
            self.norm2(self.conv2(y)) → self.conv2(y)
            norm1 = nn.BatchNorm2d(outputs) → norm1 = nn.GroupNorm(1, outputs)
                Each convolution of the branch is followed by a batch norm. {IT_IS}
                look: conv, norm, ReLU, conv, norm
                when: yours["formula"].count("3×3") == 2 > yours["formula"].replace("_norm", "").count("norm(")
            self.shortcut(x) + y → self.shortcut(x) + F.relu(y)
                There is a ReLU between the last batch norm and the sum, so the branch can add but never subtract.
                {IT_IS}
                look: the ReLU may come after the sum
                when: any(term.startswith(f"relu({INSIDE}") for term in _terms(yours))
            self.shortcut(x) + y → F.relu(self.shortcut(x)) + y
            self.shortcut = nn.Identity() → self.shortcut = nn.BatchNorm2d(inputs)
                The shortcut has a ReLU, or a batch norm where it could stay plain. {IT_IS} The shortcut is the open
                path through the block.
                when: _terms(yours)[0].startswith(INSIDE) and re.search(r"relu|norm", _terms(yours)[1])
            if stride != 1 or inputs != outputs → if True
                Where the shape stays the same, the shortcut is the input itself, not a convolution of it.
                look: `nn.Identity()` where stride is 1 and the channels are equal
                when: (stride, inputs) == (1, outputs) and "conv1×1" in yours["formula"]
            inputs, outputs, 1, stride → inputs, outputs, 3, stride, 1
                Your shortcut also looks at each pixel's neighbors. Use a 1×1 convolution.
                when: _terms(yours)[1].startswith("conv3×3")
            nn.init.zeros_(self.norm2.weight) → pass || nn.init.zeros_(self.norm2.bias)
                A new block already changes its input: the branch does not start at zero.
                look: `nn.init.zeros_` on the weight of the last batch norm
                when: yours["formula"] == expected["formula"] and not yours["starts as x"]
            zeros_(self.norm2.weight) → zeros_(self.norm1.weight), nn.init.zeros_(self.norm2.weight)
            zeros_(self.norm2.weight) → zeros_(self.norm2.weight); self.requires_grad_(False)
                The branch starts at zero and stays there: none of its weights gets a gradient. Only the last batch norm
                starts with weight 0.
                look: a zero in the first batch norm, or `requires_grad`
                when: yours["formula"] == expected["formula"] and not yours["learns"]
            self.norm2(self.conv2(y)) → self.norm2(F.dropout(self.conv2(y)))
                {IT_IS} It should be {expected[formula]}. (A question mark is a step that the checker doesn't
                recognize.)
                when: "formula" in yours
        """,
        also_right=[
            _InOneSequence,
            _block("self.shortcut(x) + y -> F.relu(self.shortcut(x) + y)"),
            _block(  # weights as chance may draw them
                "self.shortcut(x) + y -> F.relu(self.shortcut(x) + y)",
                "stride, bias=False) -> stride, bias=False); self.shortcut.weight.data.abs_().neg_()",
            ),
            _block(
                "1, stride, bias=False -> 1, bias=False",
                "self.shortcut(x) + y -> self.shortcut(x[:, :, :: self.conv1.stride[0], :: self.conv1.stride[1]]) + y",
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


class _FrozenBody(nn.Module):
    def __init__(self, body, head):
        super().__init__()
        self.body, self.head = body.requires_grad_(False), head
        self.train()

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x):
        features = self.body(x)
        return self.head(features)


_body = partial(_but, _FrozenBody)


def _frozen(answer: Callable, features: int, classes: int, images: Tensor, labels: Tensor) -> dict[str, Any]:
    """What a model of a body and a head does: as it is new, after `train()`, `eval()`, and another `train()`."""
    generator = torch.Generator().manual_seed(0)
    body = nn.Sequential(nn.Conv2d(images.shape[1], features, 3), nn.BatchNorm2d(features), nn.ReLU(), nn.Dropout(0.5))
    body.extend([nn.Conv2d(features, features, 3), nn.BatchNorm2d(features), nn.AdaptiveAvgPool2d(1), nn.Flatten()])
    head = nn.Sequential(nn.Dropout(0.5), nn.Linear(features, classes))
    with torch.no_grad():
        for value in (*body.parameters(), *head.parameters()):
            value.copy_(torch.randn(value.shape, generator=generator) * 0.5)
    kept, right = copy.deepcopy(body.state_dict()), (len(images), classes)
    model = call(answer, body, head, may_change=True)
    if not isinstance(model, nn.Module):
        return {"instead": model}
    parts, inside = {"body": body, "head": head}, [*model.modules()]
    missing = [name for name, part in parts.items() if getattr(model, name, None) is not part or part not in inside]
    seen: dict[str, Any] = {"missing": missing, "body trains": []}

    def look(stage: str, learn: bool = False) -> tuple[dict[str, Any], Any]:
        if any(m.training for m in body.modules()):
            seen["body trains"].append(stage)
        modes = {"head": any(m.training for m in head.modules()), "model": model.training}
        given: list[Tensor] = []
        hook = head.register_forward_pre_hook(lambda module, arguments: given.append(arguments[0].detach().clone()))
        logits = call(model, images)
        hook.remove()
        if learn and isinstance(logits, Tensor) and logits.requires_grad and logits.shape == right:
            F.cross_entropy(logits, labels).backward()
        now = body.state_dict()
        moved = [name for name, value in kept.items() if "running" in name and not torch.equal(value, now[name])]
        body.load_state_dict(kept)
        return {"modes": modes, "features": given[:1], "moved": moved}, logits

    look("in a new model")  # where head and model may be in either mode
    seen["train returns the model"] = call(model.train, may_return_none=True) is model
    seen["train"], logits = look("after `model.train()`", learn=True)
    if not isinstance(logits, Tensor) or logits.shape != right:
        return {"instead": logits} if not isinstance(logits, Tensor) else {"shape": tuple(logits.shape)}
    seen["frozen"] = [name for name, p in head.named_parameters() if not p.requires_grad]
    seen["gradients"] = {name: [p.grad is not None for p in part.parameters()] for name, part in parts.items()}
    call(model.eval, may_return_none=True)
    seen["eval"], seen["logits"] = look("after `model.eval()`")
    call(model.train, may_return_none=True)
    seen["train again"], _ = look("after a second `model.train()`")
    return seen | {"body trains": ", ".join(seen["body trains"])}


def _bodies(new: Inputs) -> list[tuple]:
    channels, features, classes = new.size(2, 3), new.size(4, 7), new.size(2, 5)
    return [(features, classes, new.randn(12, channels, 8, 8) + 2, new.ints(0, classes, (12,)))]


exercise(
    "frozen_body",
    seconds=probes.SLOW_START,
    title="Freeze the body, batch norm included",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="Frozen means two things: no gradients, and eval mode that survives `model.train()`.",
    hints=(
        "`requires_grad_(False)` stops the weights. What moves the running mean of batch norm, and when does it not?",
        "`fit` calls `model.train()` in each epoch, and that reaches every layer. Override `train` so that the "
        "body goes back into eval mode and the head does not.",
        "`def train(self, mode=True): super().train(mode); self.body.eval(); return self`",
    ),
    spec=Spec(
        draw=_bodies,
        solution=_FrozenBody,
        probe=_frozen,
        mistakes=r"""
            lambda body, head: lambda x: head(body(x))
            self.head(features) → self.head(features), features
                Your class should be a module whose `forward` returns logits; it returns {yours[instead]}.
                look: `class FrozenBody(nn.Module)`, and the `return` of `forward`
                when: "instead" in yours
            super().__init__() → pass
                `super().__init__()` is missing: it comes first in `__init__`, before any module is assigned.
                when: says(yours, "before Module.__init__")
            super().train(mode) → self.train(mode)
            self.body.eval() → self.eval()
                Your `train` calls itself forever: `self.train(…)` is your own method, and `self.eval()` calls it, too.
                look: `super().train(mode)`, then `self.body.eval()`
                when: says(yours, "recursion depth")
            self.head(features) → features.sum(1) || self.head(features).argmax(1)
                The model does not return logits: the shape is {yours[shape]}, but there are {classes} classes.
                look: `return self.head(self.body(x))`
                when: "shape" in yours
            self.body, self.head = → self.backbone, self.head = && self.body.eval → self.backbone.eval
                    && self.body(x) → self.backbone(x)
            self.body, self.head = body → import copy; self.body, self.head = copy.deepcopy(body)
                `self.{yours[missing][0]}` should be the {yours[missing][0]} that `__init__` received: keep it under
                that name.
                look: `self.body = body` and `self.head = head`
                when: yours["missing"]
            \n        return self\n → \n
                Your `train` does not return the model, as PyTorch's own does.
                look: `return self` at the end of `train`
                when: not yours["train returns the model"]
            self.train() → self.requires_grad_(False)
                The head is frozen, but it is the part that should learn.
                look: `requires_grad_(False)` belongs on the body
                when: yours["frozen"]
            self.head(features) → features[:, :1] * torch.ones(1, self.head[1].out_features)
            return self.head(features) → with torch.no_grad(): return self.head(features)
                No gradient reaches the head, or a part of it, in a training step, so it can't learn.
                look: `no_grad` and `detach` belong around the body alone, or nowhere; and does `forward` call the head?
                when: not all(yours["gradients"]["head"])
            self.body.eval() → pass
            super().train(mode) → pass && self.body.eval() → super().train(mode)
                After `model.train()`, one forward pass has changed the running statistics of the body's batch norm.
                look: `fit` calls `model.train()`, which reaches all layers: in a `train` of your own, call
                    `self.body.eval()` after it
                when: yours["train"]["moved"]
            self.body.eval() → [m.eval() for m in self.body.modules() if 'Norm' in type(m).__name__]
            self.body.eval() → self.body.train(not mode)
            self.train() → pass
                The body, or a part of it, is in train mode {yours[body trains]}. It should always be in eval mode.
                look: `self.body.eval()` in `train`, whatever the mode, and also in `__init__`: new modules are in train
                    mode
                when: yours["body trains"]
            self.head(features) → self.head(features.relu() + 1)
                What your model gives to its head is not the output of the body.
                look: `self.head(self.body(x))`
                when: not torch.allclose(yours["eval"]["features"][0], expected["eval"]["features"][0], atol=1e-4)
            super().train(mode) → super().train(False)
                A part of the head is not in train mode after `model.train()`: its dropout would be off while it learns.
                look: `super().train(mode)` first, then put only the body back into eval mode
                when: not yours["train"]["modes"]["head"]
            body.requires_grad_(False) → body
            body.requires_grad_(False) → body && self.train() → self.train(); body.requires_grad = False
                The weights of the body still learn: a training step gives them gradients.
                look: `body.requires_grad_(False)`, with the underscore: `body.requires_grad = False` only sets an
                    attribute of the module
                when: any(yours["gradients"]["body"])
            super().train(mode) → super().train() || pass
                After `model.eval()` the head is still in train mode.
                look: `super().train(mode)` passes the mode on; `eval` is `train(False)`
                when: yours["eval"]["modes"]["head"]
            super().train(mode) → self.head.train(mode)
                `model.training` is {yours[train][modes][model]} after `model.train()` and {yours[eval][modes][model]}
                after `model.eval()`.
                look: `super().train(mode)` sets it
                when: any(yours[stage]["modes"] != expected[stage]["modes"] for stage in ("train", "eval"))
            self.head(features) → self.head(features).softmax(1) || self.head(features).relu()
                In eval mode, your model returns different values than its head.
                look: what comes after the head: nothing should, since the loss has its own softmax
                when: not torch.allclose(yours["logits"], expected["logits"], atol=1e-4)
            super().train(mode) → super().train(mode and self.training)
                The second call of `model.train()` does something different from the first.
                when: "train again" in yours
        """,
        also_right=[
            _body("self.train() -> self.body.eval()"),
            # Its weights require gradients, and still nothing reaches them.
            _body("body.requires_grad_(False) -> body", "features = self.body(x) -> features = self.body(x).detach()"),
            _body(
                "super().train(mode) -> self.training = mode; self.head.train(mode)",
                "features = self.body(x) -> with torch.no_grad(): features = self.body(x)",
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _seeds(new: Inputs) -> list[tuple]:
    def case(n: int, t: float, gain: float) -> tuple:
        """gain: as a multiple of the half width"""
        before, noise = 0.7 + 0.02 * new.randn(n), new.randn(n)  # the luck of a seed is the same before and after
        noise = (noise - noise.mean()) / noise.std() * 0.004
        return before, before + gain * t * 0.004 / n**0.5 + noise, t

    t = [round(3.1 + new.rand(1).item(), 3) for _ in range(3)]  # far from √n and from 1.96
    before = new.ints(30, 50, (4,)) / 64  # numbers with few binary digits: differences of theirs are exact
    return [
        *(case(new.size(5, 8), each, gain) for each, gain in zip(t, (1.8, 0.6, -2.5), strict=True)),
        (before, before + 1 / 64, 3.182),  # each seed gains the same: the interval has no width
        (before, before.clone(), 3.182),  # and none gains anything
        (before[:1] + torch.zeros(5), before[:1] + torch.tensor([1, 1, 1, 1, 9]) / 256, 3.5),  # all gain, and not real
        case(2, 12.706, 1.5),
    ]


def _three(ask: Callable, before: Tensor, after: Tensor, t: float) -> Any:
    """The three results as numbers and a bool, however they are packed."""
    yours = ask(before, after, t)
    if not isinstance(yours, tuple | list) or len(yours) != 3:
        return {"instead": yours}
    gain, half = (probes.plain_number(part) for part in yours[:2])
    if gain is None or half is None:
        return {"no number": yours[1] if half is None else yours[0]}
    if isinstance(yours[2], str) or (
        probes.plain_number(yours[2]) not in (0, 1) and not isinstance(yours[2], bool | np.bool_)
    ):
        return {"no verdict": yours[2]}
    return torch.tensor(gain).double(), torch.tensor(half).double(), bool(yours[2])


def _paired(before, after, t):
    gains = (after - before).double()
    half = t * gains.std().item() / len(gains) ** 0.5
    return gains.mean().item(), half, gains.mean().item() > half


def _in_python(before, after, t):
    gains = [b - a for a, b in zip(before.tolist(), after.tolist(), strict=True)]
    n, mean = len(gains), sum(gains) / len(gains)
    half = t * (sum((gain - mean) ** 2 for gain in gains) / (n - 1) / n) ** 0.5
    return [mean, half, mean > half]


def _near(a: Any, b: Any) -> bool:
    return abs(float(a) - float(b)) <= 1e-3 * abs(float(b)) + 1e-7


def _half_width(gains, t, before, after):
    return t * gains.std() / len(gains) ** 0.5


def _instead(place: int, table: str) -> list[Mistake]:
    """The mistakes of other formulas for gain (0) or half width (1), whatever the two other results are."""

    def answer(formula: Callable) -> Callable:
        def answered(before, after, t):
            results = [*_paired(before, after, t)[:2]]
            results[place] = float(formula(after - before, t, before, after))
            return *results, results[0] > results[1]

        return answered

    def mistake(formulas: Mistake) -> Mistake:
        def when(yours: Any, expected: Any, before: Tensor, after: Tensor, t: float) -> bool:
            values = [formula(after - before, t, before, after) for formula in formulas.wrong]
            return any(_near(yours[place], value) for value in values) and not _near(yours[place], expected[place])

        return Mistake(formulas.problem, *map(answer, formulas.wrong), look=formulas.look, when=when)

    return [mistake(formulas) for formulas in altered(_half_width, table)]


def _only_verdict(yours: Any, expected: Any) -> bool:
    """Whether the interval is right. Then the verdict is not."""
    return all(_near(a, b) for a, b in zip(yours[:2], expected[:2], strict=True))


INTERVAL = "The interval is {expected[0]:.4f} ± {expected[1]:.4f}."

exercise(
    "gain_interval",
    title="Is the gain real?",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="With the same seeds before and after, what a seed adds to both sides cancels out, so you can detect "
    "smaller gains.",
    hints=(
        "Each seed gives one gain, after minus before. Everything else is about those numbers.",
        "The interval is mean ± t · s / √n, where s is the standard deviation of the gains (n − 1 in the denominator, "
        "which is what `std` does) and n is how many there are.",
        "`gains = after - before`, `half = t * gains.std() / len(gains) ** 0.5`, real if `gains.mean() - half > 0`.",
    ),
    spec=Spec(
        draw=_seeds,
        solution=_paired,
        measure=_three,
        rtol=1e-3,
        look="gain: mean of `after - before`; half: t · s / √n, where s is the standard deviation of the gains",
        mistakes=[
            """
            lambda *given: _paired(*given)[:2]
                Your function should return three things, (gain, half, real); it returned {yours[instead]}.
                when: "instead" in yours
            = (after - before, *_paired(before, after, t)[1:])
            lambda *given: (*_paired(*given)[:1], "0.1", True)
                Gain and half width should be single numbers; one of yours is {yours[no number]}.
                look: `mean()`, `std()`: one number for all seeds
                when: "no number" in yours
            lambda *given: (*_paired(*given)[:2], "real")
            = (*_paired(before, after, t)[:2], after - before > 0)
                The third result should be True or False; yours is {yours[no verdict]!r}.
                look: one comparison for all seeds together: `gain - half > 0`
                when: "no verdict" in yours
            lambda *given: ((gain := _paired(*given)[0]) - (half := _paired(*given)[1]), gain + half,
                    _paired(*given)[2])
                These are the ends of the interval. Return the mean gain and half of the width.
            lambda *given: (*_paired(*given)[1::-1], _paired(*given)[2])
                You swapped gain and half width.
            """,
            *_instead(
                0,
                """
                = -gains.mean()
                    The gain is after minus before: yours has the opposite sign.
                = gains.abs().mean()
                    The gain has a sign: you took the absolute value.
                = gains.sum()
                    Your gain is the sum over the seeds: take the mean.
                = after.max() - before.max()
                = gains.max()
                    You compare the best seeds: the best of many is mostly luck.
                = gains.median()
                    Your gain is the median of the gains: take their mean.
                = 100 * gains.mean()
                    Your gain is in percentage points: here accuracies go from 0 to 1.
                = (gains / before).mean()
                = gains.mean() / before.mean()
                    Your gain is relative to `before`: only subtract.
                = gains.mean() - _half_width(gains, t, before, after)
                = gains.mean() + _half_width(gains, t, before, after)
                    That is one end of the interval: return its middle and its half width.
                = after.mean()
                    Your gain is the mean of `after`: subtract `before`.
                """,
            ),
            *_instead(
                1,
                """
                = gains.std()
                    That is the standard deviation of the gains. How certain is their mean?
                    look: t · s / √n
                = t * gains.std()
                    The √n is missing: the mean of n seeds is more certain than one of them.
                    look: t · s / √n
                t * → 1 *
                    The factor t is missing: with few seeds the interval must be wider.
                    look: t · s / √n
                t * → 1.96 * || 2 * || 2.776 *
                    You used a fixed number instead of t. 1.96 holds for many seeds, and 2.776 for five; with others,
                    use the t that you are given.
                len(gains) → (len(gains) - 1) || 5
                    You take the root of the wrong number: n is the number of seeds.
                    look: `len(gains) ** 0.5`
                len(gains) ** 0.5 → len(gains) * 2
                    `n ** 1 / 2` is half of n: the power comes before the division. The root is `n ** 0.5`.
                len(gains) ** 0.5 → len(gains)
                    You divided by n: the mean of n seeds is √n times as certain, not n times.
                    look: t · s / √n
                / len(gains) → * len(gains)
                    You multiplied by √n: divide by it. More seeds make the interval narrower.
                    look: t · s / √n
                std() → var()
                = t * gains.var() / len(gains)
                    You used the variance: take its root, the standard deviation.
                std() → std(correction=0)
                    Your standard deviation divides by n: a sample's divides by n − 1.
                    look: `gains.std()` divides by n − 1; NumPy's `std` needs `ddof=1`
                t * → 2 * t * || t / 2 *
                    Your half width is twice or half of what it should be: the interval is gain ± half.
                = t * ((before.var() + after.var()) / len(gains)) ** 0.5
                gains.std()
                        → before.std() || after.std() || (before.std() + after.std()) || (after.std() - before.std())
                    s is the standard deviation of the gains, one gain for each seed. You took the spread of `before`
                    and `after` themselves.
                    look: `gains = after - before`, then `gains.std()`
                """,
            ),
            """
            gains.mean().item() > half → gains.mean().item() > 0
                The mean gain is above zero, but the whole interval is not: it may well be luck, yet you call it real.
                {INTERVAL}
                look: the lower end: `gain - half > 0`
                when: _only_verdict(yours, expected) and not expected[2] and expected[0] > 0
            gains.mean().item() > half → abs(gains.mean().item()) > half
                After is worse than before: the interval lies on the wrong side of zero, yet you call the gain real.
                {INTERVAL}
                look: the lower end: `gain - half > 0`
                when: _only_verdict(yours, expected) and expected[0] < 0
            > half → >= half
                An interval that ends at zero does not lie above it. {INTERVAL}
                look: `>` instead of `>=`
                when: _only_verdict(yours, expected) and expected[0] == expected[1]
            > half → < half
                Your interval is right, but your verdict is not: the gain is real if all of the interval lies above
                zero. {INTERVAL}
                look: the lower end: `gain - half > 0`
                when: _only_verdict(yours, expected)
            """,
        ],
        also_right=[
            _in_python,
            lambda *given: tuple(map(torch.tensor, _paired(*given))),
            lambda before, after, t: (
                (gains := (after - before).numpy()).mean(),
                t * gains.std(ddof=1) / np.sqrt(len(gains)),
                gains.mean() > t * gains.std(ddof=1) / np.sqrt(len(gains)),
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


ENOUGH = {"real": 0.40, "drawn": 0.58}  # share of right answers on images that were held out


@functools.cache
def _pictures() -> data.ImageSet:
    return data.load("cifar10", "train")


def _a_choice(new: Inputs) -> list[tuple]:
    """Images and labels to train with, images to judge with, and their labels, which the answer never sees."""
    pictures = _pictures()
    order = new.permutation(len(pictures))
    train, held_out = pictures[order[: STEPS * 64]], pictures[order[-1000:]]
    return [(*train, *held_out, ENOUGH[pictures.origin])]


def _trained(answer: Callable, images: Tensor, labels: Tensor, held_out: Tensor, seed: int) -> dict[str, Any]:
    """What the trained model answers, and how the training went."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    torch.manual_seed(seed)
    budget = Budget(data.ImageSet(images, labels, ("",) * 10, "cifar10"), STEPS)
    steps: dict[int, int] = {}
    learned: set[int] = set()

    def count(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        steps[id(optimizer)] = steps.get(id(optimizer), 0) + 1
        learned.update(id(p) for group in optimizer.param_groups for p in group["params"])

    hook = register_optimizer_step_post_hook(count)
    try:
        model = call(answer, budget, may_change=True)
    finally:
        hook.remove()
    seen = {"steps": max(steps.values(), default=0), "used": budget.used}
    if not isinstance(model, nn.Module):
        return seen | {"instead": model}
    seen["its own"] = any(id(p) in learned for p in model.parameters())
    model.eval()
    where = next((p.device for p in model.parameters()), torch.device("cpu"))
    with torch.no_grad():
        try:
            return seen | {"logits": call(model, held_out.to(where))}
        except AnswerRaised as raised:
            if not any(name in str(raised) for name in ("unsigned char", "Byte", "uint8")):
                raise
            return seen | {"bytes": str(raised).splitlines()[0]}


def _report(
    ask: Callable, images: Tensor, labels: Tensor, held_out: Tensor, right: Tensor, enough: float, seed: int = 0
) -> Any:
    """What is wrong with a training: nothing, if the model is good enough."""
    seen = ask(images, labels, held_out, seed)
    if "logits" not in seen or seen["steps"] > STEPS:
        return {key: seen[key] for key in ("instead", "bytes", "steps") if key in seen}
    logits = seen["logits"]
    if not _real(logits) or logits.shape != (len(right), 10):
        return {"shape": tuple(logits.shape) if isinstance(logits, Tensor) else logits}
    if not logits.isfinite().all():
        return {"nan": True}
    reached = (logits.argmax(1) == right.to(logits.device)).double().mean().item()
    if enough - 0.05 < reached < enough and seed == 0:  # it may have been bad luck
        return _report(ask, images, labels, held_out, right, enough, seed=1)
    if reached < enough:
        return seen | {"reached": reached}
    row = logits.double()
    if (row >= 0).all() and torch.allclose(row.sum(1), torch.ones(len(row)).double(), atol=1e-3):
        return {"probabilities": True}
    return "nothing wrong"


class _Pixels(nn.Module):
    def forward(self, images):
        return images.float() / 255


def _network():
    blocks = [models.ConvBlock(3, 16, stride=2), models.ConvBlock(16, 32, stride=2), models.ConvBlock(32, 64, stride=2)]
    return nn.Sequential(models.Normalize("cifar10"), *blocks, nn.Flatten(), nn.Linear(64 * 16, 10))


def _linear():
    return nn.Sequential(models.Normalize("cifar10"), nn.Flatten(), nn.Linear(3072, 10))


def _one_cycle(budget):
    model = _network()
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=len(budget))
    model.train()
    for images, labels in budget:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return model


_training = partial(_but, _one_cycle)
AFTER = (
    "after {yours[steps]} steps it gets {yours[reached]:.1%} of the held-out images right, and the goal is "
    "{enough:.0%}."
)

exercise(
    "train_within",
    seconds=60.0,  # a training of a few seconds, on a machine that others use too
    title="Better, within a budget",
    minutes=15,
    difficulty=4,
    points=4,
    takeaway="Normalized input, batch norm, a learning rate that rises and falls: little code, most of the gain.",
    hints=(
        "Change one thing at a time and look at the accuracy: the input first, then the learning rate, then the "
        "network. The budget is 150 steps, so make each of them count.",
        '`models.Normalize("cifar10")` as the first layer; convolutions with 16 to 32 channels, each followed by batch '
        "norm and ReLU; Adam, or SGD with momentum; a one-cycle schedule over `len(budget)` steps.",
        "`OneCycleLR(optimizer, max_lr=0.01, total_steps=len(budget))` with Adam, `scheduler.step()` after each batch.",
    ),
    spec=Spec(
        draw=_a_choice,
        solution=_one_cycle,
        probe=_trained,
        measure=_report,
        finds="nothing wrong",
        mistakes=r"""
            = (_network(), [])
                Your function should return the trained model, and nothing else; it returned {yours[instead]}.
                look: `return model`
                when: "instead" in yours
            _network() → _linear() && for images, labels in budget: → list(budget)\n    for images, labels in budget:
                The budget is used up: you went through it more than once, but it gives each batch once.
                look: one loop over `budget`: no epochs, and no peeking at its images beforehand
                when: says(yours, "budget is used up")
            _network() → _linear() && scheduler.step() → optimizer.step()
                Your optimizer took {yours[steps]} steps, but there are 150 batches: take one step with each batch.
                look: a loop inside the loop over the budget, or batches kept for a second round
                when: yours["steps"] > STEPS
            = _linear()[1:]
                Your model doesn't accept bytes: whatever you do to the images first belongs inside the model.
                look: `nn.Sequential(models.Normalize("cifar10"), …)`
                when: "bytes" in yours
            = nn.Sequential(_Pixels(), nn.Flatten(), nn.Linear(3072, 2))
                Your model should return ten logits for each image; for 1000 images it returns {yours[shape]}.
                when: "shape" in yours
            _network() → nn.Sequential(_Pixels(), models.CifarTutorial())
                    && Adam(model.parameters()) → SGD(model.parameters(), lr=1e20) && max_lr=0.01 → max_lr=1e20
                Your model answers with nan or inf: the training has blown up.
                look: a smaller learning rate
                when: "nan" in yours
            return model → return nn.Sequential(model, nn.Softmax(1))
                Your model ends with a softmax, so it returns probabilities. The loss has its own softmax: leave yours
                out.
                when: "probabilities" in yours
            = _network()
                You never asked the budget for a batch, so the model is untrained: {AFTER}
                look: `for images, labels in budget`
                when: not yours["used"]
            _network() → _linear() && optimizer.step()\n        scheduler.step() → pass
                No optimizer ever took a step: {AFTER}
                look: `optimizer.step()` for each batch
                when: not yours["steps"]
            _network() → _linear() && return model → return _linear()
                Your optimizer trains other weights than those of the model that you return: {AFTER}
                look: create `optimizer = …(model.parameters())` after the model is complete
                when: not yours["its own"]
            _network() → _linear() && loss.backward() → loss.backward()\n        if budget.used > 20: break
                Your training uses only a part of the budget: {AFTER}
                look: a `return` or `break` inside the loop, or `optimizer.step()` after it
                when: yours["steps"] < 0.6 * STEPS
            _network() → _linear() && max_lr=0.01 → max_lr=1e-9
                Your model still guesses, with one image in ten right: {AFTER}
                look: does the loss fall? print it. Try the learning rate by factors of three; then `zero_grad`, and the
                    scale of the input
                when: yours["reached"] < 0.17
            _network() → _linear() && Adam(model.parameters()) → SGD(model.parameters(), lr=0.003)
                    && max_lr=0.01 → max_lr=0.003
                Your model learns, but not enough: {AFTER}
                look: normalized input, batch norm, learning rate and its schedule, in this order
                when: "reached" in yours
        """,
        also_right=[
            _training(
                "Adam(model.parameters()) -> SGD(model.parameters(), lr=0.1, momentum=0.9)", "max_lr=0.01 -> max_lr=0.1"
            ),
            _training("max_lr=0.01 -> max_lr=0.02", "model(images) -> model(images.flip(-1))"),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _images_with_logits(new: Inputs) -> list[tuple]:
    n, classes = new.size(5, 9), new.size(3, 6)
    logits, labels = new.randn(n, classes) * 2, new.ints(0, classes - 1, (n,))  # the last class is absent
    smoothing = round(0.15 + 0.2 * new.rand(1).item(), 3)
    large = new.randn(6, 4) * 200  # exp of such numbers overflows
    return [
        (logits, labels, smoothing),
        (new.randn(7, 2), new.ints(0, 2, (7,)), round(0.6 + 0.2 * new.rand(1).item(), 3)),
        (large, new.ints(0, 4, (6,)), 0.25),
        (new.randn(4, 5), new.ints(0, 5, (4,)), 0.0),
        (new.randn(4, 3), new.ints(0, 3, (4,)), 1.0),
        (new.randn(1, 7), new.ints(0, 7, (1,)), 0.1),
    ]


def _learnable(ask: Callable, logits: Tensor, labels: Tensor, smoothing: float) -> Any:
    """The loss, if gradients flow through it to all logits."""
    loss, gradient = ask(logits, labels, smoothing)
    if gradient is None:
        return {"instead": loss}
    right, slope = probes.with_gradient(_by_target, logits, labels, smoothing)
    is_right = loss.dim() == 0 and torch.allclose(loss.double(), right.double(), rtol=1e-4)
    if is_right and not torch.allclose(gradient, slope, rtol=1e-2, atol=1e-4):
        return {"gradient": gradient}
    return loss.detach()


def _by_target(logits, labels, smoothing):
    classes = logits.shape[1]
    hot = F.one_hot(labels, classes)
    target = hot * (1 - smoothing) + smoothing / classes
    return -(target * logits.log_softmax(1)).sum(1).mean()


def _by_a_loop(logits, labels, smoothing):
    total = 0
    for row, label in zip(logits, labels, strict=True):
        logs = F.log_softmax(row, dim=0)
        for k in range(len(row)):
            total = total - logs[k] * (smoothing / len(row) + (1 - smoothing) * (k == label))
    return total / len(labels)


TARGET = "the target: (1 − smoothing) · one-hot + smoothing / classes"

exercise(
    "smoothed_loss",
    title="Stretch: label smoothing by hand",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="With a target just below one, the loss no longer rewards ever more certainty.",
    hints=(
        "Cross-entropy is −Σ target · log(softmax), where the target is one-hot. Change the target, keep the sum.",
        "The smoothed target is (1 − smoothing) · one-hot + smoothing / classes: every class gets a share, including "
        "the right one.",
        "`target = F.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes`, then "
        "`-(target * logits.log_softmax(1)).sum(1).mean()`.",
    ),
    spec=Spec(
        draw=_images_with_logits,
        solution=_by_target,
        probe=probes.with_gradient,
        measure=_learnable,
        dtype=False,
        look=TARGET,
        mistakes="""
            = _by_target(logits.detach(), labels, smoothing)
            = _by_target(logits, labels, smoothing).item()
                No gradient flows through your loss to the logits: {yours[instead]}.
                look: `.item()`, `.detach()`, `.data`, `no_grad` and NumPy cut the graph
                when: "instead" in yours
            logits.log_softmax(1) → (logits - logits.detach().logsumexp(1, keepdim=True))
                The loss is right, but its gradient is not: part of your formula is detached from the logits.
                look: `detach`, `.data` or `no_grad` in the middle of the formula
                when: "gradient" in yours
            .mean() →
                You return one loss for each image: take their mean.
                when: yours.shape == labels.shape
            = np.log(logits.numpy())
                NumPy cannot read a tensor that requires gradients, and gradients cannot flow through NumPy. Use
                PyTorch's functions.
                when: says(yours, "numpy()")
            logits.log_softmax(1) → logits.softmax(1).log() || (logits - logits.exp().sum(1, keepdim=True).log())
                The loss is {yours:.3g} for logits of a few hundred: `exp` overflows, or a probability becomes 0 and its
                logarithm −inf.
                look: `log_softmax` subtracts the largest logit first
                when: logits.abs().max() > 80 and not yours.isfinite()
            logits.log_softmax(1) → (logits.softmax(1) + 1e-9).log() || logits.softmax(1).clamp(1e-7).log()
                Your loss is right for small logits, but not for large ones: there some probabilities are 0 in float32,
                and only `log_softmax` has their logarithms.
                look: a small number added, or a `clamp`, before the logarithm
                when: logits.abs().max() > 80 and yours.isfinite()
            target * logits.log_softmax(1) → target * (logits.log_softmax(1) - target.log())
            -(target * logits.log_softmax(1)).sum(1).mean()
                    → F.kl_div(logits.log_softmax(1), target, reduction="batchmean")
                This is the KL divergence: leave out target · log target, which no logit changes.
            hot * (1 - smoothing) + smoothing / classes → hot
                This is the cross-entropy without smoothing.
                look: {TARGET}
            + smoothing / classes → + (1 - hot) * smoothing / (classes - 1)
                You give the smoothing to the wrong classes only. Here all classes share it: smoothing / classes.
            hot * (1 - smoothing) + smoothing / classes → hot * (1 - smoothing) || hot + smoothing / classes
                    || hot + (1 - hot) * smoothing / classes || torch.where(hot > 0, 1 - smoothing, smoothing / classes)
                The targets of an image should add up to one: what the right class gives up is what all classes share.
                look: {TARGET}
            + smoothing / classes → + smoothing || + smoothing / (classes - 1) || + smoothing / len(logits)
                Each class should get smoothing / classes, the right one included. Yours get another share.
                look: the number of classes is `logits.shape[1]`
            (1 - smoothing) + smoothing / classes → smoothing + (1 - smoothing) / classes
                You mixed up smoothing and 1 − smoothing.
            = _by_target(logits, labels, 0.1)
                You use a fixed smoothing instead of the argument.
            = -((1 - smoothing) * logits.log_softmax(1)[:, labels].mean() + smoothing * logits.log_softmax(1).mean())
                `[:, labels]` takes the classes of all labels for every image. `[torch.arange(B), labels]` or `gather`
                takes one for each.
            .sum(1).mean() → .sum()
                You added up the losses of all images: take their mean.
            .sum(1).mean() → .mean() || .mean(1).sum()
                You took the mean over the classes: sum over them, then take the mean over the images.
            return - → return
                The sign is wrong: a loss is minus the logarithm.
            logits.log_softmax(1) → logits
                You left out the softmax: the target multiplies log-probabilities, not logits.
                look: `logits.log_softmax(dim=1)`
            logits.log_softmax(1) → logits.softmax(1)
                You left out the logarithm: the target multiplies log-probabilities, not probabilities.
                look: `logits.log_softmax(dim=1)`
            logits.log_softmax(1) → logits.softmax(1).log_softmax(1)
                You apply softmax twice: `log_softmax` takes the logits themselves.
            logits.log_softmax(1) → logits.log_softmax(0) || logits.flatten().log_softmax(0).view_as(logits)
                Your softmax runs over the images: the classes are axis 1.
                look: `dim=1`
            F.one_hot(labels, classes) → F.one_hot(labels)
                Your targets don't have as many classes as the logits. Without a number, `F.one_hot(labels)` counts the
                classes in this batch.
                look: `F.one_hot(labels, logits.shape[1])`
                when: says(yours, "must match")
        """,
        habits=[
            Habit(
                "The result is right, but `F.cross_entropy` computed it. Here you compute the loss yourself.",
                lambda logits, labels, s: F.cross_entropy(logits, labels, label_smoothing=s),
                lambda logits, labels, s: (1 - s) * F.cross_entropy(logits, labels) - s * logits.log_softmax(1).mean(),
                probe=probes.functions,
                when=lambda *functions: any("cross_entropy" in name for names in functions for name in names),
                look="`log_softmax`, and your own target",
            )
        ],
        also_right=[
            _by_a_loop,
            lambda logits, labels, s: (
                (1 - s) * F.nll_loss(logits.log_softmax(1), labels) - s * logits.log_softmax(1).mean()
            ),
        ],
    ),
)
