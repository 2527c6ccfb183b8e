"""The notebook that is graded: the lab as it was handed out, with the student's code in it.

Set-up cell, checks and text come from our own copy, and what was deleted is there again: an edited or missing check
costs nothing and gains nothing. Code stays the student's: answers, changes to other cells (an import more in the first
one), and added cells (helper functions) behind the cell that they followed. Added text is left out, since a page with
foreign HTML in it is nothing to open.

`recognized` finds out which of our cells a student's cell is: many editors, platforms, and tools rename cells.
"""

import copy
import functools
import re
from dataclasses import dataclass

import nbformat
from nbformat import NotebookNode

from tools import build, course
from tools.release import unreleased

DEFINED = re.compile(r"^(?:async[ \t]+def|def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", re.MULTILINE)
WRITTEN = re.compile(r"\s*%%(?:writefile|file)[ \t]+(?:-a[ \t]+)?(\S+)")


@dataclass
class Cell:
    """A cell as the student left it. `name` is that of our cell which it is a version of: "answer-slope", "setup"."""

    name: str
    source: str
    code: bool


def lab(chapter: str) -> NotebookNode:
    """The lab of a chapter ("01_tensors") as students get it, whatever has been typed into labs/ since."""
    return copy.deepcopy(_handed_out(chapter))


@functools.cache
def _handed_out(chapter: str) -> NotebookNode:
    return build.handed_out(*course.select([chapter]), "lab")


def exercise(cell: NotebookNode) -> str:
    """The exercise that a cell of ours checks; empty for every other cell."""
    ours = cell.metadata.get("nbgrader", {})
    return ours["grade_id"].removeprefix("check-") if ours.get("grade") else ""


@dataclass(frozen=True)
class Lab:
    """What the cells of a lab are recognized by."""

    cells: dict[str, NotebookNode]  # name -> our cell
    given: dict[str, list[str]]  # its code, without whitespace -> the names of cells with that code
    checks: dict[str, str]  # the name of an answer -> of its check
    answers: dict[str, str]  # what a check asks for (a function, a file) -> the name of the answer that defines it

    def defines(self, source: str) -> list[str]:
        """The answers that a cell gives."""
        return [self.answers[each] for each in _defined(source) if each in self.answers]


@functools.cache
def known(chapter: str) -> Lab:
    """What the cells of a chapter's lab are recognized by."""
    ours, given, checks, answers = lab(chapter).cells, {}, {}, {}
    waiting = None
    for cell in ours:
        if cell.cell_type == "code":
            given.setdefault(_squeezed(cell.source), []).append(cell.id)
        if cell.metadata.get("nbgrader", {}).get("solution"):  # where an answer goes
            waiting = cell
        elif exercise(cell) and waiting:
            asked = re.findall(r"\w+", cell.source)
            for each in _defined(waiting.source):
                if each in asked or WRITTEN.match(waiting.source):
                    answers[each] = waiting.id
            checks[waiting.id], waiting = cell.id, None
    return Lab({cell.id: cell for cell in ours}, given, checks, answers)


def recognized(chapter: str, cells: list[Cell]) -> list[Cell]:
    """A student's cells, each named after the cell of ours that it is a version of; the student's own have no name.

    A cell goes by the name that it came with. If that was lost, it goes by what is in it: the code that we handed out,
    or the answer that a check asks for. Code right before a check that has no other answer is its answer.
    Code that was turned into text becomes code again if it is an answer; all other text comes out empty.
    """
    ours = known(chapter)
    free = dict(ours.cells)
    found = [""] * len(cells)

    def take(number: int, names: list[str]) -> None:
        name = next((name for name in names if name in free), "")
        if name and not found[number]:
            found[number] = name
            del free[name]

    for number, cell in enumerate(cells):
        mine = ours.cells.get(cell.name)
        if mine and (mine.cell_type == "code" or not cell.code):  # code in a cell of text is the student's own
            take(number, [cell.name])
    for number, cell in enumerate(cells):
        if cell.code:
            take(number, ours.given.get(_squeezed(cell.source), ["setup"] if _is_setup(cell.source, ours) else []))
    for code in (True, False):
        for number, cell in enumerate(cells):
            if cell.code is code:
                take(number, ours.defines(cell.source))
    for answer, check in ours.checks.items():
        number = found.index(check) - 1 if check in found else -1
        while number >= 0 and not cells[number].code:
            number -= 1
        if number >= 0 and cells[number].source.strip():
            take(number, [answer])

    named = []
    for name, cell in zip(found, cells, strict=True):
        code = cell.code or name in ours.checks
        if name or not _is_setup(cell.source, ours):  # a second set-up cell is nobody's code
            named.append(Cell(name, cell.source if code else "", code))
    return named


def answered(chapter: str, cells: list[Cell]) -> int:
    """How many cells (see `recognized`) hold an answer other than the one that was handed out."""
    ours = known(chapter)
    given = {name: _plain(ours.cells[name].source) for name in ours.checks}
    return sum(
        _plain(cell.source) not in ("", given[cell.name])
        if cell.name in given
        else not cell.name and bool(ours.defines(cell.source))
        for cell in cells
    )


def restore(chapter: str, cells: list[Cell]) -> tuple[NotebookNode, list[str], list[str]]:
    """The lab of a chapter with a student's code; the sources that are theirs; notes of checks changed or deleted.

    cells: as `recognized` returns them
    """
    notebook, ours = lab(chapter), known(chapter)
    seen = {cell.name: cell for cell in cells if cell.name}
    behind: dict[str, list[str]] = {}  # our cell -> the student's own cells that follow it
    place = notebook.cells[0].id
    for cell in cells:
        if cell.name:
            place = cell.name
        elif cell.code and cell.source.strip():
            behind.setdefault(place, []).append(cell.source)
    if "setup" in seen:  # what follows our lines in that cell is the student's
        below = unreleased(seen["setup"].source).partition(ours.cells["setup"].source.rstrip())[2]
        behind["setup"] = [source for source in (below, *behind.get("setup", [])) if source.strip()]
    elsewhere = {answer for cell in cells for answer in ours.defines(cell.source) if answer != cell.name}

    restored, theirs, notes = [], [], []

    def add(sources: list[str]) -> None:
        for source in sources:
            restored.append(nbformat.v4.new_code_cell(source, id=f"added-{len(theirs)}"))
            theirs.append(source)

    for cell in notebook.cells:
        mine = seen.get(cell.id)
        if cell.id == "setup" or exercise(cell):
            if not mine:
                notes.append(f"{cell.id} was deleted")
            elif _squeezed(mine.source) != _squeezed(cell.source):
                notes.append(f"{cell.id} was changed")
                # An answer may have been written into the cell of its check.
                add([mine.source] if exercise(cell) and mine.source.strip() else [])
        elif cell.id in elsewhere and (not mine or _plain(mine.source) == _plain(cell.source)):
            cell.source = ""  # what we handed out would replace the answer in another cell
        elif cell.cell_type == "code" and mine and mine.code and _plain(mine.source) != _plain(cell.source):
            cell.source = mine.source
            theirs.append(cell.source)
        restored.append(cell)
        add(behind.get(cell.id, []))
    notebook.cells = restored
    return notebook, theirs, notes


def _defined(source: str) -> list[str]:
    """The file that a cell writes, or the names that it defines."""
    if written := WRITTEN.match(source):
        return [written[1]]
    return [function or variable for function, variable in DEFINED.findall(source)]


def _is_setup(source: str, ours: Lab) -> bool:
    """Tell whether code is a set-up cell, perhaps of an earlier release: by its first line."""
    title = ours.cells["setup"].source.partition("\n")[0]
    return source.lstrip().startswith(title)


def _plain(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def _squeezed(source: str) -> str:
    """Code without whitespace, which editors change, without a release's address and the comment on a check."""
    return "".join(unreleased(source).split()).removeprefix("".join(build.RERUN.split()))
