"""From what came out of a sandbox to results: a verdict on each answer, and the tables of a class.

What a sandbox says comes from processes that ran a student's code: the judge has cut every text to a length, and here
it is taken as text. Each file appears whole or not at all, so that no end of this program leaves a half one.
"""

import contextlib
import csv
import json
import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from labcheck.exercise import load_chapters
from labcheck.show import Result
from tools.grade.collect import Missing, Submission
from tools.grade.sandbox import LATE, Report

if TYPE_CHECKING:
    from tools.grade.gradebook import Book

LONGEST = 2000  # characters of a text
NO_LAB = "unknown"  # the result of a student whose files do not say which lab they are
ALL = "*"  # in place of an exercise's name: nothing is known about any of them
PART = ".part"  # ends the name of a file that is being written
FORMULA = re.compile(r"(^|[;|\t\r\n])(\s*[=+\-@⁺⁼₊₌⩵⩶﬩﹢﹣﹦﹫＋－＝＠])")


def verdict(name: str, report: Report) -> tuple[Result, list[str]]:
    """The verdict on one answer, in the form in which a check shows it; and notes for a person."""
    said = report.verdicts.get(name, {"outcome": "not handed in"})
    texts = {key: said[key] for key in ("message", "expected", "yours", "look") if said.get(key)}
    notes = []
    if said.get("stumbled"):
        notes.append(f"the check of {name} stumbled: {str(said['stumbled'])[:200]}")
    outcome = said["outcome"]
    if outcome == "not attempted":
        return Result(name, outcome, "This answer, or a part of it, is still as it was handed out."), notes
    if outcome == "not checked":
        notes.append(f"{name} was not checked: {texts.get('message', '')}")
    if outcome in ("correct", "incorrect", "error", "not checked") and "message" in texts:
        return Result(name, outcome, **texts), notes
    if outcome == "no verdict":
        reason = texts.get("message", "")
        return Result(name, "error", f"The judgment of your answer did not end: {reason}."), notes
    error = str(report.cells.get(f"check-{name}", {}).get("error", "")).strip()
    if error.startswith("NameError"):
        missing = error.partition(": ")[2][:200]
        return Result(name, "error", f"There is no answer: {missing}.", look="the cell above, and its error"), notes
    if error:
        reason = error.splitlines()[-1][:300]
        return Result(name, "error", f"Your answer could not be asked for its results: {reason}"), notes
    return Result(name, "error", "The notebook did not come as far as this check."), notes


def grader_failed(name: str, report: Report) -> bool:
    """Tell whether an answer has no verdict because of the grader: its check itself failed, or could not run here."""
    said = report.verdicts.get(name, {})
    return said.get("outcome") == "not checked" or bool(said.get("stumbled"))


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


def keep(out: Path, each: Submission | Missing, **result: object) -> None:
    """Write down the result of one submission. An earlier one is replaced."""
    folder = out / "results" / each.student
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NO_LAB}.json").unlink(missing_ok=True)  # now something is there, or the reason is another
    named = {"student": each.student, "lab": each.lab, "file": printable(each.path)}
    named |= {"name": printable(each.owner.readable), "id": each.owner.number, "identity": each.owner.identity}
    with _whole(folder / f"{each.lab or NO_LAB}.json") as file:
        json.dump(named | result, file, indent=1)


def roster(out: Path) -> dict[str, str]:
    """The students of earlier runs into this folder, for `collect.survey`: name -> identity."""
    names = {}
    for result in _results(out):
        student = unicodedata.normalize("NFC", result["student"].casefold())
        names[student] = result.get("identity", result["student"] + "\0")
    return names


def write_tables(out: Path, book: "Book") -> None:
    """grades.csv and exercises.csv, of all that was ever graded into this folder."""
    grades, exercises = [], []
    every = list(_results(out))
    points = book.points_of({(each["student"], each["lab"]) for each in every if each["verdicts"]})
    for result in every:
        student, lab = result["student"], result["lab"]
        of_lab = sum(each.points for each in load_chapters().values() if each.chapter == lab)
        score, most = points.get((student, lab), (0, of_lab or ""))  # what cannot be graded counts in the class average
        if result["verdicts"] and (student, lab) not in points:
            result["status"], score = "no longer in the gradebook: grade it again", ""
        if result["by_hand"] and not book.graded_by_hand(student, lab, result["by_hand"]):
            score = ""  # and not 0: the points are unknown
        said = [result["status"], result["review"], result["file"], result.get("name", student), result.get("id", "")]
        grades.append([student, lab, score, most, *said])
        for name, each in result["verdicts"].items():
            exercises.append(
                [student, lab, name, each.get("outcome", ""), each.get("message", ""), each.get("judged", "")]
            )
    titles = ["student", "lab", "points", "max", "status", "review", "file", "name", "id"]
    _write(out / "grades.csv", titles, grades)
    _write(out / "exercises.csv", ["student", "lab", "exercise", "outcome", "message", "judged"], exercises)


def judged_by(name: str, report: Report) -> str:
    """What a verdict rests on, which says what it is worth: docs/grading.md."""
    said = report.verdicts.get(name, {})
    return "" if "watched" not in said else "a probe" if said["watched"] else "results"


def _results(out: Path) -> Iterator[dict]:
    """All results in a folder. One that is damaged is a row that says so."""
    empty = {"review": "", "file": "", "verdicts": {}}
    for path in sorted((out / "results").glob("*/*.json")):
        try:
            yield {"status": "", **empty, "by_hand": []} | json.loads(path.read_bytes())
        except (OSError, ValueError, TypeError):
            lab = "" if path.stem == NO_LAB else path.stem
            status = "its result cannot be read: grade it again"
            yield {"student": path.parent.name, "lab": lab, "status": status, **empty, "by_hand": [ALL]}


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[TextIO]:
    """A file to write, which appears under its name when it is whole."""
    part = path.with_name(f"{path.name}{PART}")
    with open(part, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        yield file
    os.replace(part, path)


def _write(path: Path, header: list[str], rows: list[list]) -> None:
    with _whole(path) as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([_no_formula(cell) for cell in row] for row in rows)


def _no_formula(cell: object) -> object:
    """A spreadsheet takes text that begins with one of these characters for a formula, and evaluates it.

    Some split a row at characters other than commas, so what comes after those begins a text, too.
    """
    return FORMULA.sub(r"\1'\2", cell) if isinstance(cell, str) else cell
