"""Lectures and labs as on Colab: one file in an empty folder, a fresh environment without the course, a small machine.

The environment has the versions that Colab has (tests/colab.txt), the machine two cores, 64 MiB of /dev/shm, no GPU, no
network and no data. The set-up cell installs the package; a wheel of this tree takes the place of the repository. That
happens once a week (`-m weekly`, half an hour), through the code behind `make run`. On every change, only what the
notebooks import is looked at, and test_setup_cell.py tries the set-up cell.
"""

import functools
import re
import sys
from importlib import metadata

import nbformat
import pytest
from environments import colab, imported, small_machine
from IPython.core.inputtransformer2 import TransformerManager

import torchcourse
from tools import build, course, release, report, run
from tools.colab import LIST, VERSION, updated


def with_answers(chapter: course.Chapter) -> str:
    """The lab of a chapter with the answers of its solution."""
    lab = nbformat.read(course.ROOT / "labs" / f"{chapter.name}.ipynb", as_version=4)
    solution = nbformat.read(course.ROOT / "solutions" / f"{chapter.name}.ipynb", as_version=4)
    answers = {cell.id: cell.source for cell in solution.cells if cell.id.startswith("answer-")}
    for cell in lab.cells:
        cell.source = answers.get(cell.id, cell.source)
    return nbformat.writes(lab)


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("chapter", "kind"),
    [(chapter, kind) for chapter in course.chapters() for kind in chapter.kinds],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_notebook_runs_on_colab(chapter, kind, tmp_path, monkeypatch):
    """A lecture, or a lab with the answers of its solution: then every check says that they are correct."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("TORCHCOURSE_SOURCE", str(release.build_wheel(tmp_path)))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    sandbox = small_machine(tmp_path)
    if not sandbox:  # then at least do as if there were no network
        monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    python = [*sandbox, str(colab(tmp_path / "colab"))]
    lecture, executed = course.ROOT / "notebooks" / f"{chapter.name}.ipynb", tmp_path / "executed.ipynb"
    notebook = tmp_path / "alone" / lecture.name
    notebook.parent.mkdir()
    notebook.write_text(lecture.read_text() if kind == "lecture" else with_answers(chapter))
    # Without a budget: those are of a quiet machine and the versions of the lock.
    ranges = chapter.ranges.get(kind)
    result = run.run_notebook(notebook, executed, chapter.name, kind, "cpu", ranges=ranges, python=python)
    assert not result.failures, "\n" + report.table([result])
    shown = nbformat.read(executed, as_version=4)
    first = "".join(output.text for output in next(filter(build.is_setup, shown.cells)).outputs)
    assert f"torchcourse {torchcourse.__version__}" in first and "Runtime > Change runtime type" in first
    wrong = {name: outcome for name, outcome in run.outcomes(shown).items() if outcome != "correct"}
    if kind == "solution":  # a lecture shows wrong answers, too
        assert wrong == ({"to_onnx": "not checked"} if "to_onnx" in wrong else {}), "Colab lacks ONNX alone"


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


def python_of(cell: nbformat.NotebookNode) -> str:
    """The Python code of a cell, scripts that a magic writes or starts included. Nothing for other languages."""
    first, _, rest = cell.source.partition("\n")
    if first.startswith("%%"):
        return rest if first.startswith(("%%torchrun", "%%time", "%%capture")) or ".py" in first else ""
    return TransformerManager().transform_cell(cell.source)  # `%timeit` and `!ls` become calls


LOOKED_FOR = {"accelerate", "lightning", "onnxruntime", "tiktoken", "torchao"}  # by `find_spec`: it goes on without


def test_notebooks_and_the_package_import_only_what_colab_has():
    for path in (course.ROOT / f"{folder}/{c.name}.ipynb" for c in course.chapters() for folder in c.kinds.values()):
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        assert build.is_setup(cells[0]), "the first cell is the one that installs the course"
        modules = set().union(*(imported(python_of(cell)) for cell in cells[1:]))
        written = {name for cell in cells for name in re.findall(r"^%%.*?(\w+)(?:/\w+)*\.py", cell.source)}
        missing = modules - written - LOOKED_FOR - available_on_colab()
        assert modules & {"torchcourse", "labcheck"} and not missing, f"{path.name}: Colab lacks {missing}"
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
