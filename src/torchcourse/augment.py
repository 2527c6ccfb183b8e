"""Random changes that keep the meaning of an image, for a whole batch at once.

Every function takes images [B, C, H, W] of any dtype on any device and returns new ones like them; each image gets its
own luck, and no line loops over images. Random numbers come from `generator`, or from PyTorch's default one.

`Augment` makes a layer of them that acts in training mode only; `Averaged` uses the same changes the other way round,
at test time.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def flip(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Mirror left and right in about half of the images. (A mirrored digit is another sign: not for MNIST.)"""
    chosen = _random(images, 2, generator).bool()
    return torch.where(chosen.view(-1, 1, 1, 1), images.flip(-1), images)


def shift(images: Tensor, pixels: int, generator: torch.Generator | None = None, mode: str = "constant") -> Tensor:
    """Move each image by up to `pixels` up or down and left or right; every offset is equally likely.

    mode: what comes in at the edge, as in `F.pad`: "constant" is 0 (black, as long as the images are not normalized),
    "reflect" is the image's own mirror image.
    """
    if not pixels:
        return images
    places = 2 * pixels + 1  # in each direction
    row, column = _random(images, places, generator), _random(images, places, generator)
    windows = _windows(images, pixels, mode)
    return windows[torch.arange(len(images), device=images.device), row, column]


class Augment(nn.Module):
    """A layer that changes images in training mode and passes them on untouched in eval mode.

    flip: mirror half of them; shift: by up to so many pixels, `mode` as in `shift`.
    Put it first in a model, `nn.Sequential(Augment(shift=1), Normalize("mnist"), network)`: `fit` and `evaluate`
    set the mode, and uint8 images are moved before they grow to floats.
    """

    def __init__(
        self,
        flip: bool = False,
        shift: int = 0,
        mode: str = "constant",
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.flip, self.shift, self.mode, self.generator = flip, shift, mode, generator

    def forward(self, images: Tensor) -> Tensor:
        if not self.training:
            return images
        if self.flip:
            images = flip(images, self.generator)
        if self.shift:
            images = shift(images, self.shift, self.generator, self.mode)
        return images

    def extra_repr(self) -> str:
        return f"flip={self.flip}, shift={self.shift}, mode={self.mode!r}"


class Averaged(nn.Module):
    """A model that looks several times: in eval mode its logits are the mean over changed copies of the images.

    flip: the mirror image too; shift: also moved by so many pixels up, down, left and right; both: all combinations.
    In training mode it is the model itself. The parameters are shared with `model`, not copied.
    """

    def __init__(self, model: nn.Module, flip: bool = False, shift: int = 0, mode: str = "constant"):
        super().__init__()
        self.model, self.flip, self.shift, self.mode = model, flip, shift, mode

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            return self.model(images)
        copies = [images]
        if self.shift:
            p = self.shift
            windows = _windows(images, p, self.mode)
            copies += [windows[:, row, column] for row, column in ((0, p), (2 * p, p), (p, 0), (p, 2 * p))]
        if self.flip:
            copies += [copy.flip(-1) for copy in copies]
        return torch.stack([self.model(copy) for copy in copies]).mean(0)

    def extra_repr(self) -> str:
        return f"flip={self.flip}, shift={self.shift}, mode={self.mode!r}"


def _random(images: Tensor, high: int, generator: torch.Generator | None) -> Tensor:
    """One number from 0 to high - 1 for each image, on its device (a generator draws on the device where it lives)."""
    device = generator.device if generator else images.device
    return torch.randint(high, (len(images),), generator=generator, device=device).to(images.device, non_blocking=True)


def _windows(images: Tensor, pixels: int, mode: str) -> Tensor:
    """Every way to cut [C, H, W] out of the padded images, as a view: [B, 2 * pixels + 1, 2 * pixels + 1, C, H, W]."""
    height, width = images.shape[2:]
    padded = F.pad(images, (pixels,) * 4, mode=mode)
    return padded.unfold(2, height, 1).unfold(3, width, 1).permute(0, 2, 3, 1, 4, 5)
