"""The command for a GPU machine: what it finds, what it carries, how parts end, and that measurements can go on."""

import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from types import SimpleNamespace

import nbformat
import psutil
import pytest
import torch

from tools.bench import ddp, precision, save
from tools.bench.__main__ import main as bench
from tools.bench.rows import Rows
from tools.course import Chapter, select
from tools.gpu import __main__ as gpu
from tools.gpu import carry, course, machine, parts
from torchcourse import device, measurements


@pytest.fixture(autouse=True)
def real_device(monkeypatch):
    """Another test of this process may have switched the practice GPU on, which measures nothing."""
    here = device.best()
    monkeypatch.setattr(device, "best", lambda: here if here.type in ("cpu", "cuda") else torch.device("cpu"))


def quiet(line):
    """A `say` that says nothing."""


# ---------------------------------------------------------------------------------------------------------------------
# What is there


def test_without_a_device_there_is_one_sentence_and_status_2(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "OUT", tmp_path)
    monkeypatch.setattr(machine, "kind_of_device", lambda: "cpu")
    assert gpu.main(["look"]) == 2
    said = capsys.readouterr()
    assert "✗ device       no cuda device" in said.out
    assert said.err.strip().count("\n") == 0 and "--on cpu --quick" in said.err


def test_a_missing_package_is_named_with_its_fix(monkeypatch):
    monkeypatch.setattr(machine, "NEEDED", {"no_such_module": "executing notebooks"})
    (finding,) = (one for one in machine.packages() if one.ok is False)
    assert finding.name == "no_such_module" and "executing notebooks" in finding.found
    assert "make wheelhouse" in finding.fix and finding.fix in str(finding)


def test_a_gpu_is_described(monkeypatch):
    card = SimpleNamespace(
        get_device_name=lambda index: "A Fine GPU",
        get_device_properties=lambda index: SimpleNamespace(total_memory=80 * 2**30),
    )
    monkeypatch.setattr(machine, "kind_of_device", lambda: "cuda")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "get_device_module", lambda kind: card)
    finding = machine.device("cuda")
    assert finding.ok and finding.found == "2 × A Fine GPU, 80 GiB"


def test_an_old_pytorch_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu128")
    assert machine.torch_version().ok is False


def test_a_processor_only_tries_the_way(capsys):
    with pytest.raises(SystemExit) as end:
        gpu.main(["--on", "cpu"])
    assert end.value.code == 2 and "make bench" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        gpu.main(["speed"])
    assert "there is no part speed" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------------------
# What traveled along


def test_data_travels_in_parts(tmp_path):
    content = os.urandom(300_000)
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    (tmp_path / "data" / "cifar10" / "train.safetensors").write_bytes(content)
    made = carry.pack(tmp_path / "data", tmp_path / "parts", mib=0.1)
    assert len(made) == 3 and all(path.stat().st_size <= 104_858 for path in made)
    there = carry.unpack(tmp_path / "parts", tmp_path / "there")
    assert (there / "cifar10" / "train.safetensors").read_bytes() == content
    assert carry.unpack(tmp_path / "data", tmp_path / "elsewhere") == tmp_path / "data"  # no parts: as it is


def test_a_part_that_was_lost_is_noticed(tmp_path):
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    (tmp_path / "data" / "mnist" / "train.safetensors").write_bytes(os.urandom(250_000))
    made = carry.pack(tmp_path / "data", tmp_path / "parts", mib=0.1)
    made[1].unlink()
    with pytest.raises(carry.CarryError, match="bring all of them"):
        carry.unpack(tmp_path / "parts", tmp_path / "there")
    with pytest.raises(carry.CarryError, match="no data set"):
        carry.pack(tmp_path / "parts", tmp_path / "more")


def test_wheels_are_unpacked_and_not_compiled(tmp_path):
    """Compiling all of them takes minutes, and only a few modules are imported."""
    about = "carried-1.0.dist-info"
    content = {"carried.py": "", f"{about}/METADATA": "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n"}
    content |= {
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(tmp_path / "carried-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in content.items():
            wheel.writestr(name, text)
    assert carry.install(tmp_path, tmp_path / "site") == 1
    assert (tmp_path / "site" / "carried.py").exists() and not list((tmp_path / "site").rglob("*.pyc"))


@pytest.mark.parametrize(("said", "offline"), [(None, "1"), ("0", "0")])
def test_without_carried_data_nobody_looks_for_a_network_unless_told_to(tmp_path, monkeypatch, said, offline):
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "OUT", tmp_path)
        patch.setattr(os, "environ", {"TORCHCOURSE_OFFLINE": said} if said else {})
        patch.setattr(sys, "path", [*sys.path])
        without = gpu.prepare(gpu.options_of(["--on", "cpu", "--quick"]))
        carried = gpu.prepare(gpu.options_of(["--on", "cpu", "--quick", "--data", str(tmp_path)]))
    assert without["TORCHCOURSE_OFFLINE"] == offline
    assert "TORCHCOURSE_OFFLINE" not in carried and carried["TORCHCOURSE_DATA"] == str(tmp_path)


def test_a_folder_without_wheels_is_told(tmp_path):
    with pytest.raises(carry.CarryError, match="make wheelhouse"):
        carry.install(tmp_path, tmp_path / "site")


# ---------------------------------------------------------------------------------------------------------------------
# How parts end


@pytest.mark.parametrize(
    ("part", "status", "late", "result"),
    [
        ("run", 0, False, "passed"),
        ("ddp", 0, False, "measured"),
        ("precision", 3, False, "cut off"),
        ("precision", -9, True, "cut off"),
        ("mnist", 1, False, "failed"),
        ("tests", 3, False, "failed"),  # of pytest: an error inside it
        ("tests", 5, False, "failed"),  # of pytest: no test found
    ],
)
def test_what_an_exit_status_means(tmp_path, part, status, late, result):
    assert parts.judge(part, status, late, 1.0, tmp_path).status == result


def test_a_part_that_is_late_is_ended_with_all_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "GRACE", 2)
    sleeper = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(300)'])"
    start = time.monotonic()
    outcome = parts.perform("ddp", [sys.executable, "-c", sleeper], {}, 0.0, tmp_path, tmp_path)
    assert outcome.status == "cut off" and time.monotonic() - start < 300, "it did not wait for its end"
    assert not [child for child in psutil.Process().children(recursive=True) if "sleep(300)" in child.cmdline()]


def test_what_tests_said_is_kept_until_they_run_again(tmp_path):
    (tmp_path / "tests.xml").write_text("<testsuites/>")
    parts.perform("ddp", [sys.executable, "-c", ""], {}, None, tmp_path, tmp_path)
    assert (tmp_path / "tests.xml").exists()
    parts.perform("tests", [sys.executable, "-c", ""], {}, None, tmp_path, tmp_path)
    assert not (tmp_path / "tests.xml").exists(), "an old file says nothing about this run"


def test_tests_are_counted_and_chosen_by_their_marker(tmp_path):
    (tmp_path / "tests.xml").write_text(
        '<testsuites><testsuite tests="5" failures="1" errors="0" skipped="1"/></testsuites>'
    )
    assert parts.counted(tmp_path) == "3 passed, 1 failed, 1 skipped"
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("@pytest.mark.gpu\ndef test(): pass\n")
    (tmp_path / "tests" / "test_b.py").write_text("import something_that_is_not_there\n")
    assert parts.gpu_tests(tmp_path) == [str(tmp_path / "tests" / "test_a.py")]


def test_a_finished_part_is_not_measured_again_until_it_is_named(tmp_path, monkeypatch, capsys):
    ran = []

    def perform(part, *rest):
        ran.append(part)
        return parts.Outcome(part, "cut off" if part == "ddp" else "measured", 1.0)

    monkeypatch.setattr(gpu, "OUT", tmp_path)
    monkeypatch.setattr(gpu, "archive", lambda folder: gpu.ROOT / "build" / "gpu" / "results.tar.gz")
    monkeypatch.setattr(gpu.parts, "perform", perform)
    assert gpu.work(gpu.options_of(["--on", "cpu", "--quick"]), {}) == 3
    assert ran == list(parts.PARTS)
    ran.clear()
    gpu.work(gpu.options_of(["--on", "cpu", "--quick"]), {})
    assert ran == ["tests", "run", "ddp"]
    ran.clear()
    gpu.work(gpu.options_of(["throughput", "--on", "cpu", "--quick"]), {})
    assert ran == ["throughput"]
    assert "ddp          cut off" in capsys.readouterr().out


def test_results_are_packed_after_each_part_and_all_end_in_time(tmp_path, monkeypatch, capsys):
    """A machine that is lent for ten minutes is gone after ten minutes, with all that was not fetched."""
    clock, packed, limits = [0.0], [], {}

    def perform(part, command, environment, minutes, root, out):
        limits[part] = minutes
        clock[0] += 60 * minutes
        return parts.Outcome(part, "measured", 60 * minutes)

    monkeypatch.setattr(gpu, "OUT", tmp_path)
    monkeypatch.setattr(gpu.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(gpu, "archive", lambda folder: packed.append(clock[0]) or gpu.ROOT / "results.tar.gz")
    monkeypatch.setattr(gpu.parts, "perform", perform)
    options = gpu.options_of(["--on", "cpu", "--quick", "--minutes", "3", "--within", "10"])
    clock[0] = 60  # installing wheels counts, too
    assert gpu.work(options, {}) == parts.CUT
    assert limits == {"tests": 3, "mnist": 3, "cifar": 2}  # and a minute of grace for the last
    assert packed == [240, 420, 540, 540]
    assert "no time was left" in capsys.readouterr().out


def test_again_reaches_the_measurement():
    command = parts.command("ddp", gpu.ROOT, gpu.OUT, 4, False, [], None, again=True)
    assert command[-4:] == ["ddp", "--minutes", "4", "--again"]


def test_plugins_that_lie_around_do_not_end_the_tests(tmp_path):
    """An old plugin of another project, in the Python that has PyTorch."""
    (tmp_path / "broken.py").write_text("raise ImportError('made for another pytest')")
    folder = tmp_path / "broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[pytest11]\nbroken = broken\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: on a GPU\n")
    (tmp_path / "tests" / "test_a.py").write_text("import pytest\n@pytest.mark.gpu\ndef test(): pass\n")
    command = parts.command("tests", tmp_path, tmp_path, None, False, [], None)
    outcome = parts.perform("tests", command, {"PYTHONPATH": str(tmp_path)}, None, tmp_path, tmp_path)
    assert (outcome.status, outcome.note) == ("passed", "1 passed")


def test_a_test_that_hangs_is_named_and_ended(tmp_path, monkeypatch, capfd):
    pytest.importorskip("pytest_timeout")
    monkeypatch.setattr(parts, "HANGS", 6)
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: on a GPU\n")
    hangs = "import pytest, time\n@pytest.mark.gpu\ndef test_that_hangs(): time.sleep(10_000)\n"
    (tmp_path / "tests" / "test_a.py").write_text(hangs)
    command = parts.command("tests", tmp_path, tmp_path, None, False, [], None)
    outcome = parts.perform("tests", command, {}, None, tmp_path, tmp_path)
    said = capfd.readouterr()
    assert outcome.status == "failed" and "test_a.py::test_that_hangs" in said.out
    assert 'test_a.py", line 3 in test_that_hangs' in said.err, "where it was, while it hung"


def test_a_notebook_that_passed_is_not_executed_again(tmp_path):
    chapter = Chapter("05", "small", "", "", 1, "", [], 1)
    for folder in ("notebooks", "solutions"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "05_small.ipynb").write_text(folder)
    first = course.remaining([chapter], {}, "cuda 2.15", tmp_path)
    assert [kind for _, kind, _, _ in first] == ["lecture", "solution"]
    done = {f"05_small {kind}": {"digest": digest, "status": "passed"} for _, kind, _, digest in first}
    assert course.remaining([chapter], done, "cuda 2.15", tmp_path) == []
    assert len(course.remaining([chapter], done, "cuda 2.16", tmp_path)) == 2
    done["05_small lecture"]["status"] = "failed"
    (tmp_path / "solutions" / "05_small.ipynb").write_text("changed")
    assert len(course.remaining([chapter], done, "cuda 2.15", tmp_path)) == 2


def test_a_notebook_without_a_budget_cannot_take_all_the_time():
    known = {"cuda.real": {"seconds": 30, "mib": 2000}}
    assert course.time_limit({}, "cuda", float("inf")) == course.LONGEST < 300
    assert course.time_limit({"cpu.real": {"seconds": 20}}, "cuda", 1000) == course.LONGEST
    assert course.time_limit({"cpu.real": {"seconds": 90}}, "cuda", 1000) == 450, "as long as on a CPU"
    assert course.time_limit(known, "cuda", 1000) == 150
    assert course.time_limit(known, "cuda", 100) == course.time_limit({}, "cuda", 100) == 100
    assert course.time_limit(known, "cuda", 5) is None


def test_what_measures_time_runs_alone_and_first(tmp_path, monkeypatch):
    (tmp_path / "course.toml").write_bytes((gpu.ROOT / "course.toml").read_bytes())
    chosen = select(["00", "01", "02"], tmp_path)
    for chapter in chosen:
        for folder in ("notebooks", "solutions"):
            cell = nbformat.v4.new_code_cell("from time import perf_counter" if chapter.number != "02" else "1 + 1")
            (tmp_path / folder).mkdir(exist_ok=True)
            nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / folder / f"{chapter.name}.ipynb")
    order, running, most = [], set(), {}
    several = threading.Barrier(2)

    def run_notebook(source, executed, chapter, kind, device, budget, ranges, timeout, **_):
        order.append(name := f"{chapter[:2]} {kind}")
        running.add(name)
        if name.startswith("02"):
            several.wait(10)  # passes only if another one is here at the same time
        most[name] = set(running)
        running.discard(name)
        return course.run.Result(chapter, kind, device)

    monkeypatch.setattr(course, "lanes", lambda: 2)
    monkeypatch.setattr(course.run, "run_notebook", run_notebook)
    monkeypatch.setattr(course.run, "best_device", lambda: ("cuda", "a GPU"))
    assert course.main(["--chapters", "00", "01", "02", "--out", str(tmp_path / "out")], tmp_path) == 0
    alone = ["00 lecture", "00 solution", "01 lecture", "01 solution"]
    assert order[:4] == alone and len(order) == 6
    assert all(most[name] == {name} for name in alone)
    assert len(json.loads((tmp_path / "out" / "done.json").read_text())) == 6


def test_a_notebook_that_hangs_is_a_failure_and_leaves_time_for_the_next(tmp_path, monkeypatch):
    (tmp_path / "course.toml").write_bytes((gpu.ROOT / "course.toml").read_bytes())
    limits = []

    def run_notebook(source, executed, chapter, kind, device, budget, ranges, timeout, **_):
        limits.append(timeout)
        return course.run.Result(chapter, kind, device, failures=["killed"])

    monkeypatch.setattr(course.run, "run_notebook", run_notebook)
    monkeypatch.setattr(course.run, "best_device", lambda: ("cuda", "a GPU"))
    assert course.main(["--chapters", "01", "--minutes", "2", "--out", str(tmp_path / "out")], tmp_path) == 1
    assert len(limits) == 2 and all(60 < limit <= 120 for limit in limits)
    done = json.loads((tmp_path / "out" / "done.json").read_text())
    assert {row["status"] for row in done.values()} == {"failed"}


@pytest.mark.parametrize("minutes, status", [("2", parts.CUT), ("60", 1)])
def test_a_notebook_that_the_end_of_the_part_kills_has_not_failed(tmp_path, monkeypatch, minutes, status):
    """With an hour left, it is the notebook's own limit that kills it."""
    (tmp_path / "course.toml").write_bytes((gpu.ROOT / "course.toml").read_bytes())

    def run_notebook(source, executed, chapter, kind, device, budget, ranges, timeout, **_):
        return course.run.Result(chapter, kind, device, failures=[f"killed after {timeout:.0f} s"])

    monkeypatch.setattr(course.run, "run_notebook", run_notebook)
    monkeypatch.setattr(course.run, "best_device", lambda: ("cuda", "a GPU"))
    out = tmp_path / "out"
    assert course.main(["--chapters", "01", "--minutes", minutes, "--out", str(out)], tmp_path) == status
    assert (out / "done.json").exists() == (status == 1), "what was cut off is executed again"


def test_budgets_are_proposed_where_there_are_none():
    row = {"chapter": "05_small", "kind": "lecture", "device": "cuda", "origin": "real", "seconds": 11.0, "mib": 2100.0}
    row |= {"budget": None, "status": "passed"}
    assert course.budgets([row]) == ['05_small lecture: "cuda.real" = { seconds = 25, mib = 4500 }']
    assert course.budgets([row | {"budget": {"seconds": 1}}, row | {"status": "failed"}]) == []


def test_bench_says_that_it_was_cut_off(tmp_path):
    assert bench(["--quick", "ddp", "--minutes", "0", "--folder", str(tmp_path)]) == 3
    assert measurements.load("ddp", tmp_path) == []


# ---------------------------------------------------------------------------------------------------------------------
# The parts themselves, on whatever device is there. Marked with `gpu`: worth running on a real one.


@pytest.mark.gpu
def test_precision_measures_every_mode_that_is_worth_it(monkeypatch):
    monkeypatch.setattr(precision, "compile_twice", lambda *what: {"error": "not in this test"})
    results = precision.measure(Rows(), True, quiet)
    modes = results["modes"]
    assert modes[0] == "fp32" and set(modes) | set(results["skipped"]) == set(precision.MODES)
    assert {(row["mode"], row["channels_last"]) for row in results["training"]["rows"]} == {
        (mode, last) for mode in modes for last in (False, True)
    }
    for row in results["training"]["rows"]:
        assert row["images_per_s"]["median"] > 0
        assert (row["peak_mib"] is None) == results["device"].startswith("cpu")
    assert all(results["matmul"][mode]["gflops"][0] > 0 for mode in modes)
    assert 0 < results["error"]["fp32"] < 1e-5
    assert results["compile"]["fp32"]["error"]


def ranks():
    """Processes of `ddp.launch` that are still there."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


@pytest.mark.gpu
@pytest.mark.slow
def test_processes_take_turns_and_are_gone_afterwards():
    results = ddp.measure(Rows(), True, quiet)
    assert not ranks()
    for world in results["worlds"]:
        assert "error" not in world, world["error"]
        ways = {(row["way"], row["processes"]) for row in world["rows"]}
        assert {("plain", 1), ("ddp", 1)} <= ways
        if world["processes"] > 1:
            assert {("ddp", 2), ("flat", 2), ("per tensor", 2), ("plain", 2)} <= ways
        assert all(row["images_per_s"]["median"] > 0 for row in world["rows"]) and world["start_s"] > 0


# ---------------------------------------------------------------------------------------------------------------------
# Devices that are not here


def test_worlds_for_every_machine():
    (cpu,) = ddp.worlds("cpu", 1, 8)
    assert (cpu.processes, cpu.backend, cpu.place(1)) == (2, "gloo", torch.device("cpu"))
    alone, shared = ddp.worlds("cuda", 1, 16)
    assert (alone.processes, alone.backend, shared.processes, shared.backend) == (1, "nccl", 2, "gloo")
    assert shared.place(1) == torch.device("cuda", 0)
    (four,) = ddp.worlds("cuda", 4, 16)
    assert (four.processes, four.backend, four.place(3)) == (4, "nccl", torch.device("cuda", 3))
    assert {row.way for row in ddp.rows_of(alone, [64])} == {"plain", "ddp"}
    assert len(set(ddp.rows_of(cpu, [64]))) == len(ddp.rows_of(cpu, [64])) == 7


@pytest.mark.slow
def test_a_rank_that_fails_is_told_and_no_process_is_left(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no_such_network")
    result = ddp.launch(ddp.World(2, "gloo", "cpu"), quick=True, patience=60)
    assert result["error"].startswith("Rank ")
    assert not [
        child for child in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(child.cmdline())
    ]


def test_which_modes_a_gpu_has(monkeypatch):
    here = torch.device("cuda")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    modes, skipped = precision.usable(here)
    assert modes == ["fp32", "fp16"] and set(skipped) == {"tf32", "bf16"}
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert precision.usable(here) == (["fp32", "tf32", "fp16", "bf16"], {})


def test_float32_bits_are_set_and_put_back():
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = matmul.fp32_precision, convolution.fp32_precision
    for mode, setting in {"tf32": "tf32", "fp32": "ieee"}.items():
        with precision.float32_bits(mode, torch.device("cuda")):
            assert (matmul.fp32_precision, convolution.fp32_precision) == (setting, setting)
        assert (matmul.fp32_precision, convolution.fp32_precision) == before
    with precision.float32_bits("bf16", torch.device("cuda")):
        assert (matmul.fp32_precision, convolution.fp32_precision) == before


def test_a_recorded_gpu_has_its_name_in_file_and_label(monkeypatch, tmp_path):
    card = SimpleNamespace(get_device_name=lambda device: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(torch, "cuda", card)
    path = save.write("ddp", {"worlds": []}, "make gpu PARTS=ddp", device="cuda", folder=tmp_path)
    assert path.name == "ddp-nvidia_h100_80gb_hbm3.json"
    content = json.loads(path.read_text())["hardware"]
    assert (content["kind"], content["device"]) == ("cuda", "NVIDIA H100 80GB HBM3")


def test_help_is_a_page():
    done = subprocess.run([sys.executable, "-m", "tools.gpu", "--help"], cwd=gpu.ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "pack-data" in done.stdout
