"""A first job script with five mistakes, to be repaired: the check names one at a time and counts the others."""

from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, attempted, observe, same, wrong_if
from torchcourse_labs.cluster import _pretend_slurm as slurm
from torchcourse_labs.cluster._shared import judge_program, judge_text
from torchcourse_labs.cluster.job_script import judge_meeting

GPUS, CORES = 2, 4  # one process for each GPU, with so many cores

solution = """#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --time=0:30:00
#SBATCH --output=%x-%j.out
set -e
export OMP_NUM_THREADS=4
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun torchrun --nproc-per-node=2 --standalone train.py
echo "finished: $(date)"
"""


def two_jobs(answer: Any, job: int) -> dict:
    """A probe: the script, and what it does as two jobs. The program of the second one fails."""
    text = attempted(answer)
    if not slurm.is_script(text):
        return {"text": text}
    jobs = [slurm.run_job(text, job=job + i, status=i, hosts=["n1"], nodelist="n1") for i in (0, 1)]
    return {"text": text, "jobs": jobs}


def judge(answer: Any, rng: Inputs) -> None:
    seen = observe(answer, two_jobs, 10**5 * rng.size(10, 90) + rng.size(35_000, 39_990))
    if not isinstance(seen["text"], str):
        raise Incorrect("Your answer is not the text of a script.", "a string", seen["text"], "the quotes around it")
    judge_text(seen["text"])
    options, jobs = slurm.options_of(seen["text"]), seen["jobs"]
    same(slurm.nodes_of(options), 1, "The number of nodes that the job asks for")
    judge_program(jobs, "train.py")
    first, second = ([each for call in job["calls"] for each in call.get("processes", [])] for job in jobs)
    started = [len(call["processes"]) for call in jobs[0]["calls"] if call["command"] == "torchrun"]
    what = "The list of how many processes each `torchrun` starts, or all tasks without it,"
    same(started or [len(first)], [GPUS], what, look="the number of tasks, and `--nproc-per-node`")
    asked, log = slurm.cores_on_each(options, 1), options.get("output", "")
    in_use = len({each["gpu"] for each in first if each["gpu"]})
    faults = {
        "folder": "/" in log.removeprefix("./"),
        "gpus": in_use < GPUS,
        "cores": min(each["cores"] for each in first) < CORES,
        "port": {each["port"] for each in first if (each["port"] or "").isdigit()} & {each["port"] for each in second},
        "failure": jobs[1]["status"] in (0, None),
    }
    left = sum(map(bool, faults.values())) - 1
    rest = f"Mistakes that remain after this one: {left}." if left else "No mistake remains after this one."
    wrong_if(
        faults["folder"],
        "folder",
        f"There is no folder for the log `{log}`. Slurm opens the log before your script starts, so a `mkdir` in the "
        f"script comes too late: the job fails at once, without a word. {rest}",
        look="`--output`: a name without a folder. (A folder would have to be there before you submit.)",
    )
    wrong_if(
        faults["gpus"],
        "gpus",
        f"GPUs in use: {in_use} of {GPUS}. A process takes the GPU with the number of its LOCAL_RANK, 0 or 1, among "
        f"those that its task sees; if there is none, it ends with `invalid device ordinal`. {rest}",
        look="a task is what `srun` starts once, here a `torchrun` with two processes: `--gpus-per-task` counts the "
        "GPUs of a task, `--gpus-per-node` those of a node",
    )
    wrong_if(
        faults["cores"],
        "cores",
        f"Two processes with {CORES} cores each need {GPUS * CORES} cores, but "
        f"{f'the job asks for {asked}' if asked < GPUS * CORES else '`srun` may hand on fewer'}. {rest}",
        look="`#SBATCH --cpus-per-task` counts those of the whole `torchrun`; SLURM_CPUS_PER_TASK exists only if you "
        "asked for them, and SRUN_CPUS_PER_TASK hands them on",
    )
    wrong_if(
        faults["port"],
        "port",
        "Two such jobs on one node take the same port, and the second one fails, often with `address already in use`. "
        f"{rest}",
        look="`torchrun --standalone` finds a free port; `$((20000 + SLURM_JOB_ID % 12000))` computes one",
    )
    wrong_if(
        faults["failure"],
        "failure",
        f"The training failed, but the job counts as COMPLETED: what comes after it succeeded. {rest}",
        look="`set -e` below the #SBATCH lines ends a script at the first command that fails (not in front of `||`), "
        "`set -eo pipefail` also if its output goes through a pipe",
    )
    judge_meeting(first, second, ["n1"])
    if log and "%j" not in log and "%A" not in log:
        raise Incorrect("Two such jobs write one log.", "the job's number in its name", log, "`%x-%j.out`, as before")
    threads = next((each["threads"] for each in first if (each["threads"] or "1") not in {*"1234"}), None)
    if threads:
        look = "OMP_NUM_THREADS: threads of a process; SLURM_CPUS_PER_TASK: cores of a task, here for two processes"
        raise Incorrect("A process has more threads than cores.", CORES, threads, look)
    same(jobs[0]["status"], 0, "The status of the job after the training has succeeded")
    same(slurm.gpus_on_each(options, 1), GPUS, "The number of GPUs that the job asks for")
    same(asked, GPUS * CORES, "The number of cores that the job asks for")


exercise = Exercise(
    title="Five mistakes in a job script",
    minutes=12,
    difficulty=3,
    points=4,
    seconds=120.0,
    takeaway="Most first jobs fail for a reason that no line of Python shows: read the script as Slurm does, line by "
    "line, and ask who gets what.",
    hints=(
        "Five questions: when does Slurm open the log? how many GPUs does the one task see, and how many cores has it? "
        "what if two such jobs share a node? what is the status of the last command?",
        "`--output=%x-%j.out`; `--gpus-per-node=2`; `--cpus-per-task=8`; `--standalone` in place of the port; `set -e` "
        "below the #SBATCH lines.",
    ),
    judge=judge,
)
