"""Grade a class: the command. `python -m tools.grade --help` says what it takes."""

import argparse
import ast
import hashlib
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbformat import NotebookNode

from tools import course
from tools.grade import judge, platforms, results, sandbox
from tools.grade.collect import Collected, Owner, Submission, survey
from tools.grade.restore import Cell, exercise, restore
from tools.grade.review import review, solution
from tools.grade.sandbox import Limits, Report
from tools.grade.shutdown import Signals, Stopped, workplace
from tools.sandbox_limits import hidden_from_others
from torchcourse.data import SPLITS, files, root_folder
from torchcourse.data.catalog import SPECS, fetch_command
from torchcourse.errors import CourseError

if TYPE_CHECKING:
    from tools.grade.gradebook import Book

SEEDS = 4  # secret variants of the inputs; an answer has to be right with all of them
BY_HAND = "grade by hand"  # in the status of a submission that the grader could not grade
Run = tuple[
    NotebookNode, list[str], Report, list[str]
]  # the notebook, its exercises, what came out, notes for a person


def main(words: list[str] | None = None) -> int:
    """Grade what the command line names. Returns 0, however badly the students did, or 1 if the grader failed."""
    parser = argparse.ArgumentParser(prog="make grade", description="Grade the labs of a class, each in a sandbox.")
    parser.add_argument("submissions", help="STUDENT/LAB/*.ipynb, STUDENT/*.ipynb or STUDENT_LAB.ipynb")
    parser.add_argument("--out", type=Path, default=course.ROOT / "build" / "grades")
    parser.add_argument("--chapters", default="", help='only these, for example "01 02"')
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="submissions at the same time")
    parser.add_argument("--synthetic", action="store_true", help="grade without the real data sets")
    platform = parser.add_mutually_exclusive_group()
    platform.add_argument("--moodle", type=Path, metavar="CSV", help="fill in a copy of this grading worksheet")
    platform.add_argument("--canvas", type=Path, metavar="CSV", help="fill in a copy of this gradebook export")
    parser.add_argument("--column", default="", metavar="TITLE", help="in it, the column that gets the points")
    options = parser.parse_args(words)
    folder, out = Path(options.submissions), options.out
    if not options.submissions or not folder.is_dir():
        raise SystemExit(f"There is no folder {folder}. Say where the submissions are: make grade SUBMISSIONS=folder")
    if out.resolve().is_relative_to(folder.resolve()):
        raise SystemExit(f"The results would lie among the submissions, in {out}. Choose another folder: --out")
    with Signals() as signals, workplace(out):
        if reason := sandbox.why_not():
            raise SystemExit(reason)
        chapters = course.select(options.chapters.split())
        found = survey(folder, {chapter.name for chapter in chapters})
        sheet = None
        if file := options.moodle or options.canvas:  # before it takes the time to grade a class
            handed_in = {each.lab for each in (*found.submissions, *found.missing)}
            labs = chapters if len(chapters) == 1 else [each for each in chapters if each.name in handed_in]
            read = platforms.moodle if options.moodle else platforms.canvas
            sheet = read(file, platforms.one_lab(file, out, labs), options.column)
        data = None if options.synthetic else real_data({each.lab for each in found.submissions})
        if options.synthetic:
            _say("Graded on synthetic data, because of --synthetic: accuracies are not those of the real data.")
        by_hand = grade(found, out, options.jobs, data, signals)
        if sheet:
            _say(f"\n{sheet.fill(out)}")
    if found.refused:
        _say(f"\nNot graded, {len(found.refused)}:")
        for path, reason in found.refused.items():
            _say(f"  {path}: {reason}")
    if by_hand:
        _say(f"\nTo grade by hand, because the grader itself failed: {by_hand}. See `status` in {out / 'grades.csv'}")
    return int(by_hand > 0)


def _say(text: str) -> None:
    """Print text, of which a terminal takes nothing for a command."""
    print("\n".join(map(results.printable, text.split("\n"))), flush=True)


def real_data(labs: set[str]) -> Path | None:
    """The folder with the data sets that these labs load; None if they load none and it is not there.

    Raises SystemExit if one is missing or damaged. The labs then work on synthetic data, which is right for a student
    who has no network, but a class must not be graded on it without knowing.
    """
    try:
        folder = root_folder()
        # Its solution is the lab with everything filled in.
        code = {lab: "\n".join(solution(lab)) for lab in sorted(labs)}
        loaded = {name: lab for lab in code for name in SPECS if f'"{name}"' in code[lab] or f"'{name}'" in code[lab]}
        for name, lab in loaded.items():
            if any(files.find(name, split, folder) is None for split in SPLITS):
                raise SystemExit(
                    f"Nothing is graded: {lab} needs {SPECS[name].title}, which is not in {folder}. To get it: "
                    f"{fetch_command(name, folder)}\nOr grade on synthetic data: make grade … OPTIONS=--synthetic"
                )
    except CourseError as error:  # there can be no folder, or a file in it is damaged
        raise SystemExit(f"Nothing is graded: {error}") from None
    if os.geteuid() == 0 and loaded and (hidden := hidden_from_others(folder)):
        raise SystemExit(
            f"Nothing is graded: submissions could not read the data, as {hidden} is private. "
            f"Run `chmod -R a+rX {folder}`."
        )
    return folder if folder.is_dir() else None


def grade(found: Collected, out: Path, jobs: int, data: Path | None, signals: Signals) -> int:
    """Run all submissions, `jobs` at a time, and write results, feedback and tables into `out`.

    Returns how many submissions a person has to grade, because the grader failed.

    data: the folder with the real data sets; without it, the labs find none
    signals: may end the run before its time; the tables are written anyway
    What is in `out` of other students and labs stays; what is graded again is replaced. A student with nothing that can
    be graded gets a row with the reason.
    """
    from tools.grade.gradebook import Book  # it takes two seconds to import

    book, secret = Book(out / "nbgrader"), secret_of(out)
    start, by_hand = time.monotonic(), 0
    for each in found.missing:
        results.keep(out, each, status=results.printable(each.note))
    with ThreadPoolExecutor(max(1, jobs)) as pool, judge.server() as address:

        def run(each: Submission) -> Future:
            return pool.submit(_run, each, secret, data, address)

        try:
            labs = sorted({each.lab for each in found.submissions})
            for lab in labs:
                book.prepare(lab)
            rehearsals = {run(solved(lab)): lab for lab in labs}
            for ended in signals.ended(rehearsals):
                refuse_unless_right(rehearsals[ended], ended.result())
            for number, (each, ended) in enumerate(_again_alone(found.submissions, run, signals), 1):
                try:
                    said = _enter(book, out, each, ended.result())
                except Exception as error:  # one submission costs only itself
                    said = results.printable(f"{BY_HAND}: {type(error).__name__}: {error}")
                    results.keep(out, each, status=said, by_hand=[results.ALL])
                    _page(out, each).unlink(missing_ok=True)  # an earlier one, of another verdict
                by_hand += said.startswith(BY_HAND)
                _say(f"[{number}/{len(found.submissions)}] {each.owner.student} {each.lab}: {said}")
        except Stopped:
            _say(f"\nStopped. What was graded until now is in {out}.")
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            results.write_tables(out, book)
    minutes, seconds = divmod(round(time.monotonic() - start), 60)
    _say(f"\n{len(found.submissions)} submissions in {minutes} min {seconds} s. Points: {out / 'grades.csv'}")
    _say(f"Messages of the checks: {out / 'exercises.csv'}   Pages for students: {out / 'feedback'}")
    return by_hand


def solved(lab: str) -> Submission:
    """The course's own solution of a lab, as a student would hand it in.

    It is graded before the class. Whatever keeps a right answer from its points on this machine (a folder that the
    sandbox does not show, a package that is missing, data that cannot be read) shows here and costs no student a point.
    """
    path = course.ROOT / "solutions" / f"{lab}.ipynb"
    cells = [Cell(cell.id, cell.source, cell.cell_type == "code") for cell in nbformat.read(path, as_version=4).cells]
    return Submission(Owner("the solution"), lab, path, cells=cells)


def refuse_unless_right(lab: str, run: Run) -> None:
    """Raise SystemExit with the reason unless the solution of a lab got all its points."""
    _, asked, report, _ = run
    verdicts = [results.verdict(name, report)[0] for name in asked]
    wrong = [f"`{each.name}`: {each.message}" for each in verdicts if not each.correct]
    if report.ended == "whole" and not wrong:
        return
    errors = [error.splitlines()[-1] for each in report.cells.values() if (error := each["error"].strip())]
    raise SystemExit(
        f"Nothing is graded: on this machine even the course's own solution of {lab} does not get its points. "
        f"{wrong[0] if report.ended == 'whole' else report.ended}"
        + (f" The first error in its notebook: {errors[0]}" if errors else "")
    )


def _again_alone(
    submissions: list[Submission], run: Callable[[Submission], Future], signals: Signals
) -> Iterator[tuple[Submission, Future]]:
    """The runs as they end. One that was disturbed runs again when all others have ended: its neighbors may have taken
    the processor, the memory or whatever else it needed. Then the new run counts.
    """
    runs, late = {run(each): each for each in submissions}, []
    for ended in signals.ended(runs):
        if ended.exception() or ended.result()[2].disturbed:
            late.append(runs[ended])
        else:
            yield runs[ended], ended
    for each in late:
        for ended in signals.ended([run(each)]):
            yield each, ended


def secret_of(out: Path) -> str:
    """What the hidden inputs are made from: drawn once, kept in the folder, so that grading again gives the same."""
    path = out / "secret.json"
    if not path.exists():
        with results.whole(path) as file:
            os.fchmod(file.fileno(), 0o600)
            json.dump({"secret": secrets.token_hex(), "what": "the hidden inputs are made from this"}, file)
    return json.loads(path.read_text())["secret"]


def seeds(secret: str, exercise: str, cells: Sequence[Cell] = ()) -> list[int]:
    """The seeds that an answer to an exercise is judged with.

    The same submission meets the same inputs whenever it is graded. A changed one meets others: what an earlier one has
    found out about its inputs is worth nothing.
    """
    theirs = hashlib.sha256(json.dumps([[cell.name, cell.source] for cell in cells]).encode()).hexdigest()
    words = [f"{secret} {exercise} {theirs} {number}".encode() for number in range(SEEDS)]
    return [int.from_bytes(hashlib.sha256(word).digest()[:6], "big") for word in words]


def _run(each: Submission, secret: str, data: Path | None, address: str) -> Run:
    """One submission through the sandbox."""
    notebook, theirs, notes = restore(each.lab, each.cells)
    cells, asked = [], {}
    for cell in notebook.cells:
        if name := exercise(cell):
            answer = ast.parse(cell.source).body[-1].value.args[1]  # check("name", answer)
            asked[name] = seeds(secret, name, each.cells)
            cells.append({"id": cell.id, "name": name, "asks": ast.unparse(answer)})
        elif cell.cell_type == "code":
            cells.append({"id": cell.id, "source": cell.source})
    report = judge.run_apart(address, cells, each.lab, asked, Limits.of(*course.select([each.lab])), data)
    return notebook, list(asked), report, notes + review(theirs, solution(each.lab))


def _page(out: Path, each: Submission) -> Path:
    return out / "feedback" / each.owner.student / f"{each.lab}.html"


def _enter(book: "Book", out: Path, each: Submission, run: Run) -> str:
    """Put one submission into the gradebook, keep its result; returns the words for the terminal."""
    from tools.grade.gradebook import outputs_of

    notebook, asked, report, notes = run
    if report.failed:
        raise RuntimeError(report.ended)
    verdicts = {}
    for name in asked:
        verdicts[name], more = results.verdict(name, report)
        notes = notes + more
    by_hand = [name for name in asked if results.grader_failed(name, report)]
    why = f"{BY_HAND}: the check failed for {', '.join(by_hand)}" if by_hand else ""
    status = "; ".join(filter(None, (why, results.status(report), results.printable(each.note))))
    page = book.enter(each.owner.student, each.lab, notebook, outputs_of(notebook, report.cells, verdicts), status)
    target = _page(out, each)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(page, target)
    said = {
        name: {"outcome": each.outcome, "message": each.message, "judged": results.judged_by(name, report)}
        for name, each in verdicts.items()
    }
    review = "; ".join(dict.fromkeys(notes))
    results.keep(out, each, status=status, review=review, by_hand=by_hand, verdicts=said)
    points, most = book.points(each.owner.student, each.lab)
    return status if by_hand else f"{points:g} of {most:g}{f'   {status}' if status else ''}"


if __name__ == "__main__":
    sys.exit(main())
