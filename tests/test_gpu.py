"""The command for a GPU machine: what it lacks, how its parts end, and that it goes on where it was cut off."""

import json
import subprocess
import sys
import sysconfig
import tarfile
import threading
import time
import venv
import zipfile
from pathlib import Path

import nbformat
import psutil
import pytest
import torch
from conftest import is_alive

from tools import overlay, wheelhouse
from tools.course import ROOT, select
from tools.gpu import __main__ as gpu
from tools.gpu import course


def wheel(folder: Path, name: str, *needs: str) -> None:
    """A wheel of version 1.0 with one empty module."""
    about = f"{name}-1.0.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {need}" for need in needs)]
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{about}/METADATA", "\n".join(metadata) + "\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")


# ---------------------------------------------------------------------------------------------------------------------
# What is there, and what traveled along


def test_what_a_machine_lacks_is_one_sentence_and_status_2(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["look"]) == 2
    assert capsys.readouterr().err.strip().endswith("OPTIONS=--quick")
    monkeypatch.setattr(gpu, "NEEDED", ["no_such_module"])
    monkeypatch.setattr(gpu, "WHEELS", Path("nowhere"))
    assert gpu.main(["look", "--quick"]) == 2
    assert "Missing: no_such_module. Run `make wheelhouse`" in capsys.readouterr().err


@pytest.mark.weekly
def test_an_environment_on_top_gets_what_is_missing_and_keeps_what_is_there(tmp_path):
    wheel(tmp_path, "carried", "numpy>=1", "its_need")
    wheel(tmp_path, "its_need")
    python = overlay.install(tmp_path / "venv", "--no-index", "--find-links", str(tmp_path), "carried")
    assert python == overlay.python(tmp_path / "venv") != sys.executable
    code = "import carried, its_need, numpy, torch; print(carried.__file__, torch.__file__)"
    carried, shared = subprocess.check_output([python, "-c", code], text=True).split()
    assert carried.startswith(str(tmp_path)) and shared == torch.__file__
    with pytest.raises(RuntimeError, match="pip could not"):
        overlay.install(tmp_path / "venv", "--no-index", "--find-links", str(tmp_path), "not-carried")


@pytest.mark.weekly
def test_a_machine_with_only_pytorch_gets_what_it_lacks_from_the_wheelhouse(tmp_path, monkeypatch):
    """A real environment that has PyTorch, gets the wheels without an index, and imports what executes a notebook."""
    if sys.platform != "linux" or sysconfig.get_platform() != "linux-x86_64":
        pytest.skip("the wheels of this test are for Linux on x86-64")
    monkeypatch.setattr(wheelhouse, "FOLDER", ROOT / "build" / "test-wheelhouse")
    if wheelhouse.main(["--python", f"{sys.version_info.major}.{sys.version_info.minor}"]):
        pytest.skip("no package index in reach")
    have = {path.name.split("-")[0] for path in wheelhouse.FOLDER.glob("*.whl")}
    assert {"papermill", "ipykernel", "pytest"} <= have and not {"torch", "torchvision", "jupyterlab"} & have

    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    ours = Path(sysconfig.get_path("purelib"))
    theirs = Path(sysconfig.get_path("purelib", "venv", vars={"base": tmp_path / "venv"}))
    for pattern in ("torch", "torch-*", "torchgen", "torchvision*", "numpy*", "nvidia", "sympy", "mpmath", "networkx",
                    "jinja2", "markupsafe", "filelock", "fsspec", "typing_extensions.py", "triton", "cuda", "PIL",
                    "pillow*"):  # fmt: skip
        for path in ours.glob(pattern):
            (theirs / path.name).symlink_to(path)
    words = ["--no-index", "--find-links", str(wheelhouse.FOLDER), "-r", str(wheelhouse.FOLDER / "requirements.txt")]
    install = f"from tools import overlay; print(overlay.install(overlay.Path({str(tmp_path / 'on top')!r}), *{words}))"
    inside = subprocess.check_output([python, "-c", install], cwd=ROOT, text=True).strip()
    code = "import papermill, nbconvert, matplotlib, torch, ipykernel; print('ready')"
    assert subprocess.check_output([inside, "-c", code], text=True).strip() == "ready"


# ---------------------------------------------------------------------------------------------------------------------
# How parts end


def test_a_part_that_is_late_is_ended_with_all_it_started(monkeypatch):
    monkeypatch.setattr(gpu, "GRACE", 2)
    sleeper = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(300)'])"
    start = time.monotonic()
    assert gpu.perform([sys.executable, "-c", sleeper], 0.0) == gpu.CUT
    assert time.monotonic() - start < 300, "it did not wait for its end"
    assert not [c for c in psutil.Process().children(recursive=True) if is_alive(c) and "sleep(300)" in c.cmdline()]


@pytest.fixture
def lent(monkeypatch, tmp_path):
    """A machine where each part takes its time of a clock; returns the limits of those that ran, and when all ends."""
    clock, limits = [0.0], {}

    def perform(words, minutes):
        part = words[words.index("tools.bench") + 1] if "tools.bench" in words else words[2]
        limits[part] = minutes
        clock[0] += 60 * min(minutes, 3)
        return gpu.CUT if part == "mnist" and minutes < 3 else 0

    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    monkeypatch.setattr(gpu, "OUT", tmp_path / "build" / "gpu")
    monkeypatch.setattr(gpu, "perform", perform)
    monkeypatch.setattr(gpu.time, "monotonic", lambda: clock[0])
    return limits


def test_all_ends_in_time_and_the_next_run_goes_on(lent, tmp_path, capsys):
    """A machine that is lent for some minutes is gone after some minutes, with all that was not fetched."""
    options = gpu.options_of(["tests", "mnist", "cifar", "--quick"])
    assert gpu.work(options, end=60 * 6) == gpu.CUT
    assert lent == {"pytest": 5, "mnist": 2} and "cut off" in capsys.readouterr().out
    with tarfile.open(tmp_path / "build" / "gpu" / "results.tar.gz") as pack:
        report = json.load(pack.extractfile("build/gpu/report-quick.json"))
    assert [one["status"].split(":")[0] for one in report["parts"].values()] == ["done", "cut off", "cut off"]

    lent.clear()
    assert gpu.work(gpu.options_of(["--quick"]), end=float("inf")) == 0
    assert "pytest" not in lent and {"mnist", "cifar", "tools.gpu.course", "ddp"} <= lent.keys(), "done before"
    lent.clear()
    gpu.work(gpu.options_of(["tests", "--quick"]), end=float("inf"))
    assert list(lent) == ["pytest"], "what is named is repeated"


def part_tests_in(folder: Path, monkeypatch, body: str) -> int:
    """Exit status of the part `tests` in a folder with one test."""
    (folder / "tests").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu: on a GPU\n")
    (folder / "tests" / "test_a.py").write_text(f"import pytest, time\n@pytest.mark.gpu\ndef test(): {body}\n")
    (folder / "tests" / "test_b.py").write_text("import something_that_is_not_there\n")
    monkeypatch.setattr(gpu, "ROOT", folder)
    return gpu.perform(gpu.command("tests", float("inf"), gpu.options_of([])), float("inf"))


def test_plugins_that_lie_around_do_not_end_the_tests(tmp_path, monkeypatch):
    """An old plugin of another project, in the Python that has PyTorch."""
    (tmp_path / "broken.py").write_text("raise ImportError('made for another pytest')")
    folder = tmp_path / "broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[pytest11]\nbroken = broken\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert part_tests_in(tmp_path, monkeypatch, "pass") == 0


def test_a_test_that_hangs_is_named_and_ended(tmp_path, monkeypatch, capfd):
    pytest.importorskip("pytest_timeout")
    monkeypatch.setattr(gpu, "HANGS", 6)
    assert part_tests_in(tmp_path, monkeypatch, "time.sleep(10_000)") not in (0, gpu.CUT)
    said = capfd.readouterr()
    assert "test_a.py::test" in said.out and 'test_a.py", line 3 in test' in said.err, "where it was, while it hung"


# ---------------------------------------------------------------------------------------------------------------------
# Notebooks


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Chapters 00 to 02 with small notebooks, of which 02 measures nothing, and a stand-in for executing them."""
    (tmp_path / "course.toml").write_bytes((ROOT / "course.toml").read_bytes())
    for chapter in select(["00", "01", "02"], tmp_path):
        for folder in ("notebooks", "solutions"):
            cell = nbformat.v4.new_code_cell("from time import perf_counter" if chapter.number != "02" else "1 + 1")
            (tmp_path / folder).mkdir(exist_ok=True)
            nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / folder / f"{chapter.name}.ipynb")
    monkeypatch.setattr(course, "LANES", 2)
    monkeypatch.setattr(course.run, "best_device", lambda: ("cuda", "a GPU"))

    def execute(perform, *arguments: str) -> int:
        monkeypatch.setattr(course.run, "perform", perform)
        return course.main(arguments, tmp_path)

    return execute


def result(chapter, kind, failures=()):
    return course.run.Result(chapter.name, kind, "cuda", failures=list(failures))


def test_what_measures_time_runs_alone_and_first_and_what_passed_is_done(small):
    order, running, most = [], set(), {}
    several = threading.Barrier(2)

    def perform(chapter, kind, *rest, **more):
        order.append(name := f"{chapter.number} {kind}")
        running.add(name)
        if chapter.number == "02":
            several.wait(10)  # passes only if another one is here at the same time
        most[name] = set(running)
        running.discard(name)
        return result(chapter, kind, ["wrong"] * (name == "01 lecture"))

    assert small(perform, "--chapters", "00", "01", "02") == 1
    alone = ["00 lecture", "00 solution", "01 lecture", "01 solution"]
    assert order[:4] == alone and len(order) == 6 and all(most[name] == {name} for name in alone)
    order.clear()
    small(perform, "--chapters", "00", "01", "02")
    assert order == ["01 lecture"], "only what failed"


@pytest.mark.parametrize("minutes, status", [("2", gpu.CUT), ("60", 1)])
def test_a_notebook_that_the_end_of_the_part_kills_has_not_failed(small, tmp_path, minutes, status):
    """With an hour left, it is the notebook's own limit that kills it, and leaves time for the next."""
    limits = []

    def perform(chapter, kind, device, out, root, timeout, **rest):
        limits.append(timeout)
        return result(chapter, kind, [f"killed after {timeout:.0f} s"])

    assert small(perform, "--chapters", "01", "--minutes", minutes) == status
    assert len(limits) == 2 and max(limits) <= min(course.LONGEST, 60 * float(minutes))
    done = tmp_path / "build" / "gpu" / "run" / "done.json"
    assert done.exists() == (status == 1), "what was cut off is executed again"
