"""The runner behind `make run`, on small notebooks made here. Each one goes wrong in its own way."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from conftest import is_alive, need, wait_until
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import compare, course, report, run, slides_browser
from tools import execute as execution
from tools.course import ROOT
from torchcourse.record import MIME

ROOMY = {"cpu.real": {"seconds": 120, "mib": 4000}}


def notebook(path: Path, *sources: str, metadata: dict | None = None) -> Path:
    """Write a notebook with a heading and these code cells, whose ids are cell-1, cell-2, ..."""
    cells = [new_markdown_cell("# A heading", id="heading")]
    cells += [new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(sources, start=1)]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata=metadata or {}), path)
    return path


def execute(tmp_path: Path, *sources: str, **options) -> run.Result:
    """Run a notebook with these code cells."""
    metadata = options.pop("metadata", None)
    options = {"budget": ROOMY, "kind": "lecture"} | options
    source = notebook(tmp_path / "notebooks" / "05_small.ipynb", *sources, metadata=metadata)
    return run.run_notebook(source, tmp_path / "out" / "05_small.ipynb", "05_small", device="cpu", **options)


def kernels() -> set[int]:
    """Children of this process, the kernels among them."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


MEASURES = "from time import perf_counter"  # a lecture with it has the processor to itself
# What `record(test_accuracy=0.97)` displays, without the import of torch.
RECORD = f"display({{'{MIME}': {{'numbers': {{'test_accuracy': 0.97}}}}, 'text/plain': 'recorded'}}, raw=True)"


def test_a_notebook_passes_in_its_own_folder(tmp_path):
    before = kernels()
    seen = []
    result = execute(
        tmp_path,
        "import os\nassert os.path.basename(os.getcwd()) == 'notebooks'",
        "from torchcourse import record\nrecord(test_accuracy=0.97)",
        ranges={"test_accuracy": {"cpu.real": [0.95, 0.99]}},
        on_cell=lambda: seen.append(1),
    )
    assert (result.status, result.failures, result.notes, result.error) == ("passed", [], [], None)
    assert [(n.name, n.value, n.verdict) for n in result.numbers] == [("test_accuracy", 0.97, "in range")]
    assert result.key == "cpu.real"
    assert 10 < result.mib < 4000 and 0 < result.seconds < 120 and result.cpu_seconds > 0
    assert len(seen) == 2, "once for each code cell"
    assert kernels() == before


def test_an_error_is_told_with_its_cell(tmp_path, capfd):
    result = execute(tmp_path, "a = 1", "b = 2", "c = a + b\nc.no_such_thing", "print('not reached')")
    assert result.status == "failed"
    assert (result.error.number, result.error.id, result.error.name) == (3, "cell-3", "AttributeError")
    assert "no_such_thing" in result.error.source and "no_such_thing" in result.error.message
    assert not re.search(r"\x1b", "".join(result.error.traceback))
    assert "c.no_such_thing" in report.table([result]) and "code cell 3" in report.table([result])
    assert capfd.readouterr() == ("", ""), "quiet, the report says it"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import warnings\nwarnings.warn('old habit', stacklevel=1)", "old habit"),
        ("import sys\nprint('by hand', file=sys.stderr)", "by hand"),
    ],
)
def test_warnings_and_stderr_fail(tmp_path, source, words):
    result = execute(tmp_path, "a = 1", source)
    assert result.status == "failed"
    assert words in result.failures[0] and "code cell 2" in result.failures[0]


def test_a_number_out_of_range_fails(tmp_path):
    result = execute(tmp_path, RECORD, ranges={"test_accuracy": {"cpu.real": [0.98, 0.99]}})
    assert result.status == "failed"
    assert result.failures == ["test_accuracy is 0.97, outside its range of 0.98 to 0.99"]


def test_a_notebook_that_hangs_is_killed_with_its_children(tmp_path):
    before = kernels()
    start = time.monotonic()
    source = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    result = execute(tmp_path, "a = 1", source, timeout=6)
    assert time.monotonic() - start < 60
    assert result.status == "failed"
    assert "killed after" in result.failures[0]
    assert result.error is None or result.error.number == 2
    assert kernels() == before


def test_a_kernel_that_crashes_is_told_with_its_cell(tmp_path):
    result = execute(tmp_path, "import os, faulthandler", "os.abort()")
    assert result.status == "failed"
    assert (result.error.number, result.error.name) == (2, "DeadKernelError")


def test_a_notebook_that_grew_too_large_fails(tmp_path):
    result = execute(tmp_path, "print('x' * 600_000)")
    assert result.status == "failed"
    assert "more than 500 KB" in result.failures[0]


@pytest.mark.parametrize("kernelspec", [None, {"name": "alices_env", "display_name": "Alice", "language": "python"}])
def test_the_kernel_is_this_interpreter_whatever_the_notebook_names(tmp_path, kernelspec):
    metadata = {"kernelspec": kernelspec} if kernelspec else None
    result = execute(tmp_path, f"import sys\nassert sys.executable == {sys.executable!r}", metadata=metadata)
    assert result.failures == []


def test_memory_of_children_counts_and_shared_pages_count_once(tmp_path):
    source = """
import os, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside the kernel's threads
block = bytearray(b"x") * (200 * 2**20)
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        time.sleep(3)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"""
    result = execute(tmp_path, source)
    assert result.failures == []
    assert result.mib > 200
    if sys.platform == "linux":
        assert result.mib < 600, "four processes share the 200 MiB"


@pytest.mark.parametrize("problem", [AttributeError("pss"), FileNotFoundError("smaps_rollup"), psutil.AccessDenied(1)])
def test_memory_is_told_where_a_sandbox_has_no_file_for_it(monkeypatch, problem):
    def refuse(process):
        raise problem

    monkeypatch.setattr(psutil.Process, "memory_full_info", refuse)
    assert execution._memory(psutil.Process()) > 10 * 2**20


def test_data_that_were_drawn_are_told_by_the_notebook(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    monkeypatch.setenv("TORCHCOURSE_TOLD", "mnist")  # as if the process that started this one had told it
    load = "from torchcourse import data\nimages = data.load('mnist', 'test')"
    result = execute(tmp_path, load, RECORD, ranges={"test_accuracy": {"cpu.real": [0.98, 0.99]}})
    assert result.key == "cpu.drawn"
    assert result.status == "passed"
    assert result.notes == [
        "time and memory not measured on cpu.drawn: no budget to compare with",
        "test_accuracy not measured on cpu.drawn: no range to compare with",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyTorch brings another OpenMP, which shows other words")
def test_threads_of_a_notebook_sleep_while_they_wait(tmp_path, monkeypatch):
    """Else two notebooks on two cores burn each other's time. OpenMP itself tells how often a waiting thread asks."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("OMP_DISPLAY_ENV", "verbose")
    setup = (ROOT / "tools" / "setup_cell.py").read_text()
    source = notebook(tmp_path / "05_small.ipynb", setup.replace("{chapter}", "01_tensors"))
    ended = run.execute(source, tmp_path / "executed.ipynb", timeout=300)
    outputs = nbformat.read(tmp_path / "executed.ipynb", as_version=4).cells[1].outputs
    told = ended.log + "".join(output.get("text", "") for output in outputs)
    # More than one library may bring its own OpenMP, and each of them tells.
    assert set(re.findall(r"GOMP_SPINCOUNT = '(\d+)'", told)) == {"0"}


def test_a_solution_must_satisfy_its_checks(tmp_path):
    said = f"display({{{{'{MIME}': {{{{'outcomes': {{{{'scale': '{{}}'}}}}}}}}}}}}, raw=True)"
    wrong, right = said.format("incorrect"), said.format("correct")
    assert execute(tmp_path, right, wrong, kind="solution").failures == ["the check of scale says: incorrect"]
    assert execute(tmp_path, wrong, right, kind="solution").failures == []
    result = execute(tmp_path, said.format("not checked"), kind="solution")
    assert result.status == "passed" and "left out: the check of scale" in report.table([result])


def test_tagged_outputs_are_what_the_notebook_shows():
    """Of tagged cells only, without pictures and what only the runner reads, streams however they are cut."""

    def outputs(*streams, picture="a picture"):
        cut = [nbformat.v4.new_output("stream", name="stdout", text=text) for text in streams]
        data = {"image/png": picture, "text/plain": "<Figure>", MIME: {"numbers": {"loss": len(picture)}}}
        return [*cut, nbformat.v4.new_output("display_data", data)]

    def cells(tagged, untagged="any"):
        tags = {"tags": [compare.TAG]}
        return new_notebook(
            cells=[new_code_cell("", outputs=outputs(untagged)), new_code_cell("", outputs=tagged, metadata=tags)]
        )

    shown = cells(outputs("3\n4\n"))
    assert compare.changed_outputs(cells(outputs("3\n", "4\n", picture="another"), "other"), shown) == []
    (said,) = compare.changed_outputs(cells(outputs("3\n5\n")), shown)
    assert said.startswith("code cell 2 shows another output than the notebook:") and "-4\n+5" in said
    (said,) = compare.changed_outputs(cells([]), shown)
    assert "-stdout: 3" in said


def test_a_notebook_that_is_not_built_fails(tmp_path):
    missing = tmp_path / "notebooks" / "07_later.ipynb"
    result = run.run_notebook(missing, tmp_path / "out.ipynb", "07_later", "lecture", "cpu")
    assert result.failures == ["notebooks/07_later.ipynb does not exist. Run `make build`."]


def _a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


WHOLE = json.dumps(new_notebook(cells=[new_code_cell("1 + 1", id="a")])).encode()
UNREADABLE = {
    "cut short": WHOLE[:-9],
    "cut to nothing": b"",
    "blank": b" \n",
    "not UTF-8": WHOLE.replace(b"1 + 1", b"'\xe4'"),
    "binary": bytes(range(256)),
    "a list": b"[]",
    "a number": b"3",
    "null": b"null",
    "another JSON": b'{"cells": 3}',
    "cells that are none": WHOLE.replace(b'"cell_type": "code"', b'"cell_type": "video"'),
    "a cell without source": WHOLE.replace(b'"source"', b'"sauce"'),
    "an unknown format": WHOLE.replace(b'"nbformat": 4', b'"nbformat": 99'),
    "deep": b"[" * 100_000,
    "a web page": b"<!DOCTYPE html><html>Please log in</html>",
}


@pytest.mark.parametrize("content", [*UNREADABLE.values(), None], ids=[*UNREADABLE, "a folder"])
def test_a_file_that_is_no_notebook_fails_with_one_sentence(tmp_path, content, capfd):
    path = notebook(tmp_path / "notebooks" / "07_later.ipynb", "1 + 1")
    _a_folder(path) if content is None else path.write_bytes(content)
    result = run.run_notebook(path, tmp_path / "out.ipynb", "07_later", "lecture", "cpu")
    (sentence,) = result.failures
    assert re.fullmatch(r"notebooks/07_later.ipynb (is not a|cannot be).*\. Run `make build`\.", sentence)
    assert "\n" not in sentence and len(sentence) < 300
    assert sentence in report.one_line(result) and sentence in report.table([result])
    assert capfd.readouterr() == ("", "")


# Judging, without executing


def judged(values=None, ranges=None, **measured) -> run.Result:
    result = run.Result("05_small", "lecture", "cpu", **measured)
    run.judge(result, {"cpu.real": {"seconds": 10, "mib": 1000}}, ranges or {}, values or {})
    return result


@pytest.mark.parametrize(
    ("measured", "status", "words"),
    [
        ({"seconds": 9, "cpu_seconds": 18, "mib": 900}, "passed", "9.0 of 10"),
        ({"seconds": 11, "cpu_seconds": 15, "mib": 900}, "over budget", "11 s of 10 s"),
        ({"seconds": 9, "cpu_seconds": 9, "mib": 1100}, "over budget", "1100 MiB of 1000 MiB"),
        ({"seconds": 31, "cpu_seconds": 60, "mib": 900}, "failed", "31 s, more than 3 times its budget of 10 s"),
        ({"seconds": 9, "cpu_seconds": 9, "mib": 3100}, "failed", "3100 MiB, more than 3 times its budget of 1000 MiB"),
        # Other programs take most of the processor: no fault of the notebook.
        ({"seconds": 900, "cpu_seconds": 9, "mib": 900}, "passed", "9.0 of 10"),
        ({"seconds": 900, "cpu_seconds": 31, "mib": 900}, "failed", "31 s, more than 3 times"),
    ],
)
def test_budgets(measured, status, words):
    result = judged(**measured)
    assert result.status == status and words in report.table([result])
    assert (report.BUDGET in report.table([result])) == (status == "over budget")


def test_a_slower_machine_has_larger_budgets(small_course, monkeypatch):
    monkeypatch.setattr(run, "pace", lambda: run.Pace(slower=2.5, crowded=1))
    result = run.perform(course.chapters(small_course)[0], "lecture", "cpu", small_course / "out", small_course)
    assert result.budget == {"seconds": 300, "mib": 4000}
    assert "2.5 times as long" in run.about("cpu")[0] and "2.5" not in str(run.about("cuda"))


@pytest.mark.parametrize("slower", [0.7, 3])
@pytest.mark.parametrize("crowded", [1, 4])
def test_the_pace_of_a_machine(monkeypatch, slower, crowded):
    """How fast a core is does not depend on what else the machine does now and then."""
    work = [slower * run.OURS * each for each in (50, 1.3, 1, 1.1, 1.6, 1, 1.2, 1.2, 1.2, 1.2)]
    for name, times in {"process_time": 1, "perf_counter": crowded}.items():
        clock = itertools.accumulate(itertools.chain.from_iterable([(0, times * each) for each in work]))
        monkeypatch.setattr(run.time, name, lambda clock=clock: next(clock))
    assert run.pace.__wrapped__() == pytest.approx((max(1, slower), crowded))


def test_numbers_and_ranges_that_do_not_meet():
    ranges = {"test_accuracy": {"cpu.real": [0.9, 1]}, "images_per_second": {"cuda.real": [1e4, 1e6]}}
    result = judged(values={"loss": 0.5}, ranges=ranges)
    assert {(n.name, n.verdict) for n in result.numbers} == {("loss", "no range"), ("test_accuracy", "missing")}
    assert result.failures == ["test_accuracy has a range in course.toml but was not recorded"]
    assert judged(values={"loss": float("nan")}, ranges={"loss": {"cpu.real": [0, 1]}}).status == "failed"


def test_the_time_limit_follows_the_budget():
    budget = {"cpu.real": {"seconds": 60, "mib": 1}, "cpu.drawn": {"seconds": 30, "mib": 1}}
    assert run.time_limit(budget, "cpu") == 300
    assert run.time_limit(budget, "cuda") == 600
    assert run.time_limit({"cpu.real": {"seconds": 1, "mib": 1}}, "cpu") == 60


@pytest.mark.parametrize(
    ("worked", "work", "timeout", "words"),
    [
        (0.2, 4, 600, None),  # by the clock, the limit is over: other programs keep the machine busy
        (99, 4, 600, "in which it got 99 s of processor time: a notebook with this budget may take 4 s"),
        (0.2, 60, 6, "in which it got 0 s of processor time: it waits for something"),
    ],
)
def test_a_notebook_ends_for_its_work_or_since_it_waits_forever(tmp_path, monkeypatch, worked, work, timeout, words):
    monkeypatch.setattr(execution._Kernel, "sample", lambda kernel: (worked, 100.0))
    monkeypatch.setattr(run, "time_limit", lambda *_: work)
    result = execute(tmp_path, f"import time\ntime.sleep({600 if words else 8})", timeout=timeout)
    told = [failure for failure in result.failures if failure.startswith("killed after")]
    assert len(told) == (words is not None) and all(words in failure for failure in told), result.failures


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
title = "{title}"
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
    """Chapter 01 works, chapter 02 has an error in its lecture and markup in its message."""
    chapters = [("01", "works", "It works"), ("02", "breaks", "It breaks")]
    text = MANIFEST + "".join(CHAPTER.format(number=n, slug=s, title=t) for n, s, t in chapters)
    (tmp_path / "course.toml").write_text(text)
    notebook(tmp_path / "notebooks" / "01_works.ipynb", f"{RECORD}\n{MEASURES}", "print('<b>bold</b>')")
    notebook(tmp_path / "solutions" / "01_works.ipynb", "1 + 1")
    notebook(
        tmp_path / "notebooks" / "02_breaks.ipynb", MEASURES, "raise ValueError('<script>nothing</script> fits')", "3"
    )
    notebook(tmp_path / "solutions" / "02_breaks.ipynb", "1 + 1")
    monkeypatch.setattr(run, "best_device", lambda: ("cpu", "cpu (2 threads)"))
    return tmp_path


def test_in_a_terminal_a_progress_bar_names_the_notebook(small_course, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run.main(["--chapters", "01"], small_course) == 0
    assert "01_works lecture" in capsys.readouterr().err


def test_the_command_goes_on_after_a_failure_and_reports_it(small_course, capsys):
    assert run.main([], small_course) == 1
    printed = capsys.readouterr()
    assert printed.err == "", "a log is no place for a progress bar"
    assert "ValueError" in printed.out and "3 passed, 1 failed" in printed.out
    build = small_course / "build"
    for name in ("notebooks/01_works", "solutions/01_works", "notebooks/02_breaks", "solutions/02_breaks"):
        assert (build / f"{name}.ipynb").exists() and (build / f"{name}.html").exists()

    data = json.loads((build / "report.json").read_text())
    assert data["device"] == "cpu (2 threads)" and not data["interrupted"]
    assert [(r["chapter"], r["kind"], r["status"]) for r in data["results"]] == [
        ("01_works", "lecture", "passed"),
        ("01_works", "solution", "passed"),
        ("02_breaks", "lecture", "failed"),
        ("02_breaks", "solution", "passed"),
    ]
    assert data["results"][2]["error"]["number"] == 2
    page = (build / "report.html").read_text()
    assert "raise ValueError" in page and "Code cell 2" in page and "test_accuracy 0.97" in page
    assert "<script" not in page, "messages are shown, not executed"
    for link in re.findall(r'href="([^"]+)"', page):
        assert (build / link).exists()


def test_the_command_runs_what_it_is_asked_to(small_course, capsys):
    assert run.main(["--chapters", "01", "--kinds", "lecture", "--out", str(small_course / "here")], small_course) == 0
    assert "1 passed" in capsys.readouterr().out
    assert [p.name for p in small_course.glob("here/*/*.ipynb")] == ["01_works.ipynb"]
    with pytest.raises(SystemExit, match="no chapter 9"):
        run.main(["--chapters", "9"], small_course)


def test_a_file_that_is_no_notebook_stops_nothing(small_course, capsys):
    (small_course / "notebooks" / "01_works.ipynb").write_bytes(WHOLE[:-9])
    assert run.main(["--chapters", "01"], small_course) == 1
    printed = capsys.readouterr()
    assert "Traceback" not in printed.out + printed.err
    assert "notebooks/01_works.ipynb is not a notebook" in printed.out and "1 passed, 1 failed" in printed.out
    rows = json.loads((small_course / "build" / "report.json").read_text())["results"]
    assert [row["status"] for row in rows] == ["failed", "passed"]


def test_a_log_says_at_once_what_starts_and_what_has_ended(small_course, monkeypatch):
    """Each line is flushed when it is written: the next notebook may take minutes."""
    log = small_course / "log"
    seen = []
    perform = run.perform

    def looked_at(chapter, kind, *args, **options):
        seen.append(log.read_text().splitlines()[-1])
        return perform(chapter, kind, *args, **options)

    monkeypatch.setattr(run, "perform", looked_at)
    with open(log, "w") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        run.main(["--kinds", "lecture"], small_course)
    assert seen == ["[1/2] 01_works lecture ...", "[2/2] 02_breaks lecture ..."]
    lines = [line for line in log.read_text().splitlines() if line.startswith("[")]
    assert re.fullmatch(r"\[1/2\] 01_works lecture: passed, \d+ s", lines[1])
    assert re.fullmatch(r"\[2/2\] 02_breaks lecture: failed, \d+ s: stopped at code cell 2: ValueError: .*", lines[3])


@pytest.mark.parametrize(("device", "crowded"), [("cpu", 1), ("cpu", 9), ("cuda", 1)])
def test_lectures_that_measure_leave_the_rest_of_a_processor_to_others(small_course, monkeypatch, device, crowded):
    """They come one after the other, and wait for nobody. On a GPU, the others wait for them. On a machine that other
    programs keep busy, nothing yields: it would starve, and nothing can be measured there."""
    monkeypatch.setattr(run, "pace", lambda: run.Pace(slower=1, crowded=crowded))
    with (small_course / "course.toml").open("a") as manifest:
        manifest.write(CHAPTER.format(number="03", slug="counts", title="It measures no time"))
    notebook(small_course / "notebooks" / "03_counts.ipynb", "1 + 1")
    notebook(small_course / "solutions" / "03_counts.ipynb", MEASURES)  # seconds of a solution mean nothing
    running, together, gentle = set(), set(), {}

    def perform(chapter, kind, *_, gently=False, **__):
        name = f"{chapter.number} {kind}"
        running.add(name)
        gentle[name] = gently
        alone = name in ("01 lecture", "02 lecture")
        for _ in range(100 if alone and device == "cpu" else 1):  # until the others have begun, too
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
    assert {name for name in others if gentle[name]} == (others if (device, crowded) == ("cpu", 1) else set())


@pytest.mark.skipif(os.name != "posix", reason="elsewhere priorities have names")
def test_a_gentle_notebook_and_its_processes_have_the_lowest_priority(tmp_path):
    source = "import os, subprocess, sys\nprint(os.nice(0), subprocess.check_output(['nice'], text=True).strip())"
    path = notebook(tmp_path / "05_small.ipynb", source + "\nassert os.nice(0) == 19")
    result = run.run_notebook(path, tmp_path / "out.ipynb", "05_small", "solution", "cpu", gently=True)
    assert not result.failures
    *_, cell = nbformat.read(tmp_path / "out.ipynb", as_version=4).cells
    assert cell.outputs[0].text == "19 19\n"


def test_the_report_says_what_its_numbers_mean_and_fits_a_phone(tmp_path):
    expected = {"three_numbers": {"cpu.real": [2, 2]}, "a_number_with_a_long_name": {"cpu.real": [0, 1]}}
    values = {"three_numbers": 2, "a_number_with_a_long_name": 0.12345}
    results = [
        judged(values, expected, seconds=9, cpu_seconds=9),
        judged(values | {"three_numbers": 3}, expected, seconds=9, cpu_seconds=9),
        judged(seconds=11, cpu_seconds=12),
    ]
    results[1].failures.append("no_word_of_this_is_short_enough_for_a_phone" * 3)
    report.write(results, tmp_path, "A course", "cpu", about=["This machine is slow."])
    text = (tmp_path / "report.html").read_text()
    for words in (
        "1 passed, 1 passed over budget, 1 failed",
        "three_numbers: 2, as expected",
        "three_numbers: 3, not 2",
    ):
        assert words in text
    assert report.BUDGET in text and report.SECONDS in text and "This machine is slow." in text
    need("chromium")
    with slides_browser.browser() as chromium:
        for width in (390, 1280):
            tab = chromium.new_page(viewport={"width": width, "height": 800})
            tab.goto((tmp_path / "report.html").as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            tab.screenshot(path=tmp_path / f"report-{width}.png", full_page=True)


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
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
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
    with subprocess.Popen(
        [sys.executable, "-m", "tools.run", "--chapters", "01"],
        cwd=small_course,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as runner:
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
    content.cells[0].source = (
        "[![Open in Colab](https://example.org/badge.svg)](https://example.org/)\n\n"
        "The slope $\\frac{\\partial L}{\\partial w}$, and\n\n$$\\nosuchcommand{x}$$\n\n"
        "<details><summary>Answer</summary>\n\nBecause *views* share.\n\n</details>\n"
    )
    picture = {"image/png": "iVBORw0KGgo="}
    output = nbformat.v4.new_output("display_data", picture, metadata={"image/png": {"alt": 'Two "curves"'}})
    content.cells[1].outputs = [output]
    nbformat.write(content, path)
    page = report.write_page(path, "A page").read_text()
    assert "<title>A page</title>" in page
    fetched = re.findall(r'<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)="(?!data:)[^"]*"', page)
    assert fetched == [] and "cdnjs" not in page and "@import" not in page
    assert ">Open in Colab</a>" in page
    assert page.count('tabindex="0"') == 3, "the keyboard reaches two cells and an output"
    assert 'src="data:image/svg+xml' in page, "the formula is a picture"
    assert "nosuchcommand{x}</code>" in page, "and stays readable where it cannot be drawn"
    assert re.search(r"<details>.*<em>views</em> share.*</details>", page, re.DOTALL), "an answer stays folded"
    assert "alt='Two \"curves\"'" in page or 'alt="Two &quot;curves&quot;"' in page
