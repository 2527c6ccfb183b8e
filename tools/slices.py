"""A slice: the release of some chapters. Its links to the others lead to the published course, and BEFORE.md, one page,
has what these need of those: from course.toml, from the terms that the lectures define, and from the package.
"""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

import torchcourse
from tools import build, course, glossary
from tools.claims import table
from tools.course import ROOT, Chapter

PAGE = "BEFORE.md"
LINK = re.compile(r"\]\((?:\.\./)?(?:(notebooks|labs)/)?(\w+\.ipynb)")


def online(path: str, root: Path = ROOT) -> str:
    """Where a notebook of the course is read: on its website; if it has none, in the students' repository."""
    if (home := course.home(root)) != "/":
        return home + path.replace(".ipynb", ".html")
    return f"{course.students(root)}/blob/v{torchcourse.__version__}/{path}"


def outward(text: str, folder: str, kept: set[str], root: Path = ROOT) -> str:
    """Markdown from a folder of the tree: its links to notebooks that are not kept lead to the published ones."""

    def target(match: re.Match) -> str:
        path = f"{match[1] or folder}/{match[2]}"
        return match[0] if path in kept else f"]({online(path, root)}"

    return LINK.sub(target, text)


def before(chosen: list[Chapter], books: dict[str, NotebookNode], root: Path = ROOT) -> str:
    """BEFORE.md for these chapters. books: their notebooks, by path."""
    lines = ["# Before you begin", "", "You have a part of a course. This page has what it needs of the rest.", ""]
    lines += [f"- **{chapter.number} · {chapter.title}** needs: {chapter.needs}" for chapter in chosen]
    lines += ["", "If a line below is new to you, follow the link above it, to the chapter that teaches it.", ""]
    for chapter in needed(chosen, root):
        lines += [f"[**{chapter.number} · {chapter.title}**]({online(chapter.first, root)}): you can", ""]
        lines += [*(f"- {goal}" for goal in chapter.goals), ""]
    cells = [cell for book in books.values() for cell in book.cells]
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    if rows := list(terms(chosen, text, root)):
        lines += ["## Terms of earlier chapters", "", *table(("term", "what it means", "defined in"), rows), ""]
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code" and build.is_python(cell.source))
    lines += ["## Modules of the course's package, in `src/torchcourse`", ""]
    for name in (name for layer in course.LAYERS.values() for name in layer.split()):
        if f"torchcourse.{name}" in build.imported(code):
            lines.append(f"- `{name}`: {importlib.import_module(f'torchcourse.{name}').__doc__.splitlines()[0]}")
    return "\n".join([*lines, ""])


def needed(chosen: list[Chapter], root: Path = ROOT) -> list[Chapter]:
    """The other chapters that course.toml says these need: "Chapters 00 to 05"."""
    said = " ".join(chapter.needs for chapter in chosen)
    for low, high in re.findall(r"(\d\d) to (\d\d)", said):
        said += "".join(f" {number:02}" for number in range(int(low), int(high)))
    return [c for c in course.chapters(root) if c.number in re.findall(r"\b\d\d\b", said) and c not in chosen]


def terms(chosen: list[Chapter], text: str, root: Path = ROOT) -> Iterator[tuple[str, str, str]]:
    """Rows of the glossary: the terms in this text that chapters before these define."""
    here = [chapter.number for chapter in chosen]
    for name, meaning, where in glossary.terms(root):
        number, word = where[1:3], rf"(?i)(?<!\w){re.escape(name)}(?:s|es)?(?!\w)"
        if number not in here and number < max(here) and re.search(word, text):
            yield f"**{name}**", meaning, outward(where, "", set(), root)
