"""Checkpoints: never half a file, no litter, the right ones kept, restored exactly."""

import errno
import math
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from labcheck import ranks
from torchcourse import CourseError, checkpoint, distributed


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def training(seed=0):
    """A small model with everything that a step changes."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def steps(parts, number):
    for _ in range(number):
        noise = torch.from_numpy(np.random.rand(4, 8).astype(np.float32)) * random.random()
        parts["optimizer"].zero_grad()
        parts["model"](noise).square().sum().backward()
        parts["optimizer"].step()
        parts["scheduler"].step()


def test_a_training_goes_on_bit_for_bit(tmp_path):
    """Its steps draw from PyTorch, NumPy and Python: no random state may be missing."""
    parts, rng, path = training(), checkpoint.RngState(), tmp_path / "latest.pt"
    steps(parts, 3)
    checkpoint.save(path, **parts, rng=rng, step=3, position=(1, 2), note="half", data=torch.arange(3))
    steps(parts, 4)

    other = training(seed=5)
    np.random.rand(7), random.random(), torch.rand(3)
    rest = checkpoint.restore(path, **other, rng=rng)
    assert rest.pop("data").tolist() == [0, 1, 2] and rest == {"step": 3, "position": (1, 2), "note": "half"}
    steps(other, 4)
    assert all(map(torch.equal, parts["model"].parameters(), other["model"].parameters()))
    assert names(tmp_path) == ["latest.pt"]

    plain = torch.load(path)  # without this module, and with its default, weights_only=True
    assert plain.keys() >= {"model", "optimizer", "rng", "scheduler", "step"}
    (tmp_path / "another").touch()
    assert path.stat().st_mode == (tmp_path / "another").stat().st_mode, "others may read it, as any other file"


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
    checkpoint.save(tmp_path / "a.pt", x=1)
    for value in (np.float64(1), Path("a"), {"deep": [np.zeros(2)]}):
        with pytest.raises(CourseError, match=r"would refuse .*a\.pt"):
            checkpoint.save(tmp_path / "a.pt", x=value)
    assert names(tmp_path) == ["a.pt"] and checkpoint.restore(tmp_path / "a.pt") == {"x": 1}


def forked(work):
    """Run `work` in a forked process, to its end, and return its exit status; negative for a signal."""
    process = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    process.start()
    process.join()
    return process.exitcode


def die_at(number, work):
    """Run `work` and kill the process at the so many-th call of a function, of Python or C; return their number."""
    calls = 0

    def count(frame, event, function):
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_killed_at_any_moment_of_a_save(tmp_path):
    """The old file or the new one has the name, whole; the next save tidies up."""
    path = tmp_path / "a.pt"
    old, new = {"x": torch.zeros(5000)}, {"x": torch.ones(5000)}
    checkpoint.save(path, **old)
    whole = die_at(0, lambda: checkpoint.save(path, **new))
    found = set()
    for number in {*range(whole // 30, whole, whole // 30), *range(whole - 15, whole + 1)}:
        checkpoint.save(path, **old)
        assert names(tmp_path) == ["a.pt"]
        assert forked(lambda number=number: die_at(number, lambda: checkpoint.save(path, **new))) == -signal.SIGKILL
        found.add((checkpoint.restore(path)["x"][0].item(), len(names(tmp_path))))
    assert found == {(0, 1), (0, 2), (1, 1)}  # old; old with a leftover beside it; new


def test_only_what_a_dead_writer_left_is_removed(tmp_path, monkeypatch):
    busy = checkpoint._new_part(tmp_path / "other.pt")  # as another process that is writing
    for name in ("b.pt.0123abcd.part", "mine.part", "notes.0123.part", "c.pt"):
        (tmp_path / name).write_bytes(b"x")
    checkpoint.save(tmp_path / "a.pt", x=1)
    assert names(tmp_path) == sorted(["a.pt", "mine.part", "notes.0123.part", "c.pt", Path(busy.name).name])
    busy.close()
    checkpoint.save(tmp_path / "a.pt", x=1)
    assert Path(busy.name).name not in names(tmp_path)
    real, taken = checkpoint._lock, []

    def lock(file):
        if not taken:  # another process was quicker and has cleaned up
            taken.append(file.name)
            os.unlink(file.name)
        return real(file)

    monkeypatch.setattr(checkpoint, "_lock", lock)
    checkpoint.save(tmp_path / "d.pt", x=1)
    assert taken and checkpoint.restore(tmp_path / "d.pt") == {"x": 1}


def test_an_interrupt_leaves_no_litter(tmp_path, monkeypatch):
    checkpoint.save(tmp_path / "a.pt", x=1)

    def fail(number):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fail)
    try:
        raise OSError("one that has nothing to do with it")
    except OSError:
        with pytest.raises(KeyboardInterrupt):
            checkpoint.save(tmp_path / "a.pt", x=2)
    assert names(tmp_path) == ["a.pt"] and checkpoint.restore(tmp_path / "a.pt") == {"x": 1}


def refused(room, work):
    """Whether `work`, in a process whose files may have `room` bytes (as with a quota), says that it saved nothing."""

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            work()
        except OSError as error:
            said = "File too large; not saved, the old file is untouched" in str(error) and error.filename
            os._exit(7 if said and error.errno == errno.EFBIG else 1)

    return forked(limited) == 7


def test_a_full_disk_costs_nothing_and_says_so(tmp_path):
    """No room at all, for a part of the file, for all but its last byte."""
    path = tmp_path / "a.pt"
    size = checkpoint.save(path, x=torch.zeros(5000)).stat().st_size
    for room in (0, 1000, size - 1):
        assert refused(room, lambda: checkpoint.save(path, x=torch.ones(5000)))
        assert names(tmp_path) == ["a.pt"] and checkpoint.restore(path)["x"].sum() == 0


def test_two_writers_at_once(tmp_path):
    path = tmp_path / "a.pt"
    checkpoint.save(path, x=torch.full((5000,), -1.0))

    def write(number):
        for _ in range(15):
            checkpoint.save(path, x=torch.full((5000,), float(number)))

    writers = [multiprocessing.get_context("fork").Process(target=write, args=(n,), daemon=True) for n in range(2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        x = checkpoint.restore(path)["x"]
        assert (x == x[0]).all()
    assert [writer.exitcode for writer in writers] == [0, 0] and names(tmp_path) == ["a.pt"]


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "a.pt"
    checkpoint.save(path, x=torch.arange(5000))
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    path.write_bytes(flipped)
    assert not torch.equal(torch.load(path)["x"], torch.arange(5000))  # it does not notice
    with pytest.raises(CourseError, match=r"a\.pt is damaged: .*data/0"):
        checkpoint.restore(path)
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CourseError, match=r"a\.pt is damaged"):
            checkpoint.restore(path)


def test_foreign_files(tmp_path):
    path, model = tmp_path / "a.pt", nn.Linear(2, 2)
    before = model.weight.detach().clone()
    for make, parts, message in (
        (lambda: None, {}, "There is no checkpoint"),
        (lambda: path.write_text("a letter"), {}, "damaged or was not written by torch.save"),
        (lambda: torch.save(nn.Linear(2, 2), path), {}, r"contains objects of Python: .*Linear.* any code"),
        (lambda: torch.save(torch.ones(2), path), {}, "not a checkpoint: it contains a Tensor"),
        (lambda: torch.save(model.state_dict(), path), {}, "has no model. It holds: bias, weight"),
        (lambda: checkpoint.save(path, model=nn.Linear(2, 3)), {}, "does not fit your Linear: .*size mismatch"),
        (lambda: checkpoint.save(path, model=nn.Linear(2, 2)), {"step": 0}, "step has no load_state_dict"),
        (lambda: None, {"scheduler": model}, r"has no scheduler\. It holds: model"),
    ):
        make()
        with pytest.raises(CourseError, match=f"(?s){message}"):
            checkpoint.restore(path, model=model, **parts)
    assert torch.equal(model.weight, before), "nothing is loaded before all is found"


def kept(keeper):
    return [int(path.name[5:13]) for path in sorted(keeper.folder.iterdir())]


def test_a_damaged_newest_file_is_passed_over(tmp_path):
    keeper = checkpoint.Keeper(tmp_path, last=2)
    keeper.save(1, x=1)
    keeper.save(2, x=2).write_bytes(b"half")
    with pytest.warns(UserWarning, match="step_00000002.pt is damaged .* Passing it over"):
        assert checkpoint.restore(tmp_path)["step"] == 1
    checkpoint.Keeper(tmp_path, last=1).save(1, x=3)  # a smaller step than that of the damaged file
    assert kept(keeper) == [1, 2]
    keeper.save(2, x=4)
    assert checkpoint.restore(tmp_path)["x"] == 4
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with pytest.warns(UserWarning), pytest.raises(CourseError, match="no whole checkpoint"):
        checkpoint.restore(tmp_path)


def test_a_folder_with_nothing_other_files_and_the_same_step(tmp_path):
    """The same step replaces its file; an earlier one means that a run forgot to go on."""
    keeper = checkpoint.Keeper(tmp_path / "run", last=2, best=1)
    assert keeper.newest is None and keeper.best is None
    with pytest.raises(CourseError, match="There is no checkpoint"):
        checkpoint.restore(tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "step_1_score_good.pt").write_text("not ours")
    keeper.save(1, torch.tensor(0.75))
    keeper.save(2, np.float32(0.5))
    keeper.save(2, 0.25)
    ours = ["step_00000001_score_0.75.pt", "step_00000002_score_0.25.pt"]
    assert names(tmp_path / "run") == [*ours, "step_1_score_good.pt"]
    with pytest.raises(CourseError, match="has step 2 already, and you save step 1"):
        keeper.save(1)
    for wrong, words in (({"last": 0}, "at least 1"), ({"mode": "best"}, "mode is")):
        with pytest.raises(CourseError, match=words):
            checkpoint.Keeper(tmp_path, **wrong)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_last_and_the_best_are_kept(tmp_path, mode):
    """Against a reference that looks at all scores; in each step a new Keeper, as after a crash."""
    for last, best in ((1, 0), (2, 1), (3, 3)):
        scores, folder = [], tmp_path / f"{last}{best}"
        for step in range(12):
            scores.append(random.choice([0.25, 0.5, 0.5, 1e-7, -3.0, math.nan, None, math.inf, -math.inf]))
            keeper = checkpoint.Keeper(folder, last=last, best=best, mode=mode)
            path = keeper.save(step, scores[-1], x=step)
            rated = [i for i, score in enumerate(scores) if score is not None and not math.isnan(score)]
            rated.sort(key=lambda i: (scores[i] if mode == "min" else -scores[i], i))
            assert kept(keeper) == sorted({*range(max(0, step + 1 - last), step + 1), *rated[:best]})
            assert keeper.newest == path and checkpoint.restore(folder)["step"] == step
            if best and rated:
                assert checkpoint.restore(keeper.best)["step"] == rated[0]


def test_nothing_is_deleted_before_the_new_file_is_whole(tmp_path):
    keeper = checkpoint.Keeper(tmp_path)
    keeper.save(1, x=torch.zeros(5000))
    assert refused(1000, lambda: keeper.save(2, x=torch.ones(5000))) and kept(keeper) == [1]
    whole = die_at(0, lambda: keeper.save(2, x=1))
    for number in range(1, whole, whole // 12):
        for path in tmp_path.iterdir():
            path.unlink()
        keeper.save(1, x=1)
        assert forked(lambda number=number: die_at(number, lambda: keeper.save(2, x=1))) == -signal.SIGKILL
        assert checkpoint.restore(tmp_path)["step"] in (1, 2)


def test_a_signal_sets_the_flag_and_nothing_else():
    before = signal.getsignal(signal.SIGUSR1)
    with checkpoint.StopFlag(signal.SIGTERM, signal.SIGUSR1) as stop:
        assert not stop.is_set() and not stop.agreed()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.is_set() and stop.agreed() and stop.received is signal.SIGUSR1
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received is signal.SIGUSR1
    assert signal.getsignal(signal.SIGUSR1) == before
    stop = checkpoint.StopFlag()
    stop.set()
    assert stop.is_set() and stop.received is None
    with ThreadPoolExecutor() as pool, pytest.raises(CourseError, match="main thread"):
        pool.submit(checkpoint.StopFlag, signal.SIGTERM).result()


def test_a_signal_during_the_agreement_is_kept_for_the_next(monkeypatch):
    real = dist.all_reduce

    def interrupted(*arguments):
        real(*arguments)
        os.kill(os.getpid(), signal.SIGUSR1)

    with distributed.setup(alone=True), checkpoint.StopFlag(signal.SIGUSR1) as stop:
        monkeypatch.setattr(dist, "all_reduce", interrupted)
        assert not stop.agreed()  # the other ranks have not heard of it
        assert stop.is_set() and stop.agreed()


def stop_together():
    rank = dist.get_rank()
    with checkpoint.StopFlag(signal.SIGUSR2) as stop:
        for step in range(1, 20):
            if (step, rank) == (7, 1):
                os.kill(os.getpid(), signal.SIGUSR2)
            if stop.agreed():
                break
        time.sleep(1 - rank)  # rank 0 takes longer to save
        checkpoint.save(f"{rank}.pt", step=step)
        with pytest.raises(SystemExit) as left:
            stop.exit()
        return step, stop.received and stop.received.name, left.value.code, os.path.exists("0.pt")


def test_ranks_stop_at_the_same_step_and_leave_together():
    outcome = ranks.run(stop_together)
    assert outcome.values == [(7, None, checkpoint.AGAIN, True), (7, "SIGUSR2", checkpoint.AGAIN, True)]


ON_A_DEVICE = """
import torch
from torch import nn
from torchcourse import checkpoint, device, simgpu

def training(place):
    model = nn.Linear(3, 3).to(place)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "rng": checkpoint.RngState(place)}

here = device.best() if torch.accelerator.is_available() else simgpu.enable()
parts = training(here)
parts["model"](torch.ones(2, 3, device=here)).sum().backward()
parts["optimizer"].step()
checkpoint.save("a.pt", **parts, extra=torch.ones(2, device=here))
drawn = torch.rand(4, device=here)
for place in (here, torch.device("cpu")):
    other = training(place)
    rest = checkpoint.restore("a.pt", **other)
    assert rest["extra"].device.type == "cpu"
    assert torch.equal(other["model"].weight.cpu(), parts["model"].weight.cpu())
    moments = [value for entry in other["optimizer"].state.values() for value in entry.values() if value.ndim]
    assert moments and all(moment.device.type == place.type for moment in moments)
    assert place != here or torch.equal(torch.rand(4, device=here), drawn)
checkpoint.save("b.pt", **other)
checkpoint.restore("b.pt", **parts)
assert here.type != "cpu"
"""


@pytest.mark.gpu
def test_from_a_device_to_a_processor_and_back(tmp_path):
    """The practice GPU, where there is no real one."""
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", ON_A_DEVICE], cwd=tmp_path, env=variables, check=True)
