"""Job arrays on the practice cluster: nodes die, tasks die, the command ends. No item is lost or counted twice."""

import argparse
import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import need, wait_until

from tools import arrays, course, run
from tools.grade import rehearsal, sandbox
from torchcourse.cluster import practice

LAB = "00_getting_started"


@pytest.fixture(scope="module")
def cluster():
    need("Slurm")
    pytest.importorskip("submitit", reason="job arrays need submitit: pip install -e '.[slurm]'")
    with practice.Cluster() as cluster:
        yield cluster


@pytest.fixture
def site(cluster):
    """The cluster with an empty queue: what a test that failed has left would keep the nodes from the next one."""
    yield cluster
    ask(cluster, "scancel --user=$(id -un)")
    wait_until(lambda: not ask(cluster, "squeue --noheader"), "an empty queue")


def ask(site: practice.Cluster, command: str) -> str:
    return site.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


@contextlib.contextmanager
def started(site: practice.Cluster, *words: str) -> Iterator[subprocess.Popen]:
    """A Python on the login node, as a person has it there."""
    environment = os.environ | {"PYTHONPATH": f"{course.ROOT}:{course.ROOT / 'src'}", "PYTHONUNBUFFERED": "1"}
    command = site.command([sys.executable, *words])
    with subprocess.Popen(command, cwd=course.ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen) -> None:
    """Kill the Python on the login node, and wait until nothing is left of it: its locks are free, its output ends."""
    with contextlib.suppress(psutil.NoSuchProcess):
        inside = psutil.Process(process.pid).children()
        for each in inside or [process]:
            each.kill()
    process.wait()  # nsenter ends with the Python that it has started


def read_until(process: subprocess.Popen, *words: str) -> str:
    """The next line that holds one of the words; fails with all that was said if there is none."""
    said = []
    for line in process.stdout:
        said.append(line)
        if any(word in line for word in words):
            return line
    raise AssertionError("".join(said))


def driver(folder: Path, text: str) -> str:
    """A program that works with a pool in `folder`."""
    (folder / "driver.py").write_text(
        "import os, signal, sys, time\nfrom pathlib import Path\nfrom tools import arrays\n"
        f"here = Path({str(folder)!r})\nNEED = arrays.Need(60, 1, 100)\n" + text
    )
    return str(folder / "driver.py")


def processes_about(folder: Path) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or [])]


def left(folder: Path) -> list[Path]:
    return list(folder.rglob(f"{arrays.PREFIX}*"))


# What several tests do: each item is written down when it is begun, and waits until the test says go.
GATE = """
def work(item):
    with open(here / "begun", "a") as file:
        file.write(f"{item}\\n")
    while not (here / "go").exists():
        time.sleep(0.05)
    return item * item
def started(item, node):
    print("begun", item, node)
"""


@pytest.mark.slow
def test_a_node_that_dies_costs_no_item(site, tmp_path):
    text = """
with arrays.Site("local").open(here / "shared") as pool:
    for run in pool.submit_all(work, range(12), arrays.Need(60, 1, 100, together=2), started):
        print("result", run.result())
"""
    with started(site, driver(tmp_path, GATE + text)) as process:
        read_until(process, " n2")
        site.down("n2")
        (tmp_path / "go").touch()
        said = process.stdout.read()
        assert process.wait() == 0
    site.up("n2")
    assert [int(line.split()[1]) for line in said.splitlines() if line.startswith("result")] == [
        n * n for n in range(12)
    ]
    assert "ended early (NODE_FAIL on n2): handed in again" in said
    begun = (tmp_path / "begun").read_text().split()
    assert set(begun) == {str(n) for n in range(12)} and len(begun) <= 14  # the two that ran on n2 began twice
    assert not left(tmp_path)
    wait_until(lambda: not ask(site, "squeue --noheader"), "an empty queue")


@pytest.mark.slow
def test_a_task_that_always_dies_is_given_up_and_takes_no_neighbor_with_it(site, tmp_path):
    text = """
def work(item):
    with open(here / "begun", "a") as file:
        file.write(f"{item}\\n")
    if item == 1:
        sys.stderr.write("no room for it\\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if item == 2:
        raise SystemExit("its own sentence")
    if item == 3:
        raise ZeroDivisionError("one divided by none")
    return item
with arrays.Site("local").open(here / "shared") as pool:
    for run in pool.submit_all(work, range(5), arrays.Need(60, 1, 100, together=5)):
        error = run.exception()
        print("result", run.result() if error is None else f"{type(error).__name__}: {error}")
"""
    with started(site, driver(tmp_path, text)) as process:
        results = [line.removeprefix("result ").strip() for line in process.stdout if line.startswith("result ")]
        assert process.wait() == 0
    assert [results[0], *results[2:]] == [
        "0",
        "SystemExit: its own sentence",
        "ZeroDivisionError: one divided by none",
        "4",
    ]
    assert results[1].startswith("Lost: its task on the cluster ended without a result, 3 times: FAILED on n")
    assert "no room for it" in results[1]
    begun = (tmp_path / "begun").read_text().split()
    assert sorted(begun) == list("0111234")  # the one that dies begins with each try, the others once


@pytest.mark.slow
def test_what_a_killed_process_left_is_cancelled_by_the_next_one(site, tmp_path):
    text = """
with arrays.Site("local").open(here / "shared") as pool:
    runs = pool.submit_all(work, range(int(sys.argv[1])), NEED, started)
    print("results", [run.result() for run in runs])
"""
    program = driver(tmp_path, GATE + text)
    with started(site, program, "3") as first:
        read_until(first, "begun 2")
        kill(first)
    (folder,) = left(tmp_path)
    assert folder.stat().st_mode & 0o077 == 0  # hidden inputs can be made from what it holds
    assert len(ask(site, "squeue --noheader").splitlines()) == 3
    with started(site, program, "1") as second:
        read_until(second, "begun 0")
        assert folder not in left(tmp_path)
        (tmp_path / "go").touch()
        read_until(second, "results [0]")
        assert second.wait() == 0
    assert not left(tmp_path)
    wait_until(lambda: not ask(site, "squeue --noheader"), "an empty queue")


# ---------------------------------------------------------------------------------------------------------------------
# Grading


def hand_in(folder: Path, **answers: str) -> None:
    """A submission with these answers."""
    book = json.loads((course.ROOT / "labs" / f"{LAB}.ipynb").read_text())
    for cell in book["cells"]:
        cell["source"] = answers.get(cell["id"].removeprefix("answer-"), cell["source"])
    folder.mkdir(parents=True)
    (folder / "lab.ipynb").write_text(json.dumps(book))


# The same class, graded by the nodes and by this process. Sandboxes are not what differs, so nothing is executed.
CLASS = """
import dataclasses
from tools.grade import __main__ as command
from tools.grade import judge, sandbox
from tools.grade.collect import survey
from tools.grade.restore import restore
import labcheck
def without_sandbox(each, secret, limits, data):
    rehearsal = each.student == "the solution"
    if not rehearsal and os.environ.get("SLURMD_NODENAME"):
        (here / f"{os.environ['SLURMD_NODENAME']}-is-at-work").touch()
        while not (here / "go").exists():
            time.sleep(0.05)
    notebook, _, notes = restore(each.lab, each.cells)
    source = "".join(cell.source for cell in each.cells)
    outcome = "correct" if rehearsal or "wrong" not in source else "incorrect"
    names = ["filled_like", "slope", "average_digit"]
    verdicts = {name: {"outcome": outcome, "message": f"{len(source)}."} for name in names}
    return notebook, names, sandbox.Report("whole", {}, verdicts), notes
command._run = without_sandbox
need = command._need
command._need = lambda *about: dataclasses.replace(need(*about), cores=2)  # a whole node: both have to work
judge.prepare = lambda: None
submissions = survey(here / "in", {"00_getting_started"}, {}).submissions
command.grade(submissions, here / "slurm", 2, {}, site=arrays.Site("local"))
print("And here:")
command.grade(submissions, here / "local", 2, {})
"""


def table(out: Path, name: str) -> list[list[str]]:
    with open(out / name, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.slow
def test_a_class_graded_on_two_nodes_one_of_which_dies_equals_the_one_graded_here(site, tmp_path):
    need("bubblewrap")
    for number in range(6):
        hand_in(tmp_path / "in" / f"student{number:02}", slope="wrong = 1" if number % 3 else f"right = {number}")
    program = driver(tmp_path, CLASS)
    with started(site, program) as process:
        try:
            wait_until(lambda: (tmp_path / "n2-is-at-work").exists() or process.poll() is not None, "work on n2", 300)
        finally:
            print(ask(site, "sinfo --Node --long; squeue --long"))  # shown if the test fails
        assert process.poll() is None, process.stdout.read()
        site.down("n2")
        (tmp_path / "go").touch()
        said = process.stdout.read()
        assert process.wait() == 0, said
    site.up("n2")
    on_nodes, and_here, _ = said.partition("And here:")
    assert and_here and "handed in again" in on_nodes
    lines = [line.split()[1] for line in on_nodes.splitlines() if line.startswith("[")]
    assert sorted(lines) == [f"student{number:02}" for number in range(6)], said  # each once
    for name in ("grades.csv", "exercises.csv"):
        assert table(tmp_path / "slurm", name) == table(tmp_path / "local", name)
    assert len(table(tmp_path / "slurm", "grades.csv")) == 7
    assert not left(tmp_path)


@pytest.mark.slow
def test_term_writes_the_table_of_what_is_finished_and_empties_the_queue(site, tmp_path):
    """The real command, real sandboxes on the nodes: when TERM comes, one submission is finished, one is running."""
    need("bubblewrap")
    hand_in(tmp_path / "in" / "ada", slope="def slope(f, x):\n    return 1.0\n")
    hand_in(tmp_path / "in" / "slow", slope="import time\nwhile True:\n    time.sleep(0.1)")
    words = [str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--synthetic", "--slurm", "local"]
    with started(site, "-m", "tools.grade", *words) as process:
        read_until(process, "] ada ")
        (login,) = psutil.Process(process.pid).children()
        login.send_signal(signal.SIGTERM)
        said = process.stdout.read()
        assert process.wait() == 143 and "Stopped" in said
    assert [each[0] for each in table(tmp_path / "out", "grades.csv")] == ["student", "ada"]
    assert not left(tmp_path)
    # Slurm ends a canceled job in its own time, the grader does not wait for that.
    wait_until(lambda: not ask(site, "squeue --noheader"), "an empty queue")
    wait_until(lambda: not processes_about(tmp_path), "an end of what the jobs had started")


def test_a_node_without_a_sandbox_grades_nothing(monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    monkeypatch.setattr(sandbox.shutil, "which", lambda program: None)
    with pytest.raises(SystemExit, match="Nothing is graded: on the compute node n7 bubblewrap is missing"):
        rehearsal.rehearse(course.select(["00"])[0], lambda each: pytest.fail("it ran without a sandbox"))


# ---------------------------------------------------------------------------------------------------------------------
# Notebooks


@pytest.mark.slow
def test_notebooks_run_on_the_nodes_and_one_report_comes_of_it(site, tmp_path):
    for kind in ("notebooks", "solutions"):
        (tmp_path / kind).mkdir()
        book = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        source = "import os\nprint(os.environ['SLURMD_NODENAME'])" if kind == "notebooks" else "1 / 0"
        cell = {
            "id": "a",
            "cell_type": "code",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": source,
        }
        (tmp_path / kind / "01_tensors.ipynb").write_text(json.dumps(book | {"cells": [cell]}))
    shutil.copy(course.ROOT / "course.toml", tmp_path)
    text = 'from tools import run\nsys.exit(run.main(["--chapters", "01", "--slurm", "local"], here))'
    with started(site, driver(tmp_path, text)) as process:
        said = process.stdout.read()
        assert process.wait() == 1, said
    assert said.startswith("2 notebooks on the practice cluster on this machine\n")
    for line in ("01_tensors lecture on n", "01_tensors solution on n", "ZeroDivisionError: division by zero"):
        assert line in said
    report = json.loads((tmp_path / "build" / "report.json").read_text())
    assert [(each["kind"], each["error"] is None) for each in report["results"]] == [
        ("lecture", True),
        ("solution", False),
    ]
    (cell,) = json.loads((tmp_path / "build" / "notebooks" / "01_tensors.ipynb").read_text())["cells"]
    assert "".join(cell["outputs"][0]["text"]).strip() in ("n1", "n2")
    assert not left(tmp_path)


# ---------------------------------------------------------------------------------------------------------------------
# Where it cannot be


def options(**chosen: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    arrays.Site.add_options(parser)
    return argparse.Namespace(**vars(parser.parse_args([])) | chosen)


def test_without_slurm_or_submitit_one_sentence_says_what_to_do(tmp_path, monkeypatch):
    assert arrays.Site.of(options()) is None
    with pytest.raises(SystemExit, match="Choose one of"):
        arrays.Site.of(options(slurm="nowhere"))
    mine = tmp_path / "mine.toml"
    mine.write_text('title = "Mine"\naccount = "required"\n')
    with pytest.raises(SystemExit, match="Mine wants to know who pays: add --account NAME"):
        arrays.Site.of(options(slurm=str(mine)))
    monkeypatch.setattr(arrays.shutil, "which", lambda program: None)
    with pytest.raises(SystemExit, match="there is no sbatch here"):
        run.main(["--slurm", "local"])
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(SystemExit, match=r"submitit, which is not installed here: pip install .*\[slurm\]"):
        arrays.Site.of(options(slurm="local"))


def test_an_array_asks_for_what_its_work_needs(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text('title = "Mine"\n[[partition]]\nname = "fast"\ncores = 8\nhours = 2\n')
    need = arrays.Need(longest=600, usual=60, mib=3000, cores=2, together=4)
    asked = arrays.Site(str(mine), account="me", at_once=7).request(need, 4, "array-1")
    more = asked["additional_parameters"]
    assert (asked["mem"], asked["array_parallelism"], more["time"]) == ("3000M", 7, "00:24:00")
    assert (more["job_name"], more["partition"], more["account"]) == ("array-1", "fast", "me")
    assert more["cpus_per_task"] == "2" and more["no-requeue"] is True
    with pytest.raises(arrays.Refused, match="3 h of time"):
        arrays.Site(str(mine), time="3:00").request(need, 4, "array-1")
