"""Exercises: what the lab says about each, and where they are found.

They are in a package of their own, `torchcourse.place.LABS`. There, each chapter is a folder, and each exercise a file
in it that defines `exercise = Exercise(…)`. The folder's `__init__.py` says which chapter this is, and in which order
the lab has the exercises:

    CHAPTER = "01_tensors"
    EXERCISES = ("scale_pixels", "normalize")
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from labcheck.inputs import Inputs
from torchcourse import place

TIME_LIMIT = 10.0  # seconds for one answer


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise: what the lab says about it, and the function that judges an answer.

    hints: from the idea to almost the code
    judge: `judge(answer, rng)` raises what there is to say about an answer, and returns if it is correct
    lends: a working answer, for students who go on without one of their own (see `lend`)
    name, chapter: from the file and its folder
    """

    title: str
    minutes: int
    difficulty: int  # 1 (a line) to 5 (takes thinking)
    points: int
    takeaway: str
    hints: tuple[str, ...]
    judge: Callable[[Any, Inputs], None]  # meets the answer through `call` and `observe` alone: see `RemoteAnswer`
    seconds: float = TIME_LIMIT
    lends: Any = None
    name: str = ""
    chapter: str = ""

    @property
    def sentences(self) -> dict[str, str]:
        """The sentences about misconceptions by their keys, with "…" where values would be."""
        return sentences(self.chapter, self.name)


EXERCISES: dict[str, Exercise] = {}


def load_chapter(name: str) -> dict[str, Exercise]:
    """The exercises of one chapter, for example "01_tensors", by name; none if there is no such chapter."""
    _load(name.partition("_")[2])
    return {each.name: each for each in EXERCISES.values() if each.chapter == name}


def load_chapters() -> dict[str, Exercise]:
    """All exercises by name. Their files are imported at the first call, which takes seconds."""
    for folder in chapters():
        _load(folder)
    return EXERCISES


def chapters() -> list[str]:
    """The folders with exercises. In the sandbox of `make grade` there is none."""
    package = labs()
    names = [folder.name for folder in pkgutil.iter_modules(package.__path__)] if package else []
    return [name for name in names if not name.startswith("_")]


def labs() -> ModuleType | None:
    """The package with the exercises; None where it is hidden."""
    with contextlib.suppress(ModuleNotFoundError):
        return importlib.import_module(place.LABS)


@functools.cache
def _load(slug: str) -> None:
    """Import the exercises of a chapter, if it has any."""
    if slug not in chapters():
        return
    folder = importlib.import_module(f"{place.LABS}.{slug}")
    for name in folder.EXERCISES:
        other = EXERCISES.get(name)
        if other and other.chapter != folder.CHAPTER:
            raise ValueError(f'Two exercises are called "{name}": in {other.chapter} and in {folder.CHAPTER}.')
        module = importlib.import_module(f"{folder.__name__}.{name}")
        EXERCISES[name] = dataclasses.replace(module.exercise, name=name, chapter=folder.CHAPTER)


def find(name: str) -> Exercise | None:
    """The exercise of this name, if there is one. Looks in this notebook's chapter first: that imports one folder."""
    if name not in EXERCISES and place.chapter:
        load_chapter(place.chapter)
    return EXERCISES.get(name) or load_chapters().get(name)


def nearest(name: str) -> str:
    """For a name that no exercise has: the one that was meant, or all that there are here."""
    here = [each.name for each in EXERCISES.values() if place.chapter in (None, each.chapter)]
    near = difflib.get_close_matches(str(name), list(EXERCISES), n=1, cutoff=0.5)
    return f'did you mean "{near[0]}"?' if near else "the exercises here are " + ", ".join(here)


@functools.cache
def sentences(chapter: str, name: str) -> dict[str, str]:
    """The sentences about misconceptions that a judge can say, by key: its own, and those of what it shares."""
    folder = f"{place.LABS}.{chapter.partition('_')[2]}"
    shared = [module for module in sys.modules if module.startswith(f"{folder}._") or module == "labcheck.ranks"]
    return functools.reduce(lambda found, module: found | sentences_of(module), [*shared, f"{folder}.{name}"], {})


def sentences_of(module: str) -> dict[str, str]:
    """The sentences in the source of a module: a judge says each where it is true, and nowhere has a list of them."""
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        called = getattr(node.func, "id", None) if isinstance(node, ast.Call) else None
        if called in ("wrong_if", "looks_like", "raises_like"):
            key, sentence = map(_text, node.args[called == "wrong_if" :][:2])  # behind the condition
            found[key] = sentence
    return found


def _text(node: ast.expr) -> str | None:
    """The text of a string in the source, "…" where it shows values; None for anything else."""
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        return "".join(parts).replace("….", "…")
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
