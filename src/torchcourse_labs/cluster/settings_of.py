"""Which settings a number of a job array means: the same ones every time, whatever has finished."""

import itertools
from typing import Any

from labcheck.authoring import AnswerRaised, Exercise, Inputs, call, same, wrong_if

NO_SUCH_RUN = "an IndexError"


def draw(rng: Inputs) -> list[tuple[dict, list]]:
    """Lists of values, and the settings that are finished: one near the start, and one with its names reordered."""
    cases = []
    for names, sizes in ((["width", "lr", "seed"], (2, 3, 2)), (["lr", "seed"], (2, 4)), (["seed"], (4,))):
        values = {"lr": [0.1, 0.01, 0.003], "seed": rng.sizes(4, 0, 90), "width": [8 * n for n in rng.sizes(2, 1, 9)]}
        axes = {name: values[name][:size] for name, size in zip(names, sizes, strict=True)}
        every = [dict(zip(axes, each, strict=True)) for each in itertools.product(*axes.values())]
        first, second = sorted(rng.sizes(2, 0, len(every) - 2))
        cases.append((axes, [every[first], dict(reversed(every[second].items()))]))
    return cases


def solution(index: int, axes: dict, finished: list) -> dict | None:
    every = list(itertools.product(*axes.values()))
    settings = dict(zip(axes, every[index], strict=True))
    return None if settings in finished else settings


def runs(answer: Any, count: int, axes: dict, finished: list) -> list:
    """What each number up to `count` gives, or that there is no such run."""

    def run(index: int) -> Any:
        try:
            return call(answer, index, axes, finished, may_return_none=True)
        except AnswerRaised as raised:
            if type(raised.error).__name__ != "IndexError":
                raise
            return NO_SUCH_RUN

    return [run(index) for index in range(count)]


def judge(answer: Any, rng: Inputs) -> None:
    for axes, finished in draw(rng):
        every = [solution(index, axes, []) for index in range(len([*itertools.product(*axes.values())]))]
        judge_numbers(answer, axes, every)
        judge_finished(answer, axes, finished, every)


def judge_numbers(answer: Any, axes: dict, every: list[dict]) -> None:
    """Nothing is finished yet."""
    *given, beyond = runs(answer, len(every) + 1, axes, [])
    lost, last = [settings for settings in every if settings not in given], [*axes][-1]
    wrong_if(
        any(not isinstance(each, dict) or {*each} != {*axes} for each in given if each != NO_SUCH_RUN),
        "other_names",
        f"The result should be a dictionary with a value for each of {', '.join(axes)}, even if nothing is finished.",
        look="`dict(zip(axes, values))`: another array has other names",
        yours=given[0],
    )
    wrong_if(
        runs(answer, len(every), axes, []) != given or runs(answer, len(every), axes, []) != given,
        "random",
        "The same number gives different settings in another call. With an array, each job draws for itself, so some "
        "settings come twice and some never.",
        look="`random`: the order must be the same in every process",
    )
    wrong_if(
        given[1:] == every[:-1],
        "from_one",
        "Numbers begin at 0: your number 1 gets the first combination.",
    )
    for index, each in enumerate(given):
        if each != NO_SUCH_RUN and any(each[name] not in values for name, values in axes.items()):
            same(each, every[index], f"Number {index}", look="values come from the lists as they are")
    wrong_if(
        lost,
        "together",
        f"Some settings never come, for example {lost[:1]}: every value should meet every value of the other lists.",
        look="`itertools.product`, which neither `zip` nor one list replaces; the number counts all combinations",
    )
    wrong_if(
        given[1] != given[0] | {last: given[1][last]},
        "first_fastest",
        "The last list should change fastest, and the first one slowest: then old numbers keep their meaning when you "
        "append to the first list.",
        look="the order of the loops, or of `divmod`",
        expected=every[1],
        yours=given[1],
    )
    for index, pair in enumerate(zip(given, every, strict=True)):
        same(*pair, f"Number {index}")
    wrong_if(
        beyond != NO_SUCH_RUN,
        "too_large",
        "A number that is too large should raise IndexError, so that an array that is too long fails and doesn't look "
        "finished.",
        look="`%`, `min`, a default, or a loop that never checks the end",
        yours=beyond,
    )


def judge_finished(answer: Any, axes: dict, finished: list[dict], every: list[dict]) -> None:
    """Two of them are, in an order of names that another run may have written."""
    given = runs(answer, len(every), axes, finished)
    again = [settings for settings in given if settings in finished]
    wrong_if(
        any(each in every and each != settings for each, settings in zip(given, every, strict=True)),
        "counts_open",
        "The number counts only what is not finished. While the array runs, more settings finish, so a job that starts "
        "later gets another setting for its number, and some never run.",
        look="choose first, from all settings; then look whether this one is finished",
    )
    wrong_if(
        again,
        "runs_again",
        f"A setting that is finished runs again: {again[:1]}. Return None for it.",
        look="compare dictionaries with those in `finished`: two are equal in any order of their names",
    )
    expected = [None if settings in finished else settings for settings in every]
    for index, pair in enumerate(zip(given, expected, strict=True)):
        same(*pair, f"Number {index}, where two settings are finished,", look="the return value for a finished setting")


exercise = Exercise(
    title="One number, one run",
    minutes=6,
    difficulty=1,
    points=1,
    takeaway="`itertools.product` numbers all combinations, the last list fastest: what a number means changes neither "
    "when runs finish nor when the first list grows, so the same array can be handed in again.",
    hints=(
        "`itertools.product(*axes.values())` goes through all combinations, always in the same order.",
        "Make a list of it and take element `index`; `dict(zip(axes, values))` puts the names back. A list raises "
        "IndexError by itself.",
        "At the end: `return None if settings in finished else settings`. Don't remove the finished ones from the "
        "list before you count.",
    ),
    judge=judge,
)
