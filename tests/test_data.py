"""The data sets: every way in which files can be there, be missing, or be wrong, and the synthetic look-alikes.

No test reaches for the network: TORCHCOURSE_OFFLINE is set for all of them, and where a download is tested,
torchvision's part is played by a function that writes files. Tests of the real data need TORCHCOURSE_DATA.
"""

import gzip
import hashlib
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader

from torchcourse import data
from torchcourse.data import banner, catalog, download, drawn, files
from torchcourse.errors import CourseError

TEST_COUNT = 10_000  # of all three test sets
# Processes that need not be new ones are forked where that is safe: importing PyTorch and torchvision takes seconds.
APART = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


@pytest.fixture(autouse=True)
def _no_network_no_memory(monkeypatch):
    """Each test starts like a new process on a machine without network."""
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    monkeypatch.setattr(data.sets, "_gave_up", None)
    monkeypatch.setattr(banner, "_shown", set())
    monkeypatch.setenv(banner.TOLD, "")
    for what in catalog.SPECS.values():
        for split, sums in what.checksums.items():
            monkeypatch.setitem(what.checksums, split, sums)  # put back after a test that calls `publish`


def publish(name: str, split: str, images: torch.Tensor, labels: torch.Tensor) -> None:
    """From now on these are the published data set: the checksums say so."""
    sums = tuple(zlib.crc32(tensor.byte().numpy()) for tensor in (images.contiguous(), labels))
    catalog.spec(name).checksums[split] = sums


def needs_real_data() -> Path:
    """The folder of the real data; skips the test where there is none, fails it in CI."""
    folder = os.environ.get("TORCHCOURSE_DATA")
    if folder and files.locate("mnist", "test", Path(folder)):
        return Path(folder)
    sentence = "needs the real data: set TORCHCOURSE_DATA to a folder that holds MNIST"
    pytest.fail(sentence) if os.environ.get("CI") == "true" else pytest.skip(sentence)


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


def write_cifar_batch(path: Path, **changed) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = tensors("cifar10")
    publish("cifar10", "test", images, labels)
    batch = {b"data": images.reshape(TEST_COUNT, -1).numpy(), b"labels": labels.tolist()} | changed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(batch, protocol=2))
    return images, labels


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


@pytest.mark.parametrize(("damage", "words"), DAMAGE, ids=[f.__name__[1:] for f, _ in DAMAGE])
def test_damaged_cache(tmp_path, damage, words):
    path = write_cache(tmp_path)
    damage(path)
    expect_error(tmp_path, path, words)


@pytest.mark.parametrize("kind", ["images-idx3", "labels-idx1"])
@pytest.mark.parametrize(("damage", "words"), DAMAGE, ids=[f.__name__[1:] for f, _ in DAMAGE])
def test_damaged_idx_files(tmp_path, damage, words, kind):
    write_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / f"t10k-{kind}-ubyte"
    damage(path)
    expect_error(tmp_path, path, words)


@pytest.mark.parametrize(("damage", "words"), [*DAMAGE[:-1], (_noise, "gzip")], ids=[f.__name__[1:] for f, _ in DAMAGE])
def test_damaged_gz_files(tmp_path, damage, words):
    write_idx(tmp_path, packed=True)
    path = tmp_path / "MNIST" / "raw" / "t10k-images-idx3-ubyte.gz"
    damage(path)
    expect_error(tmp_path, path, words)


@pytest.mark.parametrize(("damage", "words"), [(_cut, "cut short"), (_web_page, "web page"), (_noise, "test_batch")])
def test_damaged_cifar_batch(tmp_path, damage, words):
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    write_cifar_batch(path)
    damage(path)
    expect_error(tmp_path, path, words, "cifar10")


def test_cifar_batch_of_another_shape(tmp_path):
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    write_cifar_batch(path)
    path.write_bytes(pickle.dumps({b"data": np.zeros((10, 3072), np.uint8), b"labels": [0] * 10}, protocol=2))
    expect_error(tmp_path, path, r"\(10, 3072\)", "cifar10")


IMAGES, LABELS = tensors()
WRONG_CACHES = {
    "float images": ({"images": IMAGES[:, :, :2, :2].float()}, "type F32"),
    "transposed": ({"images": IMAGES.permute(0, 2, 3, 1).contiguous()}, "shape"),
    "too few": ({"images": IMAGES[:10].clone(), "labels": LABELS[:10].clone()}, "10000"),
    "labels of another length": ({"labels": LABELS[:-1].clone()}, "9999"),
    "labels of another type": ({"labels": LABELS.int()}, "I32"),
    "label 10": ({"labels": LABELS + 1}, "labels from 1 to 10"),
    "label -1": ({"labels": LABELS - 1}, "labels from -1 to 8"),
    "no labels": ({"labels": None}, "no 'labels'"),
    "labels all zero": ({"labels": torch.zeros(TEST_COUNT, dtype=torch.int64)}, "holds the label 0 only"),
    "two labels exchanged": ({"labels": LABELS.roll(1)}, "labels that are not those of MNIST"),
    "one wrong label": ({"labels": torch.cat([LABELS[:-1], 9 - LABELS[-1:]])}, "labels that are not those of MNIST"),
    "images all zero": ({"images": torch.zeros_like(IMAGES)}, "single color"),
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
        ("labels-idx1", torch.zeros(TEST_COUNT), "holds the label 0 only"),
        ("labels-idx1", LABELS.flip(0), "labels that are not those of MNIST"),
        ("images-idx3", torch.zeros(TEST_COUNT, 28, 28), "single color"),
        ("images-idx3", IMAGES[:, 0].flip(0), "images that are not those of MNIST"),
    ],
)
def test_idx_files_that_are_whole_but_wrong(tmp_path, kind, values, words):
    write_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / f"t10k-{kind}-ubyte"
    path.write_bytes(idx(values))
    expect_error(tmp_path, path, words)


def test_idx_file_with_bytes_to_spare(tmp_path):
    write_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes() + b"\0")
    expect_error(tmp_path, path, "too long")


def test_images_without_labels(tmp_path):
    write_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
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


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("mnits", "mnist"),
        ("MNIST", "mnist"),
        ("FashionMNIST", "fashion_mnist"),
        ("cifar-10", "cifar10"),
        ("x", "mnist"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, near):
    with pytest.raises(CourseError, match=repr(near)):
        data.load(name, "train")


def test_an_unknown_split():
    with pytest.raises(CourseError, match=r"'train' or 'test'.*subset"):
        data.load("mnist", "validation")
    with pytest.raises(CourseError, match="'train' or 'test'"):
        data.load("mnist", "Train")


# The data set as an object


@pytest.fixture(scope="module")
def small() -> data.ImageSet:
    images, labels = tensors(count=100)
    return data.ImageSet(images, labels, tuple("0123456789"), "mnist")


def test_indexing(small):
    image, label = small[3]
    assert image.shape == (1, 28, 28) and label.shape == () and label.dtype == torch.int64
    assert torch.equal(small[-1][0], small.images[99])
    assert torch.equal(small[np.int64(3)][0], image) and torch.equal(small[torch.tensor(3)][0], image)
    mask = torch.zeros(100, dtype=torch.bool)
    mask[[5, 8]] = True
    for index in ([5, 8], torch.tensor([5, 8]), np.array([5, 8]), slice(5, 9, 3), range(5, 9, 3), mask, mask.tolist()):
        images, labels = small[index]
        assert torch.equal(images, small.images[[5, 8]]), index
        assert torch.equal(labels, small.labels[[5, 8]]), index
    for index in ([5], torch.tensor([5]), np.array([5])):  # a batch of one is a batch
        assert small[index][0].shape == (1, 1, 28, 28) and small[index][1].shape == (1,), index
    assert small[[]][0].shape == (0, 1, 28, 28)
    assert len(list(small)) == 100  # iteration ends: an index past the end raises IndexError
    for beyond in (100, -101, [3, 100], torch.tensor([100])):
        with pytest.raises(IndexError):
            small[beyond]
    for nonsense in ("3", 1.5, [1.5]):
        with pytest.raises((TypeError, IndexError)):
            small[nonsense]
    with pytest.raises(TypeError, match="as a list"):
        small[3, 5]


def test_subset_is_a_set_of_its_own(small):
    part = small.subset(torch.tensor([5, 8]))
    assert isinstance(part, data.ImageSet) and len(part) == 2
    assert (part.name, part.origin, part.classes) == (small.name, small.origin, small.classes)
    before = small.images[5].clone()
    part.images.zero_()
    assert torch.equal(small.images[5], before)
    assert len(small.subset(range(10))) == len(small.subset(slice(10))) == len(small.subset(small.labels < 99)) // 10


def test_a_set_goes_to_a_device_as_a_whole(small):
    there = small.to("meta")
    assert (there.images.device.type, there.labels.device.type, len(there)) == ("meta", "meta", len(small))
    assert (there.name, there.origin, there.classes) == (small.name, small.origin, small.classes)
    assert there[[3, 5]][0].device.type == "meta" and small.images.device.type == "cpu"
    assert small.to("cpu") is small


def test_images_and_labels_must_belong_together(small):
    with pytest.raises(CourseError, match=r"labels must be int64 \[100\]"):
        data.ImageSet(small.images, small.labels[:-1], small.classes, "mnist")
    with pytest.raises(CourseError, match="uint8"):
        data.ImageSet(small.images.float(), small.labels, small.classes, "mnist")


def test_pickle(small):
    again = pickle.loads(pickle.dumps(small))
    assert torch.equal(again.images, small.images) and repr(again) == repr(small)


CONTEXTS = [None, *(c for c in ("fork", "forkserver") if c in multiprocessing.get_all_start_methods())]


@pytest.mark.parametrize("context", CONTEXTS)
def test_plain_dataloader_and_the_courses_loader_agree(small, context):
    options = {"num_workers": 2, "multiprocessing_context": context} if context else {}
    multiprocessing.set_forkserver_preload(["torch"])  # once, and not in each worker
    plain = list(DataLoader(small, batch_size=32, **options))
    ours = list(data.loader(small, 32, **options))
    assert [len(labels) for _, labels in ours] == [32, 32, 32, 4]
    for (a, b), (c, d) in zip(plain, ours, strict=True):
        assert torch.equal(a, c) and torch.equal(b, d)


def test_loader_fetches_each_batch_in_one_indexing(small):
    class Counting(data.ImageSet):
        asked: list = []  # noqa: RUF012

        def __getitem__(self, index):
            self.asked.append(index)
            return super().__getitem__(index)

    ds = Counting(small.images, small.labels, small.classes, "mnist")
    loader = data.loader(ds, 32, drop_last=True)
    assert len(loader) == len(list(loader)) == 3
    assert [len(index) for index in ds.asked] == [32, 32, 32]


def test_a_seed_fixes_the_order_whatever_else_is_random(small):
    def orders(seed):
        loader = data.loader(small, 32, shuffle=True, seed=seed)
        epochs = []
        for _ in range(2):
            torch.rand(7)
            epochs.append(torch.cat([images for images, _ in loader]))
        return epochs

    first, again, other = orders(1), orders(1), orders(2)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1]), "each epoch has an order of its own"
    assert not torch.equal(first[0], other[0])
    assert torch.equal(first[0].sum(0, dtype=torch.int64), small.images.sum(0, dtype=torch.int64)), "every image once"
    state = torch.get_rng_state()
    list(data.loader(small, 32, shuffle=True, seed=1))
    assert torch.equal(torch.get_rng_state(), state), "the global random state is left alone"


# Downloads, with torchvision's part played


def given(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What the server of these tests gives: images [N, 28, 28], all the same, and their labels."""
    count = catalog.spec("mnist").counts[split]
    return (torch.arange(28 * 28) % 256).byte().view(1, 28, 28).repeat(count, 1, 1), torch.arange(count) % 10


def give_mnist(root: Path) -> None:
    """torchvision's part: write the files of MNIST."""
    raw = Path(root) / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for prefix, split in (("train", "train"), ("t10k", "test")):
        images, labels = given(split)
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(labels))
        publish("mnist", split, images, labels)


@pytest.fixture
def network(monkeypatch):
    """A network whose only server gives small MNIST files; returns the list of downloads that took place."""
    import torchvision.datasets

    downloads = []

    def mnist(root, download):
        downloads.append(Path(root))
        give_mnist(root)

    monkeypatch.delenv("TORCHCOURSE_OFFLINE")
    monkeypatch.setattr(download, "why_unreachable", lambda name: None)
    monkeypatch.setattr(torchvision.datasets, "MNIST", mnist)
    return downloads


def test_download_into_the_cache_once(tmp_path, network, capsys):
    root = tmp_path / "new" / "root"
    assert data.load("mnist", "train", root).origin == "real"
    assert len(data.load("mnist", "test", root)) == TEST_COUNT
    assert len(network) == 1
    assert sorted(p.name for p in root.iterdir() if not p.name.startswith(".")) == ["mnist"]
    assert sorted(p.name for p in (root / "mnist").iterdir()) == ["test.safetensors", "train.safetensors"]
    assert not list(root.glob(".mnist-*")), "the temporary folder is gone"
    (root / "plain").touch()
    modes = {path.stat().st_mode for path in (root / "mnist").iterdir()}
    assert modes == {(root / "plain").stat().st_mode}, "others may read what is fetched for a class"
    assert "DRAWN" not in capsys.readouterr().err
    assert "already there" in download.fetch("mnist", root)
    assert len(network) == 1


def test_fetch_mends_and_keeps_the_broken_file(tmp_path, network):
    path = write_cache(tmp_path, labels=LABELS + 1)
    broken = path.read_bytes()
    assert "broken-1" in download.fetch("mnist", tmp_path)
    assert path.with_name("test.safetensors.broken-1").read_bytes() == broken
    assert data.load("mnist", "test", tmp_path).labels.max() == 9
    _empty(path)
    download.fetch("mnist", tmp_path)
    assert path.with_name("test.safetensors.broken-2").read_bytes() == b""
    assert path.with_name("test.safetensors.broken-1").read_bytes() == broken


def test_fetch_mends_torchvisions_files_without_touching_them(tmp_path, network):
    write_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    _cut(path)
    size = path.stat().st_size
    download.fetch("mnist", tmp_path)
    assert data.load("mnist", "test", tmp_path).origin == "real"
    assert path.stat().st_size == size


def test_a_download_that_breaks_off_leaves_nothing(tmp_path, network, monkeypatch, capsys):
    import torchvision.datasets

    def breaks(root, download):
        (Path(root) / "MNIST").mkdir()
        network.append(root)
        raise TimeoutError("timed out")

    monkeypatch.setattr(torchvision.datasets, "MNIST", breaks)
    with pytest.raises(CourseError, match="timed out"):
        download.fetch("mnist", tmp_path)
    assert data.load("mnist", "train", tmp_path).origin == "drawn"
    assert data.load("mnist", "test", tmp_path).origin == "drawn"
    assert len(network) == 2, "load tries once in a process, not at every call"
    assert [p.name for p in tmp_path.iterdir()] in ([], [".mnist.lock"])
    assert capsys.readouterr().err.count("DRAWN IMAGES") == 1


def test_a_server_that_gives_other_files_is_not_believed(tmp_path, network, monkeypatch):
    """A mirror with another data set, a captive portal: nothing is put in place, what is there stays."""
    import torchvision.datasets

    def other(root, download):
        give_mnist(root)
        publish("mnist", "train", *tensors())

    monkeypatch.setattr(torchvision.datasets, "MNIST", other)
    with pytest.raises(CourseError, match=r"the download failed .*train-.* not those of MNIST"):
        download.fetch("mnist", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] in ([], [".mnist.lock"])


def download_half(root: Path, started) -> None:
    """In a process of its own: a download that never ends. started: a connection, which gets its folder."""
    import torchvision.datasets

    def mnist(root, download):
        (Path(root) / "MNIST").mkdir()
        (Path(root) / "MNIST" / "half").write_bytes(bytes(1000))
        started.send(root)
        time.sleep(10_000)

    os.environ.pop("TORCHCOURSE_OFFLINE", None)
    torchvision.datasets.MNIST = mnist
    download.why_unreachable = lambda name: None
    download.fetch("mnist", root)


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be removed there")
@pytest.mark.parametrize("again", ["load", "load what is there", "fetch"])
def test_what_a_killed_download_left_is_removed_and_a_living_one_is_left_alone(tmp_path, network, monkeypatch, again):
    (tmp_path / ".mnist-mine").mkdir()
    (tmp_path / ".mnist-download-notes").mkdir()
    ours, theirs = APART.Pipe(duplex=False)
    process = APART.Process(target=download_half, args=(tmp_path, theirs))
    process.start()
    theirs.close()
    folder = Path(ours.recv())
    assert (folder / "MNIST" / "half").exists() and folder.parent == tmp_path
    with monkeypatch.context() as offline:
        offline.setenv("TORCHCOURSE_OFFLINE", "1")
        assert data.load("mnist", "test", tmp_path).origin == "drawn"
    assert (folder / "MNIST" / "half").exists(), "that download is in progress"
    process.kill()
    process.join()
    assert (folder / "MNIST" / "half").exists()
    if again == "load what is there":
        write_cache(tmp_path)
    elif again == "load":
        monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    data.load("mnist", "test", tmp_path) if again.startswith("load") else download.fetch("mnist", tmp_path)
    assert not folder.exists()
    assert (tmp_path / ".mnist-mine").is_dir() and (tmp_path / ".mnist-download-notes").is_dir()


def test_offline_comes_to_the_drawn_set_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "why_unreachable", lambda name: pytest.fail("it looked for a network"))
    assert data.load("mnist", "test", tmp_path).origin == "drawn"
    with pytest.raises(CourseError, match="TORCHCOURSE_OFFLINE"):
        download.fetch("mnist", tmp_path)


def test_without_network_no_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHCOURSE_OFFLINE")
    monkeypatch.setattr(download, "why_unreachable", lambda name: "no network")
    assert data.load("mnist", "test", tmp_path / "new" / "root").origin == "drawn"
    assert list(tmp_path.iterdir()) == []


def test_a_name_server_that_never_answers_is_not_waited_for(monkeypatch):
    """Looking up a host can take a minute on a machine without network, and no time-out applies to it."""
    import urllib.request

    monkeypatch.setattr(download, "_PROBE_SECONDS", 0.2)
    monkeypatch.setattr(urllib.request, "urlopen", lambda *a, **k: time.sleep(60))
    assert "does not answer" in download.why_unreachable("mnist")


def load_at_once(root: Path, together, results) -> None:
    """In a process of its own, which the others wait for: load both splits, with torchvision's part played."""
    import torchvision.datasets

    torch.set_num_threads(1)  # those of the process that was forked are not here

    def mnist(where, download):
        with open(root / "downloads.txt", "a") as file:
            file.write("x")
        give_mnist(where)

    os.environ.pop("TORCHCOURSE_OFFLINE", None)
    for split in data.SPLITS:
        publish("mnist", split, *given(split))
    torchvision.datasets.MNIST = mnist
    download.why_unreachable = lambda name: None
    together.wait()
    loaded = [data.load("mnist", split, root) for split in ("train", "test")]
    results.put([(ds.origin, len(ds), int(ds.labels.sum())) for ds in loaded])


@pytest.mark.slow
def test_several_processes_at_once(tmp_path):
    together, results = APART.Barrier(2), APART.Queue()
    processes = [APART.Process(target=load_at_once, args=(tmp_path, together, results)) for _ in range(2)]
    for process in processes:
        process.start()
    for _ in processes:
        assert results.get(timeout=600) == [("real", 60_000, 270_000), ("real", 10_000, 45_000)]
    for process in processes:
        process.join()
    if sys.platform != "win32":
        assert (tmp_path / "downloads.txt").read_text() == "x", "one downloads, the other waits"
    assert not list(tmp_path.glob(".mnist-*"))


# The banner


def test_the_banner_comes_once_and_says_how_to_get_real_data(tmp_path, capsys):
    for split in ("train", "test"):
        data.load("mnist", split, tmp_path)
    data.load("cifar10", "test", tmp_path)
    text = capsys.readouterr().err
    assert text.count("DRAWN IMAGES, NOT MNIST") == 1 and text.count("DRAWN IMAGES, NOT CIFAR-10") == 1
    assert f"torchcourse data fetch mnist --root {tmp_path}" in text


def test_only_one_rank_shows_the_banner(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    data.load("mnist", "test", tmp_path)
    assert capsys.readouterr().err == ""


def test_in_jupyter_the_banner_is_html(tmp_path, capsys, monkeypatch):
    shown = []
    monkeypatch.setenv(banner.TOLD, "mnist")  # by the server that started it
    monkeypatch.setattr(banner, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
    banner.show("mnist", "a <reason>", tmp_path)
    assert 'role="alert"' in shown[0]["text/html"] and "a &lt;reason&gt;" in shown[0]["text/html"]
    assert (
        "torchcourse data fetch mnist" in shown[0]["text/html"] and "torchcourse data fetch" in shown[0]["text/plain"]
    )
    assert capsys.readouterr().err == ""


# The synthetic look-alikes

DIGESTS = {
    "mnist": "e96451b363a605a2",
    "fashion_mnist": "4025ab71b78a5422",
    "cifar10": "e5ee5a7dcae38959",
}


@pytest.mark.parametrize("name", data.NAMES)
def test_drawn_sets_are_the_same_everywhere(name):
    """Byte for byte, so that a recorded accuracy means the same on every machine and with every version of NumPy."""
    images, labels = drawn.draw(name, "test", 300)
    assert hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()[:16] == DIGESTS[name]


@pytest.mark.parametrize("name", data.NAMES)
def test_drawn_sets_have_the_form_of_the_real_ones(name, tmp_path):
    train, test = (data.load(name, split, tmp_path) for split in data.SPLITS)
    assert (train.origin, train.name, train.classes) == ("drawn", name, catalog.spec(name).classes)
    assert train.images.shape[1:] == catalog.spec(name).shape and len(train) == 12_000 and len(test) == 2_000
    counts = torch.bincount(train.labels, minlength=10)
    assert counts.min() > 1_000 and counts.max() < 1_400
    seen = {image.numpy().tobytes() for image in train.images}
    assert len(seen) == len(train), "no image twice"
    assert not any(image.numpy().tobytes() in seen for image in test.images), "no test image in the training set"


def accuracy(net: nn.Module, train: data.ImageSet, test: data.ImageSet, epochs: int) -> float:
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in data.MEAN_STD[train.name])
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(epochs):
        for images, labels in data.loader(train, 64, shuffle=True, seed=0):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net((images / 255 - mean) / std), labels).backward()
            optimizer.step()
    with torch.no_grad():
        predictions = net((test.images / 255 - mean) / std).argmax(1)
    return 100 * (predictions == test.labels).float().mean().item()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "margin"), [("mnist", 6), ("fashion_mnist", 4), ("cifar10", 15)])
def test_a_cnn_has_something_to_learn_that_a_linear_model_cannot(name, margin, tmp_path):
    """3,000 images show it; measured differences are about twice the margins or more."""
    train, test = data.load(name, "train", tmp_path).subset(slice(3_000)), data.load(name, "test", tmp_path)
    channels, size, _ = train.images.shape[1:]
    torch.manual_seed(0)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, 10))
    cnn = nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (size // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    by_linear, by_cnn = accuracy(linear, train, test, 2), accuracy(cnn, train, test, 2)
    print(name, by_linear, by_cnn)
    assert by_linear > 13, "guessing gives 10"
    assert by_cnn - by_linear > margin
    assert by_cnn < 99.8, "nothing left to learn"


# The real data


@pytest.mark.parametrize("name", data.NAMES)
def test_real_data(name):
    root = needs_real_data()
    if files.locate(name, "test", root) is None:
        pytest.skip(f"needs the real data: no {name} under TORCHCOURSE_DATA")
    what = catalog.spec(name)
    train, test = (data.load(name, split, root) for split in data.SPLITS)
    assert train.origin == test.origin == "real"
    assert (len(train), len(test)) == (what.counts["train"], what.counts["test"])
    assert torch.bincount(test.labels).tolist() == [1000] * 10 or name == "mnist"
    values = train.images[::10].double() / 255
    assert torch.allclose(values.mean((0, 2, 3)), torch.tensor(what.mean, dtype=torch.double), atol=0.01)
    assert torch.allclose(values.std((0, 2, 3)), torch.tensor(what.std, dtype=torch.double), atol=0.01)


NEW = """
import sys
from torchcourse import data
root, checksums = sys.argv[1], eval(sys.argv[2])
data.catalog.SPECS["mnist"].checksums["test"] = checksums
print([data.load(name, "test", root).origin for name in ("mnist", "fashion_mnist", "cifar10")])
print("torchvision" in sys.modules)
"""


def test_a_new_process_reads_and_draws_without_torchvision_and_tells_only_what_is_new(tmp_path):
    """Importing torchvision takes longer than reading the data. And what the process that started it has told, it
    does not tell again."""
    data.load("fashion_mnist", "test", tmp_path)
    write_idx(tmp_path)
    words = [sys.executable, "-c", NEW, str(tmp_path), str(catalog.spec("mnist").checksums["test"])]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['real', 'drawn', 'drawn']", "False"]
    assert done.stderr.count("NOT CIFAR-10") == done.stderr.count("DRAWN IMAGES") == 1


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_torchvision_reads_what_the_course_has(tmp_path, monkeypatch, name):
    """Without any files the look-alike images are written for torchvision's own class."""
    datasets = pytest.importorskip("torchvision.datasets")
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    folder = data.torchvision_root(name, tmp_path)
    assert folder != tmp_path and not list(tmp_path.iterdir())
    theirs = getattr(datasets, catalog.spec(name).torchvision)(folder, train=False)
    ours = data.load(name, "test", tmp_path)
    assert torch.equal(theirs.data, ours.images[:, 0]) and torch.equal(theirs.targets, ours.labels)


def test_torchvisions_own_files_are_used_where_they_are(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for prefix in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (raw / f"{prefix}-{kind}-ubyte").touch()
    assert data.torchvision_root("mnist", tmp_path) == tmp_path


def test_torchvision_root_is_for_mnist_alone(tmp_path):
    with pytest.raises(CourseError, match="cifar10"):
        data.torchvision_root("cifar10", tmp_path)
