"""The program of the sandbox: limits of the kernel, another user, a home; then the notebook, in `run_submission`."""

import ctypes
import json
import os
import resource
import shutil
import signal
import socket
import sys
from pathlib import Path

HOME = Path("/grade/home")  # what a home begins with
PR_SET_DUMPABLE = 4


def main() -> None:
    if Path(__file__).parent != Path("/grade") or Path("/proc/1/comm").read_text().strip() != "bwrap":
        sys.exit("This file runs in the sandbox of `make grade` only.")
    # What the grader asks for is the first message of the channel, whose number is the argument of this program. Not
    # the standard input: a student's process could open the file or pipe behind that again.
    grader = socket.socket(fileno=int(sys.argv[1]))
    length = int.from_bytes(grader.recv(8, socket.MSG_WAITALL), "big")
    job = json.loads(grader.recv(length, socket.MSG_WAITALL))
    # A cell that takes too long gets this signal. A grader that was started with `&` would hand on that it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    confine(job)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    # Another user than at the start: without this, no part of Python could look at its own /proc/self.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)

    from torchcourse import importing

    importing.load("torch", "labcheck")
    import run_submission

    run_submission.run(job, grader)


def confine(job: dict) -> None:
    """Limits that nothing below can lift; another user than root; a home of its own."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(job["user"], job["user"], job["user"])
        os.setresuid(job["user"], job["user"], job["user"])
    shutil.copytree(HOME / ".cache", "/home/student/.cache", dirs_exist_ok=True)
    os.makedirs("/home/student/lab", exist_ok=True)
    os.chdir("/home/student/lab")
    memory = job["mib"] * 2**20
    # Files and sockets that are open hold memory of the kernel, which not every system counts.
    for what, limit in (("NPROC", job["processes"]), ("DATA", memory), ("CORE", 0), ("NOFILE", 1024)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{what}"), (limit, limit))


if __name__ == "__main__":
    main()
