"""What the judges of all job scripts say, before they look at what a script does."""

import itertools
from typing import Any

from labcheck.authoring import Incorrect, same, wrong_if
from torchcourse_labs.cluster._pretend_slurm import is_script, options_of


def judge_text(text: Any) -> None:
    """text: what an answer returned"""
    if not isinstance(text, str):
        raise Incorrect("Your function should return the text of the script.", "a string", text, "`return`")
    wrong_if(
        not is_script(text),
        "refused",
        "sbatch refuses the script: its first line must be #! and the path of bash, and its lines must end with \\n.",
        look="the very first characters: `#!/bin/bash` right behind the opening quotes",
        yours=repr(text[:40]),
    )
    commands = list(itertools.dropwhile(lambda line: not line.strip() or line.startswith("#"), text.splitlines()))
    late = [line for line in commands if line.startswith("#SBATCH")]
    wrong_if(
        late,
        "late",
        f"Slurm does not see this line, because a command comes before it: {''.join(late[:1])}",
        look="all #SBATCH lines go above the first command",
    )
    blank = next((key for key, value in options_of(text).items() if value[:1] == "="), None)
    if blank:
        raise Incorrect(f"Slurm takes `=` as the value of `--{blank}`: there must be no blanks around it.")
    unread = [f"--{key}={value}" for key, value in options_of(text).items() if "$" in value or "{" in value]
    wrong_if(
        unread,
        "not_expanded",
        f"Slurm reads the #SBATCH lines, not bash, so nothing in them is expanded: {''.join(unread[:1])}",
        look='Python fills in `{…}` if an f is in front of the quotes, `f"""`; for file names, Slurm has `%x` and `%j`',
    )


def judge_program(jobs: list[dict], program: str) -> None:
    """jobs: what `run_job` returned for each. Every job starts this program, once on each node."""
    starts = [[call["words"] for call in job["calls"] if "processes" in call] for job in jobs]
    if not all(starts):
        errors = "\n".join(dict.fromkeys(jobs[0]["errors"].splitlines()))  # each task may say the same
        look = None if "command not found" in errors else "`srun`, and no `&` without a `wait` behind it"
        raise Incorrect("Your script never starts the program, or ends before the program.", yours=errors, look=look)
    look = "no quotes around them. If a node's name is in there: `head -n 1` takes the first of several lines"
    same(starts[0][0], program.split(), "The list of what is started, the program and its arguments,", look=look)
