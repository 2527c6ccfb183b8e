"""What the judges of all job scripts say, before they look at what a script does."""

import itertools
from typing import Any

from labcheck.authoring import Incorrect, wrong_if
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
    unread = [f"--{key}={value}" for key, value in options_of(text).items() if "$" in value]
    wrong_if(
        unread,
        "not_expanded",
        f"Slurm reads the #SBATCH lines, not bash, so nothing in them is expanded: {''.join(unread[:1])}",
        look="Python can fill in numbers with `{…}`; for file names, Slurm has `%x` and `%j`",
    )
