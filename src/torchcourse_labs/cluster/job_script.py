"""The script of a training run on several nodes: real bash runs it twice, with a Slurm that only pretends."""

from collections.abc import Sequence
from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, same, wrong_if
from torchcourse_labs.cluster import _pretend_slurm as slurm
from torchcourse_labs.cluster._shared import judge_text

FAILED = 3  # the status of the program in the second job


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
    site = {"hosts": hosts, "nodelist": nodelist}
    jobs = [slurm.run_job(text, job=job, **site), slurm.run_job(text, job=job + 1, status=FAILED, **site)]
    return {"text": text, "jobs": jobs}


def judge(answer: Any, rng: Inputs) -> None:
    for request, nodelist, hosts, job in draw(rng):
        seen = observe(answer, two_jobs, request, nodelist, hosts, job)
        judge_text(seen["text"])
        options = slurm.options_of(seen["text"])
        program, name, nodes, gpus, cores, minutes = request
        judge_request(options, nodes, gpus, cores, minutes)
        first, second = seen["jobs"]
        processes, others = ([p for call in run["calls"] for p in call.get("processes", [])] for run in (first, second))
        if not processes:
            problem = "Your script never starts the program, or ends before the program does."
            raise Incorrect(problem, yours=first["errors"])
        judge_start(processes, slurm.tasks_on_each(options, nodes), program, nodes, gpus)
        judge_meeting(processes, others, hosts, gpus)
        judge_cores(processes, cores)
        judge_end(options, name, first, second)


def judge_request(options: dict[str, str], nodes: int, gpus: int, cores: int, minutes: int) -> None:
    look = "`#SBATCH --nodes=…`, at the start of a line"
    same(slurm.nodes_of(options), nodes, "The number of nodes that the job asks for", look=look)
    look = "`--gpus-per-node` counts those of one node, `--gpus` all"
    same(slurm.gpus_on_each(options, nodes), gpus, "The number of GPUs of each node", look=look)
    look = "`--cpus-per-task`: how many processes are in one task?"
    same(slurm.cores_on_each(options, nodes), gpus * cores, "The number of cores of each node", look=look)
    yours, look = (
        slurm.minutes(options.get("time", "")),
        "one number is minutes, M:SS minutes and seconds, H:MM:SS hours",
    )
    same(yours, minutes, "The time limit in minutes, as Slurm reads it,", dtype=False, look=look)


def judge_start(processes: list[dict], tasks: int, program: str, nodes: int, gpus: int) -> None:
    wrong_if(
        not all(each["in step"] for each in processes),
        "no_srun",
        "The program, or `torchrun`, runs in the script itself, which means once, on the first node.",
        look="`srun` in front starts it for every task",
    )
    wrong_if(
        len(processes) > nodes * gpus and tasks > 1 and any(each["by"] == "torchrun" for each in processes),
        "torchrun_twice",
        f"{len(processes)} processes start; {nodes} nodes with {gpus} GPUs need {nodes * gpus}. You have {tasks} tasks "
        "on each node, and each of them is a `torchrun` that starts processes itself.",
        look="`--ntasks-per-node=1`, or leave `torchrun` out",
    )
    on_each, look = [sum(each["node"] == node for each in processes) for node in range(nodes)], "one for each GPU"
    same(on_each, [gpus] * nodes, "The number of processes on each node", look=look)
    look = "the end of the last line. If a node's name is in there: `head -n 1` takes the first of several lines"
    same(
        ", ".join(sorted({each["program"] for each in processes})), program, "The program with its arguments", look=look
    )


def judge_meeting(processes: list[dict], others: list[dict], hosts: list[str], gpus: int) -> None:
    several, torchrun = len(hosts) > 1, any(each["by"] == "torchrun" for each in processes)
    ports = sorted({str(each["port"]) for each in processes})
    wrong_if(
        several and any(each["alone"] for each in processes),
        "own_world",
        f"Each node starts a world of its own with {gpus} processes, because the `torchrun`s don't know of each other.",
        look="`--nnodes=$SLURM_NNODES`",
    )
    known = (hosts[0],) if several else (hosts[0], "localhost", "127.0.0.1", None)
    wrong_if(
        any(each["host"] not in known for each in processes),
        "meeting_place",
        "The processes don't all meet on the first node: every node has to get the name of that one.",
        look='`scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1`, once, in the script',
        expected=hosts[0],
        yours=", ".join(sorted({str(each["host"]) for each in processes})),
    )
    ranks, sizes = ([each[key] for each in processes] for key in ("rank", "size"))
    each_once = sorted(map(str, ranks)) == sorted(map(str, range(len(processes)))) and {*sizes} == {str(len(processes))}
    wrong_if(
        not each_once and not (torchrun and {*ranks} == {None}),
        "ranks",
        f"Each process should have a RANK of its own, from 0 to {len(processes) - 1}, and WORLD_SIZE {len(processes)}.",
        look="`--rdzv-backend=c10d`: without it, each `torchrun` must be told the number of its node"
        if torchrun
        else "where $SLURM_PROCID, which counts over all nodes, is filled in. In double quotes, and in a line before "
        "`srun`, the shell of the script does that, and there it is always 0; in single quotes behind `srun`, each "
        "task does",
        yours=f"RANK {', '.join(map(str, ranks))}; WORLD_SIZE {', '.join(sorted({str(size) for size in sizes}))}",
    )
    in_use = len({(each["node"], each["gpu"]) for each in processes if each["gpu"]})
    look = "`LOCAL_RANK=$SLURM_LOCALID`; with `--gpus-per-task=1`, each task sees only its own GPU, as number 0"
    same(
        in_use, len(processes), "The number of GPUs in use, those that processes see under their LOCAL_RANK,", look=look
    )
    wrong_if(
        several and {*ports} & {str(each["port"]) for each in others},
        "same_port",
        'Two jobs on one node get the same port, and the second one ends with "address already in use".',
        look="`$((20000 + SLURM_JOB_ID % 12000))`",
    )
    good = all(port == "None" or (port.isdigit() and 1024 <= int(port) <= 32767) for port in ports)
    if not good or len(ports) > 1:
        look = "the remainder `%` keeps it in range for any job: `$((20000 + SLURM_JOB_ID % 12000))`"
        raise Incorrect("The port is not right.", "one number from 1024 to 32767", ", ".join(ports), look)


def judge_cores(processes: list[dict], cores: int) -> None:
    threads = ", ".join(sorted({each["threads"] or "no value" for each in processes}))
    look = "`export OMP_NUM_THREADS=…` above `srun`"
    same(threads, str(cores), "OMP_NUM_THREADS in the processes", look=f"{look}; $SLURM_CPUS_PER_TASK is for a task")
    wrong_if(
        min(each["cores"] for each in processes) < cores,
        "srun_cores",
        "`srun` does not inherit the number of cores from the #SBATCH lines, so its tasks may get only one core.",
        look="`export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK`, or `srun --cpus-per-task=…`",
    )


def judge_end(options: dict[str, str], name: str, first: dict, second: dict) -> None:
    same(first["status"], 0, "The status of the job after the program has succeeded")
    wrong_if(
        second["status"] in (0, None),
        "failure_lost",
        "The program failed, but the job does not report a failure, so a job that depends on it may start.",
        look="what comes after `srun`: a pipe, `&` with `wait`, and later commands have a status of their own; `srun` "
        "as the last line, or `set -e` at the top, keeps that of the program",
    )
    same(options.get("job-name"), name, "The name of the job", look="`--job-name`")
    log = options.get("output", "%x-%j.out")
    if ("%j" not in log and "%A" not in log) or name not in log.replace("%x", name):
        raise Incorrect("The log is not right.", f"{name} and the job's number in its name", log, "`%x`, `%j`")


exercise = Exercise(
    title="Write the job script",
    minutes=16,
    difficulty=3,
    points=5,
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
    judge=judge,
)
