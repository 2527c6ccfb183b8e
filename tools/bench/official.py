"""PyTorch's official MNIST example, settings as shipped: what the course's training is compared with.

From github.com/pytorch/examples, mnist/main.py: its network with log_softmax, batches of 64 from a DataLoader that
fetches image by image, Adadelta with learning rate 1, times 0.7 after each epoch, seed 1. On a CPU it does not shuffle.
Our own lines of code; what they do, and in which order, is the example's.

`dataset` is its way of reading, for CIFAR-10 too: torchvision's own classes with their `__getitem__`. Only the reading
of files is left out, because the images are in memory already.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms

from tools.bench.speed import clock, short
from torchcourse import data, models


class Mnist(datasets.MNIST):
    """torchvision.datasets.MNIST with the images of an ImageSet."""

    def __init__(self, images: data.ImageSet, transform):
        self.data, self.targets = images.images[:, 0].clone(), images.labels  # [N, 28, 28]
        self.transform, self.target_transform = transform, None


class Cifar10(datasets.CIFAR10):
    """torchvision.datasets.CIFAR10 with the images of an ImageSet."""

    def __init__(self, images: data.ImageSet, transform):
        self.data, self.targets = images.images.permute(0, 2, 3, 1).numpy().copy(), images.labels.tolist()
        self.transform, self.target_transform = transform, None


def dataset(images: data.ImageSet) -> Dataset:
    """One image at a time through ToTensor and Normalize, as the official examples do."""
    if images.name == "cifar10":  # the tutorial's numbers
        return Cifar10(images, pipeline((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))
    return Mnist(images, pipeline((0.1307,), (0.3081,)))  # the example's numbers


def pipeline(mean: tuple[float, ...], std: tuple[float, ...]) -> transforms.Compose:
    """PIL image -> normalized float tensor [C, H, W]."""
    return transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, std)])


class Example(nn.Module):
    """The example's network: the layers of models.MnistExample, and log_softmax as it has it."""

    def __init__(self):
        super().__init__()
        self.layers = models.MnistExample()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.layers(images), dim=1)


def epochs(
    seed: int, most: int, train: data.ImageSet, test: data.ImageSet, device: torch.device | str = "cpu"
) -> Iterator[dict[str, float]]:
    """Train; after each epoch yield its number, its seconds of training, and the test accuracy so far."""
    device = torch.device(device)
    # On an accelerator the example shuffles, and a worker process fetches into pinned memory.
    fetch = {} if device.type == "cpu" else {"num_workers": 1, "persistent_workers": True, "pin_memory": True}
    torch.manual_seed(seed)
    batches = DataLoader(dataset(train), batch_size=64, shuffle=device.type != "cpu", **fetch)
    test_batches = DataLoader(dataset(test), batch_size=1000, **fetch)
    model = Example().to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)

    def one() -> None:
        model.train()
        for images, labels in batches:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            F.nll_loss(model(images), labels).backward()
            optimizer.step()

    for number in range(1, most + 1):
        seconds, _ = clock(one)
        yield {"epoch": number, "seconds": short(seconds), "accuracy": accuracy(model, test_batches, device)}
        schedule.step()


@torch.no_grad()
def accuracy(model: nn.Module, batches: DataLoader, device: torch.device) -> float:
    """Share of the test images that the network gets right."""
    model.eval()
    right = sum((model(images.to(device)).argmax(1).cpu() == labels).sum().item() for images, labels in batches)
    return right / len(batches.dataset)
