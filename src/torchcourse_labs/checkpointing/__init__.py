"""The exercises of chapter 09: files that are never half, the right ones kept, a training that stops and goes on.

Crashes are real here: an answer works in a process of its own (`ranks.start`), and what it writes is cut off by the
kernel, in a child of that process. Nothing of it happens in the student's notebook.
"""

import contextlib
import io
import json
import math
import os
import pickle
import random
import re
import select
import shutil  # noqa: F401 - for `changed`
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from labcheck import ranks
from labcheck.answer import call
from labcheck.inputs import Inputs
from labcheck.probes import plain_number, weights
from labcheck.show import show
from labcheck.verdict import AnswerRaised
from torchcourse.lab.interrupted import Run
from torchcourse_labs._spec import Mistake, Spec, changed, chapter, says  # noqa: F401 - for the tables

SECONDS = 120.0  # for a whole check: the first one of a session starts the server from which processes are forked

CHAPTER = "09_checkpointing"
EXERCISES = (
    "keep_files",
    "everything",
    "load_any",
    "last_minute",
    "save_interval",
    "reshard",
)  # declared below

exercise = chapter("09_checkpointing")


def _has(name: str, *values: Any) -> Callable:
    """A `when`: this entry has one of these values."""
    return lambda yours, *_: yours[name] in values


def _is_not(name: str, value: Any) -> Callable:
    return lambda yours, *_: yours[name] != value


# ---------------------------------------------------------------------------------------------------------------------

FILE = "run.pt"
LIMIT = 2**16  # bytes: there, a file may not grow any more
PATIENCE = 3.0  # seconds for a second writer; one that waits for the first would wait forever
WRITTEN = "The file after writing"
FOLDER = "The files in the folder"
OVER = "The file after writing over an older one"
HOW = "How the old file is replaced"
SYNCED = "What is on the disk before the rename"
CUT = "The file after a kill while it is written"
BETWEEN = "The file after a kill at a rename or removal"
FULL = "What your function does on a full disk"
AFTER_FULL = "The file after a full disk"
LITTER = "The files in the folder after a full disk"
LITTER_TOO = "The files in the folder after a state that cannot be saved"
LITTER_LAST = "The files in the folder after a rename that fails"
TWO = "The file of two processes that write at once"
TWO_RAISED = "What the two processes raise"
TWO_LITTER = "The files in the folder of the two"

NUMBERS = "The numbers in the file"

WHOLE_WRITES = {
    WRITTEN: "the new state",
    NUMBERS: "those of the state",
    FOLDER: [FILE],
    OVER: "the new state",
    HOW: "at once",
    SYNCED: "all of it",
    CUT: "the old state",
    BETWEEN: "a whole one",
    FULL: "raises",
    AFTER_FULL: "the old state",
    LITTER: [FILE],
    LITTER_TOO: [FILE],
    LITTER_LAST: [FILE],
    TWO: "a whole one",
    TWO_RAISED: "nothing",
    TWO_LITTER: [FILE],
}


def _in_a_fork(task: Callable[[], Any], alongside: Callable[[], None] | None = None) -> dict[str, Any]:
    """{"returned": what `task` does, as JSON}, {"raised": in words}, or {"killed": the signal}; in a forked process.

    alongside: what this process does before it waits for the other one
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                report = {"returned": task()}
            except BaseException as error:
                report = {"raised": f"{type(error).__name__}: {error}"[:300]}
            os.write(theirs, json.dumps(report).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    if alongside:
        alongside()
    with open(ours, "rb") as file:
        report = file.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(report) if report else {"killed": os.waitstatus_to_exitcode(status)}


def _limit_files(deadly: bool) -> None:
    """From now on the kernel lets no file of this process grow beyond LIMIT, as if the disk were full; deadly: it kills
    the process that tries."""
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)


def _before_renames(action: Callable[[str, tuple], None], *more: str) -> None:
    """From now on, do this before each rename in this process; more: other events of Python's that count."""
    events = {"os.rename", "os.link", *more}
    sys.addaudithook(lambda event, args: action(event, args) if event in events else None)


def _watch_replacing(answer: Callable, state: dict, path: Path) -> dict[str, Any]:
    """Write over an old file. Returns how it was replaced, and what had been flushed to the disk before."""
    old = path.stat().st_ino
    synced: dict[int, list] = {}  # inode -> [its size, whether it had the name already]
    elsewhere = []

    def watch(sync: Callable) -> Callable:
        def watched(file: Any) -> None:
            about = os.fstat(file if isinstance(file, int) else file.fileno())
            named = path.exists() and path.stat().st_ino == about.st_ino
            size, was_named = synced.get(about.st_ino, (0, True))
            synced[about.st_ino] = [max(size, about.st_size), was_named and named]
            sync(file)

        return watched

    def note(_: str, args: tuple) -> None:
        source, target = (Path(os.fsdecode(each)).absolute() for each in args[:2])
        if target == path and path.parent not in source.parents:
            elsewhere.append(str(source.parent))

    os.fsync, everything = watch(os.fsync), os.sync
    if hasattr(os, "fdatasync"):
        os.fdatasync = watch(os.fdatasync)

    def sync_all() -> None:
        everything()
        for file in path.parent.iterdir():
            synced[file.stat().st_ino] = [file.stat().st_size, file == path]

    os.sync = sync_all
    _before_renames(note)
    with path.open():  # as long as the old file is open, no other one gets its inode
        answer(state, path)
    if not path.exists():
        return {HOW: "not at all", SYNCED: "nothing"}
    now = path.stat()
    size, named = synced.get(now.st_ino, (0, False))
    how = "in place" if now.st_ino == old else "from another folder" if elsewhere else "at once"
    return {HOW: how, SYNCED: "all of it" if size == now.st_size and not named else "too late" if named else size}


def _two_at_once(answer: Callable, states: list[dict], path: Path) -> list[dict]:
    """The first process stops before its first rename until the second one has written everything."""
    waits, go = os.pipe(), os.pipe()
    reports = []

    def first() -> None:
        def pause(*_: Any) -> None:
            with contextlib.suppress(OSError):
                os.write(waits[1], b"x")
                select.select([go[0]], [], [], 3 * PATIENCE)

        os.close(waits[0]), os.close(go[1])
        _before_renames(pause)
        answer(states[0], path)

    def second() -> None:
        os.close(waits[1]), os.close(go[0])
        os.read(waits[0], 1)  # the first one waits, or has ended
        reports.append(_in_a_fork(partial(_in_time, lambda: answer(states[1], path))))
        os.close(waits[0]), os.close(go[1])

    report = _in_a_fork(first, second)
    return [report, *reports]


def _without_numbers(name: str) -> str:
    """Without what differs from run to run: long hexadecimal numbers, numbers of processes."""
    return re.sub(r"[0-9a-f]{8}[0-9a-f-]{24,}|(?<![\w ])\d{2,}", "…", name)


def _in_time(task: Callable[[], Any]) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    task()


def _write_in_a_process(answer: Callable, older: dict, newer: dict) -> dict[str, Any]:
    """What becomes of a file while an answer writes it, and is disturbed. Runs in a process of its own."""

    def place(name: str, state: dict | None = older) -> Path:
        folder = Path.cwd() / name
        folder.mkdir()
        if state:
            torch.save(state, folder / FILE)
        return folder / FILE

    def content(path: Path) -> str:
        if not path.exists():
            return "there is none"
        try:
            state = torch.load(path)
            for name, one in (("the old state", older), ("the new state", newer)):
                same = isinstance(state, dict) and state.keys() == one.keys() and state["epoch"] == one["epoch"]
                if same and torch.equal(state["weights"], one["weights"]):
                    return name
        except Exception:
            return "half a file"
        return "another state"

    def files(path: Path) -> list[str]:
        return sorted(_without_numbers(file.name) for file in path.parent.iterdir())

    def in_words(report: dict, path: Path) -> str:
        return _without_numbers(report.get("raised", "").replace(f"{path.parent}{os.sep}", ""))

    path = place("empty", None)
    answer(newer, path)
    seen: dict[str, Any] = {WRITTEN: content(path), FOLDER: files(path)}
    if seen[WRITTEN] != "the new state":
        return seen
    seen["sum"] = _sum(torch.load(path))

    path = place("older")
    report = _in_a_fork(lambda: _watch_replacing(answer, newer, path))
    seen |= {OVER: content(path), **report.get("returned", {HOW: "not at all", SYNCED: "nothing"})}
    seen["error"] = in_words(report, path)
    path = place("small")  # so small that Python may hold all of it until `flush`
    report = _in_a_fork(lambda: _watch_replacing(answer, {"weights": newer["weights"][:1].clone()}, path))
    if seen[SYNCED] == "all of it":
        seen[SYNCED] = report.get("returned", seen)[SYNCED]

    path = place("cut")
    _in_a_fork(lambda: [_limit_files(deadly=True), answer(newer, path), None][2])
    seen[CUT] = content(path)

    seen[BETWEEN] = "a whole one"
    for number in range(3):
        path = place(f"between {number}")
        left = [number]

        def end(*_: Any, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        _in_a_fork(lambda end=end, path=path: [_before_renames(end, "os.remove"), answer(newer, path), None][2])
        if "state" not in content(path):
            seen[BETWEEN] = content(path)

    path = place("full")
    report = _in_a_fork(lambda: [_limit_files(deadly=False), answer(newer, path), None][2])
    seen |= {FULL: "returns" if "returned" in report else "raises", AFTER_FULL: content(path), LITTER: files(path)}

    path = place("unsavable")
    _in_a_fork(lambda: answer({**newer, "loss": lambda: 0}, path))
    seen[LITTER_TOO] = files(path)

    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    path = place("not to be renamed")
    _in_a_fork(lambda: [_before_renames(refuse), answer(newer, path), None][2])
    seen[LITTER_LAST] = files(path)

    path = place("two")
    reports = _two_at_once(answer, [newer, {**newer, "epoch": 0}], path)
    failed = [report for report in reports if "returned" not in report]
    raised = [in_words(report, path) or "one waits for the other" for report in failed]
    epoch = content(path)
    if epoch == "another state":  # of the second process
        epoch = "the new state"
    seen |= {TWO: "a whole one" if "state" in epoch else epoch, TWO_RAISED: raised[0] if raised else "nothing"}
    seen[TWO_LITTER] = files(path)
    return seen


def _written(answer: Any, older: dict, newer: dict) -> dict[str, Any]:
    """The probe of `write_safely`."""
    outcome = ranks.start(answer, 1, _write_in_a_process, (older, newer), world_size=1)
    ranks.judge(outcome)
    return outcome[0].value


def _sum(state: dict) -> float:
    return state["weights"].double().sum().item() + state["epoch"]


def _whole_writes(ask: Any, older: dict, newer: dict) -> dict[str, Any]:
    """What the probe saw. What it read in the file belongs to this state, and to no other check."""
    seen = dict(ask.observe(_written, older, newer))
    if "sum" in seen:
        seen[NUMBERS] = "those of the state" if seen.pop("sum") == _sum(newer) else "others"
    return seen


def _two_states(new: Inputs) -> list[tuple]:
    epoch = new.size(3, 60)
    return [tuple({"weights": new.randn(50_000), "epoch": epoch + i} for i in range(2))]


def _write_safely(state, path):
    temporary = path.with_name(f"{path.name}.{uuid.uuid4()}.part")
    try:
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


_writes_but = partial(changed, _write_safely)
_OWN_NAME = 'f"{path.name}.{uuid.uuid4()}.part"'
_RENAME = "os.replace(temporary, path)"


def _write_from_memory(state, path):
    memory = io.BytesIO()
    torch.save(state, memory)
    number, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(memory.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.remove(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _write_by_name(state, path):
    temporary = Path(f"{path}.{os.getpid()}")
    try:
        torch.save(state, temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file)
        temporary.replace(path)
    except Exception:
        temporary.unlink(missing_ok=True)
        raise


def _write_in_place(state, path):
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


exercise(
    "write_safely",
    seconds=SECONDS,
    title="Write a file that is never half",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="Write beside, flush, fsync, rename: whatever ends the process, there is a whole file under the name. "
    "`torchcourse.checkpoint.save` does this.",
    hints=(
        "Write the whole file under another name in the same folder, one that no other process uses. When all of it is "
        "on the disk, a rename puts it in place of the old file at once.",
        "`with open(temporary, 'wb') as file:` gives you something to `file.flush()` and `os.fsync(file.fileno())`. "
        "Then `os.replace(temporary, path)`. In a `finally:`, `temporary.unlink(missing_ok=True)` cleans up.",
        'A name of your own: `path.with_name(f"{path.name}.{uuid.uuid4()}.part")`. Into a `try:` go `torch.save(state, '
        "file)`, `file.flush()`, `os.fsync(file.fileno())`, and, after the `with` block, "
        "`os.replace(temporary, path)`.",
    ),
    spec=Spec(
        draw=_two_states,
        solution=_write_safely,
        measure=_whole_writes,
        finds=WHOLE_WRITES,
        mistakes=r"""
            os.replace(temporary, path) → pass
            = print(end="")
                After `write_safely` there is no file at `path`. The folder has {yours[{FOLDER}]}.
                look: `os.replace(temporary, path)`
                when: _has(WRITTEN, "there is none")
            torch.save(state, file) → pickle.dump(state, file) || torch.save(state['weights'], file)
                The file at `path` is not what `torch.save(state, …)` writes: `torch.load` finds {yours[{WRITTEN}]} in
                it.
                when: _has(WRITTEN, "half a file", "another state", "the old state")
            os.replace(temporary, path) → os.link(temporary, path)
                Over an older file it does not work: {yours[error]}.
                when: yours["error"] or yours[OVER] != "the new state"
            os.replace(temporary, path) → shutil.copy(temporary, path) && temporary.unlink(missing_ok=True) → pass
                Other files are left beside yours: {yours[{FOLDER}]}.
                look: `os.replace` renames, so that nothing is left
                when: _is_not(FOLDER, [FILE])
            _write_in_place
            = torch.save(state, path)
            os.replace(temporary, path) → path.write_bytes(temporary.read_bytes()) || shutil.copy(temporary, path)
                You write into the file at `path` itself. A process that is killed in the middle leaves half a file, and
                the older one is gone.
                look: another name first, then `os.replace(temporary, path)`, which happens all at once
                when: _has(HOW, "in place")
            path.with_name(f"{path.name}.{uuid.uuid4()}.part") → Path(tempfile.mkdtemp(), path.name)
                You write in another folder. That may be another disk, from which a file cannot be renamed at once.
                look: a second name in the folder of `path`: `path.with_name(…)`
                when: _has(HOW, "from another folder")
            os.replace(temporary, path) → path.unlink(missing_ok=True); temporary.rename(path)
                    || path.exists() and path.rename(f'{path}.old'); temporary.rename(path)
            try: → path.unlink(missing_ok=True)\n    try:
                The older file is removed, or renamed, before the new one has its name. A process that was killed in
                between has left no file at `path`.
                look: `os.replace(temporary, path)` does both at once
                when: "state" not in yours[CUT] or yours[BETWEEN] != "a whole one"
            finally: → except Exception:\n        print('not saved')\n    finally: || except Exception:
                On a full disk, your function returns as if all were well. The caller has to learn that nothing was
                saved.
                look: an `except` without `raise`
                when: _has(FULL, "returns")
            finally: → except BaseException:\n        path.unlink()\n        raise\n    finally:
                On a full disk, the older file is lost: after the error, there is none at `path`.
                look: what you clean up: it should be `temporary`, not `path`
                when: _has(AFTER_FULL, "there is none")
            os.replace(temporary, path) → pass
                    && temporary.unlink(missing_ok=True) → os.replace(temporary, path) if temporary.exists() else None
                On a full disk, half a file gets the name: after the error, {yours[{AFTER_FULL}]} is at `path`.
                look: the rename only comes if everything before it has worked
                when: _is_not(AFTER_FULL, "the old state")
            temporary.unlink(missing_ok=True) → pass
            changed(_write_by_name, ("except Exception", "except OSError"))
                On a full disk, what you had begun to write stays there and keeps the disk full: {yours[{LITTER}]}.
                look: `finally:`, or `except BaseException:` with `raise`. (`torch.save` may raise a RuntimeError
                    there.)
                when: _is_not(LITTER, [FILE])
            changed(_write_by_name, ("except Exception", "except (OSError, RuntimeError)"))
                If the state holds something that cannot be saved, such as a lambda, what you had begun to write stays
                there: {yours[{LITTER_TOO}]}.
                look: clean up after every error: `finally:`, or `except BaseException:` with `raise`
                when: _is_not(LITTER_TOO, [FILE])
            changed(_write_by_name, ("        temporary.replace(path)\n", ""),
                    ("        raise", "        raise\n    temporary.replace(path)"))
                If the rename fails, the finished temporary file stays in the folder: {yours[{LITTER_LAST}]}.
                look: `os.replace` belongs into the `try:`, too
                when: _is_not(LITTER_LAST, [FILE])
            f"{path.name}.{uuid.uuid4()}.part" → path.name + ".part"
            f"{path.name}.{uuid.uuid4()}.part" → path.name + ".part"
                    && os.replace(temporary, path) → temporary.exists() and os.replace(temporary, path)
            temporary.unlink(missing_ok=True) → [each.unlink(missing_ok=True) for each in path.parent.glob("*.part")]
                Two processes that write at the same time get in each other's way ({yours[{TWO_RAISED}]}): they use the
                same temporary name, or one removes the file of the other.
                look: a name that no other process has: with `uuid.uuid4()` in it, or from `tempfile.mkstemp`; clean up
                    that file alone
                when: yours[TWO_RAISED] != "nothing" or yours[TWO] != "a whole one"
            os.fsync(file.fileno()) → pass
                    && os.replace(temporary, path) → os.replace(temporary, path); os.fsync(os.open(path, os.O_RDWR))
                Your `os.fsync` comes after the rename. If the power fails in between, the name may belong to an empty
                file, and the older one is gone.
                look: the order: write, flush, fsync, rename
                when: _has(SYNCED, "too late")
            os.fsync(file.fileno()) → pass || os.fsync(os.open(path.parent, os.O_RDONLY))
            changed(_write_from_memory, ("file.flush()", "pass"))
                The file was not on the disk yet when it got its name: after a power failure, the name may belong to an
                empty file. There was no `os.fsync` of it, or not of all of it.
                look: `file.flush()`, `os.fsync(file.fileno())`, both before the rename
                when: _is_not(SYNCED, "all of it")
        """,
        also_right=[
            _write_from_memory,
            _write_by_name,
            _writes_but((_OWN_NAME, 'f".{os.getpid()}-{path.name}"')),
            _writes_but(
                ("file.flush()", "pass"), ("os.fsync(file.fileno())", "pass"), (_RENAME, f"os.sync(); {_RENAME}")
            ),
        ],
    ),
)
