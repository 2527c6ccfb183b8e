"""Every lab as students open it: alone in an empty folder, without data and network, nothing answered yet.

Labs with answers are the solutions, which `make run` executes.
"""

import json
import re

import nbformat
import pytest
from nbclient import NotebookClient

from tools import build, course, report, run

# Given code that takes its time with whatever function it gets: fewer steps of it, and one session instead of three.
# `make run` executes all of it, in the solutions.
SHORTER = {
    "03_cpu_to_gpu": ("slice(2000)", "slice(200)"),
    "04_mnist_cnn": ("epochs = 3", "epochs = 1"),
    "05_cifar_cnn": ("import STEPS, Budget", "import Budget\nSTEPS = 20"),
    "08_performance": ("steps, model_parts = 6,", "steps, model_parts = 2,"),
    "09_checkpointing": ('accidents = [["SIGUSR1", "13"], ["SIGKILL", "29"], []]', "accidents = [[]]"),
    "14_language_model": ("for step in range(1000):", "for step in range(150, 200):"),
}


def shows(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell has shown something: text, or a picture, which has a text beside it."""
    return any(each.get("text") or "text/plain" in each.get("data", {}) for each in cell.get("outputs", []))


@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda chapter: chapter.name)
def test_an_untouched_lab_runs_to_its_end(chapter, tmp_path, monkeypatch):
    """Every exercise is "not attempted", there is no traceback and no warning, and what waits for an answer says so."""
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    (tmp_path / "alone").mkdir()
    text = (course.ROOT / "labs" / f"{chapter.name}.ipynb").read_text(encoding="utf-8")
    if chapter.name in SHORTER:
        long, short = (json.dumps(code)[1:-1] for code in SHORTER[chapter.name])
        assert text.count(long) == 1, f"{SHORTER[chapter.name][0]} is not in the lab any more"
        text = text.replace(long, short)
    lab = tmp_path / "alone" / f"{chapter.name}.ipynb"
    lab.write_text(text, encoding="utf-8")
    executed = tmp_path / "executed.ipynb"
    result = run.run_notebook(lab, executed, chapter.name, "lab", "cpu")
    assert not result.failures, "\n" + report.table([result])
    notebook = nbformat.read(executed, as_version=4)
    exercises = build.CHECK.findall(build.code_of(notebook))
    assert exercises and run.outcomes(notebook) == dict.fromkeys(exercises, "not attempted")
    assert "Traceback (most recent call last)" not in str([cell.get("outputs") for cell in notebook.cells])
    solved = nbformat.read(course.ROOT / "solutions" / lab.name, as_version=4)
    pairs = zip(notebook.cells, solved.cells, strict=True)
    silent = [cell.source for cell, same in pairs if shows(same) and build.BEGIN not in same.source and not shows(cell)]
    assert not silent, "Run without an answer, these cells say nothing:\n\n" + "\n\n".join(silent)


def test_in_a_fresh_kernel_a_check_says_what_to_run():
    """Also if only the answer is missing. A kernel that knows nothing of the course shows the cell and its comment."""
    labs = [build.edition(chapter, "lab") for chapter in course.chapters()]
    code = [cell.source for lab in labs for cell in lab.cells if cell.cell_type == "code"]
    calls = [source for source in code if re.search(r"^(check|hint|progress)\(", source, re.M)]
    answers = [source for source in calls if re.search(r'^check\("\w+", \w+\)$', source, re.M)]
    assert len(calls) > 94 and len(answers) > 50
    # One of each form: cells that differ only in names say the same.
    calls, answers = ({re.sub(r"\(.*\)", "", each): each for each in some}.values() for some in (calls, answers))
    sources = [*calls, "check = print", *answers]
    kernel = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(kernel, kernel_name="python3", allow_errors=True).execute()
    shown = ["\n".join(output.traceback) for cell in kernel.cells for output in cell.outputs]
    assert len(shown) == len(calls) + len(answers)
    assert [each for each in shown if "NameError" not in each or "Run all cells above first." not in each] == []
