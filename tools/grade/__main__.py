"""Grade a class.

python -m tools.grade SUBMISSIONS [--out build/grades] [--chapters "01 02"] [--jobs N] [--seconds S] [--memory MIB]
"""

import argparse
import ast
import dataclasses
import hashlib
import json
import os
import secrets
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from nbformat import NotebookNode

from tools import course
from tools.grade import results, sandbox
from tools.grade.book import Book, outputs_of
from tools.grade.collect import Submission, collect
from tools.grade.restore import restore
from tools.grade.review import review, solution
from tools.grade.sandbox import Limits, Report
from torchcourse.data.catalog import root_folder

SEEDS = 4  # secret variants of the inputs; an answer has to be right with all of them


def main(words: list[str] | None = None) -> int:
    """Grade what the command line names. Returns the exit status: 0, however badly the students did."""
    options = _options(words)
    if not options.submissions:
        raise SystemExit("Say where the submissions are: make grade SUBMISSIONS=folder")
    sandbox.refuse_without()
    chapters = course.select(options.chapters.split())
    submissions, refused = collect(Path(options.submissions), {chapter.name for chapter in chapters})
    if submissions:
        grade(submissions, options.out, options.jobs, _limits(options))
    else:
        print(f"There is nothing to grade in {options.submissions}.")
    if refused:
        print(f"\nNot graded, {len(refused)}:")
        for path, reason in refused.items():
            print(f"  {results.printable(path)}: {results.printable(reason)}")
    return 0


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make grade", description="Grade the labs of a class, each in a sandbox.")
    parser.add_argument("submissions", help="STUDENT/LAB/*.ipynb, STUDENT/*.ipynb or STUDENT_LAB.ipynb")
    parser.add_argument("--out", type=Path, default=course.ROOT / "build" / "grades")
    parser.add_argument("--chapters", default="", help='only these, for example "01 02"')
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="submissions at the same time")
    parser.add_argument("--seconds", type=float, help="for a notebook; default: five times what the solution may take")
    parser.add_argument("--memory", type=int, help="MiB of one process; all of a submission may have twice as much")
    return parser.parse_args(words)


def _limits(options: argparse.Namespace) -> dict:
    chosen = {}
    if options.seconds:
        chosen |= {"seconds": options.seconds, "cell_seconds": options.seconds / 2}
    if options.memory:
        chosen |= {"mib": options.memory}
    return chosen


def grade(submissions: list[Submission], out: Path, jobs: int, limits: dict) -> None:
    """Run all submissions, `jobs` at a time, and write results, feedback and tables into `out`.

    limits: fields of `sandbox.Limits` that shall differ from those of the chapter.
    What lies in `out` of other students and labs stays; what is graded again is replaced.
    """
    book = Book(out / "nbgrader")
    secret = secret_of(out)
    start = time.monotonic()
    for chapter in sorted({each.chapter.name for each in submissions}):
        book.prepare(chapter)
    pool = ThreadPoolExecutor(jobs)
    runs = {pool.submit(_run, each, secret, limits): each for each in submissions}
    try:
        for number, run in enumerate(as_completed(runs), 1):
            each = runs[run]
            try:
                said = _enter(book, out, each, *run.result())
            except Exception as error:  # one submission costs only itself
                said = results.printable(f"not graded: {type(error).__name__}: {error}")
                results.keep(out, each, status=said, review="", verdicts={})
            print(f"[{number}/{len(runs)}] {each.student} {each.chapter.name}: {said}", flush=True)
    except KeyboardInterrupt:
        results.write_tables(out, book)
        print(f"\nStopped. What was graded until now is in {out}.", flush=True)
        os._exit(130)  # at once: the sandboxes end with this process
    results.write_tables(out, book)
    minutes, seconds = divmod(round(time.monotonic() - start), 60)
    print(f"\n{len(runs)} submissions in {minutes} min {seconds} s. Points: {out / 'grades.csv'}")
    print(f"Messages of the checks: {out / 'exercises.csv'}   Pages for students: {out / 'feedback'}")


def secret_of(out: Path) -> str:
    """What the hidden inputs are made from: drawn once, kept in the folder, so that grading again gives the same."""
    path = out / "secret.json"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(json.dumps({"secret": secrets.token_hex(), "what": "the hidden inputs are made from this"}))
    return json.loads(path.read_text())["secret"]


def seeds(secret: str, exercise: str) -> list[int]:
    """The seeds that everyone's answer to an exercise is judged with."""
    words = [f"{secret} {exercise} {number}".encode() for number in range(SEEDS)]
    return [int.from_bytes(hashlib.sha256(word).digest()[:6], "big") for word in words]


def _run(each: Submission, secret: str, limits: dict) -> tuple[NotebookNode, list[str], Report, list[str]]:
    """One submission through the sandbox: the notebook, its exercises, what came out, notes for a person."""
    chapter = each.chapter.name
    notebook, theirs, notes = restore(chapter, each.cells)
    cells, asked = [], {}
    for cell in notebook.cells:
        if cell.id.startswith("check-"):
            name, answer = ast.parse(cell.source).body[-1].value.args  # check("name", answer)
            asked[name.value] = seeds(secret, name.value)
            cells.append({"id": cell.id, "name": name.value, "asks": ast.unparse(answer)})
        elif cell.cell_type == "code":
            cells.append({"id": cell.id, "source": cell.source})
    data = root_folder()
    chosen = dataclasses.replace(Limits.of(each.chapter), **limits)
    report = sandbox.run(cells, chapter, asked, chosen, data if data.is_dir() else None)
    return notebook, list(asked), report, notes + review(theirs, solution(chapter))


def _enter(
    book: Book, out: Path, each: Submission, notebook: NotebookNode, asked: list[str], report: Report, notes: list[str]
) -> str:
    """Put one submission into the gradebook, keep its result; returns the words for the terminal."""
    student, lab = each.student, each.chapter.name
    verdicts = {}
    for name in asked:
        verdicts[name], more = results.verdict(name, report)
        notes = notes + more
    status = results.status(report)
    page = book.enter(student, lab, notebook, outputs_of(notebook, report.cells, verdicts), status)
    target = out / "feedback" / student / f"{lab}.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(page, target)
    results.keep(
        out,
        each,
        status=status,
        review="; ".join(dict.fromkeys(notes)),
        cpu_seconds=round(report.cpu_seconds, 1),
        verdicts={name: {"outcome": each.outcome, "message": each.message} for name, each in verdicts.items()},
    )
    points, most = book.points(student, lab)
    return f"{points:g} of {most:g}{f'   {status}' if status else ''}"


if __name__ == "__main__":
    sys.exit(main())
