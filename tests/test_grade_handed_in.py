"""What students really hand in: a table of what people, editors and platforms do to a notebook.

Each row gets full points, or a sentence that names the student's line. The notebooks are collected and restored as by
`make grade`, and then run in this process: what the sandbox adds is not the point here.
"""

import copy
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from support.submissions import LAB, RIGHT, lab, notebook, put

import labcheck.lab
from labcheck import judge, show
from tools import course
from tools.grade.collect import Unreadable, read, survey
from tools.grade.restore import exercise, known, restore
from tools.grade.review import signs, solution

HANDED_OUT, SOLVED = (json.loads(nbformat.writes(book)) for book in (notebook(), lab(**RIGHT)))
OURS = ("setup", "check-")
BOUND = re.sub(r"^def slope", "def other", RIGHT["slope"])


def at(book: dict, name: str) -> int:
    return [cell.get("id") for cell in book["cells"]].index(name)


def code(source: str, **more: object) -> dict:
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None} | more


def text(source: str, kind: str = "markdown") -> dict:
    return {"cell_type": kind, "metadata": {}, "source": source}


# ---------------------------------------------------------------------------------------------------------------------
# What happens to a notebook. Each function returns one that changes a solved lab.


def adds(source: str, behind: str = "check-slope", **more: object) -> Callable:
    return lambda book: book["cells"].insert(at(book, behind) + 1, code(source, **more))


def writes(name: str, source: str, **more: object) -> Callable:
    return lambda book: book["cells"][at(book, name)].update(source=source, **more)


def deletes(*beginnings: str) -> Callable:
    def change(book: dict) -> None:
        book["cells"] = [cell for cell in book["cells"] if not cell["id"].startswith(beginnings)]

    return change


def moves(name: str, behind: str) -> Callable:
    def change(book: dict) -> None:
        cell = book["cells"].pop(at(book, name))
        book["cells"].insert(at(book, behind) + 1, cell)

    return change


def merges(first: str, second: str, middle: str = "") -> Callable:
    """As Shift+M: the cell keeps the id and the metadata of the first."""

    def change(book: dict) -> None:
        gone = book["cells"].pop(at(book, second))
        cell = book["cells"][at(book, first)]
        cell["source"] = "".join(cell["source"]) + f"\n\n{middle}" + "".join(gone["source"])

    return change


def all_in_one(book: dict) -> None:
    """Select all, Shift+M."""
    first, *others = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    first["source"] = "\n\n".join("".join(cell["source"]) for cell in (first, *others))
    book["cells"] = [cell for cell in book["cells"] if cell not in others]


def turns(name: str, kind: str) -> Callable:
    def change(book: dict) -> None:
        cell = book["cells"][at(book, name)]
        book["cells"][at(book, name)] = {key: cell[key] for key in ("id", "metadata", "source")} | {"cell_type": kind}

    return change


def each_cell(change: Callable) -> Callable:
    return lambda book: [change(cell) for cell in book["cells"]] and None


def ids(rename: Callable[[int], str | None]) -> Callable:
    def change(book: dict) -> None:
        for number, cell in enumerate(book["cells"]):
            cell["id"] = rename(number)
            if cell["id"] is None:
                del cell["id"]

    return change


def together(*changes: Callable) -> Callable:
    def change(book: dict) -> None:
        for each in changes:
            each(book)

    return change


def released(book: dict) -> None:
    cell = book["cells"][at(book, "setup")]
    cell["source"] = "".join(cell["source"]).replace('PACKAGE = ""', 'PACKAGE = "https://example.org/torchcourse.whl"')


no_ids, no_metadata = ids(lambda number: None), each_cell(lambda cell: cell.update(metadata={}))
stripped = together(no_ids, no_metadata)
ABOVE = "2-a-slope-by-autograd-1"  # the text above the answer
STUB = next("".join(cell["source"]) for cell in HANDED_OUT["cells"] if cell["id"] == "answer-slope")

READY = "\n\ndef ready(x):\n    return x.detach()\n"
USES_READY = writes("answer-slope", RIGHT["slope"].replace("x.detach()", "ready(x)"))

BELOW = ('check("slope", slope)', "1 / 0")

WAYS: dict[str, Callable] = {
    "as it is": lambda book: None,
    # Editors, tools, platforms
    "ids dropped": no_ids,
    "ids are names of ours, but of others": together(no_metadata, ids(lambda number: f"check-{number}")),
    "nothing but content": together(stripped, lambda book: book.update(metadata={}, nbformat_minor=4)),
    "Colab": each_cell(lambda cell: cell.update(metadata={"id": cell.pop("id")})),
    "a released lab without ids": together(released, stripped),
    "an older set-up cell": together(writes("setup", "# @title Set-up: run this cell first\n1 / 0"), stripped),
    "CRLF": each_cell(lambda cell: cell.update(source="".join(cell["source"]).replace("\n", "\r\n"))),
    "lists of lines": each_cell(lambda cell: cell.update(source="".join(cell["source"]).splitlines(True))),
    # Cells more
    **{f"below a check: {source}": adds(source) for source in BELOW},
    "below a check, without ids": together(adds("print(slope)"), stripped),
    "between answer and check": adds("print(slope)", "answer-slope"),
    "text of one's own": lambda book: book["cells"].insert(9, text("def slope(f, x):\n    my first try")),
    "a helper, used by the answer": together(adds(READY, ABOVE), USES_READY),
    # Cells fewer
    "all checks deleted": deletes("check-"),
    "only answers are left": deletes(*(cell["id"] for cell in HANDED_OUT["cells"] if cell["id"][:6] != "answer")),
    # Answers elsewhere
    "answer below its stub": together(writes("answer-slope", STUB), adds(RIGHT["slope"], "answer-slope")),
    "answer elsewhere, stub deleted": together(deletes("answer-slope"), adds(RIGHT["slope"], ABOVE)),
    "that, without ids": together(deletes("answer-slope"), adds(RIGHT["slope"], ABOVE), stripped),
    "answer twice": adds(RIGHT["slope"], "answer-slope"),
    "answer split, without ids": together(
        writes("answer-slope", "import math"), adds(RIGHT["slope"], "answer-slope", id="beef"), stripped
    ),
    "answer and check in one cell": merges("answer-slope", "check-slope"),
    "answer in the cell of the check": together(
        writes("check-slope", f'{RIGHT["slope"]}\n\ncheck("slope", slope)'), deletes("answer-slope")
    ),
    "answer in a cell of text": together(turns(ABOVE, "code"), writes(ABOVE, RIGHT["slope"]), deletes("answer-slope")),
    "reverse, without ids": together(
        moves("lab-00-getting-started-3", "setup"), moves("answer-slope", "lab-00-getting-started-3"), stripped
    ),
    "all code in one cell, without ids": together(all_in_one, stripped),
    "a helper in the set-up cell": together(
        lambda book: writes("setup", "".join(book["cells"][at(book, "setup")]["source"]) + READY)(book), USES_READY
    ),
    # Code as text
    "answer as Markdown": turns("answer-slope", "markdown"),
    "answer as Raw, without ids": together(turns("answer-slope", "raw"), stripped),
    "check as Markdown": turns("check-slope", "markdown"),
    # Answers in other forms
    "a lambda, without ids": together(writes("answer-slope", f"{BOUND}\nslope = lambda f, x: other(f, x)"), stripped),
    "check with another name": writes("check-slope", 'my = slope\ncheck("slope", my)'),
    "checks shadowed": adds("def check(*args): pass", "setup"),
}
NOTED = {  # what a person is told, since points depend on it or it looks odd; everything else is silent
    "an older set-up cell": "setup was changed",
    "all checks deleted": "check-slope was deleted",
    "only answers are left": "check-slope was deleted",
    "answer and check in one cell": "check-slope was deleted",
    "answer in the cell of the check": "check-slope was changed",
    "check as Markdown": "check-slope was changed",
    "check with another name": "check-slope was changed",
    "checks shadowed": "redefines check",
    "all code in one cell, without ids": "check-slope was deleted",
    "a helper in the set-up cell": "setup was changed",
}


def graded(folder: Path) -> tuple[dict[str, show.Result], list[str], list[str]]:
    """The results of the only submission in a folder, the errors of its cells, and the notes about it."""
    (submission,) = survey(folder, {LAB}).submissions
    notebook, theirs, notes = restore(LAB, submission.cells)
    nbformat.validate(notebook)
    unchanged = {cell["id"]: "".join(cell["source"]) for cell in HANDED_OUT["cells"] if cell["id"].startswith(OURS)}
    assert {cell.id: cell.source for cell in notebook.cells if cell.id.startswith(OURS)} == unchanged
    space, results, errors = {"__name__": "__main__"}, {}, []
    exec("import torch\nfrom labcheck import check, evaluate, hint, lend, progress", space)
    for cell in notebook.cells:
        if name := exercise(cell):
            answer = re.search(r", (\w+)\)$", cell.source)[1]
            results[name] = judge.evaluate(name, space.get(answer, f"{answer} is not defined"), 0)
        elif cell.cell_type == "code" and not cell.id.startswith(("setup", "what-", "3-")):  # these take their time
            try:
                exec(cell.source, space)
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
    return results, errors, [*notes, *signs(theirs, solution(LAB))]


@pytest.mark.parametrize("way", WAYS)
def test_whatever_happens_to_a_notebook_right_answers_count(way, tmp_path, monkeypatch):
    monkeypatch.setattr(labcheck.lab, "show_result", lambda result: None)
    book = copy.deepcopy(SOLVED)
    WAYS[way](book)
    put(tmp_path / "ada" / "lab.ipynb", book)
    results, errors, notes = graded(tmp_path)
    assert {name: each.outcome for name, each in results.items()} == dict.fromkeys(RIGHT, "correct"), errors
    assert errors == (["ZeroDivisionError: division by zero"] if "1 / 0" in way else [])
    assert NOTED[way] in notes if way in NOTED else notes == []


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (RIGHT["slope"].replace("def slope", "def Slope"), ""),
        ("<<<<<<< HEAD\n" + RIGHT["slope"], "SyntaxError"),
        ("from google.colab import drive\n" + RIGHT["slope"], "ModuleNotFoundError"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("lost", [False, True], ids=["as it is", "without ids"])
def test_one_broken_answer_costs_only_itself(source, error, lost, tmp_path):
    book = copy.deepcopy(SOLVED)
    writes("answer-slope", source)(book)
    if lost:
        stripped(book)
    put(tmp_path / "ada" / "lab.ipynb", book)
    results, errors, _ = graded(tmp_path)
    assert {name for name, each in results.items() if not each.correct} == {"slope"}
    assert [each.partition(":")[0] for each in errors] == [error] * bool(error)


@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda chapter: chapter.name)
def test_each_lab_is_recognized_by_its_content(chapter, tmp_path):
    """Without ids and metadata, lab and solution are restored to themselves. A lecture is no lab, even with a check."""
    for kind, answers in (("labs", 0), ("solutions", len(known(chapter.name).checks))):
        book = json.loads((course.ROOT / kind / f"{chapter.name}.ipynb").read_text())
        expected = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
        stripped(book)
        submission = read(put(tmp_path / "ada" / "lab.ipynb", book | {"metadata": {}}), tmp_path)
        notebook, _, notes = restore(chapter.name, submission.cells)
        assert [cell.source for cell in notebook.cells if cell.cell_type == "code"] == expected
        assert (submission.lab, submission.answers, notes) == (chapter.name, answers, [])
    if chapter.lecture_minutes:
        lecture = json.loads((course.ROOT / "notebooks" / f"{chapter.name}.ipynb").read_text())
        for cells in (lecture["cells"], [code("".join(cell["source"])) for cell in lecture["cells"]]):
            with pytest.raises(Unreadable, match="not one of the course's labs"):
                read(put(tmp_path / "ada" / "lab.ipynb", {"cells": cells}), tmp_path)
        with pytest.raises(Unreadable, match="a lecture"):
            read(put(tmp_path / "ada" / "lab.ipynb", lecture), tmp_path)


# ---------------------------------------------------------------------------------------------------------------------
# Several notebooks of one student


ONE = copy.deepcopy(HANDED_OUT)
writes("answer-slope", RIGHT["slope"])(ONE)


@pytest.mark.parametrize(
    ("files", "counts", "why"),
    [
        ({"my_00.ipynb": (SOLVED, 1), "00.ipynb": (HANDED_OUT, 9)}, "my_00.ipynb", "the newest with answers"),
        ({"00-Copy1.ipynb": (SOLVED, 5), "00.ipynb": (HANDED_OUT, 5)}, "00-Copy1.ipynb", "the newest with answers"),
        ({"a.ipynb": (ONE, 5), "00.ipynb": (SOLVED, 5), "z.ipynb": (ONE, 5)}, "00.ipynb", "the newest with answers"),
        ({"a.ipynb": (HANDED_OUT, 1), "b.ipynb": (HANDED_OUT, 9)}, "b.ipynb", "the newest"),
    ],
)
def test_the_newest_notebook_with_answers_counts(files, counts, why, tmp_path):
    for name, (book, changed) in files.items():
        os.utime(put(tmp_path / "ada" / name, book), (changed, changed))
    found = survey(tmp_path, {LAB})
    (submission,) = found.submissions
    assert submission.path.name == counts and not found.missing
    assert submission.note == f"{len(files)} notebooks for this lab: ada/{counts} counts, {why}"
    assert len(found.refused) == len(files) - 1 and all(why in reason for reason in found.refused.values())


# ---------------------------------------------------------------------------------------------------------------------
# Whose it is

NAMED = {  # path -> number of the lab, the student
    "submitted/Ada Lovelace/00_getting_started/00_getting_started.ipynb": ("00", "Ada_Lovelace"),
    "Emmy Noether_4711_assignsubmission_file_/anything (1).ipynb": ("00", "Emmy_Noether_4711"),
    "Emmy Noether_4711_assignsubmission_file_lab.ipynb": ("00", "Emmy_Noether_4711"),
    "turingalan_12345_678910_00_getting_started-1.ipynb": ("00", "turingalan_12345"),
    "noetheremmy_LATE_4712_10002_00_getting_started.ipynb": ("00", "noetheremmy_4712"),
    "noetheremmy_4711_10001_homework.ipynb": ("00", "noetheremmy_4711"),
    "submission_314159/06_ddp.ipynb": ("06", "submission_314159"),
    "grace_00_getting_started.ipynb": ("00", "grace"),
    "kurt-lab00.ipynb": ("00", "kurt"),
    "Ann Other - Lab 6.ipynb": ("06", "Ann_Other"),
    "anna_lab6_final.ipynb": ("06", "anna"),
    "06_ddp_jdoe-1.ipynb": ("06", "jdoe"),
    "Lab 06 - DDP - rroe (2).ipynb": ("06", "rroe"),
    "anna_1_00_getting_started.ipynb": ("00", "anna_1"),
    "student_06_06_ddp.ipynb": ("06", "student_06"),
    "Lab 6 (1).ipynb": ("06", None),
}


@pytest.mark.parametrize("path", NAMED)
def test_whose_a_notebook_is(path, tmp_path):
    number, student = NAMED[path]
    (chapter,) = course.select([number])
    put(tmp_path / path, (course.ROOT / "labs" / f"{chapter.name}.ipynb").read_text())
    found = survey(tmp_path, {chapter.name})
    assert [each.owner.student for each in found.submissions] == [student] * (student is not None)
    if student is None:
        assert ["whose is it" in reason for reason in found.refused.values()] == [True]
