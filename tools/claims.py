"""docs/claims.md: claims about PyTorch that you meet elsewhere, with the cells of the course that test them.

The page is made from the lectures: `make build` writes it. A cell tests a claim if it has the tag `claim` and says
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
from dataclasses import dataclass
from pathlib import Path

from tools import course, source
from tools.course import ROOT, Chapter
from torchcourse.errors import CourseError

TAG, PAGE = "claim", Path("docs") / "claims.md"
FIELDS = ("text", "met", "here")

INTRODUCTION = """# Claims, tested

You meet these sentences in tutorials, in the documentation of computing centers, and in forum answers. Some were true
in an older version of PyTorch, some are half true, some never were. Each of them leads to a cell that you can run: its
output shows what PyTorch says on your machine. The last column sums up what the version used for this course says.

<!-- Written by `make build` from the cells with the tag `claim`: tools/claims.py says how. -->
"""


@dataclass(frozen=True)
class Claim:
    chapter: Chapter
    section: str  # the heading above the cell
    text: str
    met: str
    here: str

    @property
    def link(self) -> str:
        """The section of the lecture, as the website names it in an address."""
        return (
            f"[{self.chapter.number} · {self.section}](../notebooks/{self.chapter.name}.ipynb#{anchor(self.section)})"
        )


def anchor(heading: str) -> str:
    """A heading as the website names it in an address."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page(root: Path = ROOT) -> str:
    """docs/claims.md as the lectures have it now."""
    return INTRODUCTION + "\n" + "\n".join(table(claims(root), version(root))) + "\n"


def version(root: Path) -> str:
    """PyTorch and the version that the course is tested with: a new one asks for another look at each claim."""
    pinned = re.search(r"^torch==([\d.]+)", (root / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if not pinned:
        raise CourseError("constraints.txt pins no version of torch. Run `make lock`.")
    return f"PyTorch {pinned[1]}"


def table(found: list[Claim], pytorch: str) -> Iterator[str]:
    yield from (f"| claim | met in | tested in | what {pytorch} says |", "|:---|:---|:---|:---|")
    for claim in found:
        cells = (claim.text, claim.met, claim.link, claim.here)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def claims(root: Path = ROOT) -> list[Claim]:
    """All claims, in the order of the course. Raises CourseError for a cell that does not say what it tests."""
    return [claim for chapter in course.chapters(root) for claim in claims_of(chapter, root)]


def claims_of(chapter: Chapter, root: Path) -> Iterator[Claim]:
    path = root / "notebooks" / f"{chapter.name}.md"
    section = chapter.title
    for cell in source.read(path).cells if path.exists() else []:
        if cell.cell_type == "markdown":
            headings = re.findall(r"^#+ (.+)$", cell.source, re.MULTILINE)
            section = headings[-1] if headings else section
        said, tagged = cell.metadata.get("claim"), TAG in cell.metadata.get("tags", [])
        if said is None and not tagged:
            continue
        if not tagged or not isinstance(said, dict) or sorted(said) != sorted(FIELDS):
            raise CourseError(
                f"A cell below {section!r} in {path.name} does not say which claim it tests: it needs the tag {TAG!r} "
                f"and, in its metadata, `claim` with {', '.join(FIELDS)}."
            )
        yield Claim(chapter, section, **{name: " ".join(str(said[name]).split()) for name in FIELDS})
