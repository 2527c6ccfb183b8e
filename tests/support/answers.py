"""The rows of tests/answers, and how to make wrong answers from a right one: places of its source replaced."""

import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from labcheck import exercise
from labcheck.spec import Spec, looks_like

EXERCISES = exercise.load_chapters()


@cache  # for a class, Python parses the whole file again each time
def source(solution: Callable) -> str:
    return textwrap.dedent(inspect.getsource(solution))


def mutant(solution: Any, *places: tuple[str, str]) -> Any:
    """The solution, a function or a class, with some places of its source replaced: pairs (old, new).

    Each old text must occur exactly once, so that a row cannot silently change nothing.
    """
    text = source(solution)
    for old, new in places:
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {solution.__name__}"
        text = text.replace(old, new)
    names: dict[str, Any] = {}
    # As if it were in a file of its own: what follows the lines of a student's code follows these, too.
    code = compile(text, f"<mutant of {solution.__name__}>", "exec", dont_inherit=True)
    exec(code, vars(sys.modules[solution.__module__]), names)
    return names[solution.__name__]


def mutants(solution: Any, old: str, *new: str) -> list:
    """A wrong answer for each new text in place of an old one."""
    return [mutant(solution, (old, each)) for each in new]


def module(name: str) -> ModuleType:
    """The module of an exercise."""
    return importlib.import_module(f"torchcourse_labs.{EXERCISES[name].chapter[3:]}.{name}")


def answers(name: str) -> ModuleType:
    """The module with the rows of an exercise."""
    return importlib.import_module(f"answers.{EXERCISES[name].chapter[3:]}.{name}")


def right(name: str) -> list:
    """The right answers of an exercise: its own solution, if it has one, and the others."""
    return [*filter(None, [getattr(module(name), "solution", None)]), *answers(name).RIGHT]


def wrong(name: str) -> dict[str | None, list]:
    """The wrong answers of an exercise by the key of their sentence, those of its own included."""
    judge = EXERCISES[name].judge
    own = (
        {each.key: [*each.wrong] for each in judge.says if isinstance(each, looks_like)}
        if isinstance(judge, Spec)
        else {}
    )
    return {key: own.get(key, []) + answers(name).WRONG.get(key, []) for key in {**own, **answers(name).WRONG}}


def rows() -> tuple[list, list]:
    """Parameters for tests: (name, right answer) and (name, key, wrong answer); all but the first of a key weekly."""
    rights, wrongs = [], []
    for name in EXERCISES:
        rights += [pytest.param(name, answer, id=f"{name}-{i}") for i, answer in enumerate(right(name))]
        for key, group in wrong(name).items():
            for i, answer in enumerate(group):
                marks = pytest.mark.weekly if i else ()
                wrongs.append(pytest.param(name, key, answer, id=f"{name}-{key}-{i}", marks=marks))
    return rights, wrongs
