"""The runner behind `make run`, on small notebooks made here. Each one goes wrong in its own way."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import nbformat
import psutil
import pytest
from conftest import is_alive, wait_until
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import compare_outputs, course, report, run
from tools import execute as execution
from tools.course import ROOT
from torchcourse.record import MIME

ROOMY = {"cpu.real": {"seconds": 120, "mib": 4000}}
MEASURES = "from time import perf_counter"  # a lecture with it has the processor to itself


def told(what: str, **values: object) -> str:
    """Code that tells the runner numbers or outcomes as the package does, without the import of torch."""
    return f"display({{'{MIME}': {{'{what}': {values}}}, 'text/plain': 'told'}}, raw=True)"


def notebook(path: Path, *sources: str, **metadata: object) -> Path:
    """Write a notebook with a heading and these code cells, whose ids are cell-1, cell-2, ..."""
    cells = [new_markdown_cell("# A heading", id="heading")]
    cells += [new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(sources, start=1)]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata=metadata), path)
    return path


def execute(tmp_path: Path, *sources: str, kind="lecture", metadata=None, **options) -> run.Result:
    """Run a notebook with these code cells. Nothing that it starts is left."""
    before = psutil.Process().children(recursive=True)
    source = notebook(tmp_path / "notebooks" / "05_small.ipynb", *sources, **metadata or {})
    options = {"budget": ROOMY} | options
    result = run.run_notebook(source, tmp_path / "out" / "05_small.ipynb", "05_small", kind, "cpu", **options)
    assert psutil.Process().children(recursive=True) == before
    return result


FORKS = """
block = bytearray(b"x") * (200 * 2**20)
warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside the kernel's threads
for _ in range(3):
    if os.fork() == 0:
        time.sleep(3)
        os._exit(0)
for _ in range(3):
    os.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other priorities, and count shared pages twice")
def test_a_notebook_passes(tmp_path, monkeypatch):
    """In its own folder, by this Python whatever kernel it names, with a low priority where it has to yield. The memory
    of its processes counts, shared pages once."""
    monkeypatch.setattr(execution, "LOWEST", 1)  # with the real one, it would wait for the tests beside it
    result = execute(
        tmp_path,
        "import os, subprocess, sys, time, warnings\nassert os.path.basename(os.getcwd()) == 'notebooks'",
        f"assert sys.executable == {sys.executable!r}",
        "assert os.nice(0) == 1 and subprocess.check_output(['nice'], text=True) == '1\\n'",
        FORKS,
        told("numbers", test_accuracy=0.97),
        ranges={"test_accuracy": {"cpu.real": [0.95, 0.99]}},
        metadata={"kernelspec": {"name": "alices_env", "display_name": "Alice", "language": "python"}},
        gently=True,
    )
    assert (result.failures, result.notes, result.error) == ([], [], None)
    assert [(n.name, n.value, n.verdict) for n in result.numbers] == [("test_accuracy", 0.97, "in range")]
    assert 200 < result.mib < 600 and 0 < result.seconds < 120 and result.cpu_seconds > 0


def test_all_that_goes_wrong_is_told_with_its_cell(tmp_path, capfd):
    result = execute(
        tmp_path,
        "import sys, warnings\nwarnings.warn('old habit', stacklevel=1)",
        "print('by hand', file=sys.stderr)",
        "print('x' * 600_000)",
        told("numbers", test_accuracy=0.97),
        "sys.no_such_thing",
        "print('not reached')",
        ranges={"test_accuracy": {"cpu.real": [0.98, 0.99]}},
    )
    stopped, warning, by_hand, large, number = result.failures
    assert stopped.startswith("stopped at code cell 5: AttributeError: ") and "no_such_thing" in stopped
    assert "code cell 1 wrote to stderr" in warning and "old habit" in warning
    assert "code cell 2 wrote to stderr: by hand" in by_hand
    assert "more than 500 KB" in large
    assert number == "test_accuracy is 0.97, outside its range of 0.98 to 0.99"
    assert result.status == "failed" and (result.error.number, result.error.id) == (5, "cell-5")
    assert "\x1b" not in "".join(result.error.traceback)
    assert "sys.no_such_thing" in report.table([result]) and "code cell 5" in report.table([result])
    assert capfd.readouterr() == ("", ""), "quiet, the report says it"


def test_a_notebook_that_hangs_is_killed_with_its_children(tmp_path):
    source = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    failure, *_ = execute(tmp_path, "a = 1", source, timeout=6).failures
    assert failure.startswith("killed after") and "it waits for something that never comes" in failure


@pytest.mark.parametrize(("worked", "killed"), [(0.2, False), (99, True)])
def test_a_notebook_is_killed_for_its_own_work_alone(tmp_path, monkeypatch, worked, killed):
    """Not for what the clock says: other programs may keep the machine busy."""
    monkeypatch.setattr(execution._Kernel, "sample", lambda kernel: (worked, 100.0))
    monkeypatch.setattr(run, "time_limit", lambda *_: 1)
    result = execute(tmp_path, f"import time\ntime.sleep({600 if killed else 2})")
    words = "in which it got 99 s of processor time: a notebook with this budget may take 1 s"
    assert result.failures == [] if not killed else words in result.failures[0]


def test_a_kernel_that_crashes_is_told_with_its_cell(tmp_path):
    result = execute(tmp_path, "import os", "os.abort()")
    assert (result.status, result.error.number, result.error.name) == ("failed", 2, "DeadKernelError")


def test_synthetic_data_are_told_by_the_notebook(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    monkeypatch.setenv("TORCHCOURSE_TOLD", "mnist")  # as if the process that started this one had told it
    load = "from torchcourse import data, record\ndata.load('mnist', 'test')\nrecord(test_accuracy=0.97)"
    result = execute(tmp_path, load, ranges={"test_accuracy": {"cpu.real": [0.98, 0.99]}})
    assert (result.key, result.status) == ("cpu.synthetic", "passed")
    assert result.notes == [
        "time and memory not measured on cpu.synthetic: no budget to compare with",
        "test_accuracy not measured on cpu.synthetic: no range to compare with",
    ]


def test_a_solution_must_satisfy_its_checks(tmp_path):
    """The last word counts, and what could not be checked here is said."""
    first = told("outcomes", scale="incorrect", shift="correct", to_onnx="not checked")
    result = execute(tmp_path, first, told("outcomes", scale="correct", shift="incorrect"), kind="solution")
    assert result.failures == ["the check of shift says: incorrect"]
    assert "left out: the check of to_onnx" in report.table([result])


def test_tagged_outputs_are_what_the_notebook_shows():
    """Of tagged cells only, without pictures and what only the runner reads, streams however they are cut."""

    def outputs(*streams, picture="a picture"):
        data = {"image/png": picture, "text/plain": "<Figure>", MIME: {"numbers": {"loss": len(picture)}}}
        cut = [new_output("stream", name="stdout", text=text) for text in streams]
        return [*cut, new_output("display_data", data)]

    def cells(tagged, untagged="any"):
        tagged = new_code_cell("", outputs=tagged, metadata={"tags": [compare_outputs.TAG]})
        return new_notebook(cells=[new_code_cell("", outputs=outputs(untagged)), tagged])

    shown = cells(outputs("3\n4\n"))
    assert compare_outputs.changed_outputs(cells(outputs("3\n", "4\n", picture="another"), "other"), shown) == []
    (said,) = compare_outputs.changed_outputs(cells(outputs("3\n5\n")), shown)
    assert said.startswith("code cell 2 shows another output than the notebook:") and "-4\n+5" in said
    (said,) = compare_outputs.changed_outputs(cells([]), shown)
    assert "-stdout: 3" in said


WHOLE = json.dumps(new_notebook(cells=[new_code_cell("1 + 1", id="a")])).encode()


def test_a_file_that_is_no_notebook_fails_with_one_sentence(tmp_path):
    path = tmp_path / "notebooks" / "07_later.ipynb"
    path.parent.mkdir()
    not_utf8, other_keys = WHOLE.replace(b"1 + 1", b"'\xe4'"), WHOLE.replace(b'"source"', b'"sauce"')
    for content in (WHOLE[:-9], b"", b"[]", not_utf8, other_keys, None):
        path.write_bytes(content) if content is not None else path.unlink()
        result = run.run_notebook(path, tmp_path / "out.ipynb", "07_later", "lecture", "cpu")
        (sentence,) = result.failures
        assert re.fullmatch(r"notebooks/07_later.ipynb (is not a|cannot be).*\. Run `make build`\.", sentence)
        assert len(sentence) < 300 and sentence in report.table([result])


# ---------------------------------------------------------------------------------------------------------------------
# Judging, without executing


def judged(values=None, ranges=None, **measured) -> run.Result:
    result = run.Result("05_small", "lecture", "cpu", **measured)
    run.check_ranges(result, {"cpu.real": {"seconds": 10, "mib": 1000}}, ranges or {}, values or {})
    return result


@pytest.mark.parametrize(
    ("seconds", "cpu_seconds", "mib", "status", "words"),
    [
        (9, 18, 900, "passed", "9.0 of 10"),
        (11, 15, 900, "over budget", "11 s of 10 s"),
        (9, 9, 3100, "failed", "3100 MiB, more than 3 times its budget of 1000 MiB"),
        (900, 9, 900, "passed", "9.0 of 10"),  # other programs take most of the processor: no fault of the notebook
        (900, 31, 900, "failed", "31 s, more than 3 times"),
    ],
)
def test_budgets(seconds, cpu_seconds, mib, status, words):
    result = judged(seconds=seconds, cpu_seconds=cpu_seconds, mib=mib)
    assert result.status == status and words in report.table([result])
    assert (report.BUDGET in report.table([result])) == (status == "over budget")


def test_numbers_and_ranges_that_do_not_meet():
    ranges = {"test_accuracy": {"cpu.real": [0.9, 1]}, "images_per_second": {"cuda.real": [1e4, 1e6]}}
    result = judged(values={"loss": 0.5}, ranges=ranges)
    assert {(n.name, n.verdict) for n in result.numbers} == {("loss", "no range"), ("test_accuracy", "missing")}
    assert result.failures == ["test_accuracy has a range in course.toml but was not recorded"]
    assert judged(values={"loss": float("nan")}, ranges={"loss": {"cpu.real": [0, 1]}}).status == "failed"


def test_the_time_limit_follows_the_budget():
    budget = {"cpu.real": {"seconds": 60, "mib": 1}, "cpu.synthetic": {"seconds": 30, "mib": 1}}
    assert run.time_limit(budget, "cpu") == 300
    assert run.time_limit(budget, "cuda") == 600
    assert run.time_limit({"cpu.real": {"seconds": 1, "mib": 1}}, "cpu") == 60


# ---------------------------------------------------------------------------------------------------------------------
# The whole command, on a course of two small chapters

MANIFEST = """
title = "A small course"
[repository]
address = "https://example.org/course"
"""
CHAPTER = """
[[chapter]]
number = "{number}"
slug = "{slug}"
title = "A title"
promise = "One sentence."
lecture_minutes = 1
lab_minutes = 1
needs = "Nothing."
goals = ["nothing"]
budget.lecture = {{ "cpu.real" = {{ seconds = 120, mib = 4000 }} }}
ranges.lecture = {{ test_accuracy = {{ "cpu.real" = [0.9, 1.0] }} }}
"""


@pytest.fixture
def small_course(tmp_path, monkeypatch):
    """Chapter 01 works, the lecture of 02 has an error and markup in its message. Both lectures measure time."""
    chapters = [CHAPTER.format(number=number, slug=slug) for number, slug in (("01", "works"), ("02", "breaks"))]
    (tmp_path / "course.toml").write_text(MANIFEST + "".join(chapters))
    notebook(tmp_path / "notebooks" / "01_works.ipynb", told("numbers", test_accuracy=0.97), MEASURES)
    notebook(tmp_path / "notebooks" / "02_breaks.ipynb", MEASURES, "raise ValueError('<script>nothing</script> fits')")
    for name in ("01_works", "02_breaks"):
        notebook(tmp_path / "solutions" / f"{name}.ipynb", "1 + 1")
    monkeypatch.setattr(run, "best_device", lambda: ("cpu", "cpu (2 threads)"))
    return tmp_path


def test_the_command_goes_on_after_a_failure_and_reports_it(small_course, monkeypatch):
    """A log can be read while it grows: the next notebook may take minutes."""
    (small_course / "solutions" / "02_breaks.ipynb").write_bytes(WHOLE[:-9])
    log, perform = small_course / "log", run.perform

    def looked_at(chapter, kind, *args, **options):
        assert f"{chapter.name} {kind} ...\n" in log.read_text()
        return perform(chapter, kind, *args, **options)

    monkeypatch.setattr(run, "perform", looked_at)
    out = small_course / "here"
    with open(log, "w") as file, redirect_stdout(file):
        assert run.main(["--out", str(out)], small_course) == 1
    printed = log.read_text()
    assert re.search(r"^\[\d/4\] 01_works lecture: passed, \d+ s$", printed, re.MULTILINE)
    assert re.search(r"^\[\d/4\] 02_breaks lecture: failed, \d+ s: stopped at code cell 2: ValueError: ", printed, re.M)
    assert "solutions/02_breaks.ipynb is not a notebook" in printed and "2 passed, 2 failed" in printed

    data = json.loads((out / "report.json").read_text())
    assert data["device"] == "cpu (2 threads)" and not data["interrupted"]
    assert [(r["chapter"], r["kind"], r["status"]) for r in data["results"]] == [
        ("01_works", "lecture", "passed"),
        ("01_works", "solution", "passed"),
        ("02_breaks", "lecture", "failed"),
        ("02_breaks", "solution", "failed"),
    ]
    page = (out / "report.html").read_text()
    assert "raise ValueError" in page and "code cell 2" in page and "test_accuracy 0.97" in page
    assert "<script" not in page, "messages are shown, not executed"
    links = re.findall(r'href="([^"]+)"', page)
    assert len(links) == 3 and all((out / link).exists() for link in links)


@pytest.mark.parametrize(("device", "crowded"), [("cpu", False), ("cpu", True), ("cuda", False)])
def test_lectures_that_measure_leave_the_rest_of_a_processor_to_others(small_course, monkeypatch, device, crowded):
    """They come one after the other, and wait for nobody. On a GPU, the others wait for them. On a machine that other
    programs keep busy, nothing yields: it would starve, and nothing can be measured there."""
    monkeypatch.setattr(run, "crowded", lambda: crowded)
    with (small_course / "course.toml").open("a") as manifest:
        manifest.write(CHAPTER.format(number="03", slug="counts"))
    notebook(small_course / "notebooks" / "03_counts.ipynb", "1 + 1")
    notebook(small_course / "solutions" / "03_counts.ipynb", MEASURES)  # seconds of a solution mean nothing
    running, together, gentle = set(), set(), {}

    def perform(chapter, kind, *_, gently, **__):
        name = f"{chapter.number} {kind}"
        running.add(name)
        gentle[name] = gently
        alone = name in ("01 lecture", "02 lecture")
        for _ in range(50 if alone and device == "cpu" else 1):  # until the others have begun, too
            together.update(frozenset({name, other}) for other in running - {name})
            time.sleep(0.02)
        running.remove(name)
        return run.Result(chapter.name, kind, device)

    monkeypatch.setattr(run, "perform", perform)
    monkeypatch.setattr(run, "best_device", lambda: (device, "a device"))
    run.run_course(course.chapters(small_course), ["lecture", "solution"], small_course / "build", small_course)
    measuring = {"01 lecture", "02 lecture"} | ({"03 lecture"} if device == "cuda" else set())
    assert any(pair & measuring for pair in together) == (device == "cpu")
    assert not any(pair <= measuring for pair in together)
    assert len(gentle) == 6 and not any(gentle[name] for name in measuring)
    others = set(gentle) - measuring
    assert {name for name in others if gentle[name]} == (others if (device, crowded) == ("cpu", False) else set())


def test_the_report_says_what_its_numbers_mean_and_how_slow_the_machine_is(small_course, monkeypatch):
    monkeypatch.setattr(run, "slower", lambda: 2.5)
    monkeypatch.setattr(run, "run_notebook", lambda *words: judged(seconds=words[5]["cpu.real"]["seconds"]))
    slow = run.perform(course.chapters(small_course)[0], "lecture", "cpu", small_course / "out", small_course)
    assert slow.seconds == 300 and "2.5 times as long" in run.about("cpu")[0] and "2.5" not in str(run.about("cuda"))
    expected = {"three_numbers": {"cpu.real": [2, 2]}}
    results = [judged({"three_numbers": number}, expected, seconds=9, cpu_seconds=9) for number in (2, 3)]
    report.write([*results, judged(seconds=11, cpu_seconds=12)], small_course, "A", "cpu", about=["It is slow."])
    text = (small_course / "report.html").read_text()
    said = ["1 passed, 1 passed over budget, 1 failed", "three_numbers: 2, as expected", "three_numbers: 3, not 2"]
    assert [words for words in (*said, "It is slow.", report.BUDGET, report.SECONDS) if words not in text] == []


# ---------------------------------------------------------------------------------------------------------------------
# A runner that is ended from outside, as a process of its own

FAMILY = """
import os, signal, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
for session in (False, True):
    if os.fork() == 0:
        os.setsid() if session else None
        if os.fork() == 0:  # its parent ends at once
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(f"stubborn-{session}", "w").write(str(os.getpid()))
            os.rename(f"stubborn-{session}", f"stubborn-{session}.pid")
            time.sleep(600)
        os._exit(0)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process whose parent has ended is out of reach")
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.weekly)])
def test_a_runner_that_is_ended_leaves_nothing(small_course, number):
    """No kernel, no child of it, not even one in a session of its own, no folder. The report has what was finished."""
    shutil.copytree(ROOT / "tools", small_course / "tools")
    (small_course / "src").symlink_to(ROOT / "src")
    (small_course / "tmp").mkdir()
    notebook(small_course / "solutions" / "01_works.ipynb", "import time", FAMILY)
    pids = [small_course / "solutions" / f"stubborn-{session}.pid" for session in (False, True)]
    runtime = small_course / "runtime"
    environment = os.environ | {"TMPDIR": str(small_course / "tmp"), "JUPYTER_RUNTIME_DIR": str(runtime)}
    environment["PYTHONPATH"] = str(ROOT / "src")
    command, pipes = [sys.executable, "-m", "tools.run", "--chapters", "01"], {"text": True}
    pipes |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=small_course, env=environment, **pipes) as runner:
        try:
            assert any("lecture: passed" in line for line in runner.stdout)  # the solution runs beside it
            wait_until(lambda: all(path.exists() for path in pids))
            family = psutil.Process(runner.pid).children(recursive=True)
            assert {int(path.read_text()) for path in pids} < {member.pid for member in family}
            runner.send_signal(number)
            _, errors = runner.communicate(timeout=60)
        finally:
            runner.kill()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not [member for member in alive if is_alive(member)]
    left = [*(small_course / "tmp").iterdir(), *runtime.glob("*")]
    assert not [path for path in left if not path.name.startswith("torchinductor")]  # the cache of PyTorch itself
    if number != signal.SIGKILL:
        assert runner.returncode == 130
        assert "Interrupted" in errors and "Traceback" not in errors
        written = json.loads((small_course / "build" / "report.json").read_text())
        assert written["interrupted"] and [row["status"] for row in written["results"]] == ["passed"]


def test_pages_open_without_network(tmp_path):
    path = notebook(tmp_path / "page.ipynb", "1 + 1")
    content = nbformat.read(path, as_version=4)
    first, second = content.cells
    first.source = "The slope $a$\n\n<details><summary>Answer</summary>\n\nBecause *views* share.\n\n</details>\n"
    picture = {"image/png": "iVBORw0KGgo="}
    second.outputs = [new_output("display_data", picture, metadata={"image/png": {"alt": 'Two "curves"'}})]
    nbformat.write(content, path)
    page = report.write_page(path, "A page").read_text()
    assert "<title>A page</title>" in page and "$a$" in page
    fetched = re.findall(r'<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)="(?!data:)[^"]*"', page)
    assert fetched == [] and "cdnjs" not in page and "@import" not in page
    assert re.search(r"<details>.*<em>views</em> share.*</details>", page, re.DOTALL), "an answer stays folded"
    assert "alt='Two \"curves\"'" in page or 'alt="Two &quot;curves&quot;"' in page
