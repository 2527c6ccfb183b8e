"""The three data sets of the course: what they are called, what is in them, where torchvision keeps them."""

import difflib
import shlex
from dataclasses import dataclass
from pathlib import Path

from torchcourse.errors import CourseError


@dataclass(frozen=True)
class Spec:
    """What a data set must look like, so that a damaged file is noticed, and where a download would come from."""

    title: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]  # of one image: channels, height, width
    counts: dict[str, int]
    # split -> CRC-32 of images and of labels, all as uint8: a file that differs in one pixel is not the data set.
    checksums: dict[str, tuple[int | None, int]]
    mean: tuple[float, ...]  # of the training images scaled to 0..1, one per channel
    std: tuple[float, ...]
    folder: str  # torchvision's name for its files under the root
    torchvision: str  # torchvision.datasets.<this>
    address: str  # a small file of the data set: asked for before a download, to see whether there is a network


SPECS = {
    "mnist": Spec(
        title="MNIST",
        classes=tuple("0123456789"),
        shape=(1, 28, 28),
        counts={"train": 60_000, "test": 10_000},
        checksums={"train": (0xF3639B56, 0xBA07E8EF), "test": (0xE4CA5F57, 0xEE8604D9)},
        mean=(0.1307,),
        std=(0.3081,),
        folder="MNIST/raw",
        torchvision="MNIST",
        address="https://ossci-datasets.s3.amazonaws.com/mnist/t10k-labels-idx1-ubyte.gz",
    ),
    "fashion_mnist": Spec(
        title="Fashion-MNIST",
        classes=(
            "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
        ),
        shape=(1, 28, 28),
        counts={"train": 60_000, "test": 10_000},
        checksums={"train": (0xAE65DCCD, 0x2ED6E46A), "test": (0x12728439, 0x242BC73F)},
        mean=(0.2860,),
        std=(0.3530,),
        folder="FashionMNIST/raw",
        torchvision="FashionMNIST",
        address="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-labels-idx1-ubyte.gz",
    ),
    "cifar10": Spec(
        title="CIFAR-10",
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        shape=(3, 32, 32),
        counts={"train": 50_000, "test": 10_000},
        # None for images: some copies hold a few that were decoded from JPEG. Their pixels are nearly the same.
        checksums={"train": (None, 0x4EE6AC62), "test": (None, 0xBADA58C9)},
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        folder="cifar-10-batches-py",
        torchvision="CIFAR10",
        address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    ),
}  # fmt: skip
SPLITS = ("train", "test")


def spec(name: str) -> Spec:
    """The entry of a data set; an unknown name is answered with the nearest one."""
    if isinstance(name, str) and name in SPECS:
        return SPECS[name]
    plain = str(name).lower().replace("-", "").replace("_", "").replace(" ", "")
    by_plain = {known.replace("_", ""): known for known in SPECS}
    near = difflib.get_close_matches(plain, by_plain, n=1, cutoff=0.5)
    there = f"There are: {', '.join(map(repr, SPECS))}, and folders of your own."
    hint = f"Did you mean {by_plain[near[0]]!r}?" if near else there
    raise CourseError(f"There is no data set called {name!r}. {hint}")


def check_split(split: str) -> None:
    """Raises CourseError unless `split` is "train" or "test"."""
    if split not in SPLITS:
        wish = " A validation set is cut from the training set: ds.subset(indices)." if "val" in str(split) else ""
        raise CourseError(f"There is no split called {split!r}: it is 'train' or 'test'.{wish}")


def fetch_command(name: str, root: Path) -> str:
    """The line to type to get a data set, or to fix one."""
    return f"torchcourse data fetch {name} --root {shlex.quote(str(root))}"
