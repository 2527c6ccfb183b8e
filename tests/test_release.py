"""The tree that students get, and grading by nbgrader."""

import json
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


def test_nbgrader_releases_and_grades_the_labs(tmp_path):
    """The way of an assignment: instructor's notebook, release, two submissions, grades. Done with the first lab."""
    name = CHAPTERS[0].name
    solution = nbformat.read(course.ROOT / "solutions" / f"{name}.ipynb", as_version=4)
    blank = nbformat.read(course.ROOT / "labs" / f"{name}.ipynb", as_version=4)
    answers = {cell.id: cell.source for cell in solution.cells if cell.id.startswith("answer-")}
    full = json.loads(json.dumps(blank))
    for cell in full["cells"]:
        cell["source"] = answers.get(cell["id"], cell["source"])

    def put(folder, notebook):
        (tmp_path / folder).mkdir(parents=True)
        nbformat.write(nbformat.from_dict(notebook), tmp_path / folder / f"{name}.ipynb")

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
    put(f"submitted/full/{name}", full)
    put(f"submitted/blank/{name}", blank)
    nbgrader("autograde", name)

    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}") as book:
        scores = {who: book.find_submission(name, who) for who in ("full", "blank")}
        assert scores["full"].score == scores["full"].max_score > 0
        assert scores["blank"].score == 0
