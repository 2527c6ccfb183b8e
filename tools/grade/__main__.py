"""Grade a class.

python -m tools.grade SUBMISSIONS [--out build/grades] [--chapters "01 02"] [--jobs N] [--seconds S] [--memory MIB]
"""

import argparse
import ast
import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from pathlib import Path
from typing import TYPE_CHECKING

from nbformat import NotebookNode

from tools import course
from tools.course import Chapter
from tools.grade import judge, results, sandbox
from tools.grade.collect import Missing, Submission, survey
from tools.grade.rehearsal import rehearse
from tools.grade.restore import Cell, exercise, restore
from tools.grade.review import review, solution
from tools.grade.sandbox import Limits, Report
from tools.grade.shutdown import Signals, Stopped, abandon, temporary_folder, trouble, workplace
from tools.sandbox_limits import hidden_from_others
from torchcourse.data import SPLITS, files, root_folder
from torchcourse.data.catalog import SPECS, fetch_command
from torchcourse.errors import CourseError

if TYPE_CHECKING:
    from tools.grade.gradebook import Book

SEEDS = 4  # secret variants of the inputs; an answer has to be right with all of them
TABLES_EVERY = 60.0  # seconds between two tables while results arrive
BY_HAND = "grade by hand"  # in the status of a submission that the grader could not grade
LISTED = 100  # refused files that are listed on the terminal


def main(words: list[str] | None = None) -> int:
    """Grade what the command line names. Returns 0, however badly the students did, or 1 if the grader failed."""
    options = _options(words)
    if not options.submissions:
        raise SystemExit("Say where the submissions are: make grade SUBMISSIONS=folder")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show
    folder, out = Path(options.submissions), options.out
    if out.resolve().is_relative_to(folder.resolve()):
        raise SystemExit(f"The results would lie among the submissions, in {out}. Choose another folder: --out")
    if not folder.is_dir():
        raise SystemExit(f"There is no folder {folder}. Say where the submissions are: make grade SUBMISSIONS=folder")
    by_hand = 0
    with Signals() as signals, workplace(out):
        sandbox.refuse_without()
        chapters = course.select(options.chapters.split())
        found = survey(folder, {chapter.name for chapter in chapters}, results.roster(out))
        needed = {each.lab: each.chapter for each in found.submissions}
        data = None if options.synthetic else real_data(list(needed.values()))
        if options.synthetic:
            _say("Graded on synthetic data, because of --synthetic: accuracies are not those of the real data.")
        if found.submissions or found.missing:
            by_hand = grade(found.submissions, out, options.jobs, _limits(options), data, found.missing, signals)
        else:
            _say(f"There is nothing to grade in {folder}.")
    if found.refused:
        _say(f"\nNot graded, {len(found.refused)}:")
        for path, reason in list(found.refused.items())[:LISTED]:
            _say(f"  {path}: {reason}")
        if len(found.refused) > LISTED:
            _say(f"  … and {len(found.refused) - LISTED} more")
    if by_hand:
        _say(f"\nTo grade by hand, because the grader itself failed: {by_hand}. See `status` in {out / 'grades.csv'}")
    return int(by_hand > 0)


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make grade", description="Grade the labs of a class, each in a sandbox.")
    parser.add_argument("submissions", help="STUDENT/LAB/*.ipynb, STUDENT/*.ipynb or STUDENT_LAB.ipynb")
    parser.add_argument("--out", type=Path, default=course.ROOT / "build" / "grades")
    parser.add_argument("--chapters", default="", help='only these, for example "01 02"')
    parser.add_argument("--jobs", type=int, help="submissions at the same time; default: as many as there are cores")
    parser.add_argument("--seconds", type=float, help="for a notebook; default: five times what the solution may take")
    parser.add_argument("--memory", type=int, help="MiB of one process; all of a submission may have twice as much")
    parser.add_argument("--synthetic", action="store_true", help="grade without the real data sets")
    return parser.parse_args(words)


def _limits(options: argparse.Namespace) -> dict:
    chosen = {}
    if options.seconds:
        chosen |= {"seconds": options.seconds, "cell_seconds": options.seconds / 2}
    if options.memory:
        chosen |= {"mib": options.memory}
    return chosen


def _say(text: str) -> None:
    """Print a line. Grading continues without a reader: the terminal may be closed, or `head` may have seen enough."""
    with contextlib.suppress(OSError):
        print("\n".join(map(results.printable, text.split("\n"))), flush=True)


def real_data(chapters: list[Chapter]) -> Path | None:
    """The folder with the data sets that the labs of these chapters load; None if they load none and it is not there.

    Raises SystemExit if one is missing or damaged. The labs then work on synthetic data, which is right for a student
    who has no network, but a class must not be graded on it without knowing.
    """
    try:
        folder = root_folder()
    except CourseError as nowhere:
        raise SystemExit(f"Nothing is graded: {nowhere}") from None
    loaded = {name: each.name for each in chapters for name in SPECS if _loads(each.name, name)}
    for name, lab in sorted(loaded.items()):
        try:
            missing = any(files.find(name, split, folder) is None for split in SPLITS)
        except CourseError as damaged:
            raise SystemExit(f"Nothing is graded: {damaged}") from None
        if missing:
            raise SystemExit(
                f"Nothing is graded: {lab} needs {SPECS[name].title}, which is not in {folder}. To get it: "
                f"{fetch_command(name, folder)}\nOr grade on synthetic data: make grade … OPTIONS=--synthetic"
            )
    if os.geteuid() == 0 and loaded and (hidden := hidden_from_others(folder)):
        raise SystemExit(
            f"Nothing is graded: submissions could not read the data, as {hidden} is private. "
            f"Run `chmod -R a+rX {folder}`."
        )
    return folder if folder.is_dir() else None


def _loads(chapter: str, name: str) -> bool:
    """Whether the lab of a chapter names a data set: its solution is the lab with everything filled in."""
    return any(f'"{name}"' in cell or f"'{name}'" in cell for cell in solution(chapter))


def grade(
    submissions: list[Submission],
    out: Path,
    jobs: int | None,
    limits: dict,
    data: Path | None = None,
    missing: Sequence[Missing] = (),
    signals: Signals | None = None,
) -> int:
    """Run all submissions, `jobs` at a time, and write results, feedback and tables into `out`.

    Returns how many submissions a person has to grade, because the grader failed.

    jobs: None for as many as there are cores.
    limits: fields of `sandbox.Limits` that differ from those of the chapter.
    data: the folder with the real data sets; without it, the labs find none.
    missing: students with nothing that can be graded. Each gets a row with the reason.
    signals: those that may end the run before its time; the tables are written anyway.
    What is in `out` of other students and labs stays; what is graded again is replaced.
    """
    from tools.grade.gradebook import Book  # it takes two seconds to import

    book, signals = Book(out / "nbgrader"), signals or Signals()
    for each in missing:
        results.keep(out, each, status=results.printable(each.reason), review="", verdicts={})
    secret = secret_of(out)
    start = written = time.monotonic()
    by_hand = 0
    jobs = max(1, jobs or os.cpu_count() or 1)
    pool = ThreadPoolExecutor(jobs)
    runs: dict[Future, Submission] = {}

    def work(each: Submission) -> tuple:
        return _run(each, secret, limits, data)

    try:
        judge.prepare()
        labs = {each.lab: each.chapter for each in submissions}
        for chapter in sorted(labs):
            with signals.whole():
                book.prepare(chapter)
        for rehearsed in [pool.submit(rehearse, chapter, work) for chapter in labs.values()]:
            rehearsed.result()
        runs |= {pool.submit(work, each): each for each in submissions}
        for number, run in enumerate(_again_alone(pool, work, runs), 1):
            each = runs[run]
            with signals.whole():
                try:
                    said = _enter(book, out, each, *run.result())
                except Exception as error:  # one submission costs only itself
                    if trouble(out):
                        raise
                    kind = "" if isinstance(error, Failed) else f"{type(error).__name__}: "
                    said = results.printable(f"{BY_HAND}: {kind}{error}")
                    results.keep(out, each, status=said, review="", verdicts={}, by_hand=[results.ALL])
                    page_of(out, each).unlink(missing_ok=True)  # an earlier one, of another verdict
                by_hand += said.startswith(BY_HAND)
                _say(f"[{number}/{len(submissions)}] {each.student} {each.lab}: {said}")
                if time.monotonic() - written > TABLES_EVERY:
                    results.write_tables(out, book)
                    written = time.monotonic()
    except Stopped:
        _say(f"\nStopped. What was graded until now is in {out}.")
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        try:
            with signals.whole():
                results.write_tables(out, book)
        finally:
            abandon(list(runs))
    minutes, seconds = divmod(round(time.monotonic() - start), 60)
    _say(f"\n{len(submissions)} submissions in {minutes} min {seconds} s. Points: {out / 'grades.csv'}")
    _say(f"Messages of the checks: {out / 'exercises.csv'}   Pages for students: {out / 'feedback'}")
    return by_hand


def _again_alone(pool: ThreadPoolExecutor, work: Callable, runs: dict[Future, Submission]) -> Iterator[Future]:
    """The runs as they end. One that was disturbed runs again when all others have ended: its neighbors may have taken
    the processor, the memory or whatever else it needed. The new run takes the place of the old one, also in `runs`.
    """
    late = []
    for run in as_completed(list(runs)):
        if run.exception() or run.result()[2].disturbed:
            late.append(runs.pop(run))
        else:
            yield run
    for each in late:
        run = pool.submit(work, each)
        runs[run] = each
        wait([run])
        yield run


def secret_of(out: Path) -> str:
    """What the hidden inputs are made from: drawn once, kept in the folder, so that grading again gives the same."""
    path = out / "secret.json"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        part = out / f"secret{results.PART}"
        part.touch(mode=0o600)
        part.write_text(json.dumps({"secret": secrets.token_hex(), "what": "the hidden inputs are made from this"}))
        part.replace(path)
    return json.loads(path.read_text())["secret"]


def seeds(secret: str, exercise: str, cells: Sequence[Cell] = ()) -> list[int]:
    """The seeds that an answer to an exercise is judged with.

    The same submission meets the same inputs whenever it is graded. A changed one meets others: what an earlier one has
    found out about its inputs is worth nothing.
    """
    theirs = hashlib.sha256(json.dumps([[cell.name, cell.source] for cell in cells]).encode()).hexdigest()
    words = [f"{secret} {exercise} {theirs} {number}".encode() for number in range(SEEDS)]
    return [int.from_bytes(hashlib.sha256(word).digest()[:6], "big") for word in words]


def _run(
    each: Submission, secret: str, limits: dict, data: Path | None
) -> tuple[NotebookNode, list[str], Report, list[str]]:
    """One submission through the sandbox: the notebook, its exercises, what came out, notes for a person."""
    chapter = each.chapter.name
    notebook, theirs, notes = restore(chapter, each.cells)
    cells, asked = [], {}
    for cell in notebook.cells:
        if name := exercise(cell):
            answer = ast.parse(cell.source).body[-1].value.args[1]  # check("name", answer)
            asked[name] = seeds(secret, name, each.cells)
            cells.append({"id": cell.id, "name": name, "asks": ast.unparse(answer)})
        elif cell.cell_type == "code":
            cells.append({"id": cell.id, "source": cell.source})
    chosen = dataclasses.replace(Limits.of(each.chapter), **limits)
    report = judge.run_apart(cells, chapter, asked, chosen, data)
    return notebook, list(asked), report, notes + review(theirs, solution(chapter))


class Failed(Exception):
    """The grader failed, and the message says how. The submission may be right."""


def page_of(out: Path, each: Submission) -> Path:
    """Where the feedback page of a student is."""
    return out / "feedback" / each.student / f"{each.lab}.html"


def _enter(
    book: "Book",
    out: Path,
    each: Submission,
    notebook: NotebookNode,
    asked: list[str],
    report: Report,
    notes: list[str],
) -> str:
    """Put one submission into the gradebook, keep its result; returns the words for the terminal."""
    from tools.grade.gradebook import outputs_of

    if report.failed:
        raise Failed(report.ended)
    student, lab = each.student, each.chapter.name
    verdicts = {}
    for name in asked:
        verdicts[name], more = results.verdict(name, report)
        notes = notes + more
    by_hand = [name for name in asked if results.grader_failed(name, report)]
    why = f"{BY_HAND}: the check failed for {', '.join(by_hand)}" if by_hand else ""
    status = "; ".join(filter(None, (why, results.status(report), results.printable(each.note))))
    page = book.enter(student, lab, notebook, outputs_of(notebook, report.cells, verdicts), status)
    target = page_of(out, each)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(page, target)
    results.keep(
        out,
        each,
        status=status,
        review="; ".join(dict.fromkeys(notes)),
        cpu_seconds=round(report.cpu_seconds, 1),
        by_hand=by_hand,
        verdicts={
            name: {"outcome": each.outcome, "message": each.message, "judged": results.judged_by(name, report)}
            for name, each in verdicts.items()
        },
    )
    points, most = book.points(student, lab)
    return status if by_hand else f"{points:g} of {most:g}{f'   {status}' if status else ''}"


if __name__ == "__main__":
    temporary = temporary_folder()
    try:
        sys.exit(main())
    except Stopped as stop:
        shutil.rmtree(temporary, ignore_errors=True)
        os._exit(stop.code)  # at once: should a thread still wait for a sandbox, both end here
