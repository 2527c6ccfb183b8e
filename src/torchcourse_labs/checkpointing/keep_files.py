"""Keep the right files: the newest checkpoints and the best one."""

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, call, observe, same, wrong_if

OTHERS = ["best.pt", "config.json", "step-best.txt"]  # files in the folder that are not the answer's


def draw(rng: Inputs) -> list[tuple]:
    """steps, scores, last, and where `save` fails once: the steps get one digit longer, two scores are the best."""
    cases = []
    for last in (2, 1, 3):
        gap = rng.size(7, 12)
        first = 99 - gap * rng.size(2, 6)
        good, best = 0.5 + rng.size(10, 15) / 100, 0.7 + rng.size(1, 9) / 100
        low = [0.2 + rng.size(1, 20) / 100 for _ in range(6)]
        scores = [good, math.nan, best, *low[:3], best, *low[3:]]
        cases.append(([first + gap * i for i in range(10)], scores, last, rng.size(4, 5)))
    # Two nans, each an object of its own, as in training: Python's tuples take the same object for equal to itself.
    cases.append(([5, 6, 7, 8], [float("nan"), float("nan"), 0.1, 0.0], 1, 3))
    cases.append(([10, 15, 20, 25], [0.0, math.nan, 0.0, 0.0], 1, 2))  # a search that begins at 0 finds no best one
    return cases


def solution(folder: Path, scores: dict[int, float], save: Callable, last: int) -> None:
    steps = sorted(scores)
    save(folder / f"step-{steps[-1]}.pt")
    best = max((step for step in steps if not math.isnan(scores[step])), key=scores.get, default=None)
    for step in steps[:-last]:
        if step != best:
            (folder / f"step-{step}.pt").unlink(missing_ok=True)


def training(answer: Callable, steps: list[int], scores: list[float], last: int, fails_at: int) -> dict[str, list]:
    """A probe: what `save` gets, and what is in the folder before and after it. In one step, a crash has left older
    files, and `save` first fails: error is whether its error came through, and lost the files that were gone then.
    """
    seen: dict[str, list] = {"paths": [], "before": [], "after": [], "error": [], "lost": []}
    with tempfile.TemporaryDirectory(prefix="torchcourse-") as place:
        folder = Path(place)

        def files() -> list[str]:
            return [file.name for file in folder.iterdir()]

        def save(path: Any) -> None:
            seen["paths"].append(str(path).replace(place, "folder"))
            seen["before"].append(files())
            if Path(path).parent == folder:
                Path(path).touch()

        def fail(path: Any) -> None:
            raise OSError(28, "No space left on device")

        for name in OTHERS:
            (folder / name).touch()
        for i in range(len(steps)):
            known = dict(zip(steps[: i + 1], scores, strict=False))
            if i == fails_at:
                for older in steps[:i]:
                    (folder / f"step-{older}.pt").touch()
                before = files()
                try:
                    call(answer, folder, dict(known), fail, last, may_change=True, may_return_none=True)
                except AnswerRaised as raised:
                    seen["error"].append(str(raised))
                seen["lost"] = [name for name in before if name not in files()]
            call(answer, folder, known, save, last, may_change=True, may_return_none=True)
            seen["after"].append(files())
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    for steps, scores, last, fails_at in draw(rng):
        seen = observe(answer, training, steps, scores, last, fails_at)
        right, paths = [f"folder/step-{step}.pt" for step in steps], seen["paths"]
        same(
            paths, right, "The list of paths that `save` gets", look="it is called once in each step, with a full path"
        )
        wrong_if(
            seen["lost"] or any({*then} - {*now} for then, now in zip(seen["after"], seen["before"][1:], strict=False)),
            "deleted_first",
            "You delete before the new checkpoint is there: if saving fails, there are fewer files than before.",
            look="save first, then delete; when `save` raises, nothing is deleted",
        )
        wrong_if(
            not any("No space left" in error for error in seen["error"]),
            "swallowed",
            "When `save` fails, your function returns as if all were well. Let the error through.",
            look="`except`",
        )
        gone = [name for name in OTHERS if any(name not in files for files in seen["after"])]
        wrong_if(gone, "others", f"Other files are deleted, too: {gone}. Only `step-N.pt` is yours to delete.")
        for i, files in zip(range(len(steps)), seen["after"], strict=True):
            judge_files({*files} - {*OTHERS}, dict(zip(steps[: i + 1], scores, strict=False)), last)


def listed(files: set[str]) -> str:
    return ", ".join(sorted(files, key=lambda name: (len(name), name))) or "no files"


def judge_files(files: set[str], scores: dict[int, float], last: int) -> None:
    newest = [*scores][-last:]
    top = max((score for score in scores.values() if not math.isnan(score)), default=None)
    best = [step for step in scores if scores[step] == top] or newest  # the oldest is the first
    right = {f"step-{step}.pt" for step in [*newest, best[0]]}
    extra = [step for step in scores if f"step-{step}.pt" in files - right]
    story = f"With last = {last} and the scores {', '.join(f'{step}: {score:.2f}' for step, score in scores.items())}"
    told = {"expected": listed(right), "yours": listed(files)}
    wrong_if(
        len(extra) == 1 and math.isnan(scores[extra[0]]),
        "nan",
        f"A checkpoint whose score is nan stays, as if it were the best one. {story}:",
        look="`math.isnan(score)`: comparisons with nan are always false, so `max` depends on the order",
        **told,
    )
    wrong_if(
        files == right - {f"step-{best[0]}.pt"} | {f"step-{best[-1]}.pt"} != right,
        "tie",
        f"Of two steps with the same best score, you keep the newer one; the older one stays the best. {story}:",
        look="how the best is found: `>` or `>=`, and in which order",
        **told,
    )
    wrong_if(
        f"step-{best[0]}.pt" not in files and best[0] not in newest,
        "best",
        f"The best checkpoint, of step {best[0]}, is gone. {story}:",
        look="the step with the highest score of all stays, also when it is not among the newest",
        **told,
    )
    if files != right:
        look = "the newest as numbers (as text, step-100 comes before step-90); what a crash has left goes, too"
        raise Incorrect(f"The files that stay are not the right ones. {story}:", **told, look=look)


exercise = Exercise(
    title="Keep the right files",
    minutes=7,
    difficulty=2,
    points=2,
    takeaway="Save first, delete then, and never the best one. In Python nan is neither smaller nor larger than a "
    "number, so `max` may return it. `torchcourse.checkpoint.Keeper` does this.",
    hints=(
        "Three parts: save; find out which steps to keep; delete the files of the other steps, as far as they exist.",
        "The newest: `sorted(scores)[-last:]`. For the best, leave out every nan (`math.isnan`) first. If nothing is "
        "left, there is no best one.",
        "`best = max((s for s in scores if not math.isnan(scores[s])), key=scores.get, default=None)`; "
        "`path.unlink(missing_ok=True)` deletes a file if there is one.",
    ),
    judge=judge,
    lends=solution,
)
