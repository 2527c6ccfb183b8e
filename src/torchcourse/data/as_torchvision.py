"""The data sets of the course as files that torchvision's own classes read."""

import functools
import os
import tempfile
from pathlib import Path

import torch

from torchcourse.data.catalog import spec
from torchcourse.data.sets import load
from torchcourse.errors import CourseError
from torchcourse.place import root_folder

PREFIXES = {"train": "train", "test": "t10k"}  # split -> how torchvision's file names begin


def torchvision_root(name: str = "mnist", root: str | os.PathLike | None = None) -> Path:
    """The folder to give to `torchvision.datasets.MNIST` or `FashionMNIST` as its root; no download is needed.

    name: "mnist" or "fashion_mnist"; root: the folder that holds the data, as for `load`.
    Where torchvision's files are not on this machine (the kit's cache, the look-alike set), they are written to a
    temporary folder, which disappears when Python ends.
    """
    if spec(name).torchvision not in ("MNIST", "FashionMNIST"):
        raise CourseError(
            f"torchvision_root knows mnist and fashion_mnist, not {name}: use data.load({name!r}, split)."
        )
    return _folder(name, root_folder(root))


@functools.cache
def _folder(name: str, root: Path) -> Path:
    raw = root / spec(name).folder
    needed = [f"{prefix}-{kind}-ubyte" for prefix in PREFIXES.values() for kind in ("images-idx3", "labels-idx1")]
    if all((raw / file).is_file() for file in needed):
        return root
    temporary = tempfile.TemporaryDirectory(prefix="torchcourse-")
    _kept.append(temporary)
    raw = Path(temporary.name) / spec(name).folder
    raw.mkdir(parents=True)
    for split, prefix in PREFIXES.items():
        images = load(name, split, root)
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(_idx(images.images[:, 0]))
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(_idx(images.labels.to(torch.uint8)))
    return Path(temporary.name)


_kept: list[tempfile.TemporaryDirectory] = []  # a folder is removed when its object goes away


def _idx(values: torch.Tensor) -> bytes:
    """The format of MNIST: two zeros, an 8 for bytes, the number of dimensions; each in four bytes; the values."""
    header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    return header + values.contiguous().numpy().tobytes()
