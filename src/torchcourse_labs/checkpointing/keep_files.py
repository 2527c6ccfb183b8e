"""Keep the right files: the newest checkpoints and the best one."""

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, call, observe, same, wrong_if

OTHERS = ["best.pt", "config.json", "step-best.txt", "step-best.pt"]  # files in the folder that are not the answer's


def draw(rng: Inputs) -> list[tuple]:
    """scores, last: the steps get one digit longer, two scores are the best, and a nan comes before them."""
    gap, best, low = rng.size(7, 12), rng.size(71, 79) / 100, [rng.size(21, 40) / 100 for _ in range(6)]
    steps = [99 + gap * i for i in range(-4, 6)]
    scores = dict(zip(steps, [0.6, math.nan, best, *low[:3], best, *low[3:]], strict=True))
    cases = [
        (scores, rng.size(2, 3)),
        (scores, 1),
        # Two nans, each an object of its own, as in training: Python's tuples take the same object for equal to itself.
        ({5: float("nan"), 6: float("nan"), 7: 0.1, 8: 0.0}, 1),
        ({10: 0.0, 15: math.nan, 20: 0.0, 25: 0.0}, 1),  # a search that begins at 0 finds no best one
    ]
    return [(dict([*scores.items()][:count]), last) for scores, last in cases for count in range(1, len(scores) + 1)]


def solution(folder: Path, scores: dict[int, float], save: Callable, last: int) -> None:
    steps = sorted(scores)
    save(folder / f"step-{steps[-1]}.pt")
    best = max((step for step in steps if not math.isnan(scores[step])), key=scores.get, default=None)
    for step in steps[:-last]:
        if step != best:
            (folder / f"step-{step}.pt").unlink(missing_ok=True)


def saving(answer: Callable, scores: dict[int, float], last: int, full: bool) -> dict[str, Any]:
    """A probe: what one call does in a folder with files of older steps, one of many is missing. full: `save` fails"""
    with tempfile.TemporaryDirectory(prefix="torchcourse-") as place:
        folder, paths, error = Path(place), [], ""
        older = [f"step-{step}.pt" for step in [*scores][len(scores) > 4 : -1]]

        def save(path: Any) -> None:
            if full:
                raise OSError(28, "No space left on device")
            paths.append(str(path).replace(place, "folder"))
            if Path(path).parent == folder:
                Path(path).touch()

        for name in (*OTHERS, *older):
            (folder / name).touch()
        try:
            call(answer, folder, dict(scores), save, last, may_return_none=True)
        except AnswerRaised as raised:
            error = str(raised)
            if not full:
                raise
        files = [file.name for file in folder.iterdir()]
        return {"paths": paths, "error": error, "files": files, "lost": sorted({*OTHERS, *older} - {*files})}


def judge(answer: Any, rng: Inputs) -> None:
    for scores, last in draw(rng):
        seen, failed = (observe(answer, saving, scores, last, full) for full in (False, True))
        look = "it is called once, with a full path"
        same(seen["paths"], [f"folder/step-{max(scores)}.pt"], "The list of paths that `save` gets", look=look)
        wrong_if(
            failed["lost"],
            "deleted_first",
            f"When `save` fails, {failed['lost']} are gone: you delete before the new checkpoint is there.",
            look="save first, then delete; when `save` raises, nothing is deleted",
        )
        through = "No space left" in failed["error"]
        same(through, True, "Whether the error comes through when `save` fails", look="`except`, without `raise`")
        known = [step for step in scores if not math.isnan(scores[step])]
        best = max(known, key=scores.get, default=max(scores))  # the oldest of equal ones is the first
        newest, best = {f"step-{step}.pt" for step in [*scores][-last:]}, f"step-{best}.pt"
        right, yours = {*OTHERS, *newest, best}, {*seen["files"]}
        story = f"With last = {last} and the scores {scores}"
        shown = (sorted(each, key=lambda name: (name in OTHERS, len(name), name)) for each in (right, yours))
        told = dict(zip(("expected", "yours"), map(", ".join, shown), strict=True))
        unknown = [{f"step-{step}.pt"} for step in scores if step not in known]
        wrong_if(
            yours - right in unknown and (best in newest or best not in yours),
            "nan",
            f"A checkpoint whose score is nan stays, as if it were the best one. {story}:",
            look="`math.isnan(score)`: `<` and `>` with nan are false, `!=` is true, so `max` depends on the order",
            **told,
        )
        if yours != right:
            name = min(right ^ yours)
            why = "not yours" if name in OTHERS else "one of the newest" if name in newest else "the best one"
            what = f"`{name}` is gone, but it is {why}" if name in right else f"`{name}` should be gone"
            look = "other `step-N.pt` go, also one left by a crash; newest by number; best never nan, older of equals"
            raise Incorrect(f"{what}. {story}:", **told, look=look)


exercise = Exercise(
    title="Keep the right files",
    minutes=7,
    difficulty=2,
    points=2,
    takeaway="Save first, delete then, and never the best one. In Python nan is neither smaller nor larger than a "
    "number, so `max` may return it. `torchcourse.checkpoint.Keeper` does this.",
    hints=(
        "Save; find the steps to keep; delete the files of the others, as far as they exist. For the best, leave out "
        "every nan (`math.isnan`) first.",
        "`best = max((s for s in scores if not math.isnan(scores[s])), key=scores.get, default=None)`; "
        "`path.unlink(missing_ok=True)` deletes a file if there is one.",
    ),
    judge=judge,
    lends=solution,
)
