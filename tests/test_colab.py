"""Lectures and labs as on Colab: one file in an empty folder, a fresh environment without the course, a small machine.

The environment has the versions that Colab has (tests/colab.txt), the machine two cores, 64 MiB of /dev/shm, no GPU, no
network and no data. The set-up cell installs the package; a wheel of this tree takes the place of the repository. One
lecture and one lab are executed, through the code behind `make run`; once a week all of them (`-m weekly`, half an
hour). Of the others, only what they import is looked at: `make run` executes all lectures and solutions, and
tests/test_labs.py the untouched labs.
"""

import ast
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from conftest import need
from environments import colab, small_machine
from IPython.core.inputtransformer2 import TransformerManager

import torchcourse
from tools import build, course, release, report, run
from tools.colab import LIST, VERSION, updated

BUSY = "PYTEST_XDIST_WORKER" in os.environ  # other tests run on this machine at the same time
CLICKS = "Runtime > Change runtime type"


@pytest.fixture(scope="session")
def served(tmp_path_factory) -> Path:
    """The wheel that the set-up cell asks for, as the repository serves it."""
    return release.build_wheel(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def tree(tmp_path_factory) -> Path:
    """What `make release` writes."""
    folder = tmp_path_factory.mktemp("release")
    release.release(folder)
    return folder


@pytest.fixture
def python(tmp_path, served, monkeypatch) -> list[str]:
    """The command that starts Colab's Python in its sandbox: no GPU, no network, no data, no course."""
    environment = colab(tmp_path / "colab")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("TORCHCOURSE_SOURCE", str(served))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if BUSY:  # workers whose threads outnumber the cores wait for each other
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
    sandbox = small_machine(tmp_path)
    if not sandbox:  # then at least do as if there were no network
        monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    return [*sandbox, str(environment)]


def with_answers(chapter: course.Chapter, folder: Path) -> Path:
    """The lab of a chapter with the answers of its solution."""
    lab = nbformat.read(course.ROOT / "labs" / f"{chapter.name}.ipynb", as_version=4)
    solution = nbformat.read(course.ROOT / "solutions" / f"{chapter.name}.ipynb", as_version=4)
    answers = {cell.id: cell.source for cell in solution.cells if cell.id.startswith("answer-")}
    assert answers
    for cell in lab.cells:
        cell.source = answers.get(cell.id, cell.source)
    path = folder / f"{chapter.name}.ipynb"
    nbformat.write(lab, path)
    return path


def on_colab(
    source: Path, chapter: course.Chapter, kind: str, tmp_path: Path, python: list[str]
) -> nbformat.NotebookNode:
    """Run one notebook there, and judge it; returns it executed."""
    (tmp_path / "alone").mkdir()
    notebook = shutil.copy(source, tmp_path / "alone")
    result = run.run_notebook(
        Path(notebook),
        tmp_path / "executed.ipynb",
        chapter.name,
        kind,
        "cpu",
        chapter.budget.get(kind),
        chapter.ranges.get(kind),
        python=python,
    )
    assert not result.failures, "\n" + report.table([result])
    return nbformat.read(tmp_path / "executed.ipynb", as_version=4)


def first_words(notebook: nbformat.NotebookNode) -> str:
    """What the set-up cell printed."""
    cell = next(cell for cell in notebook.cells if build.is_setup(cell))
    return "".join(output.text for output in cell.outputs)


ALWAYS = [("00", "lecture"), ("06", "solution")]  # the first page that anyone opens; checks that start processes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chapter", "kind"),
    [
        pytest.param(
            chapter,
            kind,
            id=f"{chapter.name}-{kind}",
            marks=() if (chapter.number, kind) in ALWAYS else pytest.mark.weekly,
        )
        for chapter in course.chapters()
        for kind in chapter.kinds
    ],
)
def test_a_notebook_runs_on_colab(chapter, kind, tmp_path, python):
    """A lecture, or a lab with the answers of its solution: then every check says that they are correct."""
    lecture = course.ROOT / "notebooks" / f"{chapter.name}.ipynb"
    source = lecture if kind == "lecture" else with_answers(chapter, tmp_path)
    notebook = on_colab(source, chapter, kind, tmp_path, python)
    assert f"torchcourse {torchcourse.__version__}" in first_words(notebook) and CLICKS in first_words(notebook)
    wrong = {name: outcome for name, outcome in run.outcomes(notebook).items() if outcome != "correct"}
    if kind == "solution":  # a lecture shows wrong answers, too
        assert wrong == ({"to_onnx": "not checked"} if "to_onnx" in wrong else {}), "Colab lacks ONNX alone"


WORKERS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
images = TensorDataset(torch.ones(6000, 1, 28, 28, dtype=torch.uint8), torch.zeros(6000, dtype=torch.int64))
batches = DataLoader(images, 100, shuffle=True, num_workers=2, persistent_workers=True)  # as in lecture 04
print(*(sum(len(labels) for _, labels in batches) for _ in range(2)))
"""


def test_two_workers_fit_into_the_shared_memory_of_colab(python):
    """It has 64 MiB, where batches wait that workers have made."""
    done = subprocess.run([*python, "-c", WORKERS], capture_output=True, text=True, timeout=600)
    assert done.stdout == "6000 6000\n" and not done.stderr, done


# ---------------------------------------------------------------------------------------------------------------------
# What the other notebooks would miss there


@functools.cache
def available_on_colab() -> set[str]:
    """The modules that notebooks may import: Python's own, and those of Colab's packages and of the course."""
    listed = {name.lower().replace("-", "_") for name, _ in VERSION.findall(LIST.read_text())}
    provided = {
        module
        for module, packages in metadata.packages_distributions().items()
        if listed & {package.lower().replace("-", "_") for package in packages}
    }
    return {*sys.stdlib_module_names, *provided, "torchcourse", "labcheck", "torchcourse_labs"}


def imported(source: str) -> set[str]:
    """The top modules that Python code imports anywhere, except optional ones, which are in a `try`."""
    tree = ast.parse(source)
    optional = {id(node) for attempt in ast.walk(tree) if isinstance(attempt, ast.Try) for node in ast.walk(attempt)}
    modules = set()
    for node in ast.walk(tree):
        if id(node) in optional:
            continue
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(node.module.partition(".")[0])
    return modules


def python_of(cell: nbformat.NotebookNode) -> str:
    """The Python code of a cell, scripts that a magic writes or starts included. Nothing for other languages."""
    first, _, rest = cell.source.partition("\n")
    if first.startswith("%%"):
        return rest if first.startswith(("%%torchrun", "%%time", "%%capture")) or ".py" in first else ""
    return TransformerManager().transform_cell(cell.source)  # `%timeit` and `!ls` become calls


LOOKED_FOR = {"accelerate", "lightning", "onnxruntime", "torchao"}  # by `find_spec`: without them the notebook goes on

NOTEBOOKS = [
    pytest.param(course.ROOT / folder / f"{chapter.name}.ipynb", id=f"{folder}-{chapter.name}")
    for chapter in course.chapters()
    for folder in chapter.kinds.values()
]


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebooks_import_only_what_colab_has(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert build.is_setup(cells[0]), "the first cell is the one that installs the course"
    modules = set().union(*(imported(python_of(cell)) for cell in cells[1:]))
    written = {name for cell in cells for name in re.findall(r"^%%.*?(\w+)(?:/\w+)*\.py", cell.source)}
    modules -= written | LOOKED_FOR
    missing = modules - available_on_colab()
    assert modules & {"torchcourse", "labcheck"} and not missing, f"Colab lacks {missing}"


def test_the_package_imports_only_what_colab_has():
    for path in (course.ROOT / "src").rglob("*.py"):
        missing = imported(path.read_text(encoding="utf-8")) - LOOKED_FOR - available_on_colab()
        assert not missing, f"{path.name} imports {missing}"


def test_the_list_of_colabs_versions_follows_what_colab_publishes():
    published = (
        "Ubuntu 22.04.5 LTS\nPython 3.14.1\nnumpy==2.1.3\ntorch @ https://a.b/cpu/torch-2.12.0%2Bcpu-cp314.whl\n"
    )
    text, changes = updated("# Python 3.13.15\nnumpy==2.1.3\ntorch==2.11.0\npip==24.1.2\n", published)
    assert text == "# Python 3.14.1\nnumpy==2.1.3\ntorch==2.12.0\npip==gone\n"
    assert changes == ["Python 3.13.15 -> 3.14.1", "torch 2.11.0 -> 2.12.0", "pip 24.1.2 -> gone"]


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("import a.b, c\nfrom d.e import f", {"a", "c", "d"}),
        ("def f():\n    import late", {"late"}),
        ("try:\n    import maybe\nexcept ImportError:\n    maybe = None", set()),
        ("from . import sibling", set()),
    ],
)
def test_imports_are_found(source, modules):
    assert imported(source) == modules


# ---------------------------------------------------------------------------------------------------------------------
# The badge and the set-up cell


@pytest.mark.parametrize(
    ("chapter", "folder"), [(chapter, folder) for chapter in course.chapters() for folder in chapter.published.values()]
)
def test_badge_and_set_up_cell_name_one_address_and_one_version(chapter, folder, tree):
    """What a click opens and what the first cell then installs are the same release: that of course.toml."""
    notebook = nbformat.read(tree / folder / f"{chapter.name}.ipynb", as_version=4)
    address, tag = course.students(), f"v{torchcourse.__version__}"
    badge = f"https://colab.research.google.com/github/{address.removeprefix('https://github.com/')}/blob/{tag}"
    assert f"({badge}/{folder}/{chapter.name}.ipynb)" in notebook.cells[0].source
    setup = next(cell for cell in notebook.cells if cell.cell_type == "code")
    (wheel,) = tree.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert build.is_setup(setup)
    assert f'\nPACKAGE = "{address}/raw/{tag}/{wheel.name}#sha256={digest}"\n' in setup.source


def test_without_network_the_first_cell_says_what_is_missing(tmp_path, python, tree, monkeypatch):
    """The address is the real one: there is no way to it from here."""
    monkeypatch.delenv("TORCHCOURSE_SOURCE")
    need("bubblewrap")  # without a sandbox there is a network
    lab = nbformat.read(tree / "labs" / f"{course.chapters()[0].name}.ipynb", as_version=4)
    code = next(cell for cell in lab.cells if build.is_setup(cell)).source
    command = [*python, "-m", "IPython", "--no-banner", "--no-term-title", "--colors=NoColor", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    shown = (done.stdout + done.stderr).strip()
    assert (
        shown.startswith(f"Missing here: {course.students()}/raw/v") and "offline" in shown and "pip install" in shown
    )
    assert "Traceback" not in shown and shown.count("\n") == 0, shown
