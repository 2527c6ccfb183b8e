"""The text that chapter 14 trains on: prose and code of the lectures before it, as they are at a release.

python -m tools.corpus      writes src/torchcourse/data/lectures.txt.xz

A snapshot, not written with every build: losses stay comparable while the lectures go on changing.
"""

import lzma
import re

from tools import build, course
from tools.course import ROOT
from torchcourse.data.corpus import FILE, MARK

LAST = "13"  # the last chapter in it
TAGS = re.compile(r"</?\w[^>\n]*>")
IMAGES, LINKS = re.compile(r"!\[[^\]]*\]\([^)]*\)"), re.compile(r"\[([^\]]*)\]\([^)]*\)")
TABLE = re.compile(r"^\|.*\n?", re.MULTILINE)


def prose(markdown: str) -> str:
    """Paragraphs of one line each, without tables, pictures, tags, and the addresses of links."""
    text = LINKS.sub(r"\1", TAGS.sub("", IMAGES.sub("", TABLE.sub("", markdown))))
    parts = re.split(r"(```.*?```|\$\$.*?\$\$)", text, flags=re.DOTALL)
    parts[::2] = [re.sub(r"(?<=\S)[ \t]*\n(?!\s|#|[*\->] |\d+\. )", " ", part) for part in parts[::2]]
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip()


def chapter(each: course.Chapter) -> str:
    """A chapter's lecture, or its lab without answers if it has no lecture; code between fences."""
    cells = build.edition(each, "lecture" if each.lecture_minutes else "lab").cells[2:]  # not title and set-up
    texts = [f"# {each.title}", each.promise]
    for cell in cells:
        texts.append(prose(cell.source) if cell.cell_type == "markdown" else f"```python\n{cell.source.strip()}\n```")
    return "\n\n".join(filter(None, texts)) + "\n\n"


def corpus() -> str:
    """All chapters, each after a line with its number."""
    return "".join(f"{MARK}{each.number}\n{chapter(each)}" for each in course.chapters() if each.number <= LAST)


def main() -> None:
    text = corpus()
    path = ROOT / "src" / "torchcourse" / "data" / FILE
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(text.encode()):,} bytes of text, {path.stat().st_size:,} in {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
