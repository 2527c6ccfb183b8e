"""Every notebook from start to end, through the code behind `make run`; labs as a student opens them.

Each notebook is an xdist group of its own: with `--dist loadgroup` the workers share them out one by one.
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


def judged(chapter: course.Chapter, kind: str, device: str, folder: Path) -> run.Result:
    """Execute a lecture or a solution where it stands, and compare it with its budget and ranges."""
    return run.run_notebook(
        course.ROOT / course.KINDS[kind] / f"{chapter.name}.ipynb",
        folder / "executed.ipynb",
        chapter.name,
        kind,
        device,
        chapter.budget.get(kind),
        chapter.ranges.get(kind),
        busy=BUSY,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("chapter", "kind"), notebooks("lecture", "solution"))
def test_runs_inside_its_budget_and_its_ranges(chapter, kind, device, tmp_path):
    """No error, no warning, checks of a solution satisfied, below three times the budget, numbers in their ranges.

    On a shared machine processor time is judged instead of wall time; see `tools.run.judge`.
    """
    result = judged(chapter, kind, device, tmp_path)
    assert not result.failures, "\n" + report.table([result])


def loads_data(chapter: course.Chapter, kind: str) -> bool:
    master = course.ROOT / course.KINDS[kind] / f"{chapter.name}.md"
    return master.exists() and "data.load(" in master.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chapter", "kind"), [row for row in notebooks("lecture", "solution") if loads_data(*row.values)]
)
def test_runs_without_data_and_network_on_drawn_images(chapter, kind, device, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    result = judged(chapter, kind, device, tmp_path)
    assert not result.failures, "\n" + report.table([result])
    assert result.origin == "drawn"


def alone(chapter: course.Chapter, folder: Path, answers: bool = False) -> Path:
    """The lab in a folder with nothing else, as on Colab; with the answers of the solution if asked."""
    lab = nbformat.read(course.ROOT / "labs" / f"{chapter.name}.ipynb", as_version=4)
    if answers:
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
def test_an_untouched_lab_runs_and_says_not_attempted(chapter, kind, device, tmp_path):
    executed = tmp_path / "executed.ipynb"
    result = run.run_notebook(alone(chapter, tmp_path), executed, chapter.name, kind, device, busy=BUSY)
    assert not result.failures, "\n" + report.table([result])

    notebook = nbformat.read(executed, as_version=4)
    assert exercises(notebook), "a lab without exercises"
    assert run.outcomes(notebook) == dict.fromkeys(exercises(notebook), "not attempted")
    assert "Traceback (most recent call last)" not in str([cell.get("outputs") for cell in notebook.cells])


@pytest.mark.slow
@pytest.mark.parametrize(("chapter", "kind"), notebooks("lab"))
def test_a_lab_with_the_answers_turns_green(chapter, kind, device, tmp_path):
    executed = tmp_path / "executed.ipynb"
    lab = alone(chapter, tmp_path, answers=True)
    result = run.run_notebook(lab, executed, chapter.name, kind, device, busy=BUSY)
    assert not result.failures, "\n" + report.table([result])

    notebook = nbformat.read(executed, as_version=4)
    assert run.outcomes(notebook) == dict.fromkeys(exercises(notebook), "correct")
