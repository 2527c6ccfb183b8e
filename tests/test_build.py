"""The builder, on a small course made up here: good masters, and masters with the mistakes that authors make."""

import base64
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
    monkeypatch.setattr(exercise, "load_chapters", lambda: {"demo_double": double})
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


def test_lecture_begins_with_title_and_setup(root):
    notebook = build.edition(chapter(root), "lecture", root)
    title, setup = notebook.cells[:2]
    assert title.source.startswith("# 99 · Demo") and "A promise." in title.source and "• one<br>• two" in title.source
    assert "colab.research.google.com/github/someone/students/blob/v" in title.source
    assert "https://github.com/someone/students." in setup.source and 'torchcourse.setup("99_demo")' in setup.source
    nbformat.validate(notebook)


def test_students_repository_may_be_anywhere(root):
    (root / "course.toml").write_text(
        TOML.replace("https://github.com/someone/students.git", "https://git.example.org/x")
    )
    title, setup = build.edition(chapter(root), "lecture", root).cells[:2]
    assert "https://git.example.org/x" in setup.source
    assert "colab" not in title.source, "Colab opens notebooks from GitHub only"


def test_ids_stay_when_another_section_grows(root):
    before = [cell.id for cell in build.edition(chapter(root), "lecture", root).cells]
    write(root, LECTURE.replace("Some words.", "Some words.\n\n+++\n\nMore words."))
    after = [cell.id for cell in build.edition(chapter(root), "lecture", root).cells]
    assert len(after) == len(before) + 1 == len(set(after))
    assert [i for i in before if i.startswith("second")] == [i for i in after if i.startswith("second")]


def test_sections_of_one_name_get_different_ids(root):
    write(root, LECTURE + "\n## Second section\n\nAgain.\n")
    ids = [cell.id for cell in build.edition(chapter(root), "lecture", root).cells]
    assert len(ids) == len(set(ids))


def test_exercise_gets_nbgrader_metadata_and_line(root):
    write(root, solution=SOLUTION.replace("from labcheck import check\n\n", ""))
    notebook = build.edition(chapter(root), "solution", root)
    by_id = {cell.id: cell for cell in notebook.cells}
    answer, check = by_id["answer-demo_double"].metadata.nbgrader, by_id["check-demo_double"].metadata.nbgrader
    assert answer["solution"] and not answer["grade"]
    assert check["grade"] and check["locked"] and check["points"] == 4 and check["schema_version"] == 3
    assert "●●○○○ · about 3 minutes · 4 points" in notebook.cells[2].source


def test_lab_has_the_stub_and_neither_answer_nor_output(root):
    write(root, solution=SOLUTION)
    lab = build.edition(chapter(root), "lab", root)
    code = build.code_of(lab)
    assert "result_of_doubling" not in code and "SOLUTION" not in code and build.STUB in code
    assert all(not cell.get("outputs") for cell in lab.cells)
    for cell in lab.cells:
        if cell.cell_type == "code":
            compile(cell.source, "lab", "exec")


# ---------------------------------------------------------------------------------------------------------------------
# Authors' mistakes


@pytest.mark.parametrize(
    ("solution", "words"),
    [
        (SOLUTION.replace("    ### END SOLUTION\n", ""), "without"),  # partial
        ('```{code-cell}\ncheck("demo_double", 1)\n```\n\n' + SOLUTION, "no ### BEGIN SOLUTION"),  # out of order
        (SOLUTION.replace('    """Twice x."""\n', ""), "docstring"),  # a stub that is no Python
        (SOLUTION.replace('check("demo_double"', 'check("demo_duoble"'), "no exercise of that name"),
        (SOLUTION.replace("exercise: demo_double", "exercise: demo_duoble"), "names no exercise"),
    ],
)
def test_mistakes_in_a_solution_are_named(root, solution, words):
    write(root, solution=solution)
    with pytest.raises(build.BuildError, match=words):
        build.edition(chapter(root), "lab", root)


def test_answer_that_is_elsewhere_too_is_not_released(root):
    write(root, solution=SOLUTION + "\n```{code-cell}\nx = 1\nresult_of_doubling = x + x\n```\n")
    with pytest.raises(build.BuildError, match=r"parts of the answers:\nresult_of_doubling = x \+ x"):
        build.build_lab(chapter(root), root)


def test_error_in_a_cell_is_shown(root):
    write(root, LECTURE + "\n```{code-cell}\n1 / 0\n```\n")
    with pytest.raises(build.BuildError, match="ZeroDivisionError"):
        build.build_executed(chapter(root), "lecture", root)
    assert not (root / "notebooks" / "99_demo.ipynb").exists(), "a broken notebook is not written"


def test_warning_is_an_error(root):
    write(root, LECTURE + '\n```{code-cell}\nimport warnings\n\nwarnings.warn("old")\n```\n')
    with pytest.raises(build.BuildError, match="stderr"):
        build.build_executed(chapter(root), "lecture", root)


def test_missing_source_is_named(root):
    (root / "notebooks" / "99_demo.md").unlink()
    with pytest.raises(build.BuildError, match=r"notebooks/99_demo\.md is missing"):
        build.edition(chapter(root), "lecture", root)


# ---------------------------------------------------------------------------------------------------------------------
# When to execute, and the drift gate


EXECUTED: dict[str, bytes] = {}  # once for all tests: what two executions of the same sources have written


@pytest.fixture
def built(root):
    for name, content in EXECUTED.items():
        (root / name).write_bytes(content)
    for kind in ("lecture", "solution"):
        done = build.build_executed(chapter(root), kind, root)
        assert done == "unchanged" if EXECUTED else done.startswith("executed")
    for folder in ("notebooks", "solutions"):
        EXECUTED[f"{folder}/99_demo.ipynb"] = (root / folder / "99_demo.ipynb").read_bytes()
    build.build_lab(chapter(root), root)
    return root


def snapshot(root):
    return {path: path.read_bytes() for path in root.rglob("*.ipynb")}


def test_life_of_a_notebook(built):
    """Executed once; then only for reasons."""
    root, path = built, built / "notebooks" / "99_demo.ipynb"
    first = snapshot(root)
    assert build.build_executed(chapter(root), "lecture", root) == "unchanged"
    assert build.build_lab(chapter(root), root) == "unchanged"
    assert snapshot(root) == first, "a rebuild that changes nothing writes nothing"
    assert build.drift(chapter(root), root) == []
    outputs = [cell.outputs for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    assert outputs[1][0].text == "hello\n" and outputs[2][0].data["text/plain"] == "2"

    # Words change: not executed, outputs kept.
    write(root, LECTURE.replace("Some words.", "Better words."))
    assert any("differs from its source" in problem for problem in build.drift(chapter(root), root))
    assert build.build_executed(chapter(root), "lecture", root) == "text changed"
    assert "Better words." in path.read_text() and nbformat.read(path, 4).cells[3].outputs[0].text == "hello\n"
    assert build.drift(chapter(root), root) == []

    # A module that it uses changes in its comments only: not executed; in its code: executed.
    module = root / "src" / "torchcourse" / "timing.py"
    module.write_text(module.read_text() + "\n# A comment.\n")
    assert build.drift(chapter(root), root) == []
    module.write_text(module.read_text() + "\nMORE = 1\n")
    assert any("package changed" in problem for problem in build.drift(chapter(root), root))
    assert build.build_executed(chapter(root), "lecture", root).startswith("executed")

    # Its own code changes: executed.
    write(root, LECTURE.replace('"hello"', '"goodbye"'))
    assert build.build_executed(chapter(root), "lecture", root).startswith("executed")
    assert "goodbye\\n" in path.read_text()


def test_gate_sees_edits_by_hand(built):
    root = built
    lab, solution = root / "labs" / "99_demo.ipynb", root / "solutions" / "99_demo.ipynb"
    good = lab.read_text()
    lab.write_text(good.replace(build.STUB, "result_of_doubling = x + x"))
    problems = build.drift(chapter(root), root)
    assert any("not what the builder makes" in p and "make build CHAPTERS=99" in p for p in problems)
    assert any("contains an answer" in p for p in problems)
    lab.write_text(good)
    assert build.drift(chapter(root), root) == []

    notebook = nbformat.read(solution, 4)
    notebook.cells[-2].execution_count = None  # the last code cell; what comes next is below it
    nbformat.write(notebook, solution)
    assert any("never executed" in p for p in build.drift(chapter(root), root))
    whole = solution.read_bytes()
    for content in (b"no notebook", whole[:-20], b"", b"[]", whole.replace(b'"source"', b'"sauce"')):
        solution.write_bytes(content)
        lab.write_bytes(content)
        problems = build.drift(chapter(root), root)
        assert any("missing or not a notebook" in p for p in problems), content
        assert any("not what the builder makes" in p for p in problems), content


def test_checks_do_not_count_for_the_digest(root):
    code = "from torchcourse import plots\nfrom labcheck import check"
    used = {path.name for path in build.modules_used(code, root)}
    assert "plots.py" in used and "lab.py" not in used


def test_only_python_is_looked_through_for_imports():
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


def test_named_figures_are_found():
    png = base64.b64encode(b"picture").decode()
    output = nbformat.v4.new_output("display_data", {"image/png": png}, metadata={"image/png": {"name": "strides"}})
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=[output])])
    assert build.figures(notebook) == {"strides": b"picture"}


# ---------------------------------------------------------------------------------------------------------------------
# The course itself


@pytest.mark.parametrize("real", course.chapters(), ids=lambda c: c.name)
def test_nothing_is_built_by_hand(real):
    problems = build.drift(real)
    assert not problems, "\n".join(problems)


def test_unknown_chapter_is_answered_with_the_list():
    with pytest.raises(SystemExit, match="01_tensors"):
        course.select(["77"])
