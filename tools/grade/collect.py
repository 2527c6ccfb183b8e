"""What lies in the folder of submissions: which student handed in which lab, and which files are none.

Three layouts are understood, also mixed:

    STUDENT/LAB/any.ipynb        nbgrader's; the folder may be its `submitted/` or the one around it
    STUDENT/any.ipynb            a folder for each student; of Moodle's "Name_123_assignsubmission_file_" the name
    STUDENT_LAB.ipynb            plain files; Canvas' "name_123_456_LAB-1.ipynb" too

Which lab it is, the notebook says itself: by the names of its cells, whatever the file is called. Nothing here executes
or trusts anything: of a notebook only cells of the expected form are kept, and links are not followed.
"""

import functools
import json
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from tools import course
from tools.course import Chapter

LARGEST = 20 * 2**20  # bytes of a notebook


@dataclass
class Cell:
    """A cell as the student left it. `name` is its id: "answer-slope", "check-slope", "setup", or anything else."""

    name: str
    source: str
    code: bool


@dataclass
class Submission:
    """One notebook of one student."""

    student: str
    chapter: Chapter
    path: Path
    changed: float  # when: of two for the same lab the newer one counts
    cells: list[Cell] = field(repr=False, default_factory=list)


class Unreadable(Exception):
    """A file is no submission: the message says why."""


def collect(folder: Path, chapters: set[str]) -> tuple[list[Submission], dict[Path, str]]:
    """All submissions in a folder, and what else lies there with the reason why it is none.

    chapters: names of those to grade; a lab of another chapter is passed over in silence.
    Raises SystemExit if there is no such folder.
    """
    if not folder.is_dir():
        raise SystemExit(f"There is no folder {folder}. Say where the submissions are: make grade SUBMISSIONS=folder")
    if (folder / "submitted").is_dir():
        folder = folder / "submitted"
    found: dict[tuple[str, str], Submission] = {}
    refused: dict[Path, str] = {}
    for path in sorted(_files(folder, refused)):
        try:
            submission = read(path, folder)
        except Unreadable as reason:
            refused[path] = str(reason)
            continue
        key = (submission.student, submission.chapter.name)
        first, second = sorted((submission, found.get(key, submission)), key=lambda each: (each.changed, each.path))
        found[key] = second
        if first is not second:
            refused[first.path] = f"{second.path} is newer: the same student, the same lab"
    wanted = [each for each in found.values() if each.chapter.name in chapters]
    return sorted(wanted, key=lambda each: (each.chapter.name, each.student)), refused


def _files(folder: Path, refused: dict[Path, str]) -> list[Path]:
    """The plain files below a folder, at most three levels deep; folders without any are noted."""
    files = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "__")) or path.name == "timestamp.txt":
            continue  # .ipynb_checkpoints, __MACOSX, nbgrader's own
        if path.is_symlink():
            refused[path] = "a link, and links are not followed"
        elif path.is_dir():
            inside = _files(path, refused)
            files += inside
            if not inside and not any(path in each.parents for each in refused):
                refused[path] = "an empty folder"
        elif not stat.S_ISREG(path.lstat().st_mode):
            refused[path] = "not a file"
        elif path.suffix != ".ipynb":
            refused[path] = "not a notebook (.ipynb)"
        else:
            files.append(path)
    return files


def read(path: Path, folder: Path) -> Submission:
    """The submission in a file below `folder`. Raises Unreadable."""
    size = path.stat().st_size
    if size > LARGEST:
        raise Unreadable(f"{size / 2**20:.0f} MB large, and a lab has less than {LARGEST / 2**20:.0f}")
    try:
        content = json.loads(path.read_bytes())
        cells = [_cell(each) for each in content["cells"]]
    except (ValueError, RecursionError):
        raise Unreadable("not a notebook: its content is no JSON; was the upload cut off?") from None
    except (KeyError, TypeError, AttributeError):
        raise Unreadable("JSON, but not a notebook of format 4") from None
    chapter = _chapter({cell.name for cell in cells})
    student = _student(path.relative_to(folder), chapter)
    return Submission(student, chapter, path, path.stat().st_mtime, cells)


def _cell(cell: dict) -> Cell:
    """The id stands in the cell; Colab keeps it in the metadata; nbgrader has a name of its own for graded cells."""
    metadata = cell.get("metadata") or {}
    names = (cell.get("id"), metadata.get("id"), (metadata.get("nbgrader") or {}).get("grade_id"))
    ours = [name for name in names if isinstance(name, str) and name.startswith(("answer-", "check-"))]
    name = next((name for name in (*ours, *names) if isinstance(name, str)), "")
    source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
    # A lone half of a surrogate pair is valid JSON, but no text that could be written to a file.
    return Cell(name, source.encode("utf-8", "replace").decode(), cell["cell_type"] == "code")


def _chapter(names: set[str]) -> Chapter:
    """The chapter whose answer and check cells are there."""
    best = max(course.chapters(), key=lambda chapter: len(names & _graded_cells(chapter.name)))
    if not names & _graded_cells(best.name):
        raise Unreadable("a notebook, but none of the course's labs: no answer cell of one is in it")
    return best


@functools.cache
def _graded_cells(chapter: str) -> set[str]:
    content = json.loads((course.ROOT / "labs" / f"{chapter}.ipynb").read_text())
    return {cell["id"] for cell in content["cells"] if cell["id"].startswith(("answer-", "check-"))}


def _student(path: Path, chapter: Chapter) -> str:
    """The student's name from the path: of the outermost folder, else of the file without the lab's name."""
    if len(path.parts) > 1:
        name = re.sub(r"_\d+_assignsubmission_.*$", "", path.parts[0])
    else:
        lab = rf"(^|[ _-]+)(lab[ _-]*)?({chapter.name}|{chapter.slug}|{chapter.number})\b.*$"
        name = re.sub(lab, "", path.stem, flags=re.IGNORECASE)
        name = re.sub(r"(_(late|\d+))+$", "", name, flags=re.IGNORECASE)
    name = re.sub(r"[^\w@.-]+", "_", name).strip("._-")[:80]
    if not name:
        raise Unreadable("whose is it? Call it STUDENT_LAB.ipynb, or put it into a folder named after the student")
    return name
