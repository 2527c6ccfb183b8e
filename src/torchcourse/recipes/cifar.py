"""CIFAR-10 in seconds, on two processor cores: `model, history = cifar.train("15 s")`.

What makes it quick:

- A network that is small where images are large (`models.CifarNet`), with batch norm and max pooling.
- A stem that need not be learned: its weights come from the training images themselves (`CifarNet.whiten`).
- Orthogonal steps for the convolutions (`optim.Muon`): fewer steps to the same accuracy.
- Convolutions that begin by handing their input on, so that something reaches the other end from the first step.
- A learning rate that is high at once, since Muon's steps have the right length from the start, and falls to zero
  along a line; small batches, smoothed labels.
- Whole batches: fetched, flipped, shifted and normalized at once, uint8 until they are on the device.
- The answer is averaged over an image and its mirror image.

All of it was chosen on the last 5,000 images of the training set, without a look at the test set. A few rates were
tried, each with one seed and at most one pass over the images, so there is room to do better.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from torchcourse import data, models, training
from torchcourse import device as devices
from torchcourse.augment import Augment, averaged
from torchcourse.errors import CourseError
from torchcourse.optim import Muon


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
    "75 s": Setting((32, 64, 128), stride=2, epochs=5, batch_size=128, shift=1),
    # For a real GPU, which has room for every pixel and for many more channels.
    "gpu": Setting((64, 256, 256), stride=1, epochs=10, batch_size=512, shift=2),
}


def train(
    setting: str | Setting = "15 s",
    seed: int = 0,
    *,
    images: data.ImageSet | None = None,
    validation: data.ImageSet | None = None,
    epochs: int | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    verbose: bool = True,
) -> tuple[nn.Module, list[training.Epoch]]:
    """Train a network and return it with its history. It takes uint8 images [B, 3, 32, 32].

    setting: a name in SETTINGS, or one of your own.
    images: to learn from; None means all of CIFAR-10's training set. validation: for a score after each epoch.
    epochs: instead of the setting's.
    device: None means `device.best()`; dtype: to compute in, None means `device.fast_dtype(device)`.
    The same seed gives the same network, bit for bit, on the same machine with the same number of threads.
    """
    how = _setting(setting)
    how = replace(how, epochs=epochs or how.epochs)
    device = devices.best() if device is None else torch.device(device)
    images = data.load("cifar10", "train") if images is None else images
    torch.manual_seed(seed)
    model = network(how, images).to(device)
    batches = data.loader(images, how.batch_size, shuffle=True, seed=seed, drop_last=True)
    optimizer = optimizer_of(model, how)
    steps = max(1, how.epochs * len(batches))
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    history = training.fit(
        model,
        batches,
        optimizer,
        how.epochs,
        validation=None if validation is None else data.loader(validation, 500),
        loss_fn=nn.CrossEntropyLoss(label_smoothing=how.smoothing),
        scheduler=scheduler,
        dtype=dtype or devices.fast_dtype(device),
        verbose=verbose,
    )
    return model, history


def network(how: Setting, images: data.ImageSet) -> nn.Module:
    """uint8 images -> logits, all in one module: changed at random while it learns, averaged when it is asked."""
    normalize = models.Normalize("cifar10")
    net = models.CifarNet(how.widths, how.stride, residual=False, classes=len(images.classes))
    net.whiten(normalize(images[:5000][0]))
    with torch.no_grad():
        net.head.weight /= 9  # all classes nearly equally likely at first: the convolutions come first
        for layer in net.stages.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.dirac_(layer.weight[: layer.in_channels])  # begins by handing on what it gets
    augment = Augment(flip=True, shift=how.shift, mode="reflect")
    return averaged(nn.Sequential(augment, normalize, net), flip=True)


def optimizer_of(model: nn.Module, how: Setting) -> Muon:
    """Orthogonal steps for the convolutions, plain momentum for batch norm and the last layer; the stem stays."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rates = {4: how.learning_rate, 1: how.norm_rate, 2: how.head_rate}  # by the number of dimensions
    return Muon(
        {"params": [p for p in learned if p.ndim == dimensions], "lr": rate, "orthogonal": dimensions == 4}
        for dimensions, rate in rates.items()
    )


def _setting(setting: str | Setting) -> Setting:
    if isinstance(setting, Setting):
        return setting
    if setting not in SETTINGS:
        raise CourseError(f"There is no setting {setting!r}. Choose one of: {', '.join(SETTINGS)}; or make a Setting.")
    return SETTINGS[setting]
