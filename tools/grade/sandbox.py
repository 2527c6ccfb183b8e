"""The sandbox, by bubblewrap: a submission sees Python, two packages, the data, its own notebook, and nothing else.

    out of reach   the network; other processes; every file but those that are `shown` (read-only), so no solutions,
                   no gradebook, no other submission, no home; the environment variables
    limited        time of a cell and of the whole; memory and processes; `/tmp` and `/dev/shm`, which are in memory

There are two sets of limits. Inside, each process has the kernel's own (`RLIMIT_DATA`, `RLIMIT_NPROC`, `RLIMIT_FSIZE`);
from outside, a watcher adds up the processes' memory and ends the sandbox as a whole. Started by root, the submission
runs as an otherwise unused user, because limits on processes do not hold for root.
"""

import contextlib
import json
import os
import re
import resource
import secrets
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import matplotlib
import psutil

import labcheck
import torchcourse
from tools import course, sandbox_limits
from tools.course import Chapter
from tools.sandbox_limits import MemoryGroup, open_program, seccomp
from torchcourse.data.catalog import SPECS
from torchcourse.place import LABS

INSIDE = Path(__file__).parent / "in_sandbox"
# What notebooks import. The exercises' own package, with its reference solutions, is never shown.
PACKAGES = [Path(package.__file__).resolve().parent for package in (torchcourse, labcheck)]
ALLOW_ALL = struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000)  # a filter for machines whose calls are not known
COLORS = re.compile(r"\x1b\[[\d;]*m")
# Why a cell was interrupted: it met a limit of processor time, one by the clock, or that of an exercise.
LATE = {"processor": "processor time", "clock": "the clock", "exercise": "the limit of an exercise"}
REPORT = 32 * 2**20  # bytes that a report may have


@dataclass(frozen=True)
class Limits:
    """What one submission may take."""

    seconds: float  # of processor time, for all cells; answers have the limits of their exercises
    cell_seconds: float  # of processor time
    mib: int  # memory of one process; all together may have twice as much
    processes: int = 256  # threads count
    disk_mib: int = 512  # of /tmp; /dev/shm has as much
    patience: float = 20.0  # seconds on top, for an exercise and for the start
    clock: float = 2.0  # times as many seconds may pass by the clock: neighbors take the processor, too

    @classmethod
    def of(cls, chapter: Chapter) -> "Limits":
        """Generous ones, from what the solution of the chapter may take."""
        budgets = list(chapter.budget.get("solution", {}).values()) or [{"seconds": 60, "mib": 2000}]
        seconds = 5 * max(60, *(budget["seconds"] for budget in budgets))
        return cls(seconds, seconds / 2, 1000 + int(max(budget["mib"] for budget in budgets)))


@dataclass
class Report:
    """What came out of a sandbox. Its texts are the student's: escape them."""

    ended: str = "the sandbox ended before the notebook did"  # "whole", or a sentence
    cells: dict[str, dict] = field(default_factory=dict)  # id -> text, error, late: see LATE
    verdicts: dict[str, dict] = field(default_factory=dict)  # exercise -> outcome, message, expected, yours, look
    disturbed: bool = False  # whether it met a limit that may be its neighbors' fault: it runs again, alone
    failed: bool = False  # whether the grader did, not the notebook: none of its code has run, or no verdict is left


def why_not() -> str:
    """The sentence that says why no sandbox can be made here, and what to do; empty if one can."""
    if not shutil.which("bwrap"):
        return "bubblewrap is missing, and submissions are not run without a sandbox: apt install bubblewrap"
    probe = subprocess.run([*_bwrap(), "--ro-bind", "/", "/", "true"], capture_output=True, text=True)
    if probe.returncode:
        return (
            f"bubblewrap cannot make a sandbox here: {probe.stderr.strip()}\n"
            "It needs user namespaces. In a container: start it with `--privileged`, or grade outside. On Ubuntu 24.04 "
            "or later: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`. Or grade as root."
        )
    return ""


def _bwrap() -> list[str]:
    """The part that separates: namespaces of processes, network, users, and so on."""
    separate = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if os.getuid() == 0:  # `in_sandbox.start` becomes another user, for which it needs these two
        rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        rights = ["--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    return ["bwrap", *separate, *rights, "--die-with-parent", "--new-session", "--hostname", "localhost", "--clearenv"]


def shown(data: Path | None) -> sandbox_limits.Binds:
    """What a submission may read: the system's programs, this Python, the package and its checks, the data.

    A checkout of the course, perhaps with all submissions, and copies of the exercises may be inside the folders of
    programs. Wherever those would show them, they are hidden.
    """
    system = (Path("/etc/ld.so.cache"), Path("/etc/alternatives"), *PACKAGES, *sandbox_limits.programs())
    sets = [data.resolve() / folder for name in SPECS for folder in (name, SPECS[name].folder)] if data else []
    binds: sandbox_limits.Binds = {path: path for path in (*system, *sets) if path.exists()}
    exercises = sandbox_limits.copies(PACKAGES[0].with_name(LABS))
    sandbox_limits.hide(binds, course.ROOT, sandbox_limits.copies(PACKAGES[0]), *exercises)
    return binds


def _arguments(jail: Path, limits: Limits, data: Path | None, filter_: int) -> list[str]:
    disk = ["--perms", "1777", "--size", str(limits.disk_mib * 2**20), "--tmpfs"]
    # The empty folders come first: the checkout, the environment or the data may lie below one of them.
    words = [*_bwrap(), "--seccomp", str(filter_), "--proc", "/proc", "--dev", "/dev"]
    for folder in ("/dev/shm", "/tmp", "/home/student"):
        words += [*disk, folder]
    binds = {
        **shown(data),
        Path("/etc/hosts"): jail / "etc" / "hosts",
        Path("/etc/passwd"): jail / "etc" / "passwd",
        Path("/grade/home"): jail / "home",
        **{Path("/grade") / path.name: path for path in INSIDE.glob("*.py")},
    }
    words += sandbox_limits.mounts(binds)
    environment = {
        "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
        "HOME": "/home/student",
        "USER": "student",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(PACKAGES[0].parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "NBGRADER_EXECUTION": "autograde",
    }
    if data:
        environment["TORCHCOURSE_DATA"] = str(data.resolve())
    settings = [word for name, value in environment.items() for word in ("--setenv", name, value)]
    return [*words, "--chdir", "/tmp", *settings, sys.executable, "-B", "/grade/start.py"]


def _furnish(jail: Path) -> None:
    """The few files that programs expect to find, and matplotlib's list of fonts, which takes seconds to make."""
    (jail / "etc").mkdir()
    (jail / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    (jail / "etc" / "passwd").write_text("student:x:1000:1000::/home/student:/bin/sh\n")
    cache = jail / "home" / ".cache" / "matplotlib"
    cache.mkdir(parents=True)
    for path in Path(matplotlib.get_cachedir()).glob("fontlist-*.json"):
        shutil.copyfile(path, cache / path.name)
    for path in jail.rglob("*"):  # whatever the umask: what runs in the sandbox is another user than root
        path.chmod(0o755 if path.is_dir() else 0o644)


class Box:
    """A sandbox that is running: its process, the channel to what runs in it, and a watcher that may end it."""

    def __init__(
        self, process: subprocess.Popen, channel: socket.socket, limits: Limits, group: MemoryGroup | None
    ) -> None:
        self.process, self.channel, self.limits, self.group = process, channel, limits, group
        self.cpu_seconds = 0.0  # processor time of all its processes
        self.too_much = f"memory limit: all processes together held more than {2 * limits.mib} MiB"
        self.stopped = ""  # why it had to be ended
        self.scarce = False  # whether its neighbors may have taken what it needed
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()

    def _watch(self) -> None:
        limits = self.limits
        while self.process.poll() is None:
            time.sleep(0.2)
            self.scarce |= scarce()
            children = []
            with contextlib.suppress(psutil.Error):  # it has just ended
                children = psutil.Process(self.process.pid).children(recursive=True)
            self.cpu_seconds = max(self.cpu_seconds, _worked(children))
            if len(children) > limits.processes / 2:
                self.stopped = f"process limit: more than {limits.processes // 2} processes"
            elif _held(children, 2 * limits.mib) > 2 * limits.mib or (self.group and self.group.kills):
                self.stopped = self.too_much
            if self.stopped:
                self.process.kill()  # bubblewrap takes all processes of its sandbox with it

    def end(self) -> str:
        """End the sandbox, and everything in it. Returns why it had been ended before; empty if it had not."""
        self.process.kill()
        self.process.wait()
        self.watcher.join()
        if self.group and self.group.kills and not self.stopped:
            self.stopped = self.too_much
        return self.stopped

    def complaint(self) -> str:
        """The last line that was said about a sandbox that could not start; empty if it could. For one that has ended.

        Bubblewrap and our program say something only before any code of a student runs.
        """
        lines = self.process.stderr.read(2**16).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


@contextlib.contextmanager
def started(job: dict, passed: list[int], limits: Limits, data: Path | None) -> Iterator[Box]:
    """Start `in_sandbox/start.py` in a sandbox, with a job, a channel, and the file descriptors `passed`."""
    ours, theirs = socket.socketpair()
    job = json.dumps({"user": 10**9 + secrets.randbelow(10**9), **asdict(limits), **job}).encode()
    files = (limits.disk_mib * 2**20,) * 2  # no file may become larger than the disk
    group = MemoryGroup.make(2 * limits.mib * 2**20)
    with (
        group or contextlib.nullcontext(),
        # What no group counts is forbidden: shared memory that is in no file.
        open_program(seccomp(shared_memory=group is not None) or ALLOW_ALL) as filter_,
        tempfile.TemporaryDirectory(prefix="grade-") as folder,
    ):
        _furnish(Path(folder))
        process = subprocess.Popen(
            [*(group.prefix if group else []), *_arguments(Path(folder), limits, data, filter_), str(theirs.fileno())],
            # What bubblewrap itself has can be seen from inside, through /proc/1: no variable, no file of ours.
            env={"PATH": os.environ.get("PATH", os.defpath)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[filter_, theirs.fileno(), *passed],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, files),
            start_new_session=True,
        )
        theirs.close()
        box = Box(process, ours, limits, group)
        try:
            ours.settimeout(limits.patience)
            with contextlib.suppress(OSError):  # it has ended already: the reader will notice
                ours.sendall(len(job).to_bytes(8, "big") + job)
            yield box
        finally:
            box.end()
            ours.close()
            process.stderr.close()


def scarce() -> bool:
    """Whether something has run out that Linux counts per user, and so for all sandboxes of a plain user together.

    Namely file descriptors in flight through sockets, as many as a process may open, and files that epoll watches.
    """
    try:
        ours, theirs = socket.socketpair()
        with ours, theirs, select.epoll() as waiting:
            waiting.register(ours)
            socket.send_fds(ours, [b"."], [ours.fileno()])
    except OSError:
        return True
    return False


def _worked(processes: list[psutil.Process]) -> float:
    """Seconds of processor time that the processes have had, with those of their children that ended."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def _held(processes: list[psutil.Process], enough: float) -> float:
    """MiB that the processes hold together; not looked at closely while it cannot be more than `enough`."""
    held = [_memory(process, lambda process: process.memory_info().rss) for process in processes]
    if sum(held) > enough * 2**20:
        # A fork shares its pages with its parent: counted in parts (PSS), which takes Linux longer to say.
        held = [_memory(process, lambda process: process.memory_full_info().pss) for process in processes]
    return sum(held) / 2**20


def _memory(process: psutil.Process, ask: Callable[[psutil.Process], int]) -> int:
    with contextlib.suppress(psutil.NoSuchProcess):
        try:
            return ask(process)
        except psutil.AccessDenied:  # of a process that shows itself to nobody, such as `in_sandbox.start`
            memory = process.memory_info()
            return memory.rss - memory.shared
    return 0
