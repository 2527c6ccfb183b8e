"""Where a student stands: kept on the student's own machine, counted for a class. No name, no code, no time.

Each check that a notebook runs adds a line to ~/.local/state/torchcourse/progress.jsonl. Lines are only ever added, so
several notebooks may do so at once, and a line that is cut off or not ours is skipped. The environment variable
TORCHCOURSE_PROGRESS names another file; "off" keeps nothing.

The JSON is one object: `format` (1; another number means another form), `torchcourse` (its version), `student` (a
random number, so that a file that is sent twice counts once), and `reports`, a list of objects with `exercise`, `state`
and `misconception` (null for none).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import torchcourse
from labcheck import exercise as registry
from labcheck.exercise import Exercise
from torchcourse.errors import CourseError
from torchcourse.place import home, named_by

FORMAT = 1
NOT_STARTED, TRYING, CORRECT = "not started", "trying", "correct"
STATES = (NOT_STARTED, TRYING, CORRECT)  # a student only moves forward: who has had it right may play with the answer
NAMED = 3  # misconceptions of an exercise that the table of a class names: those that most students have met
LONGEST = 1000  # bytes of a line
LARGEST = 1_000_000  # bytes of a file that a student sends


@dataclass(frozen=True)
class Report:
    """What one check found.

    exercise: its name; or the name of a chapter, which is then open and "not started"
    misconception: a key of `Exercise.sentences`, while the student is trying
    """

    exercise: str
    state: str
    misconception: str | None = None


# ---------------------------------------- what the course knows


@cache
def exercises() -> dict[str, Exercise]:
    """All exercises by name, chapter after chapter."""
    return dict(sorted(registry.load_chapters().items(), key=lambda item: item[1].chapter))


@cache
def misconceptions(exercise: str) -> dict[str, str]:
    """The sentences of an exercise's misconceptions, by key."""
    return exercises()[exercise].sentences


def chapter_of(name: str) -> str | None:
    """The chapter of an exercise, or the chapter of this name; None for any other name."""
    if name in exercises():
        return exercises()[name].chapter
    return name if any(name == exercise.chapter for exercise in exercises().values()) else None


def known(given: object) -> Report:
    """The report that an object out of JSON is. Raises ValueError if it is anything but that, down to the last key."""
    if not isinstance(given, dict) or given.keys() != {each.name for each in fields(Report)}:
        raise ValueError("A report has three keys: exercise, state and misconception.")
    report = Report(**given)
    if not isinstance(report.exercise, str) or chapter_of(report.exercise) is None:
        raise ValueError("There is no such exercise.")
    if report.state not in STATES[: None if report.exercise in exercises() else 1]:
        raise ValueError("There is no such state.")
    if report.misconception is not None and (
        not isinstance(report.misconception, str)
        or report.state != TRYING
        or report.misconception not in misconceptions(report.exercise)
    ):
        raise ValueError("There is no such misconception.")
    return report


# ---------------------------------------- counting


@dataclass
class Standing:
    """One student: the furthest state of each exercise, and every misconception that came up on the way."""

    states: dict[str, str] = field(default_factory=dict)
    met: dict[str, set[str]] = field(default_factory=dict)
    chapters: set[str] = field(default_factory=set)
    chapter: str = ""  # the latest

    def add(self, report: Report) -> None:
        """Take in a report that is known."""
        self.chapter = chapter_of(report.exercise) or ""
        self.chapters.add(self.chapter)
        if report.exercise in exercises():
            before = self.states.get(report.exercise, NOT_STARTED)
            self.states[report.exercise] = max(before, report.state, key=STATES.index)
        if report.misconception:
            self.met.setdefault(report.exercise, set()).add(report.misconception)

    def reports(self) -> list[Report]:
        """As few reports as say the same."""
        found = [Report(name, NOT_STARTED) for name in sorted(self.chapters)]
        for name, state in self.states.items():
            found += [Report(name, TRYING, each) for each in sorted(self.met.get(name, ()))]
            found.append(Report(name, state))
        return found


class Class:
    """The students of a class, each counted once: `table()` is what the instructor sees."""

    def __init__(self) -> None:
        self.students: dict[Hashable, Standing] = {}

    def add(self, student: Hashable, report: Report) -> None:
        """Take in a report of one student."""
        self.students.setdefault(student, Standing()).add(report)

    def table(self) -> dict[str, Any]:
        """The chapters in use, first the one that most students are in now, with a row for each exercise."""
        chapters = []
        for chapter in {exercise.chapter for exercise in exercises().values()}:
            here = [student for student in self.students.values() if chapter in student.chapters]
            if here:
                now = sum(student.chapter == chapter for student in here)
                rows = [_row(each, here) for each in exercises().values() if each.chapter == chapter]
                chapters.append({"chapter": chapter, "students": len(here), "now": now, "exercises": rows})
        chapters.sort(key=lambda each: (-each["now"], each["chapter"]))
        return {"students": len(self.students), "chapters": chapters}


def _row(exercise: Exercise, students: list[Standing]) -> dict[str, Any]:
    states = Counter(student.states.get(exercise.name, NOT_STARTED) for student in students)
    met = Counter(key for student in students for key in student.met.get(exercise.name, ()))
    sentences = misconceptions(exercise.name)
    ranked = sorted(met.items(), key=lambda item: (-item[1], sentences[item[0]]))[:NAMED]
    return {
        "exercise": exercise.name,
        "title": exercise.title,
        "states": {state: states[state] for state in STATES},
        "misconceptions": [{"sentence": sentences[key], "students": count} for key, count in ranked],
    }


def as_text(table: dict[str, Any]) -> str:
    """The table of a class for a terminal."""
    lines = [_count(table["students"], "student")]
    titles = [row["title"] for chapter in table["chapters"] for row in chapter["exercises"]]
    width = max(map(len, titles), default=0)
    for chapter in table["chapters"]:
        head = "  ".join(STATES)
        lines += ["", f"{chapter['chapter']}, {_count(chapter['students'], 'student')}", f"  {'':<{width}}  {head}"]
        for row in chapter["exercises"]:
            counts = "  ".join(f"{row['states'][state]:>{len(state)}}" for state in STATES)
            lines.append(f"  {row['title']:<{width}}  {counts}")
            lines += [f"      {each['students']} × {each['sentence']}" for each in row["misconceptions"]]
    return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# ---------------------------------------- one student's own file


def path() -> Path | None:
    """The file that keeps where this student stands; None if nothing is kept."""
    if os.environ.get("TORCHCOURSE_PROGRESS") == "off":
        return None
    if chosen := named_by("TORCHCOURSE_PROGRESS"):
        return chosen
    base = os.environ.get("LOCALAPPDATA") if os.name == "nt" else os.environ.get("XDG_STATE_HOME")
    return Path(base or home() / ".local" / "state") / "torchcourse" / "progress.jsonl"


_kept: set[tuple[Path, str]] = set()  # by this process: the same once more would say nothing new


def keep(entry: Report | dict[str, str]) -> None:
    """Add a line to the student's file. Raises nothing, whatever the disk says: no check fails for it."""
    with contextlib.suppress(Exception):
        file = path()
        line = json.dumps(asdict(entry) if isinstance(entry, Report) else entry)
        if file is None or (isinstance(entry, Report) and (file, line) in _kept):
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            first = "" if os.fstat(number).st_size else json.dumps({"student": secrets.token_hex(8)})
            # In one piece, as other notebooks write, too. It begins a line of its own: the last one may be cut off.
            os.write(number, f"{first}\n{line}".encode())
        finally:
            os.close(number)
        _kept.add((file, line))


def _lines(file: Path, word: bytes = b"") -> Iterator[dict]:
    """The objects in a file of lines, in those lines that contain a word. What is none is skipped, however long."""
    with contextlib.suppress(OSError), file.open("rb") as lines:
        while line := lines.readline(LONGEST):
            if word not in line:
                continue
            with contextlib.suppress(ValueError, RecursionError):
                if isinstance(found := json.loads(line), dict):
                    yield found


def latest(name: str) -> Any:
    """The latest value that was kept under a name of its own, for example "board"; None if there is none."""
    file = path()
    found = [line[name] for line in _lines(file, name.encode()) if line.keys() == {name}] if file else []
    return found[-1] if found else None


def mine() -> tuple[str, Standing]:
    """The random number and the standing of the student whose machine this is."""
    file, student, found = path(), "", Standing()
    for line in _lines(file) if file else ():
        if line.keys() == {"student"} and not student and _is_number(line["student"]):
            student = line["student"]  # the first counts: two notebooks may have begun the file at once
        with contextlib.suppress(ValueError):
            found.add(known(line))
    return student or secrets.token_hex(8), found


def _is_number(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{16}", value) is not None


# ---------------------------------------- the command


def as_json(student: str, standing: Standing) -> str:
    """For the instructor: see the top of the module for the form."""
    reports = [asdict(report) for report in standing.reports()]
    content = {"format": FORMAT, "torchcourse": torchcourse.__version__, "student": student, "reports": reports}
    return json.dumps(content, indent=2)


def read(file: Path) -> tuple[str, list[Report], int]:
    """The student's number, the reports in a file that `--json` wrote, and how many others this version doesn't know.

    Raises CourseError for any other file.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise ValueError
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise CourseError(f"{file} has another form than this torchcourse reads, which is {FORMAT}: upgrade it.")
        student, reports, unknown = content["student"], [], 0
        if not _is_number(student) or not isinstance(content["reports"], list):
            raise ValueError
    except OSError as error:
        raise CourseError(f"{file} cannot be read ({error.strerror}).") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CourseError(f"{file} is no progress: `labcheck progress --json > {file.name}` writes one.") from None
    for each in content["reports"]:
        try:
            reports.append(known(each))
        except ValueError:
            unknown += 1
    return student, reports, unknown


def pooled(files: Iterable[Path]) -> tuple[Class, list[str]]:
    """The class whose files these are, and a sentence for each file that is not all counted."""
    students, trouble = Class(), []
    for file in files:
        try:
            student, reports, unknown = read(file)
        except CourseError as error:
            trouble.append(str(error))
            continue
        for report in reports:
            students.add(student, report)
        if unknown:
            trouble.append(f"{file}: {unknown} of its reports are about exercises or mistakes that this version lacks.")
    return students, trouble


def main(json: bool = False) -> int:
    """Print where this student stands; the exit status is 0. json: print an object for the instructor."""
    student, standing = mine()
    if json:
        print(as_json(student, standing))
        return 0
    if not standing.chapters:
        print("No check has been run on this machine yet. Open a lab, and run its cells.")
    for chapter in sorted(standing.chapters):
        rows = [each for each in exercises().values() if each.chapter == chapter]
        print(f"{chapter}: {sum(standing.states.get(row.name) == CORRECT for row in rows)} of {len(rows)} correct")
        for row in rows:
            print(f"  {standing.states.get(row.name, NOT_STARTED):<12}  {row.title}")
    return 0
