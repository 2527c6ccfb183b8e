"""Data as most programs read it: a torchvision data set that opens, transforms and hands out one image at a time.

The classes are torchvision's own, with their `__getitem__`; only the reading of files is left out, because the images
are in memory already (and may lie on the disk in another form, or be the drawn look-alikes).
"""

from torch.utils.data import Dataset
from torchvision import datasets, transforms

from torchcourse import data


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
    if images.name == "cifar10":
        return Cifar10(images, pipeline((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))  # the tutorial's numbers
    return Mnist(images, pipeline((0.1307,), (0.3081,)))  # the example's numbers


def pipeline(mean: tuple[float, ...], std: tuple[float, ...]) -> transforms.Compose:
    """PIL image -> normalized float tensor [C, H, W]."""
    return transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, std)])
