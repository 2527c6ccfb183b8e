"""The tree that students get, and grading by nbgrader."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import nbformat
import pytest

from tools import build, course
from tools.grade.collect import Cell
from tools.grade.restore import restore
from tools.release import FILES, IGNORED, address, build_wheel, release, unreleased

CHAPTERS = course.chapters()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release") / "students"
    release(folder)
    return folder


def test_release_has_what_students_need(tree):
    for chapter in CHAPTERS:
        there = {folder for folder in ("notebooks", "labs") if (tree / folder / f"{chapter.name}.ipynb").exists()}
        assert there == {*chapter.published.values()}
    assert (tree / "src" / "torchcourse" / "__init__.py").exists() and (tree / "README.md").exists()


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)
def test_notebooks_of_a_release_hold_no_answer(tree, chapter):
    """No telling line of a solution is in its lab. The checks in the package do hold reference code."""
    solution = nbformat.read(course.ROOT / "solutions" / f"{chapter.name}.ipynb", as_version=4)
    lab = nbformat.read(tree / "labs" / f"{chapter.name}.ipynb", as_version=4)
    answers = [cell for cell in lab.cells if cell.id.startswith("answer-")]
    assert answers and build.code_of(solution).count(build.BEGIN) >= len(answers)
    assert build.BEGIN not in build.code_of(lab) and not build.answers_in(lab, solution)
    assert all(build.STUB in cell.source or cell.cell_type == "markdown" for cell in answers)


def test_release_holds_what_is_listed_and_nothing_of_the_authors(tree):
    """The list is in docs/release.md."""
    (wheel,) = tree.glob("*.whl")
    names = {path.name for path in tree.iterdir()} - {wheel.name, ".made-by-make-release"}
    listed = (course.ROOT / "docs" / "release.md").read_text().partition("## What is in it")[2].partition("\n## ")[0]
    rows = [re.findall(r"`([\w.-]+)/?`", row.split("|")[1]) for row in listed.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in row} == names
    assert {path.suffix for folder in ("notebooks", "labs") for path in (tree / folder).iterdir()} == {".ipynb"}
    assert {path.name for path in (tree / "src").iterdir()} == {"torchcourse"}


def test_a_lone_notebook_installs_the_wheel_of_its_release(tree):
    """The set-up cells name the wheel by its hash; nothing else in the notebooks is changed."""
    (wheel,) = tree.glob("*.whl")
    package = address(wheel, f"{course.students()}/raw/{build.tag()}")
    assert package.endswith(f"#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    for folder in ("notebooks", "labs"):
        for path in (tree / folder).iterdir():
            original, handed_out = (course.ROOT / folder / path.name).read_text(), path.read_text()
            assert handed_out != original == handed_out.replace(package, "")
            before, after = (
                next(cell.source for cell in nbformat.reads(text, 4).cells if build.is_setup(cell))
                for text in (original, handed_out)
            )
            assert unreleased(after) == before != after


def test_a_released_lab_is_graded_without_a_note(tree):
    """The address that a release put into the set-up cell is no change by the student; anything else there is."""
    (path, *_) = (tree / "labs").iterdir()
    cells = [Cell(c.id, c.source, c.cell_type == "code") for c in nbformat.read(path, as_version=4).cells]
    assert restore(path.stem, cells)[1:] == ([], [])
    (setup,) = (cell for cell in cells if cell.name == "setup")
    setup.source += "\nprint('mine')"
    assert restore(path.stem, cells)[1:] == ([], ["setup was changed"])


def test_the_wheel_has_the_package_and_is_the_same_each_time(tree, tmp_path, monkeypatch):
    (wheel,) = tree.glob("*.whl")
    sources = {str(path.relative_to(tree / "src")) for path in (tree / "src").rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        assert sources == {name for name in archive.namelist() if ".dist-info/" not in name}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for path in (tree / "src").rglob("*"):
        os.utime(path)
    again = build_wheel(tmp_path, tree)  # from the released sources, at another time
    assert again.read_bytes() == wheel.read_bytes()


def test_the_source_distribution_makes_the_same_wheel(tree, tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path]
    subprocess.run(command, cwd=course.ROOT, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        # Python has filters since 3.11.4.
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    project = {"LICENSE", "LICENSE-TEXT", "README.md", "pyproject.toml", "src"}
    assert {path.name for path in unpacked.iterdir()} - {"PKG-INFO", ".gitignore"} == project
    assert build_wheel(tmp_path, unpacked).read_bytes() == next(tree.glob("*.whl")).read_bytes()


def test_publishing_as_documented_puts_the_wheel_where_notebooks_look(tmp_path):
    """The commands of docs/release.md, with a repository on this machine; a second release continues the first."""
    text = (course.ROOT / "docs" / "release.md").read_text()
    (commands,) = re.findall(r"```\n +(git clone --bare .*?)```", text, re.DOTALL)
    remote, state = tmp_path / "remote.git", tmp_path / "state"
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", remote], check=True)
    put = {course.students(): remote.as_uri(), "build/students": str(state)}
    put[".venv/bin/python"] = shlex.quote(sys.executable)
    for version in ("v1", "v2"):
        script = commands
        for old, new in {**put, "vVERSION": version}.items():
            script = script.replace(old, new)
        done = subprocess.run(["bash", "-ec", script], cwd=course.ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        shutil.rmtree(state)  # on another machine, next time

    def at(tag, name):
        return subprocess.run(["git", "-C", remote, "show", f"{tag}:{name}"], capture_output=True, check=True).stdout

    lab = at("v1", f"labs/{CHAPTERS[0].name}.ipynb").decode()
    name, digest = re.findall(r'PACKAGE = \\"[^"]+/([^"/]+)#sha256=(\w+)\\"', lab)[0]
    assert hashlib.sha256(at("v1", name)).hexdigest() == digest == hashlib.sha256(at("v2", name)).hexdigest()


def test_a_notebook_that_was_not_built_is_not_released(tmp_path):
    copy = tmp_path / "course"
    for folder in ("labs", "notebooks", "src"):
        shutil.copytree(course.ROOT / folder, copy / folder, ignore=IGNORED)
    for name in FILES:
        shutil.copy(course.ROOT / name, copy)
    lab = copy / "labs" / f"{CHAPTERS[0].name}.ipynb"
    lab.write_text(lab.read_text().replace("PACKAGE =", "SOMETHING ="))
    with pytest.raises(SystemExit, match="run `make build`"):
        release(tmp_path / "release", copy)


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
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
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
