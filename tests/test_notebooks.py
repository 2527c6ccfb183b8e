"""Every lab with all its answers, on drawn images, through the code behind `make run`.

tests/test_colab.py executes the lectures and the untouched labs.
"""

import os
import re
from pathlib import Path

import nbformat
import pytest

from tools import course, report, run

BUSY = "PYTEST_XDIST_WORKER" in os.environ  # other tests run on this machine at the same time


@pytest.fixture(scope="session")
def device() -> str:
    return run.best_device()[0]


@pytest.fixture(autouse=True)
def one_thread_each(monkeypatch):
    """Workers whose threads outnumber the cores wait for each other, and all of them take many times as long."""
    if BUSY:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")


def alone_with_answers(chapter: course.Chapter, folder: Path) -> Path:
    """The lab with the answers of the solution, in a folder with nothing else."""
    lab = nbformat.read(course.ROOT / "labs" / f"{chapter.name}.ipynb", as_version=4)
    solution = nbformat.read(course.ROOT / "solutions" / f"{chapter.name}.ipynb", as_version=4)
    sources = {cell.id: cell.source for cell in solution.cells if cell.id.startswith("answer-")}
    for cell in lab.cells:
        cell.source = sources.get(cell.id, cell.source)
    path = folder / "alone" / f"{chapter.name}.ipynb"
    path.parent.mkdir()
    nbformat.write(lab, path)
    return path


def exercises(notebook: nbformat.NotebookNode) -> list[str]:
    """The names of the exercises whose checks a notebook calls."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return re.findall(r"""^check\(\s*["'](\w+)["']""", code, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda chapter: chapter.name)
def test_a_lab_with_the_answers_turns_green_without_data_and_network(chapter, device, tmp_path, monkeypatch):
    """No error, no warning, each exercise correct, inside the budget and the ranges of the solution."""
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    lab, executed = alone_with_answers(chapter, tmp_path), tmp_path / "executed.ipynb"
    budget, ranges = chapter.budget.get("solution"), chapter.ranges.get("solution")
    result = run.run_notebook(lab, executed, chapter.name, "solution", device, budget, ranges, busy=BUSY)
    assert not result.failures, "\n" + report.table([result])
    assert result.origin == ("drawn" if "data.load(" in lab.read_text(encoding="utf-8") else "real")

    notebook = nbformat.read(executed, as_version=4)
    assert exercises(notebook), "a lab without exercises"
    assert run.outcomes(notebook) == dict.fromkeys(exercises(notebook), "correct")
