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

import contextlib
import functools
import hashlib
import json
import os
import re
import stat
import unicodedata
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tools import course
from tools.course import Chapter
from tools.grade.restore import Cell, Lab, answered, known, recognized

LARGEST, PARTS = 20 * 2**20, 2_000_000  # bytes of a notebook, outputs included; lists and objects in it
CELLS, CELL, CODE = 500, 100_000, 500_000  # code cells of a notebook; characters of one; characters of all
MOST, DEEPEST, NOTEBOOKS = 1000, 4, 50  # of a student's folder: entries looked at, levels, notebooks read

MOODLE = re.compile(r"(?P<name>.+?)_(?P<number>\d{1,20})_assignsubmission_.*", re.DOTALL)
BLACKBOARD = re.compile(r"(.*_)?(?P<name>[^_]+)_attempt_(?P<time>\d{4}(-\d\d){5})(?P<number>)(_.*)?", re.DOTALL)
BRIGHTSPACE = re.compile(r"(?P<number>\d+)-\d+ - (?P<name>.+?) - (?P<time>[^-]*\b\d{4}\b[^-]*?)( - .*)?", re.DOTALL)
CANVAS = re.compile(r"(?P<name>.+?)(_late)?_(?P<number>\d{2,20})_\d{2,}(_.*)?", re.DOTALL | re.IGNORECASE)
# What the archives of Gradescope and Teams unpack to: folders of students, or of submissions.
PACKED = re.compile(r"assignment_\d+_export|submitted files|working files|student work", re.IGNORECASE)
DATES = ("%b %d, %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y")
TIMES = ("%Y-%m-%d-%H-%M-%S", *(f"{date} {hour}" for date in DATES for hour in ("%I%M %p", "%H%M")))
ASKED = re.compile(r"\b(?:check|hint|evaluate)\([ \t]*[\"'](\w+)[\"']")
COPY = re.compile(r"([ _-]*\(\d+\)|[ _-]copy\d*|-\d{1,2})+$", re.IGNORECASE)  # how copies of a file end


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
    changed: float  # when: of two with answers for the same lab, the newer one counts
    cells: list[Cell] = field(repr=False, default_factory=list)  # see `recognized`
    owner: Owner = field(default_factory=lambda: Owner(""))
    answers: int = 0  # that are no longer as they were handed out
    note: str = ""  # which one counts, if the student handed in several

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


def survey(folder: Path, chapters: set[str], roster: dict[str, str]) -> Collected:
    """Everything in a folder of submissions.

    chapters: names of those to grade; a lab of another chapter is passed over in silence.
    roster: name -> identity of the students of earlier runs, whose names stay theirs; new ones are added to it.
    Raises SystemExit if the folder cannot be read.
    """
    try:
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
                read_in += read(path, folder)
            except Unreadable as reason:
                refused[path] = str(reason)

    _refuse_wrong_level(folder, read_in)
    alike: dict[tuple[str, str], list[Submission]] = {}
    for each in sorted(read_in, key=lambda each: (each.owner.identity, each.path)):
        each.student = _unique_name(each.owner, roster)
        alike.setdefault((each.student, each.lab), []).append(each)
    others: dict[Path, str] = {}
    found = {key: _that_counts(several, folder, others) for key, several in alike.items()}
    wanted = [each for each in found.values() if each.lab in chapters]
    return Collected(
        sorted(wanted, key=lambda each: (each.lab, each.student)),
        _missing(folder, refused, found, chapters, roster),
        refused | others,
    )


def _that_counts(several: list[Submission], folder: Path, others: dict[Path, str]) -> Submission:
    """Of a student's notebooks for one lab, the newest with answers: a fresh copy of the lab may be beside it."""
    best = max(several, key=lambda each: (each.answers > 0, each.changed, each.answers))
    why = f"{best.path.relative_to(folder)} counts, the newest{' with answers' if best.answers else ''}"
    for each in several:
        if each is not best:
            others[each.path] = f"the same student, the same lab: {why}"
            best.note = f"{len(several)} notebooks for this lab: {why}"
    return best


def _refuse_wrong_level(folder: Path, notebooks: list[Submission]) -> None:
    """Raise SystemExit if every entry of the folder is a class or a lab instead of a student.

    One student with an odd folder is no reason to refuse all others.
    """
    entries: dict[str, list[tuple[str, str]]] = {}  # -> lab and folder in that entry ("": none) of each notebook
    for each in notebooks:
        top, *below = each.path.relative_to(folder).parts
        entries.setdefault(top, []).append((each.lab, below[0] if len(below) > 1 else ""))
    reasons = {top: _no_student(top, places) for top, places in entries.items()}
    if reasons and all(reasons.values()):
        top, reason = min(reasons.items())
        labs = [lab for lab, _ in entries[top]]
        better = folder / top if len(labs) > len(set(labs)) else folder.parent
        raise SystemExit(
            f"Nothing is graded: {str(folder / top)!r} {reason}, so it is not a student's folder. Name the "
            f"folder that has a folder or a file for each student. Perhaps: make grade SUBMISSIONS={str(better)!r}"
        )


def _no_student(top: str, places: list[tuple[str, str]]) -> str:
    """Why an entry of the folder of submissions is not a student; empty if it may be one."""
    if PACKED.fullmatch(top):
        return "is what a learning platform packs a class into"
    if any(re.fullmatch(_words(chapter), top, re.IGNORECASE) for chapter, _ in _labs()):
        return "is named after a lab"
    several = len(set(places)) > len({lab for lab, _ in places})
    return "holds the same lab in several folders" if several and all(below for _, below in places) else ""


def _missing(
    folder: Path, refused: dict[Path, str], found: Iterable[tuple[str, str]], chapters: set[str], roster: dict[str, str]
) -> list[Missing]:
    """Who has nothing but refused files for a lab; if no path says for which one, who has nothing else at all.

    found: student and lab of each submission
    """
    missing, seen = [], {each for student, lab in found for each in ((student, lab), (student, ""))}
    told = [(path, _lab_of(path.relative_to(folder))) for path in sorted(refused)]
    for path, lab in sorted(told, key=lambda each: (not each[1], each[0].suffix.lower() != ".ipynb")):
        owner = _owner(path.relative_to(folder), None, _is_folder(path))
        if owner is None or (lab and lab not in chapters):
            continue
        student = _unique_name(owner, roster)
        if (student, lab) not in seen:
            seen |= {(student, lab), (student, "")}
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


def read(path: Path, folder: Path) -> list[Submission]:
    """The submissions in a file below `folder`: one, or two if it holds two labs. Raises Unreadable."""
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
        if _dict(_dict(content.get("metadata")).get("torchcourse")).get("kind") == "lecture":
            raise Unreadable("a lecture, not a lab")
        cells = [_cell(each) for each in content["cells"]]
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError, MemoryError):
        raise Unreadable("not a notebook: its content is no JSON; was the upload cut off?") from None
    except (KeyError, TypeError, AttributeError):
        raise Unreadable("JSON, but not a notebook of format 4") from None
    changed, submissions = _time(path.relative_to(folder)) or changed, []
    for chapter in _chapters(cells):
        theirs = recognized(chapter.name, cells)
        _refuse_excess(theirs)
        owner = _owner(path.relative_to(folder), chapter, False)
        if owner is None:
            raise Unreadable("whose is it? Call it STUDENT_LAB.ipynb, or put it into a folder named after the student")
        answers = answered(chapter.name, theirs)
        submissions.append(Submission("", chapter, path, changed, theirs, owner, answers))
    return submissions


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


def _refuse_excess(cells: list[Cell]) -> None:
    """Raise Unreadable if there is more code than anyone writes for a lab: all that follows takes its time."""
    sizes = [len(cell.source) for cell in cells if cell.source.strip()]
    if len(sizes) > CELLS:
        raise Unreadable(f"{len(sizes):,} code cells, and a lab has at most {CELLS}")
    if max(sizes, default=0) > CELL:
        raise Unreadable(f"a cell of {max(sizes):,} characters, and a lab has none with more than {CELL:,}")
    if sum(sizes) > CODE:
        raise Unreadable(f"{sum(sizes):,} characters of code, and a lab has at most {CODE:,}")


def _chapters(cells: list[Cell]) -> list[Chapter]:
    """The chapter whose answers and checks are there, by name; else, one of which the code checks two exercises, or
    defines three answers.

    With it, any other of which more than half is there: a cell or two may have been copied, a whole lab was handed in.
    """
    names = {cell.name for cell in cells}
    asked = {f"check-{each}" for cell in cells if cell.code for each in ASKED.findall(cell.source)}
    given = {answer for _, lab in _labs() for cell in cells if cell.code for answer in lab.defines(cell.source)}
    for found, least, of in (
        (names, 1, lambda lab: {*lab.checks, *lab.checks.values()}),
        (asked, 2, lambda lab: {*lab.checks.values()}),
        (given, 3, lambda lab: {*lab.checks}),
    ):
        shares = [(len(found & of(lab)), len(of(lab)), chapter) for chapter, lab in _labs()]
        most, _, best = max(shares, key=lambda each: each[0])
        if most >= least:
            return [best, *(each for there, all_, each in shares if each is not best and 2 * there > all_)]
    raise Unreadable("a notebook, but not one of the course's labs: it has no answer and no check of one")


@functools.cache
def _labs() -> list[tuple[Chapter, Lab]]:
    return [(chapter, known(chapter.name)) for chapter in course.chapters()]


@functools.cache
def _names() -> set[str]:
    """Of all cells of all labs."""
    return {name for _, lab in _labs() for name in lab.cells}


# ---------------------------------------------------------------------------------------------------------------------
# Whose a file is


def _owner(path: Path, chapter: Chapter | None, folder: bool) -> Owner | None:
    """The student that a path names: its outermost folder, else the file without the lab's name; None if it does not.

    chapter: the one of the lab, if it is known; folder: the path is one, not a file
    """
    in_folder = len(path.parts) > 1 or folder
    stem = path.parts[0] if in_folder else path.stem
    name = None if in_folder else _without_lab(stem, [chapter] if chapter else [each for each, _ in _labs()])
    platforms = [(each, stem) for each in (MOODLE, BLACKBOARD, BRIGHTSPACE)]
    for pattern, text in platforms if in_folder else [*platforms, (CANVAS, name or stem)]:
        if platform := pattern.fullmatch(text):
            return Owner(platform["name"], platform["number"])
    if in_folder:
        return Owner(stem)
    if name is None:
        name = stem if path.suffix.lower() == ".ipynb" else ""
    name = re.sub(r"_late$", "", name, flags=re.IGNORECASE)
    return Owner(name) if name.strip(" ._-") else None


def _time(path: Path) -> float | None:
    """When a platform received a file, in seconds, if the path says so: unpacking may have changed the file's time."""
    for pattern, text in ((BLACKBOARD, path.stem), (BRIGHTSPACE, path.parts[0]), (BRIGHTSPACE, path.stem)):
        if found := pattern.fullmatch(text):
            time = re.sub(r" (\d{3})\b", r" 0\1", found["time"])  # 612 PM
            for form in TIMES:
                with contextlib.suppress(ValueError, OverflowError):
                    return datetime.strptime(time, form).timestamp()
    return None


def _words(chapter: Chapter) -> str:
    """A pattern for the names of a lab: `06_ddp`, `lab 6`, `lab06-ddp`, `ddp`."""
    number = int(chapter.number)
    return rf"((lab[ _-]*)?0*{number}[ _-]*{chapter.slug}|lab[ _-]*0*{number}|{chapter.slug})"


def _without_lab(stem: str, chapters: list[Chapter]) -> str | None:
    """What precedes the name or number of a lab in a file's name, else what follows; None if there is none."""
    for pattern in (rf"{_words(each)}(?![^\W_])" for each in chapters), (rf"{each.number}\b" for each in chapters):
        if found := re.search(rf"(^|[ _-]+)({'|'.join(pattern)})", stem, re.IGNORECASE):
            return stem[: found.start()] or COPY.sub("", stem[found.end() :]).strip(" ._-")
    return None


def _lab_of(path: Path) -> str:
    """The lab that a path names; empty if it names none."""
    for part in (*path.parts[1:-1], path.stem):
        for chapter, _ in _labs():
            if re.search(rf"(^|[ _-]){_words(chapter)}(?![^\W_])", part, re.IGNORECASE):
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
