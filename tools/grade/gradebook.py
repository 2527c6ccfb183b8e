"""The gradebook: nbgrader's own, with its scoring, manual grades, comments and feedback.

Only the step in which nbgrader would run a submission is another one: `FromSandbox` puts in what came out of the
sandbox. A check cell gets its verdict, and if that is not "correct" an error, which is how nbgrader takes points off.
"""

import contextlib
import logging
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import nbformat
import sqlalchemy.exc
from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import NbGraderAPI
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import Execute, GetGrades, NbGraderPreprocessor
from traitlets.config import Config

from labcheck.exercise import load_chapter
from labcheck.show import LOOKS, Result
from tools import course
from tools.course import ROOT
from tools.grade.restore import exercise

warnings.filterwarnings("ignore", category=sqlalchemy.exc.SAWarning)  # nbgrader's own affair
HERE = Path(__file__).parent
# In the folder of the gradebook, for those who open nbgrader's formgrader there.
SETTINGS = """c = get_config()
c.CourseDirectory.course_id = "course"
# Submissions are run by `make grade` only, in its sandbox. Here the button "Autograde" would run them without one.
c.Autograde.pre_convert_hook = "tools.grade.gradebook.only_in_the_sandbox"
"""


def only_in_the_sandbox(**_: Any) -> None:
    raise RuntimeError("Submissions are graded by `make grade`, which runs them in a sandbox.")


class FromSandbox(NbGraderPreprocessor):
    """In place of nbgrader's Execute: the outputs that `Book.enter` was given."""

    outputs: dict[str, list[NotebookNode]] = {}  # cell -> its outputs, of the submission that is entered  # noqa: RUF012

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        if cell.cell_type == "code":
            cell.outputs = self.outputs.get(cell.id, [])
        return cell, resources


class Page(NbGraderPreprocessor):
    """What the feedback page shows, out of a graded notebook: the template only lays it out."""

    status: str = ""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        answers: list[NotebookNode] = []
        chapter = resources["nbgrader"]["assignment"]
        known, exercises = load_chapter(chapter), []
        for cell in nb.cells:
            name = exercise(cell)
            if cell.id.startswith(("answer-", "added-")):
                answers.append(cell)
            elif name:
                exercises.append(
                    {
                        "title": known[name].title,
                        "grade": cell.metadata.nbgrader,
                        "sign": _sign(cell),
                        "verdict": cell.outputs[0].data["text/html"],  # our own, escaped by Result.html
                        "answers": answers,
                        "comments": filter(None, [c.metadata.get("nbgrader", {}).get("comment") for c in answers]),
                    }
                )
                answers = []
        resources["title"] = f"Lab {chapter.partition('_')[0]} · {course.select([chapter])[0].title}"
        resources["exercises"], resources["status"] = exercises, self.status
        return nb, resources


def _sign(check: NotebookNode) -> str:
    """The sign of an exercise in the table of a page. It goes by the points, which a person may have changed."""
    grade, outcome = check.metadata.nbgrader, check.outputs[-1].get("ename", "correct")  # see `outputs_of`
    if grade.score == grade.points:
        return LOOKS["correct"][0]
    return LOOKS["incorrect" if grade.score or outcome == "correct" else outcome][0]


class Book:
    """nbgrader's course in a folder: source/, submitted/, autograded/, feedback/ and gradebook.db."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.url = f"sqlite:///{self.folder / 'gradebook.db'}"
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "nbgrader_config.py").write_text(SETTINGS)
        # nbgrader starts `alembic` by name, so the programs of this environment must be found.
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        config = Config()
        config.CourseDirectory.root = str(self.folder)
        config.CourseDirectory.course_id = "course"
        config.CourseDirectory.db_url = self.url
        config.Autograde.autograde_preprocessors = [
            FromSandbox if each is Execute else each for each in Autograde.autograde_preprocessors.default()
        ]
        config.GenerateFeedback.preprocessors = [GetGrades, Page]
        config.HTMLExporter.extra_template_basedirs = [str(HERE / "templates")]  # there, the one that nbgrader asks for
        log = logging.getLogger("traitlets")  # says much, as that no exchange is there; errors come back to us
        log.addHandler(logging.NullHandler())
        log.propagate = False
        self.api = NbGraderAPI(coursedir=CourseDirectory(config=config), config=config)

    def prepare(self, chapter: str) -> None:
        """Enter a lab as an assignment, from the solution; nothing happens if it is there and the same."""
        solution = ROOT / "solutions" / f"{chapter}.ipynb"
        source = self.folder / "source" / chapter / solution.name
        if source.exists() and source.read_bytes() == solution.read_bytes():
            return
        source.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(solution, source)
        _must(self.api.generate_assignment(chapter, force=True, create=True))

    def enter(self, student: str, chapter: str, notebook: NotebookNode, outputs: dict[str, list], status: str) -> Path:
        """Score one submission and write its feedback page; returns the page. An earlier one is replaced."""
        target = self.folder / "submitted" / student / chapter
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        nbformat.write(notebook, target / f"{chapter}.ipynb")
        FromSandbox.outputs, Page.status = outputs, status
        _must(self.api.autograde(chapter, student, force=True, create=True))
        _must(self.api.generate_feedback(chapter, student, force=True))
        return self.folder / "feedback" / student / chapter / f"{chapter}.html"

    def points(self, student: str, chapter: str) -> tuple[float, float]:
        """Points and maximum, manual grades and late penalties of nbgrader included."""
        return self.points_of({(student, chapter)})[student, chapter]

    def points_of(self, submissions: set[tuple[str, str]]) -> dict[tuple[str, str], tuple[float, float]]:
        """Points and maximum of each (student, lab) that is in the gradebook."""
        points = {}
        with Gradebook(self.url) if submissions else contextlib.nullcontext() as book:
            for student, chapter in submissions:
                with contextlib.suppress(MissingEntry):
                    found = book.find_submission(chapter, student)
                    points[student, chapter] = found.score - (found.late_submission_penalty or 0), found.max_score
        return points

    def graded_by_hand(self, student: str, chapter: str, exercises: list[str]) -> bool:
        """Tell whether a person has given points for each of these exercises."""
        try:
            with Gradebook(self.url) as book:
                found = [book.find_grade(f"check-{name}", chapter, chapter, student) for name in exercises]
                return all(each.manual_score is not None for each in found)
        except MissingEntry:
            return False


def _must(result: dict) -> None:
    if not result["success"]:
        raise RuntimeError(f"nbgrader failed: {(result.get('error') or result.get('log') or '').strip()[-1000:]}")


def outputs_of(notebook: NotebookNode, cells: dict[str, dict], verdicts: dict[str, Result]) -> dict[str, list]:
    """nbformat's outputs for each cell. Of the student's only text: no HTML, no script gets through."""
    made = {}
    for cell in notebook.cells:
        shown = cells.get(cell.id, {})
        if name := exercise(cell):
            result = verdicts[name]
            data = {"text/html": result.html, "text/plain": result.text}
            made[cell.id] = [nbformat.v4.new_output("display_data", data)]
            if not result.correct:
                made[cell.id].append(nbformat.v4.new_output("error", ename=result.outcome, evalue=result.message))
            continue
        texts = [text for key in ("text", "error") if (text := shown.get(key, "").strip())]
        made[cell.id] = [nbformat.v4.new_output("stream", text=text) for text in texts]
    return made
