"""Runs of the course's recipes: seconds of training and test accuracy for each seed."""

import statistics
from collections.abc import Callable
from typing import Any

from torch import nn

from tools.bench.quiet import LIMIT, Turns, foreign, median_range, read, short
from tools.bench.rates import clock
from torchcourse import data, training
from torchcourse.errors import CourseError

ATTEMPTS = 3  # at a run that others disturb


def images(name: str, split: str, quick: bool) -> data.ImageSet:
    """A data set, which has to be the real one unless the run is a quick one."""
    found = data.load(name, split)
    if found.origin != "real" and not quick:
        raise CourseError(f"Measured is on real data, and {name} is not here. Get it: torchcourse data fetch {name}")
    return found


def one(train: Callable[[], nn.Module], test: data.ImageSet, attempts: int = ATTEMPTS) -> dict[str, Any]:
    """Train, again while others disturb it (a seed gives the same network each time), and test the network.

    train: returns a network that takes uint8 images; the seconds that count are those of this call.
    """
    turns = Turns()
    for _ in range(attempts):
        before = read()
        seconds, model = clock(train)
        share = foreign(before, read())
        (turns.kept if share <= LIMIT else turns.rejected).append((share, (seconds, model)))
        if turns.kept:
            break
    share, (seconds, model) = turns.best(1)[0]
    accuracy = training.evaluate(model, data.loader(test, 500)).accuracy
    rejected = len(turns.kept) + len(turns.rejected) - 1
    return {"seconds": seconds, "accuracy": accuracy, "foreign": share, "rejected": rejected}


def told(run: dict[str, Any]) -> str:
    """A run in a line of progress."""
    note = f", disturbed: others used {run['foreign']:.0%} of the processor" if run["foreign"] > LIMIT else ""
    return f"{run['seconds']:.2f} s, test accuracy {run['accuracy']:.2%}{note}"


def summary(runs: list[dict[str, Any]], goal: float | None = None) -> dict[str, Any]:
    """What is recorded of some runs, one for each seed from 0 up.

    goal: an accuracy; the result tells how many seeds reach it.
    """
    scores = [run["accuracy"] for run in runs]
    return {
        "seconds": median_range([run["seconds"] for run in runs]),
        "accuracy": {"mean": round(statistics.mean(scores), 5), "low": min(scores), "high": max(scores)},
        "reached": None if goal is None else sum(score >= goal for score in scores),
        "runs": [[short(run["seconds"]), run["accuracy"]] for run in runs],
        "repeats": len(runs),
        "rejected": sum(run["rejected"] for run in runs),
        "foreign": short(max(run["foreign"] for run in runs)),
        "disturbed": any(run["foreign"] > LIMIT for run in runs),
    }
