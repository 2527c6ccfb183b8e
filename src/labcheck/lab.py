"""What a lab calls: `check("name", answer)`, `hint("name")`, `progress()`."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from typing import Any

from labcheck import board, exercise, reports
from labcheck.exercise import EXERCISES
from labcheck.judge import evaluate
from labcheck.show import Result, render_progress, show_result
from torchcourse import place

HELP = "Still stuck? Go back to the lectures, or ask the person next to you."  # when the hints are used up

STATES = {  # outcome -> what it means for the student's progress
    "correct": reports.CORRECT,
    "not attempted": reports.NOT_STARTED,
    "not checked": reports.NOT_STARTED,
    "incorrect": reports.TRYING,
    "error": reports.TRYING,
}

_latest: dict[str, Result] = {}  # exercise -> the latest result of this session
_attempts: dict[str, int] = {}
_hints_given: dict[str, int] = {}


def check(name: str, answer: Any) -> None:
    """Judge an answer and show the outcome under the cell: HTML in Jupyter, text elsewhere.

    name: of the exercise
    answer: a function, a class or a value, as the exercise says
    Raises nothing, except AssertionError when nbgrader runs the notebook: there, only "correct" earns the points.
    """
    result = evaluate(name, answer)
    if name in EXERCISES:
        _latest[name] = result
        _attempts[name] = _attempts.get(name, 0) + (not result.outcome.startswith("not "))
    footer = " ".join(filter(None, [result.footer, _what_next(name, result.outcome)]))
    show_result(dataclasses.replace(result, footer=footer))
    if os.environ.get("NBGRADER_EXECUTION"):
        if result.outcome != "correct":
            raise AssertionError(result.text)
    elif name in EXERCISES:
        report = reports.Report(name, STATES[result.outcome], result.misconception)
        reports.keep(report)
        board.send(report)


def _what_next(name: str, outcome: str) -> str:
    """The last line below a verdict: how far along you are, or where to get help."""
    if outcome == "correct":
        lab = exercise.load_chapter(EXERCISES[name].chapter)
        done = sum(each in _latest and _latest[each].correct for each in lab)
        return f"{done} of {len(lab)} exercises correct in this session."
    if outcome not in ("incorrect", "error"):
        return ""
    if _hints_given.get(name, 0) < len(EXERCISES[name].hints):
        return f'Stuck? Run `hint("{name}")` in a new cell.'
    return f"You have seen all hints. {HELP}"


def hint(name: str) -> None:
    """Show a hint; called again, the next one, from the idea to almost the code."""
    found = exercise.find(name)
    if found is None:
        show_result(Result(name, "unknown", f'There is no exercise "{name}".', look=exercise.nearest(name)))
        return
    hints = found.hints
    number = _hints_given.get(name, 0)
    _hints_given[name] = number + 1
    if number < len(hints):
        last = number + 1 == len(hints)
        more = f"That was the last one. {HELP}" if last else f'Run `hint("{name}")` again for the next one.'
        show_result(Result(name, f"hint {number + 1} of {len(hints)}", hints[number], look=None, footer=more))
    else:
        _hints_given[name] = 0
        show_result(Result(name, "hint", f"There are no more hints: the next call starts over. {HELP}"))


def progress(chapter: str | None = None) -> None:
    """Show which exercises of a chapter are done in this session.

    chapter: for example "01_tensors"; None means the chapter of this notebook.
    """
    chapter = chapter or place.chapter
    chosen = (exercise.load_chapter(chapter) if chapter else exercise.load_chapters()).values()
    rows = [
        (e.name, e.title, _latest[e.name].outcome if e.name in _latest else "not attempted", _attempts.get(e.name, 0))
        for e in chosen
    ]
    points = sum(e.points for e in chosen if e.name in _latest and _latest[e.name].outcome == "correct")
    render_progress(rows, points, sum(e.points for e in chosen))


def lend(name: str, yours: Any) -> Any:
    """Your answer if it is correct, and otherwise a working one, so that what comes after it in the lab runs, too."""
    with contextlib.redirect_stdout(io.StringIO()):  # `check` shows what the answer prints
        own = evaluate(name, yours).correct
    print(f"{name}: {'yours' if own else 'borrowed'}")
    return yours if own else EXERCISES[name].lends
