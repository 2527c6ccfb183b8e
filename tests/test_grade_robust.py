"""Grading outside of the sandbox: whatever lies in the folder, and however a run ends, the class gets its tables.

The submissions are not executed here: `_run` is replaced where the sandbox is not the point.
"""

import contextlib
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import psutil
import pytest
from conftest import is_alive, need, wait_until
from nbgrader.api import Gradebook
from support.answers import EXERCISES, right
from support.submissions import LAB, NAMES, put, rows
from support.submissions import lab as solved

from labcheck.show import Result
from tools import course
from tools.grade import __main__ as command
from tools.grade import judge, results, sandbox
from tools.grade.collect import CELLS, CODE, survey
from tools.grade.gradebook import Book, outputs_of
from tools.grade.restore import restore
from tools.grade.review import UNFINISHED as NOT_REVIEWED
from tools.grade.review import UNPARSED, review, signs, solution
from tools.grade.shutdown import Signals, Stopped, workplace

pytestmark = pytest.mark.filterwarnings("ignore:Object of type")  # nbgrader's own use of its database


def lab(slope: str = "def slope(f, x):\n    return 1.0\n") -> dict:
    """A lab as a student hands it in, with this answer to one exercise."""
    return json.loads(nbformat.writes(solved(slope=slope)))


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


def everything_right(each, *_):
    """In place of `_run`: restored and reviewed for real, but not executed."""
    notebook, theirs, notes = restore(each.lab, each.cells)
    verdicts = {name: {"outcome": "correct", "message": "Well done."} for name in NAMES}
    return notebook, list(NAMES), sandbox.Report("whole", {}, verdicts), notes + review(theirs, solution(each.lab))


def execute_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sandbox, "why_not", lambda: "")
    patch.setattr(judge, "server", contextlib.nullcontext)  # where runs are forked from: it imports PyTorch
    patch.setattr(command, "_run", everything_right)


@pytest.fixture
def stubbed(monkeypatch):
    execute_nothing(monkeypatch)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A gradebook with the lab in it, which takes seconds to make."""
    folder = tmp_path_factory.mktemp("prepared")
    Book(folder / "nbgrader").prepare(LAB)
    return folder


@pytest.fixture
def out(prepared, tmp_path):
    return Path(shutil.copytree(prepared, tmp_path / "out"))


# ---------------------------------------------------------------------------------------------------------------------
# Files


NAMED = {  # folder on the disk -> how the student's name in the table begins
    b"M\xfcller": "M_ller-",
    "Zoë".encode(): "Zoë",
    b"=cmd|' calc'!A0": "cmd_calc_A0-",
    b"-rf": "rf-",
    b"$(reboot)": "reboot-",
    b"red\x1b[31m\nname": "red_31m_name-",
    "𝒜".encode() * 60: "𝒜" * 25 + "-",
}
ODD = {  # contents that are graded anyway; each student with an odd name hands in one of them
    "newlines": lab("x = 1" + "\n" * 60_000),
    "nan": changed(metadata={"x": float("nan"), "y": float("inf")}),
    "nbgrader": changed(metadata={"nbgrader": "all points", "id": {"a": 1}}),
    "surrogate": lab("x = '\ud800'"),
    "null": lab("x = 1\0\n\0"),
    "magics": lab("%%bash\nls"),
    "outputs": changed(outputs=[{"output_type": "stream", "name": "stdout", "text": "much"}] * 50_000),
}
REFUSED = {
    "cut": (json.dumps(lab())[:3000], "no JSON"),
    "deep": ('{"cells":' + "[" * 100_000, "no JSON"),
    "numbers": ({"cells": 3}, "not a notebook of format 4"),
    "sources": (changed(source={"a": 1} | {"b": [3]}) | {"cells": [{"source": [1], "cell_type": "code"}]}, "format 4"),
    "cells": (with_cells(CELLS + 1), "code cells"),
    "code": (with_cells(10, "x = 1\n" * (CODE // 50)), "characters, and no lab"),
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
    for name in ("ada", "Ada", "a+b", "a b", "😀", "😎"):
        put(folder / name / "lab.ipynb", lab())
    (folder / "empty").mkdir()
    (folder / "link").symlink_to(folder / "ada")
    put(folder / "essay" / "essay.pdf", "%PDF")
    put(folder / "README.md", "of the teacher")
    put(folder / f"cutoff-{LAB}.ipynb", "{")
    put(folder / "both" / "lab.ipynb", lab())
    put(folder / "both" / "essay.pdf", "%PDF")
    os.mkfifo(folder / "pipe.ipynb")
    out = Path(shutil.copytree(prepared, root / "out"))
    with pytest.MonkeyPatch.context() as patch:
        execute_nothing(patch)
        assert command.main([str(folder), "--out", str(out), "--jobs", "2", "--synthetic"]) == 0
    return out


def test_odd_names_and_contents_are_graded(hostile):
    for name, student in zip(NAMED.values(), ODD, strict=True):
        (found,) = [row for each, row in rows(hostile).items() if each.startswith(name)]
        assert (found["points"], found["status"]) == ("5.0", ""), student
        assert "<html" in (hostile / "feedback" / found["student"] / f"{LAB}.html").read_text()
        assert not found["name"].startswith("=")  # a text, and no formula


def test_names_that_look_alike_stay_apart(hostile):
    assert {"ada", "Ada", "a_b"} <= {*rows(hostile)}
    assert len([each for each in rows(hostile) if each.startswith(("a_b-", "student-"))]) == 3


@pytest.mark.parametrize("student", REFUSED)
def test_what_is_refused_costs_its_student_the_points(hostile, student):
    found = rows(hostile)[student]
    assert found["points"] == "0" and REFUSED[student][1] in found["status"]
    assert found["lab"] == LAB  # the name of the file says which


def test_students_without_a_notebook_have_a_row(hostile):
    for student, reason in {
        "empty": "no notebook",
        "link": "a link",
        "essay": "no notebook",
        "pipe": "not a file",
        "cutoff": "no JSON",
    }.items():
        found = rows(hostile)[student]
        assert found["points"] == "0" and reason in found["status"], student
    assert rows(hostile)["both"]["points"] == "5.0"
    assert not [each for each in rows(hostile) if each == "README"]


def test_files_that_the_grader_may_not_read(tmp_path):
    if not os.getuid():
        pytest.skip("root may read everything")
    put(tmp_path / "ada" / "lab.ipynb", lab())
    put(tmp_path / "file" / "lab.ipynb", lab()).chmod(0)
    put(tmp_path / "folder" / "lab.ipynb", lab()).parent.chmod(0)
    put(tmp_path / "names" / "lab.ipynb", lab()).parent.chmod(0o444)  # may be listed, and no more
    put(tmp_path / "emmy_123_456_homework.ipynb", lab()).chmod(0)
    found = survey(tmp_path, {LAB})
    for name in ("folder", "names"):
        (tmp_path / name).chmod(0o755)
    missing = {each.owner.student: each.note for each in found.missing}
    assert [each.owner.student for each in found.submissions] == ["ada"]
    assert missing == dict.fromkeys(("file", "folder", "names", "emmy_123"), "cannot be read: Permission denied")


def test_a_refused_file_is_no_row_where_the_lab_is_there(tmp_path):
    put(tmp_path / "ada" / LAB / "lab.ipynb", lab())
    put(tmp_path / "ada" / LAB / "old.ipynb", "{")
    put(tmp_path / "ada" / "01_tensors" / "lab.ipynb", "{")
    put(tmp_path / "ada" / "notes.txt", "")
    found = survey(tmp_path, {LAB, "01_tensors"})
    assert [(each.owner.student, each.lab) for each in found.missing] == [("ada", "01_tensors")]
    assert not survey(tmp_path, {LAB}).missing


# ---------------------------------------------------------------------------------------------------------------------
# Review


SIGNS = {
    "import sys\nright = sys._getframe(2)": "_getframe",
    "from labcheck.exercise import EXERCISES": "imports the inside",
    "open('../solutions/01_tensors.ipynb')": "names files of the grader",
    "!cat /proc/1/environ": "names files of the grader",
    "def check(*a): pass": "redefines check",
    "from unittest.mock import ANY": "says itself",
    "A = type('A', (), {'__eq__': lambda *a: True})": "__eq__",
    "import torch\ntorch.Tensor.all = lambda *a: True": "replaces torch.Tensor.all",
    "x.__class__ = float": "__class__",
    "import sys\nsys.modules['json'] = None": "sys.modules",
    "import sys\ngetattr(sys, '_get' + 'frame')()": "computes the names of attributes",
    "from operator import attrgetter\nattrgetter('f_back.f_locals')(x)": "f_locals",
    "exec('x = 1')": "runs text as code",
    "import os\nos.system('ls')": "starts or ends processes",
    "len?\nimport ctypes": "ctypes",
    "%timeit -n 10 -r 3 eval('1')": "runs text as code",
    "%%writefile trick.py\nimport ctypes": "ctypes",
    "%%bash\nls": "runs a shell command",
    "%run trick.py": "another file",
    "get_ipython().ast_transformers.append(x)": "changes IPython",
    "def f(:\n    pass": UNPARSED,
    "(" * 5000: UNPARSED,
}


@pytest.mark.parametrize("source", SIGNS)
def test_signs(source):
    assert any(SIGNS[source] in each for each in signs([source], [])), signs([source], [])


def test_signs_are_silent_on_honest_code():
    honest = [
        "len?\nx = 1",
        "%matplotlib inline\n%time y = x.sum()",
        "%%time\nmodel.eval()",
        "net = torch.compile(net)",
        "import torch\ntorch.backends.cudnn.benchmark = True",
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        self.seen = getattr(self, 'x')",
        "print(type(x).__name__, x.__class__.__name__, [*model.modules()])",
        "%%writefile notes.txt\nnot (Python",
        "",
    ]
    assert signs(honest, []) == []


def right_answers(chapter: course.Chapter) -> list[str]:
    """The right answers of a chapter, as far as they are functions with a name in a file."""
    answers = [answer for name, each in EXERCISES.items() if each.chapter == chapter.name for answer in right(name)]
    named = [each for each in answers if inspect.isfunction(each) and each.__name__.isidentifier()]
    in_a_file = [each for each in named if os.path.isfile(inspect.getsourcefile(each))]  # and not made by `mutant`
    return [textwrap.dedent(inspect.getsource(each)) for each in in_a_file]


@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda chapter: chapter.name)
def test_signs_are_silent_on_right_answers(chapter):
    sources, usual = right_answers(chapter), solution(chapter.name)
    assert sources and signs([*usual, *sources], usual) == []


def test_one_word_of_the_solution_excuses_no_other():
    """A solution that uses ctypes is no excuse for cffi."""
    assert signs(["import ctypes, cffi"], ["import ctypes"]) == ["works on Python's modules: cffi"]


def test_review_ends_whatever_it_reads():
    assert review(["import ctypes", "x = !ls\n" * 20_000], [], seconds=2) == [NOT_REVIEWED]
    assert review(["x = 1\n" + "\n" * 60_000, " \n" * 30_000], []) == []


# ---------------------------------------------------------------------------------------------------------------------
# Tables


def test_cells_of_a_table_are_no_formulas(tmp_path):
    for text in ("=1+1", "+1", "-1", "@x", "\t=1", " =1", "＝1", "\r\n=1"):
        assert results._no_formula(text).lstrip()[0] == "'"
    for sign in ";|\t\r\n":  # a spreadsheet may split a row there
        for text in ("=1+1", "  ＠x"):
            assert results._no_formula(f"x{sign}{text};y") == f"x{sign}'{text};y"
    assert [results._no_formula(each) for each in (-1.5, "a=1", "", 0)] == [-1.5, "a=1", "", 0]


def test_running_again_mends_what_was_missing(tmp_path, out, stubbed):
    put(tmp_path / "in" / "ada" / "lab.ipynb", lab())
    put(tmp_path / "in" / "emmy" / "homework.ipynb", "{")
    asked = [str(tmp_path / "in"), "--out", str(out), "--synthetic"]
    command.main(asked)
    assert (rows(out)["emmy"]["lab"], rows(out)["emmy"]["points"]) == ("", "0")
    put(tmp_path / "in" / "emmy" / "homework.ipynb", lab())
    command.main(asked)
    assert {student: each["points"] for student, each in rows(out).items()} == {"ada": "5.0", "emmy": "5.0"}


def test_a_failure_of_the_grader_is_never_zero_points(tmp_path, out, stubbed, monkeypatch, capsys):
    """It costs only itself; and its points are open until a person has given some, which then count."""
    unjudged = {"outcome": "not checked", "message": "No compiler."}

    def run(each, *_):
        notebook, asked, found, notes = everything_right(each)
        if each.owner.student == "emmy":
            raise MemoryError("\ud800 of the grader\n")
        if each.owner.student == "hedy":
            found = sandbox.Report("the judgment broke off", failed=True)
        if each.owner.student == "lise":
            found.verdicts["slope"] = unjudged
        return notebook, asked, found, notes

    monkeypatch.setattr(command, "_run", run)
    for student in ("emmy", "hedy", "kurt", "lise"):
        put(tmp_path / "in" / student / "lab.ipynb", lab())
    asked = [str(tmp_path / "in"), "--out", str(out), "--synthetic"]
    assert command.main(asked) == 1
    assert [each["points"] for each in rows(out).values()] == ["", "", "5.0", ""]
    for student, status in {
        "emmy": "MemoryError",
        "hedy": "RuntimeError: the judgment broke off",
        "lise": "the check failed for slope",
    }.items():
        assert rows(out)[student]["status"].startswith(f"grade by hand: {status}")
    assert "the grader itself failed: 3." in capsys.readouterr().out
    with Gradebook(Book(out / "nbgrader").url) as book:
        book.find_grade("check-slope", LAB, LAB, "lise").manual_score = 1.5
        book.db.commit()
    command.main(asked)
    assert rows(out)["lise"]["points"] == "4.5"


def test_a_full_disk_is_a_sentence(tmp_path, out, stubbed):
    put(tmp_path / "in" / "ada" / "lab.ipynb", lab())
    (out / "grades.csv.part").symlink_to("/dev/full")
    with pytest.raises(SystemExit, match=r"cannot be written to .*: No space left on device\. Make room there"):
        command.main([str(tmp_path / "in"), "--out", str(out), "--synthetic"])


def test_what_may_be_a_neighbors_fault_happens_alone(tmp_path, out, stubbed, monkeypatch):
    """The submission runs again when all others have ended, and that run counts."""
    runs = []

    def run(each, *_):
        runs.append(each.owner.student)
        found = everything_right(each)
        if runs.count("ada") == 1 and each.owner.student == "ada":
            raise OSError("Too many references")
        if runs.count("emmy") == 1 and each.owner.student == "emmy":
            found[2].disturbed, found[2].ended, found[2].verdicts = True, "time limit", {}
        return found

    monkeypatch.setattr(command, "_run", run)
    for student in ("ada", "emmy", "kurt"):
        put(tmp_path / "in" / student / "lab.ipynb", lab())
    command.main([str(tmp_path / "in"), "--out", str(out), "--synthetic", "--jobs", "2"])
    assert [(each["points"], each["status"]) for each in rows(out).values()] == [("5.0", "")] * 3
    assert sorted(runs[-2:]) == ["ada", "emmy"] and "kurt" in runs


# ---------------------------------------------------------------------------------------------------------------------
# Data


def test_a_class_is_not_graded_on_synthetic_data_by_accident(tmp_path, out, stubbed, monkeypatch, capsys):
    put(tmp_path / "in" / "ada" / "lab.ipynb", lab())
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "data"))
    given = []
    monkeypatch.setattr(command, "_run", lambda *words: (given.append(words[2]), everything_right(*words))[1])
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


def test_data_sets_of_a_lab_are_known(monkeypatch):
    """As the labs load them today. A chapter that loads none is asked for none."""
    asked = []
    monkeypatch.setattr(command.files, "find", lambda name, *_: asked.append(name) or "there")
    command.real_data({"01_tensors", "04_mnist_cnn", "09_checkpointing"})
    assert set(asked) == {"mnist", "cifar10", "fashion_mnist"}


# ---------------------------------------------------------------------------------------------------------------------
# The end of a run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_run_but_no_step(number):
    steps = []
    before = signal.getsignal(number)
    with pytest.raises(Stopped) as stop, Signals() as signals, ThreadPoolExecutor(1) as pool:
        for _ in signals.ended([pool.submit(int)]):
            signal.raise_signal(number)
            steps.append("to its end")
        steps.append("the next one")
    assert stop.value.code == 128 + number and steps == ["to its end"]
    assert signal.getsignal(number) is before


def test_results_have_a_folder_for_themselves(tmp_path):
    """Not among the submissions, nor where a file or another run is."""
    with pytest.raises(SystemExit, match="among the submissions"):
        command.main([str(tmp_path), "--out", str(tmp_path / "grades")])
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="cannot be written"), workplace(tmp_path / "file" / "out"):
        pass
    with workplace(tmp_path), pytest.raises(SystemExit, match="Another run is grading"), workplace(tmp_path):
        pass
    with workplace(tmp_path):
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
        started = psutil.Process(grader.pid).children(recursive=True)
        grader.send_signal(signal.SIGTERM)
        rest, _ = grader.communicate()
    finally:
        grader.kill()
    assert grader.returncode == 143 and "Stopped" in rest
    assert {student: float(each["max"]) > 0 for student, each in rows(out).items()} == {"ada": True, "cut": True}
    assert (out / "feedback" / "ada" / f"{LAB}.html").is_file() and (out / "exercises.csv").is_file()
    temporary.rmdir()  # it is empty
    wait_until(lambda: not any(map(is_alive, started)), f"the end of {started}")


def test_a_page_tells_an_open_answer_from_a_wrong_one(out):
    notebook, _, _ = restore(LAB, [])
    outcomes = dict(zip(NAMES, ("not attempted", "incorrect", "correct"), strict=True))
    verdicts = {name: Result(name, outcome, "said") for name, outcome in outcomes.items()}
    page = Book(out / "nbgrader").enter("ada", LAB, notebook, outputs_of(notebook, {}, verdicts), "")
    assert re.findall("<tr><td>(.)</td>", page.read_text(encoding="utf-8")) == ["○", "✗", "✓"]


SCARCE = """
import os, resource, socket
from tools.grade import sandbox
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
before, held = sandbox.scarce(), []
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
try:
    while True:
        held.append(socket.socketpair())
        socket.send_fds(held[-1][0], [b"x"], [0] * 200)
except OSError:
    print(before, sandbox.scarce())
"""


def test_a_neighbor_that_uses_up_what_all_have_together_is_noticed():
    """Linux counts open files on their way through sockets by user: each sandbox of a plain user is that user."""
    done = subprocess.run([sys.executable, "-c", SCARCE], cwd=course.ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr  # such a submission runs again, alone


APART = """
from tools.grade import judge, sandbox
with judge.server() as address:
    sleeps = [{"id": "cell", "source": "import time; time.sleep(600)"}]
    judge.run_apart(address, sleeps, "00_getting_started", {}, sandbox.Limits(600, 600, 1600), None)
"""


def test_nothing_outlives_a_command_that_is_killed():
    """By a signal that it does not hear."""
    need("bubblewrap")
    words = [sys.executable, "-c", APART]
    started: list[psutil.Process] = []
    with subprocess.Popen(words, cwd=course.ROOT, stderr=subprocess.DEVNULL) as grader:
        while "bwrap" not in [process.name() for process in started]:
            assert grader.poll() is None
            time.sleep(0.05)
            with contextlib.suppress(psutil.NoSuchProcess):
                started = psutil.Process(grader.pid).children(recursive=True)
        grader.kill()
    wait_until(lambda: not any(map(is_alive, started)), f"the end of {started}")


def test_what_all_cells_print_has_a_limit():
    """Else the report of a notebook would be too large to be sent, and its verdicts would be lost with it."""
    cells, loud = {}, {"text": "\N{SMILING FACE WITH SUNGLASSES}" * judge.TEXT, "error": "\0" * judge.TEXT, "late": ""}
    for number in range(judge.CELLS):
        cells[str(number)] = judge._shown(loud, cells)
    assert len(json.dumps(cells)) < sandbox.REPORT / 2
