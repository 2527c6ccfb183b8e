"""From what came out of a sandbox to results: a verdict on each answer, and the tables of a class.

What a sandbox says comes from processes that ran a student's code: the judge has cut every text to a length, and here
it is taken as text. Each file appears whole or not at all, so that no end of this program leaves a half one.
"""

import contextlib
import csv
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from labcheck.exercise import load_chapter
from labcheck.show import Result
from tools.grade.collect import Submission
from tools.grade.sandbox import LATE, Report

if TYPE_CHECKING:
    from tools.grade.gradebook import Book

LONGEST = 2000  # characters of a text
NO_LAB = "unknown"  # the result of a student whose files do not say which lab they are
ALL = "*"  # in place of an exercise's name: nothing is known about any of them
FORMULA = re.compile(r"(^|[;|\t\r\n])(\s*[=+\-@⁺⁼₊₌⩵⩶﬩﹢﹣﹦﹫＋－＝＠])")


def verdict(name: str, report: Report) -> tuple[Result, list[str]]:
    """The verdict on one answer, in the form in which a check shows it; and notes for a person."""
    said = report.verdicts.get(name, {"outcome": "not handed in"})
    texts = {key: said[key] for key in ("message", "expected", "yours", "look") if said.get(key) is not None}
    outcome, notes = said["outcome"], []
    if said.get("stumbled"):
        notes.append(f"the check of {name} stumbled: {str(said['stumbled'])[:200]}")
    if outcome == "not checked":
        notes.append(f"{name} was not checked: {texts.get('message', '')}")
    if outcome == "not attempted":
        texts = {"message": "This answer, or a part of it, is still as it was handed out."}
    elif outcome == "no verdict":
        outcome, texts = "error", {"message": f"The judgment of your answer did not end: {texts.get('message', '')}."}
    elif outcome == "not handed in":
        outcome, texts = "error", _no_answer(str(report.cells.get(f"check-{name}", {}).get("error", "")).strip())
    return Result(name, outcome, **texts), notes


def _no_answer(error: str) -> dict[str, str]:
    """Why there is nothing to judge. error: what the cell of the check raised, before it could ask."""
    if error.startswith("NameError"):
        missing = error.partition(": ")[2][:200]
        return {"message": f"There is no answer: {missing}.", "look": "the cell above, and its error"}
    if error:
        return {"message": f"Your answer could not be asked for its results: {error.splitlines()[-1][:300]}"}
    return {"message": "The notebook did not come as far as this check."}


def grader_failed(name: str, report: Report) -> bool:
    """Tell whether an answer has no verdict because of the grader: its check itself failed, or could not run here."""
    said = report.verdicts.get(name, {})
    return said.get("outcome") == "not checked" or bool(said.get("stumbled"))


def judged_by(name: str, report: Report) -> str:
    """What a verdict rests on, which says what it is worth: docs/grading.md."""
    return {True: "a probe", False: "results", None: ""}[report.verdicts.get(name, {}).get("watched")]


def status(report: Report) -> str:
    """What went wrong with a notebook as a whole; empty if nothing did."""
    if report.ended != "whole":
        return printable(report.ended)
    late = [LATE[shown["late"]] for shown in report.cells.values() if shown.get("late")]
    if not late:
        return ""
    cells = "1 cell was" if len(late) == 1 else f"{len(late)} cells were"
    return f"time limit: {cells} interrupted ({', '.join(dict.fromkeys(late))})"


def printable(text: object) -> str:
    """The text in one line, without signs that command a terminal; bytes that are not UTF-8 appear as codes."""
    text = str(text)[:LONGEST].encode("utf-8", "backslashreplace").decode()
    return "".join(sign if sign.isprintable() else " " for sign in text)


def keep(out: Path, each: Submission, **result: object) -> None:
    """Write down the result of one submission. An earlier one is replaced."""
    folder = out / "results" / each.owner.student
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NO_LAB}.json").unlink(missing_ok=True)  # now something is there, or the reason is another
    named = {"student": each.owner.student, "lab": each.lab, "file": printable(each.path)}
    named |= {"name": printable(each.owner.name), "id": each.owner.number}
    with whole(folder / f"{each.lab or NO_LAB}.json") as file:
        json.dump(named | {"review": "", "verdicts": {}, "by_hand": []} | result, file, indent=1)


def write_tables(out: Path, book: "Book") -> None:
    """grades.csv and exercises.csv, of all that was ever graded into this folder."""
    grades, exercises = [], []
    every = [json.loads(path.read_bytes()) for path in sorted((out / "results").glob("*/*.json"))]
    points = book.points_of({(each["student"], each["lab"]) for each in every if each["verdicts"]})
    for each in every:
        student, lab = each["student"], each["lab"]
        of_lab = sum(exercise.points for exercise in load_chapter(lab).values())
        score, most = points.get((student, lab), (0, of_lab or ""))  # what cannot be graded counts in the class average
        if each["verdicts"] and (student, lab) not in points:
            each["status"], score = "no longer in the gradebook: grade it again", ""
        if each["by_hand"] and not book.graded_by_hand(student, lab, each["by_hand"]):
            score = ""  # and not 0: the points are unknown
        grades.append([student, lab, score, most, *(each[key] for key in ("status", "review", "file", "name", "id"))])
        for name, said in each["verdicts"].items():
            exercises.append([student, lab, name, said["outcome"], said["message"], said["judged"]])
    titles = ["student", "lab", "points", "max", "status", "review", "file", "name", "id"]
    _write(out / "grades.csv", titles, grades)
    _write(out / "exercises.csv", ["student", "lab", "exercise", "outcome", "message", "judged"], exercises)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[TextIO]:
    """A file to write, which appears under its name when it is whole."""
    part = path.with_name(f"{path.name}.part")
    with open(part, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        yield file
    os.replace(part, path)


def _write(path: Path, header: list[str], rows: list[list]) -> None:
    with whole(path) as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([_no_formula(cell) for cell in row] for row in rows)


def _no_formula(cell: object) -> object:
    """A spreadsheet takes text that begins with one of these characters for a formula, and evaluates it.

    Some split a row at characters other than commas, so what comes after those begins a text, too.
    """
    return FORMULA.sub(r"\1'\2", cell) if isinstance(cell, str) else cell
