"""The exercises of chapter 11: job scripts, run with commands that only pretend, and what one reads on a cluster."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from labcheck import ranks
from labcheck.answer import attempted, call
from labcheck.inputs import Inputs
from labcheck.show import show
from torchcourse_labs import _pretend as pretend
from torchcourse_labs._spec import Mistake, Raised, Spec, changed, chapter, says  # noqa: F401 - for the tables

EXERCISES = ("why_failed", "settings_of", "right_size")
CHAPTER = "11_cluster"

exercise = chapter("11_cluster")


def _differ(key: str, yours: dict, expected: dict) -> bool:
    return yours[key] != expected[key]


def _no_script(script: Callable) -> list[Mistake]:
    """The mistakes of an answer that is no job script at all."""
    return [
        Mistake(
            "Your function returned {yours[instead]}; it should return the text of the script.",
            lambda *request: print(script(*request)),
            lambda *request: script(*request).splitlines(),
            look="`return` and the quotes",
            when=lambda yours, *_: "instead" in yours,
        ),
        Mistake(
            "sbatch refuses the script: {yours[refused]}",
            lambda *request: "\n" + script(*request),
            lambda *request: script(*request).partition("\n")[2],
            lambda *request: script(*request).replace("\n", "\r\n"),
            look="the very first characters: `#!/bin/bash` right behind the opening quotes",
            when=lambda yours, *_: "refused" in yours,
        ),
    ]


# ---------------------------------------- a job script

EPHEMERAL = 32_768  # from here on, Linux uses ports for outgoing connections


def _job_script(program, name, nodes, gpus, cores, minutes):
    return f"""#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={gpus * cores}
#SBATCH --time={minutes}
#SBATCH --output=%x-%j.out
set -e
export OMP_NUM_THREADS={cores}
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 12000))
srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node={gpus} --rdzv-id=$SLURM_JOB_ID \\
    --rdzv-backend=c10d --rdzv-endpoint=$head:$port {program}
"""


def _with_srun(program, name, nodes, gpus, cores, minutes):
    return f"""#!/bin/bash
#SBATCH -J {name}
#SBATCH -N {nodes} --ntasks-per-node={gpus} -c {cores}
#SBATCH --gres=gpu:{gpus}
#SBATCH --time={minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00
#SBATCH -o {name}.%j.log

set -euo pipefail
export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK"
MASTER_ADDR=$(scontrol show hostnames | sed -n 1p)
MASTER_PORT=$((10000 + ${{SLURM_JOB_ID}} % 20000))
export MASTER_ADDR MASTER_PORT
srun --cpus-per-task=$SLURM_CPUS_PER_TASK bash -c \\
    'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec python -u {program}'
"""


def _with_node_rank(program, name, nodes, gpus, cores, minutes):
    head = "head=($(scontrol show hostnames $SLURM_JOB_NODELIST))"
    return f"""#!/usr/bin/env bash
#SBATCH --job-name {name}
#SBATCH --nodes={nodes} --ntasks={nodes}
#SBATCH --gpus={nodes * gpus}
#SBATCH --cpus-per-task={gpus * cores}
#SBATCH --time={minutes // 60}:{minutes % 60:02}:00
{head}
export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / {gpus}))
export PORT=$((29500 + SLURM_JOB_ID % 1000)) HEAD=${{head[0]}}
srun -c $SLURM_CPUS_PER_TASK bash -c 'python -m torch.distributed.run --nnodes {nodes} --nproc_per_node {gpus} \\
    --node_rank $SLURM_NODEID --master_addr $HEAD --master_port $PORT {program}'
exit $?
"""


def _asked(answer: Any, request: tuple, nodelist: str, hosts: list[str], jobs: tuple[int, int]) -> dict:
    """A probe: what the script does as two jobs. The second one fails."""
    text = call(answer, *request, may_return_none=True)
    if not isinstance(text, str):
        return {"instead": show(text)}
    if refused := pretend.why_refused(text):
        return {"refused": refused}
    late = [
        line
        for line in text[text.find("\n") :].splitlines()
        if line.startswith("#SBATCH") and not pretend.options_of(text).keys() >= pretend.options_of(line).keys()
    ]
    try:
        runs = [
            pretend.run_job(text, hosts=hosts, nodelist=nodelist, job=job, status=status)
            for job, status in zip(jobs, (0, 3), strict=True)
        ]
    except ValueError as error:  # a number that is none: sbatch says "Invalid numeric value"
        return {"unreadable": str(error).rpartition(": ")[2]}
    return {"runs": runs, "late": late}


def _read(seen: dict, program: str, name: str, nodes: int, gpus: int, hosts: list[str], jobs: tuple) -> dict:
    """What came of a script, in words that can be compared."""
    first, second = seen["runs"]
    options = first["options"]
    try:
        request = {
            "The number of nodes": pretend.nodes_of(options),
            "The number of GPUs on each node": pretend.gpus_on_each(options, nodes),
            "The number of cores on each node": pretend.cores_on_each(options, nodes),
            "The time limit in minutes": pretend.minutes(options.get("time", "")),
        }
        started = [pretend.processes(run["calls"]) for run in (first, second)]
    except ValueError as error:
        return {"unreadable": str(error).rpartition(": ")[2]}
    made = started[0]
    log = options.get("output", "slurm-%j.out").replace("%x", options.get("job-name", "job.sh"))
    logs = [log.replace("%j", str(job)).replace("%A", str(job)) for job in jobs]
    worlds = {each["world"]: [] for each in made}
    for each in made:
        worlds[each["world"]].append(each)
    (ports, others) = ({each["port"] for each in some} for some in started)
    cores = [each["cores"] for each in made if each["step"]]
    # torchrun's rendezvous finds the ranks; plain processes have to be told.
    ranks = [str(each["rank"]) for each in made if each["rank"] is None and each["by"] == "srun"]
    ranks = ranks or sorted(each["rank"] for each in made if each["rank"] is not None)
    here = {None, "localhost", "127.0.0.1"} if nodes == 1 else set()
    return request | {
        "The name of the job": options.get("job-name"),
        "The log has the name of the job": log.find(name) >= 0 or "output" not in options,
        "Each job has its own log": logs[0] != logs[1],
        "The number of processes on each node": [sum(p["node"] == node for p in made) for node in range(nodes)],
        "The program": sorted({" ".join(p["program"]) for p in made}),
        "The processes in one world": sorted(len(world) for world in worlds.values()),
        "The size that each process was told": sorted({str(p["size"]) for p in made}),
        "The ranks": "each once" if ranks in ([], [*range(len(made))]) else ranks,
        "Each process has a GPU of its own": len({(p["node"], p["gpu"]) for p in made if p["gpu"]}) == len(made),
        "LOCAL_RANKs without a GPU": sum(not p["gpu"] for p in made),
        "sees its own": "gpus-per-task" in options,
        "The meeting place": sorted({hosts[0] if p["host"] in here else str(p["host"]) for p in made}),
        "Two jobs have different ports": nodes == 1 or not ports & others,
        "The port": "good"
        if all(str(p).isdigit() and 1024 <= int(p) < EPHEMERAL for p in ports if p)
        else ", ".join(sorted(ports)),
        "Threads of each process": ", ".join(sorted({str(p["threads"] or "no value") for p in made})),
        "Cores of each process": min(cores, default=0),
        "A failure is the job's failure": second["status"] not in (0, None),
        "A success is the job's success": first["status"],
        "in the script": [p for p in made if not p["step"]],
        "started": len(made),
        "by": {p["by"]: 1 for p in made},
        "alone": any(p.get("alone") for p in made),
        "tasks": pretend.tasks_on_each(options, nodes),
        "errors": first["errors"] or "(nothing)",
        "late": seen["late"],
        "backend": [c["words"] for c in first["calls"] if c["command"] == "torchrun"],
    }


def _job(ask: Any, program: str, name: str, nodes: int, gpus: int, cores: int, minutes: int, site: tuple) -> dict:
    """The measure of `job_script`."""
    nodelist, hosts, jobs = site
    request = (program, name, nodes, gpus, cores, minutes)
    seen = ask.observe(_asked, request, nodelist, hosts, jobs)
    return _read(seen, program, name, nodes, gpus, hosts, jobs) if "runs" in seen else seen


def _requests(new: Inputs) -> list[tuple]:
    first = new.size(2, 5)
    pair = f"gpu[{first:02},{first + 3:02}]", [f"gpu{first:02}", f"gpu{first + 3:02}"]
    # Job numbers of an old site and of a new one. The old one's end exposes a port above 32767: 20000 + % 20000, say.
    job, early = 10**5 * new.size(10, 90) + new.size(35_000, 39_990), new.size(3, 900)
    seed = new.size(2, 99)
    return [
        ("train.py", f"mnist{seed}", 2, 4, new.size(5, 7), 90 + new.size(1, 20), (*pair, (job, job + 1))),
        (f"big.py --seed {seed}", "sweep", 1, 2, 3, 24 * 60 + 40, (f"a{first}", [f"a{first}"], (early, early + 1))),
    ]


_job_but = partial(changed, _job_script)
_srun_but = partial(changed, _with_srun)

exercise(
    "job_script",
    title="Write the job script",
    minutes=14,
    difficulty=3,
    points=4,
    seconds=120.0,
    takeaway="One task on each node, `torchrun` as that task, a process for each GPU, a port from the job's number: "
    "four decisions, and the same script runs on one node or on forty.",
    hints=(
        "Take `two_nodes.sh` of the lecture and make an f-string of it; `{{` and `}}` are braces of bash. What does "
        "this request change in it?",
        "The task is `torchrun`: one for each node, with the cores of all its processes, "
        "`--cpus-per-task={gpus * cores}`. Each process has `OMP_NUM_THREADS={cores}`. `srun` learns about the cores "
        "from `SRUN_CPUS_PER_TASK`.",
        'The last lines: `head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)`, '
        "`port=$((20000 + SLURM_JOB_ID % 12000))`, then `srun torchrun --nnodes=$SLURM_NNODES "
        "--nproc-per-node={gpus} --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d --rdzv-endpoint=$head:$port {program}`. "
        "In Python, a backslash at the end of a line joins lines; write the command in one.",
    ),
    spec=Spec(
        draw=_requests,
        solution=_job_script,
        measure=_job,
        by_case=True,
        mistakes=[
            *_no_script(_job_script),
            r"""
            --nodes={nodes} → --nodes=$NODES
            --cpus-per-task={gpus * cores} → --cpus-per-task=$((4 * 2))
                An option has a value that is no number: {yours[unreadable]}.
                look: the #SBATCH lines: Slurm reads them, not bash, so nothing in them is expanded
                when: "unreadable" in yours
            #!/bin/bash → #!/bin/bash\nset -e
            _job_but(("#SBATCH --time={minutes}\n", ""), ("set -e\n", "set -e\n#SBATCH --time={minutes}\n"))
                Slurm does not see this line, because a command comes before it: {yours[late][0]}
                look: all #SBATCH lines go above the first command
                when: yours["late"]
            _job_but(("#SBATCH --nodes={nodes}\n", ""))
            --nodes={nodes} → --nodes={gpus}
                The number of nodes that the job asks for is {yours[The number of nodes]}, not {nodes}.
                look: `#SBATCH --nodes=…`, at the start of a line and without a blank behind the #
                when: _differ("The number of nodes", yours, expected)
            _job_but(("#SBATCH --gpus-per-node={gpus}\n", ""))
            --gpus-per-node={gpus} → --gpus={gpus} || --gpus-per-node={nodes * gpus}
                The job asks for {yours[The number of GPUs on each node]} GPUs on each node instead of {gpus}.
                look: `--gpus-per-node` counts those of one node, `--gpus` those of the whole job
                when: _differ("The number of GPUs on each node", yours, expected)
            _job_but(("#SBATCH --time={minutes}\n", ""))
            --time={minutes} → --time={minutes // 60}:{minutes % 60:02} || --time=00:{minutes} || --time={minutes * 60}
                {minutes} minutes were asked for, and Slurm reads your time limit as {yours[The time limit in minutes]}
                minutes.
                look: one number is minutes, M:SS minutes and seconds, H:MM:SS hours
                when: _differ("The time limit in minutes", yours, expected)
            srun torchrun → srun torchrum
            srun torchrun → # srun torchrun && \n    --rdzv-backend → \n#
            lambda *request: _job_script(*request).replace("srun torchrun", "if srun torchrun")
                Your script never starts the program, or ends before the program does. It said: {yours[errors]}
                when: not yours["started"]
            srun torchrun → torchrun
                `torchrun` runs in the script itself, which means on the first node only. `srun` in front starts it on
                each node.
                when: yours["in the script"] and yours["by"].get("torchrun")
            _srun_but(("srun --cpus-per-task=$SLURM_CPUS_PER_TASK bash", "bash"))
            lambda program, *rest: _job_script(program, *rest).rpartition("srun")[0] + f"python {program}\n"
                The program runs in the script itself, which means once, on the first node. `srun` in front starts it
                for every task.
                when: yours["in the script"]
            --ntasks-per-node=1 → --ntasks-per-node={gpus} && {gpus * cores} → {cores}
                {yours[started]} processes start; {nodes} nodes with {gpus} GPUs need {expected[started]}. You have
                {yours[tasks]} tasks on each node, and each of them is a `torchrun` that starts processes itself.
                look: `--ntasks-per-node=1`, or leave `torchrun` out
                when: yours["started"] > expected["started"] and yours["by"].get("torchrun") and yours["tasks"] > 1
            --nproc-per-node={gpus}  →
            --nproc-per-node={gpus} → --nproc-per-node={nodes * gpus} || --nproc-per-node={cores}
            _srun_but(("--ntasks-per-node={gpus}", "--ntasks-per-node=1"))
            srun torchrun → srun --ntasks=1 torchrun
                On the nodes start {yours[The number of processes on each node]} processes; it should be one for each
                GPU, {gpus} on each node.
                when: _differ("The number of processes on each node", yours, expected)
            _job_but((" | head -n 1", ""))
                The meeting place is all nodes, each on a line of its own: the first line ends up as its name, the
                others as arguments of the program.
                look: `| head -n 1` behind `scontrol show hostnames`
                when: any((host in words for host in site[1][1:] for words in yours["The program"]))
            {program} → {program.split()[0]} --now || train2.py
                The program is started as {yours[The program]} instead of {expected[The program]}.
                look: the end of the last line
                when: _differ("The program", yours, expected)
            {gpus * cores} → {cores}
            _job_but(("#SBATCH --cpus-per-task={gpus * cores}\n", ""))
            _srun_but(("-c {cores}", "-c {gpus * cores}"))
                The job has {yours[The number of cores on each node]} cores on each node; {gpus} processes with {cores}
                cores each need {expected[The number of cores on each node]}.
                look: `--cpus-per-task`: how many processes are in one task?
                when: _differ("The number of cores on each node", yours, expected)
            --nnodes=$SLURM_NNODES  →
            --nnodes=$SLURM_NNODES → --standalone || --nnodes=1
                Each node starts a world of its own, because the `torchrun`s do not know of each other: {yours[The
                processes in one world]} processes instead of {expected[The processes in one world]}.
                look: `--nnodes=$SLURM_NNODES`
                when: yours["alone"] and _differ("The processes in one world", yours, expected)
            """,
            Mistake(
                "The processes meet at {yours[The meeting place]}; that must be the first node, {expected[The meeting "
                "place]}, and every node has to get the same name.",
                _job_but(("$head:$port", "localhost:$port")),
                _job_but(("$head:$port", "$SLURM_JOB_NODELIST:$port")),
                _job_but(("$head:$port", "n1:$port")),
                _job_but(("head -n 1", "tail -n 1")),
                _job_but(
                    (":$port", ":$port"),
                    ("srun torchrun", "srun bash -c 'torchrun"),
                    ("$head", "$(hostname)"),
                    ('{program}\n"""', '{program}\'\n"""'),
                ),
                _srun_but(("MASTER_ADDR=$(scontrol show hostnames | sed -n 1p)", "MASTER_ADDR=127.0.0.1")),
                look='`scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1`',
                when=lambda yours, expected, *_: _differ("The meeting place", yours, expected),
            ),
            r"""
            --rdzv-backend=c10d  →
            lambda *request: _with_node_rank(*request).replace("--node_rank $SLURM_NODEID ", "")
                Every `torchrun` takes itself for node 0: without `--rdzv-backend=c10d`, each must be told its number.
                look: `--rdzv-backend=c10d` finds the numbers out by itself
                when: yours["by"].get("torchrun") and yours["The ranks"] != "each once"
            _srun_but(("RANK=$SLURM_PROCID LOCAL_RANK", "LOCAL_RANK"))
                Nothing tells the processes who they are: `srun` sets SLURM_PROCID, and your program reads RANK.
                look: `srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec python
                    …'`
                when: yours["by"].get("srun") and {*yours["The ranks"]} == {"None"}
            _srun_but(("RANK=$SLURM_PROCID LOCAL_RANK", "RANK=$SLURM_LOCALID LOCAL_RANK"))
                RANK is the number within the node, {yours[The ranks]}: every node has a task 0, but there is one rank
                0.
                look: `RANK=$SLURM_PROCID`
                when: nodes > 1 and yours["The ranks"] == sorted([*range(gpus)] * nodes)
            lambda *request: _with_srun(*request).replace("'", '"')
                RANK has to come from Slurm's variables inside the task. Your processes have the ranks
                {yours[The ranks]}.
                look: where $SLURM_PROCID is filled in. In double quotes, and in a line before `srun`, the shell of the
                    script does that, and there it is always 0; in single quotes behind `srun`, each task does
                when: yours["by"].get("srun") and {*yours["The ranks"]} == {0}
            _srun_but(("WORLD_SIZE=$SLURM_NTASKS ", ""))
                RANK and WORLD_SIZE have to come from Slurm's variables inside the task. Your processes have the ranks
                {yours[The ranks]} and sizes {yours[The size that each process was told]}.
                look: where $SLURM_PROCID is filled in. In double quotes, and in a line before `srun`, the shell of the
                    script does that, and there it is always 0; in single quotes behind `srun`, each task does
                when: yours["by"].get("srun") and (yours["The ranks"] != "each once" or _differ("The size that each
                    process was told", yours, expected))
            _srun_but(("--gres=gpu:{gpus}", "--gpus-per-task=1"))
                With `--gpus-per-task=1`, each task sees only its own GPU, as number 0. For
                {yours[LOCAL_RANKs without a GPU]} of your processes, there is no GPU with the number LOCAL_RANK: they
                end with "invalid device ordinal".
                look: with `--gpus-per-node={gpus}`, all tasks of a node see all its GPUs, and each takes number
                    LOCAL_RANK
                when: yours["sees its own"] and yours["LOCAL_RANKs without a GPU"]
            _srun_but(("LOCAL_RANK=$SLURM_LOCALID", "LOCAL_RANK=0"))
            _srun_but(("LOCAL_RANK=$SLURM_LOCALID ", ""))
            _srun_but(("LOCAL_RANK=$SLURM_LOCALID", "LOCAL_RANK=$SLURM_PROCID"))
                LOCAL_RANK is not the number of the process within its node, so several processes take the same GPU, or
                one that does not exist.
                look: `LOCAL_RANK=$SLURM_LOCALID`
                when: not yours["Each process has a GPU of its own"]
            $((20000 + SLURM_JOB_ID % 12000)) → 29500
            :$port →
                Two jobs on one node get the same port, and the second one ends with "address already in use".
                look: `$((20000 + SLURM_JOB_ID % 12000))`
                when: not yours["Two jobs have different ports"]
            $((20000 + SLURM_JOB_ID % 12000)) → $((90000 + SLURM_JOB_ID)) || p$SLURM_JOB_ID || $SLURM_JOB_ID
                    || $((20000 + SLURM_JOB_ID % 20000)) || $((10000 + SLURM_JOB_ID % 50000))
                As job {site[2][0]}, the port is {yours[The port]}. Choose a number from 1024 to 32767: Linux uses
                higher ones, up to 60999, for outgoing connections, so one of them may be taken.
                look: the remainder `%` keeps the port in range for any job: `$((20000 + SLURM_JOB_ID % 12000))`
                when: yours["The port"] != "good"
            _job_but(("export OMP_NUM_THREADS={cores}\n", ""))
            export OMP_NUM_THREADS={cores} → OMP_NUM_THREADS={cores}
            OMP_NUM_THREADS={cores} → OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK || OMP_NUM_THREADS=1
                In the processes, OMP_NUM_THREADS has {yours[Threads of each process]}; each has {cores} cores, so
                {cores} threads.
                look: `export OMP_NUM_THREADS=…`; $SLURM_CPUS_PER_TASK counts the cores of a whole task
                when: _differ("Threads of each process", yours, expected)
            _job_but(("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n", ""))
            _srun_but(("--cpus-per-task=$SLURM_CPUS_PER_TASK bash", "bash"))
                `srun` does not take the number of cores over from the #SBATCH lines, so its tasks may get one core
                only.
                look: `export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK`, or `srun --cpus-per-task=…`
                when: _differ("Cores of each process", yours, expected)
            """,
            Mistake(
                "The program failed, but the job reports success, so a job that depends on it will start.",
                _job_but(('{program}\n"""', '{program}\necho done\n"""'), ("set -e\n", "")),
                _job_but(('{program}\n"""', '{program} || true\n"""')),
                _job_but(('{program}\n"""', '{program} | tee log\n"""')),
                _job_but(('{program}\n"""', '{program} &\nwait\n"""')),
                look="what comes after `srun`: a pipe, `&` with `wait`, and later commands have a status of their own; "
                "`srun` as the last line, or `set -e` at the top, keeps that of the program",
                when=lambda yours, *_: not yours["A failure is the job's failure"],
            ),
            r"""
            %x-%j.out → %x.out
                Two runs write to the same log, and the second one overwrites the first.
                look: `%j` in `--output`
                when: not yours["Each job has its own log"]
            _job_but(("#SBATCH --job-name={name}\n", ""))
            --job-name={name} → --job-name=train
                The name of the job is {yours[The name of the job]}; it should be {name}.
                look: `--job-name`
                when: _differ("The name of the job", yours, expected)
            %x-%j.out → run-%j.out
                The name of the log does not contain the name of the job.
                look: `%x` in `--output`
                when: not yours["The log has the name of the job"]
            lambda *request: _with_node_rank(*request).replace("port $PORT", "port $((PORT + 100 * SLURM_NODEID))")
                The processes form worlds of {yours[The processes in one world]}; there should be one of {expected[The
                processes in one world]}. A world needs the same address and the same port everywhere.
                look: compute both once, in the script: what is between the single quotes runs once for each task
                when: _differ("The processes in one world", yours, expected)
            """,
        ],
        also_right=[
            _with_srun,
            _with_node_rank,
            _job_but(
                ("set -e\n", "set -e\ncd $SLURM_SUBMIT_DIR\nmodule load cuda\nnvidia-smi\n"),
                ("--gpus-per-node={gpus}", "--gres=gpu:{gpus}"),
                ("--nproc-per-node={gpus}", "--nproc-per-node=$SLURM_GPUS_ON_NODE"),
            ),
            _job_but(("--nproc-per-node={gpus}", "--nproc-per-node=gpu")),
            _job_but(
                ("--cpus-per-task={gpus * cores}", "--cpus-per-gpu={cores}"),
                ("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n", ""),
            ),
            _srun_but(("--gres=gpu:{gpus}", "--gpus-per-task=1"), ("LOCAL_RANK=$SLURM_LOCALID", "LOCAL_RANK=0")),
        ],
    ),
)


# ---------------------------------------- requeue

AGAIN = 75  # the exit status of a program that has saved and wants to be started again (chapter 09)


def _requeue(program, seconds, most):
    return f"""#!/bin/bash
#SBATCH --time=1:00:00
#SBATCH --signal=USR1@{seconds}
#SBATCH --requeue
#SBATCH --open-mode=append
status=0
srun python {program} || status=$?
if [ $status -eq 75 ] && [ ${{SLURM_RESTART_COUNT:-0}} -lt {most} ]; then
    scontrol requeue $SLURM_JOB_ID
fi
exit $status
"""


def _with_trap(program, seconds, most):
    return f"""#!/bin/bash
#SBATCH --requeue --open-mode append
#SBATCH --signal=B:USR1@{seconds}
trap 'kill -USR1 $task' USR1
python {program} &
task=$!
wait $task; wait $task
status=$?
case $status in
75) if (( ${{SLURM_RESTART_COUNT:-0}} < {most} )); then scontrol requeue "$SLURM_JOB_ID"; fi ;;
esac
exit $status
"""


def _with_if(program, seconds, most):
    return f"""#!/usr/bin/env bash
#SBATCH --signal=SIGUSR1@{seconds}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --output=%x-%j.out
count=${{SLURM_RESTART_COUNT:-0}}
srun python {program}
status=$?
[[ $status == 75 && $count -lt {most} ]] && scontrol requeue ${{SLURM_JOB_ID}}
exit $status
"""


def _nights(answer: Any, program: str, seconds: int, most: int, job: int) -> dict:
    """A probe: the script in six nights, each of which ends in another way, and one that may be restarted once."""
    texts = [call(answer, program, seconds, restarts, may_return_none=True) for restarts in (most, 1)]
    for text in texts:
        if not isinstance(text, str):
            return {"instead": show(text)}
        if refused := pretend.why_refused(text):
            return {"refused": refused}
    run, run_once = (partial(pretend.run_job, text, hosts=["n1"], nodelist="n1", job=job) for text in texts)
    try:
        return {
            "finished": run(status=0),
            "crashed": run(status=1),
            "killed": run(status=137),
            "stopped": run(signaled=True),
            "last": run(status=AGAIN, restarts=most - 1),
            "too often": run(status=AGAIN, restarts=most),
            "only one": run_once(status=AGAIN),
        }
    except ValueError as error:
        return {"refused": str(error)}


def _requeued(run: dict, job: int) -> list[str]:
    """For each `scontrol requeue`: "this job", or what it was about."""
    words = [call["words"] for call in run["calls"] if call["command"] == "scontrol" and "requeue" in call["words"]]
    return ["this job" if each[-1] == str(job) else " ".join(each) for each in words]


def _came_back(ask: Any, program: str, seconds: int, most: int, job: int) -> dict:
    """The measure of `requeue`."""
    seen = ask.observe(_nights, program, seconds, most, job)
    if "finished" not in seen:
        return seen
    options = seen["finished"]["options"]
    signal = re.fullmatch(r"(?:B:)?(?:SIG)?(\w+)(?:@(\d+))?", options.get("signal", ""))
    programs = {
        " ".join(each["words"])
        for run in seen.values()
        for each in run["calls"]
        if each["command"] in ("python", "torchrun")
    }
    stops = [call for call in seen["stopped"]["calls"] if call["command"] == "scontrol"]
    other = [" ".join(call["words"]) for call in stops if "requeue" not in call["words"]]
    return {
        "The program": sorted(programs),
        "The signal": signal and [signal[1].replace("10", "USR1"), signal[2] or "60"],
        "It may be requeued": "requeue" in options,
        "The log is continued": options.get("open-mode", "")[:1] == "a",
        "How often it starts the program": max(
            sum(c["command"] in ("python", "torchrun") for c in run["calls"]) for run in seen.values()
        ),
        "The signal reaches the program": seen["stopped"]["saved"],
        "Requeued before it had saved": any(not call["saved"] for call in stops),
        "Requeues after a stop": _requeued(seen["stopped"], job),
        "Nothing is left to do after the requeue": not _after_requeue(seen["stopped"]),
        "Requeues after success": _requeued(seen["finished"], job),
        "Requeues after a crash": _requeued(seen["crashed"], job),
        "Requeues after being killed": _requeued(seen["killed"], job),
        "Requeues with one restart left": _requeued(seen["last"], job),
        "Requeues with none left": _requeued(seen["too often"], job),
        "Requeues in the first start if one is allowed": _requeued(seen["only one"], job),
        "The status after success": seen["finished"]["status"],
        "The status after a crash": seen["crashed"]["status"],
        "The status with no restart left": seen["too often"]["status"],
        "errors": seen["finished"]["errors"] or "(nothing)",
        "said": f" Bash said: {said}" if (said := seen["stopped"]["errors"]) else "",
        "too late": _after_requeue(seen["stopped"]),
        "other words": next(iter(other), ""),
        "sbatch": any(call["command"] == "sbatch" for run in seen.values() for call in run["calls"]),
    }


def _after_requeue(run: dict) -> str:
    """The first command after `scontrol requeue` that does something."""
    ran = iter([line.lstrip("+").strip() for line in run["ran"] if line.startswith("+")])
    for line in ran:
        if line.startswith("scontrol requeue"):
            break
    idle = "exit", "echo", "printf", "return", "true", ":", "[", "[[", "test", "((", "break", "set", "sleep", "wait"
    return next((line for line in ran if "=" not in (word := line.split()[0].strip("'")) and word not in idle), "")


_requeue_but = partial(changed, _requeue)
_CONDITION = "[ $status -eq 75 ] && [ ${{SLURM_RESTART_COUNT:-0}} -lt {most} ]"
_RUN = "srun python {program} || status=$?"

exercise(
    "requeue",
    title="Come back after the limit",
    minutes=13,
    difficulty=3,
    points=4,
    seconds=180.0,
    takeaway="Slurm sends the signal, your program saves and says so with its exit status, and only then the script "
    "requeues: one status leads back into the queue, every other one ends the job.",
    hints=(
        "Four #SBATCH lines and four steps: start, keep the status, look at it, end with it. The shell forgets a "
        "status "
        "with the next command, so keep it at once in a variable.",
        "`status=0`, then `srun python … || status=$?`. The number of restarts is in SLURM_RESTART_COUNT, which does "
        "not "
        "exist in the first start: `${SLURM_RESTART_COUNT:-0}`. In an f-string, braces of bash are doubled.",
        "`if [ $status -eq 75 ] && [ ${{SLURM_RESTART_COUNT:-0}} -lt {most} ]; then scontrol requeue $SLURM_JOB_ID; "
        "fi`, "
        "and at the very end `exit $status`.",
    ),
    spec=Spec(
        draw=lambda new: [
            (f"train.py run{new.size(2, 99)}", new.size(65, 290), new.pick([10, 100]), new.size(1000, 9000))
        ],
        solution=_requeue,
        measure=_came_back,
        mistakes=[
            *_no_script(_requeue),
            r"""
            srun python → srum python || srun
                Your script never starts the program, or ends before the program does. It said: {yours[errors]}
                look: `srun python …`, and no `&` without a `wait` behind it
                when: not yours["The program"]
            python {program} → python train.py
                The program is started as {yours[The program]} instead of {expected[The program]}.
                when: _differ("The program", yours, expected)
            scontrol requeue $SLURM_JOB_ID → srun python {program}; scontrol requeue $SLURM_JOB_ID
                Your script starts the program again by itself: the time of this job is up, so what helps is the queue.
                when: _differ("How often it starts the program", yours, expected)
            _requeue_but(("#SBATCH --signal=USR1@{seconds}\n", ""))
            #!/bin/bash → #!/bin/bash\nset -u
                The script asks for no signal; Slurm would end the program at its limit without a warning.
                look: `#SBATCH --signal=USR1@…`, above the first command
                when: yours["The signal"] is None
            USR1@{seconds} → USR1 || TERM@{seconds} || USR1@120
                The signal is {yours[The signal][0]}, {yours[The signal][1]} seconds before the limit; it should be
                USR1, {seconds} seconds before.
                when: _differ("The signal", yours, expected)
            _requeue_but(("USR1@{seconds}", "B:USR1@{seconds}"), (_RUN, "trap 'scontrol requeue $SLURM_JOB_ID; exit'
                    USR1\nsrun python {program} & wait $! || " "status=$?"))
                The job is requeued before the program has saved: the requeue ends it, and the work is lost.
                look: the program has to get the signal, save, and end; then look at its status
                when: yours["Requeued before it had saved"]
            srun python → python
            USR1@{seconds} → B:USR1@{seconds}
            USR1@{seconds} → B:USR1@{seconds} && status=0 → status=0\ntrap : USR1
                The signal does not reach the program. Slurm sends it to what `srun` started, or with `B:` to the shell
                alone, which waits for its command before it does anything.
                look: `--signal=USR1@…` without `B:`, and `srun` in front of the program. With `B:`, the program runs in
                    the background (`srun … &`), a `trap` passes the signal on, and `wait` waits for the program
                when: not yours["The signal reaches the program"]
            scontrol requeue $SLURM_JOB_ID → sbatch $0 || sbatch --dependency=afterany:$SLURM_JOB_ID $0
                Your script submits another job with `sbatch`, which waits at the end of the queue and counts its
                restarts from 0. The same job should come back.
                look: `scontrol requeue`
                when: yours["sbatch"]
            scontrol requeue → scontrol resume || scontrol release
                Your script calls `scontrol {yours[other words]}`; what puts a running job back is `scontrol requeue`.
                when: yours["other words"] and not yours["Requeues after a stop"]
            -lt {most} → < {most}
                Between `[` and `]`, `<` and `>` read and write files.{yours[said]}
                look: `-lt` compares numbers
                when: "No such file" in yours["said"] and not yours["Requeues after a stop"]
            status=0 → set -e && srun python {program} || status=$? → srun python {program}; status=$?
            -eq 75 → -eq 138 || -eq 0
            scontrol requeue $SLURM_JOB_ID → echo requeue
            _requeue_but((_RUN, "srun python {program} || status=1"))
            ${{SLURM_RESTART_COUNT:-0}} → $SLURM_RESTART_COUNT
            -lt {most} → -gt {most}
            srun python {program} || status=$? → srun python {program}\necho ended\nstatus=$?
                The program stopped and saved, and the job was not requeued.{yours[said]}
                look: the status after `srun`: `set -e` ends the script there, another command (a bare `wait`, too)
                    replaces `$?`. Then the condition: `-eq 75`, `-lt {most}`, and in the first start
                    SLURM_RESTART_COUNT does not exist
                when: not yours["Requeues after a stop"]
            _requeue_but((_CONDITION, "[ ${{SLURM_RESTART_COUNT:-0}} -lt {most} ]"))
            _requeue_but((_CONDITION, "[ $status -le 75 ]"))
                A training run that is finished goes back into the queue and starts again needlessly.
                when: yours["Requeues after success"]
            -eq 75 → -ne 0 || -gt 0 || -ge 75
                A program that crashed goes back into the queue, where it crashes again, all night.
                look: only the status 75 says that it has saved
                when: yours["Requeues after a crash"] or yours["Requeues after being killed"]
            _requeue_but((" && [ ${{SLURM_RESTART_COUNT:-0}} -lt {most} ]", ""))
            -lt {most} → -le {most} || > 0
                After {most} restarts the job goes back into the queue once more, and {most} are allowed.
                look: the comparison with SLURM_RESTART_COUNT, which is {most} then. Between `[` and `]` it is `-lt`:
                    `<` and `>` read and write a file there
                when: yours["Requeues with none left"]
            -lt {most} → -lt $(({most} - 1)) || -eq 0
            _requeue_but((_CONDITION, "[[ $status == 75 && ${{SLURM_RESTART_COUNT:-0}} < {most} ]]"))
                One restart was left, and the job was not requeued: {most} are allowed, and SLURM_RESTART_COUNT says how
                many there have been.
                look: `-lt {most}`; in `[[ ]]`, `<` compares texts, in which 9 comes after 10
                when: not yours["Requeues with one restart left"]
            COUNT:-0} → COUNT:-1}
                With one restart allowed, the job is not requeued after its first start. Slurm sets SLURM_RESTART_COUNT
                from the first restart on; until then the count is 0.
                look: the default behind `:-`
                when: not yours["Requeues in the first start if one is allowed"]
            requeue $SLURM_JOB_ID → requeue || requeue 4711 || requeue $SLURM_JOB_ID; scontrol requeue $SLURM_JOB_ID
                `scontrol requeue` gets {yours[Requeues after a stop][0]} instead of the number of this job, once.
                look: $SLURM_JOB_ID
                when: _differ("Requeues after a stop", yours, expected)
            requeue $SLURM_JOB_ID → requeue $SLURM_JOB_ID; cp -r results saved
                After `scontrol requeue` comes `{yours[too late]}`, and Slurm may end the script before that.
                look: `scontrol requeue` comes last, with nothing but `exit` behind it
                when: yours["too late"]
            _requeue_but(("exit $status\n", ""))
            exit $status → exit 0
                After a crash the job ends with status {yours[The status after a crash]}, and after the last restart
                with {yours[The status with no restart left]}; both should be the program's.
                look: `status=$?` in the line after `srun` (every command, `if` and `[` too, sets `$?` anew), and `exit
                    $status` as the last line
                when: _differ("The status after a crash", yours, expected) or _differ("The status with no restart left",
                    yours, expected)
            _requeue_but(("exit $status", "[ $status -eq 0 ] && exit 1; exit $status"))
                The training succeeded, and the job ends with status {yours[The status after success]}.
                when: yours["The status after success"]
            _requeue_but(("#SBATCH --requeue\n", ""))
            --requeue → --no-requeue
                The script does not say that it may be requeued, and some sites don't allow it unless you do.
                look: `#SBATCH --requeue`
                when: not yours["It may be requeued"]
            _requeue_but(("#SBATCH --open-mode=append\n", ""))
                The second start overwrites the log of the first one.
                look: `#SBATCH --open-mode=append`
                when: not yours["The log is continued"]
            """,
        ],
        also_right=[
            _with_trap,
            _with_if,
            changed(_with_trap, ("python {program} &", "srun python {program} &")),
            changed(
                _with_trap,
                ("python {program} &", "srun --kill-on-bad-exit=0 --wait=60 python {program} &"),
                ("kill -USR1 $task", "scancel --signal=USR1 $SLURM_JOB_ID"),
            ),
        ],
    ),
)


# ---------------------------------------- one copy for each node


def _stage_once(source, folder):
    target = folder / source.name
    part = target.with_suffix(".part")
    if int(os.environ["SLURM_LOCALID"]) == 0:
        shutil.copyfile(source, part)
        os.replace(part, target)
    while not target.exists():
        time.sleep(0.02)
    return target


def _by_bytes(source, folder):
    target = os.path.join(folder, source.name)
    if os.environ.get("SLURM_LOCALID") == "0":
        with open(source, "rb") as file, open(target + "~", "wb") as copy:
            copy.write(file.read())
        os.rename(target + "~", target)
    else:
        while not os.path.isfile(target):
            pass
    return target


def _in_a_folder_within(source, folder):
    target = folder / source.name
    if os.environ["SLURM_LOCALID"] == "0":
        with tempfile.TemporaryDirectory(dir=folder) as work:
            os.replace(shutil.copy(source, work), target)
    while not target.exists():
        time.sleep(0.02)
    return target


def _by_shell(source, folder):
    target = folder / source.name
    if os.environ["SLURM_LOCALID"] == "0":
        subprocess.run(f"cp {source} {target}.part && mv {target}.part {target}", shell=True, check=True)
    while not target.exists():
        time.sleep(0.02)
    return target


TASKS = 3  # on the first node, so that no remainder of SLURM_PROCID is 0 once on each node
WAIT = 0.4  # seconds that the network disk takes to open a file, and the node's to rename one
LATE = 3.0  # seconds that the last task of a node waits for the copy before it begins at all
PATIENCE = 6  # seconds after which a task counts as waiting forever
NAP = 1.0  # seconds that a task sleeps at most; where one does, the disks take longer, so that sleeping is not enough


class _StillWaiting(BaseException):
    pass


def _in_words(path: str, source: str, folder: str) -> str:
    """A path in words that are the same in every run: temporary folders have random names."""
    path = os.path.abspath(path)
    places = {
        source: "the source",
        folder: "the node's folder",
        os.path.dirname(source): "the folder of the source",
        os.path.dirname(folder): "the disk of another node",
        os.path.realpath("."): "the current folder",
        os.path.realpath(tempfile.gettempdir()): "the system's temporary folder",
    }
    place = next((place for place in places if f"{path}{os.sep}".startswith(f"{place}{os.sep}")), None)
    return places[place] if place else "another folder"


def _in_one_go(words: Any, source: str, target: str) -> bool:
    """Tell whether a command, or one of several in a shell's line, copies the source to its final name."""
    text = words if isinstance(words, str) else words[-1] if "-c" in words else shlex.join(map(os.fsdecode, words))
    commands = [each.split() for each in re.split(r"&&|\|\||[;\n]", text.replace("'", "").replace('"', ""))]
    ends = (target, os.path.dirname(target))
    return any(source in each and each[-1].rstrip("/") in ends for each in commands)


def _on_task(answer: Callable, source: str, nodes: list[str], length: int) -> dict:
    """One of four tasks, three on one node and one on the other, in a process of its own: what it did with files."""
    rank = int(os.environ["RANK"])
    node, local = divmod(rank, TASKS)
    os.environ |= {"SLURM_PROCID": str(rank), "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local)}
    os.environ |= {"SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "3,1", "TMPDIR": nodes[node]}
    target = os.path.join(nodes[node], os.path.basename(source))
    napped = Path(source).parent.parent / "napped"
    sleep = time.sleep
    seen = {"node": node, "reads": 0, "in place": False, "hung": False, "from": ""}

    def nap(seconds: float) -> None:
        if seconds >= NAP:
            napped.touch()
        sleep(min(seconds, NAP))

    def take_time() -> None:
        sleep(WAIT + (NAP if napped.exists() else 0))

    def watch(event: str, args: tuple) -> None:
        if event == "open" and isinstance(args[0], str | os.PathLike):
            path = os.fspath(args[0])
            writes = (args[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            if path == source and not writes:
                seen["reads"] += 1
                take_time()
            seen["in place"] |= path == target and bool(writes)
        elif event == "os.rename" and os.path.abspath(os.fsdecode(args[1])) == target:
            folder = os.path.dirname(os.path.abspath(os.fsdecode(args[0])))
            below = f"{folder}{os.sep}".startswith(f"{nodes[node]}{os.sep}")  # on the same disk
            seen["from"] = "" if below else _in_words(folder, source, nodes[node])
            take_time()
        elif event == "subprocess.Popen":
            words = str(args[1])
            if source in words:
                seen["reads"] += 1
                seen["in place"] |= _in_one_go(args[1], source, target)
                sleep(WAIT)  # until another task has begun its nap
                take_time()

    def ring(*_: Any) -> None:
        raise _StillWaiting

    comes_late = time.monotonic() + (LATE if local == TASKS - 1 else 0)
    while time.monotonic() < comes_late and not os.path.isfile(target):
        sleep(0.02)
    sys.addaudithook(watch)
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, 0.5)
    world, dist.GroupMember.WORLD = dist.GroupMember.WORLD, None  # the tasks of the exercise have no process group
    time.sleep = nap
    try:
        result = answer(Path(source), Path(nodes[node]))
        signal.setitimer(signal.ITIMER_REAL, 0)
        whole = os.path.isfile(target) and os.path.getsize(target) == length
        same = isinstance(result, str | os.PathLike) and os.path.normpath(result) == target
        size = os.path.getsize(target) if os.path.isfile(target) else 0
        returned = _in_words(result, source, nodes[node]) if isinstance(result, str | os.PathLike) else show(result)
        seen |= {"whole": whole, "size": size, "result": same, "returned": returned}
    except _StillWaiting:
        seen["hung"] = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        dist.GroupMember.WORLD, time.sleep = world, sleep
    return seen


def _four_tasks(answer: Any, name: str, size: int) -> dict:
    """A probe: four tasks on two nodes. A node's disk is a folder."""
    attempted(answer)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as here:
        here = os.path.realpath(here)
        nodes = [os.path.join(here, node) for node in ("n1", "n2")]
        for folder in (*nodes, os.path.join(here, "network")):
            os.mkdir(folder)
        source = os.path.join(here, "network", name)
        Path(source).write_bytes(bytes(range(256)) * size)
        outcome = ranks.run(_on_task, answer, source, nodes, 256 * size, world_size=4, timeout=30)
        ranks.judge(outcome)
        left = sorted({file for folder in nodes for file in os.listdir(folder) if file != name})
        kept = os.path.exists(source)
    return {"tasks": outcome.values, "left": left, "kept": kept}


def _staged(ask: Any, name: str, size: int) -> dict:
    """The measure of `stage_once`."""
    seen = ask.observe(_four_tasks, name, size)
    tasks = seen["tasks"]
    waiting = [rank for rank, task in enumerate(tasks) if task["hung"]]
    return {
        "Tasks that wait forever": waiting,
        # Of this file: its size is drawn, so what was seen in another run is of no use.
        "The copy is as long as the file": any(task.get("size") == 256 * size for task in tasks),
        "Copies on each node": [sum(t["reads"] > 0 for t in tasks if t["node"] == node) for node in range(2)],
        "Tasks that return before the copy is complete": [
            rank for rank, task in enumerate(tasks) if not task["hung"] and not task["whole"]
        ],
        "The copy appears under its name when it is complete": not any(task["in place"] for task in tasks),
        "The copy is renamed within its folder": not any(task["from"] for task in tasks),
        "from": next((task["from"] for task in tasks if task["from"]), ""),
        "What is returned": sorted({t["returned"] for t in tasks if not t["hung"] and not t["result"]}),
        "What is left beside the copy": seen["left"],
        "The source is still there": seen["kept"],
    }


def _in_place(source, folder):
    if os.environ["SLURM_LOCALID"] == "0":
        subprocess.run(["cp", str(source), str(folder / source.name)], check=True)
    time.sleep(2 * WAIT)
    return folder / source.name


exercise(
    "stage_once",
    title="One copy for each node",
    minutes=10,
    difficulty=3,
    points=3,
    seconds=150.0,
    takeaway="SLURM_LOCALID 0 exists once on each node: it copies under another name and renames, and for all others "
    "the "
    "file's name alone means that it is whole.",
    hints=(
        "Every task runs this function. Which of Slurm's numbers is 0 exactly once on each node?",
        "That task copies to another name in the same folder and calls `os.replace`, which happens at once. The others "
        "wait in a loop until the final name exists, with a short `time.sleep` in it.",
        '`if os.environ["SLURM_LOCALID"] == "0":`, then `shutil.copyfile(source, part)` and '
        "`os.replace(part, target)`; for all: `while not target.exists(): time.sleep(0.02)`.",
    ),
    spec=Spec(
        draw=lambda new: [(f"digits{new.size(2, 99)}.bin", new.size(200, 900))],
        solution=_stage_once,
        measure=_staged,
        mistakes=r"""
            int(os.environ["SLURM_LOCALID"]) == 0 → int(os.environ["SLURM_PROCID"]) == 0
                Only one task of the whole job copies, and the second node, which sees only its own disk, waits for
                ever.
                look: SLURM_LOCALID, which is 0 once on each node
                when: yours["Tasks that wait forever"] == [3] and yours["Copies on each node"] == [1, 0]
            shutil.copyfile(source, part) → shutil.move(source, part)
                Your function takes the source away, and it has to stay: the other node copies it, too.
                look: `move` and `rename` of the source
                when: says(yours, "/network/") and says(yours, "No such file")
            os.replace(part, target) → os.replace(part, target); os.replace(part, target)
                Your temporary file was gone when you renamed it: an earlier line, or another task that copies on this
                node, had renamed it already.
                look: which tasks copy: SLURM_LOCALID is 0 once on each node
                when: says(yours, "/n1/", "/n2/") and says(yours, "No such file")
            int(os.environ["SLURM_LOCALID"]) == 0 → os.environ["SLURM_LOCALID"] == 0
            int(os.environ["SLURM_LOCALID"]) == 0 → int(os.environ["SLURM_PROCID"]) % 2 == 0
                    && .with_suffix(".part") → .with_suffix(f".{os.getpid()}")
            os.replace(part, target) → pass
                Tasks {yours[Tasks that wait forever]} of 4 wait forever.
                look: whether a task copies on this node, and whether its copy gets the name that the others wait for;
                    variables of the environment are strings
                when: yours["Tasks that wait forever"]
            int(os.environ["SLURM_LOCALID"]) == 0 → True && .with_suffix(".part") → .with_suffix(f".{os.getpid()}")
            int(os.environ["SLURM_LOCALID"]) == 0 → not target.exists()
                    && .with_suffix(".part") → .with_suffix(f".{os.getpid()}")
            = shutil.copy(source, folder)
                On the two nodes {yours[Copies on each node]} tasks read the source; it should be one on each: every
                read goes over the network.
                look: SLURM_LOCALID
                when: max(yours["Copies on each node"]) > 1
            int(os.environ["SLURM_LOCALID"]) == 0 → int(os.environ["SLURM_PROCID"]) == 0
                    && while not target.exists():\n        time.sleep(0.02) → pass
            shutil.copyfile(source, part) → os.symlink(source, part)
                A task of each node, or of one of them, has to read the source; yours read it {yours[Copies on each
                node]} times on the nodes.
                look: SLURM_LOCALID, which is 0 once on each node; a link is no copy, it leads to the network disk
                when: min(yours["Copies on each node"]) < 1
            target.with_suffix(".part") → target
            shutil.copyfile(source, part) → target.write_bytes(source.read_bytes()) && os.replace(part, target) → pass
            = _in_place(source, folder)
                The copy grows under its final name, so a task that looks for this name may read half a file.
                look: another name in the same folder, then `os.replace`
                when: not yours["The copy appears under its name when it is complete"]
            target.with_suffix(".part") → Path(tempfile.mkdtemp()) / "part"
                The copy is not written in the node's folder, but in {yours[from]}. That may be another disk, and
                between disks nothing can be renamed, only copied.
                look: a temporary name in the same folder
                when: yours["from"]
            folder / source.name → folder / "data.bin"
            return target → pass || return folder || return source
                Your function should return the path of the copy, `folder / source.name`. It returns {yours[What is
                returned][0]}.
                when: yours["What is returned"]
            while not target.exists():\n        time.sleep(0.02) → pass || time.sleep(4)
            while not target → if not target || while not part.exists() and not target
                Tasks {yours[Tasks that return before the copy is complete]} return before their node has the copy: they
                do not wait for it.
                look: a loop until the final name is there
                when: yours["Tasks that return before the copy is complete"]
            os.replace(part, target)
                    → shutil.copyfile(part, target.with_suffix('.2')); os.replace(target.with_suffix('.2'), target)
                Beside the copy, {yours[What is left beside the copy]} is left on the node's disk.
                look: rename the copy, rather than copy once more; its final name says that it is whole, without a
                    second file
                when: yours["What is left beside the copy"]
        """,
        also_right=[
            _by_bytes,
            _by_shell,
            _in_a_folder_within,
            changed(_stage_once, ("time.sleep(0.02)", "time.sleep(1.5)")),
        ],
    ),
)
