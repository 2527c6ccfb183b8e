"""The exercises of chapter 05: better networks for CIFAR-10, and how to know that they are better."""

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from torchcourse import data
from torchcourse.checks.engine import AnswerRaised, Incorrect, Inputs, call, chapter, mistake, same
from torchcourse.checks.tensors import counted
from torchcourse.errors import CourseError

SLOW_START = 30.0  # the first optimizer of a process imports much of PyTorch, which takes seconds on a slow machine
TRAINING = 60.0  # a training of a few seconds, on a machine that others use too

exercise = chapter("05_cifar_cnn")


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "channel_statistics",
    title="Mean and deviation of each channel",
    minutes=5,
    difficulty=1,
    points=1,
    takeaway="Two numbers for each channel, from the training images alone; every later image is normalized with them.",
    hints=(
        "All images and all pixels of one channel together make one mean. Which axes disappear?",
        "The axes are image, channel, height, width: all but the channel go, `dim=(0, 2, 3)`.",
        "`scaled = images.float() / 255`, then `scaled.mean(dim=(0, 2, 3))` and `scaled.std(...)` in the same way.",
    ),
)
def channel_statistics(answer: Any, new: Inputs) -> None:
    n, channels, height, width = new.sizes(4, 5, 16)
    levels = new.rand(1, channels, 1, 1) * 90 + 60  # each channel has its own
    spread = new.rand(1, channels, 1, 1) * 25 + 8
    lights = new.randn(n, 1, 1, 1) * 30  # and each image its own brightness
    images = (levels + lights + new.randn(n, channels, height, width) * spread).round().clamp(0, 250).to(torch.uint8)
    scaled = images.double() / 255
    mean, std = scaled.mean((0, 2, 3)), scaled.std((0, 2, 3))

    yours = call(answer, images)
    if isinstance(yours, Tensor) and yours.shape == (2, channels):
        yours = tuple(yours)
    if not isinstance(yours, (tuple, list)) or len(yours) != 2 or not all(isinstance(part, Tensor) for part in yours):
        raise Incorrect("Wanted are two tensors.", "(means, deviations)", yours, "`return`")
    for part, name in zip(yours, ("means", "deviations"), strict=True):
        _one_for_each_channel(part, name, n, channels, height, width)
    means, deviations = yours
    if _near(means, std) and _near(deviations, mean):
        raise Incorrect("The two are the other way round.", "(means, deviations)", "(deviations, means)")
    for part, right in ((means, mean), (deviations, std)):
        if _near(part, right * 255):
            text = "Your numbers are those of pixels from 0 to 255: divide by 255 first."
            raise Incorrect(text, f"{right[0]:.4f} first", part)
    for divisor in (256, int(images.max())):
        if _near(means, mean * 255 / divisor):
            text = f"You divided by {divisor}: bytes end at 255, whatever the largest of these images is."
            raise Incorrect(text, f"{mean[0]:.4f} first", means)
    if _near(means, torch.full_like(mean, 0.5)):
        raise Incorrect("0.5 is what many pages write, for any images. Compute it from these images.", mean, means)
    if _near(deviations, std.square()):
        raise Incorrect("Your second tensor is the variance: the deviation is its square root.", std, deviations)
    text = "You took the deviation within each image and averaged over the images. Bright and dark images differ too."
    mistake(deviations, scaled.std((2, 3)).mean(0), text, "one `std` over images, height and width together")
    text = "This is the deviation of the images' means: inside each image the pixels differ as well."
    mistake(deviations, scaled.mean((2, 3)).std(0), text, "one `std` over images, height and width together")
    look = "`dim=(0, 2, 3)`: every axis but that of the channels"
    same(means, mean, "Your tensor of means", dtype=False, look=look)
    # With n or with n - 1 in the denominator: both are right, and with so many pixels both are nearly equal.
    same(deviations, std, "Your tensor of deviations", dtype=False, rtol=2e-3, look=look)


def _one_for_each_channel(part: Tensor, name: str, n: int, channels: int, height: int, width: int) -> None:
    """Raise Incorrect unless the shape is [C], with a message that names the axes that went wrong."""
    if part.shape == (channels,):
        return
    shape = tuple(part.shape)
    known = {
        (): "You have one number for all channels together: red, green and blue each have their own.",
        (n,): "You have one number for each image. Wanted is one for each channel.",
        (n, channels): "You have one number for each channel of each image: average over the images too.",
        (channels, height, width): "You averaged over the images alone: one number for each pixel remains.",
        (1, channels, 1, 1): "The numbers may be right, but they have kept the axes of the images.",
    }
    text = known.get(shape, f"The {name} have the wrong shape.")
    raise Incorrect(text, f"shape ({channels},)", f"shape {shape}", "the `dim` of mean and std, without keepdim")


def _near(yours: Tensor, value: Tensor) -> bool:
    """Equal up to rounding, and up to n or n - 1 in a denominator."""
    if yours.is_complex():
        return False
    return torch.allclose(yours.detach().cpu().double(), value.double(), rtol=2e-3, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "augment_batch",
    seconds=SLOW_START,
    title="Change a whole batch",
    minutes=14,
    difficulty=4,
    points=3,
    takeaway="One indexing moves every image by its own amount: no loop, no float, on whatever device the batch is.",
    hints=(
        "Pad all images with `pixels` black pixels on each side. A moved image is a window of the padded one: each "
        "image only needs its own upper left corner.",
        "`torch.randint(0, 2 * pixels + 1, (B,))` draws the corners. The rows of image b are `top[b] + 0 … H - 1`: "
        "`rows = top[:, None] + torch.arange(H)` is [B, H], and the columns likewise are [B, W].",
        "`padded[torch.arange(B)[:, None, None], :, rows[:, :, None], columns[:, None, :]]` is [B, H, W, C]: permute. "
        "Mirror with `torch.where(coin[:, None, None, None], images.flip(-1), images)`.",
    ),
)
def augment_batch(answer: Any, new: Inputs) -> None:
    pixels, batch = new.size(1, 2), 400
    channels, (height, width) = new.pick((2, 3, 4)), new.sizes(2, 8, 12)
    images = new.ints(1, 256, (batch, channels, height, width), torch.uint8)  # no black: black is what comes in
    yours = call(answer, images, pixels)
    if isinstance(yours, (tuple, list)) and len(yours) == 2 and isinstance(yours[0], Tensor):
        raise Incorrect("You return two things. Labels do not change, so only the images are wanted.", "one tensor")
    if isinstance(yours, Tensor) and yours.shape == images.shape and yours.dtype != torch.uint8:
        raise Incorrect(
            "The images are no longer bytes. Moving and mirroring need no floats, and bytes are a quarter of them.",
            "torch.uint8",
            str(yours.dtype),
            "where a float comes in: `torch.zeros` without dtype, a product with a mask, `grid_sample`",
        )
    same(yours, yours if isinstance(yours, Tensor) and yours.shape == images.shape else images, "Your batch")
    yours = yours.detach().cpu()
    flips, downs, rights = _moves(yours, images, pixels)
    _plausible(flips, downs, rights, pixels)

    again = call(answer, images, pixels)
    same(again, again if isinstance(again, Tensor) and again.shape == images.shape else images, "Your second batch")
    if torch.equal(again.cpu(), yours):
        raise Incorrect(
            "Two calls give the same batch: a seed is set inside. Each epoch would see the same pictures again.",
            look="`manual_seed`",
        )
    if torch.equal(_moves(again.cpu(), images, pixels)[0], flips):
        raise Incorrect(
            "Two calls mirror the same images: not luck decides, but the place in the batch.",
            "a coin for each image in each call",
            look="`torch.rand(B) < 0.5`",
        )
    steps = [counted(answer, images[:rows], pixels)[1] for rows in (batch // 4, batch)]
    if steps[1] > steps[0] + batch // 4:
        raise Incorrect(
            "Your batch is right, but your code takes more steps the more images there are: there is a loop.",
            f"about as many steps for {batch // 4} images as for {batch}",
            f"{steps[0]} and {steps[1]} steps",
            "windows of the padded batch, all taken by one indexing",
        )


def _moves(yours: Tensor, images: Tensor, pixels: int) -> tuple[Tensor, Tensor, Tensor]:
    """What was done to each image: mirrored? (bool [B]), pixels down and to the right (int64 [B] each).

    Raises Incorrect, with a guess at the mistake, where an image is no moved copy of its own input.
    """
    reach = pixels + 3  # a little beyond what is allowed
    moves = [(f, d, r) for f in (0, 1) for d in range(-reach, reach + 1) for r in range(-reach, reach + 1)]
    found = torch.stack([(_moved(images, *move) == yours).flatten(1).all(1) for move in moves])  # [moves, B]
    lost = (~found.any(0)).nonzero().flatten().tolist()
    if lost:
        _explain(yours, images, lost[0], moves)
    chosen = torch.tensor(moves)[found.int().argmax(0)]
    return chosen[:, 0].bool(), chosen[:, 1], chosen[:, 2]


def _moved(images: Tensor, flip: int, down: int, right: int, outside: int = 0) -> Tensor:
    """Mirrored or not, then moved; what comes in has the value `outside`."""
    height, width = images.shape[-2:]
    images = images.flip(-1) if flip else images
    result = torch.full_like(images, outside)
    to_row, from_row = slice(max(down, 0), height + min(down, 0)), slice(max(-down, 0), height + min(-down, 0))
    to_column, from_column = slice(max(right, 0), width + min(right, 0)), slice(max(-right, 0), width + min(-right, 0))
    result[..., to_row, to_column] = images[..., from_row, from_column]
    return result


def _explain(yours: Tensor, images: Tensor, i: int, moves: list[tuple[int, int, int]]) -> None:
    """Raise Incorrect for image i of the result, which is no moved copy of image i of the input."""
    mine, own = yours[i], images[i]
    inside = [_moved(torch.ones_like(own), *move).bool() for move in moves]

    for move in moves:
        rolled = (own.flip(-1) if move[0] else own).roll(move[1:], (-2, -1))
        if torch.equal(rolled, mine):
            raise Incorrect(
                "What leaves an image on one side comes in again on the other: that is `roll`.",
                "black, 0, where nothing comes in",
                look="pad with zeros and take a window",
            )
    for move in moves:
        if (_moved(images, *move) == mine).flatten(1).all(1).any():
            j = int((_moved(images, *move) == mine).flatten(1).all(1).nonzero()[0])
            raise Incorrect(
                f"Image {i} of your batch is made from image {j}: the labels no longer belong to their images.",
                "image i of the result from image i of the input",
                look="the index of the images: `torch.arange(B)`, in its order",
            )
    upright = own.flip(-2)
    for move, seen in zip(moves, inside, strict=True):
        if torch.equal(_moved(upright, *move), mine) or torch.equal(_moved(upright.flip(-1), *move), mine):
            raise Incorrect("Your images are upside down: mirror left and right.", look="the width is the last axis")
        if (seen.sum() > 0) and torch.equal(_moved(own, *move)[seen], mine[seen]):
            raise Incorrect(
                "The images are moved, but what comes in at the edge is not black.",
                "the value 0",
                f"{mine[~seen][0].item()}",
                "`F.pad(images, (pixels,) * 4)` pads with zeros",
            )
    if len(own) > 1:
        alone = [any(torch.equal(_moved(own[c], *move), mine[c]) for move in moves) for c in range(len(own))]
        if all(alone):
            raise Incorrect(
                "The channels of one image went different ways: its red no longer lies on its green.",
                "one offset and one coin for each image",
                look="the shape of your random numbers: [B], not [B, C]",
            )
    rows = [any(torch.equal(_moved(own, *m)[:, r], mine[:, r]) for m in moves) for r in range(own.shape[1])]
    if all(rows):
        raise Incorrect(
            "The rows of one image went different ways.", "one offset for the whole image", look="[B], not [B, H]"
        )
    raise Incorrect(
        f"Image {i} of your batch is no moved or mirrored copy of image {i} of the input.",
        "the same pixels, at most mirrored and moved, and black where nothing comes in",
        look="try it on one image with `torch.arange(H * W).view(1, 1, H, W)` as pixels, and print it",
    )


def _plausible(flips: Tensor, downs: Tensor, rights: Tensor, pixels: int) -> None:
    """Raise Incorrect unless mirroring and offsets look like independent luck for each image."""
    share = flips.double().mean().item()
    if not flips.any() and not downs.any() and not rights.any():
        raise Incorrect("Your function returns the batch as it came.", "mirrored and moved images")
    # Whoever mirrors after moving turns a move to the right into one to the left: only the sizes can be compared.
    sizes = torch.stack([downs, rights.abs()])
    if sizes.any() and (sizes == sizes[:, :1]).all():
        raise Incorrect(
            "All images move by the same amount: one luck for the whole batch.",
            "an offset of its own for each image",
            f"all {downs[0].abs().item()} up or down, {rights[0].abs().item()} to a side",
            "draw B numbers, not one",
        )
    if share in (0, 1):
        what = "None of your images is mirrored" if share == 0 else "All of your images are mirrored"
        raise Incorrect(f"{what}: each one needs a coin of its own.", "about half of them", f"{share:.0%}")
    farthest = max(downs.abs().max().item(), rights.abs().max().item())
    if farthest > pixels:
        raise Incorrect("Some images move too far.", f"{pixels} pixels at most", f"{farthest} pixels")
    for moved, name in ((downs, "up or down"), (rights, "left or right")):
        if not moved.any():
            raise Incorrect(f"Your images never move {name}.", "both directions")
    if downs.unique().numel() > 2 and torch.equal(downs.abs(), rights.abs()):
        raise Incorrect(
            "Your images move along the diagonal only: the same number serves both directions.",
            "two independent numbers for each image",
            look="draw twice: one row of numbers for up and down, one for left and right",
        )
    for moved, far, near in ((downs, "down", "up"), (rights, "right", "left")):
        for sign, name in ((1, far), (-1, near)):
            if (sign * moved).max() < pixels:
                raise Incorrect(
                    f"In {len(moved)} images none moves {name} by {pixels}: one end of the range is missing.",
                    f"every offset from −{pixels} to {pixels}",
                    f"{moved.min().item()} to {moved.max().item()}",
                    "`torch.randint(low, high, ...)` never draws `high` itself: 2 · pixels + 1 places are possible",
                )
    counts = torch.cat([downs, rights]).add(pixels).bincount(minlength=2 * pixels + 1)
    even = counts.double().mean()
    if ((counts - even).square() / even).sum() > 40:  # chi-squared: by luck alone, not once in a million checks
        raise Incorrect(
            "Not all offsets are equally likely.",
            f"each from −{pixels} to {pixels} about {even:.0f} times",
            ", ".join(f"{offset}: {count} times" for offset, count in enumerate(counts.tolist(), -pixels)),
            "`torch.randint` draws evenly; rounded floats, a bell curve or a clamp do not",
        )
    if not 0.38 < share < 0.62:
        raise Incorrect("The share of mirrored images is far from one half.", "about 50 %", f"{share:.0%}")


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "residual_block",
    seconds=SLOW_START,
    title="A residual block",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="A block that begins as the identity can be stacked deep: the gradient always finds the open way through.",
    hints=(
        "Two ways from input to sum: the branch (conv, norm, ReLU, conv, norm) and the shortcut. Which of the two can "
        "stay as it is, and when can it not?",
        "The shortcut is `nn.Identity()` as long as stride is 1 and the channels are equal, else a 1×1 convolution "
        "with the same stride. `nn.init.zeros_(self.norm2.weight)` makes the branch begin at zero.",
        "`self.branch = nn.Sequential(conv(inputs, outputs, 3, stride, padding=1), norm, ReLU, conv(outputs, outputs, "
        "3, padding=1), norm)`, and `return self.shortcut(x) + self.branch(x)`.",
    ),
)
def residual_block(answer: Any, new: Inputs) -> None:
    channels, more, height, width = new.size(3, 5), new.size(6, 8), *new.sizes(2, 9, 13)
    x = new.randn(6, channels, height, width).relu()
    block = _built(answer, channels, channels)
    for mode in ("train", "eval"):
        yours = _through(block.train(mode == "train"), x, (len(x), channels, height, width), 1)
        if mode == "train":
            mistake(yours, torch.zeros_like(x), "A new block gives zeros: the input is not added.", "`x + branch(x)`")
        mistake(yours, 2 * x, "A new block doubles its input: it is added twice.", "`forward`")
        if not torch.allclose(yours.detach(), x, atol=1e-5):
            zero = any(isinstance(m, nn.BatchNorm2d) and not m.weight.any() for m in block.modules())
            text = "A new block already changes its input: the branch does not begin at zero."
            if zero:
                text = "The last batch norm begins at zero, and yet a new block changes its input."
            raise Incorrect(
                text,
                "block(x) equal to x, for x ≥ 0, the same number of channels and stride 1",
                yours,
                "`nn.Identity()` as shortcut, and nothing between the last batch norm and the sum"
                if zero
                else "`nn.init.zeros_` on the weight of the last batch norm",
            )
    norms = [m for m in block.modules() if isinstance(m, nn.BatchNorm2d)]
    if len(norms) < 2:
        raise Incorrect("Each convolution of the branch is followed by a batch norm.", "two of them", f"{len(norms)}")

    _wake(block, new)
    start = _through(block, x, tuple(x.shape), 1).detach()
    if torch.allclose(start, x, atol=1e-5):
        raise Incorrect("The branch is never used: with other weights the block still changes nothing.", look="forward")
    _sees_five_pixels(block, x, start)
    doubled, tripled = (_through(block, k * x, tuple(x.shape), 1).detach() for k in (2, 3))
    bright = (start > 0) & (doubled > 0) & (tripled > 0)  # there a ReLU after the sum changes nothing
    if torch.allclose((tripled - doubled)[bright], (doubled - start)[bright], rtol=1e-3, atol=1e-3):
        raise Incorrect(
            "The branch has no ReLU: two convolutions in a row are no more than one larger convolution.",
            "conv, norm, ReLU, conv, norm",
            look="between the two convolutions",
        )
    _can_learn(_built(answer, channels, channels).train(), x, new)
    for inputs, outputs, stride in ((channels, more, 1), (channels, channels, 2), (channels, more, 2)):
        block = _built(answer, inputs, outputs, stride).eval()
        x = new.randn(len(x), inputs, height, width)
        shape = (len(x), outputs, -(-height // stride), -(-width // stride))
        yours = _through(block, x, shape, stride)
        if not yours.any():
            raise Incorrect(
                f"With {inputs} → {outputs} channels and stride {stride}, a new block gives zeros: no shortcut.",
                "a 1×1 convolution as shortcut where the shapes differ",
            )
        if stride == 1 and _side(block, x, yours) == 3:
            raise Incorrect(
                "Your shortcut looks at the neighbors of a pixel too.",
                "a 1×1 convolution: the plain way through",
                "a 3×3 one",
                "the kernel size of the shortcut",
            )
        second = [m for m in block.modules() if isinstance(m, nn.Conv2d) and m.in_channels == outputs != inputs]
        if any(max(m.stride) > 1 for m in second):
            raise Incorrect(
                "The stride is in the second convolution: the first one still works on the large image, in vain.",
                "the stride in the first convolution",
            )


def _built(answer: Any, *sizes: int) -> nn.Module:
    """A block of the student's class, with its layers where PyTorch finds them."""
    block = call(answer, *sizes)
    if not isinstance(block, nn.Module):
        raise Incorrect("Your class is no module.", "class ResidualBlock(nn.Module)", block, "the line with `class`")
    if not any(isinstance(m, nn.Conv2d) for m in block.modules()):
        raise Incorrect(
            "PyTorch finds no convolution in your block: an optimizer would not either.",
            "layers as attributes (`self.conv1 = …`) or in nn.Sequential",
            look="layers in a Python list, or made anew in `forward`",
        )
    return block


def _through(block: nn.Module, x: Tensor, shape: tuple[int, ...], stride: int) -> Tensor:
    """What the block makes of x; a sum that does not fit gets its own message."""
    try:
        yours = call(block, x)
    except AnswerRaised as raised:
        if isinstance(raised.error, RuntimeError) and "must match" in str(raised.error):
            raise Incorrect(
                f"Branch and shortcut do not fit together at {x.shape[1]} → {shape[1]} channels and stride {stride}.",
                f"both of shape {shape}",
                str(raised.error).splitlines()[0],
                "a 1×1 convolution with the same stride as shortcut, when stride or channels change",
            ) from None
        raise
    if not isinstance(yours, Tensor) or tuple(yours.shape) != shape:
        raise Incorrect(
            f"The output has the wrong shape for {x.shape[1]} → {shape[1]} channels and stride {stride}.",
            shape,
            tuple(yours.shape) if isinstance(yours, Tensor) else yours,
            "padding=1 keeps height and width of a 3×3 convolution; the stride belongs to one of the two",
        )
    return yours


def _wake(block: nn.Module, new: Inputs) -> None:
    """Weights and statistics as after some training: nothing is zero or one any more. Sets eval mode."""
    block.eval()
    with torch.no_grad():
        for value in block.parameters():
            value.copy_(new.randn(*value.shape) * 0.5 + 0.1)
        for module in block.modules():
            if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
                module.running_mean.copy_(new.randn(module.num_features) * 0.2)
                module.running_var.copy_(new.rand(module.num_features) + 0.5)


def _can_learn(block: nn.Module, x: Tensor, new: Inputs) -> None:
    """Raise Incorrect if no weight of a new block, in train mode, gets a gradient."""
    yours = _through(block, x, tuple(x.shape), 1)
    if yours.requires_grad:
        (yours * new.randn(*yours.shape)).sum().backward()
    slopes = [m.weight.grad for m in block.modules() if isinstance(m, (nn.Conv2d, nn.BatchNorm2d))]
    if all(slope is None or slope.abs().max() < 0.1 for slope in slopes):
        raise Incorrect(
            "The branch begins at zero and stays there: none of its weights gets a gradient.",
            "weight 0 in the last batch norm alone, and the sum right after it",
            look="a ReLU between the last batch norm and the sum, a zero in the first batch norm, `requires_grad`",
        )


def _side(block: nn.Module, x: Tensor, start: Tensor) -> int:
    """How wide the square of the output is that one pixel of the input reaches. start: the output for x."""
    row, column = x.shape[2] // 2, x.shape[3] // 2
    changed = x.clone()
    changed[:, :, row, column] += 3
    moved = (_through(block, changed, tuple(start.shape), 1) - start).detach().abs().amax((0, 1)) > 1e-6
    rows, columns = (moved.any(axis).nonzero().flatten() for axis in (1, 0))
    return max(int(rows.max() - rows.min()), int(columns.max() - columns.min())) + 1 if len(rows) else 0


def _sees_five_pixels(block: nn.Module, x: Tensor, start: Tensor) -> None:
    """Raise Incorrect unless one pixel of the input reaches a square of 5 × 5 in the output: two 3×3 convolutions."""
    side = _side(block, x, start)
    if side == 5:
        return
    known = {
        0: "Nothing of the input reaches the output.",
        1: "Your branch looks at single pixels: its convolutions are 1×1.",
        3: "Your branch sees a neighborhood of 3×3 pixels: that is one 3×3 convolution.",
    }
    raise Incorrect(
        known.get(side, "Your branch sees more than two 3×3 convolutions do."),
        "a neighborhood of 5×5: two 3×3 convolutions, one after the other",
        f"{side}×{side}",
    )


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "frozen_body",
    seconds=SLOW_START,
    title="Freeze the body, batch norm included",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="Frozen means two things: no gradients, and eval mode that survives `model.train()`.",
    hints=(
        "`requires_grad_(False)` stops the weights. What moves the running mean of batch norm, and when does it not?",
        "`fit` calls `model.train()` in each epoch, which reaches every layer. Override `train` so that the body goes "
        "back into eval mode, and the head does not.",
        "`def train(self, mode=True): super().train(mode); self.body.eval(); return self`",
    ),
)
def frozen_body(answer: Any, new: Inputs) -> None:
    channels, features, classes = new.size(2, 3), new.size(4, 7), new.size(2, 5)
    body = nn.Sequential(nn.Conv2d(channels, features, 3), nn.BatchNorm2d(features), nn.ReLU(), nn.Dropout(0.5))
    body.extend([nn.Conv2d(features, features, 3), nn.BatchNorm2d(features), nn.AdaptiveAvgPool2d(1), nn.Flatten()])
    head = nn.Sequential(nn.Dropout(0.5), nn.Linear(features, classes))
    with torch.no_grad():
        for parameter in (*body.parameters(), *head.parameters()):
            parameter.copy_(new.randn(*parameter.shape) * 0.5)
    images, labels = new.randn(12, channels, 8, 8) + 2, new.ints(0, classes, (12,))
    features_wanted = body.eval()(images).detach()
    kept = copy.deepcopy(body.state_dict())
    body.train()

    model = call(answer, body, head, may_change=True)
    if not isinstance(model, nn.Module):
        raise Incorrect("Your class is no module.", "class FrozenBody(nn.Module)", model)
    mine = {id(p) for p in model.parameters()}
    for part, name in ((body, "body"), (head, "head")):
        if not all(id(p) in mine for p in part.parameters()):
            raise Incorrect(
                f"PyTorch does not find the weights of the {name} in your model.", f"self.{name} = {name}", look=name
            )
    call(model, images, may_change=True)  # as `__init__` leaves it
    restless = [key for key, value in body.state_dict().items() if not torch.equal(value, kept[key])]
    body.load_state_dict(kept)
    returned = call(model.train, may_return_none=True)
    if returned is not model:
        raise Incorrect("Your `train` does not return the model, as PyTorch's own does.", look="`return self`")
    if not all(p.requires_grad for p in head.parameters()):
        raise Incorrect("The head is frozen: it alone shall learn.", look="what `requires_grad_(False)` is on")

    seen: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda module, given: seen.append(given[0].detach()))
    logits = call(model, images)
    hook.remove()
    if not isinstance(logits, Tensor) or logits.shape != (12, classes):
        raise Incorrect("The model does not give logits.", (12, classes), logits, "`self.head(self.body(x))`")
    moved = [key for key, value in body.state_dict().items() if not torch.equal(value, kept[key])]
    if moved:
        raise Incorrect(
            "After `model.train()` one forward pass has moved the running statistics of the body's batch norm.",
            "a body that stays as it is",
            f"{moved[0]} has changed",
            "`fit` calls `model.train()`, which reaches all layers: override `train` in your class",
        )
    if not seen or not torch.allclose(seen[0], features_wanted, atol=1e-5):
        dropout = any(isinstance(m, nn.Dropout) and m.training for m in body.modules())
        batch = any(isinstance(m, nn.BatchNorm2d) and m.training for m in body.modules())
        text = "In train mode the body gives other features than in eval mode"
        if not seen:
            raise Incorrect("Your model never calls its head.", look="`forward`")
        reason = "its dropout still throws values away." if dropout else "something in it still looks at the mode."
        if batch:
            reason = "its statistics stand still, but it still normalizes with those of the batch."
        if not any(m.training for m in body.modules()):
            text = "What your model gives to its head is not what the body makes."
            raise Incorrect(text, "the features as they are", look="`self.head(self.body(x))`")
        raise Incorrect(f"{text}: {reason}", "the same features in both modes", look="`self.body.eval()` in `train`")
    if not head.training or not model.training:
        raise Incorrect(
            "After `model.train()` the head is not in train mode: its dropout would be off while it learns.",
            "head.training True, body.training False",
            look="`super().train(mode)` first, then only the body back to eval",
        )
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    before = head[1].weight.detach().clone()
    try:
        F.cross_entropy(logits, labels).backward()
    except RuntimeError:
        raise Incorrect(
            "There is no gradient for the head.", look="`no_grad` belongs around the body alone, or nowhere"
        ) from None
    if any(p.grad is not None for p in body.parameters()):
        raise Incorrect(
            "The weights of the body still learn: a training step gives them gradients.",
            "requires_grad False for all of them",
            look="`body.requires_grad_(False)`, with the underscore: without it, it is only an attribute of the module",
        )
    optimizer.step()
    if torch.equal(before, head[1].weight):
        raise Incorrect("A training step does not change the head.", look="`forward`")
    if restless:
        raise Incorrect(
            "A new model, before anybody has called `train`, moves the running statistics of the body's batch norm.",
            "a body that stays as it is",
            f"{restless[0]} has changed",
            "modules are born in train mode: `self.train()` or `body.eval()` in `__init__`",
        )
    call(model.eval, may_return_none=True)
    if head.training or body.training or model.training:
        raise Incorrect(
            "After `model.eval()` a part of the model is still in train mode.",
            "training False for the model itself, its head and its body",
            look="`super().train(mode)` hands on the mode; `eval` is `train(False)`",
        )
    look = "nothing behind the head: the loss has its own softmax"
    same(call(model, images), head(features_wanted), "Your tensor of logits", look=look)


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "gain_interval",
    title="Is the gain real?",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="With the same seeds before and after, the luck of a seed cancels, and smaller gains can be seen.",
    hints=(
        "Each seed gives one gain, after minus before. Everything else is about those numbers.",
        "The interval is mean ± t · s / √n, with s the standard deviation of the gains (n − 1 in the denominator, "
        "which is what `std` does) and n their number.",
        "`gains = after - before`, `half = t * gains.std() / len(gains) ** 0.5`, real if `gains.mean() - half > 0`.",
    ),
)
def gain_interval(answer: Any, new: Inputs) -> None:
    for kind in ("real", "too small", "negative"):
        n, t = new.size(5, 8), round(3.1 + new.rand(1).item(), 3)  # t far from √n and from 1.96
        luck = new.randn(n) * 0.02  # of a seed: it is the same before and after
        noise = new.randn(n)
        noise = (noise - noise.mean()) / noise.std() * 0.004
        width = t * 0.004 / n**0.5
        gain = {"real": 1.8, "too small": 0.6, "negative": -2.5}[kind] * width
        before = 0.7 + luck
        after = before + gain + noise
        yours = call(answer, before, after, t)
        if not isinstance(yours, (tuple, list)) or len(yours) != 3:
            raise Incorrect("Wanted are three things.", "(gain, half, real)", yours, "`return`")
        mean, half, real = (_plain(part) for part in yours)
        for part, name in ((mean, "gain"), (half, "half width"), (real, "verdict")):
            if part is None:
                what, wanted = ("verdict is neither True nor False", "True or False")
                if name != "verdict":
                    what, wanted = f"{name} is not one number", "a number"
                raise Incorrect(f"Your {what}.", wanted, yours)
        gains = (after - before).double()
        m, s = gains.mean().item(), gains.std().item()
        root = n**0.5
        wide = t * s / root
        unpaired = t * ((before.var() + after.var()) / n).item() ** 0.5
        known = (
            (mean, -m, "The gain is after minus before: yours has the other sign."),
            (mean, gains.sum().item(), "Your gain is the sum over the seeds: take the mean."),
            (mean, (after.max() - before.max()).item(), "You compare the best seeds: the best of many is mostly luck."),
            (mean, 100 * m, "Your gain is in percentage points: here accuracies are from 0 to 1."),
            (mean, (gains / before).mean().item(), "Your gain is relative to `before`: only subtract."),
            (mean, m - wide, "These are the ends of the interval: wanted are its middle and its half width."),
            (mean, wide, "Gain and half width are the other way round."),
            (mean, after.mean().item(), "Your gain is the mean of `after`: what was there before?"),
            (half, s, "This is the standard deviation of the gains: how sure is their mean?"),
            (half, t * s, "The √n is missing: the mean of n seeds is surer than one of them."),
            (half, s / root, "The factor t is missing: with few seeds the interval must be wider."),
            (half, 1.96 * s / root, "1.96 holds for many seeds. With few of them take the t that you are given."),
            (half, t * s / n, "You divided by n: the mean of n seeds is √n times as sure, not n times."),
            (half, t * gains.var().item() / root, "This is with the variance; take its root, the standard deviation."),
            (half, t * gains.std(correction=0).item() / root, "Your deviation has n in the denominator: n − 1 is due."),
            (half, 2 * t * s / root, "This is the whole width: wanted is the half, mean ± half."),
            (
                half,
                unpaired,
                "You treat the seeds as strangers. Pair them: one gain for each seed.",
            ),
        )
        for value, wrong, text in known:
            if abs(value - wrong) <= 1e-6 + 2e-3 * abs(wrong):
                raise Incorrect(text, f"{m:.4f} ± {t * s / root:.4f}", f"{mean:.4f} ± {half:.4f}")
        same(mean, m, "Your gain", rtol=1e-3)
        same(half, t * s / root, "Your half width", rtol=2e-3, look="t · s / √n, with s the deviation of the gains")
        if bool(real) != (kind == "real"):
            text = {
                "real": "The whole interval lies above zero, and you say the gain is not real.",
                "too small": "The mean gain is above zero, but the interval is not: it may well be luck.",
                "negative": "After is worse than before: the interval is away from zero, on the wrong side.",
            }[kind]
            raise Incorrect(text, str(kind == "real"), str(bool(real)), "lower end of the interval: gain − half > 0")


def _plain(value: Any) -> float | None:
    """A number, a bool or a tensor of one real element as a float; None for anything else."""
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError):
        return None


# ---------------------------------------------------------------------------------------------------------------------


class Budget:
    """Training images, batch by batch, to be gone through once: that is all the training there is.

    steps: how many batches; size: images in a batch. `len(budget)` is the number of batches.
    Yields (images uint8 [size, 3, 32, 32], labels int64 [size]).
    """

    def __init__(self, images: data.ImageSet, steps: int, size: int = 64, generator: torch.Generator | None = None):
        order = torch.randperm(len(images), generator=generator)[: steps * size]
        self.images, self.rows, self.used = images, order.split(size)[:steps], 0

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.used:
            raise CourseError("The budget is used up: its batches may be gone through once.")
        for rows in self.rows:
            self.used += 1
            yield self.images[rows]


STEPS = 150  # batches of 64: every image is seen once at most
WANTED = {"real": 0.40, "drawn": 0.58}  # share of right answers on images that were held out


@exercise(
    "train_within",
    seconds=TRAINING,
    title="Better, within a budget",
    minutes=15,
    difficulty=4,
    points=4,
    takeaway="Normalized input, batch norm, a learning rate that rises and falls: little code, most of the gain.",
    hints=(
        "Change one thing at a time and look at the accuracy: the input first, then the learning rate, then the "
        "network. The budget is 150 steps: each of them must count.",
        '`models.Normalize("cifar10")` as first layer; convolutions with 16 to 32 channels, each followed by batch '
        "norm and ReLU; Adam or SGD with momentum; a one-cycle schedule over `len(budget)` steps.",
        "`OneCycleLR(optimizer, max_lr=0.01, total_steps=len(budget))` with Adam, `scheduler.step()` after each batch.",
    ),
)
def train_within(answer: Any, new: Inputs) -> None:
    pictures = _pictures()
    order = new.permutation(len(pictures))
    held_out = pictures.subset(order[:1000])
    budget = Budget(pictures.subset(order[1000:]), STEPS, generator=new.generator)
    with _StepsCounted() as steps:
        model = call(answer, budget, may_change=True)
    if isinstance(model, (tuple, list)) and any(isinstance(part, nn.Module) for part in model):
        raise Incorrect("You return several things: only the model is wanted.", "the trained model", model, "`return`")
    if not isinstance(model, nn.Module):
        raise Incorrect("Your function does not return a model.", "the trained nn.Module", model, "`return`")
    if steps.most > len(budget):
        raise Incorrect(
            "Your optimizer took more steps than there are batches: each batch is good for one step.",
            f"{len(budget)} steps at most",
            f"{steps.most} steps",
            "a loop inside the loop over the budget",
        )
    if not budget.used:
        raise Incorrect("Your function never asked for a batch: the model is untrained.", look="`for … in budget`")
    model.eval()
    where = next((p.device for p in model.parameters()), torch.device("cpu"))
    try:
        with torch.no_grad():
            logits = call(model, held_out.images.to(where))
    except AnswerRaised as raised:
        if not any(name in str(raised.error) for name in ("unsigned char", "Byte")):
            raise
        raise Incorrect(
            "Your model does not take bytes: what you do to the images before it belongs into it.",
            "a model that takes uint8 images",
            str(raised.error),
            '`nn.Sequential(models.Normalize("cifar10"), …)`',
        ) from None
    if not isinstance(logits, Tensor) or tuple(logits.shape) != (1000, 10):
        raise Incorrect(
            "Your model does not give ten logits for each image.",
            "(1000, 10)",
            tuple(logits.shape) if isinstance(logits, Tensor) else logits,
        )
    if not logits.isfinite().all():
        raise Incorrect("Your model answers with nan: the training has blown up.", look="a smaller learning rate")
    reached = (logits.cpu().argmax(1) == held_out.labels).double().mean().item()
    wanted = WANTED[pictures.origin]
    if reached < wanted:
        if steps.most < len(budget) // 2:
            text = f"Your model uses only a part of its budget: {steps.most} of {len(budget)} steps."
            look = "`optimizer.step()` once for each batch; is there a `return` or `break` inside the loop?"
        elif reached < 0.17:
            text = "Your model guesses: one image in ten is right without any training."
            look = "does the loss fall? print it. Learning rate, zero_grad, the scale of the input"
        else:
            text = "Your model learns, but not enough yet."
            look = "normalized input, batch norm, learning rate and its schedule, in this order"
        raise Incorrect(text, f"{wanted:.0%} of the held-out images", f"{reached:.1%}, after {steps.most} steps", look)


@functools.cache
def _pictures() -> data.ImageSet:
    return data.load("cifar10", "train")


class _StepsCounted:
    """Counts the steps of every optimizer while it is open; `most` is the largest count."""

    def __enter__(self) -> "_StepsCounted":
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.counts: dict[int, int] = {}

        def count(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            self.counts[id(optimizer)] = self.counts.get(id(optimizer), 0) + 1

        self.hook = register_optimizer_step_post_hook(count)
        return self

    def __exit__(self, *error: Any) -> None:
        self.hook.remove()

    @property
    def most(self) -> int:
        return max(self.counts.values(), default=0)


# ---------------------------------------------------------------------------------------------------------------------


class _Smoothing(TorchFunctionMode):
    """Notices when PyTorch's own label smoothing is asked."""

    asked = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.asked |= bool((kwargs or {}).get("label_smoothing"))
        return func(*args, **(kwargs or {}))


@exercise(
    "smoothed_loss",
    title="Stretch: label smoothing by hand",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="A target of a little less than one: the loss no longer rewards being ever surer.",
    hints=(
        "Cross-entropy is −Σ target · log(softmax), where the target is one-hot. Change the target, keep the sum.",
        "The smoothed target is (1 − smoothing) · one-hot + smoothing / classes: all classes get a share, also the "
        "right one.",
        "`target = F.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes`, then "
        "`-(target * logits.log_softmax(1)).sum(1).mean()`.",
    ),
)
def smoothed_loss(answer: Any, new: Inputs) -> None:
    n, classes = new.size(5, 9), new.size(3, 6)
    smoothing = round(0.15 + 0.2 * new.rand(1).item(), 3)
    logits, labels = new.randn(n, classes) * 2, new.ints(0, classes - 1, (n,))  # the last class may be absent
    with _Smoothing() as watch:
        yours = call(answer, logits, labels, smoothing)
    if isinstance(yours, Tensor) and yours.shape == (n,):
        raise Incorrect("You return one loss for each image: take their mean.", "one number", f"{n} numbers")
    logs = logits.log_softmax(1)
    hot = F.one_hot(labels, classes).float()

    def loss(target: Tensor, log: Tensor = logs) -> Tensor:
        return -(target * log).sum(1).mean()

    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing)
    target = hot * (1 - smoothing) + smoothing / classes
    others = hot * (1 - smoothing) + (1 - hot) * smoothing / (classes - 1)
    twice = logits.softmax(1).log_softmax(1)
    known = (
        (loss(hot), "This is the cross-entropy without smoothing: the target is still one-hot."),
        (loss(others), "You give the smoothing to the wrong classes alone. Here all share it: smoothing / classes."),
        (loss(hot + smoothing / classes), "Your target sums to more than one: the right class must give something."),
        (loss(target - hot * smoothing / classes), "The right class gets its share too, on top of 1 − smoothing."),
        (loss(hot * (1 - smoothing) + smoothing), "Each class gets smoothing / classes, not all of the smoothing."),
        (loss(hot * smoothing + (1 - smoothing) / classes), "You took 1 − smoothing for smoothing."),
        (
            -logs[:, labels].mean() * (1 - smoothing) - logs.mean() * smoothing,
            "`[:, labels]` takes the classes of all "
            "labels for every image; `[torch.arange(B), labels]` or `gather` takes one for each.",
        ),
        (loss(hot * (1 - smoothing)), "What you took from the right class goes nowhere: spread it over all classes."),
        (loss(target) * n, "You added the losses of all images: take their mean."),
        (loss(target) / classes, "You took the mean over the classes too: sum over the classes, mean over the images."),
        (-loss(target), "The sign is wrong: a loss is minus the logarithm."),
        (loss(target, logits), "You left out the softmax: the target multiplies log-probabilities, not logits."),
        (loss(target, logits.softmax(1)), "You left out the logarithm: it is log_softmax that is multiplied."),
        (loss(target, twice), "There are two softmaxes: log_softmax takes the logits themselves."),
        (loss(target, torch.log_softmax(logits, 0)), "Your softmax runs over the images: the classes are axis 1."),
    )
    if isinstance(yours, Tensor) and yours.numel() == 1:
        yours = yours.reshape(())
    for wrong, text in known:
        if isinstance(yours, (Tensor, float)) and not torch.allclose(wrong, expected, rtol=1e-3):
            mistake(torch.as_tensor(yours), wrong, text, "target: (1 − smoothing) · one-hot + smoothing / classes")
    same(yours, expected.item() if isinstance(yours, float) else expected, "Your loss", dtype=False, rtol=1e-4)
    _has_gradient(answer, logits, labels, smoothing)
    if watch.asked:
        raise Incorrect(
            "The result is right, but PyTorch's label smoothing made it. Here you make your own.",
            "log_softmax and a target of yours",
            "a call with `label_smoothing`",
        )


def _has_gradient(answer: Callable, logits: Tensor, labels: Tensor, smoothing: float) -> None:
    """Raise Incorrect unless one can learn from the loss."""
    leaf = logits.clone().requires_grad_()
    loss = call(answer, leaf, labels, smoothing)
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        raise Incorrect("Nobody can learn from your loss: it has no gradient.", look="`.item()`, `detach` or `no_grad`")
