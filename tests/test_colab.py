"""Lectures and labs as on Colab: one file in an empty folder, a fresh environment without the course, a small machine.

The environment has what Colab has and the course counts on (tests/environments.py), the machine two cores, 64 MiB of
/dev/shm, no GPU and no network. The set-up cell installs the package; a wheel of this tree stands in for the
repository. Each notebook is executed through the code behind `make run`: lectures with the real data, where they are
judged by their budgets and ranges; labs, and one lecture, without any data. For labs with answers in them see
tests/test_notebooks.py.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from conftest import skip_or_fail
from environments import ALSO_NEEDED, COLAB, course_wheel, new_environment, pretend_colab, small_machine, wheels

import torchcourse
from tools import build, course, report, run
from torchcourse import data

BUSY = "PYTEST_XDIST_WORKER" in os.environ  # other tests run on this machine at the same time
DATA = os.environ.get("TORCHCOURSE_DATA", str(data.root_folder()))
CLICKS = "Runtime > Change runtime type"


CHAPTERS = [pytest.param(chapter, id=chapter.name) for chapter in course.chapters()]


@pytest.fixture(scope="session")
def served(tmp_path_factory) -> Path:
    """A folder with the wheels that the set-up cell asks for: what the repository and the package index serve."""
    folder = tmp_path_factory.mktemp("served")
    course_wheel(folder)
    wheels(ALSO_NEEDED, folder)
    return folder


@pytest.fixture
def python(tmp_path, served, monkeypatch) -> list[str]:
    """The command that starts Colab's Python in its sandbox: no GPU, no network, no data, no course."""
    environment = new_environment(tmp_path / "colab", COLAB)
    pretend_colab(environment)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("TORCHCOURSE_SOURCE", str(next(served.glob("torchcourse-*.whl"))))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(served))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if BUSY:  # workers whose threads outnumber the cores wait for each other
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
    sandbox = small_machine(tmp_path)
    if not sandbox:  # then at least do as if there were no network
        monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    return [*sandbox, str(environment)]


def on_colab(
    folder: str, chapter: course.Chapter, kind: str, tmp_path: Path, python: list[str]
) -> tuple[run.Result, nbformat.NotebookNode]:
    """Run one notebook there, and judge it."""
    (tmp_path / "alone").mkdir()
    notebook = shutil.copy(course.ROOT / folder / f"{chapter.name}.ipynb", tmp_path / "alone")
    result = run.run_notebook(
        Path(notebook),
        tmp_path / "executed.ipynb",
        chapter.name,
        kind,
        "cpu",
        chapter.budget.get(kind),
        chapter.ranges.get(kind),
        busy=BUSY,
        python=python,
    )
    assert not result.failures, "\n" + report.table([result])
    return result, nbformat.read(tmp_path / "executed.ipynb", as_version=4)


def first_words(notebook: nbformat.NotebookNode) -> str:
    """What the set-up cell printed."""
    cell = next(cell for cell in notebook.cells if build.is_setup(cell))
    return "".join(output.text for output in cell.outputs)


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_lecture_runs_on_colab(chapter, tmp_path, python, monkeypatch):
    """No error, no warning, below three times the budget, numbers in their ranges.

    On a shared machine processor time is judged instead of wall time; see `tools.run.judge`.
    """
    monkeypatch.setenv("TORCHCOURSE_DATA", DATA)
    _, notebook = on_colab("notebooks", chapter, "lecture", tmp_path, python)
    assert f"torchcourse {torchcourse.__version__}" in first_words(notebook)
    assert CLICKS in first_words(notebook)


@pytest.mark.slow
def test_a_lecture_runs_without_data(tmp_path, python):
    """The chapter in which a network first learns: on drawn images, inside the ranges for them."""
    (chapter,) = course.select(["02"])
    result, _ = on_colab("notebooks", chapter, "lecture", tmp_path, python)
    assert result.origin == "drawn" and result.numbers


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_an_untouched_lab_runs_on_colab(chapter, tmp_path, python):
    """Every exercise is "not attempted", and nothing ends in a traceback."""
    _, notebook = on_colab("labs", chapter, "lab", tmp_path, python)
    assert f"torchcourse {torchcourse.__version__}" in first_words(notebook)
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    exercises = build.CHECK.findall(code)
    assert exercises, "a lab without exercises"
    assert run.outcomes(notebook) == dict.fromkeys(exercises, "not attempted")
    assert "Traceback (most recent call last)" not in str([cell.get("outputs") for cell in notebook.cells])


# ---------------------------------------------------------------------------------------------------------------------
# The badge and the set-up cell


@pytest.mark.parametrize("folder", ["notebooks", "labs"])
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_badge_and_set_up_cell_name_one_address_and_one_version(chapter, folder):
    """What a click opens and what the first cell then installs are the same course: that of course.toml."""
    notebook = nbformat.read(course.ROOT / folder / f"{chapter.name}.ipynb", as_version=4)
    address, tag = course.manifest()["repository"]["address"], f"v{torchcourse.__version__}"
    badge = f"https://colab.research.google.com/github/{address.removeprefix('https://github.com/')}/blob/{tag}"
    assert f"({badge}/{folder}/{chapter.name}.ipynb)" in notebook.cells[0].source
    setup = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert build.is_setup(setup) and re.search(rf'"git\+{re.escape(address)}(\.git)?@{re.escape(tag)}"', setup.source)


def test_without_network_the_first_cell_says_what_is_missing(tmp_path, python, monkeypatch):
    """The address is the real one: there is no way to it from here."""
    monkeypatch.delenv("TORCHCOURSE_SOURCE")
    if len(python) == 1:
        skip_or_fail("without a sandbox there is a network")
    code = build.setup_cell(course.chapters()[0]).source
    command = [*python, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    shown = (done.stdout + done.stderr).strip()
    assert shown.startswith("Missing here: git+https://") and "offline" in shown and "pip install" in shown
    assert "Traceback" not in shown and shown.count("\n") == 0, shown
