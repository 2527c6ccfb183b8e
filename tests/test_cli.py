"""The `torchcourse` command: exit status, one clear sentence, the table of data sets."""

import pytest
from support.data_files import write_cache

from torchcourse import data
from torchcourse.commands import cli
from torchcourse.data import download

pytestmark = pytest.mark.usefixtures("no_network")


def lines(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_list_shows_what_is_where_and_what_is_broken(tmp_path, capsys, monkeypatch):
    for split in data.SPLITS:
        write_cache(tmp_path, "mnist", split)
    assert cli.main(["data", "list", "--root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert lines(out, "mnist", "train", "60,000", "kit cache", "47.5 MB", str(tmp_path / "mnist" / "train.safetensors"))
    assert lines(out, "mnist", "test", "10,000", "kit cache", "7.9 MB")
    assert lines(out, "cifar10", "train", "12,000", "synthetic", "built into the course")
    assert len(lines(out, "synthetic", "torchcourse data fetch")) == 1
    assert cli.main(["data", "fetch", "mnist", "--root", str(tmp_path)]) == 0
    assert "already there" in capsys.readouterr().out

    path = tmp_path / "mnist" / "test.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path))
    assert cli.main(["data", "list"]) == 1
    shown = capsys.readouterr()
    assert lines(shown.out, "mnist", "test", "broken", str(path))
    assert lines(shown.out, "mnist", "train", "60,000")
    assert "cut short" in shown.err and "torchcourse data fetch mnist" in shown.err
    assert cli.main(["data", "list", "--root", str(tmp_path / "nowhere")]) == 0
    assert "no such folder" in capsys.readouterr().out
    assert not (tmp_path / "nowhere").exists()


def test_a_fetch_that_fails_is_one_sentence_and_status_1(tmp_path, capsys, monkeypatch):
    """Without network, or into a folder that cannot be made. Nothing is left behind."""
    monkeypatch.delenv("TORCHCOURSE_OFFLINE")
    monkeypatch.setattr(download, "why_unreachable", lambda name: "no network: name not known")
    assert cli.main(["data", "fetch", "cifar10", "--root", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("torchcourse: CIFAR-10 was not fetched: no network") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert cli.main(["data", "fetch", "mnist", "--root", str(tmp_path / "file" / "root")]) == 1
    assert "cannot be written to" in capsys.readouterr().err


def test_fetch_takes_several_names_and_tells_a_misspelt_one_first(tmp_path, capsys, monkeypatch):
    fetched = []
    monkeypatch.setattr(download, "fetch", lambda name, root, force: fetched.append((name, force)) or "done")
    assert cli.main(["data", "fetch", "mnist", "cifra10", "--root", str(tmp_path)]) == 1
    assert "Did you mean 'cifar10'?" in capsys.readouterr().err and not fetched
    assert cli.main(["data", "fetch", "all", "--root", str(tmp_path), "--force"]) == 0
    assert fetched == [(name, True) for name in data.NAMES]


def test_a_wrong_call_shows_the_usage_and_an_empty_one_the_help(capsys):
    for wrong in (["data", "fetch"], ["frobnicate"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(wrong)
        assert caught.value.code == 2
        assert "usage: torchcourse" in capsys.readouterr().err
    assert cli.main([]) == 0
    assert "doctor" in capsys.readouterr().out
