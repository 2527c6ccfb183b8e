"""What the launcher starts for each rank: it runs the student's file, and notes what a notebook wants to know of it.

The file runs as `__main__`, as if torchrun had started it. On top of that:

- each printed line goes to the notebook as it is finished, with the number of the rank;
- an exception is written down with its time: the rank that failed first is the one to look at;
- a signal makes Python write down where it is, even in the middle of a call that never returns.
"""

import atexit
import contextlib
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

import numpy
import torch

# Errors of a rank that has lost another one.
CONSEQUENCE = re.compile(
    r"Connection (closed|reset)|Broken pipe|failed to recv|recvValue failed|remote (worker|process)"
)
CAUSE_LIMIT = 10.0  # seconds that the lost rank has to say why


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

    def flush(self) -> None:
        """Whole lines have been written already; a line that is only begun waits for its end."""

    def finish(self) -> None:
        """Write the line that was begun and never ended."""
        if self.begun:
            self.write("\n")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1


def shorten(text: str) -> str:
    """A traceback with installed files named from their package on: where they are installed is of no help."""
    folders = {os.path.dirname(os.path.dirname(os.path.abspath(m.__file__))) for m in (json, contextlib)}
    text = re.sub(r'File "[^"]*[/\\]site-packages[/\\]', 'File ".../', text)
    for folder in sorted({os.path.dirname(os.path.abspath(contextlib.__file__)), *folders}, key=len, reverse=True):
        text = text.replace(f'File "{folder}{os.sep}', 'File ".../')
    return re.sub(r"\[/\S+/(\w+\.cc:\d+)\] ", r"[\1] ", text)  # gloo says where it was built


def note(file: str, **content: object) -> None:
    """Write a JSON file that is there whole or not at all."""
    with open(file + ".part", "w", encoding="utf-8") as part:
        json.dump(content, part)
    os.replace(file + ".part", file)


def run(job_file: str) -> None:
    """Run the file of the job in this process, which ends with an exit code if the file does not come to its end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # the launcher has handlers, and this is its fork
    with open(job_file, encoding="utf-8") as file:
        job = json.load(file)
    rank, attempt = os.environ["RANK"], os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    mine = os.path.join(job["scratch"], f"{attempt}-{rank}")
    numbers = map(str, range(int(os.environ["WORLD_SIZE"])))
    others = [os.path.join(job["scratch"], f"{attempt}-{number}") for number in numbers if number != rank]

    # Libraries below Python, and processes that the cell starts, write to a file of this rank, which the notebook reads
    # as well: what they say when they crash is not lost.
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number in (1, 2):
        os.dup2(os.open(mine + ".raw", appending, 0o600), number)
    lines = os.open(os.path.join(job["scratch"], f"{attempt}.lines"), appending, 0o600)
    sys.stdout, sys.stderr = Lines(lines, f"[rank {rank}]"), Lines(lines, f"[rank {rank}]")
    faulthandler.enable(open(mine + ".crash", "w"))  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, open(mine + ".stack", "w"), all_threads=True)  # noqa: SIM115
    note(mine + ".pid", pid=os.getpid())

    numpy.random.seed()  # forks would all draw the same; Python's own generator sees to that itself
    torch.default_generator.seed()
    sys.argv = [job["name"], *job["arguments"]]
    sys.path[0] = os.getcwd()
    sys.path += [folder for folder in job["path"] if folder not in sys.path]
    with open(job["file"], encoding="utf-8") as file:
        source = file.read()
    # The name that tracebacks show, and the source that they show with it.
    linecache.cache[job["name"]] = (len(source), None, source.splitlines(keepends=True), job["name"])
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    main.__file__ = job["file"]
    code = 0
    try:
        exec(compile(source, job["name"], "exec", dont_inherit=True), main.__dict__)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
        if code:
            failed(mine, leaving, code)
    except BaseException as error:
        code = 1
        failed(mine, error, code)
        if CONSEQUENCE.search(str(error)):
            await_ends(others)
    finish(main)
    if code:
        sys.exit(code)
    note(mine + ".done")


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


def failed(mine: str, error: BaseException, code: int) -> None:
    """Write down the exception, from the student's own lines on, and when it came."""
    moment = time.time()
    if error.__traceback__:
        error.__traceback__ = error.__traceback__.tb_next  # without the line in `run` above
    text = shorten("".join(traceback.format_exception(error)))
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.lineno for frame in frames if not os.path.isabs(frame.filename)]
    note(
        mine + ".failed",
        time=moment,
        type=type(error).__name__,
        message=shorten(str(error)),
        line=own[-1] if own else None,
        traceback=text,
        code=code,
    )


def await_ends(ranks: list[str]) -> None:
    """Wait until these ranks have written down how they ended, for a while: our own end makes torchrun stop them.

    A rank that closes its group on the way out of an exception lets us fail before it has come to its own report.
    """
    limit = time.monotonic() + CAUSE_LIMIT
    while not all(os.path.exists(f"{rank}.failed") or os.path.exists(f"{rank}.done") for rank in ranks):
        if time.monotonic() > limit:
            return
        time.sleep(0.02)
