"""Which settings a number of a job array means: the same ones every time, whatever has finished."""

import itertools
import math
from collections.abc import Iterable
from typing import Any

from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, call, near, wrong_if


def draw(rng: Inputs) -> list[tuple[dict, list]]:
    """Lists of values, and the settings that are finished: one near the start, and one with its names reordered."""
    cases = []
    for names, sizes in ((["width", "lr", "seed"], (2, 3, 2)), (["lr", "seed"], (2, 4)), (["seed"], (4,))):
        values = {"lr": [0.1, 0.01, 0.003], "seed": rng.sizes(4, 0, 90), "width": [8 * n for n in rng.sizes(2, 1, 9)]}
        axes = {name: values[name][:size] for name, size in zip(names, sizes, strict=True)}
        first, second = sorted(rng.sizes(2, 0, math.prod(sizes) - 2))
        cases.append((axes, [solution(first, axes, []), dict(reversed(solution(second, axes, []).items()))]))
    return cases


def solution(index: int, axes: dict, finished: list) -> dict | None:
    every = list(itertools.product(*axes.values()))
    settings = dict(zip(axes, every[index], strict=True))
    return None if settings in finished else settings


def runs(answer: Any, numbers: Iterable[int], axes: dict, finished: list) -> list:
    """What each number gives; the name of its error if there is no such run."""

    def run(index: int) -> Any:
        try:
            return call(answer, index, axes, finished, may_return_none=True)
        except AnswerRaised as raised:
            if index < math.prod(map(len, axes.values())) and type(raised.error).__name__ != "IndexError":
                raise
            return type(raised.error).__name__

    return [run(index) for index in numbers]


def judge(answer: Any, rng: Inputs) -> None:
    for axes, finished in draw(rng):
        count = math.prod(map(len, axes.values()))
        numbers, lists = range(count), f"with the lists {axes}"
        every, given = (runs(function, numbers, axes, []) for function in (solution, answer))
        look = "`itertools.product`: each number another combination, the same in every process, the last list fastest"
        compare(given, every, f"{lists}, nothing finished,", look)
        look = "`%`, `min`, a default, or a loop that never checks the end; `raise IndexError`"
        beyond = runs(answer, (count, count + 1), axes, [])
        compare(beyond, ["IndexError"] * 2, f"{lists} ({count} combinations)", look, count)

        given, expected = (runs(function, numbers, axes, finished) for function in (answer, solution))
        wrong_if(
            any(each in every and each != settings for each, settings in zip(given, every, strict=True)),
            "counts_open",
            "A number means another setting, the more are finished. While the array runs, more settings finish, so a "
            "job that starts later gets another one for its number: some run twice, some never.",
            look="choose first, from all settings; if this one is finished, return None, not the next one",
        )
        look = "compare dictionaries with those in `finished`: two are equal in any order of their names"
        compare(given, expected, f"where {finished} are finished,", look)


def compare(given: list, expected: list, where: str, look: str, first: int = 0) -> None:
    for index, (yours, right) in enumerate(zip(given, expected, strict=True), first):
        if not near([yours], [right]):
            raise Incorrect(f"What number {index} gives {where} is not right.", right, yours, look)


exercise = Exercise(
    title="One number, one run",
    minutes=6,
    difficulty=1,
    points=1,
    takeaway="`itertools.product` numbers all combinations, the last list fastest: what a number means changes neither "
    "when runs finish nor when the first list grows, so the same array can be handed in again.",
    hints=(
        "`itertools.product(*axes.values())` goes through all combinations, always in the same order. Make a list of "
        "it and take element `index`; `dict(zip(axes, values))` puts the names back.",
        "At the end: `return None if settings in finished else settings`. Don't remove the finished ones from the "
        "list before you count.",
    ),
    judge=judge,
)
