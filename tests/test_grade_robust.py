"""Grading outside of the sandbox: whatever lies in the folder, and however a run ends, the class gets its tables.

The submissions are not executed here: `_run` is replaced where the sandbox is not the point.
"""

import ast
import base64
import contextlib
import csv
import inspect
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
from conftest import is_alive, need, wait_until
from nbgrader.api import Gradebook
from support.answers import EXERCISES, right

from labcheck.show import Result
from tools import course
from tools.grade import __main__ as command
from tools.grade import judge, results, sandbox
from tools.grade.collect import CELL, CELLS, CODE, survey
from tools.grade.gradebook import Book, Highlighter, outputs_of
from tools.grade.restore import restore
from tools.grade.review import UNFINISHED as NOT_REVIEWED
from tools.grade.review import UNPARSED, review, signs, solution
from tools.grade.shutdown import Signals, Stopped, temporary_folder, workplace

pytestmark = pytest.mark.filterwarnings("ignore:Object of type")  # nbgrader's own use of its database

LAB = "00_getting_started"
NAMES = ("filled_like", "slope", "average_digit")


def lab(slope: str = "def slope(f, x):\n    return 1.0\n") -> dict:
    """A lab as a student hands it in, with this answer to one exercise."""
    content = json.loads((course.ROOT / "labs" / f"{LAB}.ipynb").read_text())
    for cell in content["cells"]:
        if cell["id"] == "answer-slope":
            cell["source"] = slope
    return content


def with_cells(count: int, source: str = "x = 1") -> dict:
    book = lab()
    own = {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
    book["cells"] += [own | {"id": f"own-{number}"} for number in range(count)]
    return book


def changed(**fields: object) -> dict:
    """A lab whose cell with the answer has these fields."""
    book = lab()
    next(cell for cell in book["cells"] if cell["id"] == "answer-slope").update(fields)
    return book


def put(path: Path | bytes, content: object) -> Path:
    path = Path(os.fsdecode(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def everything_right(each, *_):
    """In place of `_run`: restored and reviewed for real, but not executed."""
    notebook, theirs, notes = restore(each.lab, each.cells)
    verdicts = {name: {"outcome": "correct", "message": "Well done."} for name in NAMES}
    return notebook, list(NAMES), sandbox.Report("whole", {}, verdicts), notes + review(theirs, solution(each.lab))


@pytest.fixture
def stubbed(monkeypatch):
    monkeypatch.setattr(sandbox, "refuse_without", lambda: None)
    monkeypatch.setattr(command, "_run", everything_right)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A gradebook with the lab in it, which takes seconds to make."""
    folder = tmp_path_factory.mktemp("prepared")
    Book(folder / "nbgrader").prepare(LAB)
    return folder


@pytest.fixture
def out(prepared, tmp_path):
    return Path(shutil.copytree(prepared, tmp_path / "out"))


def rows(out: Path, table: str = "grades") -> list[dict]:
    with open(out / f"{table}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def row(out: Path, student: str) -> dict:
    (found,) = [each for each in rows(out) if each["student"] == student]
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Files


NAMED = {  # folder on the disk -> the student's name in the table
    b"M\xfcller": "Müller",
    b"J\x94rg": "Jörg",
    "Zoë".encode(): "Zoë",
    b"CON": "CON",
    b"=cmd|' calc'!A0": "cmd_calc_A0",
    b"-rf": "rf",
    b"$(reboot)": "reboot",
    b"red\x1b[31m\nname": "red_31m_name",
    b"\xff\xfe": "ÿþ",
    "名前".encode() * 40: "名" + "前名" * 16,
    "𝒜".encode() * 60: "𝒜" * 25,
    b"x" * 250: "x" * 100,
}
ODD = {  # contents that are graded anyway; each student with an odd name hands in one of them
    "newlines": lab("x = 1" + "\n" * 60_000),
    "blanks": lab(" \n" * 40_000 + "x = 1"),
    "nan": changed(metadata={"x": float("nan"), "y": float("inf")}),
    "metadata": changed(metadata=["a", {"b": None}]),
    "nbgrader": changed(metadata={"nbgrader": "all points", "id": {"a": 1}}),
    "twice": lab() | {"cells": lab()["cells"] * 2},
    "surrogate": lab("x = '\ud800'"),
    "null": lab("x = 1\0\n\0"),
    "magics": lab("%%bash\nls"),
    "outputs": changed(outputs=[{"output_type": "stream", "name": "stdout", "text": "much"}] * 50_000),
    "padded": " " * 15_000_000 + json.dumps(lab()),
    "bom": "\ufeff" + json.dumps(lab()),
}
REFUSED = {
    "cut": (json.dumps(lab())[:3000], "no JSON"),
    "deep": ('{"cells":' + "[" * 100_000, "no JSON"),
    "digits": ("1" * 1_000_000, "no JSON"),
    "nothing": ("", "no JSON"),
    "numbers": ({"cells": 3}, "not a notebook of format 4"),
    "sources": (changed(source={"a": 1} | {"b": [3]}) | {"cells": [{"source": [1], "cell_type": "code"}]}, "format 4"),
    "cells": (with_cells(CELLS + 1), "code cells"),
    "cell": (lab("x = 1\n" * (CELL // 5)), "a cell of"),
    "code": (with_cells(10, "x = 1\n" * (CODE // 50)), "characters of code"),
    "large": (" " * (21 * 2**20), "MB large"),
    "parts": ("[" + "[]," * 3_000_000 + "[]]", "no lab has that many"),
    "words": ({"cells": [{"cell_type": "markdown", "source": ""}] * (11 * CELLS)}, "no lab has that many"),
    "other": ({"cells": []}, "not one of the course's labs"),
}


@pytest.fixture(scope="module")
def hostile(prepared, tmp_path_factory):
    """The whole command on a folder of everything; returns where it wrote."""
    root = tmp_path_factory.mktemp("hostile")
    folder = root / "in"
    for name, content in zip(NAMED, ODD.values(), strict=True):
        put(os.fsencode(folder) + b"/" + name + b"/lab.ipynb", content)
    for name, (content, _) in REFUSED.items():
        put(folder / name / f"{LAB}.ipynb", content)
    for name in ("ada", "Ada", "Jose\u0301", "Jos\u00e9", "Ada Lovelace", "Ada_Lovelace", "😀", "😎"):
        put(folder / name / "lab.ipynb", lab())
    (folder / "empty").mkdir()
    (folder / "link").symlink_to(folder / "ada")
    put(folder / "essay" / "essay.pdf", "%PDF")
    put(folder / "README.md", "of the teacher")
    put(folder / f"cutoff-{LAB}.ipynb", "{")
    put(folder / "pit" / ("deeper/" * 300) / "lab.ipynb", lab())
    for number in range(1100):
        put(folder / "crowd" / f"{number}.txt", "")
    put(folder / "both" / "lab.ipynb", lab())
    put(folder / "both" / "essay.pdf", "%PDF")
    os.mkfifo(folder / "pipe.ipynb")
    out = Path(shutil.copytree(prepared, root / "out"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "refuse_without", lambda: None)
        patch.setattr(command, "_run", everything_right)
        assert command.main([str(folder), "--out", str(out), "--jobs", "2", "--synthetic"]) == 0
    return out


def test_odd_names_have_their_rows(hostile):
    for name, student in NAMED.items():
        found = row(hostile, student)
        assert (found["points"], found["status"]) == ("5.0", ""), name
        assert (hostile / "feedback" / student / f"{LAB}.html").is_file()
    assert row(hostile, "cmd_calc_A0")["name"] == "'=cmd|' calc'!A0"  # a text, and no formula


def test_names_that_look_alike_stay_apart(hostile):
    students = [each["student"] for each in rows(hostile)]
    assert len(students) == len({each.casefold() for each in students})
    for beginning in ("ada", "josé", "ada_lovelace", "student"):
        alike = [each for each in students if each.casefold().partition("-")[0] == beginning]
        assert len(alike) == 2, alike
    assert len([each for each in rows(hostile) if each["name"] in ("😀", "😎")]) == 2


@pytest.mark.parametrize("student", NAMED.values(), ids=ODD)
def test_odd_contents_are_graded(hostile, student):
    found = row(hostile, student)
    assert (found["points"], found["status"]) == ("5.0", "")
    assert "<html" in (hostile / "feedback" / student / f"{LAB}.html").read_text()


@pytest.mark.parametrize("student", REFUSED)
def test_what_is_refused_costs_its_student_the_points(hostile, student):
    found = row(hostile, student)
    assert found["points"] == "0" and REFUSED[student][1] in found["status"]
    assert found["lab"] == LAB  # the name of the file says which


def test_students_without_a_notebook_have_a_row(hostile):
    for student, reason in {
        "empty": "empty folder",
        "link": "a link",
        "essay": "not a notebook",
        "pipe": "not a file",
        "cutoff": "no JSON",
        "pit": "levels down",
        "crowd": "not a notebook",
    }.items():
        found = row(hostile, student)
        assert found["points"] == "0" and reason in found["status"], student
    assert row(hostile, "both")["points"] == "5.0"
    assert not [each for each in rows(hostile) if each["name"] == "README"]


WALK = """
import json, os, sys
from pathlib import Path
from tools.grade.collect import survey, _labs
folder = Path(sys.argv[1])
_labs()  # while we may read the course
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
found = survey(folder, {"00_getting_started"}, {})
print(json.dumps([[each.student for each in found.submissions], {each.student: each.reason for each in found.missing}]))
"""


def test_files_that_the_grader_may_not_read():
    folder = Path(tempfile.mkdtemp())  # not below pytest's, where another user may not look
    try:
        folder.chmod(0o755)
        put(folder / "ada" / "lab.ipynb", lab())
        put(folder / "file" / "lab.ipynb", lab()).chmod(0)
        put(folder / "folder" / "lab.ipynb", lab()).parent.chmod(0)
        put(folder / "names" / "lab.ipynb", lab()).parent.chmod(0o444)  # may be listed, and no more
        put(folder / "emmy_12_34_homework.ipynb", lab()).chmod(0)
        walk = [sys.executable, "-c", WALK, str(folder)]
        ran = subprocess.run(walk, capture_output=True, text=True, cwd=course.ROOT)
        assert not ran.stderr
        graded, missing = json.loads(ran.stdout)
        assert graded == ["ada"] and set(missing) == {"file", "folder", "names", "emmy_12"}
        assert all("cannot be read: Permission denied" in reason for reason in missing.values())
        if os.getuid():
            folder.chmod(0)
            with pytest.raises(SystemExit, match="cannot be read"):
                survey(folder, {LAB}, {})
    finally:
        for name in (".", "folder", "names"):
            (folder / name).chmod(0o755)
        shutil.rmtree(folder)


def test_a_refused_file_is_no_row_where_the_lab_is_there(tmp_path):
    put(tmp_path / "ada" / LAB / "lab.ipynb", lab())
    put(tmp_path / "ada" / LAB / "old.ipynb", "{")
    put(tmp_path / "ada" / "01_tensors" / "lab.ipynb", "{")
    put(tmp_path / "ada" / "notes.txt", "")
    found = survey(tmp_path, {LAB, "01_tensors"}, {})
    assert [(each.student, each.lab) for each in found.missing] == [("ada", "01_tensors")]
    assert not survey(tmp_path, {LAB}, {}).missing


# ---------------------------------------------------------------------------------------------------------------------
# Names


def test_a_name_that_is_taken_is_not_taken_over(tmp_path, out, stubbed):
    """First one of two whose names look alike, then the other one alone, then both."""
    put(tmp_path / "one" / "Ada Lovelace" / "lab.ipynb", lab())
    put(tmp_path / "two" / "Ada_Lovelace" / "lab.ipynb", lab())
    put(tmp_path / "both" / "Ada_Lovelace" / "lab.ipynb", lab())
    put(tmp_path / "both" / "Ada Lovelace" / "lab.ipynb", lab())
    seen = []
    for name in ("one", "two", "both"):
        command.main([str(tmp_path / name), "--out", str(out), "--synthetic"])
        seen.append({each["student"]: each["name"] for each in rows(out)})
    assert seen[0] == {"Ada_Lovelace": "Ada Lovelace"}
    assert len(seen[1]) == 2 and seen[1]["Ada_Lovelace"] == "Ada Lovelace"
    assert seen[2] == seen[1]


# ---------------------------------------------------------------------------------------------------------------------
# Review


@pytest.mark.parametrize(
    "source, note",
    [
        ("import sys\nright = sys._getframe(2).f_locals['right']", "looks into other code"),
        ("from labcheck.exercise import EXERCISES", "imports the inside"),
        ("import torchcourse_labs.tensors", "imports the inside"),
        ("from torchcourse_labs import tensors", "imports the inside"),
        ("open('../solutions/01_tensors.ipynb')", "names files of the grader"),
        ("def check(*a): pass", "redefines check"),
        ("from unittest.mock import ANY", "says itself"),
        ("import json\njson.dumps = lambda *a: 'right'", "replaces json.dumps"),
        ("import os as system\nsystem.write = print", "replaces system.write"),
        ("import torch\ntorch.Tensor.all = lambda *a: True", "replaces torch.Tensor.all"),
        ("from torch import Tensor as T\nT.all = None", "replaces T.all"),
        ("import json\nj = json\nj.dumps = None", "replaces j.dumps"),
        ("import json\nfor json.dumps in [print]: pass", "replaces json.dumps"),
        ("import json\ndel json.dumps", "replaces json.dumps"),
        ("import json\njson.__dict__['dumps'] = print", "__dict__"),
        ("import json\nvars(json)['dumps'] = print", "vars"),
        ("same.__defaults__ = (1,)", "__defaults__"),
        ("from torch.overrides import TorchFunctionMode", "TorchFunctionMode"),
        ("from torch.utils._python_dispatch import TorchDispatchMode", "TorchDispatchMode"),
        ("import sys\nsys._current_frames()", "_current_frames"),
        ("error.__traceback__.tb_frame", "tb_frame"),
        ("g.gi_frame.f_back", "gi_frame"),
        ("import sys\nsys.settrace(f)", "settrace"),
        ("import sys\nsys.setprofile(f)", "setprofile"),
        ("class A(str): pass", "derives a class from str"),
        ("class A(int): pass", "derives a class from int"),
        ("import torch\nclass A(torch.Tensor): pass", "derives a class from Tensor"),
        ("A = type('A', (str,), {'__eq__': lambda *a: True})", "makes a class while it runs"),
        ("A = type('A', (), {'__eq__': lambda *a: True})", "__eq__"),
        ("x.__class__ = float", "__class__"),
        ("import ctypes", "ctypes"),
        ("import sys\nsys.modules['json'] = None", "modules"),
        ("import sys\ngetattr(sys, '_get' + 'frame')()", "computes the names of attributes"),
        ("import sys\ngetattr(sys, '_getframe')()", "_getframe"),
        ("from operator import attrgetter\nattrgetter('f_back.f_locals')(x)", "f_locals"),
        ("class A:\n    def __getattribute__(self, name): return 1", "__getattribute__"),
        ("exec('x = 1')", "runs text as code"),
        ("len?\nimport ctypes", "ctypes"),
        ("x = !ls\nimport ctypes", "ctypes"),
        ("x = !ls", "shell command"),
        ("%%time\nimport ctypes", "ctypes"),
        ("%%time\n%%capture\nimport ctypes", "ctypes"),
        ("%timeit -n 10 -r 3 eval('1')", "runs text as code"),
        ("%%writefile trick.py\nimport ctypes", "ctypes"),
        ("%%bash\nls", "shell command"),
        ("%system ls", "shell command"),
        ("%run trick.py", "runs text as code"),
        ("!cat /proc/1/environ", "names files of the grader"),
        ("get_ipython().ast_transformers.append(x)", "changes IPython"),
        ("def f(:\n    pass", UNPARSED),
        ("x = 1\0", UNPARSED),
        ("%%time\ndef f(:", UNPARSED),
        ("%%time\n" * 50, UNPARSED),
        ("(" * 5000, UNPARSED),
    ],
)
def test_signs(source, note):
    assert any(note in each for each in signs([source], [])), list(signs([source], []))


@pytest.mark.parametrize(
    "source",
    [
        "len?\nx = 1",
        "%matplotlib inline\n%time y = x.sum()",
        "%%time\nmodel.eval()",
        "%%timeit -n 3\nx + 1",
        "net = torch.compile(net)",
        "import torch\ntorch.backends.cudnn.benchmark = True",
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        self.seen = getattr(self, 'x')",
        "print(type(x).__name__, x.__class__.__name__)",
        "%%writefile notes.txt\nnot (Python",
        "x = [1, 2]\nx.remove(1)\nprint(x)",
        "def f(x):\n    return x.sum().item()",
        "...",
        "",
    ],
)
def test_signs_are_silent_on_honest_code(source):
    assert list(signs([source], [])) == []


def source_of(function) -> str:
    """The source of a function, also of a lambda in the middle of a call, which inspect.getsource does not cut out."""
    file = Path(inspect.getsourcefile(function) or "")
    if not file.is_file():  # made by `mutant`: the solution with another line
        return ""
    tree = ast.parse(file.read_text())
    line = function.__code__.co_firstlineno
    kinds = (ast.Lambda, ast.FunctionDef)
    found = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, kinds) and node.lineno == line]
    return found[0] if found else ""  # one of several in a line


def right_answers(chapter: course.Chapter) -> list[str]:
    """The right answers of a chapter, as far as they are functions."""
    answers = [answer for name, each in EXERCISES.items() if each.chapter == chapter.name for answer in right(name)]
    return [source_of(answer) for answer in answers if inspect.isfunction(answer)]


@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda chapter: chapter.name)
def test_signs_are_silent_on_right_answers(chapter):
    sources, usual = right_answers(chapter), solution(chapter.name)
    # One right answer of 11 copies by `cp`: which program a student starts is for a person to see.
    expected = ["ends or starts processes: subprocess"] if chapter.name == "11_cluster" else []
    assert sources and list(signs([*usual, *sources], usual)) == expected


def test_one_word_of_the_solution_excuses_no_other():
    """A solution that uses ctypes is no excuse for cffi."""
    assert list(signs(["import ctypes, cffi"], ["import ctypes"])) == ["works on Python's modules: cffi"]


def test_review_ends_whatever_it_reads():
    """With the notes found until then, and one that says so."""
    endless = "x = !ls\n" * 20_000
    notes = review(["import ctypes", endless, "import cffi"], [], seconds=2)
    assert any("ctypes" in each for each in notes) and notes[-1] == NOT_REVIEWED
    assert review(["x = 1\n" + "\n" * 60_000, " \n" * 30_000], []) == []


def test_colors_of_a_page_end(monkeypatch):
    honest = "def slope(f, x):\n    return 1.0\n"
    assert "<span" in Highlighter(10, 1000)(honest)
    small = Highlighter(10, 2 * len(honest))
    assert ["<span" in small(honest) for _ in range(4)] == [True, True, False, False]
    page = Highlighter(0.2, 1_000_000)
    before = signal.getsignal(signal.SIGVTALRM)
    plain = page(" \n" * 50_000 + "<b>")
    assert "<span" not in plain and "&lt;b&gt;" in plain
    assert "<span" not in page(honest)  # the time of this page is over
    assert signal.getsignal(signal.SIGVTALRM) is before


# ---------------------------------------------------------------------------------------------------------------------
# Tables


def test_cells_of_a_table_are_no_formulas(tmp_path):
    for text in ("=1+1", "+1", "-1", "@x", "\t=1", " =1", "＝1", "\r\n=1"):
        assert results._no_formula(text).lstrip()[0] == "'"
    for sign in ";|\t\r\n":  # a spreadsheet may split a row there
        for text in ("=1+1", "  ＠x"):
            assert results._no_formula(f"x{sign}{text};y") == f"x{sign}'{text};y"
    assert [results._no_formula(each) for each in (-1.5, "a=1", "", 0)] == [-1.5, "a=1", "", 0]


def test_damaged_results_cost_their_own_row(tmp_path, out, stubbed):
    put(tmp_path / "in" / "ada" / "lab.ipynb", lab())
    put(out / "results" / "emmy" / f"{LAB}.json", "{")
    put(out / "results" / "kurt" / f"{LAB}.json", {"student": "kurt", "lab": LAB, "verdicts": {"slope": {}}})
    command.main([str(tmp_path / "in"), "--out", str(out), "--synthetic"])
    assert row(out, "ada")["points"] == "5.0" and row(out, "emmy")["points"] == row(out, "kurt")["points"] == ""
    assert "cannot be read" in row(out, "emmy")["status"]
    assert "no longer in the gradebook" in row(out, "kurt")["status"]


def test_running_again_leaves_no_litter_and_mends_what_was_missing(tmp_path, out, stubbed, monkeypatch):
    """Also nothing in the folder for temporary files."""
    folder, temporary = tmp_path / "in", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    put(folder / "ada" / "lab.ipynb", lab())
    put(folder / "emmy" / "homework.ipynb", "{")

    def go() -> set[str]:
        command.main([str(folder), "--out", str(out), "--synthetic"])
        return {path.relative_to(out).as_posix() for path in out.rglob("*")}

    first = go()
    assert go() == first
    assert row(out, "emmy")["lab"] == ""
    put(folder / "emmy" / "homework.ipynb", lab())
    go()
    assert (row(out, "emmy")["lab"], row(out, "emmy")["points"]) == (LAB, "5.0")
    assert list(temporary.iterdir()) == [] and tempfile.tempdir == str(temporary)


@pytest.mark.parametrize(
    ("report", "status"),
    [
        (MemoryError("\ud800 of the grader\n"), "grade by hand: MemoryError"),
        (sandbox.Report("the judgment broke off", failed=True), "grade by hand: the judgment broke off"),
        ({"outcome": "not checked", "message": "No compiler."}, "grade by hand: the check failed for slope"),
        ({"outcome": "incorrect", "message": "Odd.", "stumbled": "KeyError()"}, "grade by hand: the check failed for"),
    ],
)
def test_a_failure_of_the_grader_is_never_zero_points(report, status, tmp_path, out, stubbed, monkeypatch, capsys):
    """It costs only itself; and its points are open until a person has given some, which then count."""

    def run(each, *_):
        notebook, asked, found, notes = everything_right(each)
        if each.student != "emmy":
            return notebook, asked, found, notes
        if isinstance(report, Exception):
            raise report
        if isinstance(report, dict):
            found.verdicts["slope"] = report
        return notebook, asked, found if isinstance(report, dict) else report, notes

    monkeypatch.setattr(command, "_run", run)
    for student in ("ada", "emmy", "kurt"):
        put(tmp_path / "in" / student / "lab.ipynb", lab())
    asked = [str(tmp_path / "in"), "--out", str(out), "--synthetic"]
    assert command.main(asked) == 1
    assert [each["points"] for each in rows(out)] == ["5.0", "", "5.0"]
    assert row(out, "emmy")["status"].startswith(status)
    assert "the grader itself failed: 1." in capsys.readouterr().out
    if isinstance(report, dict):
        with Gradebook(Book(out / "nbgrader").url) as book:
            book.find_grade("check-slope", LAB, LAB, "emmy").manual_score = 1.5
            book.db.commit()
        command.main(asked)
        assert row(out, "emmy")["points"] == "4.5"


def test_a_full_disk_is_a_sentence(tmp_path, out, stubbed):
    """Whatever library meets it first. Here no file may grow beyond a size."""
    put(tmp_path / "in" / "ada" / "lab.ipynb", lab())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**15, before[1]))
    try:
        with pytest.raises(SystemExit, match=r"cannot be written to .*: File too large\. Make room there"):
            command.main([str(tmp_path / "in"), "--out", str(out), "--synthetic"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert command.main([str(tmp_path / "in"), "--out", str(out), "--synthetic"]) == 0
    assert row(out, "ada")["points"] == "5.0" and not list(out.glob("*.part"))


@pytest.mark.parametrize("what", ["a limit by the clock", "an error of ours"])
def test_what_may_be_a_neighbors_fault_happens_alone(tmp_path, out, stubbed, monkeypatch, what):
    """The submission runs again when all others have ended, and that run counts."""
    runs, late = [], threading.Event()

    def run(each, *_):
        runs.append(each.student)
        found = everything_right(each)
        if runs.count("emmy") == 1 and each.student == "emmy":
            late.set()
            if what == "an error of ours":
                raise OSError("Too many references")
            found[2].disturbed, found[2].ended, found[2].verdicts = True, "time limit", {}
        elif each.student in ("ada", "kurt"):
            assert late.wait(60)
            runs.append(f"{each.student} ended")
        return found

    monkeypatch.setattr(command, "_run", run)
    for student in ("ada", "emmy", "kurt"):
        put(tmp_path / "in" / student / "lab.ipynb", lab())
    command.main([str(tmp_path / "in"), "--out", str(out), "--synthetic", "--jobs", "2"])
    assert [(each["points"], each["status"]) for each in rows(out)] == [("5.0", "")] * 3
    assert runs[-1] == "emmy" and runs.count("emmy") == 2


def test_results_do_not_go_among_the_submissions(tmp_path):
    with pytest.raises(SystemExit, match="among the submissions"):
        command.main([str(tmp_path), "--out", str(tmp_path / "grades")])


# ---------------------------------------------------------------------------------------------------------------------
# Data


def test_a_class_is_not_graded_on_synthetic_data_by_accident(tmp_path, out, stubbed, monkeypatch, capsys):
    put(tmp_path / "in" / "ada" / "lab.ipynb", lab())
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "data"))
    given = []
    monkeypatch.setattr(command, "_run", lambda *words: (given.append(words[-1]), everything_right(*words))[1])
    asked = [str(tmp_path / "in"), "--out", str(out)]
    with pytest.raises(SystemExit, match=r"Nothing is graded: 00_getting_started needs MNIST(.|\n)*--synthetic"):
        command.main(asked)
    assert not given and not (out / "grades.csv").exists()

    command.main([*asked, "--synthetic"])
    assert given == [None, None]  # the course's own solution, then the submission
    assert "synthetic data" in capsys.readouterr().out.splitlines()[0]

    put(tmp_path / "data" / "mnist" / "train.safetensors", "damaged")
    with pytest.raises(SystemExit, match=r"Nothing is graded: .*train\.safetensors"):
        command.main(asked)
    monkeypatch.setattr(command.files, "find", lambda *_: ("images", "labels"))
    command.main(asked)
    assert given == [None, None, tmp_path / "data", tmp_path / "data"]


@pytest.mark.parametrize(
    ("number", "loaded"),
    [
        ("00", {"mnist"}),
        ("01", {"mnist", "cifar10"}),
        ("04", {"fashion_mnist"}),
        ("05", {"cifar10"}),
        ("07", {"mnist"}),
    ],
)
def test_data_sets_of_a_lab_are_known(number, loaded, monkeypatch):
    """As the labs load them today. A chapter that loads none is asked for none."""
    asked = []
    monkeypatch.setattr(command.files, "find", lambda name, *_: asked.append(name) or "there")
    command.real_data(course.select([number]))
    assert set(asked) == loaded


# ---------------------------------------------------------------------------------------------------------------------
# The end of a run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_run_but_no_step(number):
    steps = []
    at_first = signal.signal(number, signal.SIG_DFL)  # the suite may have been started with nohup
    before = signal.getsignal(number)
    with pytest.raises(Stopped) as stop, Signals() as signals:
        with signals.whole():
            signal.raise_signal(number)
            steps.append("to its end")
        steps.append("the next one")
    assert stop.value.code == 128 + number and steps == ["to its end"]
    with pytest.raises(Stopped), Signals():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before
    signal.signal(number, at_first)


def test_what_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with Signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_a_killed_run_left_is_removed(tmp_path, monkeypatch):
    parts = [put(tmp_path / "grades.csv.part", ""), put(tmp_path / "results" / "ada" / "00.json.part", "")]
    with workplace(tmp_path):
        assert not any(part.exists() for part in parts)
        with pytest.raises(SystemExit, match="Another run is grading"), workplace(tmp_path):
            pass
    with workplace(tmp_path):
        pass

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    old = put(tmp_path / f"grade-{os.getuid()}-{gone.pid}" / "grade-x" / "etc" / "hosts", "")
    words = "from tools.grade.shutdown import temporary_folder; print(temporary_folder(), flush=True); input()"
    # Another grader. Nothing may depend on its number: in a container or on a node, it isn't seen.
    monkeypatch.setattr(psutil, "pid_exists", lambda pid: False)
    with subprocess.Popen([sys.executable, "-c", words], cwd=course.ROOT, stdin=-1, stdout=-1, text=True) as other:
        others = Path(other.stdout.readline().strip())
        mine = temporary_folder()
        assert not old.exists() and others.is_dir() and mine != others
        other.communicate("\n")
    assert other.returncode == 0 and not others.exists()
    assert Path(tempfile.mkdtemp()).parent == mine == Path(os.environ["TMPDIR"])


def test_results_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="cannot be written"), workplace(tmp_path / "file" / "out"):
        pass


SLOW = "import time\nprint('here')\nwhile True:\n    time.sleep(0.1)"


def test_term_writes_the_tables_and_leaves_nothing(tmp_path, prepared):
    """The real command with a real sandbox: one submission is finished when TERM comes, one is running."""
    need("bubblewrap")
    put(tmp_path / "in" / "ada" / "lab.ipynb", lab())
    put(tmp_path / "in" / "slow" / "lab.ipynb", with_cells(1, SLOW))
    put(tmp_path / "in" / "cut" / f"{LAB}.ipynb", "{")
    out = Path(shutil.copytree(prepared, tmp_path / "out"))
    temporary = Path(tempfile.mkdtemp())  # not below pytest's: the names of sockets may have 107 bytes
    words = [sys.executable, "-m", "tools.grade", str(tmp_path / "in"), "--out", str(out), "--jobs", "2", "--synthetic"]
    environment = os.environ | {"TMPDIR": str(temporary)}
    # At many sites nobody else may read what a person writes; what runs in the sandbox is another user, and has to.
    private = {"umask": 0o077, "stdout": subprocess.PIPE, "text": True}
    grader = subprocess.Popen(words, cwd=course.ROOT, env=environment, **private)
    try:
        said = []
        while "] ada " not in (line := grader.stdout.readline()):
            assert line, said  # it ended by itself
            said.append(line)
        grader.send_signal(signal.SIGTERM)
        rest, _ = grader.communicate()
    finally:
        grader.kill()
    assert grader.returncode == 143 and "Stopped" in rest
    assert {each["student"]: float(each["max"]) > 0 for each in rows(out)} == {"ada": True, "cut": True}
    assert (out / "feedback" / "ada" / f"{LAB}.html").is_file() and (out / "exercises.csv").is_file()
    temporary.rmdir()  # it is empty
    assert not left_over(str(out)), "a sandbox outlived the grader"


JUDGE = """
import multiprocessing
from tools.grade import judge, sandbox
ours, theirs = multiprocessing.Pipe()
sleeps = {"id": "slow", "source": "import time; time.sleep(600)"}
ours.send(([sleeps], "00_getting_started", {}, sandbox.Limits(600, 600, 1600), None))
judge._work(theirs)
"""


def test_a_judge_that_is_ended_removes_what_it_made(tmp_path):
    """Its folder, its sandbox, and the group that counts the sandbox's memory."""
    need("bubblewrap")
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", JUDGE], cwd=course.ROOT, env=environment) as judging:
        inside = []
        while not any(process.name() == "bwrap" for process in inside):
            assert judging.poll() is None
            time.sleep(0.05)
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                inside = psutil.Process(judging.pid).children(recursive=True)
        groups = {line.rpartition("/")[2] for line in Path(f"/proc/{inside[-1].pid}/cgroup").read_text().splitlines()}
        assert list(tmp_path.glob("grade-*"))
        judging.terminate()
    assert judging.returncode == 1 and not list(tmp_path.glob("grade-*"))
    _, alive = psutil.wait_procs(inside, timeout=30)
    assert not alive
    ours = [name for name in groups if name.startswith("torchcourse-")]
    assert not any(list(Path("/sys/fs/cgroup").rglob(name)) for name in ours)


def test_a_page_tells_an_open_answer_from_a_wrong_one(out):
    notebook, _, _ = restore(LAB, [])
    outcomes = dict(zip(NAMES, ("not attempted", "incorrect", "correct"), strict=True))
    verdicts = {name: Result(name, outcome, "said") for name, outcome in outcomes.items()}
    page = Book(out / "nbgrader").enter("ada", LAB, notebook, outputs_of(notebook, {}, verdicts), "")
    assert re.findall("<tr><td>(.)</td>", page.read_text(encoding="utf-8")) == ["○", "✗", "✓"]


APART = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
from tools.grade import judge, sandbox
if __name__ == "__main__":
    source, held = sys.argv[1], []
    try:
        while "neighbor" in source:  # one that uses up the open files that may be under way
            held.append(socket.socketpair())
            socket.send_fds(held[-1][0], [b"x"], [0] * 200)
    except OSError:
        pass
    job = [{"id": "cell", "source": source}], "00_getting_started", {}, sandbox.Limits(600, 600, 1600), None
    with ThreadPoolExecutor(2) as pool:
        report = pool.submit(judge.run_apart, *job).result()
    print(report.ended, report.disturbed, report.cells["cell"]["text"])
"""


def plain_user() -> list[str]:
    """Words that have a program run by another user than root, who can read the course and this Python."""
    if os.getuid():
        return []
    words = ["bwrap", "--dev-bind", "/", "/", "--cap-add", "ALL"]
    for path in map(Path, (sys.base_prefix, sys.prefix, course.ROOT)):
        closed = [folder for folder in path.parents if folder.stat().st_mode & 0o005 != 0o005]
        if closed:
            words += ["--perms", "0755", "--tmpfs", str(closed[-1])] if str(closed[-1]) not in words else []
            words += [word for folder in reversed(path.parents[:-1]) for word in ("--dir", str(folder))]
            words += ["--ro-bind", str(path), str(path)]
    return [*words, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def test_a_neighbor_that_uses_up_what_all_have_together_costs_no_points():
    """Linux counts open files on their way through sockets by user: each sandbox of a plain user is that user."""
    need("bubblewrap")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        words = [*plain_user(), "prlimit", "--nofile=1024:4096", sys.executable, "-c", APART, "print('neighbor')"]
        environment = os.environ | {"TMPDIR": folder, "HOME": folder}
        done = subprocess.run(words, cwd=course.ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "whole True neighbor", done.stderr  # it runs, and will run again, alone


def test_nothing_outlives_a_command_that_is_killed():
    """By a signal that it does not hear."""
    need("bubblewrap")
    words = [sys.executable, "-c", APART, "import time; time.sleep(600)"]
    started: list[psutil.Process] = []
    with subprocess.Popen(words, cwd=course.ROOT, stderr=subprocess.DEVNULL) as grader:
        while "bwrap" not in [process.name() for process in started]:
            assert grader.poll() is None
            time.sleep(0.05)
            with contextlib.suppress(psutil.NoSuchProcess):
                started = psutil.Process(grader.pid).children(recursive=True)
        grader.kill()
    wait_until(lambda: not any(map(is_alive, started)), f"the end of {started}")


def test_pages_get_pictures_of_one_kind():
    """What a notebook calls a picture may be anything, and a page shows it to a person."""
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(30)).decode()
    others = [
        base64.b64encode(each).decode() for each in (b"<svg onload='x()'/>", b"\xff\xd8\xff\xe0 JFIF", b"GIF89a", b"")
    ]
    others += ["<script>x()</script>", f'{png}" onerror="x()', f"{png}ü", 7, None, ["x"], "A" * judge.PICTURE]
    said = {"text": "", "error": "", "late": "", "pictures": [*others, png, f"{png[:20]}\n{png[20:]}\n"]}
    assert judge._shown(said, {})["pictures"] == [png, png]
    full = {"before": {"text": "", "error": "", "pictures": [png] * (judge.PICTURES - 1)}}
    assert judge._shown(said, full)["pictures"] == [png]


def test_what_all_cells_print_has_a_limit():
    """Else the report of a notebook would be too large to be sent, and its verdicts would be lost with it."""
    cells, loud = {}, {"text": "\N{SMILING FACE WITH SUNGLASSES}" * judge.TEXT, "error": "\0" * judge.TEXT, "late": ""}
    for number in range(judge.CELLS):
        cells[str(number)] = judge._shown(loud, cells)
    assert len(json.dumps(cells)) < sandbox.REPORT / 2


def left_over(word: str) -> list[str]:
    """Command lines of processes that name `word`, other than ours. What is about to end gets the time for it."""
    others = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and any(word in part for part in process.cmdline()):
                others.append(process)
    _, alive = psutil.wait_procs(others, timeout=30)
    return [" ".join(process.cmdline()) for process in alive]
