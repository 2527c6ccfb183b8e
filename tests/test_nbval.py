"""Outputs that must not change do not: nbval runs the notebooks that carry cells tagged `nbval-check-output`.

nbval makes a test of each cell, and the cells of one notebook must stay together and in order. So each notebook gets
a pytest of its own. A notebook is executed as far as its last tagged cell: behind it nbval has nothing to compare, and
tests/test_colab.py and tests/test_notebooks.py execute every notebook to its end.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tools import course


def tagged(notebook: Path) -> list[int]:
    """The positions of the cells whose outputs nbval compares."""
    if not notebook.exists():  # tests/test_notebooks.py says so
        return []
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [i for i, cell in enumerate(cells) if "nbval-check-output" in cell["metadata"].get("tags", [])]


def up_to_the_last_tag(notebook: Path, folder: Path) -> Path:
    """A copy of the notebook that ends with its last tagged cell."""
    shortened = nbformat.read(notebook, as_version=4)
    shortened.cells = shortened.cells[: tagged(notebook)[-1] + 1]
    path = folder / notebook.name
    nbformat.write(shortened, path)
    return path


def nbval(notebook: Path) -> subprocess.CompletedProcess:
    """Execute a notebook in its folder with the kernel of this environment, and compare the tagged cells' outputs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    if "PYTEST_XDIST_WORKER" in os.environ:
        environment["OMP_NUM_THREADS"] = "1"
    # Nothing written beside the notebooks, and none of the options of our own suite.
    quietly = ["-p", "no:cacheprovider", "-o", "addopts="]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--nbval-lax", "--nbval-current-env", *quietly, str(notebook)],
        cwd=course.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


TAGGED = [
    pytest.param(path, id=f"{kind}-{chapter.name}")
    for chapter in course.chapters()
    for kind, folder in course.KINDS.items()
    if tagged(path := course.ROOT / folder / f"{chapter.name}.ipynb")
]


@pytest.mark.slow
@pytest.mark.parametrize("notebook", TAGGED)
def test_tagged_outputs_are_what_the_notebook_shows(notebook, tmp_path):
    done = nbval(up_to_the_last_tag(notebook, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("shown", "words"), [("3\n", "3 passed"), ("4\n", "1 failed, 2 passed")])
def test_a_changed_output_is_noticed(tmp_path, shown, words):
    cells = [
        new_code_cell("a = 1"),
        new_code_cell(
            "print(a + 2)",
            execution_count=2,
            metadata={"tags": ["nbval-check-output"]},
            outputs=[new_output("stream", name="stdout", text=shown)],
        ),
        new_code_cell("import time; time.time()"),
    ]
    path = tmp_path / "small.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    assert tagged(path) == [1]
    done = nbval(path)
    assert done.returncode == ("failed" in words) and words in done.stdout, done.stdout + done.stderr
