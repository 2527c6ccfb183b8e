"""The data sets as objects, their loaders, the synthetic look-alikes, and the real data where there are some."""

import hashlib
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import skip_or_fail
from PIL import Image
from support.data_files import tensors, write_idx
from torch.utils.data import DataLoader

from torchcourse import data
from torchcourse.data import catalog, files, synthetic
from torchcourse.errors import CourseError

pytestmark = pytest.mark.usefixtures("no_network")


# The data set as an object


@pytest.fixture(scope="module")
def small() -> data.ImageSet:
    images, labels = tensors(count=100)
    return data.ImageSet(images, labels, tuple("0123456789"), "mnist")


def test_indexing(small):
    image, label = small[3]
    assert image.shape == (1, 28, 28) and label.shape == () and label.dtype == torch.int64
    for index in (np.int64(3), torch.tensor(3), -97):
        assert torch.equal(small[index][0], image), index
    mask = torch.zeros(100, dtype=torch.bool)
    mask[[5, 8]] = True
    for index in ([5, 8], torch.tensor([5, 8]), np.array([5, 8]), slice(5, 9, 3), range(5, 9, 3), mask, mask.tolist()):
        images, labels = small[index]
        assert torch.equal(images, small.images[[5, 8]]) and torch.equal(labels, small.labels[[5, 8]]), index
    assert small[[5]][0].shape == (1, 1, 28, 28), "a batch of one is a batch"
    assert small[[]][0].shape == (0, 1, 28, 28)
    assert len(list(small)) == 100  # iteration ends: an index past the end raises IndexError
    for wrong in (100, -101, [3, 100], torch.tensor([100]), "3", 1.5, [1.5]):
        with pytest.raises((IndexError, TypeError)):
            small[wrong]
    with pytest.raises(TypeError, match="as a list"):
        small[3, 5]


def test_a_subset_is_a_set_of_its_own_and_a_set_goes_to_a_device_as_a_whole(small):
    part, there = small.subset(torch.tensor([5, 8])), small.to("meta")
    for ds, count in ((part, 2), (there, 100)):
        assert isinstance(ds, data.ImageSet) and len(ds) == count
        assert (ds.name, ds.origin, ds.classes) == (small.name, small.origin, small.classes)
    before = small.images[5].clone()
    part.images.zero_()
    assert torch.equal(small.images[5], before)
    assert len(small.subset(range(10))) == len(small.subset(slice(10))) == len(small.subset(small.labels < 99)) // 10
    assert (there.images.device.type, there.labels.device.type, there[[3, 5]][0].device.type) == ("meta",) * 3
    assert small.to("cpu") is small


def test_images_and_labels_must_belong_together(small):
    images, labels = small.images, small.labels
    for wrong, sentence in (((images, labels[:-1]), r"int64 \[100\]"), ((images.float(), labels), "uint8")):
        with pytest.raises(CourseError, match=sentence):
            data.ImageSet(*wrong, small.classes, "mnist")


def test_plain_dataloader_and_the_courses_loader_agree(small):
    multiprocessing.set_forkserver_preload(["torch"])  # once, and not in each worker
    expected = list(DataLoader(small, batch_size=32))
    for batches in (data.loader(small, 32), data.loader(small, 32, num_workers=2)):
        batches = list(batches)
        assert [len(labels) for _, labels in batches] == [32, 32, 32, 4]
        for (a, b), (c, d) in zip(expected, batches, strict=True):
            assert torch.equal(a, c) and torch.equal(b, d)


def test_loader_fetches_each_batch_in_one_indexing(small):
    class Counting(data.ImageSet):
        asked: list = []  # noqa: RUF012

        def __getitem__(self, index):
            self.asked.append(len(index))
            return super().__getitem__(index)

    loader = data.loader(ds := Counting(small.images, small.labels, small.classes, "mnist"), 32, drop_last=True)
    assert len(loader) == len(list(loader)) == 3 and ds.asked == [32, 32, 32]


def test_a_seed_fixes_the_order_whatever_else_is_random(small):
    def orders(seed):
        loader = data.loader(small, 32, shuffle=True, seed=seed)
        epochs = []
        for _ in range(2):
            torch.rand(7)
            state = torch.get_rng_state()
            epochs.append(torch.cat([images for images, _ in loader]))
            assert torch.equal(torch.get_rng_state(), state), "the global random state is left alone"
        return epochs

    first, again, other = orders(1), orders(1), orders(2)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1]), "each epoch has an order of its own"
    assert not torch.equal(first[0], other[0])
    assert torch.equal(first[0].sum(0, dtype=torch.int64), small.images.sum(0, dtype=torch.int64)), "every image once"


def test_a_folder_of_images_is_a_set_of_upright_squares_or_refused(tmp_path):
    photo, exif = Image.new("RGB", (90, 60), "white"), Image.Exif()
    photo.paste("black", (15, 0, 45, 30))  # a corner of the square in the middle; turned upright, the right one
    exif[274] = 6  # orientation: held sideways
    for sentence, name in (("no folder", ".hidden"), ("has 0", "a"), ("has 1", "b"), ("at least 20", "b/c")):
        with pytest.raises(CourseError, match=sentence):
            data.from_folder(tmp_path / "photos", "train")
        (tmp_path / "photos" / name).mkdir(parents=True)
    for number in range(50):
        photo.save(tmp_path / "photos" / "ab"[number > 20] / f"{number}.{['jpg', 'png'][number % 2]}", exif=exif)
    (tmp_path / "photos" / "b" / "notes.txt").touch()
    with pytest.warns(UserWarning, match=r"skipped 1 .*notes\.txt"):
        train, test = (data.load(tmp_path / "photos", split) for split in data.SPLITS)
    assert (train.classes, train.images.shape, test.labels.bincount().tolist()) == (("a", "b"), (41, 3, 64, 64), [4, 5])
    assert all((ds.images[:, :, 10, 50] < 50).all() and (ds.images[:, :, 10, 10] > 200).all() for ds in (train, test))


# The synthetic look-alikes

DIGESTS = {"mnist": "e96451b363a605a2", "fashion_mnist": "4025ab71b78a5422", "cifar10": "e5ee5a7dcae38959"}


@pytest.mark.parametrize("name", data.NAMES)
def test_synthetic_sets_are_the_same_everywhere_and_have_the_form_of_the_real_ones(name, tmp_path):
    """Byte for byte, so that a recorded accuracy means the same on every machine and with every version of NumPy."""
    images, labels = synthetic.draw(name, "test", 300)
    assert hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()[:16] == DIGESTS[name]
    train, test = (data.load(name, split, tmp_path) for split in data.SPLITS)
    assert (train.origin, train.name, train.classes) == ("synthetic", name, catalog.spec(name).classes)
    assert train.images.shape[1:] == catalog.spec(name).shape and len(train) == 12_000 and len(test) == 2_000
    counts = torch.bincount(train.labels, minlength=10)
    assert counts.min() > 1_000 and counts.max() < 1_400
    seen = {image.numpy().tobytes() for image in train.images}
    assert len(seen) == len(train), "no image twice"
    assert not any(image.numpy().tobytes() in seen for image in test.images), "no test image in the training set"


# The real data


@pytest.mark.parametrize("name", data.NAMES)
def test_real_data(name):
    root = os.environ.get("TORCHCOURSE_DATA")
    if not root or not files.locate(name, "test", Path(root)):
        sentence = f"needs the real data: set TORCHCOURSE_DATA to a folder that holds {name}"
        skip_or_fail(sentence) if name == "mnist" else pytest.skip(sentence)
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
    assert done.stdout.splitlines() == ["['real', 'synthetic', 'synthetic']", "False"]
    assert done.stderr.count("NOT CIFAR-10") == done.stderr.count("SYNTHETIC IMAGES") == 1


def test_torchvision_reads_what_the_course_has(tmp_path):
    """Without any files the look-alike images are written for torchvision's own class."""
    datasets = pytest.importorskip("torchvision.datasets")
    folder = data.torchvision_root("fashion_mnist", tmp_path)
    assert folder != tmp_path and not list(tmp_path.iterdir())
    theirs, ours = datasets.FashionMNIST(folder, train=False), data.load("fashion_mnist", "test", tmp_path)
    assert torch.equal(theirs.data, ours.images[:, 0]) and torch.equal(theirs.targets, ours.labels)


def test_torchvisions_own_files_are_used_where_they_are(tmp_path):
    write_idx(tmp_path)
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (tmp_path / "MNIST" / "raw" / name).touch()
    assert data.torchvision_root("mnist", tmp_path) == tmp_path
    with pytest.raises(CourseError, match="cifar10"):
        data.torchvision_root("cifar10", tmp_path)
