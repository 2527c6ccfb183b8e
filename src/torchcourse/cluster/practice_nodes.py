"""What runs inside the practice cluster: its login node, and each of its compute nodes. Started by practice.py only.

    unshare … python practice_nodes.py login '{"nodes": ["n1", "n2"], …}'
    unshare … python practice_nodes.py node '{"name": "n1", …}'

Each is the first process of a PID namespace of its own. When it ends, for whatever reason, the kernel ends every
process of that namespace; network and mounts go with the last one. Nothing on the machine's own disk is changed, so
nothing has to be cleaned up. This file imports nothing but the standard library: it starts in a tenth of a second.
"""

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ADDRESS = "10.77.1"  # a network of its own: the same addresses elsewhere do not matter
LOGIN = f"{ADDRESS}.254"
RUN = Path("/run/slurm")
SILENT = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # they have logs

CONF = """\
ClusterName=practice
SlurmctldHost=login({login})
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits as long as its old credentials are valid: two minutes, unless it is said here.
AuthInfo=cred_expire=5
StateSaveLocation={run}/state
SlurmdSpoolDir={run}/spool-%n
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/slurmd-%n.pid
SlurmctldLogFile={run}/slurmctld.log
SlurmdLogFile={run}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
# Look every 2 s, and end what holds more memory than it asked for.
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU={memory_per_cpu}
SchedulerType=sched/backfill
# In one session people want to see their job start now, not at the next half minute.
SchedulerParameters=batch_sched_delay=0,bf_interval=2,sched_interval=2,sched_min_interval=100000
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=5
MinJobAge=600
# A node reports what it is told to here, not what this machine has.
SlurmdParameters=config_overrides
TaskProlog={run}/task_prolog
Prolog={run}/prolog
Epilog={run}/epilog
GresTypes=gpu
{nodes}
PartitionName=cpu Nodes={names} Default=YES DefaultTime=5 MaxTime=60 State=UP
"""
# Node-local disk: a folder of its own for each job and node, gone afterward.
PROLOG = "#!/bin/sh\nmkdir -p /run/local/$SLURM_JOB_ID && chown $SLURM_JOB_UID /run/local/$SLURM_JOB_ID\n"
EPILOG = "#!/bin/sh\nrm -rf /run/local/$SLURM_JOB_ID\n"
TASK_PROLOG = "#!/bin/sh\necho export TMPDIR=/run/local/$SLURM_JOB_ID\n"


def call(*command: str) -> None:
    """Run a command; SystemExit with its own message if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")


def tmpfs(folder: str, mode: str = "755") -> None:
    """An empty folder in memory over one of the machine, seen from here only."""
    call("mount", "-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", folder)


def over(file: str, text: str) -> None:
    """Another content for a file of the machine, seen from here only."""
    here = RUN / Path(file).name
    here.write_text(text)
    call("mount", "--bind", str(here), file)


def script(name: str, text: str) -> None:
    """A file that Slurm may execute."""
    (RUN / name).write_text(text)
    (RUN / name).chmod(0o755)


class Node:
    """A compute node: network, host name, processes and node-local disk of its own, on the disk of the machine."""

    def __init__(self, name: str, number: int):
        self.name, self.number = name, number
        self.process: subprocess.Popen | None = None

    def up(self) -> None:
        if self.process:
            return
        namespaces = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        told = json.dumps({"name": self.name})
        command = ["unshare", *namespaces, sys.executable, "-S", __file__, "node", told]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()  # it has its namespaces, and waits for the cable
        cable, pid = f"to-{self.name}", str(self.process.pid)
        call("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", pid)
        call("ip", "link", "set", cable, "master", "switch", "up")
        self.process.stdin.write(f"{ADDRESS}.{self.number}\n")
        self.process.stdin.flush()
        if not self.process.stdout.readline():
            raise SystemExit(f"Node {self.name} did not start: {tail(RUN / f'slurmd-{self.name}.log')}")

    def down(self) -> None:
        """As if someone had pulled the plug."""
        if self.process:
            self.process.kill()  # unshare; its child, the first process of the node, goes with it
            self.process.wait()
            self.process = None
        subprocess.run(["ip", "link", "delete", f"to-{self.name}"], capture_output=True)


def tail(file: Path, lines: int = 3) -> str:
    """The end of a log, in one line."""
    return " · ".join(file.read_text().splitlines()[-lines:]) if file.exists() else "it wrote no log"


def configuration(options: dict) -> str:
    """The text of slurm.conf."""
    names = options["nodes"]
    node = f"CPUs={options['cpus']} RealMemory={options['mib']} State=UNKNOWN"
    node += f" Gres=gpu:{options['gpus']}" if options["gpus"] else ""
    lines = [f"NodeName={name} NodeAddr={ADDRESS}.{i} {node}" for i, name in enumerate(names, 1)]
    return CONF.format(
        login=LOGIN,
        run=RUN,
        user=pwd.getpwuid(os.getuid()).pw_name,  # root, or the person who needs no root
        nodes="\n".join(lines),
        names=",".join(names),
        memory_per_cpu=options["mib"] // options["cpus"],
    )


def private_files(options: dict) -> None:
    """Everything that Slurm and munge read or write, in memory and in this namespace."""
    tmpfs("/run")
    RUN.mkdir()
    for folder in ("state", *(f"spool-{name}" for name in options["nodes"])):
        (RUN / folder).mkdir()
    for folder in ("/etc/slurm", "/etc/munge", "/var/lib/munge", "/var/log/munge"):
        tmpfs(folder)
    hosts = {"127.0.0.1": "localhost", LOGIN: "login"}
    hosts |= {f"{ADDRESS}.{i}": name for i, name in enumerate(options["nodes"], 1)}
    over("/etc/hosts", "".join(f"{address} {name}\n" for address, name in hosts.items()))
    # No name server here: without this, each look-up of an unknown name waits for one.
    switch = Path("/etc/nsswitch.conf")
    lines = switch.read_text().splitlines() if switch.exists() else ["passwd: files", "group: files"]
    over(str(switch), "\n".join([*(line for line in lines if not line.startswith("hosts:")), "hosts: files", ""]))

    Path("/etc/slurm/slurm.conf").write_text(configuration(options))
    gpus = [f"/run/gpu{i}" for i in range(options["gpus"])]
    for gpu in map(Path, gpus):  # GPUs that swallow everything: they can be asked for
        gpu.touch()
        call("mount", "--bind", "/dev/null", str(gpu))
    Path("/etc/slurm/gres.conf").write_text("".join(f"Name=gpu File={gpu}\n" for gpu in gpus))
    script("prolog", PROLOG)
    script("epilog", EPILOG)
    script("task_prolog", TASK_PROLOG)
    key = Path("/etc/munge/munge.key")
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)


def wait_for(ready: Callable[[], bool], what: str, log: Path, seconds: float = 60) -> None:
    """Wait until `ready()`; SystemExit with the end of the log after `seconds`."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not start within {seconds:.0f} s: {tail(log)}")
        time.sleep(0.05)


def idle(names: list[str]) -> bool:
    """Does Slurm say that every node is ready for a job?"""
    states = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%T"], capture_output=True, text=True).stdout
    return states.split() == ["idle"] * len(names)


def login(options: dict) -> None:
    """Start everything, say "ready", then do what is asked line by line: "down n2", "up n2". Ends with its input."""
    socket.sethostname("login")
    private_files(options)
    call("ip", "link", "set", "lo", "up")
    call("ip", "link", "add", "switch", "type", "bridge")
    call("ip", "address", "add", f"{LOGIN}/24", "dev", "switch")
    call("ip", "link", "set", "switch", "up")
    Path("/run/munge").mkdir()
    subprocess.Popen(["munged", "--foreground", "--force"], **SILENT)
    wait_for(Path("/run/munge/munge.socket.2").exists, "munged", Path("/var/log/munge/munged.log"))
    subprocess.Popen(["slurmctld", "-D", "-c"], **SILENT)
    nodes = {name: Node(name, i) for i, name in enumerate(options["nodes"], 1)}
    for node in nodes.values():
        node.up()
    wait_for(lambda: idle(options["nodes"]), "Slurm", RUN / "slurmctld.log")
    print("ready", flush=True)
    for line in sys.stdin:
        what, name = line.split()
        nodes[name].up() if what == "up" else nodes[name].down()
        print("done", flush=True)


def node(options: dict) -> None:
    """Take the network that the login node gives, start slurmd, and stay."""
    name = options["name"]
    print("namespaces", flush=True)
    address = sys.stdin.readline().strip()
    socket.sethostname(name)
    Path("/run/local").mkdir(exist_ok=True)
    tmpfs("/run/local", "1777")
    call("ip", "link", "set", "lo", "up")
    call("ip", "address", "add", f"{address}/24", "dev", "eth0")
    call("ip", "link", "set", "eth0", "up")
    call("ip", "route", "add", "default", "via", LOGIN)
    tmpfs("/dev/shm", "1777")
    slurmd = subprocess.Popen(["slurmd", "-D", "-N", name], **SILENT)
    print("up", flush=True)
    slurmd.wait()


def first_process(work: Callable[[], None]) -> None:
    """Be the first process of a namespace: collect what ends without a parent, and end with `work`."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except SystemExit as stop:
            print(stop.code, file=sys.stderr, flush=True)
            os._exit(1)
        except KeyboardInterrupt:
            os._exit(1)
        os._exit(0)
    while True:
        ended, status = os.wait()
        if ended == child:
            os._exit(os.waitstatus_to_exitcode(status) and 1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command in front; we end with our input
    os.environ["PATH"] += os.pathsep + "/usr/sbin:/sbin"
    role, told = sys.argv[1], json.loads(sys.argv[2])
    os.umask(0o022)
    first_process(lambda: {"login": login, "node": node}[role](told))
