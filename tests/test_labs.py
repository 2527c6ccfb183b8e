"""Every lab as students open it: alone in an empty folder, without data and network, nothing answered yet.

Labs with answers are the solutions, which `make run` executes.
"""

import os
import shutil
from pathlib import Path

import nbformat
import pytest

from tools import build, course, report, run

BUSY = "PYTEST_XDIST_WORKER" in os.environ  # other tests run on this machine at the same time


def exercises(notebook: nbformat.NotebookNode) -> list[str]:
    """The names of the exercises whose checks a notebook calls."""
    return build.CHECK.findall("\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code"))


@pytest.mark.slow
@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda chapter: chapter.name)
def test_an_untouched_lab_runs_to_its_end(chapter, tmp_path, monkeypatch):
    """Every exercise is "not attempted", nothing ends in a traceback, nothing warns."""
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    (tmp_path / "alone").mkdir()
    lab = shutil.copy(course.ROOT / "labs" / f"{chapter.name}.ipynb", tmp_path / "alone")
    executed = tmp_path / "executed.ipynb"
    result = run.run_notebook(Path(lab), executed, chapter.name, "lab", "cpu", busy=BUSY)
    assert not result.failures, "\n" + report.table([result])
    notebook = nbformat.read(executed, as_version=4)
    assert exercises(notebook), "a lab without exercises"
    assert run.outcomes(notebook) == dict.fromkeys(exercises(notebook), "not attempted")
    assert "Traceback (most recent call last)" not in str([cell.get("outputs") for cell in notebook.cells])
