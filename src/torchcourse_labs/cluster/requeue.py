"""The script around a program that stops before the time limit and goes on in the next start of the same job."""

import itertools
import re
from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, same, wrong_if
from torchcourse_labs.cluster import _pretend_slurm as slurm
from torchcourse_labs.cluster._shared import judge_program, judge_text

AGAIN = 75  # the status of a program that has saved and wants to be started again (chapter 09)


def solution(program: str, seconds: int, most: int) -> str:
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


def nights(answer: Any, program: str, seconds: int, most: int, job: int) -> dict:
    """A probe: the scripts for `most` restarts and for one, and what they do in nights that end in different ways."""
    texts = [call(answer, program, seconds, restarts, may_return_none=True) for restarts in (most, 1)]
    if not all(map(slurm.is_script, texts)):
        return {"texts": texts}
    site = {"hosts": ["n1"], "nodelist": "n1", "job": job}
    return {
        "texts": texts,
        "finished": slurm.run_job(texts[0], status=0, **site),
        "crashed": slurm.run_job(texts[0], status=1, **site),
        "was killed": slurm.run_job(texts[0], status=137, **site),
        "stopped": slurm.run_job(texts[0], signaled=True, **site),
        "last": slurm.run_job(texts[0], status=AGAIN, restarts=most - 1, **site),
        "too often": slurm.run_job(texts[0], status=AGAIN, restarts=most, **site),
        "first of one": slurm.run_job(texts[1], status=AGAIN, **site),
    }


def requeues(night: dict) -> list[dict]:
    return [each for each in night["calls"] if each["command"] == "scontrol" and "requeue" in each["words"]]


def after_requeue(ran: list[str]) -> str:
    """The first command after `scontrol requeue` that does something. ran: the commands, as `bash -x` shows them."""
    commands = [line.lstrip("+").strip() for line in ran if line.startswith("+")]
    later = list(itertools.dropwhile(lambda line: not line.startswith("scontrol requeue"), commands))[1:]
    idle = "exit", "echo", "printf", "return", "true", ":", "[", "[[", "test", "((", "break", "set", "sleep", "wait"
    words = [line.split()[0].strip("'") for line in later]
    return next((line for line, word in zip(later, words, strict=True) if "=" not in word and word not in idle), "")


def judge(answer: Any, rng: Inputs) -> None:
    program, seconds, most = f"train.py run{rng.size(2, 99)}", rng.size(65, 290), rng.pick([10, 100])
    job = rng.size(1000, 9000)
    seen = observe(answer, nights, program, seconds, most, job)
    texts = seen.pop("texts")
    for text in texts:
        judge_text(text)
    options = slurm.options_of(texts[0])
    form = re.fullmatch(r"(?:[BR]+:)?(?:SIG)?(\w+)(?:@(\d+))?", options.get("signal", ""))
    yours = f"{form[1].replace('10', 'USR1')}, {form[2] or 60} seconds before the limit" if form else "none"
    look = "`#SBATCH --signal=USR1@…`; without a signal, Slurm ends the program at its limit without a warning"
    same(yours, f"USR1, {seconds} seconds before the limit", "The signal that the script asks for", look=look)
    judge_program([*seen.values()], program)
    starts = max(sum("processes" in call for call in night["calls"]) for night in seen.values())
    look = "one task, and one start: the time of this job is up, so what helps is the queue"
    same(starts, 1, "The number of times that your script starts the program", look=look)
    judge_stop(seen["stopped"])
    judge_requeues(seen, most, job)
    ends = [night["status"] for name, night in seen.items() if name in ("finished", "crashed", "too often")]
    wrong_if(
        ends[1:] != [1, AGAIN],
        "status_lost",
        f"After a crash the job ends with status {ends[1]}, and after the last restart with {ends[2]}; both should be "
        "the program's.",
        look="`status=$?` in the line after `srun` (every command, `if` and `[` too, sets `$?` anew), and `exit "
        "$status` as the last line",
    )
    same(ends[0], 0, "The status of the job after a success")
    if "requeue" not in options:
        raise Incorrect("Some sites requeue no job that doesn't allow it itself.", look="`#SBATCH --requeue`")
    if options.get("open-mode", "")[:1] != "a":
        raise Incorrect("At a restart, Slurm may empty the log of your job.", look="`#SBATCH --open-mode=append`")


def judge_stop(stopped: dict) -> None:
    """The night in which the signal comes."""
    wrong_if(
        not all(each["saved"] for each in requeues(stopped)) or (stopped["saving"] and not stopped["saved"]),
        "not_saved",
        "Your script ends, or requeues the job, before the program has saved: the job ends then, and the work is lost.",
        look="the program has to get the signal, save, and end; then look at its status. A signal ends `wait` at once, "
        "with status 138, even if the program goes on: wait once more",
    )
    wrong_if(
        not stopped["saved"],
        "signal_lost",
        "The signal does not reach the program. Slurm sends it to what `srun` started, or with `B:` to the shell "
        "alone, which waits for its command before it does anything.",
        look="`--signal=USR1@…` without `B:`, and `srun` in front of the program. With `B:`, it runs in the background "
        "(`srun … &`), a `trap '…'` in single quotes passes the signal on, and `wait` waits for the program, twice",
    )
    wrong_if(
        not requeues(stopped),
        "not_requeued",
        "The program stopped and saved, but this job was not put back into the queue with `scontrol requeue`.",
        look="an `exit` before it. The status after `srun`: `set -e` ends the script there, `exec` never comes back, "
        "another command replaces `$?`, a pipe has that of its last command, a `wait` that a signal ends has 138. Then "
        "`-eq 75`, `-lt` (in `[ ]`, `<` reads a file); in the first start SLURM_RESTART_COUNT does not exist",
        yours=stopped["errors"],
    )


def judge_requeues(seen: dict[str, dict], most: int, job: int) -> None:
    again = [name for name in ("finished", "crashed", "was killed") if requeues(seen[name])]
    wrong_if(
        again,
        "after_other_ends",
        f"A program that {' or '.join(again)} goes back into the queue: it starts needlessly, or crashes all night.",
        look="only the status 75 says that it has saved",
    )
    words = [each["words"][1:] for each in requeues(seen["stopped"])]
    same(words, [[str(job)]], "What `scontrol requeue` gets, the number of this job, once,", look="$SLURM_JOB_ID")
    look = "`-lt`: between `[` and `]`, `<` and `>` read and write a file, and in `[[ ]]` they compare texts. "
    look += "In the first start, SLURM_RESTART_COUNT does not exist"
    restarts = ("too often", 0, most, most), ("last", 1, most - 1, most), ("first of one", 1, 0, 1)
    for night, right, count, allowed in restarts:
        what = f"The number of requeues after {count} restarts, where {allowed} are allowed,"
        same(len(requeues(seen[night])), right, what, look=look)
    late = after_requeue(seen["stopped"]["ran"])
    wrong_if(
        late,
        "after_requeue",
        f"After `scontrol requeue` comes `{late}`, and Slurm may end the script before that.",
        look="`scontrol requeue` comes last, with nothing but `exit` behind it",
    )


exercise = Exercise(
    title="Come back after the limit",
    minutes=15,
    difficulty=3,
    points=5,
    seconds=180.0,
    takeaway="Slurm sends the signal, your program saves and says so with its exit status, and only then the script "
    "requeues: one status leads back into the queue, every other one ends the job.",
    hints=(
        "Start, keep the status, look at it, end with it: `status=0`, then `srun python … || status=$?`. In the first "
        "start, SLURM_RESTART_COUNT does not exist: `${SLURM_RESTART_COUNT:-0}`. In an f-string, double the braces.",
        "`if [ $status -eq 75 ] && [ ${{SLURM_RESTART_COUNT:-0}} -lt {most} ]; then scontrol requeue $SLURM_JOB_ID; "
        "fi`, and at the very end `exit $status`.",
    ),
    judge=judge,
)
