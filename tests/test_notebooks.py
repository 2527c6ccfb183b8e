"""Every lecture and solution from start to end, through the code behind `make run`; labs with all answers in them.

Lectures on drawn images and untouched labs are executed by tests/test_colab.py. Each notebook is an xdist group of its
own: with `--dist loadgroup` the workers share them out one by one.
"""

import os
import re
from pathlib import Path

import nbformat
import pytest

from tools import course, report, run

BUSY = "PYTEST_XDIST_WORKER" in os.environ  # other tests run on this machine at the same time


def notebooks(*kinds: str):
    """Parameters (chapter, kind), one for each notebook."""
    return [
        pytest.param(
            chapter, kind, id=f"{kind}-{chapter.name}", marks=pytest.mark.xdist_group(f"{kind}-{chapter.name}")
        )
        for chapter in course.chapters()
        for kind in kinds
    ]


@pytest.fixture(scope="session")
def device() -> str:
    return run.best_device()[0]


@pytest.fixture(autouse=True)
def one_thread_each(monkeypatch):
    """Workers whose threads outnumber the cores wait for each other, and all of them take many times as long."""
    if BUSY:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")


def judged(notebook: Path, chapter: course.Chapter, kind: str, device: str, executed: Path) -> run.Result:
    """Execute a notebook, and compare it with the budget and the ranges of the chapter's lecture or solution."""
    result = run.run_notebook(
        notebook,
        executed,
        chapter.name,
        kind,
        device,
        chapter.budget.get(kind),
        chapter.ranges.get(kind),
        busy=BUSY,
    )
    assert not result.failures, "\n" + report.table([result])
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("chapter", "kind"), notebooks("lecture", "solution"))
def test_runs_inside_its_budget_and_its_ranges(chapter, kind, device, tmp_path):
    """No error, no warning, checks of a solution satisfied, below three times the budget, numbers in their ranges.

    On a shared machine processor time is judged instead of wall time; see `tools.run.judge`.
    """
    notebook = course.ROOT / course.KINDS[kind] / f"{chapter.name}.ipynb"
    judged(notebook, chapter, kind, device, tmp_path / "executed.ipynb")


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
@pytest.mark.parametrize(("chapter", "kind"), notebooks("lab"))
def test_a_lab_with_the_answers_turns_green_without_data_and_network(chapter, kind, device, tmp_path, monkeypatch):
    """What the solution does with real data in its place, the lab does alone on drawn images."""
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    executed = tmp_path / "executed.ipynb"
    lab = alone_with_answers(chapter, tmp_path)
    result = judged(lab, chapter, "solution", device, executed)
    loads_data = "data.load(" in lab.read_text(encoding="utf-8")
    assert result.origin == ("drawn" if loads_data else "real")

    notebook = nbformat.read(executed, as_version=4)
    assert exercises(notebook), "a lab without exercises"
    assert run.outcomes(notebook) == dict.fromkeys(exercises(notebook), "correct")
