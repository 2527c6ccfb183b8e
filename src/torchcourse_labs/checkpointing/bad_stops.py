"""A resume test: after which steps can a training run not be stopped and resumed without a trace?"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, call, observe, same, wrong_if
from labcheck.probes import SLOW_START
from torchcourse.lab.interrupted import trainer

FORGOTTEN = ("nothing", "its learning rate", "its place in the epoch", "its random state", "its last bits", "a layer")


def solution(train: Callable[[Path, int], dict[str, Tensor]], folder: Path, last: int) -> list[int]:
    straight, bad = train(folder / "straight.pt", last), []
    for stop in range(1, last):
        path = folder / f"stopped-{stop}.pt"
        train(path, stop)
        torch.manual_seed(stop)
        resumed = train(path, last)
        if not all(torch.equal(resumed[name], straight[name]) for name in straight):
            bad.append(stop)
    return bad


def found(answer: Any, last: int) -> dict[str, Any]:
    """A probe: the answer's list for each training function, and its calls of it: (steps in the file, steps to do)."""
    lists, calls = {}, []

    def watched(path: Path, steps: int) -> dict[str, Tensor]:
        calls.append(((there := torch.load(path)["steps"] if Path(path).exists() else 0), steps))
        return train(path, steps) | ({"last": torch.tensor([there, -there])} if forgets == "a layer" else {})

    for forgets in FORGOTTEN:
        train = trainer(forgets)
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
            lists[forgets] = call(answer, watched, Path(folder), last, may_change=True)
    return {"lists": lists, "calls": calls}


def judge(answer: Any, rng: Inputs) -> None:
    last = rng.size(9, 11)
    seen, right = observe(answer, found, last), found(solution, last)["lists"]
    there, steps = next(((there, steps) for there, steps in seen["calls"] if there >= steps > 0), (0, 0))
    look, late = "`range(1, last)`", there == steps == last
    wrong_if(late, "late", "After step `last`, nothing is left to train: the last stop is last - 1.", look=look)
    wrong_if(
        steps,
        "old_file",
        f"You call `train` with steps = {steps} and the path of a checkpoint of {there} steps, so it trains nothing.",
        look="a path of its own for each stop, and one for the uninterrupted run; steps count from the beginning",
    )
    resumed = any(there for there, _ in seen["calls"])
    look = "`train` twice with the same path: until the stop, then until the end"
    wrong_if(not resumed, "no_resume", "Your test never resumes: each call of `train` begins at step 0.", look=look)
    for forgets in FORGOTTEN:
        yours = seen["lists"][forgets]
        overlooked = forgets if yours == [] != right[forgets] else ""
        look = "PyTorch's random state goes on in one process: set a seed that the run doesn't use before you resume"
        random = overlooked == "its random state"
        wrong_if(random, "random_state", "Your test overlooks a run that forgets its random state.", look=look)
        look, bits = "`torch.equal`, not `torch.allclose`", overlooked == "its last bits"
        wrong_if(bits, "last_bits", "Your test overlooks differences in the last bits of the weights.", look=look)
        look = f"each stop from 1 to {last - 1} anew, `return` after the loop; all weights, compared at the end"
        same(yours, right[forgets], f"Your list for a run that forgets {forgets}, {last} steps long,", look=look)


exercise = Exercise(
    title="A resume test",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="Stop at every step: which stops are bad tells what is missing. Keep such a test beside your script.",
    hints=(
        'The uninterrupted run is `straight = train(folder / "straight.pt", last)`. For each stop, there are two calls '
        "with a path of its own, and between them something that a new process would not know either.",
        "`train(path, stop)`, `torch.manual_seed(stop)`, `resumed = train(path, last)`; the stop is bad unless "
        "`torch.equal(resumed[name], straight[name])` for every name.",
    ),
    judge=judge,
    lends=solution,
    seconds=SLOW_START,
)
