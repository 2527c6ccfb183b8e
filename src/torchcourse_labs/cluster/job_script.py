"""The script of a training run on several nodes: real bash runs it twice, with a Slurm that only pretends."""

from collections.abc import Sequence
from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, same, wrong_if
from torchcourse_labs.cluster import _pretend_slurm as slurm
from torchcourse_labs.cluster._shared import judge_program, judge_text


def draw(rng: Inputs) -> list[tuple]:
    """The arguments, the nodes as Slurm writes them and one by one, and the number of the first of two jobs."""
    one, seed = rng.size(2, 5), rng.size(2, 99)
    several = ("train.py", f"mnist{seed}", 2, 4, rng.size(5, 7), 90 + rng.size(1, 20))
    single = (f"big.py --seed {seed}", "sweep", 1, 2, 3, 24 * 60 + 40)
    # With these numbers, a port such as 20000 + number % 20000 is too high in one of the jobs.
    old_site, new_site = rng.size(3, 900), 10**5 * rng.size(10, 90) + rng.size(35_000, 39_990)
    return [
        (several, f"gpu[{one:02},{one + 3:02}]", [f"gpu{one:02}", f"gpu{one + 3:02}"], new_site),
        (single, f"a{one}", [f"a{one}"], old_site),
    ]


def solution(program: str, name: str, nodes: int, gpus: int, cores: int, minutes: int) -> str:
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


def two_jobs(answer: Any, request: tuple, nodelist: str, hosts: Sequence[str], job: int) -> dict:
    """A probe: the script, and what it does as two jobs. The program of the second one fails."""
    text = call(answer, *request, may_return_none=True)
    if not slurm.is_script(text):
        return {"text": text}
    jobs = [slurm.run_job(text, job=job + i, status=3 * i, hosts=hosts, nodelist=nodelist) for i in (0, 1)]
    return {"text": text, "jobs": jobs}


def judge(answer: Any, rng: Inputs) -> None:
    for request, nodelist, hosts, job in draw(rng):
        seen = observe(answer, two_jobs, request, nodelist, hosts, job)
        judge_text(seen["text"])
        program, name, nodes, gpus, cores, minutes = request
        options, jobs = slurm.options_of(seen["text"]), seen["jobs"]
        same(slurm.nodes_of(options), nodes, "The number of nodes that the job asks for", look="`#SBATCH --nodes=…`")
        look = "`--gpus-per-node` counts those of one node, `--gpus` all"
        same(slurm.gpus_on_each(options, nodes), gpus, "The number of GPUs of each node", look=look)
        look = "tasks of a node times `--cpus-per-task`: how many processes has a task? `--ntasks` is for all nodes"
        same(slurm.cores_on_each(options, nodes), gpus * cores, "The number of cores of each node", look=look)
        look = "one number is minutes, M:SS minutes and seconds, H:MM:SS hours"
        limit = slurm.minutes(options.get("time", ""))
        same(limit, minutes, "The time limit in minutes, as Slurm reads it,", dtype=False, look=look)
        judge_program(jobs, program)
        first, second = ([p for call in job["calls"] for p in call.get("processes", [])] for job in jobs)
        judge_processes(first, nodes, gpus, cores)
        judge_meeting(first, second, hosts)
        same(jobs[0]["status"], 0, "The status of the job after the program has succeeded")
        wrong_if(
            jobs[1]["status"] in (0, None),
            "failure_lost",
            "The program failed, but the job does not report a failure, so a job that depends on it may start.",
            look="what comes after `srun`: a pipe, `&` with `wait`, and later commands have a status of their own; "
            "`srun` as the last line, or `set -e` at the top, keeps that of the program",
        )
        same(options.get("job-name"), name, "The name of the job", look="`--job-name`")
        log = options.get("output", "%x-%j.out")
        if ("%j" not in log and "%A" not in log) or name not in log.replace("%x", name):
            raise Incorrect("The log is not right.", f"{name} and the job's number in its name", log, "`%x`, `%j`")


def judge_processes(processes: list[dict], nodes: int, gpus: int, cores: int) -> None:
    wrong_if(
        not all(each["in step"] for each in processes),
        "no_srun",
        "The program, or `torchrun`, runs in the script itself, which means once, on the first node.",
        look="`srun` in front starts it for every task",
    )
    on_each = [sum(each["node"] == node for each in processes) for node in range(nodes)]
    look = "one for each GPU. If a task is a `torchrun`, which starts the processes itself, each node has one task"
    same(on_each, [gpus] * nodes, "The list of how many processes run on each node", look=look)
    threads = ", ".join(sorted({each["threads"] or "no value" for each in processes}))
    look = "`export OMP_NUM_THREADS=…` above `srun`; $SLURM_CPUS_PER_TASK is for a task"
    same(threads, str(cores), "OMP_NUM_THREADS in the processes", look=look)
    wrong_if(
        min(each["cores"] for each in processes) < cores,
        "srun_cores",
        "`srun` does not inherit the number of cores from the #SBATCH lines, so its tasks may get only one core.",
        look="`export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK`, or `srun --cpus-per-task=…`",
    )


def judge_meeting(processes: list[dict], others: list[dict], hosts: list[str]) -> None:
    """others: those of another job"""
    ranks, sizes = [each["rank"] for each in processes], {str(each["size"]) for each in processes}
    torchrun, count = any(each["by"] == "torchrun" for each in processes), len(processes)
    agreed = torchrun and {*ranks} == {None}
    wrong_if(
        sizes != {str(count)} or not (agreed or sorted(map(str, ranks)) == sorted(map(str, range(count)))),
        "ranks",
        f"Each process should have a RANK of its own, from 0 to {count - 1}, and WORLD_SIZE {count}.",
        look="`--nnodes=$SLURM_NNODES` and `--rdzv-backend=c10d`. (For `--node-rank`, single quotes around all of it, "
        "`srun bash -c '…'`: otherwise the script fills in $SLURM_NODEID, as 0.)"
        if torchrun
        else "where $SLURM_PROCID (and $SLURM_NTASKS) is filled in: in double quotes, or in a line before `srun`, by "
        "the script, where it is 0; in single quotes behind `srun`, by each task",
        yours=f"RANK {', '.join(map(str, ranks))}; WORLD_SIZE {', '.join(sorted(sizes))}",
    )
    in_use = len({(each["node"], each["gpu"]) for each in processes if each["gpu"]})
    look = "`LOCAL_RANK=$SLURM_LOCALID`; with `--gpus-per-task=1`, each task sees only its own GPU, as number 0"
    same(in_use, count, "The number of GPUs in use, those that processes see under their LOCAL_RANK,", look=look)
    for key, name in (("host", "MASTER_ADDR"), ("port", "MASTER_PORT")):
        if not torchrun and any(each[key] is None for each in processes):
            raise Incorrect(f"No value of {name} reaches the program.", look=f"`export {name}`, above `srun`")
    several = len(hosts) > 1
    known = (hosts[0],) if several else (hosts[0], "localhost", "127.0.0.1", None)
    wrong_if(
        any(each["host"] not in known for each in processes),
        "meeting_place",
        "The processes don't all meet on the first node: every node has to get the name of that one.",
        look='`scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1`, once, in the script',
        expected=hosts[0],
        yours=", ".join(sorted({str(each["host"]) for each in processes})),
    )
    ports = {str(each["port"]) for each in processes}
    if len(ports) > 1 or not all(port == "None" or (port.isdigit() and 1024 <= int(port) <= 32767) for port in ports):
        look = "`$((20000 + SLURM_JOB_ID % 12000))` is in range for any job; `%j` is for #SBATCH lines alone"
        raise Incorrect("The port is not right.", "one number from 1024 to 32767", ", ".join(sorted(ports)), look)
    wrong_if(
        several and ports & {str(each["port"]) for each in others},
        "same_port",
        'Two jobs on one node get the same port, and the second one ends with "address already in use".',
        look="`$((20000 + SLURM_JOB_ID % 12000))`",
    )


exercise = Exercise(
    title="Write the job script",
    minutes=16,
    difficulty=3,
    points=5,
    seconds=120.0,
    takeaway="One task on each node, `torchrun` as that task, a process for each GPU, a port from the job's number: "
    "four decisions, and the same script runs on one node or on forty.",
    hints=(
        "Take `two_nodes.sh` of the lecture and make an f-string of it; `{{` and `}}` are braces of bash. The task is "
        "`torchrun`: one for each node, with the cores of all its processes. `srun` learns about the cores from "
        "`SRUN_CPUS_PER_TASK`.",
        'The last lines: `head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)`, '
        "`port=$((20000 + SLURM_JOB_ID % 12000))`, then `srun torchrun --nnodes=$SLURM_NNODES "
        "--nproc-per-node={gpus} --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d --rdzv-endpoint=$head:$port {program}`.",
    ),
    judge=judge,
)
