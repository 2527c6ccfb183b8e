"""Ends processes, with all that they have started: the ranks of a cell, and the kernel of a notebook.

Called as `watcher.py SCRATCH COMMAND...`, it is a small process between a caller and a command, and ends with the
command's exit code. Its standard input is a pipe that only the caller holds open: a byte on it, or its end, is the
request to end the command and every process below it. If the caller is dead, the folder SCRATCH is removed as well. The
runner behind `make run` starts its kernels in this way.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import NoReturn

import psutil

PATIENCE = 1.5  # seconds between the request to end and the end


def adopt_orphans() -> None:
    """Processes whose parent ends become our children (Linux), so that none is lost from sight."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def end_all() -> None:
    """End all processes below this one, politely and then not."""
    for attempt in range(50):  # one that is killed may have started another one meanwhile
        below = psutil.Process().children(recursive=True)
        if not below:
            return
        for process in below:
            with contextlib.suppress(psutil.Error):
                process.kill() if attempt else process.terminate()
        psutil.wait_procs(below, timeout=0.2 if attempt else PATIENCE)


def watch(scratch: str, command: list[str]) -> NoReturn:
    """Run a command, and end with it."""
    caller = os.getppid()

    def end(code: int) -> NoReturn:
        """Called by a signal handler and by threads, perhaps several at once: each call does all of it."""
        end_all()
        if os.getppid() != caller:
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(code)

    def end_on_request() -> None:
        os.read(0, 1)
        end(1)

    adopt_orphans()
    for name in {"SIGINT", "SIGTERM", "SIGHUP"} & set(dir(signal)):
        signal.signal(getattr(signal, name), lambda *_: end(1))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    # A thread, because Windows cannot wait for a pipe and for a process at once.
    threading.Thread(target=end_on_request, daemon=True).start()
    end(process.wait())


if __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2:])
