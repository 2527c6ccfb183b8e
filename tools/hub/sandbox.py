"""The walls around a student's server, made with bubblewrap.

Inside, a student finds the system's programs, the Python environment, the package of the course, the data and the
course's repository, all read-only, and their own home, writable. Everything else is not there: other students' homes,
the project with its solutions, the hub's own files, other people's processes. The network is the machine's: the hub has
to reach the server, and the server the hub.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

# What programs look up in /etc. Not the whole of it: a hub started by root would show its passwords, too.
ETC = ("alternatives", "ca-certificates", "fonts", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")
ETC += ("mime.types", "nsswitch.conf", "pki/ca-trust", "pki/tls/certs", "resolv.conf", "ssl/certs", "ssl/openssl.cnf")
ETC += ("terminfo", "timezone")
# The one user that a sandbox knows.
ACCOUNTS = {"passwd": "student:x:1000:1000:Student:/:/bin/bash\n", "group": "student:x:1000:\n"}
PROCESSES = 512  # per student: a kernel of PyTorch and its DataLoader workers take dozens, threads included


def walls(home: Path, readable: list[Path], accounts: Path, shared_memory: int = 2**30) -> list[str]:
    """The words that start a command inside the sandbox: put them before it.

    home: the student's folder, writable; must exist
    readable: folders and files that are shown at their own place, read-only
    accounts: the folder that write_accounts has filled
    shared_memory: bytes for /dev/shm, through which DataLoader workers hand over their batches
    """
    words = ["bwrap", "--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try"]
    words += ["--uid", "1000", "--gid", "1000", "--disable-userns"]
    words += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib32", "lib64", "sbin"):
        top = Path("/", name)
        if top.is_symlink():
            words += ["--symlink", os.readlink(top), str(top)]
        elif top.exists():
            words += ["--ro-bind", str(top), str(top)]
    for name in ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name in ACCOUNTS:
        words += ["--ro-bind", str(accounts / name), f"/etc/{name}"]
    words += ["--ro-bind-try", "/sys", "/sys", "--proc", "/proc", "--dev", "/dev"]
    for device in sorted(Path("/dev").glob("nvidia*")):
        words += ["--dev-bind", str(device), str(device)]
    words += ["--size", str(shared_memory), "--tmpfs", "/dev/shm", "--size", str(2 * 2**30), "--tmpfs", "/tmp"]
    for path in readable:
        words += ["--ro-bind", str(path), str(path)]
    words += ["--bind", str(home), str(home), "--chdir", str(home)]
    return [*words, "--remount-ro", "/", "--"]  # the folders that lead to all these, too


def interpreter() -> list[Path]:
    """The folders that this Python needs: its virtual environment and the installation below it."""
    return [Path(folder) for folder in dict.fromkeys((sys.base_prefix, sys.prefix)) if not folder.startswith("/usr")]


def package(name: str) -> Path:
    """The folder of an installed package, found without importing it."""
    return Path(importlib.util.find_spec(name).origin).parent


def limits(memory_gib: float, processes: bool) -> list[str]:
    """The words that put a command under limits: memory of each of its processes, number of processes, no core files.

    memory_gib: 0 for no limit
    processes: whether to limit their number; inside the sandbox the count is the student's own. The kernel ignores this
        limit where the hub was started by root
    """
    if shutil.which("prlimit") is None:
        return []
    memory = [f"--data={int(memory_gib * 2**30)}"] if memory_gib else []
    number = [f"--nproc={PROCESSES}"] if processes else []
    return ["prlimit", "--core=0", *memory, *number, "--"]


def works(state: Path) -> bool:
    """Whether a sandbox can be made here: bubblewrap is installed, new enough, and the kernel lets it."""
    if shutil.which("bwrap") is None:
        return False
    trial = [*walls(state, interpreter(), write_accounts(state / "etc")), sys.executable, "-c", "import jupyterhub"]
    return subprocess.run(trial, capture_output=True).returncode == 0


def write_accounts(folder: Path) -> Path:
    """Write the sandbox's passwd and group into `folder`, and return it."""
    folder.mkdir(exist_ok=True)
    for name, line in ACCOUNTS.items():
        (folder / name).write_text(line)
    return folder
