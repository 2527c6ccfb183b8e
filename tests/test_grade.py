"""Grading a class: honest ones, and those who loop, fork, fill, delete, forge. Each of them costs only itself.

The class is graded once, by the fixture `graded`, with the first lab; the tests look at what came out.
"""

import contextlib
import csv
import dataclasses
import html.parser
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from conftest import copy_of_course, need

from labcheck import evaluate, exercise
from labcheck.show import Result
from tools import course
from tools.grade import __main__ as command
from tools.grade import judge, sandbox
from tools.grade.collect import survey
from tools.grade.inside import wire
from tools.grade.restore import Cell, restore
from torchcourse.place import LABS

pytestmark = pytest.mark.filterwarnings("ignore:Object of type")  # nbgrader's own use of its database

LAB = "00_getting_started"
NAMES = ("filled_like", "slope", "average_digit")
# The clock may run far ahead of the processor time: other tests take the processor, too.
SMALL = {"seconds": 60, "cell_seconds": 10, "mib": 1600, "processes": 96, "disk_mib": 64, "clock": 10}


def notebook(kind: str = "labs", name: str = LAB):
    return nbformat.read(course.ROOT / kind / f"{name}.ipynb", as_version=4)


RIGHT = {cell.id.removeprefix("answer-"): cell.source for cell in notebook("solutions").cells if "answer-" in cell.id}


def lab(before: str = "", after: str = "", **answers: str):
    """A lab with these answers, a cell before the first exercise and one after the last."""
    blank = notebook()
    for cell in blank.cells:
        cell.source = answers.get(cell.id.removeprefix("answer-"), cell.source)
    for place, source in ((2, before), (len(blank.cells), after)):
        if source:
            blank.cells.insert(place, nbformat.v4.new_code_cell(source))
    return blank


# ---------------------------------------------------------------------------------------------------------------------
# The class


def ada():
    """All right; with a helper, an import and text of her own, and a deleted set-up cell."""
    helper = "from statistics import fmean\ndef number(x):\n    return fmean([float(x)])"
    slope = RIGHT["slope"].replace("float(x)", "number(x)")
    book = lab(helper, **RIGHT | {"slope": slope})
    book.cells = [cell for cell in book.cells if cell.id != "setup"]
    book.cells.append(nbformat.v4.new_markdown_cell("<script>document.title = 'ada was here'</script>"))
    return book


def ordinary():
    """All right, as people hand it in: no ids, no metadata, magics, cells below checks, code as text."""
    book = lab(**RIGHT)
    for cell in book.cells:
        if "from torchcourse" in cell.source and "PACKAGE" not in cell.source:
            cell.source = (
                f"%matplotlib inline\n%autosave 60\n{cell.source}\nimport matplotlib.pyplot as plt\nplt.plot([1])"
            )
    for name, source in (("filled_like", "# notes"), ("slope", 'check("slope", slope)'), ("slope", "print(slope)")):
        place = [cell.id for cell in book.cells].index(f"check-{name}")
        book.cells.insert(place + 1, nbformat.v4.new_code_cell(source))
    book = json.loads(nbformat.writes(book))
    for cell in book["cells"]:
        if "def average_digit" in "".join(cell["source"]):
            cell["cell_type"] = "raw"
        cell["metadata"] = {}
        del cell["id"]
    return book


def typo():
    return lab(**RIGHT | {"slope": RIGHT["slope"].replace("return", "retrun")})


SWITCHES = """
import warnings
import torch
torch.set_grad_enabled(False)
torch.autocast("cpu", torch.bfloat16).__enter__()
warnings.simplefilter("error")
"""


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
    for number in range(100):
        with open(f"/dev/shm/{{number}}", "wb") as file:
            file.write(bytes(10_000_000))
    found.append("a disk without end")
except OSError:
    for number in range(100):
        if os.path.exists(f"/dev/shm/{{number}}"):
            os.unlink(f"/dev/shm/{{number}}")
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
import functools
right = filled_like
def refuse(graph, inputs):
    raise RuntimeError("An answer is compiled, which takes minutes.")
@functools.lru_cache(maxsize=None)
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


def write(path: Path, book) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(book))
    return path


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
    ours = "PYTHONPATH PYTHONDONTWRITEBYTECODE PYTHONNOUSERSITE TORCHCOURSE_DATA OMP_NUM_THREADS MPLBACKEND"
    # The last one is set by PyTorch itself, wherever it compiles something.
    usual = {*ours.split(), "PATH", "HOME", "USER", "LANG", "PWD", "TORCHINDUCTOR_CACHE_DIR"}
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
        "switches": lab(SWITCHES, **RIGHT),
        "again": lab(filled_like=RIGHT["filled_like"], slope=LOOP, average_digit=RIGHT["average_digit"]),
        "bomb": lab(BOMB, **RIGHT),
        "hog": lab(HOG, **RIGHT),
        "vandal": lab(vandal, **RIGHT),
        "cheat": cheat(),
        "liar": lab(**LIAR),
        "stylish": stylish(),
        "typo": typo(),
    }
    for student, book in class_.items():
        write(folder / student / "homework.ipynb", book)
    write(folder / f"ordinary_{LAB}.ipynb", ordinary())
    out.mkdir()
    (out / "secret.json").write_text(json.dumps({"secret": "the same inputs in each run of this test"}))
    found = survey(folder, {LAB}, {})
    assert not found.refused and len(found.submissions) == len(class_) + 1
    assert command.grade(found.submissions, out, 3, SMALL) == 0  # none has to be graded by hand
    listening.setblocking(False)
    with pytest.raises(BlockingIOError):
        listening.accept()  # nobody came
    listening.close()
    assert (canary / "thesis.txt").read_text() == "years of work"
    return out


def rows(graded: Path, name: str = "grades") -> dict[str, dict]:
    with open(graded / f"{name}.csv", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    if name == "grades":
        return {row["student"]: row for row in read}
    return {(row["student"], row["exercise"]): row for row in read}


def points(graded: Path, student: str) -> float:
    return float(rows(graded)[student]["points"])


def page(graded: Path, student: str) -> str:
    return (graded / "feedback" / student / f"{LAB}.html").read_text()


def test_honest_ones_get_their_points(graded):
    """Next to all the others, and with limits on time: their results don't depend on the others."""
    assert points(graded, "ada") == points(graded, "ordinary") == points(graded, "switches") == 5
    assert points(graded, "half") == 2
    assert points(graded, "stylish") == 5
    for student in ("ada", "ordinary", "half", "stylish"):
        assert rows(graded)[student]["status"] == ""
    assert rows(graded)["ordinary"]["review"] == "" and "data:image/png" in page(graded, "ordinary")
    assert {rows(graded)[student]["max"] for student in rows(graded)} == {"5.0"}


def test_what_is_ours_comes_back_and_is_noted(graded):
    assert "setup was deleted" in rows(graded)["ada"]["review"]
    assert "check-slope was deleted" in rows(graded)["half"]["review"]
    assert "check-slope was changed" in rows(graded)["cheat"]["review"]


def test_hidden_inputs_refuse_what_was_memorized(graded):
    """Right for the inputs of one seed, as the lab may have shown them, and wrong for others."""
    space = {}
    exec(MEMORIZED, space)
    outcomes = {evaluate("average_digit", space["average_digit"], seed).outcome for seed in range(30)}
    assert outcomes == {"correct", "incorrect"}
    assert rows(graded, "exercises")["half", "average_digit"]["outcome"] == "incorrect"
    assert rows(graded, "exercises")["half", "average_digit"]["judged"] == "results"


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


def test_answers_that_work_on_their_judge_give_nothing(graded):
    assert points(graded, "liar") == 0
    said = rows(graded, "exercises")
    assert "says itself what it equals" in said["liar", "filled_like"]["message"]
    assert said["liar", "slope"]["outcome"] == "incorrect"  # what it replaced was in its own process
    assert "did not end" in said["liar", "average_digit"]["message"]
    assert "imports the inside of the checks" in rows(graded)["liar"]["review"]


class Tags(html.parser.HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {(name, value) for name, value in attrs if name in ("src", "href") or name[:2] == "on"}


def test_pages_carry_no_foreign_html(graded):
    for student in rows(graded):
        seen = Tags(page(graded, student))
        assert not seen.tags & {"script", "iframe", "object", "form", "svg", "link"}
        assert all(value.startswith(("#", "data:image/png;base64,")) for _, value in seen.attributes), seen.attributes
    assert "&lt;script&gt;" in page(graded, "cheat") and "ada was here" not in page(graded, "ada")
    assert "default-src 'none'" in page(graded, "ada")


def test_page_says_what_was_wrong(graded):
    text = page(graded, "half")
    assert "2 of 5 points" in text and "A slope by autograd" in text and "The slope of a function" in text
    assert "not attempted" in text
    assert rows(graded, "exercises")["half", "filled_like"]["outcome"] == "not attempted"
    assert points(graded, "typo") == 3
    assert "SyntaxError" in page(graded, "typo") and "retrun" in page(graded, "typo")


def test_page_in_a_browser(graded, chromium):
    """Nothing runs, nothing is fetched; and a picture for people to look at."""
    folder = course.ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    for student in ("cheat", "half"):
        tab = chromium.new_page(viewport={"width": 1000, "height": 1400})
        asked = []
        tab.on("request", lambda request, asked=asked: asked.append(request.url))
        tab.on("dialog", lambda dialog: pytest.fail("a script ran"))
        tab.goto((graded / "feedback" / student / f"{LAB}.html").as_uri())
        tab.screenshot(path=folder / f"grade-{student}.png", full_page=True)
        assert tab.title() == f"Lab 00 · Getting started · {student}"
        assert all(url.startswith(("file:", "data:")) for url in asked), asked
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


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
    for outcome, expected in (("correct", 5), ("incorrect", 0)):
        results = {name: Result(name, outcome, "said") for name in NAMES}
        made = book.enter("half", LAB, restored, outputs_of(restored, {}, results), "")
        assert book.points("half", LAB) == (expected, 5)
    assert "&lt;b&gt;Come to see me" in made.read_text()
    assert book.points("ada", LAB) == (5, 5)


# ---------------------------------------------------------------------------------------------------------------------
# The walls


def executed(source: str, **limits) -> sandbox.Report:
    """What one cell does in the sandbox."""
    chosen = dataclasses.replace(sandbox.Limits(**SMALL), **limits)
    return judge.run([{"id": "cell", "source": source}], LAB, {}, chosen, None)


UNCOUNTED = """
import ctypes, mmap, os
libc, found = ctypes.CDLL(None, use_errno=True), []
try:
    os.memfd_create("hidden")
    found.append("memfd")
except OSError:
    pass
try:
    mmap.mmap(-1, 2**20)
    found.append("shared memory without a file")
except OSError:
    pass
for name, failed in (("shmget", libc.shmget(0, 2**20, 0o1600)), ("user namespace", libc.unshare(0x10000000))):
    if failed != -1:
        found.append(name)
print("found:", found)
"""


def test_memory_that_no_limit_counts_is_forbidden(graded, monkeypatch):
    """Where the system grants no group that counts it."""
    monkeypatch.setattr(sandbox.MemoryGroup, "make", classmethod(lambda cls, limit: None))
    assert executed(UNCOUNTED).cells["cell"]["text"].startswith("found: []")


HIDDEN = """
import os
for _ in range(200):
    os.write(os.memfd_create("hidden"), bytes(32 * 2**20))
"""


def test_memory_of_a_group_is_counted(graded):
    """More than the limit of all processes together, in memory that belongs to none of them."""
    if not sandbox.MemoryGroup.make(2**30):
        pytest.skip("this system grants no memory group; then such memory is forbidden, which another test shows")
    report = executed(HIDDEN)
    assert "memory limit" in report.ended and "cell" not in report.cells


def test_a_notebook_that_stands_still_meets_its_limit(graded):
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


@pytest.fixture
def ctrl_c_ignored():
    """As for a grader that a shell has started with `&`."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "source, limit", [("while True: pass", "processor"), ("import time\ntime.sleep(1e6)", "clock")]
)
def test_a_cell_without_an_end_is_interrupted(graded, ctrl_c_ignored, source, limit):
    """The next one runs. What counts is processor time, so a busy machine costs no one a cell; a sleep ends, too."""
    patience = 1000 if limit == "processor" else 1  # a busy machine gives the loop its half second late
    limits = sandbox.Limits(**SMALL | {"cell_seconds": 0.5, "clock": patience})
    cells = [{"id": "endless", "source": source}, {"id": "next", "source": "print('next')"}]
    report = judge.run(cells, LAB, {}, limits, None)
    assert report.ended == "whole" and report.cells["next"]["text"] == "next\n"
    assert report.cells["endless"]["late"] == limit and report.disturbed == (limit == "clock")


def test_lines_that_work_in_a_kernel_work_here(graded):
    """No kernel is in the sandbox. Pictures appear, whichever way they are asked for."""
    lines = ["inline", "", "notebook", "widget", "ipympl", "qt", "tk"]
    lines = [f"%matplotlib {gui}\nplt.plot([1])" for gui in lines] + ["%pylab inline\nplot([1])"]
    others = [
        "%gui qt",
        "%autosave 60",
        "%clear",
        "%connect_info",
        "%less x",
        "%store x",
        "%config Completer.use_jedi = False",
    ]
    others += [
        "%config InlineBackend.figure_format = 'retina'",
        "import sys, subprocess\nsubprocess.run('ls', stdout=sys.stdout)",
    ]
    cells = ["import matplotlib.pyplot as plt", *lines, *others]
    report = judge.run(
        [{"id": str(number), "source": source} for number, source in enumerate(cells)],
        LAB,
        {},
        sandbox.Limits(**SMALL),
        None,
    )
    shown = [report.cells[str(number)] for number in range(len(cells))]
    assert report.ended == "whole"
    failed = [
        source for source, each in zip(cells, shown, strict=True) if each["error"] or "UsageError" in each["text"]
    ]
    assert not failed and all(each["pictures"] for each in shown[1 : 1 + len(lines)])


@pytest.mark.parametrize("source", ["while True: print('x' * 10**6)", HELD])
def test_an_endless_cell_costs_only_itself(graded, source):
    """Neither what it prints nor what it holds keeps the clock from interrupting it."""
    limits = sandbox.Limits(**SMALL | {"cell_seconds": 3, "clock": 3})
    cells = [{"id": "endless", "source": source}, {"id": "next", "source": "held = None; print('next')"}]
    report = judge.run(cells, LAB, {}, limits, None)
    assert report.ended == "whole" and report.cells["next"]["text"] == "next\n"
    assert report.cells["endless"]["late"]


def test_an_answer_that_sleeps_costs_its_exercise(graded, monkeypatch):
    """It waits without using a processor. What comes after it is still judged."""
    short = dataclasses.replace(exercise.EXERCISES["filled_like"], seconds=1.0)
    monkeypatch.setitem(exercise.EXERCISES, "filled_like", short)
    sleeps = "import time\ndef filled_like(tensor, value):\n    time.sleep(1000)"
    cells = [
        {"id": "first", "source": sleeps},
        {"id": "check-filled_like", "name": "filled_like", "asks": "filled_like"},
        {"id": "second", "source": "import torch\n" + RIGHT["slope"]},
        {"id": "check-slope", "name": "slope", "asks": "slope"},
    ]
    report = judge.run(cells, LAB, {"filled_like": [1, 2], "slope": [3]}, sandbox.Limits(**SMALL), None)
    assert report.ended == "whole"
    assert "still running" in report.verdicts["filled_like"]["message"]
    assert report.verdicts["slope"]["outcome"] == "correct"


def test_the_sandbox_knows_no_variable_and_no_file_of_the_grader(graded, monkeypatch):
    """Neither in the program nor in bubblewrap itself, which is the first process inside and can be looked at there."""
    monkeypatch.setenv("TOKEN_OF_THE_INSTRUCTOR", "secret")
    with sandbox.started({"cells": [], "served": {}}, [], sandbox.Limits(**SMALL), None) as box:
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


def test_no_exercise_is_in_the_sandbox_of_a_notebook(graded):
    """Of the three packages, one holds reference solutions: none of its files can be seen, wherever it is installed."""
    files = [*(course.ROOT / "src" / LABS).glob("*/[a-z]*.py")]
    names, chapters = {path.name for path in files}, {path.parent.name for path in files}
    look = f"import os\nfrom labcheck import exercise\nnames, chapters = {names}, {chapters}\n"
    look += "seen = [at for at, _, files in os.walk('/') if names & {*files} and os.path.basename(at) in chapters]\n"
    look += "print(exercise.load_chapters(), seen)"
    assert "slope.py" in names and "getting_started" in chapters
    assert executed(look).cells["cell"]["text"] == "{} []\n"


def test_nothing_is_graded_where_the_solution_gets_no_points(graded, tmp_path):
    """Too little memory for every submission: it is noticed before it costs a class its points."""
    write(tmp_path / "in" / "ada" / "lab.ipynb", lab(**RIGHT))
    asked = [str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--synthetic", "--memory", "100"]
    with pytest.raises(SystemExit, match=r"Nothing is graded: .* own solution of 00_getting_started"):
        command.main(asked)
    assert rows(tmp_path / "out") == {}


def test_a_course_below_the_temporary_folder(graded, tmp_path):
    """Its package and its data lie where the sandbox has a folder of its own; blanks and umlauts are in the path."""
    place = copy_of_course(tmp_path / "Übung 1" / "kurs kopie")
    write(tmp_path / "in" / "ada" / "lab.ipynb", lab(**RIGHT))
    data = place / ".data"
    data.mkdir()
    environment = os.environ | {"PYTHONPATH": f"{place / 'src'}{os.pathsep}{place}", "TORCHCOURSE_DATA": str(data)}
    words = [sys.executable, "-m", "tools.grade", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--synthetic"]
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert points(tmp_path / "out", "ada") == 5, done.stdout


LOOK = """
import sys
sys.base_prefix = "/usr/src/env"
from tools.grade import judge, sandbox
look = '''
from pathlib import Path
import torchcourse
files = [path for path in Path("/usr/src").rglob("*") if path.is_file()]
packages = {path.parent for path in files if path.match("torchcourse/training.py") or path.match("labcheck/lab.py")}
print(sorted(map(str, packages)))
print([str(path) for path in files if not any(path.is_relative_to(each) for each in packages)])
print([str(path) for path in files if path.name in ("slope.py", "shard_indices.py")])
print(torchcourse.__file__)
'''
report = judge.run([{"id": "cell", "source": look}], "00_getting_started", {}, sandbox.Limits(60, 60, 1600), None)
print(report.cells["cell"]["text"] if report.cells else report.ended)
"""


@pytest.mark.parametrize("place", ["app", "env/src/course", "env/lib/course"])
def test_a_course_among_programs_is_hidden(graded, tmp_path, place):
    """Wherever it lies, below /usr or in the environment: there is the package, and no copy of it with solutions."""
    copy_of_course(tmp_path / place)
    write(tmp_path / place / "build" / "grades" / "results" / "ada.json", {})
    installed = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    shutil.copytree(tmp_path / place / "src", installed, dirs_exist_ok=True)
    # On the machine itself nothing is changed: only what this test starts sees the folder in /usr/src.
    words = ["bwrap", "--dev-bind", "/", "/", "--bind", str(tmp_path), "/usr/src", "--chdir", f"/usr/src/{place}"]
    words += ["--cap-add", "ALL"] if os.getuid() == 0 else []
    paths = {"PYTHONPATH": f"/usr/src/{place}/src{os.pathsep}/usr/src/{place}"}
    done = subprocess.run([*words, sys.executable, "-c", LOOK], env=os.environ | paths, capture_output=True, text=True)
    packages, others, secrets, imported = done.stdout.strip().splitlines() or [done.stderr] * 4
    assert f"/usr/src/{place}/src/torchcourse" in packages and others == secrets == "[]", done.stdout
    assert imported == f"/usr/src/{place}/src/torchcourse/__init__.py"


# ---------------------------------------------------------------------------------------------------------------------
# The parts


def test_without_bubblewrap_it_refuses_and_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        command.main([str(tmp_path)])
    assert stop.value.code == 2 and "apt install bubblewrap" in capsys.readouterr().err


def test_folder_that_is_not_there(tmp_path):
    with pytest.raises(SystemExit, match="There is no folder"):
        command.main([str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match="Say where"):
        command.main([""])


def test_secret_is_drawn_once(tmp_path):
    first = command.secret_of(tmp_path)
    assert command.secret_of(tmp_path) == first and len(first) >= 32
    assert command.seeds(first, "slope") == command.seeds(first, "slope") != command.seeds(first, "filled_like")
    mine, changed = ([Cell("answer-slope", source, True)] for source in ("a = 1", "a = 2"))
    assert command.seeds(first, "slope", mine) == command.seeds(first, "slope", mine)
    assert not set(command.seeds(first, "slope", mine)) & set(command.seeds(first, "slope", changed))
    (tmp_path / "secret.json").unlink()
    assert command.secret_of(tmp_path) != first
