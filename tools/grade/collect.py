"""What is in the folder of submissions: which student handed in which lab, and which files are not submissions.

Three layouts are understood, also mixed:

    STUDENT/LAB/any.ipynb        nbgrader's; the folder may be its `submitted/` or the one around it
    STUDENT/any.ipynb            a folder for each student, such as Moodle's "Name_123_assignsubmission_file_"
    STUDENT_LAB.ipynb            plain files, also LAB_STUDENT.ipynb; Canvas' "name_123_456_LAB-1.ipynb" too

A learning platform's number stays with the name: two students may share a name. The notebook itself says which lab it
is, by its cells (see `recognized`), whatever the file is called. Nothing here executes or trusts anything: only cells
of the expected form are kept, links are not followed, and sizes, depths and counts are bounded. A file that cannot be
used costs its student a row without points, and has no effect on anyone else.
"""

import functools
import hashlib
import json
import os
import re
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tools import course
from tools.course import Chapter
from tools.grade.restore import Cell, Lab, answered, known, recognized

LARGEST, PARTS = 20 * 2**20, 2_000_000  # bytes of a notebook, outputs included; lists and objects in it
CELLS, CODE = 500, 300_000  # code cells of a notebook, characters of all of them
DEEPEST, NOTEBOOKS = 4, 50  # of a student's folder: levels that are opened, notebooks that are read

MOODLE = re.compile(r"(?P<name>.+?)_(?P<number>\d{1,20})_assignsubmission_.*", re.DOTALL)
CANVAS = re.compile(r"(?P<name>.+?)(_late)?_(?P<number>\d{3,20})_\d{3,}(_.*)?", re.DOTALL | re.IGNORECASE)
ASKED = re.compile(r"\b(?:check|hint|evaluate)\([ \t]*[\"'](\w+)[\"']")
COPY = re.compile(r"([ _-]*\(\d+\)|[ _-]copy\d*|-\d{1,2})+$", re.IGNORECASE)  # how copies of a file end


class Owner(NamedTuple):
    """The student that a path names."""

    name: str  # as it is on the disk
    number: str = ""  # the learning platform's

    @property
    def student(self) -> str:
        """The name of the student's folders: letters, digits and a few signs, always the same.

        Where other signs were replaced, a digest of the whole name keeps two names apart.
        """
        wanted = " ".join(unicodedata.normalize("NFC", self.name).split())
        name = re.sub(r"[^\w@.-]+", "_", wanted).strip("._-").encode()[:100].decode(errors="ignore")
        if name != wanted.replace(" ", "_"):
            name = f"{name or 'student'}-{hashlib.sha256(os.fsencode(self.name)).hexdigest()[:8]}"
        return f"{name}_{self.number}" if self.number else name


@dataclass
class Submission:
    """One notebook of one student; or what a student handed in who has nothing that can be graded."""

    owner: Owner
    lab: str  # empty if nothing says which
    path: Path
    changed: float = 0.0  # when: of two with answers for the same lab, the newer one counts
    cells: list[Cell] = field(repr=False, default_factory=list)  # see `recognized`
    answers: int = 0  # that are no longer as they were handed out
    note: str = ""  # which one counts, if the student handed in several; or why nothing can be graded


class Collected(NamedTuple):
    """What is in a folder. `refused` says of each other file why it is not graded."""

    submissions: list[Submission]
    missing: list[Submission]
    refused: dict[Path, str]


class Unreadable(Exception):
    """A file is not a submission: the message says why."""


def survey(folder: Path, chapters: set[str]) -> Collected:
    """Everything in a folder of submissions.

    chapters: names of those to grade; a lab of another chapter is passed over in silence.
    Raises SystemExit if the folder cannot be read.
    """
    folder = folder / "submitted" if (folder / "submitted").is_dir() else folder
    try:
        tops = sorted(path for path in folder.iterdir() if not _is_clutter(path.name))
    except OSError as error:
        raise SystemExit(f"The folder {folder} cannot be read: {error.strerror}.") from None
    refused: dict[Path, str] = {}
    alike: dict[tuple[str, str], list[Submission]] = defaultdict(list)
    for path in (path for top in tops for path in _notebooks(top, refused)):
        try:
            each = read(path, folder)
            alike[each.owner.student, each.lab].append(each)
        except Unreadable as reason:
            refused[path] = str(reason)
    missing = _missing(folder, refused, set(alike), chapters)
    found = [_that_counts(several, folder, refused) for several in alike.values()]
    wanted = sorted((each for each in found if each.lab in chapters), key=lambda each: (each.lab, each.owner.student))
    return Collected(wanted, missing, refused)


def _that_counts(several: list[Submission], folder: Path, refused: dict[Path, str]) -> Submission:
    """Of a student's notebooks for one lab, the newest with answers: a fresh copy of the lab may be beside it."""
    best = max(several, key=lambda each: (each.answers > 0, each.changed, each.answers))
    why = f"{best.path.relative_to(folder)} counts, the newest{' with answers' if best.answers else ''}"
    for each in several:
        if each is not best:
            refused[each.path] = f"the same student, the same lab: {why}"
            best.note = f"{len(several)} notebooks for this lab: {why}"
    return best


def _missing(
    folder: Path, refused: dict[Path, str], found: set[tuple[str, str]], chapters: set[str]
) -> list[Submission]:
    """Who has nothing but refused files for a lab; if no path says for which one, who has nothing else at all.

    found: student and lab of each submission
    """
    missing, seen = [], found | {(student, "") for student, _ in found}
    labs = {path: _lab_of(path.relative_to(folder)) for path in refused}
    for path in sorted(refused, key=lambda path: (not labs[path], path)):
        owner, lab = _owner(path.relative_to(folder), path.suffix != ".ipynb" and not os.path.isfile(path)), labs[path]
        if owner and (not lab or lab in chapters) and (owner.student, lab) not in seen:
            seen |= {(owner.student, lab), (owner.student, "")}
            missing.append(Submission(owner, lab, path, note=refused[path]))
    return missing


def _is_clutter(name: str) -> bool:
    """Files that systems, Jupyter and nbgrader leave everywhere."""
    return name.startswith(".") or name in ("__MACOSX", "__pycache__", "timestamp.txt")


def _notebooks(top: Path, refused: dict[Path, str]) -> list[Path]:
    """The notebooks in one entry of the folder of submissions, those on the upper levels first."""
    before = len(refused)

    def unreadable(error: OSError) -> None:
        refused[Path(error.filename)] = f"cannot be read: {error.strerror}"

    is_folder = os.path.isdir(top) and not os.path.islink(top)
    found = [] if is_folder else [top]
    for folder, folders, files in os.walk(top, onerror=unreadable) if is_folder else ():
        depth = len(Path(folder).relative_to(top).parts)
        folders[:] = sorted(name for name in folders if depth < DEEPEST and not _is_clutter(name))
        found += [Path(folder, name) for name in sorted(files) if not _is_clutter(name)]
    notebooks = [path for path in found if path.suffix.lower() == ".ipynb" or os.path.islink(path)]
    refused |= dict.fromkeys(notebooks[NOTEBOOKS:], f"the student has {NOTEBOOKS} other notebooks: no more are read")
    if not notebooks and len(refused) == before:
        refused[found[0] if found else top] = "no notebook (.ipynb) is there"
    return notebooks[:NOTEBOOKS]


def read(path: Path, folder: Path) -> Submission:
    """The submission in a file below `folder`. Raises Unreadable."""
    try:
        if path.is_symlink() or not path.is_file():
            raise Unreadable("a link, and links are not followed" if path.is_symlink() else "not a file")
        size, changed = path.stat().st_size, path.stat().st_mtime
        if size > LARGEST:
            raise Unreadable(f"{size / 2**20:.0f} MB large, and a lab has less than {LARGEST / 2**20:.0f}")
        text = path.read_bytes()
        if text.count(b"[") + text.count(b"{") > PARTS:
            raise Unreadable(f"more than {PARTS:,} lists and objects, and no lab has that many")
        content = json.loads(text)
        cells = [_cell(each) for each in content["cells"][: 10 * CELLS + 1]]
        if len(cells) > 10 * CELLS:
            raise Unreadable(f"more than {10 * CELLS:,} cells, and no lab has that many")
        if _dict(_dict(content.get("metadata")).get("torchcourse")).get("kind") == "lecture":
            raise Unreadable("a lecture, not a lab")
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError, MemoryError):
        raise Unreadable("not a notebook: its content is no JSON; was the upload cut off?") from None
    except (KeyError, TypeError, AttributeError):
        raise Unreadable("JSON, but not a notebook of format 4") from None
    lab, owner = _recognized_lab(cells), _owner(path.relative_to(folder), False)
    if owner is None:
        raise Unreadable("whose is it? Call it STUDENT_LAB.ipynb, or put it into a folder named after the student")
    theirs = recognized(lab, cells)
    sizes = [len(cell.source) for cell in theirs if cell.source.strip()]
    if len(sizes) > CELLS or sum(sizes) > CODE:  # all that follows takes its time
        raise Unreadable(f"{len(sizes):,} code cells of {sum(sizes):,} characters, and no lab has that many")
    return Submission(owner, lab, path, changed, theirs, answered(lab, theirs))


def _cell(cell: dict) -> Cell:
    """A cell with the name that it came with: its id, Colab's in the metadata, nbgrader's, the tag of the set-up."""
    metadata = _dict(cell.get("metadata"))
    tags = metadata.get("tags") if isinstance(metadata.get("tags"), list) else []
    names = (cell.get("id"), metadata.get("id"), _dict(metadata.get("nbgrader")).get("grade_id"), *tags)
    name = next((name for name in names if isinstance(name, str) and name in _names()), "")
    source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
    # A lone half of a surrogate pair is valid JSON, but cannot be written to a file.
    return Cell(name, source.encode("utf-8", "replace").decode(), cell["cell_type"] == "code")


def _dict(content: object) -> dict:
    return content if isinstance(content, dict) else {}


def _recognized_lab(cells: list[Cell]) -> str:
    """The lab whose answers and checks are there, by name; else, one of which the code checks two exercises, or
    defines three answers."""
    names = {cell.name for cell in cells}
    asked = {f"check-{each}" for cell in cells if cell.code for each in ASKED.findall(cell.source)}
    given = {answer for lab in _labs().values() for cell in cells if cell.code for answer in lab.defines(cell.source)}
    for found, least in ((names, 1), (asked, 2), (given, 3)):
        shares = [(len(found & {*lab.checks, *lab.checks.values()}), name) for name, lab in _labs().items()]
        most, best = max(shares, key=lambda each: each[0])
        if most >= least:
            return best
    raise Unreadable("a notebook, but not one of the course's labs: it has no answer and no check of one")


@functools.cache
def _labs() -> dict[str, Lab]:
    return {chapter.name: known(chapter.name) for chapter in course.chapters()}


@functools.cache
def _names() -> set[str]:
    """Of all cells of all labs."""
    return {name for lab in _labs().values() for name in lab.cells}


def _owner(path: Path, is_folder: bool) -> Owner | None:
    """The student that a path names: its outermost folder, else the file without the lab's name; None if there is none.

    is_folder: the path is one, not a file
    """
    in_folder = len(path.parts) > 1 or is_folder
    stem = path.parts[0] if in_folder else path.stem
    for pattern in (MOODLE,) if in_folder else (MOODLE, CANVAS):
        if platform := pattern.fullmatch(stem):
            return Owner(platform["name"], platform["number"])
    if in_folder:
        return Owner(stem)
    if named := named_lab(stem):
        before, after = stem[: named[1].start()], stem[named[1].end() :]
        stem = before.strip(" ._-") or COPY.sub("", after).strip(" ._-")
    elif path.suffix.lower() != ".ipynb":
        return None
    return Owner(stem) if stem else None


def named_lab(text: str) -> tuple[Chapter, re.Match] | None:
    """The lab that a name contains (`06_ddp`, `lab 6`, `lab06-ddp`, `ddp`), and where."""
    for chapter in course.chapters():
        number, slug = int(chapter.number), chapter.slug
        words = rf"(lab[ _-]*)?0*{number}[ _-]*{slug}|lab[ _-]*0*{number}|{slug}"
        if found := re.search(rf"(?<![^\W_])({words})(?![^\W_])", text, re.IGNORECASE):
            return chapter, found
    return None


def _lab_of(path: Path) -> str:
    """The lab that a path names; empty if it names none."""
    named = [found for part in (*path.parts[1:-1], path.stem) if (found := named_lab(part))]
    return named[0][0].name if named else ""
