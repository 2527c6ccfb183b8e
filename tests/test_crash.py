"""Trainings that are killed end as if nothing had happened; and the crash test would notice if they did not."""

import time

import pytest
import torch

from tools.bench import crash, crash_training
from tools.bench.crash_training import KINDS, PHASES, Board
from torchcourse import checkpoint, measurements


@pytest.fixture(scope="module")
def server():
    with crash.Server() as server:
        yield server


@pytest.mark.parametrize(
    ("name", "way", "what", "number"),
    [
        ("one process", "checkpoint", "kill", 2),
        ("two ranks", "checkpoint", "kill", 2),
        (crash.SHARDED, "dcp", "kill", 2),
        ("one process", "checkpoint", "full disk", 1),
    ],
)
def test_a_stopped_training_ends_with_the_same_weights(server, name, way, what, number):
    found = 0
    for seed in range(20):  # on a busy machine it may end before its stop
        run = server.ask({"name": name, "way": way, "stops": what, "seed": seed})
        assert run.get("error") is None
        assert run["equal"] and run["largest_difference"] == 0 and run["litter"] == 0
        assert all(stop["half"] == 0 and not stop["lost"] and stop["phase"] in PHASES for stop in run["stops"])
        found += len(run["stops"])
        if found >= number:
            return
    pytest.fail("no training could be stopped")


def test_without_a_disk_of_its_own_files_have_a_limit(monkeypatch):
    monkeypatch.setattr(crash, "namespace", list)  # as on a system that forbids mounting
    with crash.Server() as server:
        assert "limit" in server.disk
        run = server.ask({"name": "one process", "way": "checkpoint", "stops": "full disk", "seed": 0})
    assert run["equal"] and [(stop["what"], stop["half"]) for stop in run["stops"]] == [("full disk", 0)]


def test_it_sees_half_files_and_lost_ones(tmp_path):
    board = Board(tmp_path / "board")
    keeper = checkpoint.Keeper(tmp_path, last=2)
    board.begin()
    whole = keeper.save(4)
    board.saved(4)
    nothing = {"files": 1, "half": 0, "leftovers": 0, "lost": False, "step": 4}
    assert crash.look(tmp_path, board) == nothing and board.phase == "training" and board.begun == 1
    (tmp_path / "step_00000008.pt").write_bytes(whole.read_bytes()[:-1])
    (tmp_path / "step_00000008.pt.0123abcd.part").touch()
    assert crash.look(tmp_path, board) == nothing | {"files": 2, "half": 1, "leftovers": 1}
    board.saved(8)
    assert crash.look(tmp_path, board)["lost"]


def test_it_sees_one_bit():
    def file(weight=1.0, step=3):
        return {"model": {"a": torch.tensor([0.0, weight])}, "step": step, "rng": [("x", (1, torch.ones(2)))]}

    assert crash.compared(file(), file()) == {"equal": True, "largest_difference": 0.0}
    assert crash.compared(file(1 + 2**-23), file()) == {"equal": False, "largest_difference": 2**-23}
    assert not crash.compared(file(step=4), file())["equal"]
    assert not crash.compared(file() | {"rng": [("x", (1, torch.zeros(2)))]}, file())["equal"]
    assert not crash.compared(file(), file() | {"more": 1})["equal"]


def test_a_run_that_hangs_or_fails_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(crash_training, "train", lambda *arguments: 1 / 0)
    started = crash.Started(KINDS["one process"], "checkpoint", tmp_path, tmp_path)
    assert started.finish() == 1 and "ZeroDivisionError" in started.log.read_text()
    monkeypatch.setattr(crash, "PATIENCE", 0.1)
    monkeypatch.setattr(crash_training, "train", lambda *arguments: time.sleep(600))
    with pytest.raises(crash.Unexpected, match="hung while starting"):
        crash.Started(KINDS["one process"], "checkpoint", tmp_path, tmp_path).finish()


@pytest.mark.parametrize("recorded", measurements.load("crash"), ids=lambda recorded: recorded.label)
def test_what_is_recorded_is_a_proof(recorded):
    found = {(training["name"], training["way"]): training for training in recorded.results["trainings"]}
    assert list(found) == list(crash.TRAININGS)
    for (_, way), training in found.items():
        assert training["kills"] >= 100 and sum(training["phases"].values()) == training["kills"]
        assert training["litter"] == training["unequal"] == training["largest_difference"] == 0
        if way != "in place":
            assert training["full_disks"] >= 20 and training["half"] == training["lost"] == 0
        else:
            assert training["half"] > 0
