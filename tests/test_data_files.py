"""Files of the data sets: every way in which they can be there, be missing, or be wrong."""

import multiprocessing
import os
import pickle
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from support.data_files import IMAGES, LABELS, TEST_COUNT, idx, write_cache, write_cifar_batch, write_idx

from torchcourse import data
from torchcourse.errors import CourseError

pytestmark = pytest.mark.usefixtures("no_network")


# Reading what is there


def test_the_cache_is_read_before_torchvisions_files(tmp_path):
    write_idx(tmp_path)
    path = write_cache(tmp_path)
    assert data.load("mnist", "test", tmp_path).origin == "real"
    path.write_bytes(b"")
    with pytest.raises(CourseError, match=str(path)):
        data.load("mnist", "test", tmp_path)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_torchvisions_idx_files(tmp_path, name, folder, packed):
    images, labels = write_idx(tmp_path, folder, packed)
    ds = data.load(name, "test", tmp_path)
    assert torch.equal(ds.images, images) and torch.equal(ds.labels, labels)
    assert (ds.images.dtype, ds.labels.dtype) == (torch.uint8, torch.int64)
    assert (ds.origin, ds.name, len(ds.classes)) == ("real", name, 10)
    ds.images[0] = 0  # a student may write to the tensors


def test_torchvisions_cifar_batches(tmp_path):
    images, labels = write_cifar_batch(tmp_path / "cifar-10-batches-py" / "test_batch")
    ds = data.load("cifar10", "test", tmp_path)
    assert torch.equal(ds.images, images) and torch.equal(ds.labels, labels)


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("opened",))


def test_a_pickle_that_wants_to_run_something_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_cifar_batch(tmp_path / "cifar-10-batches-py" / "test_batch", extra=Evil())
    with pytest.raises(CourseError, match=r"test_batch is not a batch of images.*mkdir"):
        data.load("cifar10", "test", tmp_path)
    assert not (tmp_path / "opened").exists()


def test_the_root_is_the_argument_else_the_variable_else_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "variable"))
    assert data.root_folder("here") == Path("here").absolute()
    assert data.root_folder() == tmp_path / "variable"
    monkeypatch.delenv("TORCHCOURSE_DATA")
    assert data.root_folder().name == "torchcourse"
    if sys.platform == "linux":
        assert data.root_folder() == tmp_path / "cache" / "torchcourse"


def _in_child(work, root: Path, answer) -> None:
    torch.set_num_threads(1)  # the threads of the process that was forked are not here
    os.setuid(65534)
    answer.put(work(root))


def as_nobody(work, root: Path):
    """What `work(root)` gives when a user without rights runs it: root may read and write everywhere."""
    if os.getuid() != 0:
        return work(root)
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    process = context.Process(target=_in_child, args=(work, root, answer))
    process.start()
    result = answer.get(timeout=600)
    process.join(60)
    return result


@pytest.fixture
def shared_root():
    """A folder that others can reach (pytest's own are private)."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        yield root
        for path in [root, *root.rglob("*")]:  # from the top: what cannot be entered cannot be listed
            path.chmod(0o755)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with users and fork")


def _origins(root: Path) -> list:
    return [
        os.access(root, os.W_OK),
        data.load("mnist", "test", root).origin,
        data.load("cifar10", "test", root).origin,
    ]


@needs_fork
def test_a_read_only_root_works(shared_root):
    write_idx(shared_root)
    write_cache(shared_root, "cifar10").chmod(0o444)
    before = sorted(shared_root.rglob("*"))
    for path in [*before, shared_root]:
        path.chmod(0o555)
    assert as_nobody(_origins, shared_root) == [False, "real", "real"]
    assert sorted(shared_root.rglob("*")) == before, "reading left something behind"


def _error(root: Path) -> str:
    try:
        return data.load("mnist", "test", root).origin
    except CourseError as error:
        return str(error)


@needs_fork
@pytest.mark.parametrize("closed", ["", "mnist", "mnist/test.safetensors"])
def test_what_may_not_be_read_is_told_not_replaced(shared_root, closed):
    write_cache(shared_root).chmod(0o644)
    (shared_root / closed).chmod(0)
    assert re.match(r"You are not allowed to read .*mnist.*chmod -R a\+rX", as_nobody(_error, shared_root))


# Files that are not as they should be


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _web_page(path: Path) -> None:
    path.write_bytes(b"\n<!DOCTYPE html><html>Please log in</html>")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pointer(path: Path) -> None:
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 100)


DAMAGE = [
    (_cut, "cut short"), (_empty, "is empty"), (_web_page, "web page"), (_folder, "is a folder"),
    (_pointer, "Git LFS"), (_dangling, "link to a file that is not there"), (_pipe, "is not a file"),
    (_noise, "MNIST|mnist"),
]  # fmt: skip


def expect_error(root: Path, path: Path, words: str, name: str = "mnist", split: str = "test") -> None:
    """A sentence that names the file, what is wrong, and the command that fixes it; nothing changed on the disk."""
    before = {p: p.stat().st_size for p in root.rglob("*") if p.is_file()}
    with pytest.raises(CourseError, match=words) as caught:
        data.load(name, split, root)
    assert str(caught.value).startswith(str(path))
    assert f"torchcourse data fetch {name} --root {root}" in str(caught.value)
    assert {p: p.stat().st_size for p in root.rglob("*") if p.is_file()} == before


def written(root: Path, form: str) -> Path:
    """Write the test split of a data set in a form; returns the file that a test may damage."""
    if form == "cache":
        return write_cache(root)
    if form == "batch":
        write_cifar_batch(root / "cifar-10-batches-py" / "test_batch")
        return root / "cifar-10-batches-py" / "test_batch"
    write_idx(root, packed=form.endswith(".gz"))
    return root / "MNIST" / "raw" / form


FORMS = ("cache", "batch", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "t10k-images-idx3-ubyte.gz")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("damage", "words"), DAMAGE, ids=[f.__name__[1:] for f, _ in DAMAGE])
def test_damaged_files(tmp_path, damage, words, form):
    path = written(tmp_path, form)
    damage(path)
    words = {"t10k-images-idx3-ubyte.gz": "gzip", "batch": "test_batch"}.get(form, words) if damage is _noise else words
    expect_error(tmp_path, path, words, "cifar10" if form == "batch" else "mnist")


def test_cifar_batch_of_another_shape(tmp_path):
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    write_cifar_batch(path)
    path.write_bytes(pickle.dumps({b"data": np.zeros((10, 3072), np.uint8), b"labels": [0] * 10}, protocol=2))
    expect_error(tmp_path, path, r"\(10, 3072\)", "cifar10")


WRONG_CACHES = {
    "float images": ({"images": IMAGES[:, :, :2, :2].float()}, "type F32"),
    "transposed": ({"images": IMAGES.permute(0, 2, 3, 1).contiguous()}, "shape"),
    "too few": ({"images": IMAGES[:10].clone(), "labels": LABELS[:10].clone()}, "10000"),
    "labels of another length": ({"labels": LABELS[:-1].clone()}, "9999"),
    "labels of another type": ({"labels": LABELS.int()}, "I32"),
    "label 10": ({"labels": LABELS + 1}, "labels from 1 to 10"),
    "no labels": ({"labels": None}, "no 'labels'"),
    "labels all zero": ({"labels": torch.zeros(TEST_COUNT, dtype=torch.int64)}, "holds the label 0 only"),
    "one wrong label": ({"labels": torch.cat([LABELS[:-1], 9 - LABELS[-1:]])}, "labels that are not those of MNIST"),
    "the last image lost": ({"images": torch.cat([IMAGES[:-1], torch.zeros_like(IMAGES[-1:])])}, "single color"),
    "other images": ({"images": IMAGES.flip(0)}, "images that are not those of MNIST"),
}


@pytest.mark.parametrize("case", WRONG_CACHES)
def test_a_cache_that_is_whole_but_wrong(tmp_path, case):
    changed, words = WRONG_CACHES[case]
    expect_error(tmp_path, write_cache(tmp_path, **changed), words)


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("labels-idx1", LABELS[:100], "100 values"),
        ("labels-idx1", LABELS + 1, "labels from 1 to 10"),
        ("labels-idx1", IMAGES[:, 0], "1 dimension"),
        ("images-idx3", IMAGES[:100, 0], "100×28×28"),
        ("images-idx3", IMAGES[:, 0, :14], "10000×14×28"),
        ("labels-idx1", LABELS.flip(0), "labels that are not those of MNIST"),
        ("images-idx3", IMAGES[:, 0].flip(0), "images that are not those of MNIST"),
    ],
)
def test_idx_files_that_are_whole_but_wrong(tmp_path, kind, values, words):
    write_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / f"t10k-{kind}-ubyte"
    path.write_bytes(idx(values))
    expect_error(tmp_path, path, words)


def test_an_idx_file_that_is_too_long_and_one_that_is_missing(tmp_path):
    path = written(tmp_path, "t10k-labels-idx1-ubyte")
    path.write_bytes(path.read_bytes() + b"\0")
    expect_error(tmp_path, path, "too long")
    path.unlink()
    expect_error(tmp_path, path, "is missing")


@pytest.mark.parametrize("form", ["cache", "torchvision"])
def test_one_split_is_never_completed_by_a_drawn_one(tmp_path, form):
    write_cache(tmp_path) if form == "cache" else write_idx(tmp_path)
    assert data.load("mnist", "test", tmp_path).origin == "real"
    path = tmp_path / ("mnist/train.safetensors" if form == "cache" else "MNIST/raw/train-images-idx3-ubyte")
    expect_error(tmp_path, path, "is missing, while", split="train")


def test_a_root_that_is_a_file(tmp_path):
    (tmp_path / "root").write_text("")
    with pytest.raises(CourseError, match="not a folder"):
        data.load("mnist", "test", tmp_path / "root")


def test_an_unknown_name_is_answered_with_the_nearest_and_an_unknown_split_with_both():
    for name, near in (("mnits", "mnist"), ("FashionMNIST", "fashion_mnist"), ("cifar-10", "cifar10"), ("x", "mnist")):
        with pytest.raises(CourseError, match=repr(near)):
            data.load(name, "train")
    for split in ("validation", "Train"):
        with pytest.raises(CourseError, match="'train' or 'test'"):
            data.load("mnist", split)
