"""Files of the data sets: every way in which they can be there, be missing, or be wrong."""

import multiprocessing
import os
import pickle
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from support.data_files import IMAGES, LABELS, TEST_COUNT, idx, write_cache, write_cifar_batch, write_idx

from torchcourse import data
from torchcourse.errors import CourseError

pytestmark = pytest.mark.usefixtures("no_network")
BATCH = "cifar-10-batches-py/test_batch"


# Reading what is there


def test_the_cache_is_read_before_torchvisions_files(tmp_path):
    write_idx(tmp_path)
    path = write_cache(tmp_path)
    assert data.load("mnist", "test", tmp_path).origin == "real"
    path.write_bytes(b"")
    with pytest.raises(CourseError, match=str(path)):
        data.load("mnist", "test", tmp_path)


@pytest.mark.parametrize("form", ["MNIST", "FashionMNIST, packed", "CIFAR-10"])
def test_torchvisions_files(tmp_path, form):
    if form == "CIFAR-10":
        name, (images, labels) = "cifar10", write_cifar_batch(tmp_path / BATCH)
    else:
        name = "mnist" if form == "MNIST" else "fashion_mnist"
        images, labels = write_idx(tmp_path, form.split(",")[0], packed="packed" in form)
    ds = data.load(name, "test", tmp_path)
    assert torch.equal(ds.images, images) and torch.equal(ds.labels, labels)
    assert (ds.images.dtype, ds.labels.dtype) == (torch.uint8, torch.int64)
    assert (ds.origin, ds.name, len(ds.classes)) == ("real", name, 10)
    ds.images[0] = 0  # a student may write to the tensors


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("opened",))


def test_a_pickle_that_wants_to_run_something_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_cifar_batch(tmp_path / BATCH, extra=Evil())
    with pytest.raises(CourseError, match=r"test_batch is not a batch of images.*mkdir"):
        data.load("cifar10", "test", tmp_path)
    assert not (tmp_path / "opened").exists()


def test_the_root_is_the_argument_else_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "variable"))
    assert data.root_folder("here") == Path("here").absolute() and data.root_folder() == tmp_path / "variable"


def found_by_nobody(root: Path) -> list:
    """What a user without rights meets there: whether the folder can be written to, and each set or its error."""

    def look() -> list:
        found = [os.access(root, os.W_OK)]
        for name in ("mnist", "cifar10"):
            try:
                found.append(data.load(name, "test", root).origin)
            except CourseError as error:
                found.append(str(error))
        return found

    def in_child() -> None:
        torch.set_num_threads(1)  # the threads of the process that was forked are not here
        os.setuid(65534)
        answer.put(look())

    if os.getuid() != 0:
        return look()
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    process = context.Process(target=in_child)
    process.start()
    result = answer.get(timeout=600)
    process.join(60)
    return result


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with users and fork")
def test_a_read_only_root_works_and_what_may_not_be_read_is_told_not_replaced():
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are private
        root = Path(folder)
        write_idx(root)
        write_cache(root, "cifar10").chmod(0o444)
        before = sorted(root.rglob("*"))
        for path in [*before, root]:
            path.chmod(0o555)
        assert found_by_nobody(root) == [False, "real", "real"]
        assert sorted(root.rglob("*")) == before, "reading left something behind"
        for closed in (root / "cifar10" / "test.safetensors", root):
            closed.chmod(0)
            assert re.match(r"You are not allowed to read .*cifar.*chmod -R a\+rX", found_by_nobody(root)[2])
        for path in [root, *root.rglob("*")]:  # from the top: what cannot be entered cannot be listed
            path.chmod(0o755)


# Files that are not as they should be

DAMAGE = {  # what the sentence says -> how to bring it about
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1000]),
    "is empty": lambda path: path.write_bytes(b""),
    "web page": lambda path: path.write_bytes(b"\n<!DOCTYPE html><html>Please log in</html>"),
    "Git LFS": lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
    "is a folder": lambda path: (path.unlink(), path.mkdir()),
    "link to a file that is not there": lambda path: (path.unlink(), path.symlink_to(path.parent / "nowhere")),
    "is not a file": lambda path: (path.unlink(), os.mkfifo(path)),
    "fetch": lambda path: path.write_bytes(bytes(range(256)) * 100),  # noise, which each form meets in its own words
}


def expect_error(root: Path, path: Path, words: str, name: str = "mnist", split: str = "test") -> None:
    """A sentence that names the file, what is wrong, and the command that fixes it; nothing changed on the disk."""
    before = {p: p.stat().st_size for p in root.rglob("*") if p.is_file()}
    with pytest.raises(CourseError, match=words) as caught:
        data.load(name, split, root)
    assert str(caught.value).startswith(str(path))
    assert f"torchcourse data fetch {name} --root {root}" in str(caught.value)
    assert {p: p.stat().st_size for p in root.rglob("*") if p.is_file()} == before


FORMS = ("cache", "batch", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "t10k-images-idx3-ubyte.gz")


@pytest.mark.parametrize("form", FORMS)
def test_damaged_files(tmp_path, form):
    whole = tmp_path / "whole"
    if form == "cache":
        path = write_cache(whole)
    elif form == "batch":
        write_cifar_batch(path := whole / BATCH)
    else:
        write_idx(whole, packed=form.endswith(".gz"))
        path = whole / "MNIST" / "raw" / form
    for number, (words, damage) in enumerate(DAMAGE.items()):
        root = shutil.copytree(whole, tmp_path / str(number))
        damage(root / path.relative_to(whole))
        expect_error(root, root / path.relative_to(whole), words, "cifar10" if form == "batch" else "mnist")


WRONG_CACHES = {  # what the sentence says -> what the file holds
    "type F32": {"images": IMAGES[:, :, :2, :2].float()},
    "10000": {"images": IMAGES[:10].clone(), "labels": LABELS[:10].clone()},
    "labels from 1 to 10": {"labels": LABELS + 1},
    "no 'labels'": {"labels": None},
    "holds the label 0 only": {"labels": torch.zeros(TEST_COUNT, dtype=torch.int64)},
    "labels that are not those of MNIST": {"labels": torch.cat([LABELS[:-1], 9 - LABELS[-1:]])},
    "single color": {"images": torch.cat([IMAGES[:-1], torch.zeros_like(IMAGES[-1:])])},
    "images that are not those of MNIST": {"images": IMAGES.flip(0)},
}
WRONG_IDX = {
    "100 values": ("labels-idx1", LABELS[:100]),
    "1 dimension": ("labels-idx1", IMAGES[:, 0]),
    "10000×14×28": ("images-idx3", IMAGES[:, 0, :14]),
    "labels that are not those of MNIST": ("labels-idx1", LABELS.flip(0)),
    "images that are not those of MNIST": ("images-idx3", IMAGES[:, 0].flip(0)),
}


def test_a_cache_and_idx_files_that_are_whole_but_wrong(tmp_path):
    for number, (words, changed) in enumerate(WRONG_CACHES.items()):
        root = tmp_path / str(number)
        expect_error(root, write_cache(root, **changed), words)
    for number, (words, (kind, values)) in enumerate(WRONG_IDX.items(), len(WRONG_CACHES)):
        root = tmp_path / str(number)
        write_idx(root)
        path = root / "MNIST" / "raw" / f"t10k-{kind}-ubyte"
        path.write_bytes(idx(values))
        expect_error(root, path, words)


def test_a_batch_of_another_shape_an_idx_file_that_is_too_long_and_one_that_is_missing(tmp_path):
    write_cifar_batch(path := tmp_path / BATCH)
    path.write_bytes(pickle.dumps({b"data": np.zeros((10, 3072), np.uint8), b"labels": [0] * 10}, protocol=2))
    expect_error(tmp_path, path, r"\(10, 3072\)", "cifar10")
    write_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes() + b"\0")
    expect_error(tmp_path, path, "too long")
    path.unlink()
    expect_error(tmp_path, path, "is missing")


@pytest.mark.parametrize("form", ["cache", "torchvision"])
def test_one_split_is_never_completed_by_a_synthetic_one(tmp_path, form):
    write_cache(tmp_path) if form == "cache" else write_idx(tmp_path)
    assert data.load("mnist", "test", tmp_path).origin == "real"
    path = tmp_path / ("mnist/train.safetensors" if form == "cache" else "MNIST/raw/train-images-idx3-ubyte")
    expect_error(tmp_path, path, "is missing, while", split="train")


def test_a_wrong_argument_is_answered_in_a_sentence(tmp_path):
    (tmp_path / "root").write_text("")
    with pytest.raises(CourseError, match="not a folder"):
        data.load("mnist", "test", tmp_path / "root")
    for name, near in (("mnits", "mnist"), ("FashionMNIST", "fashion_mnist"), ("cifar-10", "cifar10"), ("x", "mnist")):
        with pytest.raises(CourseError, match=repr(near)):
            data.load(name, "train")
    with pytest.raises(CourseError, match="'train' or 'test'"):
        data.load("mnist", "validation")
