"""The sandbox, made by bubblewrap: a submission sees Python, the package, the data, its own notebook, and nothing else.

    out of reach   the network; other processes; every file but those of `visible` (read-only), so no solutions, no
                   gradebook, no other submission, no home; the environment variables
    limited        time of a cell and of the whole; memory and processes; `/tmp` and `/dev/shm`, which are in memory

Limits stand twice. Inside, each process has the kernel's own (`RLIMIT_DATA`, `RLIMIT_NPROC`, `RLIMIT_FSIZE`); from
outside a watcher adds up the processes' memory and ends the sandbox as a whole. Started by root, the submission runs as
a user that nobody is, because limits on processes do not hold for root.
"""

import contextlib
import json
import os
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import matplotlib
import psutil

import torchcourse
from tools.course import Chapter
from torchcourse.checks.engine import find

HERE = Path(__file__).parent
PACKAGE = Path(torchcourse.__file__).resolve().parent
EXCHANGE = Path("/usr/local/share/nbgrader")  # submissions of others lie there on a hub
LOOK_EVERY = 0.2  # seconds
REPORT = 32 * 2**20  # bytes that a report may have
INSTALL = "apt install bubblewrap (or dnf, pacman, zypper)"


@dataclass(frozen=True)
class Limits:
    """What one submission may take."""

    seconds: float  # for the notebook; judging its answers has the limits of the exercises
    cell_seconds: float
    mib: int  # memory of one process; all together may have twice as much
    processes: int = 256  # threads count
    disk_mib: int = 512  # of /tmp; /dev/shm has as much
    patience: float = 20.0  # seconds on top, for an exercise and for the start

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
    cells: dict[str, dict] = field(default_factory=dict)  # id -> text, error, late, pictures
    verdicts: dict[str, dict] = field(default_factory=dict)  # exercise -> outcome, message, expected, yours, look
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    mib: float = 0.0


def refuse_without() -> None:
    """Raise SystemExit(2) with what to do, unless a sandbox can be made here."""
    if not shutil.which("bwrap"):
        _refuse(f"bubblewrap is missing, and submissions are not run without a sandbox: {INSTALL}")
    probe = subprocess.run([*_bwrap(), "--ro-bind", "/", "/", "true"], capture_output=True, text=True)
    if probe.returncode:
        _refuse(
            f"bubblewrap cannot make a sandbox here: {probe.stderr.strip()}\n"
            "It needs user namespaces. In a container: start it with `--privileged`, or grade outside. On Ubuntu 24.04 "
            "or later: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`. Or grade as root."
        )


def _refuse(sentence: str) -> None:
    print(sentence, file=sys.stderr)
    raise SystemExit(2)


def _bwrap() -> list[str]:
    """The part that separates: namespaces of processes, network, users, and so on."""
    separate = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if os.getuid() == 0:  # `inside` becomes another user, for which it needs these two
        rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        rights = ["--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    return ["bwrap", *separate, *rights, "--die-with-parent", "--new-session", "--hostname", "localhost", "--clearenv"]


def visible(data: Path | None) -> list[Path]:
    """Files and folders that a submission may read: the system's programs, this Python, the package, the data."""
    python = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent.parent]
    packages = [Path(each) for each in sys.path if each.endswith("-packages")]
    every = [*python, *packages, PACKAGE, *([data.resolve()] if data else [])]
    return [path for path in every if path.exists() and path not in (Path("/"), Path.home())]


def _arguments(jail: Path, limits: Limits, data: Path | None) -> list[str]:
    binds = {
        **{Path(name): Path(name) for name in ("/usr", "/etc/ld.so.cache", "/etc/alternatives") if Path(name).exists()},
        **{path: path for path in visible(data)},
        Path("/etc/hosts"): jail / "etc" / "hosts",
        Path("/etc/passwd"): jail / "etc" / "passwd",
        Path("/grade/home"): jail / "home",
        Path("/grade/inside.py"): HERE / "inside.py",
    }
    system = []
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if Path(name).is_symlink():
            system += ["--symlink", os.readlink(name), name]
        elif Path(name).exists():
            binds[Path(name)] = Path(name)
    # Folders on the way to a bind would be made for root alone, so they are made first.
    for folder in sorted({parent for path in binds for parent in path.parents if parent != Path("/")}):
        system += ["--dir", str(folder)]
    for path, source in sorted(binds.items()):
        system += ["--ro-bind", str(source), str(path)]
    if EXCHANGE.exists():
        system += ["--tmpfs", str(EXCHANGE)]
    disk = ["--perms", "1777", "--size", str(limits.disk_mib * 2**20), "--tmpfs"]
    environment = {
        "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
        "HOME": "/tmp/home",
        "USER": "student",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(PACKAGE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "NBGRADER_EXECUTION": "autograde",
    }
    if data:
        environment["TORCHCOURSE_DATA"] = str(data.resolve())
    settings = [word for name, value in environment.items() for word in ("--setenv", name, value)]
    return [
        *_bwrap(),
        *system,
        *("--proc", "/proc", "--dev", "/dev", *disk, "/dev/shm", *disk, "/tmp", *disk, "/hand-in"),
        *("--chdir", "/tmp", *settings, sys.executable, "-B", "/grade/inside.py"),
    ]


def _furnish(jail: Path) -> None:
    """The few files that programs expect to find, and matplotlib's list of fonts, which takes seconds to make."""
    (jail / "etc").mkdir()
    (jail / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    (jail / "etc" / "passwd").write_text("student:x:1000:1000::/tmp/home:/bin/sh\n")
    cache = jail / "home" / ".cache" / "matplotlib"
    cache.mkdir(parents=True)
    for path in Path(matplotlib.get_cachedir()).glob("fontlist-*.json"):
        shutil.copy(path, cache)


def run(cells: list[dict], chapter: str, seeds: dict[str, list[int]], limits: Limits, data: Path | None) -> Report:
    """Run the cells of a notebook in a sandbox and judge the answers there.

    cells: each with id and source, or with id, name and asks: there the answer `asks` to the exercise `name` is due
    seeds: exercise -> the secret seeds that it is judged with
    """
    job = {"chapter": chapter, "cells": cells, "user": 10**9 + secrets.randbelow(10**9), **asdict(limits)}
    judging = sum(3 * len(each) * find(name).seconds + limits.patience for name, each in seeds.items())
    with (
        tempfile.TemporaryDirectory(prefix="grade-") as folder,
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as report,
    ):
        _furnish(Path(folder))
        given.write(json.dumps(job).encode() + b"\n" + json.dumps(seeds).encode() + b"\n")
        given.seek(0)
        start = time.monotonic()
        process = subprocess.Popen(
            _arguments(Path(folder), limits, data),
            stdin=given,
            stdout=report,
            stderr=None if os.environ.get("GRADE_DEBUG") else subprocess.DEVNULL,
            preexec_fn=lambda: _limit_files(limits),
            start_new_session=True,
        )
        stopped, mib = _watch(process, limits, start + limits.seconds + judging + 2 * limits.patience)
        seconds = time.monotonic() - start
        report.seek(0)
        result = _read(report.read(REPORT))
    result.seconds, result.mib = seconds, mib
    result.ended = stopped or result.ended
    return result


def _limit_files(limits: Limits) -> None:
    """No file may become larger than the disk; that holds for the report too, which lies on ours."""
    size = limits.disk_mib * 2**20
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _watch(process: subprocess.Popen, limits: Limits, deadline: float) -> tuple[str, float]:
    """Wait for the sandbox to end, or end it. Returns why it had to be ended, and the most memory it held in MiB."""
    most = 0.0
    try:
        while process.poll() is None:
            time.sleep(LOOK_EVERY)
            children = _children(process)
            if len(children) > limits.processes / 2:
                return f"process limit: more than {limits.processes // 2} processes", most
            most = max(most, _held(children, 2 * limits.mib))
            if most > 2 * limits.mib:
                return f"memory limit: all processes together held more than {2 * limits.mib} MiB", most
            if time.monotonic() > deadline:
                return "time limit: the judgment did not come to its end", most
        return "", most
    finally:
        process.kill()  # bubblewrap takes all processes of its sandbox with it
        process.wait()


def _children(process: subprocess.Popen) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:  # it has just ended
        return []


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
        except psutil.AccessDenied:  # of a process that shows itself to nobody, such as `inside`
            memory = process.memory_info()
            return memory.rss - memory.shared
    return 0


def _read(report: bytes) -> Report:
    """The report, line by line: the last one may be cut off."""
    result = Report()
    for line in report.split(b"\n"):
        try:
            said = json.loads(line)
            if said["kind"] == "notebook":
                result.ended, result.cells = str(said["ended"]), dict(said["cells"])
            elif said["kind"] == "verdict":
                result.verdicts[str(said["name"])] = said
            elif said["kind"] == "end":
                result.cpu_seconds = float(said["cpu_seconds"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return result
