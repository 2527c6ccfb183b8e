"""The `torchcourse` command: exit status, one clear sentence, the table of data sets."""

import subprocess
import sys
import zlib

import pytest
import torch
from safetensors.torch import save_file

from torchcourse import data
from torchcourse.commands import cli
from torchcourse.data import download


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder with a whole MNIST in the cache, all its images the same."""
    (tmp_path / "mnist").mkdir()
    for split, count in (("train", 60_000), ("test", 10_000)):
        images = (torch.arange(28 * 28) % 256).byte().view(1, 1, 28, 28).repeat(count, 1, 1, 1)
        tensors = {"images": images, "labels": torch.arange(count) % 10}
        save_file(tensors, tmp_path / "mnist" / f"{split}.safetensors")
        sums = tuple(zlib.crc32(tensor.byte().numpy()) for tensor in tensors.values())
        monkeypatch.setitem(data.catalog.SPECS["mnist"].checksums, split, sums)
    return tmp_path


def lines(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_list_shows_what_is_where(root, capsys):
    assert cli.main(["data", "list", "--root", str(root)]) == 0
    out = capsys.readouterr().out
    assert lines(out, "mnist", "train", "60,000", "kit cache", "47.5 MB", str(root / "mnist" / "train.safetensors"))
    assert lines(out, "mnist", "test", "10,000", "kit cache", "7.9 MB")
    assert lines(out, "cifar10", "train", "12,000", "drawn", "built into the course")
    assert len(lines(out, "drawn", "torchcourse data fetch")) == 1


def test_list_takes_the_root_from_the_environment(root, capsys, monkeypatch):
    monkeypatch.setenv("TORCHCOURSE_DATA", str(root))
    assert cli.main(["data", "list"]) == 0
    assert lines(capsys.readouterr().out, "mnist", "60,000")


def test_list_tells_what_is_broken(root, capsys):
    path = root / "mnist" / "test.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert cli.main(["data", "list", "--root", str(root)]) == 1
    shown = capsys.readouterr()
    assert lines(shown.out, "mnist", "test", "broken", str(path))
    assert lines(shown.out, "mnist", "train", "60,000")
    assert "cut short" in shown.err and "torchcourse data fetch mnist" in shown.err


def test_list_of_a_folder_that_is_not_there(tmp_path, capsys):
    assert cli.main(["data", "list", "--root", str(tmp_path / "nowhere")]) == 0
    assert "no such folder" in capsys.readouterr().out
    assert not (tmp_path / "nowhere").exists()


def test_fetch_without_network_is_one_sentence_and_status_1(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TORCHCOURSE_OFFLINE")
    monkeypatch.setattr(download, "why_unreachable", lambda name: "no network: name not known")
    assert cli.main(["data", "fetch", "cifar10", "--root", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("torchcourse: CIFAR-10 was not fetched: no network") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_fetch_of_what_is_there(root, capsys):
    assert cli.main(["data", "fetch", "mnist", "--root", str(root)]) == 0
    assert "already there" in capsys.readouterr().out


def test_fetch_into_a_folder_that_cannot_be_made(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TORCHCOURSE_OFFLINE")
    (tmp_path / "file").write_text("")
    assert cli.main(["data", "fetch", "mnist", "--root", str(tmp_path / "file" / "root")]) == 1
    assert "cannot be written to" in capsys.readouterr().err


def test_a_misspelt_name_is_told_before_anything_is_fetched(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(download, "fetch", lambda *a, **k: pytest.fail("it fetched"))
    assert cli.main(["data", "fetch", "mnist", "cifra10", "--root", str(tmp_path)]) == 1
    assert "Did you mean 'cifar10'?" in capsys.readouterr().err


def test_fetch_all(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(download, "fetch", lambda name, root, force: fetched.append((name, force)) or "done")
    assert cli.main(["data", "fetch", "all", "--root", str(tmp_path), "--force"]) == 0
    assert fetched == [(name, True) for name in data.NAMES]


@pytest.mark.parametrize("wrong", [["data"], ["data", "fetch"], ["frobnicate"]])
def test_a_wrong_call_shows_the_usage(wrong, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(wrong)
    assert caught.value.code == 2
    assert "usage: torchcourse" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "json"), [([], False), (["--json"], True)])
def test_doctor_is_called_and_its_verdict_is_the_exit_status(monkeypatch, flags, json):
    doctor = pytest.importorskip("torchcourse.commands.doctor")
    asked = []
    monkeypatch.setattr(doctor, "main", lambda json: asked.append(json) or 1)
    assert cli.main(["doctor", *flags]) == 1
    assert asked == [json]


def test_the_command_can_be_run_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "torchcourse.commands.cli", "--help"], capture_output=True, text=True, check=True
    )
    assert "data" in done.stdout and "doctor" in done.stdout


def test_alone_it_prints_its_help(capsys):
    assert cli.main([]) == 0
    assert "doctor" in capsys.readouterr().out
