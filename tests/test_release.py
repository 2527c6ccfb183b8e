"""The tree that students get, and the assignment that nbgrader makes."""

import hashlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from conftest import copy_of_course

import torchcourse
from tools import build, course, guide, publish, slices
from tools.grade.collect import Cell
from tools.grade.restore import restore
from tools.release import build_wheel, release, unreleased

CHAPTERS = course.chapters()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release") / "students"
    release(folder)
    return folder


def test_a_release_holds_what_is_listed_and_no_answer(tree):
    """The list is in docs/release.md. The checks in the package do hold reference code."""
    (wheel,) = tree.glob("*.whl")
    names = {path.name for path in tree.iterdir()} - {wheel.name, ".made-by-make-release"}
    listed = (course.ROOT / "docs" / "release.md").read_text().partition("## What is in it")[2].partition("\n## ")[0]
    rows = [re.findall(r"`([\w.-]+)/?`", row.split("|")[1]) for row in listed.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in row} == names
    agents = (tree / "AGENTS.md").read_text()
    assert all((tree / name).is_dir() for name in re.findall(r"`([\w/]+)/`", agents))
    assert f"`{build.STUB.removeprefix('# ')}`" in agents and "Don't open `src/torchcourse_labs/`" in agents
    assert {path.name for path in (tree / "src").iterdir()} == {"torchcourse", "labcheck", "torchcourse_labs"}
    for folder in ("notebooks", "labs"):
        expected = {f"{chapter.name}.ipynb" for chapter in CHAPTERS if folder in chapter.published.values()}
        assert {path.name for path in (tree / folder).iterdir()} == expected
    for chapter in CHAPTERS:
        solution = nbformat.read(course.ROOT / "solutions" / f"{chapter.name}.ipynb", as_version=4)
        lab = nbformat.read(tree / "labs" / f"{chapter.name}.ipynb", as_version=4)
        answers = [cell for cell in lab.cells if cell.id.startswith("answer-")]
        assert answers and build.code_of(solution).count(build.BEGIN) >= len(answers)
        assert lab.metadata.colab.generative_ai_disabled
        assert build.BEGIN not in build.code_of(lab) and not build.answers_in(lab, solution)
        assert all(build.STUB in cell.source or cell.cell_type == "markdown" for cell in answers)


def test_a_lone_notebook_installs_the_wheel_of_its_release(tree):
    """The set-up cells name the wheel by its hash, and badges open the same version; nothing else is changed."""
    (wheel,) = tree.glob("*.whl")
    repository, tag = course.students(), f"v{torchcourse.__version__}"
    package = f"{repository}/raw/{tag}/{wheel.name}#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}"
    badge = f"https://colab.research.google.com/github/{repository.removeprefix('https://github.com/')}/blob/{tag}"
    for path in (*tree.glob("notebooks/*.ipynb"), *tree.glob("labs/*.ipynb")):
        original, handed_out = (course.ROOT / path.relative_to(tree)).read_text(), path.read_text()
        assert handed_out != original == handed_out.replace(package, "")
        before, after = (nbformat.reads(text, 4).cells for text in (original, handed_out))
        assert f"({badge}/{path.relative_to(tree)})" in after[0].source
        assert build.is_setup(after[1]) and f'\nPACKAGE = "{package}"\n' in after[1].source
        assert unreleased(after[1].source) == before[1].source


def test_a_released_lab_is_graded_without_a_note(tree):
    """The address that a release put into the set-up cell is no change by the student; anything else there is."""
    (path, *_) = (tree / "labs").iterdir()
    cells = [Cell(c.id, c.source, c.cell_type == "code") for c in nbformat.read(path, as_version=4).cells]
    assert restore(path.stem, cells)[1:] == ([], [])
    (setup,) = (cell for cell in cells if cell.name == "setup")
    setup.source += "\nprint('mine')"
    assert restore(path.stem, cells)[1:] == (["\nprint('mine')"], ["setup was changed"])


def test_the_wheel_is_the_same_each_time_and_from_the_source_distribution(tree, tmp_path, monkeypatch):
    (wheel,) = tree.glob("*.whl")
    sources = {str(path.relative_to(tree / "src")) for path in (tree / "src").rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        assert sources == {name for name in archive.namelist() if ".dist-info/" not in name}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path]
    subprocess.run(command, cwd=course.ROOT, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    subprocess.run(["tar", "-xf", sdist, "-C", tmp_path], check=True)
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    project = {"LICENSE", "LICENSE-TEXT", "pyproject.toml", "src"}
    assert {path.name for path in unpacked.iterdir()} - {"PKG-INFO", ".gitignore"} == project
    assert build_wheel(tmp_path, unpacked).read_bytes() == wheel.read_bytes()


@pytest.mark.weekly
def test_publishing_as_documented_puts_the_wheel_where_notebooks_look(tmp_path):
    """The commands of docs/release.md, with a repository on this machine; a second release continues the first. Those
    that tag and push the authors' own repository are left out."""
    own = ("git tag", f"git push {course.address()} ")
    commands = "\n".join(step for step in publish.steps("vVERSION") if not step.startswith(own))
    assert len(publish.steps("vVERSION")) == commands.count("\n") + 3
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
        return subprocess.check_output(["git", "-C", remote, "show", f"{tag}:{name}"])

    lab = at("v1", f"labs/{CHAPTERS[0].name}.ipynb").decode()
    name, digest = re.findall(r'PACKAGE = \\"[^"]+/([^"/]+)#sha256=(\w+)\\"', lab)[0]
    assert hashlib.sha256(at("v1", name)).hexdigest() == digest == hashlib.sha256(at("v2", name)).hexdigest()


def test_publish_checks_first_and_says_what_is_missing(tmp_path, monkeypatch, capsys):
    """A dry run tags nothing, and what pushes is only shown."""
    git = ["git", "-C", tmp_path, "-c", "user.name=A", "-c", "user.email=a@b.c"]
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 0.1.0\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "All of it"], ["tag", "v0.1.0"]):
        subprocess.run([*git, *words], check=True)
    (news,) = publish.unfinished("0.2.0", tmp_path)
    assert '"Unreleased"' in news
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0\n")
    open_changes, tagged = publish.unfinished("0.1.0", tmp_path)
    assert "not committed" in open_changes and "never changes" in tagged

    monkeypatch.setattr(publish, "unfinished", lambda version: [])
    monkeypatch.setattr(publish, "CHECKS", {"it runs": ["platform"], "it works": ["no_such_module"]})
    assert publish.main(["--dry-run"]) == 1
    said = capsys.readouterr().out
    assert "ok: it runs" in said and "NOT ok: it works" in said and "is not ready" in said
    monkeypatch.setattr(publish, "CHECKS", {})
    before = subprocess.check_output(["git", "tag"], cwd=course.ROOT)
    assert publish.main(["--dry-run"]) == 0
    assert f"git push {course.address()} main v{torchcourse.__version__}" in capsys.readouterr().out
    assert subprocess.check_output(["git", "tag"], cwd=course.ROOT) == before


# ---------------------------------------------------------------------------------------------------------------------
# What was typed into labs/ and notebooks/


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def work_in(path, cell_id, source):
    """What Jupyter leaves: a changed cell, an output, and the kernel's version."""
    notebook = nbformat.read(path, as_version=4)
    (cell,) = (cell for cell in notebook.cells if cell.id == cell_id)
    cell.source, cell.execution_count = source, 1
    cell.outputs = [nbformat.v4.new_output("stream", text="typed by the instructor")]
    notebook.metadata.language_info["version"] = "3.12.1"
    nbformat.write(notebook, path)


# Hands out, publishes and grades in the copy, and prints what students and the grader would get of one lab.
ALL_WAYS = """
import sys
from pathlib import Path
from tools import course, release
from tools.grade.collect import Cell
from tools.grade.restore import lab, restore
from tools.hub import publish
from tools.site import sources

chapters = course.select([name := sys.argv[1]])
release.release(Path("release"), chosen=chapters)
print(Path("release", "labs", f"{name}.ipynb").read_text())
publish.publish(Path("state"))
print(publish.git(f"--git-dir={publish.repository(Path('state'))}", "show", f"main:labs/{name}.ipynb"))
gathered = sources.Sources()
sources.add_chapter(gathered, *chapters, "address", course.ROOT)
print(gathered.pages[f"labs/{name}.ipynb"].decode(), gathered.extra[f"files/labs/{name}.ipynb"].decode())
kept = [Cell(c.id, c.source, c.cell_type == "code") for c in lab(name).cells if not c.id.startswith("answer-")]
print(*(cell.source for cell in restore(name, kept)[0].cells), "the end")
"""


def test_what_was_typed_into_labs_and_notebooks_reaches_nobody(tmp_path):
    """Answers: not the release, the hub's repository, the website, or the grade of a student who has deleted the answer
    cell. A lecture that is not as built stops the release, with the way out, and the one before is still there."""
    copied, name = copy_of_course(tmp_path / "course"), CHAPTERS[0].name
    answers = [cell.id for cell in build.edition(CHAPTERS[0], "lab").cells if cell.id.startswith("answer-")]
    for answer in answers:
        work_in(copied / "labs" / f"{name}.ipynb", answer, "pass  # typed by the instructor")
    environment = os.environ | {"PYTHONPATH": f"{copied / 'src'}{os.pathsep}{copied}"}
    command = [sys.executable, "-c", ALL_WAYS, name]
    done = subprocess.run(command, cwd=copied, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(build.STUB) == 5 * len(answers) and "the end" in done.stdout
    assert "typed by the instructor" not in done.stdout

    path, source = copied / "notebooks" / f"{name}.ipynb", copied / "notebooks" / f"{name}.md"
    built, text, before = path.read_bytes(), source.read_text(), snapshot(copied / "release")
    saved = nbformat.reads(built, 4)  # run as it is: the outputs are of the instructor's machine
    saved.metadata.language_info["version"] = "3.12.1"
    for change in (
        lambda: work_in(path, next(c.id for c in saved.cells[2:] if c.cell_type == "code"), "prediction = 3"),
        lambda: nbformat.write(saved, path),
        lambda: source.write_text(text + "\nOne sentence more.\n"),
        lambda: path.unlink(),
    ):
        path.write_bytes(built)
        source.write_text(text)
        change()
        with pytest.raises(SystemExit, match=rf"^notebooks/{name}.ipynb is not what .*`make build CHAPTERS=00`"):
            release(copied / "release", copied)
    assert snapshot(copied / "release") == before


# ---------------------------------------------------------------------------------------------------------------------
# The way through the released tree


def prose_of(path):
    """The text of a page or a notebook, without code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = nbformat.reads(text, 4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def links_of(path):
    """Where its links and pictures lead."""
    text = re.sub(r"`[^`]*`", "", prose_of(path))
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:href|src)="([^"]+)"', text)


def places_of(path):
    """The headings of a page, as a link names them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links_in(tree):
    """All links within the tree: page and link, and whether it leads somewhere."""
    for page in (path for suffix in ("*.md", "*.ipynb") for path in tree.rglob(suffix)):
        for link in (link for link in links_of(page) if not re.match(r"\w+:", link)):
            name, _, place = link.partition("#")
            target = page.parent / name if name else page
            yield f"{page.relative_to(tree)}: {link}", target.exists() and place in {"", *places_of(target)}


def test_links_of_the_release_lead_somewhere(tree):
    found = list(links_in(tree))
    assert len(found) > 4 * len(CHAPTERS)
    assert [link for link, leads in found if not leads] == []


def test_a_slice_stands_alone(tree, tmp_path):
    """Two chapters, the whole package, and a page of what they need; links to others lead to the published course."""
    part, chosen, home = tmp_path / "slice", course.select(["11", "12"]), course.home()
    written = release(part, chosen=chosen)
    assert {*written} - {path.relative_to(tree) for path in tree.rglob("*")} == {Path(slices.PAGE)}
    books = [path for path in written if path.suffix == ".ipynb"]
    assert {*map(str, books)} == {f"{folder}/{each.name}.ipynb" for folder in ("labs", "notebooks") for each in chosen}
    (wheel,) = part.glob("*.whl")
    assert wheel.read_bytes() == (tree / wheel.name).read_bytes(), "the one that is published"
    assert [link for link, leads in links_in(part) if not leads] == []
    links = links_of(part / "README.md")
    for each in CHAPTERS:
        assert (each.first if each in chosen else f"{home}{each.first.removesuffix('ipynb')}html") in links
    before, needed = (part / slices.PAGE).read_text(), slices.needed(chosen)
    assert [each.number for each in needed] == ["02", "04", "05", "06", "09"]
    assert all(f"- {goal}\n" in before for each in needed for goal in each.goals)
    assert "| **epoch** |" in before and "| **attention** |" not in before and "- `checkpoint`: " in before
    (lab,) = part.glob("labs/12*")
    cells = nbformat.read(lab, as_version=4).cells
    assert f"({home}labs/13_capstone.html)" in cells[-1].source
    kept = [Cell(cell.id, cell.source, cell.cell_type == "code") for cell in cells]
    assert restore(lab.stem, kept)[1:] == ([], []), "it is graded as the lab of the whole course"


def test_students_have_a_readme_that_leads_through_the_whole_course(tree):
    """It names nothing that they don't have. From it, links lead through each lecture and its lab to the last one; in
    Colab, too."""
    page = tree / "README.md"
    text = page.read_text()
    assert "{" not in text and not re.search(r"\bmake [a-z]", text) and len(text.splitlines()) < 70
    named = re.findall(r"(?:-c|--file|-f) ([\w.]+)", text)
    assert named and all((tree / name).exists() for name in named)
    order = [tree / folder / f"{c.name}.ipynb" for c in CHAPTERS for folder in c.published.values()]
    listed = [(page.parent / link).resolve() for link in links_of(page) if not link.startswith("https:")]
    assert [path for path in listed if path.suffix == ".ipynb"][-len(order) :] == order
    for here, there in itertools.pairwise(order):
        links = links_of(here)
        if here.parent.name == "labs":
            *_, last, colab = links
            assert colab == guide.on_colab(f"{there.parent.name}/{there.name}")
        else:
            last = f"../labs/{here.name}"
            assert last in links
        assert (here.parent / last).resolve() == there
    assert "last lab" in nbformat.read(order[-1], as_version=4).cells[-1].source


def test_release_replaces_only_what_it_made(tree, tmp_path):
    before = (tree / "README.md").read_text()
    release(tree)
    assert (tree / "README.md").read_text() == before
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(SystemExit, match="not empty"):
        release(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_nbgrader_makes_an_assignment_of_a_solution(tmp_path):
    """The way of docs/grading.md to nbgrader's exchange."""
    name = CHAPTERS[0].name
    (tmp_path / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.course_id = 'course'\n")
    (tmp_path / "source" / name).mkdir(parents=True)
    shutil.copy(course.ROOT / "solutions" / f"{name}.ipynb", tmp_path / "source" / name)
    # nbgrader starts `alembic` by name, so the environment's programs must be found.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"HOME": str(tmp_path), "PYTHONWARNINGS": "ignore", "PATH": path}
    command = [sys.executable, "-m", "nbgrader", "generate_assignment", name, "--create"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    made = nbformat.read(tmp_path / "release" / name / f"{name}.ipynb", as_version=4)
    lab = nbformat.read(course.ROOT / "labs" / f"{name}.ipynb", as_version=4)
    assert "BEGIN SOLUTION" not in build.code_of(made)
    ids, expected = ([c.metadata.get("nbgrader", {}).get("grade_id") for c in each.cells] for each in (made, lab))
    assert ids == expected
