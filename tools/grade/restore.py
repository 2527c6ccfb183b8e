"""The notebook that is graded: the lab as it was handed out, with the student's code in it.

Set-up cell, checks and text come from our own copy, and what was deleted is there again: an edited or missing check
costs nothing and gains nothing. Code stays the student's: answers, changes to other cells (an import more in the first
one), and added cells (helper functions) behind the cell that they followed. Added text is left out, since a page with
foreign HTML in it is nothing to open.
"""

import copy
import functools

import nbformat
from nbformat import NotebookNode

from tools import build, course
from tools.grade.collect import Cell, is_ours
from tools.release import unreleased


def lab(chapter: str) -> NotebookNode:
    """The lab of a chapter ("01_tensors") as students get it, whatever has been typed into labs/ since."""
    return copy.deepcopy(_handed_out(chapter))


@functools.cache
def _handed_out(chapter: str) -> NotebookNode:
    return build.handed_out(*course.select([chapter]), "lab")


def restore(chapter: str, cells: list[Cell]) -> tuple[NotebookNode, list[str], list[str]]:
    """The lab of a chapter with a student's code; the sources that are theirs; notes of checks changed or deleted."""
    notebook = lab(chapter)
    ours = {cell.id for cell in notebook.cells}
    seen: dict[str, Cell] = {}
    behind: dict[str, list[Cell]] = {}  # our cell -> the student's own cells that follow it
    place = notebook.cells[0].id
    for cell in cells:
        if cell.name in ours and cell.name not in seen:
            place, seen[cell.name] = cell.name, cell
        elif cell.code and cell.source.strip():
            behind.setdefault(place, []).append(cell)

    restored, theirs, notes = [], [], []
    for cell in notebook.cells:
        mine = seen.get(cell.id)
        if is_ours(cell.id):
            if not mine:
                notes.append(f"{cell.id} was deleted")
            elif _plain(unreleased(mine.source)) != _plain(cell.source):
                notes.append(f"{cell.id} was changed")
        elif cell.cell_type == "code" and mine and mine.code and _plain(mine.source) != _plain(cell.source):
            cell.source = mine.source
            theirs.append(cell.source)
        restored.append(cell)
        for number, added in enumerate(behind.get(cell.id, [])):
            restored.append(nbformat.v4.new_code_cell(added.source, id=f"{cell.id[:48]}-added-{number}"))
            theirs.append(added.source)
    notebook.cells = restored
    return notebook, theirs, notes


def _plain(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())
