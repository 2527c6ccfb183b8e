"""A small process between a notebook and what it starts: whatever happens to the notebook, nothing keeps running.

Called as `watcher.py SCRATCH COMMAND...`. It starts the command and ends with its exit code. Its standard input is a
pipe that only the caller holds open. One byte on it is a request: the cell was interrupted, or the time is up. The end
of the pipe without a byte means that the caller is dead. Either way the watcher ends the command and every process
below it; when the caller is dead, it also removes the folder SCRATCH. torchrun alone could not do that: it puts each
rank into a session of its own, out of reach of the signals that end a notebook. The runner behind `make run` starts its
kernels in the same way.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

PATIENCE = 1.5  # seconds between the request to end and the end


def adopt_orphans() -> None:
    """Processes whose parent ends become our children (Linux), so that none is lost from sight."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def end_all(known: set[psutil.Process]) -> None:
    """End all processes below this one: first torchrun, then its ranks, politely and then not."""
    me = psutil.Process()
    for child in me.children():
        with contextlib.suppress(psutil.Error):
            child.kill()
    known |= set(me.children(recursive=True))
    for process in known:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    psutil.wait_procs(list(known), timeout=PATIENCE)
    for _ in range(50):  # a process that is killed may have started another one meanwhile
        rest = {p for p in known | set(me.children(recursive=True)) if p.is_running()}
        rest = {p for p in rest if status(p) not in (None, psutil.STATUS_ZOMBIE)}
        if not rest:
            return
        for process in rest:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(list(rest), timeout=0.2)


def status(process: psutil.Process) -> str | None:
    """The state of a process, None if it is gone."""
    try:
        return process.status()
    except psutil.Error:
        return None


def watch(scratch: str, start: Callable[[], Any]) -> int:
    """Start something and watch it. Returns its exit code, 1 if it had to be ended.

    start: returns something like a `subprocess.Popen`
    """
    caller = os.getppid()
    adopt_orphans()
    # Signals are written down, and the loop below looks: an exception out of a handler could come in the middle of the
    # ending itself, when the pipe has ended and a signal comes at the same time.
    asked: list[int] = []
    for number in (getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)):
        signal.signal(number, lambda number, _: asked.append(number))
    said: list[bytes] = []  # what came through the pipe: a byte, or nothing at its end
    # A thread, because Windows cannot wait for a pipe and for a time at once.
    pipe = threading.Thread(target=lambda: said.append(os.read(0, 1)), daemon=True)
    pipe.start()
    known: set[psutil.Process] = set()
    child = start()
    try:
        while child.poll() is None:
            pipe.join(0.1)
            if asked or not pipe.is_alive() or os.getppid() != caller:
                return 1
            with contextlib.suppress(psutil.Error):
                known.update(psutil.Process().children(recursive=True)) if sys.platform != "linux" else None
        return child.returncode
    finally:
        end_all(known)
        if b"" in said or os.getppid() != caller:
            time.sleep(0.1)
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(watch(sys.argv[1], lambda: subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)))
