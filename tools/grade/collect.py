"""What is in the folder of submissions: which student handed in which lab, and which files are not submissions.

Three layouts are understood, also mixed:

    STUDENT/LAB/any.ipynb        nbgrader's; the folder may be its `submitted/` or the one around it
    STUDENT/any.ipynb            a folder for each student, such as Moodle's "Name_123_assignsubmission_file_"
    STUDENT_LAB.ipynb            plain files; Canvas' "name_123_456_LAB-1.ipynb" too

A learning platform's number stays with the name: two students may share a name. The notebook itself says which lab it
is, by the names of its cells, whatever the file is called. Nothing here executes or trusts anything: only cells of the
expected form are kept, links are not followed, and sizes, depths and counts are bounded. A file that cannot be used
costs its student a row without points, and has no effect on anyone else.
"""

import functools
import hashlib
import json
import os
import re
import stat
import unicodedata
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from tools import course
from tools.course import Chapter

LARGEST, PARTS = 20 * 2**20, 2_000_000  # bytes of a notebook, outputs included; lists and objects in it
CELLS, CELL, CODE = 500, 100_000, 500_000  # code cells of a notebook; characters of one; characters of all
MOST, DEEPEST, NOTEBOOKS = 1000, 4, 50  # of a student's folder: entries looked at, levels, notebooks read

MOODLE = re.compile(r"(?P<name>.+?)_(?P<number>\d{1,20})_assignsubmission_.*", re.DOTALL)
CANVAS = re.compile(r"(?P<name>.+?)(_late)?_(?P<number>\d{2,20})_\d{2,}(_.*)?", re.DOTALL | re.IGNORECASE)


@dataclass
class Cell:
    """A cell as the student left it. `name` is its id: "answer-slope", "check-slope", "setup", or anything else."""

    name: str
    source: str
    code: bool


def is_ours(name: str) -> bool:
    """Tell whether a code cell is ours alone: the set-up cell or a check."""
    return name == "setup" or name.startswith("check-")


@dataclass(frozen=True)
class Owner:
    """The student that a path names."""

    name: str  # as it is on the disk
    number: str = ""  # the learning platform's

    @property
    def identity(self) -> str:
        """What tells two students apart: any difference on the disk counts."""
        return f"{self.name}\0{self.number}"

    @property
    def readable(self) -> str:
        """The name for people. Bytes that are not UTF-8 come from archives packed on another system."""
        raw = os.fsencode(self.name)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = raw.decode("cp437" if re.search(rb"[\x80-\x9f]", raw) else "latin-1")
        return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass
class Submission:
    """One notebook of one student."""

    student: str  # the name of the student's folders, in the gradebook and in the tables; unique
    chapter: Chapter
    path: Path
    changed: float  # when: of two for the same lab the newer one counts
    cells: list[Cell] = field(repr=False, default_factory=list)
    owner: Owner = field(default_factory=lambda: Owner(""))

    @property
    def lab(self) -> str:
        return self.chapter.name


@dataclass
class Missing:
    """A student who handed in nothing that can be graded, but did hand in something."""

    student: str
    lab: str  # empty if the path does not say
    path: Path
    reason: str
    owner: Owner


@dataclass
class Collected:
    """What is in a folder. `refused` says of each other file why it is not graded."""

    submissions: list[Submission]
    missing: list[Missing]
    refused: dict[Path, str]


class Unreadable(Exception):
    """A file is not a submission: the message says why."""


def collect(folder: Path, chapters: set[str]) -> tuple[list[Submission], dict[Path, str]]:
    """All submissions in a folder, and each other file with the reason why it is not one. See `survey`."""
    found = survey(folder, chapters, {})
    return found.submissions, found.refused


def survey(folder: Path, chapters: set[str], roster: dict[str, str]) -> Collected:
    """Everything in a folder of submissions.

    chapters: names of those to grade; a lab of another chapter is passed over in silence.
    roster: name -> identity of the students of earlier runs, whose names stay theirs; new ones are added to it.
    Raises SystemExit if the folder cannot be read.
    """
    try:
        if not folder.is_dir():
            raise SystemExit(
                f"There is no folder {folder}. Say where the submissions are: make grade SUBMISSIONS=folder"
            )
        if (folder / "submitted").is_dir():
            folder = folder / "submitted"
        tops = sorted(path for path in folder.iterdir() if not _is_clutter(path))
    except OSError as error:
        raise SystemExit(f"The folder {folder} cannot be read: {error.strerror}.") from None

    refused: dict[Path, str] = {}
    read_in: list[Submission] = []
    for top in tops:
        for path in _notebooks(top, refused):
            try:
                read_in.append(read(path, folder))
            except Unreadable as reason:
                refused[path] = str(reason)

    older: dict[Path, str] = {}
    found: dict[tuple[str, str], Submission] = {}
    for each in sorted(read_in, key=lambda each: (each.owner.identity, each.changed, each.path)):
        each.student = _unique_name(each.owner, roster)
        before = found.get((each.student, each.lab))
        if before:
            older[before.path] = f"{each.path} is newer: the same student, the same lab"
        found[each.student, each.lab] = each
    wanted = [each for each in found.values() if each.lab in chapters]
    return Collected(
        sorted(wanted, key=lambda each: (each.lab, each.student)),
        _missing(folder, refused, _labs_of(found), chapters, roster),
        refused | older,
    )


def _labs_of(found: dict[tuple[str, str], Submission]) -> dict[str, set[str]]:
    labs: dict[str, set[str]] = {}
    for student, lab in found:
        labs.setdefault(student, set()).add(lab)
    return labs


def _missing(
    folder: Path, refused: dict[Path, str], labs: dict[str, set[str]], chapters: set[str], roster: dict[str, str]
) -> list[Missing]:
    """Who has nothing but refused files for a lab; if no path says for which one, who has nothing else at all."""
    missing = []
    told = [(path, _lab_of(path.relative_to(folder))) for path in sorted(refused)]
    for path, lab in sorted(told, key=lambda each: (not each[1], each[0].suffix.lower() != ".ipynb")):
        owner = _owner(path.relative_to(folder), None, _is_folder(path))
        if owner is None or (lab and lab not in chapters):
            continue
        student = _unique_name(owner, roster)
        if lab in labs.setdefault(student, set()) or (labs[student] and not lab):
            continue
        labs[student].add(lab)
        missing.append(Missing(student, lab, path, refused[path], owner))
    return missing


def _is_clutter(path: Path) -> bool:
    """Files that systems, Jupyter and nbgrader leave everywhere."""
    hidden = path.name.startswith(".") and (path.suffix != ".ipynb" or path.name.startswith("._"))
    return hidden or path.name in ("__MACOSX", "__pycache__", "timestamp.txt")


def _is_folder(path: Path) -> bool:
    """Whether an entry is a student's folder rather than a file, as far as we may look."""
    try:
        return not stat.S_ISREG(path.lstat().st_mode) and path.suffix != ".ipynb"
    except OSError:
        return not path.suffix


def _notebooks(top: Path, refused: dict[Path, str]) -> list[Path]:
    """The notebooks in one entry of the folder of submissions, those on the upper levels first."""
    files = []
    waiting = deque([(top, 0)])
    for _ in range(MOST):
        if not waiting:
            return files
        path, depth = waiting.popleft()
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                refused[path] = "a link, and links are not followed"
            elif stat.S_ISDIR(mode):
                inside = sorted(each for each in path.iterdir() if not _is_clutter(each))
                if not inside:
                    refused[path] = "an empty folder"
                elif depth == DEEPEST:
                    refused[path] = f"more than {DEEPEST} levels down, and folders there are not opened"
                else:
                    waiting += [(each, depth + 1) for each in inside]
            elif not stat.S_ISREG(mode):
                refused[path] = "not a file"
            elif path.suffix.lower() != ".ipynb":
                refused[path] = "not a notebook (.ipynb)"
            elif len(files) == NOTEBOOKS:
                refused[path] = f"the student's folder has {NOTEBOOKS} other notebooks, and no more are read"
            else:
                files.append(path)
        except OSError as error:
            refused[path] = f"cannot be read: {error.strerror}"
    if waiting:
        refused[waiting[0][0]] = f"one of more than {MOST} files of a student: this one and the rest are skipped"
    return files


def read(path: Path, folder: Path) -> Submission:
    """The submission in a file below `folder`. Raises Unreadable."""
    try:
        size, changed = path.stat().st_size, path.stat().st_mtime
        if size > LARGEST:
            raise Unreadable(f"{size / 2**20:.0f} MB large, and a lab has less than {LARGEST / 2**20:.0f}")
        text = path.read_bytes()
        if text.count(b"[") + text.count(b"{") > PARTS:
            raise Unreadable(f"more than {PARTS:,} lists and objects, and no lab has that many")
        content = json.loads(text)
        if len(content["cells"]) > 10 * CELLS:
            raise Unreadable(f"{len(content['cells']):,} cells, and no lab has that many")
        cells = [_cell(each) for each in content["cells"]]
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError, MemoryError):
        raise Unreadable("not a notebook: its content is no JSON; was the upload cut off?") from None
    except (KeyError, TypeError, AttributeError):
        raise Unreadable("JSON, but not a notebook of format 4") from None
    _refuse_excess(cells)
    chapter = _chapter({cell.name for cell in cells})
    owner = _owner(path.relative_to(folder), chapter, False)
    if owner is None:
        raise Unreadable("whose is it? Call it STUDENT_LAB.ipynb, or put it into a folder named after the student")
    return Submission("", chapter, path, changed, cells, owner)


def _cell(cell: dict) -> Cell:
    """The id is in the cell; Colab keeps it in the metadata; nbgrader has its own name for graded cells."""
    metadata = _dict(cell.get("metadata"))
    names = (cell.get("id"), metadata.get("id"), _dict(metadata.get("nbgrader")).get("grade_id"))
    ours = [name for name in names if isinstance(name, str) and name.startswith(("answer-", "check-"))]
    name = next((name for name in (*ours, *names) if isinstance(name, str)), "")
    code = cell["cell_type"] == "code"
    source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
    # Text is not graded. A lone half of a surrogate pair is valid JSON, but cannot be written to a file.
    return Cell(name, source.encode("utf-8", "replace").decode() if code else "", code)


def _dict(content: object) -> dict:
    return content if isinstance(content, dict) else {}


def _refuse_excess(cells: list[Cell]) -> None:
    """Raise Unreadable if there is more code than anyone writes for a lab: all that follows takes its time."""
    sizes = [len(cell.source) for cell in cells if cell.source.strip()]
    if len(sizes) > CELLS:
        raise Unreadable(f"{len(sizes):,} code cells, and a lab has at most {CELLS}")
    if max(sizes, default=0) > CELL:
        raise Unreadable(f"a cell of {max(sizes):,} characters, and a lab has none with more than {CELL:,}")
    if sum(sizes) > CODE:
        raise Unreadable(f"{sum(sizes):,} characters of code, and a lab has at most {CODE:,}")


def _chapter(names: set[str]) -> Chapter:
    """The chapter whose answer and check cells are there."""
    best, theirs = max(_labs(), key=lambda lab: len(names & lab[1]))
    if not names & theirs:
        raise Unreadable("a notebook, but none of the course's labs: no answer cell of one is in it")
    return best


@functools.cache
def _labs() -> list[tuple[Chapter, set[str]]]:
    """Each chapter with the names of its lab's answer and check cells."""
    labs = []
    for chapter in course.chapters():
        content = json.loads((course.ROOT / "labs" / f"{chapter.name}.ipynb").read_text())
        names = {cell["id"] for cell in content["cells"] if cell["id"].startswith(("answer-", "check-"))}
        labs.append((chapter, names))
    return labs


# ---------------------------------------------------------------------------------------------------------------------
# Whose a file is


def _owner(path: Path, chapter: Chapter | None, folder: bool) -> Owner | None:
    """The student that a path names: its outermost folder, else the file without the lab's name; None if it does not.

    chapter: the one of the lab, if it is known; folder: the path is one, not a file
    """
    if len(path.parts) > 1 or folder:
        moodle = MOODLE.fullmatch(path.parts[0])
        return Owner(moodle["name"], moodle["number"]) if moodle else Owner(path.parts[0])
    stem = path.stem
    name = _without_lab(stem, [chapter] if chapter else [each for each, _ in _labs()])
    for pattern, text in ((MOODLE, stem), (CANVAS, name or stem)):
        platform = pattern.fullmatch(text)
        if platform:
            return Owner(platform["name"], platform["number"])
    if name is None:
        name = stem if path.suffix.lower() == ".ipynb" else ""
    name = re.sub(r"_late$", "", name, flags=re.IGNORECASE)
    return Owner(name) if name.strip(" ._-") else None


def _without_lab(stem: str, chapters: list[Chapter]) -> str | None:
    """What precedes the name of a lab, slug or number in a file's name; None if there is none."""
    words = "|".join(re.escape(word) for each in chapters for word in (each.name, each.slug, each.number))
    found = re.search(rf"(^|[ _-]+)(lab[ _-]*)?({words})\b", stem, re.IGNORECASE)
    return stem[: found.start()] if found else None


def _lab_of(path: Path) -> str:
    """The lab that a path names; empty if it names none."""
    for part in (*path.parts[1:-1], path.stem):
        for chapter, _ in _labs():
            words = rf"{chapter.name}|{chapter.slug}|lab[ _-]*{chapter.number}"
            if re.search(rf"(^|[ _-])({words})(\b|_)", part, re.IGNORECASE):
                return chapter.name
    return ""


def _unique_name(owner: Owner, roster: dict[str, str]) -> str:
    """The name of a student's folders, unique in this run and all earlier ones.

    Letters, digits and a few signs. A platform's number is always part of it, so that it does not depend on who else
    handed in. If another student has the name, also in other case or spelled with other code points, a digest follows.
    """
    plain = re.sub(r"[^\w@.-]+", "_", owner.readable).strip("._-")
    plain = plain.encode()[:100].decode(errors="ignore")  # names of files have at most 255 bytes
    name = "_".join(filter(None, (plain or "student", owner.number)))
    digest = hashlib.sha256(os.fsencode(owner.identity)).hexdigest()
    for length in (8 * (not plain), 8, 64):
        unique = f"{name}-{digest[:length]}" if length else name
        if roster.setdefault(unicodedata.normalize("NFC", unique.casefold()), owner.identity) == owner.identity:
            return unique
    raise AssertionError("two different names have the same SHA-256")
