"""Text to train on: what the lectures of this course say, or a file of your own."""

import lzma
import os
from pathlib import Path
from typing import NamedTuple

from torchcourse.errors import CourseError

FILE = "lectures.txt.xz"  # written by tools/corpus.py
MARK = "\x1e"  # the "record separator" of ASCII begins each chapter, followed by its number
HELD_OUT = ("12", "13")
TEST_SHARE = 0.1


class Text(NamedTuple):
    """What to train on, and what to measure on: the model never learns from `test`."""

    train: str
    test: str


def text(path: str | os.PathLike | None = None) -> Text:
    """The course's own text, about 700 kB, or the text file at `path`, in UTF-8.

    Held out for the test are the last chapters of the course, or the last tenth of your file. Raises CourseError for a
    file that is missing, too short to learn from (under 10,000 characters), or not UTF-8.
    """
    if path is None:
        packed = (Path(__file__).parent / FILE).read_bytes()
        chapters = lzma.decompress(packed).decode().split(MARK)[1:]
        return Text(
            *("".join(c.partition("\n")[2] for c in chapters if (c[:2] in HELD_OUT) == held) for held in (0, 1))
        )
    try:
        whole = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CourseError(f"There is no file {Path(path).absolute()}.") from None
    except (UnicodeDecodeError, OSError) as error:
        raise CourseError(f"{path} can't be read as a text in UTF-8: {error}.") from None
    if len(whole) < 10_000:
        raise CourseError(f"{path} has {len(whole):,} characters; a model needs at least 10,000 to learn from.")
    cut = int(len(whole) * (1 - TEST_SHARE))
    return Text(whole[:cut], whole[cut:])
