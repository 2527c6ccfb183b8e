"""CIFAR-10 in seconds, on two processor cores: `cifar.train("15 s")`.

What makes it quick:

- A network that is small where images are large (`models.CifarNet`), with batch norm and max pooling.
- A stem that is not learned: its weights come from the training images themselves (`CifarNet.whiten`). It looks
  at 3×3 pixels and keeps what varies most; patches of 2×2 pixels hold too little, and a run ends clearly lower.
- Orthogonal steps for the convolutions (`optim.Muon`): fewer steps to the same accuracy.
- Convolutions that begin by handing their input on, so that something reaches the other end from the first step.
- A learning rate that is high at once, since Muon's steps have the right length from the start, and falls to zero
  along a line; small batches, smoothed labels.
- Whole batches: fetched, flipped, shifted and normalized at once, uint8 until they are on the device.
- The answer is averaged over an image and its mirror image; where training images were shifted, over shifted ones too.

All of it was chosen on the last 5,000 images of the training set, without a look at the test set. A few rates were
tried, each with one seed, so there is room to do better.
"""

import time
from dataclasses import dataclass

import torch
from torch import nn

from torchcourse import data, models, training
from torchcourse import device as devices
from torchcourse.augment import Augment, Averaged
from torchcourse.errors import CourseError
from torchcourse.optim import Muon
from torchcourse.recipes import Run


@dataclass(frozen=True)
class Setting:
    """How large, how long, how fast."""

    widths: tuple[int, int, int]  # channels of the network's three stages
    stride: int  # of its stem
    epochs: int
    batch_size: int
    learning_rate: float = 0.14  # of the convolutions, the highest one
    norm_rate: float = 0.4  # of batch norm, and of the last layer's bias
    head_rate: float = 0.005  # of the last layer
    shift: int = 0  # pixels
    smoothing: float = 0.2


SETTINGS = {
    # Named after the seconds they are meant for, on two cores. What they take and reach on a machine: `make bench`.
    "15 s": Setting((32, 64, 128), stride=2, epochs=1, batch_size=128),
    "75 s": Setting((32, 64, 128), stride=2, epochs=3, batch_size=128),
    # For a real GPU, which has room for every pixel and for many more channels: 94% in a few seconds on an H100. Large
    # batches keep it busy; they make few steps, so the rates are higher.
    "gpu": Setting(
        (64, 256, 256), stride=1, epochs=12, batch_size=2000, learning_rate=0.24, norm_rate=2.0, head_rate=0.03, shift=2
    ),
}


def train(
    setting: str | Setting = "15 s",
    seed: int = 0,
    *,
    images: data.ImageSet | None = None,
    validation: data.ImageSet | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    verbose: bool = False,
) -> Run:
    """Train a new network.

    setting: a name in SETTINGS, or one of your own.
    seed: of the first weights, the order of the images and their changes. On a CPU the same seed, dtype and number of
        threads give the same weights, bit for bit; a GPU adds in another order, and the last digits differ.
    images: to learn from; None means CIFAR-10's training set. validation: for a score after each epoch.
    device: None means `device.best()`. dtype: to compute in; None means the one that `fit` finds faster.
    """
    if isinstance(setting, str) and setting not in SETTINGS:
        raise CourseError(f"There is no setting {setting!r}. Choose one of: {', '.join(SETTINGS)}; or make a Setting.")
    how = SETTINGS[setting] if isinstance(setting, str) else setting
    images = data.load("cifar10", "train") if images is None else images
    device = devices.best() if device is None else torch.device(device)

    start = time.perf_counter()
    images = images.to(device)  # a GPU holds the whole set: nothing travels while it learns
    torch.manual_seed(seed)
    model = network(how, images).to(device)
    optimizer = optimizer_of(model, how)
    batches = data.loader(images, how.batch_size, shuffle=True, seed=seed, drop_last=True)
    steps = max(1, how.epochs * len(batches))
    history = training.fit(
        model,
        batches,
        optimizer,
        how.epochs,
        validation=None if validation is None else data.loader(validation.to(device), 500),
        loss_fn=nn.CrossEntropyLoss(label_smoothing=how.smoothing),
        scheduler=torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps),
        dtype=dtype or "fast",
        verbose=verbose,
    )
    return Run(model, history, time.perf_counter() - start)


def network(how: Setting, images: data.ImageSet) -> nn.Module:
    """uint8 images -> logits, all in one module: changed at random while it learns, averaged when it is asked."""
    normalize = models.Normalize("cifar10")
    net = models.CifarNet(how.widths, how.stride, residual=False, classes=len(images.classes))
    first = images[:5000][0]
    net.whiten(normalize.to(first.device)(first))
    with torch.no_grad():
        # Small logits: at first, all classes are about equally likely, and the convolutions learn before the head does.
        net.head.weight /= 9
        for layer in net.stages.modules():
            if isinstance(layer, nn.Conv2d):
                # Each of the first channels starts as a copy of an input channel: the image gets through from step 1.
                nn.init.dirac_(layer.weight[: layer.in_channels])
    augment = Augment(flip=True, shift=how.shift, mode="reflect")
    return Averaged(nn.Sequential(augment, normalize, net), flip=True, shift=min(how.shift, 1), mode="reflect")


def optimizer_of(model: nn.Module, how: Setting) -> Muon:
    """Orthogonal steps for the convolutions, plain momentum for batch norm and the last layer; the stem stays."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rates = {4: how.learning_rate, 1: how.norm_rate, 2: how.head_rate}  # by the number of dimensions
    return Muon(
        {"params": [p for p in learned if p.ndim == dimensions], "lr": rate, "orthogonal": dimensions == 4}
        for dimensions, rate in rates.items()
    )
