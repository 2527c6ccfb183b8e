"""Labs as students hand them in, and the tables that come back: for the tests of grading."""

import csv
import json
import os
from pathlib import Path

import nbformat

from tools import course

LAB = "00_getting_started"
NAMES = ("filled_like", "slope", "average_digit")


def notebook(kind: str = "labs", name: str = LAB) -> nbformat.NotebookNode:
    return nbformat.read(course.ROOT / kind / f"{name}.ipynb", as_version=4)


RIGHT = {cell.id.removeprefix("answer-"): cell.source for cell in notebook("solutions").cells if "answer-" in cell.id}


def lab(before: str = "", after: str = "", **answers: str) -> nbformat.NotebookNode:
    """A lab with these answers, a cell before the first exercise and one after the last."""
    blank = notebook()
    for cell in blank.cells:
        cell.source = answers.get(cell.id.removeprefix("answer-"), cell.source)
    for place, source in ((2, before), (len(blank.cells), after)):
        if source:
            blank.cells.insert(place, nbformat.v4.new_code_cell(source))
    return blank


def put(path: Path | bytes, content: object) -> Path:
    """Write a file of text, or of JSON."""
    path = Path(os.fsdecode(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def rows(out: Path) -> dict[str, dict]:
    """grades.csv: student -> row."""
    with open(out / "grades.csv", encoding="utf-8", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def outcomes(out: Path) -> dict[tuple[str, str], dict]:
    """exercises.csv: (student, exercise) -> row."""
    with open(out / "exercises.csv", encoding="utf-8", newline="") as file:
        return {(row["student"], row["exercise"]): row for row in csv.DictReader(file)}
