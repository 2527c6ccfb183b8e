"""The tree that students get, and grading by nbgrader."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tools import course
from tools.release import release

CHAPTERS = course.chapters()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release") / "students"
    release(folder)
    return folder


def test_release_has_what_students_need(tree):
    for chapter in CHAPTERS:
        assert (tree / "notebooks" / f"{chapter.name}.ipynb").exists() and (
            tree / "labs" / f"{chapter.name}.ipynb"
        ).exists()
    assert (tree / "src" / "torchcourse" / "__init__.py").exists() and (tree / "README.md").exists()


def test_release_has_no_answers(tree):
    files = [path.relative_to(tree) for path in tree.rglob("*") if path.is_file()]
    assert not [path for path in files if {"solutions", "tests", "tools", "slides"} & set(path.parts)]
    for chapter in CHAPTERS:
        assert "BEGIN SOLUTION" not in (tree / "labs" / f"{chapter.name}.ipynb").read_text()


def test_release_replaces_only_what_it_made(tree, tmp_path):
    before = (tree / "README.md").read_text()
    release(tree)
    assert (tree / "README.md").read_text() == before
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(SystemExit, match="not empty"):
        release(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_nbgraders_own_commands_work_with_the_solutions(tmp_path):
    """The way of an assignment without `make grade`: instructor's notebook, release, a submission, grades."""
    name = CHAPTERS[0].name
    solution = nbformat.read(course.ROOT / "solutions" / f"{name}.ipynb", as_version=4)
    submission = nbformat.read(course.ROOT / "labs" / f"{name}.ipynb", as_version=4)
    first, *_ = (cell for cell in solution.cells if cell.id.startswith("answer-"))
    for cell in submission.cells:
        cell.source = first.source if cell.id == first.id else cell.source

    def put(folder, notebook):
        (tmp_path / folder).mkdir(parents=True)
        nbformat.write(notebook, tmp_path / folder / f"{name}.ipynb")

    def nbgrader(*words):
        command = [sys.executable, "-m", "nbgrader", *words]
        # nbgrader starts `alembic` by name, so the environment's programs must be found.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = os.environ | {"HOME": str(tmp_path), "PYTHONWARNINGS": "ignore", "PATH": path}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    (tmp_path / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.course_id = 'course'\n")
    put(f"source/{name}", solution)
    nbgrader("generate_assignment", name, "--create")
    assert "BEGIN SOLUTION" not in (tmp_path / "release" / name / f"{name}.ipynb").read_text()
    put(f"submitted/ada/{name}", submission)
    nbgrader("autograde", name)

    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}") as book:
        graded = book.find_submission(name, "ada")
        points = {grade.name: grade.score for grade in graded.notebooks[0].grades}
        assert points[first.id.replace("answer", "check")] == graded.score and 0 < graded.score < graded.max_score
