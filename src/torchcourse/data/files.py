"""Data sets on the disk: find them, read them, and refuse what is not the published data set.

Two forms are read. The kit's own cache, `<root>/mnist/train.safetensors`, holds the two tensors `images` and `labels`
and is mapped into memory. torchvision's files (`MNIST/raw/*`, `cifar-10-batches-py/*`) are read as they are; they are
fast enough that no cache is written beside them. Checksums are compared each time: that takes 30 ms for MNIST, and
labels that are all zero never train a network. No file of yours is ever written to, renamed or deleted here.
"""

import gzip
import pickle
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from torchcourse.data.catalog import SPLITS, Spec, check_split, fetch_command, spec
from torchcourse.errors import CourseError

Tensors = tuple[torch.Tensor, torch.Tensor]  # images uint8 [N, C, H, W], labels int64 [N]


class BadFile(CourseError):
    """A file of a data set that is there but cannot be used. `path` is the file."""

    path: Path


def _bad_file(path: Path, problem: str, name: str, root: Path) -> BadFile:
    error = BadFile(
        f"{path} {problem}. To fix it, on a machine with a network: {fetch_command(name, root)} "
        "(nothing is deleted; a broken file in the way is renamed)."
    )
    error.path = path
    return error


@dataclass(frozen=True)
class Source:
    """Where one split lies: `form` is "cache" or "torchvision"; `paths` are the files that belong together."""

    form: str
    paths: tuple[Path, ...]

    @property
    def size(self) -> int:
        """Bytes on the disk; what is missing counts nothing."""
        return sum(path.stat().st_size for path in self.paths if path.is_file())


def cache_file(name: str, split: str, root: Path) -> Path:
    """Where the kit's cache of one split lies, whether it is there or not."""
    return root / name / f"{split}.safetensors"


def locate(name: str, split: str, root: Path) -> Source | None:
    """The files of one split, in order of preference, or None if nothing of it is there. Reads nothing."""
    cache = cache_file(name, split, root)
    if _there(cache):
        return Source("cache", (cache,))
    paths = _torchvision_paths(name, split, root)
    if any(_there(path) for path in paths):
        return Source("torchvision", paths)
    return None


def _there(path: Path) -> bool:
    """Whether there is anything of this name, be it a broken link. A folder that does not let us look is an error."""
    try:
        path.lstat()
        return True
    except PermissionError:
        raise _denied(path) from None
    except OSError:
        return False


def _denied(path: Path) -> CourseError:
    return CourseError(f"You are not allowed to read {path}. Ask its owner to run: chmod -R a+rX {path.parent}")


def find(name: str, split: str, root: Path) -> Tensors | None:
    """The tensors of one split, or None if there is nothing of the data set under the root.

    Raises CourseError if there is something, and it is not whole. One split without the other counts as not whole: a
    real training set must never be paired with a synthetic test set.
    """
    check_split(split)
    if _there(root) and not root.is_dir():
        raise CourseError(
            f"{root} is not a folder. The data sets are looked for in a folder: set TORCHCOURSE_DATA to one."
        )
    source = locate(name, split, root)
    if source is not None:
        return read(source, name, split, root)
    for other in SPLITS:
        there = locate(name, other, root)
        if there is not None:
            missing = (
                cache_file(name, split, root) if there.form == "cache" else _torchvision_paths(name, split, root)[0]
            )
            raise _bad_file(missing, f"is missing, while {there.paths[0].name} is there", name, root)
    return None


def read(source: Source, name: str, split: str, root: Path) -> Tensors:
    """Reads and checks one split. Raises BadFile: which file, what is wrong, and the command that fixes it."""
    what = spec(name)
    path = source.paths[0]
    try:
        for path in source.paths:
            _check_plausible(path)
        path = source.paths[0]
        if source.form == "cache":
            images, labels = _read_cache(path, what, split)
        elif what.folder.endswith("raw"):
            images = _read_idx(path, (what.counts[split], *what.shape[1:]))[:, None]
            path = source.paths[1]
            labels = _read_idx(path, (what.counts[split],)).long()
        else:
            parts = []
            for path in source.paths:
                parts.append(_read_batch(path, what))
            images, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        _check_labels(labels, what, split)
        path = source.paths[0]
        _check_images(images, what, split)
    except _Problem as problem:
        raise _bad_file(path, str(problem), name, root) from None
    except PermissionError:
        raise _denied(path) from None
    except OSError as error:
        raise _bad_file(path, f"cannot be read ({error.strerror or error})", name, root) from None
    return images, labels


class _Problem(Exception):
    """What is wrong with the file being read, as the end of a sentence that begins with its name."""


def _check_plausible(path: Path) -> None:
    """What goes wrong in practice, before any format is looked at."""
    if path.is_dir():
        raise _Problem("is a folder, where a file should be")
    if path.is_symlink() and not path.exists():
        raise _Problem("is a link to a file that is not there")
    if not path.exists():
        raise _Problem("is missing, while other files of the set are there")
    if not path.is_file():  # a pipe, say: reading would wait forever
        raise _Problem("is not a file")
    with open(path, "rb") as file:
        head = file.read(200).lstrip().lower()
    if not path.stat().st_size:
        raise _Problem("is empty")
    if head.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise _Problem("is a web page, not data (a login or error page was saved in its place)")
    if head.startswith(b"version https://git-lfs"):
        raise _Problem("is a Git LFS pointer, not the data")


def _check_labels(labels: torch.Tensor, what: Spec, split: str) -> None:
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(what.classes):
        raise _Problem(f"holds labels from {low} to {high}, where 0 to {len(what.classes) - 1} is expected")
    if zlib.crc32(labels.byte().numpy()) != what.checksums[split][1]:
        if low == high:
            raise _Problem(f"holds the label {low} only, where 0 to {len(what.classes) - 1} are expected")
        raise _Problem(f"holds labels that are not those of {what.title}")


def _check_images(images: torch.Tensor, what: Spec, split: str) -> None:
    expected = what.checksums[split][0]
    pixels = images.flatten(1)
    # Where there is no checksum, look for what a copy that was broken off leaves: images of one color.
    if (pixels.amax(1) == pixels.amin(1)).any():
        raise _Problem("holds images of a single color: their content was lost")
    if expected is not None and zlib.crc32(images.contiguous().numpy()) != expected:
        raise _Problem(f"holds images that are not those of {what.title}")


def _read_cache(path: Path, what: Spec, split: str) -> Tensors:
    from safetensors import SafetensorError, safe_open

    count = what.counts[split]
    expected = {"images": ("U8", [count, *what.shape]), "labels": ("I64", [count])}
    try:
        with safe_open(path, framework="pt") as file:
            for key, (dtype, shape) in expected.items():
                if key not in file.keys():  # noqa: SIM118 (not a dict)
                    raise _Problem(f"holds no {key!r}, only {sorted(file.keys())}")
                entry = file.get_slice(key)
                if (entry.get_dtype(), entry.get_shape()) != (dtype, shape):
                    raise _Problem(
                        f"holds {key} of type {entry.get_dtype()} and shape {entry.get_shape()}, "
                        f"where {dtype} {shape} is expected"
                    )
            return file.get_tensor("images"), file.get_tensor("labels")
    except SafetensorError as error:
        raise _Problem(f"is cut short or damaged (safetensors: {error})") from None


def _torchvision_paths(name: str, split: str, root: Path) -> tuple[Path, ...]:
    folder = root / spec(name).folder
    if name == "cifar10":
        return tuple(folder / f"data_batch_{k}" for k in range(1, 6)) if split == "train" else (folder / "test_batch",)
    prefix = "train" if split == "train" else "t10k"
    plain = [folder / f"{prefix}-images-idx3-ubyte", folder / f"{prefix}-labels-idx1-ubyte"]
    packed = [path.with_name(path.name + ".gz") for path in plain]
    return tuple(z if _there(z) and not _there(p) else p for p, z in zip(plain, packed, strict=True))


def _read_idx(path: Path, shape: tuple[int, ...]) -> torch.Tensor:
    """The format of MNIST: two zeros, an 8 for bytes, the number of dimensions; each in four bytes; the values."""
    header = 4 + 4 * len(shape)
    wanted = header + int(np.prod(shape))
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            data = np.frombuffer(bytearray(file.read(wanted + 1)), np.uint8)  # and no gigabyte of something else
    except EOFError:
        raise _Problem("is cut short") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _Problem(f"is not a whole gzip file ({error})") from None
    if bytes(data[:4]) != bytes([0, 0, 8, len(shape)]):
        raise _Problem(f"does not begin like an idx file with {len(shape)} dimension{'s' * (len(shape) > 1)} of bytes")
    found = tuple(int(n) for n in data[4:header].view(">u4")) if len(data) >= header else ()
    if found and found != shape:
        raise _Problem(f"holds {'×'.join(map(str, found))} values, where {'×'.join(map(str, shape))} are expected")
    if len(data) < wanted:
        raise _Problem(f"is cut short: {len(data):,} bytes instead of {wanted:,}")
    if len(data) > wanted:
        raise _Problem(f"is too long: more than {wanted:,} bytes")
    return torch.from_numpy(data[header:].reshape(shape))


class _ArraysOnly(pickle.Unpickler):
    """Unpickling runs whatever the file asks for. This one knows how to build NumPy arrays and nothing else."""

    def find_class(self, module: str, name: str):
        if module.startswith("numpy") and name in ("_reconstruct", "ndarray", "dtype"):
            return getattr(np, name, None) or np.ndarray.__reduce__(np.empty(0))[0]
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise _Problem(f"is not a batch of images: its pickle asks for {module}.{name}")


def _read_batch(path: Path, what: Spec) -> Tensors:
    """One of CIFAR-10's pickled batches: b"data" uint8 [10000, 3072] and b"labels", a list."""
    try:
        with open(path, "rb") as file:
            batch = _ArraysOnly(file, encoding="bytes").load()
        images, labels = np.array(batch[b"data"]), np.array(batch[b"labels"])
    except (_Problem, OSError):
        raise
    except Exception as error:  # pickle meets damaged bytes with nearly any exception
        raise _Problem(f"is cut short or damaged ({type(error).__name__})") from None
    if images.dtype != np.uint8 or images.shape != (10_000, int(np.prod(what.shape))) or labels.shape != (10_000,):
        raise _Problem(
            f"holds images {images.dtype} {images.shape} and labels {labels.shape}, "
            "where uint8 (10000, 3072) and (10000,) are expected"
        )
    return torch.from_numpy(images.reshape(-1, *what.shape)), torch.from_numpy(labels).long()
