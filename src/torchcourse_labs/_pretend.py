"""A Slurm that only pretends: it runs a job script in real bash, and writes down what the script would have started.

    seen = pretend.run_job(text, hosts=["n7", "n9"], nodelist="n[7,9]", job=4711)
    seen["options"]          # what the #SBATCH lines ask for
    seen["calls"]            # each torchrun, python and scontrol, with the variables that it was given

The commands `srun`, `scontrol`, `torchrun`, `python` and `hostname` come from a folder of this module's own, first on
the script's PATH. `srun` starts its command once for each task, with Slurm's variables, all on this machine. Slurm's
other commands are only written down, so that on a real cluster no answer submits a job. Everything
runs in a folder and a session of its own; both are gone at the end, whatever the script did.
"""

import ast
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SECONDS = 20.0  # for one script: it runs commands that return at once
POLL = 0.005  # seconds

# What the commands do. One program of plain Python, told by its first argument which command it is. A script starts it
# many times, so it imports little: Python itself starts in half the time that `json` and `subprocess` take.
COMMANDS = r'''
import os, sys

name, *words = sys.argv[1:]
env = os.environ


def note(**what):
    keys = ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "PRETEND_STEP", "PRETEND_CORES", "OMP_NUM_THREADS",
            "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_RESTART_COUNT",
            "SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES")
    what["env"] = {key: env[key] for key in keys if key in env}
    with open(env["PRETEND_CALLS"], "a") as file:
        file.write(repr(what) + "\n")


def expanded(text):
    import re

    for prefix, inner in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?", text):
        for part in inner.split(",") if inner else [""]:
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1) if inner else [""]:
                yield prefix + str(number).zfill(len(first))


def srun():
    import signal, subprocess

    short = {"n": "ntasks", "N": "nodes", "c": "cpus-per-task"}
    flags = "exclusive exact overlap label unbuffered overcommit verbose quiet kill-on-bad-exit mpi-combine l u v q K O"
    given, rest = {}, list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
        else:
            key, value = short.get(word[1], word[1]), word[2:].lstrip("=")
            equals = value or (key in flags.split())
        if not equals and key not in flags.split():
            value = rest.pop(0) if rest else ""
        given[key] = value
    hosts = list(expanded(env["SLURM_JOB_NODELIST"]))
    nodes = int(given.get("nodes", "").split("-")[0] or len(hosts))
    each = int(env["PRETEND_TASKS"])
    if "ntasks-per-node" in given:
        each = int(given["ntasks-per-node"])
    total = int(given.get("ntasks") or nodes * each)
    counts = [total // nodes + (i < total % nodes) for i in range(nodes)]
    cores = given.get("cpus-per-task") or env.get("SRUN_CPUS_PER_TASK")
    gpus, own = int(env.get("SLURM_GPUS_ON_NODE") or 0), given.get("gpus-per-task") or env.get("SLURM_GPUS_PER_TASK")
    own = int(own.rpartition(":")[2]) if own else 0  # each task sees only its own, otherwise all GPUs of the node
    note(command="srun", words=words)
    if not rest:
        sys.exit("srun: fatal: No command given to execute.")
    status, rank = 0, 0
    for node, count in enumerate(counts):
        for local in range(count):
            # A step gets all cores that belong to the job's GPUs.
            by_gpu = int(env.get("SLURM_CPUS_PER_GPU") or 0) * gpus // count
            seen = range(local * own, (local + 1) * own) if own else range(gpus)
            mine = {"SLURM_NODEID": node, "SLURM_PROCID": rank, "SLURM_LOCALID": local, "SLURM_NTASKS": total,
                    "SLURM_NPROCS": total, "SLURM_STEP_NUM_TASKS": total, "SLURM_STEP_NUM_NODES": nodes,
                    "SLURM_NNODES": nodes, "SLURMD_NODENAME": hosts[node], "HOSTNAME": hosts[node],
                    "PRETEND_STEP": 1, "PRETEND_CORES": cores or by_gpu or 1,
                    "CUDA_VISIBLE_DEVICES": ",".join(map(str, seen))}
            if cores or not by_gpu:
                mine["SLURM_CPUS_PER_TASK"] = cores or 1
            try:
                task = subprocess.Popen(rest, env={**env, **{key: str(value) for key, value in mine.items()}})
                signal.signal(signal.SIGUSR1, lambda number, frame: task.send_signal(number))  # srun passes it on
                done = task.wait()
            except OSError as error:
                print(f"slurmstepd: error: execve(): {rest[0]}: {error.strerror}", file=sys.stderr)
                done = 2
            status, rank = max(status, done if done >= 0 else 128 - done), rank + 1
    sys.exit(status)


def scontrol():
    if words[:1] == ["show"] and words[1:2] and words[1].startswith("hostn"):
        print("\n".join(expanded(words[2] if words[2:] else env["SLURM_JOB_NODELIST"])))
    else:
        note(command="scontrol", words=words, saved=os.path.exists("saved"), saving=os.path.exists("saving"))


def scancel():
    """Given a signal, Slurm sends it to the steps of the job, not to its script."""
    note(command="scancel", words=words)
    asked = " ".join(words).replace("=", " ").replace("SIG", "") + " "
    if ("--signal USR1 " in asked or "-s USR1 " in asked) and os.path.exists("ready"):
        with open("ready") as file:
            number, step = map(int, file.read().split())
        if step:
            import signal

            os.kill(number, signal.SIGUSR1)


def python():
    if words[:2] in (["-m", "torch.distributed.run"], ["-m", "torch.distributed.launch"]):
        note(command="torchrun", words=words[2:])
    elif not words or words[0] in ("-c", "-", "-m") or words[0].startswith(("-V", "--v")):
        os.execv(env["PRETEND_PYTHON"], [env["PRETEND_PYTHON"], *words])
    else:
        plain = list(words)
        while plain and plain[0] in ("-u", "-O", "-B", "-I", "-E", "-s"):
            plain.pop(0)
        note(command="python", words=plain)
    work()


def torchrun():
    note(command="torchrun", words=words)
    work()


def work():
    """The training: ends with the status that this run is about, or waits for a signal first."""
    if env.get("PRETEND_WAITS"):
        import signal, time

        def save(number, frame):
            open("saving", "w").close()
            time.sleep(0.2)
            open("saved", "w").close()
            os._exit(75)

        signal.signal(signal.SIGUSR1, save)
        with open("ready.part", "w") as file:
            file.write(f"{os.getpid()} {env.get('PRETEND_STEP', 0)}")
        os.replace("ready.part", "ready")
        time.sleep(60)
    status = int(env["PRETEND_STATUS"])
    if status > 128:
        os.kill(os.getpid(), status - 128)
    sys.exit(status)


def hostname():
    print(env["SLURMD_NODENAME"])


globals().get(name, lambda: note(command=name, words=words))()
'''

NAMES = {"srun": "srun", "scontrol": "scontrol", "torchrun": "torchrun", "python": "python", "python3": "python"}
NAMES |= {"hostname": "hostname"}
NAMES |= {name: name for name in ("sbatch", "salloc", "sbcast", "scancel", "squeue", "sacct", "sinfo", "sattach")}
NAMES |= {name: name for name in ("module", "nvidia-smi")}  # part of many scripts, and not on every machine

SHORT = {
    "A": "account",
    "c": "cpus-per-task",
    "C": "constraint",
    "D": "chdir",
    "d": "dependency",
    "e": "error",
    "G": "gpus",
    "J": "job-name",
    "n": "ntasks",
    "N": "nodes",
    "o": "output",
    "p": "partition",
    "t": "time",
    "a": "array",
    "q": "qos",
    "w": "nodelist",
    "x": "exclude",
    "L": "licenses",
    "b": "begin",
}
WITHOUT_VALUE = ["requeue", "no-requeue", "exclusive", "oversubscribe", "hold", "parsable", "quiet", "verbose"]


def options_of(text: str) -> dict[str, str]:
    """What the #SBATCH lines ask for, as sbatch reads them: only those before the first command count."""
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if not line.startswith("#SBATCH"):
            continue
        try:
            words = shlex.split(line[len("#SBATCH") :], comments=True)
        except ValueError:  # a quote without its partner
            continue
        while words:
            word = words.pop(0)
            if word.startswith("--"):
                key, equals, value = word[2:].partition("=")
            else:
                key, value = SHORT.get(word[1:2], word[1:2]), word[2:]
                equals = value
            if not equals and key not in WITHOUT_VALUE and words and not words[0].startswith("-"):
                value = words.pop(0)
            found[key] = value
    return found


def minutes(limit: str) -> float | None:
    """A time limit in minutes, as Slurm reads it: "90", "30:00", "1:30:00", "1-12", "1-12:30", "1-12:30:00"."""
    days, dash, clock = limit.rpartition("-")
    try:
        parts = [int(part) for part in clock.split(":")]
        days = int(days or 0)
    except ValueError:
        return None
    if dash:
        hours, mins, secs = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, mins, secs = parts
    else:
        hours, (mins, secs) = 0, [*parts, 0][:2]
    return ((days * 24 + hours) * 60 + mins) + secs / 60


def why_refused(text: str) -> str | None:
    """What sbatch says to a text that it does not take, if it does not."""
    if not text.startswith("#!"):
        return (
            "This does not look like a batch script. The first line must start with #! followed by the path to an "
            "interpreter. For instance: #!/bin/sh"
        )
    if "\r\n" in text:
        return "Batch script contains DOS line breaks (\\r\\n) instead of expected UNIX line breaks (\\n)."
    return None


def run_job(
    text: str,
    *,
    hosts: Sequence[str],
    nodelist: str,
    job: int,
    status: int = 0,
    signaled: bool = False,
    restarts: int = 0,
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """What a job script does on the nodes `hosts`, as plain data.

    status: with which each `torchrun` and `python` ends; above 128: by this signal. signaled: it waits for the signal
    of `--signal` first, saves for a moment and then ends with 75. restarts: how often the job was requeued before.
    returns: options, calls, status (of the script; None: it did not end), saved (the signal came, and saving ended),
        errors (the last lines of what it wrote to stderr), ran (the commands, as `bash -x` shows them)
    """
    options = options_of(text)
    bash = shutil.which("bash")
    if bash is None:
        raise RuntimeError("There is no bash on this machine, and job scripts are written for it.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        here = Path(folder)
        (here / "bin").mkdir()
        (here / "home").mkdir()
        (here / "commands.py").write_text(COMMANDS)
        for name, command in NAMES.items():
            words = shlex.join([sys.executable, "-IS", str(here / "commands.py"), command])
            (here / "bin" / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (here / "bin" / name).chmod(0o755)
        (here / "job.sh").write_text(text)
        (here / "calls").touch()
        env = _variables(options, hosts, nodelist, job, restarts) | {
            "SLURM_SUBMIT_DIR": str(here / "home"),
            "PATH": f"{here / 'bin'}{os.pathsep}{os.defpath}{os.pathsep}/usr/bin:/bin",
            "HOME": str(here / "home"),
            "TMPDIR": str(here / "home"),
            "USER": "you",
            "PRETEND_CALLS": str(here / "calls"),
            "PRETEND_PYTHON": sys.executable,
            "PRETEND_STATUS": str(status),
        }
        if signaled:
            env["PRETEND_WAITS"] = "1"
        with open(here / "errors", "wb") as errors, open(here / "trace", "wb") as trace:
            script = subprocess.Popen(
                [bash, "-x", str(here / "job.sh")],
                env=env | {"BASH_XTRACEFD": str(trace.fileno())},
                pass_fds=[trace.fileno()],
                cwd=here / "home",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
            try:
                ended = _wait(script, here / "home", options.get("signal", "") if signaled else None, seconds)
            finally:
                _end(script)
        return {
            "options": options,
            "calls": [ast.literal_eval(line) for line in (here / "calls").read_text().splitlines()],
            "status": ended,
            "saved": (here / "home" / "saved").exists(),
            "errors": (here / "errors").read_text(errors="replace").replace(folder, "")[-300:].strip(),
            "ran": (here / "trace").read_text(errors="replace").splitlines(),
        }


def _wait(script: subprocess.Popen, home: Path, wanted: str | None, seconds: float) -> int | None:
    """The status of the script; None if it does not end. wanted: the value of --signal, None to send none."""
    if wanted is not None:
        _until(lambda: (home / "ready").exists() or script.poll() is not None, seconds)
        match = re.fullmatch(r"(?:([BR]+):)?(?:SIG)?(\w+)(?:@\d+)?", wanted)
        if match and match[2] in ("USR1", "10") and (home / "ready").exists():
            # Without B: Slurm tells the program, not the script. With it, the script alone.
            to_script = "B" in (match[1] or "")
            if to_script:
                time.sleep(0.3)  # the script goes on while its program starts; by now it has come to its `wait`
            number, step = (home / "ready").read_text().split()
            if not to_script and step == "0":
                return None  # a program that the script started by itself belongs to no step
            target = script.pid if to_script else int(number)
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, signal.SIGUSR1)
            # A program always gets its signal, however busy the machine is. A script may wait for its command first.
            saves = seconds / 4 if to_script else 3 * seconds
            _until(lambda: (home / "saving").exists() or script.poll() is not None, saves)
        if not (home / "saving").exists() and script.poll() is None:
            return None  # the signal did not reach the program, and the time limit comes
    _until(lambda: script.poll() is not None, seconds)
    return script.returncode


def _until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait. Looks are counted, not seconds: while the whole machine stands still, no time passes here either."""
    for _ in range(round(seconds / POLL)):
        if condition():
            return
        time.sleep(POLL)


def _end(script: subprocess.Popen) -> None:
    """End all that the script started and wait for it: a job's processes end with the job."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(script.pid, signal.SIGKILL)
    script.wait()


def _variables(options: dict, hosts: Sequence[str], nodelist: str, job: int, restarts: int) -> dict[str, str]:
    """What Slurm tells a job script."""
    layout = tasks_on_each(options, len(hosts))
    asked = {"ntasks", "ntasks-per-node"} & options.keys()
    env = {
        "SLURM_JOB_ID": job,
        "SLURM_JOBID": job,
        "SLURM_JOB_NAME": options.get("job-name", "job.sh"),
        "SLURM_JOB_NODELIST": nodelist,
        "SLURM_NODELIST": nodelist,
        "SLURM_NNODES": len(hosts),
        "SLURM_JOB_NUM_NODES": len(hosts),
        "SLURM_NODEID": 0,
        "SLURM_PROCID": 0,
        "SLURM_LOCALID": 0,
        "SLURMD_NODENAME": hosts[0],
        "HOSTNAME": hosts[0],
        "PRETEND_TASKS": layout,
        "SLURM_CPUS_ON_NODE": cores_on_each(options, len(hosts)),
        "LC_ALL": "C",
    }
    if asked:
        env |= {"SLURM_NTASKS": layout * len(hosts), "SLURM_NPROCS": layout * len(hosts)}
    if "ntasks-per-node" in options:
        env["SLURM_NTASKS_PER_NODE"] = options["ntasks-per-node"]
    if "cpus-per-task" in options:
        env["SLURM_CPUS_PER_TASK"] = options["cpus-per-task"]
    for name in ("gpus-per-node", "gpus-per-task", "cpus-per-gpu"):
        if name in options:
            env["SLURM_" + name.replace("-", "_").upper()] = options[name]
    if gpus := gpus_on_each(options, len(hosts)):
        env["SLURM_GPUS_ON_NODE"] = gpus
    if restarts:
        env["SLURM_RESTART_COUNT"] = restarts
    return {key: str(value) for key, value in env.items()}


def tasks_on_each(options: dict[str, str], nodes: int) -> int:
    """How many tasks of the job are on each node."""
    if "ntasks-per-node" in options:
        return int(options["ntasks-per-node"])
    return max(1, int(options.get("ntasks") or nodes) // nodes)


def cores_on_each(options: dict[str, str], nodes: int) -> int:
    """How many cores of each node the job asks for."""
    if "cpus-per-gpu" in options:
        return int(options["cpus-per-gpu"]) * gpus_on_each(options, nodes)
    return tasks_on_each(options, nodes) * int(options.get("cpus-per-task") or 1)


def gpus_on_each(options: dict[str, str], nodes: int) -> int:
    """How many GPUs of each node the job asks for."""

    def number(text: str) -> int:
        return int(text.rpartition(":")[2])

    if "gpus-per-node" in options:
        return number(options["gpus-per-node"])
    for part in options.get("gres", "").split(","):
        if part.startswith(("gpu", "gres/gpu")):
            return number(part) if ":" in part else 1
    if "gpus-per-task" in options:
        return number(options["gpus-per-task"]) * tasks_on_each(options, nodes)
    return number(options["gpus"]) // nodes if "gpus" in options else 0


def nodes_of(options: dict[str, str]) -> int:
    """How many nodes the job asks for."""
    if "nodes" in options:
        return int(options["nodes"].split("-")[0])
    if "ntasks" in options and "ntasks-per-node" in options:
        return -(-int(options["ntasks"]) // int(options["ntasks-per-node"]))
    return 1


# ---------------------------------------- which processes come of it


def torchrun_options(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options of a torchrun, with dashes in their names, and the program with its arguments."""
    given, rest = {}, list(words)
    flags = ("standalone", "no-python", "module", "m")
    while rest and rest[0].startswith("-"):
        key, equals, value = rest.pop(0).lstrip("-").partition("=")
        key = key.replace("_", "-")
        if not equals and key not in flags and rest:
            value = rest.pop(0)
        given[key] = value
    return given, rest


def processes(calls: Sequence[dict]) -> list[dict[str, Any]]:
    """The processes that run the program: node, world (which of them meet), rank, size, host, port, cores, threads.

    gpu: the one of its node that the process takes: number LOCAL_RANK among those that it sees; None if there is none.
    """
    found = []
    for number, call in enumerate(calls):
        env = call["env"]
        about = {
            "node": int(env["SLURM_NODEID"]),
            "step": "PRETEND_STEP" in env,
            "threads": env.get("OMP_NUM_THREADS"),
        }
        cores = int(env["PRETEND_CORES"]) if "PRETEND_CORES" in env else None
        if call["command"] == "python":
            size = int(env["WORLD_SIZE"]) if env.get("WORLD_SIZE", "").isdigit() else None
            rank = int(env["RANK"]) if env.get("RANK", "").isdigit() else None
            host, port = env.get("MASTER_ADDR"), env.get("MASTER_PORT")
            world = (host, port) if size and size > 1 else number
            found.append(
                about
                | {"by": "srun", "program": call["words"], "world": world, "rank": rank, "size": size, "host": host}
                | {"port": port, "cores": cores, "gpu": _gpu(env, env.get("LOCAL_RANK", ""))}
            )
        elif call["command"] == "torchrun":
            given, program = torchrun_options(call["words"])
            nodes = given.get("nnodes", "1").rpartition(":")[2]
            each = given.get("nproc-per-node", "1")
            if each in ("gpu", "auto"):
                each = env.get("SLURM_GPUS_ON_NODE", "1")
            nodes, each = (int(text) if text.isdigit() else 1 for text in (nodes, each))
            backend = given.get("rdzv-backend", "static")
            host, _, port = given.get("rdzv-endpoint", "").partition(":")
            if backend == "static":
                host, port = host or given.get("master-addr", "127.0.0.1"), port or given.get("master-port", "29500")
                first = int(given["node-rank"]) * each if given.get("node-rank", "").isdigit() else 0
            else:
                host, port, first = host or "localhost", port or "29400", None
            alone = nodes == 1 or "standalone" in given
            for i in range(each):
                rank = None if first is None and not alone else (0 if alone else first) + i
                found.append(
                    about
                    | {"by": "torchrun", "program": program, "world": number if alone else (host, port), "rank": rank}
                    | {"size": nodes * each, "host": None if alone else host, "port": None if alone else port}
                    | {"cores": None if cores is None else cores // each, "gpu": _gpu(env, str(i)), "alone": alone}
                )
    return found


def _gpu(env: dict[str, str], local_rank: str) -> str | None:
    visible = [gpu for gpu in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    return dict(enumerate(visible)).get(int(local_rank)) if local_rank.isdecimal() else None
