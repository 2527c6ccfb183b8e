"""Downloads of the data sets, with torchvision's part played by a function that writes files; and the banner."""

import os
import sys
import time
from pathlib import Path

import pytest
import torch
from support.data_files import APART, LABELS, TEST_COUNT, idx, publish, tensors, write_cache, write_idx

from torchcourse import data
from torchcourse.data import banner, catalog, download
from torchcourse.errors import CourseError

pytestmark = pytest.mark.usefixtures("no_network")


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
    downloads = []

    def mnist(root, download):
        downloads.append(Path(root))
        give_mnist(root)

    monkeypatch.delenv("TORCHCOURSE_OFFLINE")
    monkeypatch.setattr(download, "why_unreachable", lambda name: None)
    monkeypatch.setattr("torchvision.datasets.MNIST", mnist)
    return downloads


def test_download_into_the_cache_once(tmp_path, network, capsys):
    root = tmp_path / "new" / "root"
    assert data.load("mnist", "train", root).origin == "real"
    assert len(data.load("mnist", "test", root)) == TEST_COUNT
    assert [p.name for p in root.iterdir() if p.name != ".mnist.lock"] == ["mnist"], "the temporary folder is gone"
    assert sorted(p.name for p in (root / "mnist").iterdir()) == ["test.safetensors", "train.safetensors"]
    (root / "plain").touch()
    modes = {path.stat().st_mode for path in (root / "mnist").iterdir()}
    assert modes == {(root / "plain").stat().st_mode}, "others may read what is fetched for a class"
    assert "SYNTHETIC" not in capsys.readouterr().err
    assert "already there" in download.fetch("mnist", root)
    assert len(network) == 1


def test_fetch_mends_and_keeps_the_broken_file(tmp_path, network):
    path = write_cache(tmp_path / "ours", labels=LABELS + 1)
    broken = path.read_bytes()
    assert "broken-1" in download.fetch("mnist", tmp_path / "ours")
    assert data.load("mnist", "test", tmp_path / "ours").labels.max() == 9
    path.write_bytes(b"")
    download.fetch("mnist", tmp_path / "ours")
    assert path.with_name("test.safetensors.broken-1").read_bytes() == broken
    assert path.with_name("test.safetensors.broken-2").read_bytes() == b""
    write_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"  # torchvision's files stay as they are
    path.write_bytes(path.read_bytes()[:-1000])
    size = path.stat().st_size
    download.fetch("mnist", tmp_path)
    assert data.load("mnist", "test", tmp_path).origin == "real"
    assert path.stat().st_size == size


def test_a_download_that_breaks_off_or_gives_other_files_leaves_nothing(tmp_path, network, monkeypatch, capsys):
    def breaks(root, download):
        (Path(root) / "MNIST").mkdir()
        network.append(root)
        raise TimeoutError("timed out")

    def other(root, download):  # a mirror with another data set, a captive portal
        give_mnist(root)
        publish("mnist", "train", *tensors())

    for server, words in ((other, r"the download failed .*train-.* not those of MNIST"), (breaks, "timed out")):
        monkeypatch.setattr("torchvision.datasets.MNIST", server)
        with pytest.raises(CourseError, match=words):
            download.fetch("mnist", tmp_path)
        assert [p.name for p in tmp_path.iterdir()] in ([], [".mnist.lock"])
    for split in data.SPLITS:
        assert data.load("mnist", split, tmp_path).origin == "synthetic"
    assert len(network) == 2, "load tries once in a process, not at every call"
    assert [p.name for p in tmp_path.iterdir()] in ([], [".mnist.lock"])
    assert capsys.readouterr().err.count("SYNTHETIC IMAGES") == 1


def in_a_process_of_its_own(mnist) -> None:
    """What the fixture `network` does, until the process ends."""
    import torchvision.datasets

    os.environ.pop("TORCHCOURSE_OFFLINE", None)
    torchvision.datasets.MNIST = mnist
    download.why_unreachable = lambda name: None


def download_half(root: Path, started) -> None:
    """A download that never ends. started: a connection, which gets its folder."""

    def mnist(root, download):
        (Path(root) / "MNIST").mkdir()
        (Path(root) / "MNIST" / "half").write_bytes(bytes(1000))
        started.send(root)
        time.sleep(10_000)

    in_a_process_of_its_own(mnist)
    download.fetch("mnist", root)


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be removed there")
@pytest.mark.parametrize("again", ["load", "fetch"])
def test_what_a_killed_download_left_is_removed_and_a_living_one_is_left_alone(tmp_path, network, monkeypatch, again):
    others = [tmp_path / ".mnist-mine", tmp_path / ".mnist-download-notes"]
    for folder in others:
        folder.mkdir()
    ours, theirs = APART.Pipe(duplex=False)
    process = APART.Process(target=download_half, args=(tmp_path, theirs))
    process.start()
    theirs.close()
    folder = Path(ours.recv())
    assert (folder / "MNIST" / "half").exists() and folder.parent == tmp_path
    with monkeypatch.context() as offline:
        offline.setenv("TORCHCOURSE_OFFLINE", "1")
        assert data.load("mnist", "test", tmp_path).origin == "synthetic"
    assert (folder / "MNIST" / "half").exists(), "that download is in progress"
    process.kill()
    process.join()
    assert (folder / "MNIST" / "half").exists()
    if again == "load":
        write_cache(tmp_path)
        data.load("mnist", "test", tmp_path)
    else:
        download.fetch("mnist", tmp_path)
    assert not folder.exists()
    assert all(folder.is_dir() for folder in others)


def test_offline_comes_to_the_synthetic_set_at_once_and_without_network_no_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "why_unreachable", lambda name: pytest.fail("it looked for a network"))
    assert data.load("mnist", "test", tmp_path).origin == "synthetic"
    with pytest.raises(CourseError, match="TORCHCOURSE_OFFLINE"):
        download.fetch("mnist", tmp_path)
    monkeypatch.delenv("TORCHCOURSE_OFFLINE")
    monkeypatch.setattr(download, "why_unreachable", lambda name: "no network")
    assert data.load("mnist", "test", tmp_path / "new" / "root").origin == "synthetic"
    assert list(tmp_path.iterdir()) == []


def test_a_name_server_that_never_answers_is_not_waited_for(monkeypatch):
    """Looking up a host can take a minute on a machine without network, and no time-out applies to it."""
    monkeypatch.setattr(download, "_PROBE_SECONDS", 0.2)
    monkeypatch.setattr("urllib.request.urlopen", lambda *a, **k: time.sleep(60))
    assert "does not answer" in download.why_unreachable("mnist")


def load_at_once(root: Path, together, results) -> None:
    """In a process of its own, which the others wait for: load both splits."""
    torch.set_num_threads(1)  # those of the process that was forked are not here

    def mnist(where, download):
        with open(root / "downloads.txt", "a") as file:
            file.write("x")
        give_mnist(where)

    in_a_process_of_its_own(mnist)
    for split in data.SPLITS:
        publish("mnist", split, *given(split))
    together.wait()
    loaded = [data.load("mnist", split, root) for split in data.SPLITS]
    results.put([(ds.origin, len(ds), int(ds.labels.sum())) for ds in loaded])


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


def test_the_banner_comes_once_and_says_how_to_get_real_data(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    data.load("mnist", "test", tmp_path)
    assert capsys.readouterr().err == "", "only one rank shows it"
    monkeypatch.delenv("RANK")
    for name, split in (("mnist", "train"), ("mnist", "test"), ("cifar10", "test")):
        data.load(name, split, tmp_path)
    text = capsys.readouterr().err
    assert text.count("SYNTHETIC IMAGES, NOT MNIST") == 1 and text.count("SYNTHETIC IMAGES, NOT CIFAR-10") == 1
    assert f"torchcourse data fetch mnist --root {tmp_path}" in text


def test_in_jupyter_the_banner_is_html(tmp_path, capsys, monkeypatch):
    shown = []
    monkeypatch.setenv(banner.TOLD, "mnist")  # by the server that started it
    monkeypatch.setattr(banner, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
    banner.show("mnist", "a <reason>", tmp_path)
    assert 'role="alert"' in shown[0]["text/html"] and "a &lt;reason&gt;" in shown[0]["text/html"]
    assert all("torchcourse data fetch mnist" in shown[0][form] for form in ("text/html", "text/plain"))
    assert capsys.readouterr().err == ""
