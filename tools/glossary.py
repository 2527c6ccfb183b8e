"""docs/glossary.md: the terms of the course, each with the sentence that defines it.

The page is made from the lectures: `make build` writes it. A term is marked where it is defined:

    One pass through all training images is an <dfn>epoch</dfn>.

`dfn` is HTML's own element for that, and browsers show it in italics. The glossary takes the whole sentence, and the
one before it where the sentence points back to it ("This is ...") or is too short to say what it means.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import course, source
from tools.claims import anchor
from tools.course import ROOT, Chapter
from torchcourse.errors import CourseError

PAGE = Path("docs") / "glossary.md"
MARK = re.compile(r"<dfn>(.*?)</dfn>")
END = re.compile(r"(?<=[.!?])\)?\s+(?=[A-Z`*(<◇])")  # between two sentences
POINTS_BACK = re.compile(r"\(?(This|That|These|Those|It|They|Its|Their|Together|So|Such)\b|.*\b(that|not):")

INTRODUCTION = """# Glossary

The terms of this course in alphabetical order, each with the sentence that defines it and the section where you find
it.

<!-- Written by `make build` from the terms that the lectures mark: tools/glossary.py says how. -->
"""


@dataclass(frozen=True)
class Term:
    chapter: Chapter
    section: str  # the heading above the definition
    name: str
    meaning: str  # Markdown, with the term in bold

    @property
    def link(self) -> str:
        """The section of the lecture, as the website names it in an address."""
        page = f"../notebooks/{self.chapter.name}.ipynb#{anchor(self.section)}"
        return f"[{self.chapter.number} · {self.section}]({page})"


def page(root: Path = ROOT) -> str:
    """docs/glossary.md as the lectures have it now."""
    return INTRODUCTION + "\n" + "\n".join(table(terms(root))) + "\n"


def table(found: list[Term]) -> Iterator[str]:
    yield from ("| term | what it means | defined in |", "|:---|:---|:---|")
    for term in sorted(found, key=lambda term: (term.name.lower(), term.chapter.number)):
        cells = (f"**{term.name}**", term.meaning, term.link)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def terms(root: Path = ROOT) -> list[Term]:
    """All marked terms, in the order of the course. Raises CourseError for one that a lecture defines twice."""
    found = [term for chapter in course.chapters(root) for term in terms_of(chapter, root)]
    known = set()
    for term in found:
        if (term.chapter.name, term.name) in known:
            raise CourseError(f"Lecture {term.chapter.name} defines {term.name!r} twice. Mark one of the two places.")
        known.add((term.chapter.name, term.name))
    return found


def terms_of(chapter: Chapter, root: Path) -> Iterator[Term]:
    path = root / "notebooks" / f"{chapter.name}.md"
    section = chapter.title
    for cell in source.read(path).cells if path.exists() else []:
        if cell.cell_type != "markdown":
            continue
        for block in re.split(r"\n\s*\n|\n(?=\s*[-#|])", cell.source):
            heading = re.match(r"#+ (.+)", block)
            section = heading[1] if heading else section
            sentences = END.split(" ".join(block.split()).removeprefix("- "))
            for place, sentence in enumerate(sentences):
                for mark in MARK.finditer(sentence):
                    back = place and (POINTS_BACK.match(sentence) or len(sentence.split()) < 7)
                    said = " ".join(sentences[place - 1 : place + 1] if back else [sentence])
                    only_first = mark.start() == 0 and mark[1][1:].islower()  # a capital that the sentence asks for
                    yield Term(chapter, section, mark[1].lower() if only_first else mark[1], bold(said, mark[1]))


def bold(sentence: str, name: str) -> str:
    """The sentence as Markdown: the term in bold, other terms as they are, links without their address."""
    sentence = MARK.sub(lambda mark: f"**{mark[1]}**" if mark[1] == name else mark[1], sentence)
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", sentence)
