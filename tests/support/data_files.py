"""Files of the data sets, made for a test: as torchvision leaves them, and as the course keeps them."""

import functools
import gzip
import multiprocessing
import pickle
import sys
import zlib
from pathlib import Path

import torch
from safetensors.torch import save_file

from torchcourse.data import catalog

TEST_COUNT = 10_000  # of all three test sets
# Processes that need not be new ones are forked where that is safe: importing PyTorch and torchvision takes seconds.
APART = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


def publish(name: str, split: str, images: torch.Tensor, labels: torch.Tensor) -> None:
    """From now on these are the published data set: the checksums say so."""
    sums = tuple(zlib.crc32(tensor.byte().numpy()) for tensor in (images.contiguous(), labels))
    catalog.spec(name).checksums[split] = sums


@functools.cache
def tensors(name: str = "mnist", count: int = TEST_COUNT) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shape = (count, *catalog.spec(name).shape)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return images, torch.randint(0, 10, (count,), generator=generator)


def idx(values: torch.Tensor) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    return header + values.to(torch.uint8).numpy().tobytes()


def write_idx(root: Path, folder: str = "MNIST", packed: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The test split as torchvision leaves it."""
    images, labels = tensors()
    publish({"MNIST": "mnist", "FashionMNIST": "fashion_mnist"}[folder], "test", images, labels)
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    for kind, values in (("images-idx3", images[:, 0]), ("labels-idx1", labels)):
        content, path = idx(values), raw / f"t10k-{kind}-ubyte"
        if packed:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(content, 1))
        else:
            path.write_bytes(content)
    return images, labels


def write_cache(root: Path, name: str = "mnist", split: str = "test", **changed: torch.Tensor) -> Path:
    images, labels = tensors(name, catalog.spec(name).counts[split])
    publish(name, split, images, labels)
    path = root / name / f"{split}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: v for k, v in ({"images": images, "labels": labels} | changed).items() if v is not None}, path)
    return path


def write_cifar_batch(path: Path, **changed) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = tensors("cifar10")
    publish("cifar10", "test", images, labels)
    batch = {b"data": images.reshape(TEST_COUNT, -1).numpy(), b"labels": labels.tolist()} | changed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(batch, protocol=2))
    return images, labels


IMAGES, LABELS = tensors()
