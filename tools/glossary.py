"""docs/glossary.md: the terms of the course, each with the sentence that defines it.

The page is made from the lectures: `make build` writes it. A term is marked where it is defined:

    One pass through all training images is an <dfn>epoch</dfn>.

`dfn` is HTML's own element for that, and browsers show it in italics. The glossary takes the whole sentence, and the
one before it where the sentence points back to it ("This is ...") or is too short to say what it means.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tools.claims import cells, link, table
from tools.course import ROOT

PAGE = Path("docs") / "glossary.md"
MARK = re.compile(r"<dfn>(.*?)</dfn>")
END = re.compile(r"(?<=[.!?])\)?\s+(?=[A-Z`*(<◇])")  # between two sentences
POINTS_BACK = re.compile(r"\(?(This|That|These|Those|It|They|Its|Their|Together|So|Such)\b|.*\b(that|not):")

INTRODUCTION = """# Glossary

The terms of this course in alphabetical order, each with the sentence that defines it and the section where you find
it.

<!-- Written by `make build` from the terms that the lectures mark: tools/glossary.py says how. -->
"""


def page(root: Path = ROOT) -> str:
    """docs/glossary.md as the lectures have it now."""
    rows = sorted(terms(root), key=lambda row: (row[0].lower(), row[2]))
    rows = [(f"**{name}**", meaning, where) for name, meaning, where in rows]
    return "\n".join([INTRODUCTION, *table(("term", "what it means", "defined in"), rows), ""])


def terms(root: Path = ROOT) -> Iterator[tuple[str, str, str]]:
    """Each marked term, what it means in Markdown with the term in bold, and where it is defined."""
    for chapter, cell, section in cells(root):
        if cell.cell_type != "markdown":
            continue
        for block in re.split(r"\n\s*\n|\n(?=\s*[-#|])", cell.source):
            heading = re.match(r"#+ (.+)", block)
            section = heading[1] if heading else section
            sentences = END.split(" ".join(block.split()).removeprefix("- "))
            for before, sentence in zip(["", *sentences], sentences, strict=False):
                for mark in MARK.finditer(sentence):
                    back = before and (POINTS_BACK.match(sentence) or len(sentence.split()) < 7)
                    only_first = mark.start() == 0 and mark[1][1:].islower()  # a capital that the sentence asks for
                    said = f"{before} {sentence}" if back else sentence
                    yield mark[1].lower() if only_first else mark[1], bold(said, mark[1]), link(chapter, section)


def bold(sentence: str, name: str) -> str:
    """The sentence as Markdown: the term in bold, other terms as they are, links without their address."""
    sentence = MARK.sub(lambda mark: f"**{mark[1]}**" if mark[1] == name else mark[1], sentence)
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", sentence)
