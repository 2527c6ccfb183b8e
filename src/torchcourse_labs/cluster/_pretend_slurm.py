"""A Slurm that only pretends: it runs a job script in real bash, and writes down what the script would have started.

    seen = run_job(text, hosts=["n7", "n9"], nodelist="n[7,9]", job=4711)
    seen["calls"]            # each srun, torchrun, python and scontrol, with the processes that come of it

The commands are those of `_slurm_commands.py`, first on the script's PATH. `srun` starts its command once for each
task, with Slurm's variables, all on this machine. Slurm's other commands are only written down, so that on a real
cluster no answer submits a job. Everything runs in a folder and a session of its own; both are gone at the end.
"""

import ast
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchcourse_labs.cluster import _slurm_commands

SECONDS = 20.0  # for one script: it runs commands that return at once

COMMANDS = Path(_slurm_commands.__file__).read_text()  # here: in grading, the file is not where scripts run
NAMES = ("srun", "scontrol", "torchrun", "python", "python3", "hostname", "module", "nvidia-smi")
NAMES += ("sbatch", "salloc", "sbcast", "scancel", "squeue", "sacct", "sinfo", "sattach")
options = _slurm_commands.options


def options_of(text: str) -> dict[str, str]:
    """What the #SBATCH lines ask for, as sbatch reads them: only those before the first command count."""
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            with contextlib.suppress(ValueError):  # a quote without its partner
                found |= options(shlex.split(line.removeprefix("#SBATCH"), comments=True))[0]
    return found


def minutes(limit: str) -> float | None:
    """A time limit in minutes, as Slurm reads it: "90", "30:00", "1:30:00", "1-12", "1-12:30", "1-12:30:00"."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", limit):
        return None
    days, dash, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if not dash and len(parts) < 3:
        parts.insert(0, 0)
    hours, mins, secs = [*parts, 0, 0][:3]
    return (int(days or 0) * 24 + hours) * 60 + mins + secs / 60


def number(text: str) -> int:
    """The number in the value of an option, such as "gpu:a100:4" or "2-2"; 0 if there is none."""
    found = re.match(r"\d+", text.rpartition(":")[2])
    return int(found[0]) if found else 0


def nodes_of(options: dict[str, str]) -> int:
    if "nodes" not in options and {"ntasks", "ntasks-per-node"} <= options.keys():
        return -(-number(options["ntasks"]) // max(1, number(options["ntasks-per-node"])))
    return number(options.get("nodes", "1"))


def tasks_on_each(options: dict[str, str], nodes: int) -> int:
    """How many tasks of the job are on each node."""
    if "ntasks-per-node" in options:
        return number(options["ntasks-per-node"])
    return max(1, number(options.get("ntasks", str(nodes))) // nodes)


def gpus_on_each(options: dict[str, str], nodes: int) -> int:
    """How many GPUs of each node the job asks for."""
    if "gpus-per-node" in options:
        return number(options["gpus-per-node"])
    for part in options.get("gres", "").split(","):
        if part.startswith(("gpu", "gres/gpu")):
            return number(part) if ":" in part else 1
    if "gpus-per-task" in options:
        return number(options["gpus-per-task"]) * tasks_on_each(options, nodes)
    return number(options.get("gpus", "")) // nodes


def cores_on_each(options: dict[str, str], nodes: int) -> int:
    """How many cores of each node the job asks for."""
    if "cpus-per-gpu" in options:
        return number(options["cpus-per-gpu"]) * gpus_on_each(options, nodes)
    return tasks_on_each(options, nodes) * number(options.get("cpus-per-task", "1"))


def is_script(text: Any) -> bool:
    """Tell whether sbatch takes it, and a shell reads it."""
    return isinstance(text, str) and re.match(r"#! ?/.*sh\b", text) is not None and "\r\n" not in text


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

    status: with which each program ends; above 128: by this signal. signaled: the program waits for the signal of
        `--signal`, saves for a moment and ends with 75. restarts: how often the job was requeued before.
    returns: calls, status (of the script; None: it did not end), saving (the signal came to the program), saved (it
        could save before the script ended), errors (the last of stderr), ran (the commands, as `bash -x` shows them)
    """
    options = options_of(text)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        here, home = Path(folder), Path(folder, "home")
        Path(here, "bin").mkdir()
        home.mkdir()
        Path(here, "commands.py").write_text(COMMANDS)
        for name in NAMES:
            words = shlex.join([sys.executable, "-IS", str(here / "commands.py"), name])
            Path(here, "bin", name).write_text(f'#!/bin/bash\nexec {words} "$@"\n')  # dash drops exported functions
            Path(here, "bin", name).chmod(0o755)
        Path(here, "job.sh").write_text(text)
        Path(here, "calls").touch()
        env = variables(options, hosts, nodelist, job) | {
            "PATH": f"{here / 'bin'}{os.pathsep}{os.defpath}{os.pathsep}/usr/bin:/bin",
            **dict.fromkeys(("HOME", "TMPDIR", "SLURM_SUBMIT_DIR"), str(home)),
            "USER": "you",
            "PRETEND_CALLS": str(here / "calls"),
            "PRETEND_STATUS": str(status),
            **({"PRETEND_SIGNAL": options.get("signal", "")} if signaled else {}),
            **({"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}),
        }
        with open(here / "errors", "wb") as errors, open(here / "trace", "wb") as trace:
            Path(here, "bash").write_text(f"unset BASH_ENV; BASH_XTRACEFD={trace.fileno()}; set -x")  # only for this
            script = subprocess.Popen(
                ["bash", *re.findall(r"^#!.* (-[eu]+)$", text.partition("\n")[0]), str(here / "job.sh")],
                env=env | {"BASH_ENV": str(here / "bash")},
                pass_fds=[trace.fileno()],
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                script.wait(seconds)
            ended = {"status": script.poll(), "saved": Path(here, "saved").exists()}
            time.sleep(0.5 if signaled else 0)  # the script may have been quicker than its program
            with contextlib.suppress(ProcessLookupError, PermissionError):  # a job's processes end with the job
                os.killpg(script.pid, signal.SIGKILL)
            script.wait()
        return ended | {
            "saving": Path(here, "saving").exists(),
            "calls": [ast.literal_eval(line) for line in Path(here, "calls").read_text().splitlines()],
            "errors": Path(here, "errors").read_text(errors="replace").replace(folder, "")[-300:].strip(),
            "ran": Path(here, "trace").read_text(errors="replace").splitlines(),
        }


def variables(options: dict[str, str], hosts: Sequence[str], nodelist: str, job: int) -> dict[str, str]:
    """What Slurm tells a job script."""
    tasks = tasks_on_each(options, len(hosts))
    env = {
        **dict.fromkeys(("SLURM_JOB_ID", "SLURM_JOBID"), job),
        **dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), nodelist),
        **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), len(hosts)),
        **dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"), 0),
        **dict.fromkeys(("SLURMD_NODENAME", "HOSTNAME"), hosts[0]),
        "SLURM_JOB_NAME": options.get("job-name", "job.sh"),
        "SLURM_CPUS_ON_NODE": cores_on_each(options, len(hosts)),
        "SLURM_GPUS_ON_NODE": gpus_on_each(options, len(hosts)) or "",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(gpus_on_each(options, len(hosts))))),
        "PRETEND_TASKS": tasks,
        "LC_ALL": "C",
    }
    if {"ntasks", "ntasks-per-node"} & options.keys():
        env |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), tasks * len(hosts))
    for name in ("ntasks-per-node", "cpus-per-task", "gpus-per-node", "gpus-per-task", "cpus-per-gpu"):
        if name in options:
            env["SLURM_" + name.replace("-", "_").upper()] = options[name]
    return {key: str(value) for key, value in env.items() if value != ""}
