"""The builder, on a small course made up here: good masters, and masters with the mistakes that authors make."""

import shutil

import nbformat
import pytest

from labcheck import exercise
from labcheck.exercise import Exercise
from tools import build, course

HEAD = "---\nkernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n"
TOML = """
[repository]
address = "https://github.com/someone/course"
students = "https://github.com/someone/students.git"
[[chapter]]
number = "99"
slug = "demo"
title = "Demo"
promise = "A promise."
lecture_minutes = 5
lab_minutes = 5
needs = "Nothing."
goals = ["one", "two"]
"""
LECTURE = """## First section

Some words.

```{code-cell}
:tags: [nbval-check-output]
from torchcourse import timing

print("hello")
```

## Second section

```{code-cell}
1 + 1
```
"""
SOLUTION = '''## Exercise 1

{{exercise: demo_double}}

```{code-cell}
def double(x):
    """Twice x."""
    ### BEGIN SOLUTION
    result_of_doubling = x + x
    return result_of_doubling
    ### END SOLUTION
```

```{code-cell}
from labcheck import check

check("demo_double", double)
```
'''
NO_CHECK = SOLUTION.replace('from labcheck import check\n\ncheck("demo_double", double)', "double(2)")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A course of one chapter, its exercise in a registry of its own."""
    about = {"title": "Double", "minutes": 3, "difficulty": 2, "points": 4, "takeaway": "Yes.", "hints": ("a", "b")}
    double = Exercise(name="demo_double", chapter="99_demo", judge=lambda answer, rng: None, **about)
    monkeypatch.setitem(exercise.EXERCISES, "demo_double", double)
    (tmp_path / "course.toml").write_text(TOML)
    shutil.copytree(course.ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    write(tmp_path, LECTURE, NO_CHECK)
    return tmp_path


def write(root, lecture=None, solution=None):
    for folder, text in (("notebooks", lecture), ("solutions", solution)):
        (root / folder).mkdir(exist_ok=True)
        if text is not None:
            (root / folder / "99_demo.md").write_text(HEAD + text)


def chapter(root):
    (only,) = course.chapters(root)
    return only


# ---------------------------------------------------------------------------------------------------------------------
# Editions


def test_a_lecture_begins_with_title_and_setup_wherever_students_get_it(root):
    title, setup = build.edition(chapter(root), "lecture", root).cells[:2]
    assert title.source.startswith("# 99 · Demo") and "A promise." in title.source and "• one<br>• two" in title.source
    assert "colab.research.google.com/github/someone/students/blob/v" in title.source
    assert "https://github.com/someone/students." in setup.source and 'torchcourse.setup("99_demo")' in setup.source
    (root / "course.toml").write_text(TOML.replace("https://github.com/someone/students.git", "https://git.a.org/x"))
    title, setup = build.edition(chapter(root), "lecture", root).cells[:2]
    assert "https://git.a.org/x" in setup.source
    assert "colab" not in title.source, "Colab opens notebooks from GitHub only"


def test_ids_stay_when_another_section_grows(root):
    before = [cell.id for cell in build.edition(chapter(root), "lecture", root).cells]
    more = LECTURE.replace("Some words.", "Some words.\n\n+++\n\nMore words.") + "\n## First section\n\nAgain.\n"
    write(root, more)
    after = [cell.id for cell in build.edition(chapter(root), "lecture", root).cells]
    assert len(after) == len(before) + 2 == len(set(after)), "also where two sections have one name"
    assert [i for i in before if i.startswith("second")] == [i for i in after if i.startswith("second")]


def test_a_drawing_of_the_deck_travels_inside_the_notebook(root):
    (root / "slides" / "drawings").mkdir(parents=True)
    (root / "slides" / "drawings" / "99_demo-map.svg").write_text("<svg/>")
    write(root, LECTURE.replace("Some words.", "![A map.](../slides/drawings/99_demo-map.svg)"))
    (cell,) = (cell for cell in build.edition(chapter(root), "lecture", root).cells if "<img" in cell.source)
    assert 'alt="A map."' in cell.source and "base64,PHN2Zy8+" in cell.source and "../slides" not in cell.source


def test_a_lab_has_stubs_instead_of_answers_and_what_nbgrader_needs(root):
    write(root, solution=SOLUTION)
    lab = build.edition(chapter(root), "lab", root)
    code = build.code_of(lab)
    assert "result_of_doubling" not in code and "SOLUTION" not in code and build.STUB in code
    assert all(not cell.get("outputs") for cell in lab.cells)
    by_id = {cell.id: cell for cell in lab.cells}
    answer, check = by_id["answer-demo_double"].metadata.nbgrader, by_id["check-demo_double"].metadata.nbgrader
    assert answer["solution"] and not answer["grade"]
    assert check["grade"] and check["locked"] and check["points"] == 4 and check["schema_version"] == 3
    assert "●●○○○ · about 3 minutes · 4 points" in lab.cells[2].source


def test_labs_and_only_labs_switch_off_colabs_assistant_unless_the_manifest_says_otherwise(root):
    write(root, LECTURE, SOLUTION)
    lecture, solution, lab = (build.edition(chapter(root), kind, root) for kind in ("lecture", "solution", "lab"))
    assert lab.metadata.colab == {"generative_ai_disabled": True}
    assert "colab" not in lecture.metadata and "colab" not in solution.metadata
    (root / "course.toml").write_text(f"colab_assistant = true\n{TOML}")
    assert "colab" not in build.edition(chapter(root), "lab", root).metadata


# ---------------------------------------------------------------------------------------------------------------------
# Authors' mistakes


@pytest.mark.parametrize(
    ("solution", "words"),
    [
        (SOLUTION.replace("    ### END SOLUTION\n", ""), "without"),  # partial
        ('```{code-cell}\ncheck("demo_double", 1)\n```\n\n' + SOLUTION, "no ### BEGIN SOLUTION"),  # out of order
        (SOLUTION.replace('    """Twice x."""\n', ""), "docstring"),  # a stub that is no Python
        (SOLUTION.replace('check("demo_double"', 'check("demo_duoble"'), "is not in EXERCISES"),
        (SOLUTION.replace("exercise: demo_double", "exercise: demo_duoble"), "is not in EXERCISES"),
    ],
)
def test_mistakes_in_a_solution_are_named(root, solution, words):
    write(root, solution=solution)
    with pytest.raises(build.BuildError, match=words):
        build.edition(chapter(root), "lab", root)


def test_a_prediction_without_its_comparison_is_named(root):
    write(root, LECTURE + "\n```{code-cell}\nprediction = ...  # a number\n```\n")
    with pytest.raises(build.BuildError, match=r"has no `predict\.compare`:\nprediction = \.\.\.  # a number"):
        build.edition(chapter(root), "lecture", root)


def test_answer_that_is_elsewhere_too_is_not_released(root):
    write(root, solution=SOLUTION + "\n```{code-cell}\nx = 1\nresult_of_doubling = x + x\n```\n")
    with pytest.raises(build.BuildError, match=r"parts of the answers:\nresult_of_doubling = x \+ x"):
        build.build_lab(chapter(root), root)


@pytest.mark.parametrize(
    ("cell", "words"),
    [("1 / 0", "ZeroDivisionError"), ('import warnings\n\nwarnings.warn("old")', "stderr"), (None, "md is missing")],
)
def test_a_lecture_that_fails_is_not_written(root, cell, words):
    """A warning is an error."""
    write(root, LECTURE + f"\n```{{code-cell}}\n{cell}\n```\n")
    if cell is None:
        (root / "notebooks" / "99_demo.md").unlink()
    with pytest.raises(build.BuildError, match=words):
        build.build_executed(chapter(root), "lecture", root)
    assert not (root / "notebooks" / "99_demo.ipynb").exists()


# ---------------------------------------------------------------------------------------------------------------------
# When to execute, and the drift gate


def test_life_of_a_notebook(root):
    """Executed once; then only for reasons. What is not as it would be built is named."""
    path, lab, solution = (root / kind / "99_demo.ipynb" for kind in ("notebooks", "labs", "solutions"))

    def rebuilt() -> list[str]:
        done = [build.build_executed(chapter(root), kind, root) for kind in ("lecture", "solution")]
        build.build_lab(chapter(root), root)
        assert build.drift(chapter(root), root) == []
        return [each.split(" in ")[0] for each in done]

    def drifts(words: str) -> None:
        assert any(words in problem for problem in build.drift(chapter(root), root)), words

    assert rebuilt() == ["executed", "executed"]
    first = {each: each.read_bytes() for each in root.rglob("*.ipynb")}
    assert rebuilt() == ["unchanged", "unchanged"]
    assert {each: each.read_bytes() for each in root.rglob("*.ipynb")} == first
    outputs = [cell.outputs for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    assert outputs[1][0].text == "hello\n" and outputs[2][0].data["text/plain"] == "2"

    # Words change: not executed, outputs kept.
    write(root, LECTURE.replace("Some words.", "Better words."))
    drifts("differs from its source")
    assert rebuilt() == ["text changed", "unchanged"]
    assert "Better words." in path.read_text() and nbformat.read(path, 4).cells[3].outputs[0].text == "hello\n"

    # A module that it uses changes in its comments: not executed. In its code, as in the notebook's own: executed.
    module = root / "src" / "torchcourse" / "timing.py"
    module.write_text(module.read_text() + "\n# A comment.\n")
    assert rebuilt() == ["unchanged", "unchanged"]
    module.write_text(module.read_text() + "\nMORE = 1\n")
    drifts("package changed")
    write(root, LECTURE.replace("Some words.", "Better words.").replace('"hello"', '"goodbye"'))
    drifts("differs from its source")
    assert rebuilt() == ["executed", "unchanged"]
    assert "goodbye\\n" in path.read_text()

    # Edits by hand.
    good, whole = lab.read_text(), solution.read_bytes()
    lab.write_text(good.replace(build.STUB, "result_of_doubling = x + x"))
    drifts("not what the builder makes of solutions/99_demo.md. Run `make build CHAPTERS=99`")
    lab.write_text(good)
    notebook = nbformat.read(solution, 4)
    notebook.cells[-2].execution_count = None  # the last code cell; what comes next is below it
    nbformat.write(notebook, solution)
    drifts("never executed")
    for content in (b"no notebook", whole[:-20], whole.replace(b'"source"', b'"sauce"')):
        solution.write_bytes(content)
        lab.write_bytes(content)
        drifts("missing or not a notebook")
        drifts("not what the builder makes")


def test_what_counts_for_the_digest(root):
    """Modules of the package that the code uses, not the checks; and files that it writes only if they are Python."""
    used = {path.name for path in build.modules_used("from torchcourse import plots\nfrom labcheck import check", root)}
    assert "plots.py" in used and "lab.py" not in used
    assert build.is_python("import torch") and build.is_python("%%writefile train.py\nimport torch")
    assert not build.is_python("%%writefile job.sh\n#!/bin/bash\necho 'hello'")


def test_bare_code_has_no_words():
    code = '''"""Module."""
x = "# no comment"  # a comment
def f(y):
    """Two
    lines."""

    # more
    return f"{y!r} {'q'}"
def g():
    """Only words."""
'''
    assert build.bare(code).splitlines() == [
        'x = "# no comment"',
        "def f(y):",
        """    return f"{y!r} {'q'}\"""",
        "def g():",
    ]


# ---------------------------------------------------------------------------------------------------------------------
# The course itself


@pytest.mark.parametrize("chapter", [each for each in course.chapters() if each.lecture_minutes], ids=lambda c: c.name)
def test_the_answer_to_a_prediction_is_folded(chapter):
    cells = nbformat.read(course.ROOT / "notebooks" / f"{chapter.name}.ipynb", as_version=4).cells
    folded = [cell for cell in cells if "predict.compare(" in cell.source]
    assert all(cell.metadata.jupyter.outputs_hidden and cell.metadata.collapsed for cell in folded)


@pytest.mark.parametrize("real", course.chapters(), ids=lambda c: c.name)
def test_nothing_is_built_by_hand(real):
    problems = build.drift(real)
    assert not problems, "\n".join(problems)


def test_unknown_chapter_is_answered_with_the_list():
    with pytest.raises(SystemExit, match="01_tensors"):
        course.select(["77"])
