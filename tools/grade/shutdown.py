"""How a run ends: with its tables written and nothing left behind, also by Ctrl-C, TERM or a closed terminal."""

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from multiprocessing.util import Finalize
from pathlib import Path
from types import FrameType
from typing import Self

import psutil

from tools.grade.results import PART

PATIENCE = 10.0  # seconds for runs to end when their sandbox is gone


class Stopped(SystemExit):
    """A signal asked us to end. The exit status is the shell's: 130 after Ctrl-C, 143 after TERM."""


class Signals:
    """Turns Ctrl-C, TERM and HUP into `Stopped`: at once, or after a step that must not be cut in two.

    The second one ends the program on the spot. A signal that was ignored from the start, as `nohup` does, stays so.
    """

    def __init__(self) -> None:
        self.heard = 0
        self.busy = False
        self.before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self.before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.heard = number
        if not self.busy:
            raise Stopped(128 + number)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """A step that is not cut in two. nbgrader, for one, takes any exception for its own failure and goes on."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False
        if self.heard:
            raise Stopped(128 + self.heard)


@contextlib.contextmanager
def workplace(out: Path) -> Iterator[None]:
    """Keep the folder of the results for this run alone. Half-written files that a killed run left are removed.

    Raises SystemExit if the folder cannot be used.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        held = contextlib.ExitStack()
        held.enter_context(_locked(out))
        for part in (*out.glob(f"*{PART}"), *out.glob(f"results/*/*{PART}")):
            part.unlink()
    except BlockingIOError:
        raise SystemExit(f"Another run is grading into {out}. Wait for it, or choose another folder: --out") from None
    except OSError as error:
        reason = f"The results cannot be written to {out}: {error.strerror}"
        raise SystemExit(f"{reason}. Choose another folder: --out") from None
    with held:
        try:
            yield
        except Exception:
            if not (why := trouble(out)):
                raise
            raise SystemExit(
                f"The results cannot be written to {out}: {why}. Make room there, or choose another folder with "
                "--out, then start the same command again."
            ) from None


def trouble(out: Path) -> str:
    """Why nothing more can be written to a folder; empty if it can. Libraries turn that into errors of their own."""
    trial = out / f"trial{PART}"
    try:
        trial.write_bytes(bytes(4 * 2**20))
    except OSError as error:
        return error.strerror
    finally:
        with contextlib.suppress(OSError):
            trial.unlink()
    return ""


def temporary_folder() -> Path:
    """Make one folder for all temporary files of this process and of those that it starts; it goes when we end.

    What was left by processes that could not remove theirs goes now. A folder in use is locked. A process id in its
    name would not say so: a container or a node of a cluster sees the folders of processes that it doesn't see.
    """
    place, name = Path(tempfile.gettempdir()), f"grade-{os.getuid()}-"
    for path in place.glob(f"{name}*"):
        with contextlib.suppress(OSError), _locked(path):
            shutil.rmtree(path, ignore_errors=True)
    unlocked = Path(tempfile.mkdtemp(prefix="grading-", dir=place))
    lock = contextlib.ExitStack()
    lock.enter_context(_locked(unlocked))
    folder = unlocked.rename(place / f"{name}{unlocked.name.removeprefix('grading-')}")
    Finalize(None, lock.close, exitpriority=-300)
    # After multiprocessing has removed its own folder, which is in this one: that has the priority -100.
    Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=-200)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    return folder


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder; the kernel lifts the lock, however the process ends. Raises OSError if another one holds it."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def abandon(runs: list[Future]) -> None:
    """End the sandboxes, and wait for their runs to clean up after themselves. One that does not is ended, too."""
    start = time.monotonic()
    while not all(run.done() for run in runs) and (waited := time.monotonic() - start) < 2 * PATIENCE:
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.name() == "bwrap" or waited > PATIENCE:
                    child.kill()
        time.sleep(0.05)
