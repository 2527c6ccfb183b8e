"""What torchrun starts for each rank: it runs the student's file, and notes what a notebook wants to know of it.

Called as `rank.py JOB [arguments]`. The file runs as `__main__`, as if torchrun had started it itself. On top of that:

- each printed line goes to the notebook as it is finished, with the number of the rank;
- an exception is written down with its time: the rank that failed first is the one to look at;
- a signal makes Python write down where it is, even in the middle of a call that never returns.

Only Python's own library is imported here, and quickly: the student's file decides what comes next.
"""

import contextlib
import faulthandler
import importlib
import io
import json
import linecache
import os
import re
import signal
import sys
import time
import traceback
import types

PIECE = 400  # bytes; so short a piece is written whole or not at all, also on macOS
# Errors of a rank that has lost another one.
CONSEQUENCE = re.compile(
    r"Connection (closed|reset)|Broken pipe|failed to recv|recvValue failed|remote (worker|process)"
)
CAUSE_LIMIT = 10.0  # seconds that the lost rank has to say why


class Lines(io.TextIOBase):
    """A text stream that sends whole lines, each marked with the rank. The ranks share one pipe."""

    encoding = "utf-8"

    def __init__(self, pipe: int, mark: str) -> None:
        self.pipe, self.mark, self.begun = pipe, mark, ""

    def write(self, text: str) -> int:
        *lines, self.begun = (self.begun + text).split("\n")
        for line in lines:
            self._send(line)
        return len(text)

    def _send(self, line: str) -> None:
        data = line.encode("utf-8", "backslashreplace")
        pieces = [data[i : i + PIECE] for i in range(0, len(data), PIECE)] or [b""]
        for number, piece in enumerate(pieces, 1):
            more = "+" if number < len(pieces) else "."
            # After a carriage return, a newline would break the record: progress bars use it.
            record = f"{self.mark} {more} ".encode() + piece.replace(b"\r", b"\x1e") + b"\n"
            with contextlib.suppress(BrokenPipeError):
                os.write(self.pipe, record)

    def flush(self) -> None:
        """Whole lines have been sent already; a line that is only begun waits for its end."""

    def finish(self) -> None:
        """Send the line that was begun and never ended."""
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


def run(job_file: str, *arguments: str) -> int:
    """Run the file of the job in this process. Returns the exit code."""
    with open(job_file, encoding="utf-8") as file:
        job = json.load(file)
    rank, attempt = os.environ["RANK"], os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    mine = os.path.join(job["scratch"], f"{attempt}-{rank}")
    numbers = map(str, range(int(os.environ["WORLD_SIZE"])))
    others = [os.path.join(job["scratch"], f"{attempt}-{number}") for number in numbers if number != rank]

    # The pipe to the notebook is our standard output. Libraries below Python write to a file instead, which the
    # notebook reads as well: what they say when they crash is not lost.
    pipe = os.dup(1)
    raw = os.open(mine + ".raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(raw, 1)
    os.dup2(raw, 2)
    sys.stdout, sys.stderr = Lines(pipe, f"{attempt} {rank}"), Lines(pipe, f"{attempt} {rank}")
    faulthandler.enable(open(mine + ".crash", "w"))  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, open(mine + ".stack", "w"), all_threads=True)  # noqa: SIM115
    note(mine + ".pid", pid=os.getpid())

    sys.argv = [job["name"], *arguments]
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
    sys.stdout.finish()
    sys.stderr.finish()
    if not code:
        note(mine + ".done")
    return code


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


if __name__ == "__main__":
    if "TORCHCOURSE_HOST" in os.environ:
        # By its own name, as a neighbor of this file: the package would import PyTorch.
        importlib.import_module("warm").stand_in(sys.argv[1:])
    sys.exit(run(*sys.argv[1:]))
