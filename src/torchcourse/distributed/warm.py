"""A process that has imported PyTorch, so that torchrun and its ranks start at once.

`import torch` takes seconds, and an optimizer imports as much again. torchrun imports it, and so does each of its ranks
anew, in every cell. Here one process does it once for the whole notebook, and makes the others by forking itself:

    notebook ─ warm process ─ watcher (one for each cell) ─ host ┬ torchrun ─ a stand-in for each rank
                                                                 └ the ranks

torchrun is PyTorch's own. It starts `rank.py` as always, but that only asks the host to fork the rank, hands it its
environment and its output, and stands in for it: it passes on signals, and ends as the rank ends. What a rank has of
its own is what any new process has, except that `torch` is imported already, and that all ranks hash strings alike.

Linux only: macOS's own libraries do not survive a fork. There every process starts from nothing.
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
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, BinaryIO, NoReturn

POSSIBLE = sys.platform == "linux"
HOST = "TORCHCOURSE_HOST"  # the environment variable that tells a stand-in in which folder the host listens
IDLE_LIMIT = 900.0  # seconds without a cell until a warm process ends: it holds some 400 MB
# Libraries read these while they are loaded. If one changes, only a new process will do.
READ_AT_START = re.compile(
    r"(LD|PYTHON|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|DNNL|ONEDNN|TBB|MALLOC|TORCH(?!COURSE)|PYTORCH|ATEN|GLOO|NCCL|CUDA|NVIDIA|TRITON)"
)


# ---------------------------------------- who asks


class Forked:
    """A process that another one forks for us. Used like a `subprocess.Popen`."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def __init__(self, line: socket.socket, request: Path, streams: list[int]) -> None:
        """line: to the process that forks; request: see `write`; streams: the input and the two outputs."""
        self.line = line
        self.returncode: int | None = None
        socket.send_fds(line, [os.fsencode(request)], streams)

    def poll(self, timeout: float | None = 0) -> int | None:
        """The exit code, None while it runs. As always, a negative one is the number of a signal."""
        if self.returncode is None and select.select([self.line], [], [], timeout)[0]:
            said = _received(self.line)
            self.returncode = int(said) if said else -signal.SIGKILL  # nothing: the process that forks is gone
            self.line.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end."""
        if self.poll(timeout) is None:
            raise subprocess.TimeoutExpired("a forked process", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        with contextlib.suppress(OSError):
            self.line.send(bytes([number]))

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def write(request: Path, arguments: list[str], environment: dict[str, str]) -> Path:
    """Write down what a fork should know: its arguments, its environment, its folder."""
    request.write_text(json.dumps([arguments, environment, os.getcwd()]), encoding="utf-8")
    return request


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

    def fork(self, request: Path, streams: list[int]) -> Forked:
        """Have it forked; see `Forked`."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.line, [b"."], [theirs.fileno()])
        return Forked(ours, request, streams)

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


def start(scratch: Path, options: list[str], environment: dict[str, str], log: BinaryIO) -> Forked:
    """Start the watcher of a cell, and below it torchrun: forked from the warm process, which is started if need be."""
    global _warm
    request = write(scratch / "cell.json", [str(scratch), *options], environment)
    (their_input, our_output), (our_input, their_output) = os.pipe(), os.pipe()
    try:
        with _one_at_a_time:
            if _warm is None or not _warm.fits(environment):
                end()
                _warm = Warm(environment, log)
            process = _warm.fork(request, [their_input, their_output, log.fileno()])
    finally:
        os.close(their_input)
        os.close(their_output)
    process.stdin, process.stdout = open(our_output, "wb", buffering=0), open(our_input, "rb", buffering=0)  # noqa: SIM115
    return process


@atexit.register
def end() -> None:
    """End the warm process of this notebook, if there is one."""
    global _warm
    if _warm is not None:
        _warm.end()
        _warm = None


def stand_in(arguments: list[str]) -> NoReturn:
    """Be a rank for torchrun: have it forked by the host, pass on signals, and end as it ends."""
    scratch = Path(os.environ.pop(HOST))
    line = socket.socket(socket.AF_UNIX)
    with contextlib.chdir(scratch):  # the address of a socket may have 107 bytes, a path may have more
        line.connect("host")
    request = write(scratch / f"{os.getpid()}.json", arguments, dict(os.environ))
    rank = Forked(line, request, [0, 1, 2])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda number, _: rank.send_signal(number))
    code = rank.wait()
    if code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # if a core is dumped, it is the rank's
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


# ---------------------------------------- who forks


def serve(
    source: socket.socket,
    accept: Callable[[], socket.socket | None],
    goes_on: Callable[[bool], bool],
    deliver: Callable[[int, int], None],
    orphaned: int,
) -> list[str] | None:
    """Fork this process for everyone who asks, as long as `goes_on(idle)`.

    Returns in each fork, with the arguments of its request, and here at the end, with None.

    source: becomes readable when someone asks; accept: gives the line to them, None if nobody will ask any more;
    deliver: sends a signal to a process; orphaned: the signal for a process when nobody waits for it any more.
    """
    lines: dict[socket.socket, int] = {}  # to those who asked: the process forked for them, 0 before their request
    orphans: set[int] = set()
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    sources = [source]
    while (sources or lines) and goes_on(not lines):
        ready, _, _ = select.select([*sources, wake, *lines], [], [], 1.0)
        if wake in ready:
            wake.recv(4096)
        for line in set(ready) & set(lines):
            if pid := lines[line]:
                numbers = _received(line)
                if not numbers:
                    orphans.add(lines.pop(line))
                    line.close()
                for number in numbers or [orphaned]:
                    with contextlib.suppress(ProcessLookupError):
                        deliver(pid, number)
                continue
            request, streams, _, _ = socket.recv_fds(line, 4096, 3)
            if not request:  # they went away before they asked
                del lines[line]
                line.close()
                continue
            lines[line] = os.fork()
            if not lines[line]:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (source, wake, woken, *lines):
                    other.close()
                return _become(Path(os.fsdecode(request)), streams)
            with contextlib.suppress(OSError):  # as it does itself: a signal may come before it gets there
                os.setpgid(lines[line], lines[line])
            for stream in streams:
                os.close(stream)
        for line, pid in [*lines.items()]:
            ended, status = os.waitpid(pid, os.WNOHANG) if pid else (0, 0)
            if ended:
                with contextlib.suppress(OSError):
                    line.send(str(os.waitstatus_to_exitcode(status)).encode())
                lines.pop(line)
                line.close()
        orphans = {pid for pid in orphans if not os.waitpid(pid, os.WNOHANG)[0]}
        if source in ready:
            line = accept()
            if line:
                lines[line] = 0
            else:
                sources = []
    return None


def _received(line: socket.socket) -> bytes:
    try:
        return line.recv(16)
    except OSError:
        return b""


def _become(request: Path, streams: list[int]) -> list[str]:
    """Be a process of one's own: group, streams, environment, folder, chance. Returns the arguments."""
    os.setpgid(0, 0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    arguments, environment, folder = json.loads(request.read_text(encoding="utf-8"))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    numpy.random.seed()  # Python's own generator does that by itself
    return arguments


# ---------------------------------------- the processes


def main() -> NoReturn:
    """Be the warm process: wait for cells."""
    gc.freeze()  # what is there now is shared by all forks, as long as no collection touches it
    gc.enable()
    line = socket.socket(fileno=int(sys.argv[1]))
    used = time.monotonic()

    def accept() -> socket.socket | None:
        _, numbers, _, _ = socket.recv_fds(line, 1, 1)
        return socket.socket(fileno=numbers[0]) if numbers else None

    def goes_on(idle: bool) -> bool:
        nonlocal used
        used = used if idle else time.monotonic()
        return time.monotonic() < used + IDLE_LIMIT

    arguments = serve(line, accept, goes_on, os.kill, signal.SIGTERM)
    if arguments is None:
        os._exit(0)
    watch(*arguments)


def watch(scratch: str, *arguments: str) -> NoReturn:
    """Be the watcher of one cell."""
    watcher.adopt_orphans()
    pid = os.fork()
    if not pid:
        host(scratch, *arguments)
    os._exit(watcher.watch(scratch, lambda: Child(pid)) % 256)


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


def host(scratch: str, *arguments: str) -> NoReturn:
    """Be the process that forks torchrun, and each rank when torchrun starts it."""
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.chdir(scratch):
        listener.bind("host")
    listener.listen()
    pid = os.fork()
    if not pid:
        listener.close()
        os.environ[HOST] = scratch
        torchrun(arguments)
    launcher = Child(pid)
    job = serve(listener, lambda: listener.accept()[0], lambda _: launcher.poll() is None, os.killpg, signal.SIGKILL)
    if job is None:
        os._exit(launcher.returncode % 256)
    leave(rank.run(*job))


def torchrun(arguments: tuple[str, ...]) -> NoReturn:
    """Be torchrun."""
    sys.argv = ["torchrun", *arguments]
    try:
        torch.distributed.run.main(sys.argv[1:])
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


def leave(code: int) -> NoReturn:
    """End as Python does, but without taking apart what was there before the fork: that takes a second."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()  # as multiprocessing does it in its own forks
    sys.modules["__main__"].__dict__.clear()  # what the rank has made comes to its end: files are closed
    gc.collect()
    os._exit(code)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])  # where `torchcourse` is
    gc.disable()  # as torchcourse.importing does it; importing that would set how the threads of PyTorch wait
    import numpy
    import torch
    import torch._dynamo  # every optimizer and every DistributedDataParallel imports it
    import torch.distributed.run

    from torchcourse.distributed import rank, watcher

    main()
