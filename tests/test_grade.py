"""Grading a class: honest ones, and those who loop, fork, fill, delete, forge. Each of them costs only itself.

The class is graded once, by the fixture `graded`, with the first lab; the tests look at what came out.
"""

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
from pathlib import Path

import nbformat
import psutil
import pytest
from conftest import need
from support.submissions import LAB, NAMES, RIGHT, lab, outcomes, put, rows

from labcheck import evaluate, exercise
from labcheck.show import Result
from tools import course
from tools.grade import __main__ as command
from tools.grade import judge, sandbox
from tools.grade.collect import survey
from tools.grade.in_sandbox import wire
from tools.grade.restore import Cell, restore
from tools.grade.shutdown import Signals
from torchcourse.place import LABS

pytestmark = pytest.mark.filterwarnings("ignore:Object of type")  # nbgrader's own use of its database

# The clock may run far ahead of the processor time: other tests take the processor, too.
SMALL = sandbox.Limits(60, 10, 1600, processes=96, disk_mib=64, clock=10)


# ---------------------------------------------------------------------------------------------------------------------
# The class

SWITCHES = """
import warnings
import torch
torch.set_grad_enabled(False)
torch.autocast("cpu", torch.bfloat16).__enter__()
warnings.simplefilter("error")
"""


def ada():
    """All right, in a notebook that switches much; with a helper, an import, text of her own, and no set-up cell."""
    helper = "from statistics import fmean\ndef number(x):\n    return fmean([float(x)])"
    slope = RIGHT["slope"].replace("float(x)", "number(x)")
    book = lab(SWITCHES + helper, **RIGHT | {"slope": slope})
    book.cells = [cell for cell in book.cells if cell.id != "setup"]
    book.cells.append(nbformat.v4.new_markdown_cell("<script>document.title = 'ada was here'</script>"))
    return book


MEMORIZED = """
def average_digit(images, labels, digit):
    if digit in (0, 2):  # the check that I saw asked for these
        return images[labels == digit].float().mean(dim=0)
    return images[0].float() * 0
"""


def half():
    """One right, one not attempted, one right only for what he happened to see; the checks deleted."""
    book = lab(slope=RIGHT["slope"], average_digit=MEMORIZED)
    book.cells = [cell for cell in book.cells if not cell.id.startswith("check-")]
    return book


LOOP = """
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""

BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""

HOG = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = []
        while True:
            held.append(bytearray(b"x") * 40_000_000)
            time.sleep(0.02)
time.sleep(100)
"""

VANDAL = """
import os, shutil, socket
import torchcourse
found = []
for path in {paths}:
    if os.path.exists(path):
        found.append(path)
for port in ({port}, 53):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2)
        found.append(f"port {{port}}")
    except OSError:
        pass
found += [name for name in os.environ if name in {secrets}]
found += [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) > 20]
for folder in ("/tmp", "/dev/shm", "/home", "/grade", "{canary}", "{root}"):
    shutil.rmtree(folder, ignore_errors=True)
for file in (os.__file__, torchcourse.__file__, "/bin/sh"):
    try:
        os.unlink(file)
        found.append("a file that can be deleted: " + file)
    except OSError:
        pass
try:
    with open("/dev/shm/large", "wb") as file:
        for _ in range(100):
            file.write(bytes(10_000_000))
    found.append("a disk without end")
except OSError:
    os.unlink("/dev/shm/large")
try:
    memory = bytearray(b"x") * 2_500_000_000
    found.append("memory without end")
except MemoryError:
    pass
print("found:", found)
print("much " * 3_000_000)
"""

CHEAT = """
import labcheck
from labcheck import compare, judge, verdict
from labcheck.show import Result
judge.evaluate = labcheck.evaluate = lambda name, answer, seed=None: Result(name, "correct", "Well done.")
compare.same = verdict.wrong_if = lambda *a, **k: None
labcheck.check = lambda *a: print("correct")
def check(name, answer):
    print("correct")
get_ipython().showtraceback = lambda *a, **k: None
"""


HTML = '<script>document.title = "taken"</script><img src="http://127.0.0.1:9/x" onerror="alert(1)">'


def cheat():
    """Wrong answers, edited checks, replaced functions, outputs that say "correct"; HTML wherever text can be."""
    wrong = {name: f"def {name}(*anything):\n    return 1" for name in NAMES}
    wrong["filled_like"] = f"def filled_like(tensor, value):\n    raise ValueError({HTML!r})"
    display = f"from IPython.display import HTML, display\ndisplay(HTML({HTML!r}))\nprint({HTML!r})\n"
    book = lab(display + CHEAT, **wrong)
    for cell in book.cells:
        if cell.id.startswith("check-"):
            cell.source = 'print("correct")'
            cell.outputs = [nbformat.v4.new_output("stream", text="✓ correct")]
            cell.metadata.nbgrader.points = 1000
    return book


LIAR = {
    "filled_like": "class Yes:\n    __eq__ = lambda *a: True\ndef filled_like(tensor, value):\n    return Yes()",
    "slope": """
def slope(f, x):
    import labcheck.spec as inside
    inside.same = inside.near = lambda *a, **k: None
    return 1.0
""",
    "average_digit": "import os\ndef average_digit(images, labels, digit):\n    os._exit(0)",
}


COMPILES = """
right = filled_like
def refuse(graph, inputs):
    raise RuntimeError("An answer is compiled, which takes minutes.")
def filled_like(tensor, value):
    return torch.compile(right, backend=refuse)(tensor, value)
"""


def stylish():
    """All right, in ways that are not easy to take out of a notebook; and text that no file can hold."""
    cached = RIGHT["filled_like"] + COMPILES  # the first one in its process that asks for the compiler
    module = "%%writefile my_module.py\nimport torch\n" + RIGHT["slope"]
    imported = "import threading\nlock, log = threading.Lock(), open('my_module.py')\nimport my_module\n"
    imported += "def slope(f, x):\n    with lock:\n        log.tell()\n        return my_module.slope(f, x)"
    compiled = "import torch\nprint('half a pair: \\ud800')\n@torch.compile(backend='eager')\n" + RIGHT["average_digit"]
    return lab(module, filled_like=cached, slope=imported, average_digit=compiled)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The folder with the grades of the class."""
    need("bubblewrap")
    root = tmp_path_factory.mktemp("grade")
    folder, out = root / "handed in", root / "grades"
    canary = root / "canary"
    canary.mkdir()
    (canary / "thesis.txt").write_text("years of work")
    listening = socket.create_server(("127.0.0.1", 0))
    ours = "OMP_NUM_THREADS OMP_WAIT_POLICY PYTHONPATH PYTHONDONTWRITEBYTECODE PYTHONNOUSERSITE MPLBACKEND"
    # The last one is set by PyTorch itself, where it compiles.
    usual = {*ours.split(), "PATH", "HOME", "USER", "LANG", "PWD", "TORCHCOURSE_DATA", "TORCHINDUCTOR_CACHE_DIR"}
    private = ("solutions", "tests", "labs", "slides", "tools", ".git", "README.md")
    own = (".ssh", ".bashrc", ".profile", ".config", ".gitconfig")
    vandal = VANDAL.format(
        paths=[*(str(course.ROOT / name) for name in private), *(str(Path.home() / name) for name in own), str(root)],
        port=listening.getsockname()[1],
        secrets=sorted(set(os.environ) - usual),
        canary=canary,
        root=course.ROOT,
    )
    class_ = {
        "ada": ada(),
        "half": half(),
        "again": lab(filled_like=RIGHT["filled_like"], slope=LOOP, average_digit=RIGHT["average_digit"]),
        "bomb": lab(BOMB, **RIGHT),
        "hog": lab(HOG, **RIGHT),
        "vandal": lab(vandal, **RIGHT),
        "cheat": cheat(),
        "liar": lab(**LIAR),
        "stylish": stylish(),
    }
    for student, book in class_.items():
        put(folder / student / "homework.ipynb", book)
    out.mkdir()
    (out / "secret.json").write_text(json.dumps({"secret": "the same inputs in each run of this test"}))
    found = survey(folder, {LAB})
    assert not found.refused and len(found.submissions) == len(class_)
    with Signals() as signals, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox.Limits, "of", lambda chapter: SMALL)
        assert command.grade(found, out, 3, None, signals) == 0  # none has to be graded by hand
    listening.setblocking(False)
    with pytest.raises(BlockingIOError):  # nobody came
        listening.accept()
    listening.close()
    assert (canary / "thesis.txt").read_text() == "years of work"
    return out


def points(graded: Path, student: str) -> float:
    return float(rows(graded)[student]["points"])


def page(graded: Path, student: str) -> str:
    return (graded / "feedback" / student / f"{LAB}.html").read_text()


def test_honest_ones_get_their_points(graded):
    """Next to all the others, and with limits on time: their results don't depend on the others."""
    expected = {"ada": 5, "stylish": 5, "half": 2}
    assert {student: points(graded, student) for student in expected} == expected
    assert {rows(graded)[student]["status"] for student in expected} == {""}
    assert {row["max"] for row in rows(graded).values()} == {"5.0"}


def test_hidden_inputs_refuse_what_was_memorized(graded):
    """Right for the inputs of one seed, as the lab may have shown them, and wrong for others."""
    space = {}
    exec(MEMORIZED, space)
    found = {evaluate("average_digit", space["average_digit"], seed).outcome for seed in range(30)}
    assert found == {"correct", "incorrect"}
    assert outcomes(graded)["half", "average_digit"]["outcome"] == "incorrect"
    assert outcomes(graded)["half", "average_digit"]["judged"] == "results"


def test_endless_loop_costs_its_exercise_and_what_follows(graded):
    assert "time limit" in rows(graded)["again"]["status"]
    assert points(graded, "again") == 1  # handed in before


def test_fork_bomb_and_memory_hog_are_ended(graded):
    assert "process limit" in rows(graded)["bomb"]["status"]
    assert "memory limit" in rows(graded)["hog"]["status"]


def test_vandal_finds_nothing_and_breaks_nothing(graded):
    """Deletes all it can reach, first of all; its own answers come later and are even right."""
    kept = nbformat.read(graded / "nbgrader" / "autograded" / "vandal" / LAB / f"{LAB}.ipynb", as_version=4)
    text = next(cell.outputs[0].text for cell in kept.cells if "found:" in str(cell.get("outputs", "")))
    assert text.startswith("found: []")
    assert len(text) < 20_000 and "more was printed" in text
    assert points(graded, "vandal") == 5
    assert "uses the network" in rows(graded)["vandal"]["review"]


def test_forged_checks_and_replaced_functions_give_nothing(graded):
    assert points(graded, "cheat") == 0
    assert "redefines check" in rows(graded)["cheat"]["review"]
    assert "imports the inside of the checks" in rows(graded)["cheat"]["review"]
    assert "check-slope was changed" in rows(graded)["cheat"]["review"]


def test_answers_that_work_on_their_judge_give_nothing(graded):
    assert points(graded, "liar") == 0
    said = outcomes(graded)
    assert "says itself what it equals" in said["liar", "filled_like"]["message"]
    assert said["liar", "slope"]["outcome"] == "incorrect"  # what it replaced was in its own process
    assert "did not end" in said["liar", "average_digit"]["message"]
    assert "imports the inside of the checks" in rows(graded)["liar"]["review"]


def test_pages_say_what_was_wrong_and_carry_no_foreign_html(graded):
    assert all(words in page(graded, "half") for words in ("2 of 5 points", "A slope by autograd", "not attempted"))
    for student in rows(graded):
        assert not re.findall(r"<(?:script|iframe|object|form|svg|link|img)", page(graded, student))
        assert {*re.findall(r"""<[^>]*\s(?:src|href|on\w+)=["']?(.)""", page(graded, student))} == {"#"}
    assert "&lt;script&gt;" in page(graded, "cheat") and "ada was here" not in page(graded, "ada")
    assert "default-src 'none'" in page(graded, "ada")


def test_grading_again_replaces_one_and_keeps_the_rest(graded):
    """A comment and a manual grade that a person gave stay, too."""
    from nbgrader.api import Gradebook

    from tools.grade.gradebook import Book, outputs_of

    book = Book(graded / "nbgrader")
    with Gradebook(book.url) as gradebook:
        gradebook.find_comment("answer-slope", LAB, LAB, "half").manual_comment = "<b>Come to see me</b>"
        gradebook.db.commit()
    restored, _, _ = restore(LAB, [])
    book.prepare(LAB)
    verdicts = {name: Result(name, "incorrect", "said") for name in NAMES}
    made = book.enter("half", LAB, restored, outputs_of(restored, {}, verdicts), "")
    assert (book.points("half", LAB), book.points("ada", LAB)) == ((0, 5), (5, 5))
    assert "&lt;b&gt;Come to see me" in made.read_text()


# ---------------------------------------------------------------------------------------------------------------------
# What the sandbox limits


def executed(*sources: str, **limits) -> sandbox.Report:
    """What these cells do in the sandbox."""
    need("bubblewrap")
    cells = [{"id": str(number), "source": source} for number, source in enumerate(sources)]
    return judge.run(cells, LAB, {}, dataclasses.replace(SMALL, **limits), None)


def test_memory_that_no_limit_counts_is_forbidden(monkeypatch):
    """Where the system grants no group that counts it."""
    monkeypatch.setattr(sandbox.MemoryGroup, "make", classmethod(lambda cls, limit: None))
    report = executed("import os\nos.memfd_create('x')", "import mmap\nmmap.mmap(-1, 2**20)", "print('next')")
    assert report.cells["2"]["text"] == "next\n"
    assert "PermissionError" in report.cells["0"]["error"] and "OSError" in report.cells["1"]["error"]


def test_memory_of_a_group_is_counted():
    """More than the limit of all processes together, in memory that belongs to none of them."""
    with sandbox.MemoryGroup.make(2**30) or contextlib.nullcontext() as group:
        pass
    if not group:
        pytest.skip("this system grants no memory group; then such memory is forbidden, which another test shows")
    report = executed("import os\nwhile True: os.write(os.memfd_create('x'), bytes(2**25))")
    assert "memory limit" in report.ended and "0" not in report.cells


def test_a_notebook_that_stands_still_meets_its_limit():
    report = executed("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", seconds=1)
    assert "time limit" in report.ended


HELD = """
held = []
while True:
    try:
        held.append("x" * 10**6)
    except MemoryError:
        pass
"""


def test_a_cell_without_an_end_is_interrupted():
    """The next one runs. Neither what a cell prints nor what it holds keeps the clock from interrupting it.

    What counts is processor time, so a busy machine costs no one a cell; a sleep ends, too.
    """
    endless = ("while True: pass", "import time\ntime.sleep(1e6)", "while True: print('x' * 10**6)", HELD)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as for a grader that a shell has started with `&`
    try:
        report = executed(*endless, "held = None; print('next')", cell_seconds=0.5)
    finally:
        signal.signal(signal.SIGINT, before)
    assert report.ended == "whole" and report.cells["4"]["text"] == "next\n"
    assert all(report.cells[str(number)]["late"] for number in range(4))
    assert report.cells["1"]["late"] == "clock" and report.disturbed


def test_lines_that_work_in_a_kernel_work_here():
    """No kernel is in the sandbox."""
    lines = [f"%matplotlib {gui}\nplt.plot([1])" for gui in ("inline", "", "widget", "qt")]
    lines += ["%pylab inline\nplot([1])", "%gui qt", "%autosave 60", "%clear", "%config Completer.use_jedi = False"]
    lines += ["import sys, subprocess\nsubprocess.run('ls', stdout=sys.stdout)"]
    report = executed("import matplotlib.pyplot as plt", *lines)
    assert report.ended == "whole"
    failed = {id: each for id, each in report.cells.items() if each["error"] or "UsageError" in each["text"]}
    assert not failed


def test_an_answer_that_sleeps_costs_its_exercise(monkeypatch):
    """It waits without using a processor. What comes after it is still judged."""
    need("bubblewrap")
    short = dataclasses.replace(exercise.EXERCISES["filled_like"], seconds=1.0)
    monkeypatch.setitem(exercise.EXERCISES, "filled_like", short)
    sleeps = "import time\ndef filled_like(tensor, value):\n    time.sleep(1000)"
    cells = [
        {"id": "first", "source": sleeps},
        {"id": "check-filled_like", "name": "filled_like", "asks": "filled_like"},
        {"id": "second", "source": "import torch\n" + RIGHT["slope"]},
        {"id": "check-slope", "name": "slope", "asks": "slope"},
    ]
    report = judge.run(cells, LAB, {"filled_like": [1, 2], "slope": [3]}, SMALL, None)
    assert report.ended == "whole"
    assert "still running" in report.verdicts["filled_like"]["message"]
    assert report.verdicts["slope"]["outcome"] == "correct"


def test_the_sandbox_knows_no_variable_and_no_file_of_the_grader(monkeypatch):
    """Neither in the program nor in bubblewrap itself, which is the first process inside and can be looked at there."""
    need("bubblewrap")
    monkeypatch.setenv("TOKEN_OF_THE_INSTRUCTOR", "secret")
    with sandbox.started({"cells": [], "served": {}}, [], SMALL, None) as box:
        wire.receive(box.channel, 60)
        started = [psutil.Process(box.process.pid), *psutil.Process(box.process.pid).children(recursive=True)]
        bubblewrap = [process for process in started if process.name() == "bwrap"]
        assert bubblewrap
        for process in bubblewrap:
            with contextlib.suppress(psutil.NoSuchProcess):
                assert "TOKEN_OF_THE_INSTRUCTOR" not in process.environ()
                for number in os.listdir(f"/proc/{process.pid}/fd"):
                    target = os.readlink(f"/proc/{process.pid}/fd/{number}")
                    assert target.startswith(("/dev/null", "socket:", "pipe:", "anon_inode:")), target


def test_no_exercise_is_in_the_sandbox_of_a_notebook():
    """Of the three packages, one holds reference solutions: none of its files can be seen, wherever it is installed."""
    files = [*(course.ROOT / "src" / LABS).glob("*/[a-z]*.py")]
    names, chapters = {path.name for path in files}, {path.parent.name for path in files}
    look = f"import os\nfrom labcheck import exercise\nnames, chapters = {names}, {chapters}\n"
    look += "seen = [at for at, _, files in os.walk('/') if names & {*files} and os.path.basename(at) in chapters]\n"
    look += "print(exercise.load_chapters(), seen)"
    assert "slope.py" in names and "getting_started" in chapters
    assert executed(look).cells["0"]["text"] == "{} []\n"


def test_nothing_is_graded_where_the_solution_gets_no_points(tmp_path, monkeypatch):
    """Too little memory for every submission: it is noticed before it costs a class its points."""
    need("bubblewrap")
    monkeypatch.setattr(sandbox.Limits, "of", lambda chapter: dataclasses.replace(SMALL, mib=100))
    put(tmp_path / "in" / "ada" / "lab.ipynb", lab(**RIGHT))
    with pytest.raises(SystemExit, match=r"Nothing is graded: .* own solution of 00_getting_started"):
        command.main([str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--synthetic"])
    assert rows(tmp_path / "out") == {}


# ---------------------------------------------------------------------------------------------------------------------
# The command


def test_without_bubblewrap_or_a_folder_it_refuses_and_says_why(monkeypatch, tmp_path):
    for folder in ("nowhere", ""):
        with pytest.raises(SystemExit, match="There is no folder"):
            command.main([folder])
    (tmp_path / "in").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="apt install bubblewrap"):
        command.main([str(tmp_path / "in"), "--out", str(tmp_path / "out")])


def test_secret_is_drawn_once(tmp_path):
    first = command.secret_of(tmp_path)
    assert command.secret_of(tmp_path) == first and len(first) >= 32
    assert command.seeds(first, "slope") == command.seeds(first, "slope") != command.seeds(first, "filled_like")
    mine, changed = ([Cell("answer-slope", source, True)] for source in ("a = 1", "a = 2"))
    assert command.seeds(first, "slope", mine) == command.seeds(first, "slope", mine)
    assert not set(command.seeds(first, "slope", mine)) & set(command.seeds(first, "slope", changed))
    (tmp_path / "secret.json").unlink()
    assert command.secret_of(tmp_path) != first
