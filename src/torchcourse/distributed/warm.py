"""A process that has imported PyTorch, so that the ranks of a cell start at once.

`import torch` takes seconds, and an optimizer imports as much again. Here one process does it once for the whole
notebook. What a cell needs is forked from it:

    notebook ─ warm process ─ watcher (one for each cell) ─ launcher ─ ranks

What a rank has of its own is what any new process has, except that `torch` is imported already, and that all ranks hash
strings alike. Linux only: elsewhere every process starts from nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, BinaryIO, NoReturn

POSSIBLE = sys.platform == "linux"
IDLE_LIMIT = 900.0  # seconds without a cell until a warm process ends: it holds some 400 MB
# Libraries read these while they are loaded. If one changes, only a new process will do.
READ_AT_START = re.compile(
    r"(LD|PYTHON|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|DNNL|ONEDNN|TBB|MALLOC|TORCH(?!COURSE)|PYTORCH|ATEN|GLOO|NCCL|CUDA|NVIDIA|TRITON)"
)


# ---------------------------------------- in the notebook


class Forked:
    """The watcher of a cell, forked from the warm process. Used like a `subprocess.Popen`."""

    def __init__(self, line: socket.socket, stdin: IO[bytes]) -> None:
        """line: on it come the number of the process, and at its end the exit code."""
        self.line, self.stdin = line, stdin
        self.returncode: int | None = None
        self.pid = int(line.recv(16) or 0)

    def poll(self, timeout: float | None = 0) -> int | None:
        """The exit code, None while it runs. As always, a negative one is the number of a signal."""
        if self.returncode is None and select.select([self.line], [], [], timeout)[0]:
            self.returncode = int(self.line.recv(16) or -signal.SIGKILL)  # nothing: it is gone without a word
            self.line.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end."""
        if self.poll(timeout) is None:
            raise subprocess.TimeoutExpired("a forked process", timeout)
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.pid and self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Warm:
    """The warm process of this notebook. It ends with the notebook, however that comes to its end."""

    def __init__(self, environment: dict[str, str], log: BinaryIO) -> None:
        self.read = read_at_start(environment)
        self.line, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment,
                process_group=0,  # an interrupt is for the notebook
            )

    def fits(self, environment: dict[str, str]) -> bool:
        """Tell whether its forks are like new processes in this environment."""
        return self.process.poll() is None and self.read == read_at_start(environment)

    def end(self) -> None:
        """End it. A cell that runs loses its watcher's parent, and the watcher ends the cell."""
        self.line.close()
        self.process.kill()
        self.process.wait()


def read_at_start(environment: dict[str, str]) -> dict[str, str]:
    """The variables that libraries read while they are loaded."""
    return {key: value for key, value in environment.items() if READ_AT_START.match(key)}


_warm: Warm | None = None
_one_at_a_time = threading.Lock()  # cells may run in several threads


def start(scratch: Path, environment: dict[str, str], log: BinaryIO) -> Forked:
    """Have the watcher of a cell forked from the warm process, which is started if need be."""
    global _warm
    request = scratch / "request.json"
    request.write_text(json.dumps([str(scratch), environment, os.getcwd()]), encoding="utf-8")
    their_input, our_output = os.pipe()
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs, _one_at_a_time:
        if _warm is None or not _warm.fits(environment):
            end()
            _warm = Warm(environment, log)
        socket.send_fds(_warm.line, [os.fsencode(request)], [their_input, log.fileno(), theirs.fileno()])
    os.close(their_input)
    return Forked(ours, open(our_output, "wb", buffering=0))


@atexit.register
def end() -> None:
    """End the warm process of this notebook, if there is one."""
    global _warm
    if _warm is not None:
        _warm.end()
        _warm = None


# ---------------------------------------- in the warm process


def main() -> NoReturn:
    """Fork a watcher for each cell, until the notebook is gone or has been idle for long."""
    gc.freeze()  # what is there now is shared by all forks, as long as no collection touches it
    gc.enable()
    line = socket.socket(fileno=int(sys.argv[1]))
    while True:
        if select.select([line], [], [], IDLE_LIMIT)[0]:
            request, streams, _, _ = socket.recv_fds(line, 4096, 3)
            if not request:
                os._exit(0)
            if not os.fork():
                line.close()
                watch(Path(os.fsdecode(request)), streams)
            for stream in streams:
                os.close(stream)
        if not running() and not select.select([line], [], [], 0)[0]:
            os._exit(0)


def running() -> bool:
    """Tell whether a watcher still runs. Those that have ended are gone afterward."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def watch(request: Path, streams: list[int]) -> NoReturn:
    """Be the watcher of a cell: with a group, streams, environment and folder of its own."""
    os.setpgid(0, 0)
    theirs, log, last = streams
    line = socket.socket(fileno=last)
    line.send(str(os.getpid()).encode())
    for number, stream in enumerate((theirs, log, log)):
        os.dup2(stream, number)
    os.close(theirs)
    os.close(log)
    scratch, environment, folder = json.loads(request.read_text(encoding="utf-8"))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)

    pid = os.fork()  # before the watcher starts its thread
    if not pid:
        line.close()
        os._exit(launcher.launch(f"{scratch}/job.json"))
    code = watcher.watch(scratch, lambda: Child(pid)) % 256
    line.send(str(code).encode())
    os._exit(code)


class Child:
    """A process forked by this one: the part of `subprocess.Popen` that the watcher needs."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])  # where `torchcourse` is
    gc.disable()  # as torchcourse.importing does it; importing that would set how the threads of PyTorch wait
    import torch._dynamo  # noqa: F401 - every optimizer and every DistributedDataParallel imports it

    from torchcourse.distributed import launcher, watcher

    main()
