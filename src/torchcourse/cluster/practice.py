"""A practice cluster: a real Slurm with a login node and compute nodes, on one machine, in namespaces of its own.

    with practice.Cluster() as site:
        site.run("sbatch --wait job.sh")
        site.down("n2")                 # pull the plug of a node

Slurm, network and host names are real; the nodes share this machine's processors, its disk and its users. Nothing of
the machine is changed and nothing stays behind, even if this process is killed: everything lives in namespaces, which
the kernel removes with the process that opened them. See practice_nodes.py.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from torchcourse.errors import CourseError

NEEDED = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
NAMESPACES = ["--mount", "--net", "--uts", "--ipc", "--pid"]
# Without root, one more namespace: inside it, you are still yourself, but may mount file systems and open networks.
UNSHARE_USER, ENTER_USER = ["--user", "--map-current-user", "--keep-caps"], ["--user", "--preserve-credentials"]
PROBE = "mount -t tmpfs none /run && ip link add switch type bridge"
SYSTEM = os.pathsep.join(["/usr/sbin", "/sbin"])  # where daemons live, not always on an ordinary user's PATH


def why_not() -> str:
    """The sentence that says why no practice cluster can run here, or "" if one can."""
    if not sys.platform.startswith("linux"):
        return "The practice cluster needs Linux: it builds its nodes from the namespaces of the Linux kernel."
    path = os.environ.get("PATH", "") + os.pathsep + SYSTEM
    missing = sorted({package for program, package in NEEDED.items() if not shutil.which(program, path=path)})
    if missing:
        command = f"apt-get install --no-install-recommends {' '.join(missing)}"
        return f"The practice cluster needs Slurm, and this machine lacks part of it. On Debian or Ubuntu: `{command}`."
    uids = Path("/proc/self/uid_map")
    if (
        os.geteuid() == 0 and uids.exists() and uids.read_text().split()[2] == "1"
    ):  # nobody else that Slurm could become
        return "The practice cluster runs as root or as you. Here you are root in name only: start it as yourself."
    probe = ["sh", "-c", f"PATH=$PATH:{SYSTEM}; {PROBE}"]
    tried = subprocess.run([*_unshare(), *probe], capture_output=True, text=True)
    if tried.returncode:
        user, advice = ("", ".") if os.geteuid() == 0 else ("user ", "; `sudo make cluster` needs none.")
        refused = tried.stderr.strip().rstrip(".")
        return f"The practice cluster needs {user}namespaces, and this machine refuses them ({refused}){advice}"
    return ""


def _unshare() -> list[str]:
    """What starts a command in namespaces of its own, which end with it."""
    user = [] if os.geteuid() == 0 else UNSHARE_USER
    return ["unshare", *user, *NAMESPACES, "--fork", "--kill-child", "--mount-proc"]


class Cluster(contextlib.AbstractContextManager):
    """A real Slurm with compute nodes called n1, n2, …, and a login node; it ends with its `with` block or `close`.

    nodes: how many compute nodes.
    cpus, mib: what each node says that it has (MiB of memory; None: half of this machine's). They are for scheduling:
        the nodes share the processors of this machine.
    gpus: pretended devices of each node. They can be asked for, counted and shared out, and compute nothing.
    Raises CourseError with one sentence where it cannot run.
    """

    def __init__(self, nodes: int = 2, cpus: int = 2, gpus: int = 0, mib: int | None = None):
        if reason := why_not():
            raise CourseError(reason)
        self.nodes = tuple(f"n{i}" for i in range(1, nodes + 1))
        mib = mib or psutil.virtual_memory().total // 2**21
        told = json.dumps({"nodes": self.nodes, "cpus": cpus, "gpus": gpus, "mib": mib})
        inside = [sys.executable, "-S", str(Path(__file__).with_name("practice_nodes.py")), "login", told]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # A session of its own: Ctrl-C reaches the command in front, not the cluster.
        self._process = subprocess.Popen([*_unshare(), *inside], **pipes, text=True, start_new_session=True)
        if self._process.stdout.readline() != "ready\n":
            raise CourseError(f"The practice cluster did not start. {self._process.communicate()[1].strip()}")
        # unshare has one child: the first process inside, known by its number outside.
        self.login = psutil.Process(self._process.pid).children()[0].pid

    def command(self, command: str | Sequence[str]) -> list[str]:
        """The command line that runs `command` on the login node, as the person who called: behind sudo, too."""
        words = ["bash", "-c", command] if isinstance(command, str) else list(command)
        root = os.geteuid() == 0
        user = [] if root else ENTER_USER
        enter = ["nsenter", f"--target={self.login}", *user, *NAMESPACES, f"--wd={Path.cwd()}"]
        person = os.environ.get("SUDO_UID")
        if root and person:
            enter += ["setpriv", f"--reuid={person}", f"--regid={os.environ['SUDO_GID']}", "--init-groups"]
        return [*enter, *words]

    def run(self, command: str | Sequence[str], **options: Any) -> subprocess.CompletedProcess:
        """Run a shell command, or a list of words, on the login node. options: those of subprocess.run."""
        return subprocess.run(self.command(command), **options)

    def down(self, node: str) -> None:
        """Pull the plug: every process of the node is gone at once. Slurm notices within half a minute."""
        self._ask("down", node)

    def up(self, node: str) -> None:
        """Start a node again. Slurm takes it back within seconds."""
        self._ask("up", node)

    def close(self) -> None:
        """End the cluster with everything that runs on it."""
        self._process.kill()  # unshare; the login node goes with it (--kill-child), and the kernel ends what is inside
        self._process.communicate()

    def __exit__(self, *about: object) -> None:
        self.close()

    def _ask(self, what: str, node: str) -> None:
        if node not in self.nodes:
            raise CourseError(f"There is no node {node!r}. The nodes are {', '.join(self.nodes)}.")
        self._process.stdin.write(f"{what} {node}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "done\n":
            reason = self._process.stderr.read().strip()
            raise CourseError(f"The practice cluster ended when {node} was to go {what}: {reason}")


def shell(site: Cluster) -> int:
    """A shell on the login node, for a person."""
    return site.run([os.environ.get("SHELL", "bash"), "-i"]).returncode
