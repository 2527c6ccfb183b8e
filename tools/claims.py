"""docs/claims.md: claims about PyTorch that you meet elsewhere, with the cells of the course that test them.

The page is made from the lectures: `make build` writes it. A cell that tests a claim has the tag `claim`, and says
three things in its metadata:

    ```{code-cell}
    ---
    tags: [claim]
    claim:
      text: '`model.half()` is the short way to mixed precision'
      met: forum answers
      here: One step of Adam makes the weights nan.
    ---
    ...
    ```

text: the claim, as people meet it. met: on which kind of page, without names. here: what this version of PyTorch says,
as one or two sentences that the output of the cell shows.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from tools import course, source
from tools.course import ROOT, Chapter
from torchcourse.errors import CourseError

PAGE = Path("docs") / "claims.md"
INTRODUCTION = """# Claims, tested

You meet these sentences in tutorials, in the documentation of computing centers, and in forum answers. Some were true
in an older version of PyTorch, some are half true, some never were. Each of them leads to a cell that you can run: its
output shows what PyTorch says on your machine. The last column sums up what the version used for this course says.

<!-- Written by `make build` from the cells with the tag `claim`: tools/claims.py says how. -->
"""


def page(root: Path = ROOT) -> str:
    """docs/claims.md as the lectures have it now."""
    pytorch = re.search(r"^torch==([\d.]+)", (root / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]
    # Its version: a new one asks for another look at each claim.
    head = ("claim", "met in", "tested in", f"what PyTorch {pytorch} says")
    return "\n".join([INTRODUCTION, *table(head, claims(root)), ""])


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|:---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def claims(root: Path = ROOT) -> list[tuple[str, ...]]:
    """All claims, in the order of the course. Raises CourseError for a cell that does not say what it tests."""
    rows = []
    for chapter, cell, section in cells(root):
        said = cell.metadata.get("claim", {})
        if said.keys() != {"text", "met", "here"} and (said or "claim" in cell.metadata.get("tags", [])):
            raise CourseError(
                f"A cell below {section!r} in {chapter.name}.md claims something without text, met, here."
            )
        if said:
            text, met, here = (" ".join(said[key].split()) for key in ("text", "met", "here"))
            rows.append((text, met, link(chapter, section), here))
    return rows


def cells(root: Path) -> Iterator[tuple[Chapter, NotebookNode, str]]:
    """Every cell of the lectures, with the heading that is above it when it begins."""
    for chapter in course.chapters(root):
        path, section = root / "notebooks" / f"{chapter.name}.md", chapter.title
        for cell in source.read(path).cells if path.exists() else []:
            yield chapter, cell, section
            if cell.cell_type == "markdown":
                section = [section, *re.findall(r"^#+ (.+)$", cell.source, re.MULTILINE)][-1]


def link(chapter: Chapter, section: str) -> str:
    """The section of a lecture, as the website names it in an address."""
    anchor = re.sub(r"[^\w\- ]", "", section.lower()).replace(" ", "-")
    return f"[{chapter.number} · {section}](../notebooks/{chapter.name}.ipynb#{anchor})"
