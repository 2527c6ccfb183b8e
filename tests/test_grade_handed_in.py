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

import jupytext
import nbformat
import pytest

from labcheck import judge, lab, show
from tools import course
from tools.grade.collect import Unreadable, read, survey
from tools.grade.restore import exercise, known, restore
from tools.grade.review import signs, solution

LAB = "00_getting_started"
HANDED_OUT = json.loads((course.ROOT / "labs" / f"{LAB}.ipynb").read_text())
SOLVED = json.loads((course.ROOT / "labs" / f"{LAB}.ipynb").read_text())
RIGHT = {}
for _cell in json.loads((course.ROOT / "solutions" / f"{LAB}.ipynb").read_text())["cells"]:
    if _cell["id"].startswith("answer-"):
        RIGHT[_cell["id"].removeprefix("answer-")] = "".join(_cell["source"])
for _cell in SOLVED["cells"]:
    _cell["source"] = RIGHT.get(_cell["id"].removeprefix("answer-"), _cell["source"])
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


def no_metadata(book: dict) -> None:
    each_cell(lambda cell: cell.update(metadata={}))(book)


def in_metadata(key: str) -> Callable:
    return each_cell(lambda cell: cell.update(metadata={key: cell.pop("id")}))


def through_jupytext(form: str) -> Callable:
    def change(book: dict) -> None:
        there = jupytext.writes(nbformat.reads(json.dumps(book), as_version=4), fmt=form)
        book.clear()
        book |= json.loads(nbformat.writes(jupytext.reads(there, fmt=form)))

    return change


def together(*changes: Callable) -> Callable:
    def change(book: dict) -> None:
        for each in changes:
            each(book)

    return change


def released(book: dict) -> None:
    cell = book["cells"][at(book, "setup")]
    cell["source"] = "".join(cell["source"]).replace('PACKAGE = ""', 'PACKAGE = "https://example.org/torchcourse.whl"')


def nobody(number: int) -> None:
    return None


no_ids = ids(nobody)
stripped = together(no_ids, no_metadata)
OUTPUT = {"output_type": "stream", "name": "stdout", "text": "✓ correct"}
ABOVE = "2-a-slope-by-autograd-1"  # the text above the answer
STUB = next("".join(cell["source"]) for cell in HANDED_OUT["cells"] if cell["id"] == "answer-slope")

READY = "\n\ndef ready(x):\n    return x.detach()\n"

BELOW = ("# notes", "print(slope(lambda t: t**2, torch.tensor(3.0)))", 'check("slope", slope)', "import os", "x = 3")
BELOW += ("for i in [1]: i", "1 / 0", "slope", "...")

WAYS: dict[str, Callable] = {
    "as it is": lambda book: None,
    # Editors, tools, platforms
    "ids dropped": no_ids,
    "ids are numbers": ids(str),
    "ids are new": ids(lambda number: f"{number:08x}"),
    "ids are names of ours, but of others": together(no_metadata, ids(lambda number: f"check-{number}")),
    "nothing but content": together(stripped, lambda book: book.update(metadata={}, nbformat_minor=4)),
    "only code is left": together(
        stripped, lambda book: book.update(cells=[cell for cell in book["cells"] if cell["cell_type"] == "code"])
    ),
    "Colab": in_metadata("id"),
    "Colab's own ids": each_cell(lambda cell: cell["metadata"].update(id=f"x{cell.pop('id')[:3]}")),
    "Deepnote": in_metadata("cell_id"),
    "VS Code": each_cell(lambda cell: cell.update(metadata={"vscode": {"languageId": "python"}})),
    **{f"jupytext {form}": through_jupytext(form) for form in ("py:percent", "py:light", "md", "md:myst")},
    "a released lab without ids": together(released, stripped),
    "an older set-up cell": together(writes("setup", "# @title Set-up: run this cell first\n1 / 0"), stripped),
    "formatted, without ids": together(
        each_cell(lambda cell: cell.update(source="".join(cell["source"]).replace(" = ", "  =  "))), stripped
    ),
    "CRLF": each_cell(lambda cell: cell.update(source="".join(cell["source"]).replace("\n", "\r\n"))),
    "lists of lines": each_cell(lambda cell: cell.update(source="".join(cell["source"]).splitlines(True))),
    "outputs": each_cell(lambda cell: cell["cell_type"] == "code" and cell.update(outputs=[OUTPUT] * 50)),
    "another kernel": lambda book: book.update(metadata={"kernelspec": {"name": "ir", "display_name": "R"}}),
    "collapsed, tagged, with slides": each_cell(
        lambda cell: cell["metadata"].update(collapsed=True, tags=["a", 3], slideshow={"slide_type": "slide"})
    ),
    "pasted twice": lambda book: book.update(cells=book["cells"] + copy.deepcopy(book["cells"])),
    # Cells more
    **{f"below a check: {source}": adds(source) for source in BELOW},
    "below a check, without ids": together(adds("print(slope)"), stripped),
    "an id like a check's": adds("x = 1", id="check-mine"),
    "an id like an answer's": adds("x = 1", id="answer-mine"),
    "between answer and check": adds("print(slope)", "answer-slope"),
    "at the end": adds("print('done')", "where-you-stand-2"),
    "above everything": lambda book: book["cells"].insert(0, code("import math")),
    "a hint more": adds('hint("slope")'),
    "text of one's own": lambda book: book["cells"].insert(9, text("def slope(f, x):\n    my first try")),
    "a helper, used by the answer": together(
        adds(READY, "2-a-slope-by-autograd-1"),
        writes("answer-slope", RIGHT["slope"].replace("x.detach()", "ready(x)")),
    ),
    # Cells fewer
    "all checks deleted": deletes("check-"),
    "text and given code deleted": deletes("setup", "1-", "2-", "3-", "what-", "where-", "lab-00-getting-started-1"),
    "only answers are left": deletes(*(cell["id"] for cell in HANDED_OUT["cells"] if cell["id"][:6] != "answer")),
    # Answers elsewhere
    "answer below its stub": together(writes("answer-slope", STUB), adds(RIGHT["slope"], "answer-slope")),
    "answer above its stub": together(writes("answer-slope", STUB), adds(RIGHT["slope"], ABOVE)),
    "that, and no ids": together(writes("answer-slope", STUB), adds(RIGHT["slope"], ABOVE), stripped),
    "answer in a cell of its own, stub deleted": together(deletes("answer-slope"), adds(RIGHT["slope"], ABOVE)),
    "that, without ids": together(deletes("answer-slope"), adds(RIGHT["slope"], ABOVE), stripped),
    "answer emptied, and copied": together(adds(RIGHT["slope"], "answer-slope"), writes("answer-slope", "")),
    "answer twice": adds(RIGHT["slope"], "answer-slope"),
    "answer split": together(writes("answer-slope", "import math"), adds(RIGHT["slope"], "answer-slope", id="beef")),
    "answer split, without ids": together(
        writes("answer-slope", "import math"), adds(RIGHT["slope"], "answer-slope", id="beef"), stripped
    ),
    "answer and check in one cell": merges("answer-slope", "check-slope"),
    "answer in the cell of the check": together(
        writes("check-slope", f'{RIGHT["slope"]}\n\ncheck("slope", slope)'), deletes("answer-slope")
    ),
    "answer in the cell of the hint": merges("1-a-tensor-like-another-one-5", "answer-slope"),
    "two answers in one cell": merges("answer-filled_like", "answer-slope"),
    "two answers in one cell, without ids": together(merges("answer-filled_like", "answer-slope"), stripped),
    "answer in a cell of text": together(
        turns("2-a-slope-by-autograd-1", "code"), writes("2-a-slope-by-autograd-1", RIGHT["slope"]), deletes("answer-s")
    ),
    "answers in reverse": together(moves("answer-slope", "setup"), moves("answer-average_digit", "setup")),
    "reverse, without ids": together(
        moves("lab-00-getting-started-3", "setup"), moves("answer-slope", "lab-00-getting-started-3"), stripped
    ),
    "only answers, without ids": together(
        deletes(*(cell["id"] for cell in HANDED_OUT["cells"] if cell["id"][:6] != "answer")), stripped
    ),
    "all code in one cell": all_in_one,
    "all code in one cell, without ids": together(all_in_one, stripped),
    "a helper in the set-up cell": together(
        lambda book: writes("setup", "".join(book["cells"][at(book, "setup")]["source"]) + READY)(book),
        writes("answer-slope", RIGHT["slope"].replace("x.detach()", "ready(x)")),
    ),
    # Code as text
    "answer as Markdown": turns("answer-slope", "markdown"),
    "answer as Raw": turns("answer-slope", "raw"),
    "answer as Raw, without ids": together(turns("answer-slope", "raw"), stripped),
    "check as Markdown": turns("check-slope", "markdown"),
    "given code as Raw": turns("1-a-tensor-like-another-one-5", "raw"),
    # Answers in other forms
    "a lambda": writes("answer-slope", f"{BOUND}\nslope = lambda f, x: other(f, x)"),
    "a lambda, without ids": together(writes("answer-slope", f"{BOUND}\nslope = lambda f, x: other(f, x)"), stripped),
    "with a type": writes("answer-slope", f"{BOUND}\nslope: object = other"),
    "an object": writes("answer-slope", f"{BOUND}\nclass Slope:\n    __call__ = staticmethod(other)\nslope = Slope()"),
    "bound in a loop, without ids": together(writes("answer-slope", f"{BOUND}\nfor slope in [other]: pass"), stripped),
    # Other cells
    "an import more": writes("lab-00-getting-started-3", "import math\nfrom torchcourse import *"),
    "check with another name": writes("check-slope", 'my = slope\ncheck("slope", my)'),
    "checks shadowed": adds("def check(*args): pass", "setup"),
}
NOTED = {  # what a person is told, since points depend on it or it looks odd; everything else is silent
    "an older set-up cell": "setup was changed",
    "all checks deleted": "check-slope was deleted",
    "text and given code deleted": "setup was deleted",
    "only answers are left": "check-slope was deleted",
    "only answers, without ids": "check-slope was deleted",
    "answer and check in one cell": "check-slope was deleted",
    "answer in the cell of the check": "check-slope was changed",
    "check as Markdown": "check-slope was changed",
    "check with another name": "check-slope was changed",
    "checks shadowed": "redefines check",
    "all code in one cell": "check-slope was deleted",
    "all code in one cell, without ids": "check-slope was deleted",
    "a helper in the set-up cell": "setup was changed",
}


def handed_in(folder: Path, book: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lab.ipynb"
    path.write_text(json.dumps(book))
    return path


def graded(folder: Path) -> tuple[dict[str, show.Result], list[str], list[str]]:
    """The results of the only submission in a folder, the errors of its cells, and the notes about it."""
    (submission,) = survey(folder, {LAB}, {}).submissions
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
    monkeypatch.setattr(lab, "show_result", lambda result: None)
    book = copy.deepcopy(SOLVED)
    WAYS[way](book)
    handed_in(tmp_path / "ada", book)
    results, errors, notes = graded(tmp_path)
    assert {name: each.outcome for name, each in results.items()} == dict.fromkeys(RIGHT, "correct"), errors
    assert errors == (["ZeroDivisionError: division by zero"] if "1 / 0" in way else [])
    assert NOTED[way] in notes if way in NOTED else notes == []


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (RIGHT["slope"].replace("def slope", "def Slope"), ""),
        ("<<<<<<< HEAD\n" + RIGHT["slope"], "SyntaxError"),
        (RIGHT["slope"].replace("def slope(f, x):", "def slope(f, x)"), "SyntaxError"),
        ("from google.colab import drive\n" + RIGHT["slope"], "ModuleNotFoundError"),
        ("This is *not* code.", "SyntaxError"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("lost", [False, True], ids=["as it is", "without ids"])
def test_one_broken_answer_costs_only_itself(source, error, lost, tmp_path):
    book = copy.deepcopy(SOLVED)
    writes("answer-slope", source)(book)
    if lost:
        stripped(book)
    handed_in(tmp_path / "ada", book)
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
        (submission,) = read(handed_in(tmp_path / "ada", book | {"metadata": {}}), tmp_path)
        notebook, _, notes = restore(chapter.name, submission.cells)
        assert [cell.source for cell in notebook.cells if cell.cell_type == "code"] == expected
        assert (submission.lab, submission.answers, notes) == (chapter.name, answers, [])
    if chapter.lecture_minutes:
        lecture = json.loads((course.ROOT / "notebooks" / f"{chapter.name}.ipynb").read_text())
        for cells in (lecture["cells"], [code("".join(cell["source"])) for cell in lecture["cells"]]):
            with pytest.raises(Unreadable, match="not one of the course's labs"):
                read(handed_in(tmp_path / "ada", {"cells": cells}), tmp_path)
        with pytest.raises(Unreadable, match="a lecture"):
            read(handed_in(tmp_path / "ada", lecture), tmp_path)


# ---------------------------------------------------------------------------------------------------------------------
# Several notebooks of one student


def lay(folder: Path, files: dict[str, tuple[dict, float]]) -> None:
    for name, (book, changed) in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(book))
        os.utime(path, (changed, changed))


GUESSED = copy.deepcopy(HANDED_OUT)
adds("1 + 1")(GUESSED)
ONE = copy.deepcopy(HANDED_OUT)
writes("answer-slope", RIGHT["slope"])(ONE)


@pytest.mark.parametrize(
    ("files", "counts", "why"),
    [
        ({"my_00.ipynb": (SOLVED, 1), "00.ipynb": (HANDED_OUT, 9)}, "my_00.ipynb", "the newest with answers"),
        ({"my_00.ipynb": (SOLVED, 1), "00.ipynb": (GUESSED, 9)}, "my_00.ipynb", "the newest with answers"),
        ({"00-Copy1.ipynb": (SOLVED, 5), "00.ipynb": (HANDED_OUT, 5)}, "00-Copy1.ipynb", "the newest with answers"),
        ({"a.ipynb": (ONE, 5), "00.ipynb": (SOLVED, 5), "z.ipynb": (ONE, 5)}, "00.ipynb", "the newest with answers"),
        ({"old.ipynb": (SOLVED, 1), "new.ipynb": (ONE, 9)}, "new.ipynb", "the newest with answers"),
        ({"a.ipynb": (HANDED_OUT, 1), "b.ipynb": (HANDED_OUT, 9)}, "b.ipynb", "the newest"),
    ],
)
def test_the_newest_notebook_with_answers_counts(files, counts, why, tmp_path):
    lay(tmp_path / "ada", files)
    found = survey(tmp_path, {LAB}, {})
    (submission,) = found.submissions
    assert submission.path.name == counts and not found.missing
    assert submission.note == f"{len(files)} notebooks for this lab: ada/{counts} counts, {why}"
    assert len(found.refused) == len(files) - 1 and all(why in reason for reason in found.refused.values())


# ---------------------------------------------------------------------------------------------------------------------
# Whose it is

BLACKBOARD = "Lab 06_jdoe1_attempt_2026-11-12-11-06-33"
D2L = "1234-5678 - Jo Doe - Nov 12, 2026 1106 AM"
NAMED = {  # path -> number of the lab, the student
    "submitted/Ada Lovelace/00_getting_started/00_getting_started.ipynb": ("00", "Ada_Lovelace"),
    "Emmy Noether_4711_assignsubmission_file_/anything (1).ipynb": ("00", "Emmy_Noether_4711"),
    "Emmy Noether_4711_assignsubmission_file_lab.ipynb": ("00", "Emmy_Noether_4711"),
    "turingalan_12345_678910_00_getting_started-1.ipynb": ("00", "turingalan_12345"),
    "noetheremmy_LATE_4712_10002_00_getting_started.ipynb": ("00", "noetheremmy_4712"),
    "noetheremmy_4711_10001_homework.ipynb": ("00", "noetheremmy_4711"),
    f"{BLACKBOARD}_06_ddp.ipynb": ("06", "jdoe1"),
    "Homework_3_jdoe1_attempt_2026-11-12-11-06-33_x.ipynb": ("06", "jdoe1"),
    f"{D2L}/06_ddp.ipynb": ("06", "Jo_Doe_1234"),
    f"{D2L} - 06_ddp.ipynb": ("06", "Jo_Doe_1234"),
    "1234-5678 - Jo Doe - 05 March 2026 612 PM/lab.ipynb": ("06", "Jo_Doe_1234"),
    "submission_314159/06_ddp.ipynb": ("06", "submission_314159"),
    "Jo Doe/Lab 6/Version 1/lab.ipynb": ("06", "Jo_Doe"),
    "grace_00_getting_started.ipynb": ("00", "grace"),
    "kurt-lab00.ipynb": ("00", "kurt"),
    "Ann Other - Lab 6.ipynb": ("06", "Ann_Other"),
    "Ann Other - Lab 0.ipynb": ("00", "Ann_Other"),
    "anna_lab6_final.ipynb": ("06", "anna"),
    "lab6_rroe.ipynb": ("06", "rroe"),
    "06_ddp_jdoe7.ipynb": ("06", "jdoe7"),
    "06_ddp_jdoe-1.ipynb": ("06", "jdoe"),
    "Lab 06 - DDP - rroe (2).ipynb": ("06", "rroe"),
    "anna_1_00_getting_started.ipynb": ("00", "anna_1"),
    "student_06_06_ddp.ipynb": ("06", "student_06"),
    "06_ddp-Copy1.ipynb": ("06", None),
    "Lab 6 (1).ipynb": ("06", None),
}


@pytest.mark.parametrize("path", NAMED)
def test_whose_a_notebook_is(path, tmp_path):
    number, student = NAMED[path]
    (chapter,) = course.select([number])
    lay(tmp_path, {path: (json.loads((course.ROOT / "labs" / f"{chapter.name}.ipynb").read_text()), 5)})
    found = survey(tmp_path, {chapter.name}, {})
    assert [each.student for each in found.submissions] == [student] * (student is not None)
    if student is None:
        assert ["whose is it" in reason for reason in found.refused.values()] == [True]


@pytest.mark.parametrize("change", [lambda book: None, stripped], ids=["as they are", "without ids"])
def test_two_labs_in_one_notebook_are_two_submissions(change, tmp_path):
    """And a cell that was copied from another lab is none."""
    both, copied = (json.loads((course.ROOT / "labs" / "01_tensors.ipynb").read_text()) for _ in range(2))
    both["cells"] += HANDED_OUT["cells"]
    copied["cells"] += [cell for cell in HANDED_OUT["cells"] if cell["id"].endswith("-slope")]
    for name, book in (("both", both), ("copied", copied)):
        book = copy.deepcopy(book)
        change(book)
        lay(tmp_path, {f"{name}/lab.ipynb": (book, 5)})
    found = survey(tmp_path, {LAB, "01_tensors"}, {}).submissions
    expected = [("both", LAB), ("both", "01_tensors"), ("copied", "01_tensors")]
    assert [(each.student, each.lab) for each in found] == expected


def test_attempts_are_those_of_one_student(tmp_path):
    """The name says which is the newest, whenever it was unpacked. A receipt is no student."""
    book = json.loads((course.ROOT / "labs" / "06_ddp.ipynb").read_text())
    second = {BLACKBOARD: BLACKBOARD.replace("11-12", "11-14"), D2L: D2L.replace("12, 2026 1106 AM", "14, 2026 110 PM")}
    lay(tmp_path, {f"{BLACKBOARD}_06_ddp.ipynb": (book, 9), f"{second[BLACKBOARD]}_06_ddp.ipynb": (book, 5)})
    lay(tmp_path, {f"{D2L}/lab.ipynb": (book, 9), f"{second[D2L]}/lab.ipynb": (book, 5)})
    for name in (f"{BLACKBOARD}.txt", f"{second[BLACKBOARD]}.txt", "index.html"):
        (tmp_path / name).write_text("a receipt")
    found = survey(tmp_path, {"06_ddp"}, {})
    chosen = {each.student: each.path.relative_to(tmp_path).parts[0] for each in found.submissions}
    assert chosen == {"jdoe1": f"{second[BLACKBOARD]}_06_ddp.ipynb", "Jo_Doe_1234": second[D2L]}
    assert not found.missing


@pytest.mark.parametrize(
    ("paths", "refused"),
    [
        (["assignment_77_export/submission_1/a.ipynb"], "is what a learning platform packs a class into"),
        (["Submitted files/Jo/Lab 0/a.ipynb", "Working files/Jo/a.ipynb"], "is what a learning platform packs"),
        (["class/ada/a.ipynb", "class/emmy/a.ipynb"], "SUBMISSIONS='{folder}/class'"),
        (
            ["A/ada/00/a.ipynb", "A/emmy/00/a.ipynb", "B/kurt/00/a.ipynb", "B/alan/00/a.ipynb"],
            "the same lab in several",
        ),
        (["Lab 0/ada.ipynb", "Lab 0/emmy.ipynb"], "SUBMISSIONS='{folder}/Lab 0'"),
        (["00_getting_started/lab.ipynb"], "is named after a lab"),
        (["ada/00/a.ipynb", "ada/01/b.ipynb"], None),
        (["ada/old/a.ipynb", "ada/a.ipynb"], None),
        (["ada/1/a.ipynb", "ada/2/a.ipynb", "emmy/a.ipynb"], None),
        (["ada_00.ipynb", "emmy/1/a.ipynb", "emmy/2/a.ipynb"], None),
    ],
)
def test_a_class_is_not_taken_for_a_student(paths, refused, tmp_path):
    first, second = HANDED_OUT, json.loads((course.ROOT / "labs" / "01_tensors.ipynb").read_text())
    lay(tmp_path, {path: (second if path.endswith("b.ipynb") else first, 5) for path in paths})
    if refused is None:
        assert survey(tmp_path, {LAB}, {}).submissions
    else:
        with pytest.raises(SystemExit, match=re.escape(refused.format(folder=tmp_path))):
            survey(tmp_path, {LAB}, {})
