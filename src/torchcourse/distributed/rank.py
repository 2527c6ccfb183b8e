"""What the launcher starts for each rank: it runs the student's file, and notes what a notebook wants to know of it.

The file runs as `__main__`, as if torchrun had started it. On top of that:

- each printed line goes to the notebook as it is finished, with the number of the rank;
- an exception is written down with its time: the rank that failed first is the one to look at;
- a signal makes Python write down where it is, even in the middle of a call that never returns.
"""

import atexit
import faulthandler
import gc
import io
import json
import linecache
import os
import re
import signal
import sys
import threading
import time
import traceback
import types
from dataclasses import dataclass

import numpy
import torch

# Errors of a rank that has lost another one.
CONSEQUENCE = re.compile(
    r"Connection (closed|reset)|Broken pipe|failed to recv|recvValue failed|remote (worker|process)"
)
CAUSE_FIRST = 5.0  # seconds that the lost rank has to say why


@dataclass(frozen=True)
class Job:
    """A cell that is to run in several processes."""

    name: str  # the file that tracebacks show
    file: str  # where it is
    source: str
    ranks: int
    max_restarts: int
    scratch: str  # the folder for all that the launcher and the ranks write down
    environment: dict[str, str]


class Lines(io.TextIOBase):
    """A text stream that writes whole lines, each marked with the rank, to a file that all ranks append to."""

    encoding = "utf-8"

    def __init__(self, file: int, mark: str) -> None:
        self.file, self.mark, self.begun = file, mark, ""

    def write(self, text: str) -> int:
        *lines, self.begun = (self.begun + text).split("\n")
        for line in lines:
            shown = line.rstrip("\r").rpartition("\r")[2]  # of a progress bar its last state
            os.write(self.file, f"{self.mark} {shown}".rstrip().encode("utf-8", "backslashreplace") + b"\n")
        return len(text)

    def finish(self) -> None:
        """Write the line that was begun and never ended: until then, `flush` leaves it alone."""
        if self.begun:
            self.write("\n")

    def fileno(self) -> int:
        return 1


def note(file: str, **content: object) -> None:
    """Write a JSON file that is there whole or not at all."""
    with open(file + ".part", "w", encoding="utf-8") as part:
        json.dump(content, part)
    os.replace(file + ".part", file)


def run(job: Job) -> None:
    """Run the file of the job in this process, which ends with an exit code if the file does not come to its end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # the launcher has handlers, and this is its fork
    number, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    mine = f"{job.scratch}/{attempt}-{number}"

    # Libraries below Python, and processes that the cell starts, write to a file of this rank, which the notebook reads
    # as well: what they say when they crash is not lost.
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for stream in (1, 2):
        os.dup2(os.open(mine + ".raw", appending, 0o600), stream)
    lines = os.open(f"{job.scratch}/{attempt}.lines", appending, 0o600)
    sys.stdout, sys.stderr = Lines(lines, f"[rank {number}]"), Lines(lines, f"[rank {number}]")
    faulthandler.enable(2)
    faulthandler.register(signal.SIGUSR1, open(mine + ".stack", "w"), all_threads=False)  # noqa: SIM115
    note(mine + ".pid", pid=os.getpid())

    atexit.unregister(gc.unfreeze)  # a matter of the fork server, which is to share its memory (importing.py)
    numpy.random.seed()  # forks would all draw the same; Python's own generator sees to that itself
    torch.default_generator.seed()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # read long ago, in the process that this is a fork of
    sys.argv = [job.name]
    sys.path.insert(0, os.getcwd())
    # The name that tracebacks show, and the source that they show with it.
    linecache.cache[job.name] = (len(job.source), None, job.source.splitlines(keepends=True), job.name)
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    main.__file__ = job.file
    failed = False
    try:
        exec(compile(job.source, job.name, "exec", dont_inherit=True), main.__dict__)
    except BaseException as error:
        failed = not isinstance(error, SystemExit) or bool(error.code)
        if failed:
            report(mine, int(number), error)
    finish(main)
    if failed:
        sys.exit(1)
    note(mine + ".done")


def report(mine: str, number: int, error: BaseException) -> None:
    """Write down the exception, from the student's own lines on, and when it came."""
    moment = time.time()
    frames = error.__traceback__.tb_next  # without the line in `run` above
    own = [frame.lineno for frame in traceback.extract_tb(frames) if not os.path.isabs(frame.filename)]
    text = "".join(traceback.format_exception(error.with_traceback(frames)))
    # Where libraries are installed, and where gloo was built, is of no help.
    text = re.sub(r'File "/[^"]*/(?:site-packages|python3\.\d+)/', 'File ".../', text)
    text, message = (re.sub(r"\[/\S+/(\w+\.cc:\d+)\] ", r"[\1] ", each) for each in (text, str(error)))
    note(
        mine + ".failed",
        rank=number,
        time=moment,
        type=type(error).__name__,
        message=message,
        line=own[-1] if own else None,
        traceback=text,
    )
    if CONSEQUENCE.search(message):
        # A rank that closes its group on the way out of an exception lets us fail before it has come to its own report.
        # Our end makes the launcher stop it.
        time.sleep(CAUSE_FIRST)


def finish(main: types.ModuleType) -> None:
    """What Python does at its end: a fork ends without it."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    main.__dict__.clear()  # what the rank has made comes to its end: files are closed
    gc.collect()
    sys.stdout.finish()
    sys.stderr.finish()
