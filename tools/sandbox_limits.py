"""What every sandbox of the course is limited to, beside bubblewrap's namespaces: system calls, files, memory.

`seccomp()` is a program for `bwrap --seccomp FD`. It closes what namespaces leave open: new user namespaces (their
owner may mount file systems in memory), kernel interfaces that a notebook never needs, and sockets that ignore network
namespaces, such as the one between a virtual machine and its host.

`MemoryGroup.make(...)` is a cgroup: the kernel counts everything in it, shared memory and files in /dev/shm included.
Where the system grants none it is None. The filter should then forbid the shared memory that a limit for each process
(`RLIMIT_DATA`) does not count: `seccomp(shared_memory=False)`.
"""

import contextlib
import errno
import functools
import os
import platform
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# --------------------------------------------------------------------------------------------------------- system calls

# The machine's number in the filter, and its numbers of the system calls. From asm/unistd.h, which never changes.
X86_64 = {"arch": 0xC000003E, "mmap": 9, "shmget": 29, "socket": 41, "clone": 56, "semget": 64}
X86_64 |= {"msgget": 68, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298}
X86_64 |= {"setns": 308, "memfd_create": 319, "bpf": 321, "userfaultfd": 323}
AARCH64 = {"arch": 0xC00000B7, "mmap": 222, "shmget": 194, "socket": 198, "clone": 220, "msgget": 186, "semget": 190}
AARCH64 |= {"add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97, "perf_event_open": 241}
AARCH64 |= {"setns": 268, "memfd_create": 279, "bpf": 280, "userfaultfd": 282}
BOTH = {"io_uring_setup": 425, "clone3": 435, "memfd_secret": 447}
MACHINES = {"x86_64": X86_64 | BOTH, "aarch64": AARCH64 | BOTH}

FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: the ones that belong to a network namespace
NEW_NAMESPACE = 0x7E020080  # all of CLONE_NEW*
NEW_BY_CLONE = 0x7E020000  # without CLONE_NEWTIME: clone() has the signal's number in those bits
SHARED_ANONYMOUS = 0x21  # MAP_SHARED | MAP_ANONYMOUS

LOAD, EQUAL, AT_LEAST, AND, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x54, 0x45, 0x06
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000


def seccomp(*, shared_memory: bool = True, machine: str | None = None) -> bytes | None:
    """The filter, ready for `bwrap --seccomp FD`; None on a machine whose system calls are not known here.

    shared_memory: whether to allow shared memory that is in no file. True where a MemoryGroup counts it; what is in
        /dev/shm is always allowed, as the size of that folder limits it
    """
    number = MACHINES.get(machine or platform.machine())
    if number is None:
        return None

    def forbid(call: str, error: int = errno.EPERM) -> list[tuple]:
        return [(EQUAL, number[call], 0, 1), (RETURN, FAIL | error)]

    def forbid_if(call: str, argument: int, *test: tuple, error: int = errno.EPERM) -> list[tuple]:
        """`test` looks at the lower half of an argument, and goes on to its end to forbid the call."""
        body = [(LOAD, 16 + 8 * argument), *test, (RETURN, FAIL | error), (RETURN, ALLOW)]
        return [(EQUAL, number[call], 0, len(body)), *body]

    program = [(LOAD, 4), (EQUAL, number["arch"], 1, 0), (RETURN, KILL), (LOAD, 0)]
    if number["arch"] == X86_64["arch"]:  # the same calls by other numbers: the x32 interface
        program += [(AT_LEAST, 0x40000000, 0, 1), (RETURN, FAIL | errno.ENOSYS)]
    program += forbid("clone3", errno.ENOSYS)  # its flags are in memory, where no filter sees them; libc falls back
    program += forbid_if("clone", 0, (ANY_BIT, NEW_BY_CLONE, 0, 1))
    program += forbid_if("unshare", 0, (ANY_BIT, NEW_NAMESPACE, 0, 1))
    known = [(EQUAL, family, len(FAMILIES) - i, 0) for i, family in enumerate(FAMILIES)]
    program += forbid_if("socket", 0, *known, error=errno.EAFNOSUPPORT)
    for call in ("setns", "add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd"):
        program += forbid(call)
    program += forbid("io_uring_setup", errno.ENOSYS)
    if not shared_memory:
        for call in ("memfd_create", "memfd_secret", "shmget", "semget", "msgget"):
            program += forbid(call)
        flags = [(AND, SHARED_ANONYMOUS), (EQUAL, SHARED_ANONYMOUS, 0, 1)]
        program += forbid_if("mmap", 3, *flags, error=errno.ENOMEM)
    program.append((RETURN, ALLOW))
    return b"".join(struct.pack("<HBBI", code, *(jump or (0, 0)), value) for code, value, *jump in program)


@contextlib.contextmanager
def open_program(program: bytes) -> Iterator[int]:
    """A file descriptor to read the filter from: for `bwrap --seccomp FD`, with `pass_fds=[FD]`, once."""
    read, write = os.pipe()  # a pipe holds more than any filter has
    try:
        with open(write, "wb") as file:
            file.write(program)
        yield read
    finally:
        os.close(read)


# ---------------------------------------------------------------------------------------------------------------- files

# What programs need of /usr and of an environment. Not everything: sources may be there, too (/usr/src/app, ENV/src/…).
PARTS = ("bin", "sbin", "lib*", "include", "share", "etc", "ssl", "pyvenv.cfg")
PARTS += ("cuda*", "nvvm", "targets", "*-linux-gnu")  # compilers
TOPS = [Path("/", name) for name in ("bin", "lib", "lib32", "lib64", "sbin")]  # links into /usr, as a rule
EXCHANGE = Path("/usr/local/share/nbgrader")  # what others hand in, where nbgrader is in use
Binds = dict[Path, Path | None]  # where in the sandbox -> what is there, None for an empty folder


def programs() -> list[Path]:
    """The files and folders that the system's programs and this Python consist of."""
    python = (sys.base_prefix, sys.prefix, Path(sys.executable).resolve().parent.parent)
    places = {Path("/usr"), Path("/usr/local"), *map(Path, python)} - {Path("/")}
    packages = {path for each in sys.path if each.endswith("-packages") and (path := Path(each)).is_dir()}
    tops = {top for top in TOPS if top.exists() and not top.is_symlink()}
    return sorted({path for place in places for part in PARTS for path in place.glob(part)} | packages | tops)


def copies(package: Path) -> list[Path]:
    """Every copy of a package that can be seen: the one that runs, and those that are installed beside it."""
    shown = programs()
    folders = {*shown, *(folder for part in shown for folder in part.glob("python3*/*-packages"))}
    return sorted({package, *((each / package.name).resolve() for each in folders if (each / package.name).is_dir())})


def hide(binds: Binds, root: Path, packages: Iterable[Path], *more: Path) -> None:
    """Put an empty folder wherever these binds would show solutions or what students hand in.

    root, packages: of the course, and copies of its package, which may lie in checkouts of it
    """
    courses = [each for package in packages if (each := package.parents[1]).joinpath("course.toml").exists()]
    binds |= {place: None for folder in (EXCHANGE, root, *courses, *more) for place in places(binds, folder)}


def places(binds: Binds, folder: Path) -> list[Path]:
    """Where these binds show a folder: it may be in several of them, and a bind may show it under another name."""
    real = {place: source.resolve() for place, source in binds.items() if source and folder.exists()}
    return [place / folder.relative_to(source) for place, source in real.items() if folder.is_relative_to(source)]


def mounts(binds: Binds, writable: Path | None = None) -> list[str]:
    """The arguments that make bubblewrap show this, read-only except for one place.

    A place inside another one comes after it: an empty folder hides what is there, except for what is bound in it.
    """
    words = [word for top in TOPS if top.is_symlink() for word in ("--symlink", os.readlink(top), str(top))]
    for place, source in sorted(binds.items()):
        for folder in reversed(place.parents[:-1]):  # bubblewrap would make them for its own user alone
            words += ["--dir", str(folder)]
        how = "--bind" if place == writable else "--ro-bind"
        words += ["--perms", "0755", "--tmpfs", str(place)] if source is None else [how, str(source), str(place)]
    # Last, because mounts need folders. What could be written into these would be memory that no limit counts.
    empty = [str(place) for place, source in binds.items() if source is None]
    return [*words, *(word for place in [*empty, "/dev", "/"] for word in ("--remount-ro", place))]


def hidden_from_others(folder: Path) -> Path | None:
    """The first file or folder, `folder` included, that another user may not read; None if there is none.

    Root starts a sandbox as a user of its own, for whom the folders above do not count, as they are not there.
    """
    for path in (folder, *sorted(folder.rglob("*"))):
        if path.exists() and ~path.stat().st_mode & (0o005 if path.is_dir() else 0o004):
            return path
    return None


# --------------------------------------------------------------------------------------------------------------- memory

# Files of a group, in the two versions of the kernel's interface.
V1 = {"limit": "memory.limit_in_bytes", "swap": "memory.memsw.limit_in_bytes", "events": "memory.oom_control"}
V2 = {"limit": "memory.max", "swap": "memory.swap.max", "events": "memory.events"}
USERS = [] if os.geteuid() == 0 else ["--user"]  # whose systemd keeps a group
JOIN = 'echo 0 > "$0" && exec "$@"'


@dataclass
class MemoryGroup:
    """Memory that all processes of a sandbox share, with a limit that the kernel holds. Make one with `make`.

    prefix: words to put before a command, so that it starts inside; they keep file descriptors and process id
    """

    prefix: list[str]
    files: dict[str, str]
    place: Path | None  # None where systemd keeps the group: known once a process is in it
    unit: str = ""

    @classmethod
    def make(cls, limit: int) -> "MemoryGroup | None":
        """A new group that may hold `limit` bytes, without swap; None where the system grants none."""
        maker = _maker()
        return maker(limit) if maker else None

    def __enter__(self) -> "MemoryGroup":
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()

    @property
    def kills(self) -> int:
        """How many processes the kernel has killed because memory ran out. With systemd, only while one is inside."""
        folder = self._folder()
        try:
            events = (folder / self.files["events"]).read_text() if folder else ""
        except OSError:
            return 0
        return sum(int(line.split()[1]) for line in events.splitlines() if line.startswith("oom_kill "))

    def remove(self) -> None:
        """End what still runs inside, and remove the group."""
        folder = self._folder()
        if folder is None:
            return
        patience = time.monotonic() + 10
        while folder.exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
                return
            with contextlib.suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
            if time.monotonic() > patience:
                return
            time.sleep(0.01)

    def _folder(self) -> Path | None:
        if self.place is None:
            words = ["systemctl", *USERS, "show", "--property=ControlGroup", "--value", self.unit]
            said = subprocess.run(words, capture_output=True, text=True).stdout.strip()
            return Path("/sys/fs/cgroup" + said) if said.startswith("/") and self.unit in said else None
        return self.place


@functools.cache
def _maker() -> Callable[[int], MemoryGroup | None] | None:
    """The function that makes groups here: the first of the ways that really holds a limit, or None."""
    limit = 2**26
    for maker in (_with_systemd, _in_folder):
        trial = maker(limit)
        if trial is None:
            continue
        # Inside, the group must be there with its limit: systemd accepts limits that it does not enforce.
        place = str(trial.place) if trial.place else "/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)"
        with trial:
            words = [*trial.prefix, "sh", "-c", f'cat "{place}/{trial.files["limit"]}"']
            said = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if said.returncode == 0 and said.stdout.strip() == str(limit):
            return maker
    return None


def _with_systemd(limit: int) -> MemoryGroup | None:
    """A scope of systemd, which also plain users may have. The words of `prefix` name the way to the user's systemd."""
    if not Path("/run/systemd/system").exists() or shutil.which("systemd-run") is None:
        return None
    if "SLURM_JOB_ID" in os.environ:  # a scope lies outside of the job, which its limits and its end would not reach
        return None
    unit = f"torchcourse-{secrets.token_hex(8)}.scope"
    way = [
        f"{name}={os.environ[name]}" for name in ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS") if name in os.environ
    ]
    words = ["env", *way, "systemd-run", *USERS, "--scope", "--quiet", "--collect", f"--unit={unit}"]
    words += [f"--property=MemoryMax={limit}", "--property=MemorySwapMax=0", "--"]
    return MemoryGroup(words, V2, None, unit)


def _in_folder(limit: int) -> MemoryGroup | None:
    """A folder below the group of this process, or of one above it: for root, and where a container owns its groups."""
    for files, parent in _parents():
        folder = parent / f"torchcourse-{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            folder.mkdir()
            try:
                (folder / files["limit"]).write_text(str(limit))
            except OSError:
                folder.rmdir()
                continue
            with contextlib.suppress(OSError):  # not there without swap accounting
                (folder / files["swap"]).write_text(str(limit if files is V1 else 0))
            return MemoryGroup(["sh", "-c", JOIN, str(folder / "cgroup.procs")], files, folder)
    return None


def _parents() -> Iterator[tuple[dict[str, str], Path]]:
    """The groups that may get a child which counts memory: names of its files, folder; the nearest first."""
    top = {}  # kind of hierarchy -> the group at the top of what is mounted, and where
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            top[kind] = before.split()[3:5]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, own = line.split(":", 2)
        kind = "cgroup2" if number == "0" else "cgroup" if "memory" in controllers.split(",") else ""
        if kind not in top:
            continue
        root, point = top[kind][0], Path(top[kind][1])
        folder = Path(os.path.normpath(point / os.path.relpath(own, root))) if own.startswith(root) else point
        for parent in (folder, *folder.parents):
            if not parent.is_relative_to(point):
                break
            with contextlib.suppress(OSError):
                if kind == "cgroup" or "memory" in (parent / "cgroup.subtree_control").read_text().split():
                    yield V1 if kind == "cgroup" else V2, parent
