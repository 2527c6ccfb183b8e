"""Checkpoints: files that are never half written, the right ones kept, and runs that stop and continue exactly.

    keeper = checkpoint.Keeper("run", last=2, best=1)
    parts = dict(model=model, optimizer=optimizer, scheduler=scheduler, rng=checkpoint.RngState())
    step = 0
    if keeper.newest:
        step = checkpoint.restore("run", **parts)["step"]
    with checkpoint.StopFlag(signal.SIGTERM, signal.SIGUSR1) as stop:
        while step < steps:
            train(step)
            step += 1
            stopping = stop.agreed()  # asked once a step: a signal may come between two questions
            if stopping or step % 100 == 0 or step == steps:
                keeper.save(step, **parts)  # with several ranks: on rank 0 only
            if stopping:
                stop.exit()  # all ranks together: nobody leaves while rank 0 is saving

A checkpoint is a dict that `torch.load` reads with its default `weights_only=True`: you can read one without this
module. A part is anything with `state_dict()` and `load_state_dict()`: a model, an optimizer, a scheduler, a
GradScaler, an averaged model, `RngState`. Whatever else you save (the position, a configuration, a tensor) comes back
as it was.
"""

import contextlib
import math
import os
import pickle
import random
import re
import secrets
import signal
import sys
import threading
import warnings
import zipfile
import zlib
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Literal, NamedTuple, NoReturn

import numpy as np
import torch
import torch.distributed as dist

from torchcourse import device as devices
from torchcourse.errors import CourseError

try:
    import fcntl
except ImportError:  # Windows: works as well, but what a killed process leaves behind stays there
    fcntl = None

__all__ = ["AGAIN", "Keeper", "RngState", "StopFlag", "restore", "save"]

AGAIN = 75  # exit status "stopped, start me again": EX_TEMPFAIL of sysexits.h, a failure that passes


# ---------------------------------------- one file


def save(path: str | os.PathLike, /, **parts: Any) -> Path:
    """Write a checkpoint so that `path` is always a whole file: the old one until the new one is complete.

    path: the file, in a folder that exists. What you save goes to a new file beside it, `NAME.XXXXXXXX.part`, then
        to the disk (fsync), is read back without its tensors, and only then gets the name `path`, in one step (rename).
    parts: by name. Whatever has a `state_dict()` is saved as that, anything else as it is.

    Raises OSError if the file cannot be written (a full disk, a quota, no permission), and CourseError if
    `torch.load` would refuse it, which you want to know now and not after the crash: NumPy's numbers and arrays, paths
    and other Python objects. In both cases the old file is untouched and the new one is gone. What a killed process
    left behind is removed by the next save into the same folder. Several processes may save at once; the last one wins.

    Why fsync: a machine that loses power may otherwise come back with the new name but without the data, see
    https://lwn.net/Articles/457667/.
    """
    path = Path(path)
    state = {name: part.state_dict() if hasattr(part, "state_dict") else part for name, part in parts.items()}
    outer = sys.exception()  # one that our caller is handling, which is not ours
    _remove_leftovers(path.parent)
    file = _new_part(path)
    part = Path(file.name)
    try:
        with file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
            _try_to_load(part, path)
            if fcntl:  # before the lock goes with the file
                os.replace(part, path)
        if not fcntl:  # Windows renames no open file
            os.replace(part, path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        # torch.save says "unexpected pos"; the system's error is behind it.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(cause, OSError) and cause is not outer:
            raise OSError(cause.errno, f"{cause.strerror}; not saved, the old file is untouched", str(path)) from error
        raise
    _sync_folder(path.parent)
    return path


def restore(path: str | os.PathLike, /, **parts: Any) -> dict[str, Any]:
    """Load a checkpoint into parts, on whatever device they are; return the rest of it, with tensors on the CPU.

    path: a file, or a folder of a `Keeper`: then its newest whole file. A damaged one is passed over with a warning.
    parts: by the names under which they were saved, each with `load_state_dict()`. The file may hold more.

    Raises CourseError if there is no checkpoint, if the file is damaged (cut off, or a bit has flipped: `torch.load`
    alone would not notice), holds Python objects (which may run any code when they are loaded), lacks a part, or if a
    part does not fit. Nothing is changed before all of the file is read and every part is found in it.
    """
    path = Path(path)
    for name, part in parts.items():
        if not hasattr(part, "load_state_dict"):
            raise CourseError(f"{name} has no load_state_dict(): leave it out; it is in what restore() returns.")
    if path.is_dir():
        path = _newest_whole(path)
    elif damage := _damage(path):
        raise CourseError(damage)
    state = _read(path)
    if missing := sorted(parts.keys() - state.keys()):
        there = ", ".join(sorted(state)) or "nothing"
        raise CourseError(f"{path} has no {' and no '.join(missing)}. It holds: {there}.")
    for name, part in parts.items():
        try:
            part.load_state_dict(state.pop(name))
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CourseError(f"{name} in {path} does not fit your {type(part).__name__}: {error}") from error
    return state


# ---------------------------------------- several files


class Keeper:
    """A folder of checkpoints, `step_00000040.pt` or `step_00000040_score_0.9731.pt`, that keeps the right ones.

    folder: made with the first save. The names of the files are all that is remembered: you may copy or delete some.
    last: how many of the newest to keep, at least 1.
    best: how many of those with the best scores to keep in addition.
    mode: "max" if a large score is good (an accuracy), "min" if a small one is (a loss).

    Of equal scores the older one is better, so that a best file, which you may have tested or copied, is only replaced
    if another one beats it. A score of nan, or none at all, is never among the best.
    """

    def __init__(
        self, folder: str | os.PathLike, *, last: int = 1, best: int = 0, mode: Literal["max", "min"] = "max"
    ) -> None:
        if last < 1 or best < 0:
            raise CourseError(f"last is at least 1 and best at least 0; you have last={last} and best={best}.")
        if mode not in ("max", "min"):
            raise CourseError(f'mode is "max" (an accuracy) or "min" (a loss), not {mode!r}.')
        self.folder = Path(folder)
        self._last, self._best, self._sign = last, best, 1 if mode == "max" else -1

    def save(self, step: int, score: float | None = None, **parts: Any) -> Path:
        """Save parts together with "step" and "score", then delete the files that are no longer wanted.

        step: the number of steps (or epochs) done; not below that of a whole file in the folder.
        score: of this state on the validation set.
        parts: as for `save`.

        Raises what `save` raises, before anything is deleted, and CourseError if the folder has a later step already:
        then this run did not continue from its newest file.
        """
        score = None if score is None else float(score)
        for later in _files(self.folder):
            if later.step > step and not _damage(later.path):
                raise CourseError(
                    f"{self.folder} has step {later.step} already, and you save step {step}. Continue from there with "
                    "restore(), delete the later files, or choose another folder."
                )
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"step_{step:08d}" + ("" if score is None else f"_score_{score!r}") + ".pt"
        path = save(self.folder / name, **parts, step=step, score=score)
        # Files of later steps are damaged: they don't count, and the same step will replace them.
        files = [file for file in _files(self.folder) if file.step < step] + [_File(step, score, path)]
        keep = {file.path for file in files[-self._last :] + self._ranked(files)[: self._best]}
        for file in _files(self.folder):
            if file.step <= step and file.path not in keep:
                file.path.unlink(missing_ok=True)
        return path

    @property
    def newest(self) -> Path | None:
        """The file of the latest step; None if there is none. `restore(folder)` also looks whether it is whole."""
        files = _files(self.folder)
        return files[-1].path if files else None

    @property
    def best(self) -> Path | None:
        """The file with the best score; None if no file has one."""
        ranked = self._ranked(_files(self.folder))
        return ranked[0].path if ranked else None

    def _ranked(self, files: list["_File"]) -> list["_File"]:
        """Those with a score, best first. `sorted` keeps the order of equal ones, which is that of the steps."""
        scored = [file for file in files if file.score is not None and not math.isnan(file.score)]
        return sorted(scored, key=lambda file: -self._sign * file.score)


# ---------------------------------------- random numbers


class RngState:
    """The random states of this process as a part of a checkpoint: PyTorch's, the device's, NumPy's and Python's.

    device: the device whose random state to keep as well; None means `torchcourse.device.best()`.

    A generator that you made yourself (`torch.Generator()`, `np.random.default_rng()`) has a state of its own: save
    `generator.get_state()` or `generator.bit_generator.state` beside it. Each rank has states of its own, too.
    A file from a GPU restores the other three states on a CPU, and the other way round.
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        self._device = devices.best() if device is None else torch.device(device)

    def state_dict(self) -> dict[str, Any]:
        """The four states as tensors and plain numbers."""
        name, keys, *rest = np.random.get_state()
        state = {"torch": torch.get_rng_state(), "numpy": (name, keys.tolist(), *rest), "python": random.getstate()}
        if self._device.type != "cpu":
            state[self._device.type] = torch.get_device_module(self._device).get_rng_state(self._device)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the random numbers where `state_dict` was called."""
        torch.set_rng_state(state["torch"])
        np.random.set_state(state["numpy"])
        random.setstate(state["python"])
        if self._device.type != "cpu" and self._device.type in state:
            torch.get_device_module(self._device).set_rng_state(state[self._device.type], self._device)


# ---------------------------------------- signals


class StopFlag:
    """Remembers that a signal has asked this process to stop; your loop looks at it between two steps.

    signals: for example signal.SIGTERM (the system, a queue, Ctrl-C of torchrun) and signal.SIGUSR1 (Slurm with
        `--signal=USR1@120`, 120 seconds before the end; torchrun passes it on with `--signals-to-handle`).

    The handler does nothing but set the flag: a signal comes at any moment, in the middle of an optimizer's step or of
    a save, where the state is not worth saving. Make it in the main thread, as Python demands for handlers; leaving
    its `with` block, or `close()`, puts the old handlers back.
    """

    def __init__(self, *signals: signal.Signals) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise CourseError("Make the StopFlag in the main thread: Python handles signals nowhere else.")
        self.received: signal.Signals | None = None  # the first one
        self._set = False
        self._before = {one: signal.signal(one, self._handle) for one in signals}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number)
        self._set = True

    def set(self) -> None:
        """Ask for the stop yourself: time is almost up, the loss is nan."""
        self._set = True

    def is_set(self) -> bool:
        """Whether this process was asked to stop. Other ranks may know nothing of it: see `agreed`."""
        return self._set

    def agreed(self) -> bool:
        """Whether any rank was asked to stop, with the same answer on every rank; if so, the flag is set on all.

        A collective: call it on every rank after the same steps. It sends one number. If the group has a CPU backend,
        every step is fine; otherwise reading the number waits for the device: ask every few steps. Without a process
        group it is `is_set()`. Keep the answer for the step: a signal that comes later than the question sets the flag
        of this rank alone, until you ask again.
        """
        if dist.is_available() and dist.is_initialized():
            place = torch.device("cpu") if "cpu:" in dist.get_backend_config() else devices.best()
            flag = torch.tensor([int(self._set)], device=place)
            dist.all_reduce(flag, dist.ReduceOp.MAX)
            if not flag.item():
                return False  # even if a signal has come meanwhile: the others don't know of it
            self._set = True
        return self._set

    def exit(self) -> NoReturn:
        """End this process with `AGAIN`, together with the other ranks: call it on every rank, after the save.

        A launcher takes a rank that ends with 75 for a failed one. If a rank leaves while rank 0 is still saving, Slurm
        may kill rank 0 in the middle of it (`srun --kill-on-bad-exit`, which some sites set), and the job doesn't come
        back.
        """
        if dist.is_available() and dist.is_initialized():
            dist.barrier()
        sys.exit(AGAIN)

    def close(self) -> None:
        """Put the handlers back that were there before."""
        while self._before:
            one, handler = self._before.popitem()
            signal.signal(one, signal.SIG_DFL if handler is None else handler)

    def __enter__(self) -> "StopFlag":
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


# ---------------------------------------- how a file is written


def _new_part(path: Path) -> BinaryIO:
    """A new file beside `path` that no other process has, locked as long as it is open."""
    while True:
        file = open(f"{path}.{secrets.token_hex(4)}.part", "xb")  # noqa: SIM115 - the caller closes it
        # A process that tidies up may come between the two lines and take it for a leftover: then take a new one.
        if _lock(file) is not False and os.path.exists(file.name):
            return file
        file.close()


def _remove_leftovers(folder: Path) -> None:
    """Remove parts whose writer is dead. The system lifts a lock when the process ends, no matter how."""
    for part in folder.glob("*." + "[0-9a-f]" * 8 + ".part"):
        with contextlib.suppress(OSError), part.open("r+b") as file:
            if _lock(file):
                part.unlink()


def _lock(file: BinaryIO) -> bool | None:
    """Whether this process has the file's lock now; None where the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (AttributeError, OSError):
        return None
    return True


def _try_to_load(part: Path, path: Path) -> None:
    """Load the file as `restore` will, but without its tensors: mapped into memory, they are not read."""
    try:
        torch.load(part, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise CourseError(
            f"torch.load would refuse {path}: it contains {_objects(part)}. Save tensors and plain Python values: "
            "float(x) of a NumPy number, torch.from_numpy(x) of an array, str(x) of a path, vars(x) of options."
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make the new name last beyond a power failure. Some systems cannot, and don't have to."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


# ---------------------------------------- how a file is read


def _damage(path: Path) -> str | None:
    """What is wrong with a file. Compares the checksums, which torch.save writes and torch.load ignores."""
    if not path.exists():
        return f"There is no checkpoint {path}."
    try:
        with zipfile.ZipFile(path) as archive:
            if not any(name.endswith("/data.pkl") for name in archive.namelist()):
                return f"{path} was not written by torch.save: it is another kind of archive."
            wrong = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        return f"{path} is damaged or was not written by torch.save ({error}). Use an older file."
    return f"{path} is damaged: {wrong} in it has changed since it was saved. Use an older file." if wrong else None


def _read(path: Path) -> dict[str, Any]:
    """What a whole file holds, on the CPU."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CourseError(
            f"{path} contains {_objects(path)}, which may run any code when they are loaded. If you trust the file, "
            "read it with torch.load and torch.serialization.safe_globals, and save() what you need of it."
        ) from error
    except (RuntimeError, EOFError, KeyError, ValueError) as error:
        raise CourseError(f"{path} is not a checkpoint that this torch.load reads: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise CourseError(f"{path} is not a checkpoint: it contains a {type(state).__name__}, not named parts.")
    return dict(state)


def _objects(path: Path) -> str:
    """The names of the Python objects in a file, to tell a person."""
    return "objects of Python: " + ", ".join(torch.serialization.get_unsafe_globals_in_checkpoint(path))


class _File(NamedTuple):
    step: int
    score: float | None
    path: Path


def _files(folder: Path) -> list[_File]:
    """The files of a Keeper, by step."""
    files = []
    for path in folder.glob("step_*.pt"):
        if match := re.fullmatch(r"step_(\d+)(?:_score_(-?\d+(?:\.\d+)?(?:e[-+]\d+)?|-?inf|nan))?\.pt", path.name):
            files.append(_File(int(match[1]), None if match[2] is None else float(match[2]), path))
    return sorted(files, key=lambda file: (file.step, file.path.name))


def _newest_whole(folder: Path) -> Path:
    for file in reversed(_files(folder)):
        if not (damage := _damage(file.path)):
            return file.path
        warnings.warn(f"{damage} Passing it over.", stacklevel=3)
    raise CourseError(f"{folder} has no whole checkpoint.")
