"""A new chapter is a table, two sources, a deck, exercises and their answers; the rest of the course follows from them.

A copy of this tree gets a chapter 99. Everything that the course derives from its chapters is then built and checked
there, with no other edit: whatever needs one is a defect.
"""

import os
import shutil
import subprocess
import sys

import pytest

from tools.course import ROOT

pytestmark = pytest.mark.weekly
HEAD = "---\nkernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n"
MANIFEST = """
[[chapter]]
number = "99"
slug = "demo"
title = "A demonstration"
promise = "After this chapter you can smooth a curve."
lecture_minutes = 15
lab_minutes = 10
needs = "Chapter 01. No GPU."
goals = ["see every window of a tensor", "smooth a curve"]

[chapter.budget.lecture]
"cpu.synthetic" = { seconds = 60, mib = 2000 }

[chapter.budget.solution]
"cpu.synthetic" = { seconds = 60, mib = 2000 }
"""
LECTURE = """## Windows

`unfold` shows every window of a tensor; nothing is copied.

```{code-cell}
:tags: [nbval-check-output]
import torch

torch.arange(5.0).unfold(0, 3, 1)
```
"""
SOLUTION = '''## 1 · Smooth a curve

{{exercise: moving_average}}

Loss curves are noisy. Average each value with its neighbors.

```{code-cell}
from labcheck import check


def moving_average(x, width):
    """Means of neighboring values.

    x: float32 tensor [n]; width: int from 1 to n
    returns: float32 tensor [n - width + 1]; element i is the mean of x[i] to x[i + width - 1]
    """
    ### BEGIN SOLUTION
    return x.unfold(0, width, 1).mean(dim=1)
    ### END SOLUTION
```

```{code-cell}
check("moving_average", moving_average)
```
'''
CHAPTER = '"""Chapter 99."""\n\nCHAPTER = "99_demo"\nEXERCISES = ("moving_average",)\n'
CHECK = '''"""Smooth a curve: means of neighboring values."""

from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like


def draw(rng: Inputs) -> list[tuple]:
    return [(rng.randn(rng.size(8, 12)), rng.size(2, 4)), (rng.randn(5), 5), (rng.randn(3), 1)]


def solution(x: Tensor, width: int) -> Tensor:
    return x.unfold(0, width, 1).mean(dim=1)


exercise = Exercise(
    title="Smooth a curve",
    minutes=5,
    difficulty=2,
    points=2,
    takeaway="`unfold` shows every window as a view; nothing is copied before the mean.",
    hints=("How many windows of this width fit?", "`x.unfold(0, width, 1)` has all windows, [n - width + 1, width]."),
    judge=Spec(
        draw=draw,
        solution=solution,
        says=[looks_like("sum", "You summed each window.", lambda x, width: x.unfold(0, width, 1).sum(dim=1))],
    ),
)
'''
ROWS = """import torch.nn.functional as F

RIGHT = [lambda x, width: F.avg_pool1d(x[None], width, stride=1)[0]]
WRONG = {None: [lambda x, width: x.unfold(0, width, 1).amax(dim=1)]}
"""

SLIDES = [f"## Window {number}\n\nOne more window.\n\nNotes: 1 min. Say it." for number in range(1, 12)]
DECK = "\n\n---\n\n".join(["# A demonstration\n\nNotes: 1 min. Say hello.", *SLIDES]) + "\n"
FILES = {
    "notebooks/99_demo.md": HEAD + LECTURE,
    "solutions/99_demo.md": HEAD + SOLUTION,
    "slides/99_demo.md": DECK,
    "src/torchcourse_labs/demo/__init__.py": CHAPTER,
    "src/torchcourse_labs/demo/moving_average.py": CHECK,
    "tests/answers/demo/moving_average.py": ROWS,
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A copy of the tree with the chapter, built."""
    root = tmp_path_factory.mktemp("course")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in (name for name in names.split("\0") if (ROOT / name).is_file()):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, root / name)
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    with (root / "course.toml").open("a") as manifest:
        manifest.write(MANIFEST)
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)  # the release is made of tracked files
    subprocess.run(["git", "add", "--all"], cwd=root, check=True)
    if (ROOT / "build" / "npm").is_dir():  # what npm fetched for this tree
        (root / "build").mkdir()
        (root / "build" / "npm").symlink_to(ROOT / "build" / "npm")
    run(root, "-m", "tools.build", "99")
    return root


def run(root, *command):
    """What Python prints in the copy; it has to succeed."""
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    done = subprocess.run([sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_built(built):
    assert "99_demo: as built" in run(built, "-m", "tools.build", "--check", "99")
    assert "99_demo.ipynb" in (built / "README.md").read_text()


def test_it_passes_the_tests_of_every_chapter(built):
    """Those that the suite has for each chapter, and those of the guide and of the style; browsers are not needed."""
    files = ["build", "exercises", "grade", "grade_robust", "lint", "package", "release", "slides", "teaching"]
    paths = [str(path) for name in files for path in (built / "tests").glob(f"test_{name}.py")]
    chosen = "(99 or (teaching and not chapter) or lint or holds_what_is_listed) and not browser and not pdfs"
    run(built, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths, "-k", chosen)


def test_it_is_on_the_website_and_in_the_release(built):
    run(built, "-m", "tools.release")
    assert (built / "release" / "labs" / "99_demo.ipynb").is_file()
    pages = run(built, "-c", "from tools.site import sources; print(*sources.gather().pages, sep='\\n')").split()
    assert {"notebooks/99_demo.ipynb", "labs/99_demo.ipynb"} <= set(pages)
