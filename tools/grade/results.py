"""From what came out of a sandbox to results: a verdict on each answer, and the tables of a class.

What a sandbox says comes from processes that ran a student's code. So every text is cut to a length and taken as text.
"""

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tools.grade.collect import Submission
from tools.grade.sandbox import Report
from torchcourse.checks.show import Result

if TYPE_CHECKING:
    from tools.grade.book import Book

LONGEST = 2000  # characters of a text


def verdict(name: str, report: Report) -> tuple[Result, list[str]]:
    """The verdict on one answer, in the form in which a check shows it; and notes for a person."""
    said = report.verdicts.get(name, {"outcome": "not handed in"})
    texts = {key: str(said[key])[:LONGEST] for key in ("message", "expected", "yours", "look") if said.get(key)}
    notes = []
    if said.get("changed"):
        notes.append(f"replaces {', '.join(map(str, said['changed']))[:200]}")
    if said.get("stumbled"):
        notes.append(f"the check of {name} stumbled: {str(said['stumbled'])[:200]}")
    outcome = said["outcome"]
    if outcome == "not attempted":
        return Result(name, outcome, "The answer is still as it was handed out."), notes
    if outcome in ("correct", "incorrect", "error") and "message" in texts:
        return Result(name, outcome, **texts), notes
    if outcome == "no verdict":
        reason = texts.get("message", "")
        return Result(name, "error", f"The judgment of your answer did not end: {reason}."), notes
    error = str(report.cells.get(f"check-{name}", {}).get("error", "")).strip()
    if error.startswith("NameError"):
        missing = error.partition(": ")[2][:200]
        return Result(name, "error", f"There is no answer: {missing}.", look="the cell above, and its error"), notes
    if error:
        notes.append(f"the answer to {name} could not be packed")
        reason = error.splitlines()[-1][:300]
        return Result(name, "error", f"Your answer could not be taken out of the notebook: {reason}"), notes
    return Result(name, "error", "The notebook did not come as far as this check."), notes


def status(report: Report) -> str:
    """What went wrong with a notebook as a whole; empty if nothing did."""
    if report.ended != "whole":
        return printable(report.ended)
    late = sum(bool(shown.get("late")) for shown in report.cells.values())
    return f"time limit: {late} {'cell was' if late == 1 else 'cells were'} interrupted" if late else ""


def printable(text: object) -> str:
    """The text in one line, without signs that command a terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in str(text)[:LONGEST])


def keep(out: Path, each: Submission, **result: object) -> None:
    """Write down the result of one submission. An earlier one is replaced."""
    path = out / "results" / each.student / f"{each.chapter.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    named = {"student": each.student, "lab": each.chapter.name, "file": str(each.path)}
    path.write_text(json.dumps(named | result, indent=1, ensure_ascii=False))


def write_tables(out: Path, book: "Book") -> None:
    """grades.csv and exercises.csv, of all that was ever graded into this folder."""
    grades, exercises = [], []
    for path in sorted((out / "results").glob("*/*.json")):
        result = json.loads(path.read_text())
        student, lab = result["student"], result["lab"]
        points, most = book.points(student, lab) if result["verdicts"] else (0, "")
        grades.append([student, lab, points, most, result["status"], result["review"], result["file"]])
        exercises += [[student, lab, name, *each.values()] for name, each in result["verdicts"].items()]
    _write(out / "grades.csv", ["student", "lab", "points", "max", "status", "review", "file"], grades)
    _write(out / "exercises.csv", ["student", "lab", "exercise", "outcome", "message"], exercises)


def _write(path: Path, header: list[str], rows: list[list]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([_no_formula(cell) for cell in row] for row in rows)


def _no_formula(cell: object) -> object:
    """A spreadsheet takes a text that begins with one of these signs for a formula, and computes it."""
    return f"'{cell}" if str(cell).startswith(("=", "+", "-", "@")) else cell
