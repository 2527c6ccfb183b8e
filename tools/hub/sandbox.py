"""The sandbox of a student's server, made with bubblewrap.

Inside, a student finds the system's programs, the Python environment, the package of the course, the data and the
course's repository, all read-only, and their own home, writable. Everything else is not there: other students' homes,
the project with its solutions, the hub's own files, other processes, the machine's network (see sandbox_start.py).

Started by root, each student is a user of their own, with a number that no one else has. Bubblewrap arranges the files
as root, because environment and home may be where that user cannot go; then it gives root up for good, before the first
program of the student's starts. A user namespace would show the machine's root under another name instead, and the
files in /proc/sys would be its own. Started by a plain user, a user namespace does all that.
"""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from tools import sandbox_limits
from tools.course import ROOT

# What programs look up in /etc. Not the whole of it: a hub started by root would show its passwords, too.
ETC = ("alternatives", "ca-certificates", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")
ETC += ("mime.types", "nsswitch.conf", "pki/ca-trust", "pki/tls/certs", "ssl/certs", "ssl/openssl.cnf", "terminfo")
ETC += ("timezone",)
SYS = ("bus", "class", "dev", "devices", "module")  # of /sys: processors and GPUs, but no cgroups
PLACE = Path("/run/torchcourse")  # inside: what belongs to the hub
# What notebooks import, and the exercises: the folders of the installed packages, found without importing them.
PACKAGES = [Path(find_spec(name).origin).parent for name in ("torchcourse", "labcheck", "torchcourse_labs")]
PROCESSES = 512  # per student: a kernel of PyTorch and its DataLoader workers take dozens, threads included
FILES = 4096  # that a process may have open
USERS = range(2_000_000_000, 2_100_000_000)  # numbers that Linux distributions leave alone


class Memory:
    """How many bytes each part may have, so that all of them stay within the `whole` that a student has.

    counted: whether a sandbox_limits.MemoryGroup holds the sum; where none can, the parts have to add up to it
    """

    def __init__(self, whole: int, counted: bool):
        self.shared = whole // 4  # of /dev/shm, through which DataLoader workers hand over their batches
        self.temporary = whole // 8  # of /tmp
        self.process = whole if counted else whole - self.shared - self.temporary  # of each process
        # Forbid memory that no limit counts? Not beside a GPU, as its driver may share such memory with programs.
        self.strict = not counted and not gpus()


def gpus() -> list[Path]:
    """The devices of NVIDIA's driver."""
    return sorted(Path("/dev").glob("nvidia*"))


def arguments(
    home: Path, readable: Iterable[Path], state: Path, own: Path, user: int | None, memory: Memory, filter_fd: int
) -> list[str]:
    """The words that start a command inside the sandbox: put them before it.

    home: the student's folder, writable; must exist
    readable: folders and files that are shown at their own place, read-only
    state: the hub's folder. It and the course are hidden wherever they are, except for what is `readable`
    own: the folder that `furnish` has filled
    user: the number of the student's user; None if the hub itself is not root
    filter_fd: where bubblewrap reads the program of sandbox_limits.seccomp
    """
    words = ["bwrap", "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-net"]
    words += ["--unshare-uts", "--hostname", "localhost", "--unshare-cgroup-try", "--seccomp", str(filter_fd)]
    if user is None:
        words += ["--unshare-user", "--uid", "1000", "--gid", "1000", "--disable-userns"]
    else:
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    there = [Path("/etc", name) for name in ETC] + [Path("/sys", name) for name in SYS]
    binds: sandbox_limits.Binds = {
        path: path for path in (*sandbox_limits.programs(), *there, *readable) if path.exists()
    }
    sandbox_limits.hide(binds, ROOT, sandbox_limits.copies(PACKAGES[0]), state)
    binds |= {Path("/etc", name): own / "etc" / name for name in os.listdir(own / "etc")}
    binds |= {PLACE / name: own / name for name in ("hub", "board") if (own / name).exists()}
    binds |= {PLACE / "sandbox_start.py": Path(__file__).with_name("sandbox_start.py"), home: home}
    words += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    for device in gpus():
        words += ["--dev-bind", str(device), str(device)]
    if memory.strict:  # mapped and shared, it is memory that no limit counts
        words += ["--dev-bind", "/dev/null", "/dev/zero"]
    for path, size in (("/dev/shm", memory.shared), ("/tmp", memory.temporary)):
        words += ["--perms", "1777", "--size", str(size), "--tmpfs", path]
    words += [*sandbox_limits.mounts(binds, writable=home), "--"]
    if user is not None:
        words += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all", "--"]
    words += ["prlimit", "--core=0", f"--nofile={FILES}", f"--nproc={PROCESSES}", f"--data={memory.process}", "--"]
    return [*words, "env", f"--chdir={home}"]  # only the student may go there


def furnish(own: Path, user: int | None, repositories: Iterable[Path]) -> Path:
    """Write the few files of /etc that are made for the sandbox into `own`, and return it."""
    number = 1000 if user is None else user
    trusted = "".join(f"\tdirectory = {path}\n" for path in repositories)  # git asks, as they belong to the hub's user
    etc = {
        "passwd": f"student:x:{number}:{number}:Student:/:/bin/bash\n",
        "group": f"student:x:{number}:\n",
        # The last one is what Gloo's processes ask for, and warn about where it has no name.
        "hosts": "127.0.0.1 localhost\n::1 localhost\n::ffff:127.0.0.1 localhost4\n",
        "gitconfig": f"[safe]\n{trusted}",
    }
    (own / "etc").mkdir(parents=True, exist_ok=True)
    for name, text in etc.items():
        (own / "etc" / name).write_text(text)
        (own / "etc" / name).chmod(0o644)
    return own


def settle(home: Path) -> int | None:
    """Make a student's home. Returns the number of their user, which the home belongs to; None if we are not root."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return None
    user = home.stat().st_uid
    if user not in USERS:
        taken = {other.stat().st_uid for other in home.parent.iterdir()}
        while (user := secrets.choice(USERS)) in taken:
            pass
        for _, folders, files, folder in os.fwalk(home):
            for name in (*folders, *files):
                os.chown(name, user, user, dir_fd=folder, follow_symlinks=False)
        os.chown(home, user, user)  # last: a walk that was cut short starts again
    home.chmod(0o700)
    return user


def trouble(state: Path) -> str:
    """Why no sandbox can be made here, in one sentence; empty if one can.

    Tried with all that a server needs: bubblewrap new enough, a kernel that lets it, an environment that may be read.
    """
    for program in ("bwrap", "setpriv", "prlimit", "git"):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: apt install bubblewrap git util-linux)."
    if (program := sandbox_limits.seccomp()) is None:
        return "the kit knows the system calls of x86_64 and aarch64 only."
    own = state / "trial"
    user = settle(own / "home")
    furnish(own, user, [])
    memory = Memory(2**30, counted=True)
    with sandbox_limits.open_program(program) as fd:
        words = arguments(own / "home", PACKAGES, state, own, user, memory, fd)
        words += [sys.executable, "-c", "import jupyterhub, importlib.util; importlib.util.find_spec('torchcourse')"]
        done = subprocess.run(words, pass_fds=[fd], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    shutil.rmtree(own)
    said = (done.stderr.strip().splitlines() or [f"{words[0]} ended with status {done.returncode}"])[-1]
    return said.rstrip(".") + "." if done.returncode else ""
