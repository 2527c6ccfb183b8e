"""How a run ends: with its tables written and nothing left behind, also by Ctrl-C or TERM."""

import contextlib
import errno
import fcntl
import os
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from types import FrameType
from typing import Self

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Stopped(SystemExit):
    """A signal asked us to end. The exit status is the shell's: 130 after Ctrl-C, 143 after TERM."""


class Signals:
    """Takes note of Ctrl-C and TERM, so that no step is cut in two: nbgrader would take that for its own failure.

    The second one ends the program on the spot.
    """

    heard = 0

    def __enter__(self) -> Self:
        self.before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.heard = number

    def ended(self, runs: Iterable[Future]) -> Iterator[Future]:
        """The runs as they end. Raises Stopped after a signal."""
        waiting = set(runs)
        while waiting:
            done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            yield from done
            if self.heard:
                raise Stopped(128 + self.heard)


@contextlib.contextmanager
def workplace(out: Path) -> Iterator[None]:
    """Keep the folder of the results for this run alone.

    Raises SystemExit if it cannot be used, or has no more room.
    """
    with contextlib.ExitStack() as stack:
        try:
            out.mkdir(parents=True, exist_ok=True)
            folder = os.open(out, os.O_RDONLY)
            stack.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel lifts it, however this process ends
        except BlockingIOError:
            raise SystemExit(f"Another run is grading into {out}. Wait, or choose another folder: --out") from None
        except OSError as error:
            raise SystemExit(
                f"The results cannot be written to {out}: {error.strerror}. Choose another: --out"
            ) from None
        try:
            yield
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise SystemExit(
                f"The results cannot be written to {out}: {error.strerror}. Make room there, or choose another folder "
                "with --out, then start the same command again."
            ) from None
