"""The doctor: each finding on machines that we pretend to have."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
import zlib
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import torch
from conftest import need
from environments import small_machine
from safetensors.torch import save_file

from tools import course
from torchcourse import data, importing
from torchcourse.commands import cli, doctor
from torchcourse.commands.doctor import Examination, Finding, machine, processes, report, software, storage
from torchcourse.commands.doctor.finding import ask, shown, without_machine, without_user


@pytest.fixture
def no_gpu(monkeypatch):
    """A machine without an accelerator; the tests that pretend otherwise start from here."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *a, **k: None)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(machine, "nvidia_gpus", lambda: False)
    monkeypatch.setattr(machine, "driver_cuda", lambda: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def cuda_build(no_gpu, monkeypatch):
    """The standard build of PyTorch on Linux, on a machine without a GPU."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *a, **k: torch.device("cuda"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")


@pytest.fixture
def examinations(monkeypatch):
    """Replaces all examinations by the given answers."""

    def set_to(**answers):
        chosen = {name: Examination(lambda answer=answer: answer) for name, answer in answers.items()}
        monkeypatch.setattr(doctor, "EXAMINATIONS", chosen)

    return set_to


@pytest.fixture(scope="module")
def examined() -> list[Finding]:
    """What the doctor really finds on this machine, which may be busy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "WORKERS_LIMIT", 60)
        patch.setattr(processes, "RANKS_LIMIT", 60)
        return [ask(name, replace(examination, limit=180)) for name, examination in doctor.EXAMINATIONS.items()]


# ---------------------------------------------------------------------------------------------------------------------
# The report


def test_every_examination_gives_one_finding(examined):
    assert [finding.name for finding in examined] == list(doctor.EXAMINATIONS)
    assert all(finding.ok in (True, False, None) and finding.found for finding in examined)
    assert all(finding.fix for finding in examined if finding.ok is False), "each failure has its fix"
    assert not [finding for finding in examined if "could not be examined" in finding.found]


@pytest.mark.parametrize(
    "name", ["Python", "PyTorch", "torchvision", "write permission", "DataLoader workers", "gloo", "clock"]
)
def test_the_machine_of_these_tests_is_in_order(examined, name):
    finding = next(finding for finding in examined if finding.name == name)
    assert finding.ok is True, finding


PATIENT_DOCTOR = """
from dataclasses import replace
from torchcourse.commands import doctor
from torchcourse.commands.doctor import processes
processes.WORKERS_LIMIT = processes.RANKS_LIMIT = 60
for name, examination in doctor.EXAMINATIONS.items():
    doctor.EXAMINATIONS[name] = replace(examination, limit=180)
doctor.main(json=True)
"""


def test_on_a_small_machine_without_network(tmp_path):
    """Two cores, 64 MiB of /dev/shm, no network: enough for the course, and each process of it works."""
    need("bubblewrap")
    command = [*small_machine(tmp_path), sys.executable, "-c", PATIENT_DOCTOR]
    env = os.environ | {"TORCHCOURSE_DATA": str(tmp_path / "nothing")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    told = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert told["shared memory"]["ok"] is None and "64 MiB" in told["shared memory"]["found"]
    assert told["data sets"]["ok"] is None
    assert told["host name"]["ok"] is False and "PET_LOCAL_ADDR" in told["host name"]["fix"]
    for name in ("DataLoader workers", "ports", "gloo"):
        assert told[name]["ok"] is not False, told[name]
    assert done.stderr == ""


def test_nothing_is_left_behind(examined):
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("doctor")]
    assert not list(Path.cwd().glob(".doctor-*"))


def test_nothing_broken_means_ready(examinations, capsys):
    examinations(a=(True, "good", ""), b=(None, "so", "Hm."))
    assert doctor.main() == 0
    out = capsys.readouterr().out
    assert "✓ a" in out and "○ b" in out and "Ready for the course." in out


def test_exit_status_and_verdict_tell_what_is_broken(examinations, capsys):
    examinations(torchvision=(False, "is bad", "Do this."), disk=(None, "so", ""))
    assert doctor.main() == 1
    out = capsys.readouterr().out
    assert "✗ torchvision" in out and "→ Do this." in out and "Fix this first: torchvision." in out


def test_one_strange_finding_does_not_hide_the_others(monkeypatch):
    def strange():
        raise OSError("the disk is on fire")

    monkeypatch.setattr(
        doctor, "EXAMINATIONS", {"strange": Examination(strange), "Python": Examination(software.python)}
    )
    first, second = doctor.examine()
    assert first.ok is None and "the disk is on fire" in first.found
    assert second.ok is True


def test_what_hangs_becomes_a_finding():
    woken = threading.Event()
    finding = ask("disk", Examination(lambda: woken.wait(60) and (True, "", ""), 0.1, "Tell someone."))
    woken.set()
    assert finding.ok is False and "no answer within 0.1 s" in finding.found and finding.fix == "Tell someone."


def test_every_examination_that_may_hang_says_what_to_do():
    assert all(examination.limit <= 120 and examination.hangs for examination in doctor.EXAMINATIONS.values())


def test_the_form_of_the_json(examinations, capsys):
    examinations(threads=(None, "1 × cpu", "More."))
    assert cli.main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.keys() == {"format", "torchcourse", "ready", "seconds", "findings"}
    assert told["format"] == 1 and told["ready"] is True
    (finding,) = told["findings"]
    assert finding.pop("seconds") >= 0
    assert finding == {"name": "threads", "ok": None, "found": "1 × cpu", "fix": "More."}


def test_columns_are_aligned():
    lines = report.as_text([Finding("a", True, "one"), Finding("a long name", False, "two", "Do it.")]).splitlines()
    assert lines[0].index("one") == lines[1].index("two") == lines[2].index("→")


def test_html_escapes_what_it_shows():
    page = report.as_html([Finding("device", False, "<b>torch</b>", "a < b: `x`")])
    assert "&lt;b&gt;torch" in page and "a &lt; b: <code>x</code>" in page and "✗ fix this" in page


def test_show_prints_outside_of_jupyter(examinations, capsys):
    examinations(PyTorch=(True, "new", ""))
    doctor.show()
    assert "PyTorch" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------------------------
# A class


@pytest.fixture
def reports(tmp_path) -> list[str]:
    """Three students: one is ready, two have trouble with gloo, one of them with the disk as well."""
    trouble = {
        "ada": [Finding("disk", True, ""), Finding("gloo", True, "")],
        "bob": [Finding("disk", None, "", "Hm."), Finding("gloo", False, "", "Do this.")],
        "eve": [Finding("disk", False, "", "Do that."), Finding("gloo", False, "", "Do this.")],
    }
    for who, findings in trouble.items():
        (tmp_path / f"{who}.json").write_text(report.as_json(findings))
    return [str(tmp_path / f"{who}.json") for who in trouble]


def test_the_reports_of_a_class_are_pooled(reports, capsys):
    assert cli.main(["doctor", "--pool", *reports]) == 1
    out = capsys.readouterr().out
    assert "3 reports, 1 ready" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["gloo", "2", "0", "1"] in rows and ["disk", "1", "1", "1"] in rows
    assert rows.index(["gloo", "2", "0", "1"]) < rows.index(["disk", "1", "1", "1"]), "the most frequent comes first"
    assert ["bob", "gloo"] in rows and ["eve", "disk,", "gloo"] in rows and "ada" not in out


def test_a_class_that_is_ready(reports, capsys):
    assert cli.main(["doctor", "--pool", reports[0]]) == 0
    assert capsys.readouterr().out.strip() == "1 report, 1 ready for the course."


@pytest.mark.parametrize(
    ("content", "word"),
    [("{}", "not a report"), ("not json", "not a report"), ('{"format": 2}', "form 2"), (None, "cannot be read")],
)
def test_what_is_no_report_is_refused_in_a_sentence(tmp_path, capsys, content, word):
    path = tmp_path / "ada.json"
    if content is not None:
        path.write_text(content)
    assert cli.main(["doctor", "--pool", str(path)]) == 1
    err = capsys.readouterr().err
    assert word in err and err.startswith("torchcourse: ") and err.count("\n") == 1


# ---------------------------------------------------------------------------------------------------------------------
# Versions and packages


def test_old_python(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 1, "final", 0))
    ok, found, fix = software.python()
    assert ok is False and found == "3.9.1" and "3.11" in fix


@pytest.mark.parametrize(
    "needs, fine",
    [
        (["numpy", "torch==2.15.0", "scipy; extra == 'scipy'"], True),
        (["torch>=2.14.0"], True),
        (["torch==2.12.0"], False),
        (["torch (<2.15)"], False),
        (None, True),
    ],
)
def test_torchvision_must_fit_torch(monkeypatch, needs, fine):
    monkeypatch.setattr(torch, "__version__", "2.15.0+cu132")
    monkeypatch.setattr(metadata, "version", lambda name: "0.30.0")
    monkeypatch.setattr(metadata, "requires", lambda name: needs)
    ok, found, fix = software.torchvision()
    assert ok is fine and "0.30.0" in found
    assert fine or "both together" in fix


def test_torchvision_missing(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    ok, _, fix = software.torchvision()
    assert ok is False and "pip install torchvision" in fix


@pytest.mark.parametrize(
    ("pythonpath", "user_site", "ok", "found"),
    [(False, False, True, "one place"), (True, False, None, "PYTHONPATH is set"), (False, True, None, "numpy from")],
)
def test_where_packages_come_from(monkeypatch, tmp_path, pythonpath, user_site, ok, found):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if pythonpath:
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if user_site:
        (tmp_path / "numpy").mkdir()
        (tmp_path / "numpy" / "__init__.py").touch()
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(importing.site, "ENABLE_USER_SITE", True)
        monkeypatch.setattr(importing.site, "getusersitepackages", lambda: str(tmp_path))
        monkeypatch.delitem(sys.modules, "numpy")  # found again, not imported
    answer = software.packages()
    assert answer[0] is ok and found in answer[1] and (ok or "PYTHONPATH" in answer[2])


@pytest.mark.parametrize(
    ("made", "hides"),
    [
        ("torch.py", True),
        ("random.py", True),
        ("torchcourse/__init__.py", True),
        ("torchcourse/README.md", False),  # what `git clone` leaves: a folder, not a package
        ("test.py", False),
        ("my_torch.py", False),
        ("torch.txt", False),
    ],
)
def test_a_file_that_hides_a_module(tmp_path, monkeypatch, made, hides):
    monkeypatch.chdir(tmp_path)
    (tmp_path / made).parent.mkdir(exist_ok=True)
    (tmp_path / made).touch()
    ok, found, fix = software.names()
    assert ok is (not hides)
    assert not hides or (made.split("/")[0] in found and "Rename it" in fix)


def test_the_package_itself_hides_nothing(monkeypatch):
    monkeypatch.chdir(course.ROOT / "src")
    assert software.names()[0] is True


def test_another_encoding_is_noted(monkeypatch):
    monkeypatch.setattr(software, "sys", types.SimpleNamespace(flags=types.SimpleNamespace(utf8_mode=0)))
    monkeypatch.setattr(software.locale, "getencoding", lambda: "cp1252")
    ok, found, fix = software.text_encoding()
    assert ok is None and "cp1252" in found and "PYTHONUTF8" in fix


# ---------------------------------------------------------------------------------------------------------------------
# Device and threads


@pytest.mark.parametrize(
    ("built_for", "gpu", "visible", "ok", "found", "fix"),
    [
        (None, False, None, True, "no accelerator", ""),
        ("13.0", False, None, True, "could use cuda", ""),  # the standard build on a machine without a GPU
        ("13.0", True, "", None, "CUDA_VISIBLE_DEVICES hides", "Unset"),
        (None, True, None, None, "built for the CPU only", "pip install"),
    ],
)
def test_no_accelerator_works(no_gpu, monkeypatch, built_for, gpu, visible, ok, found, fix):
    monkeypatch.setattr(torch.version, "cuda", built_for)
    if built_for:
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *a, **k: torch.device("cuda"))
    monkeypatch.setattr(machine, "nvidia_gpus", lambda: gpu)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    answer = machine.accelerator()
    assert answer[0] is ok and found in answer[1] and fix in answer[2]


def test_gpu_with_an_old_driver(cuda_build, monkeypatch):
    def old_driver():
        warnings.warn("The NVIDIA driver on your system is too old (found version 11040).", stacklevel=1)
        return False

    monkeypatch.setattr(torch.accelerator, "is_available", old_driver)
    monkeypatch.setattr(machine, "nvidia_gpus", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning becomes part of the finding and does not appear twice
        ok, found, fix = machine.accelerator()
    assert ok is False and "too old" in found and "driver" in fix


@pytest.fixture
def pretended_gpu(cuda_build, monkeypatch):
    """An accelerator that is there; what it answers to the first operation is up to the test."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(machine.device, "describe", lambda device: "cuda (A Fine GPU)")
    ones = torch.ones

    def answers(with_what):
        def pretended(*shape, device=None):
            if isinstance(with_what, Exception):
                raise with_what
            return ones(*shape) * with_what

        monkeypatch.setattr(torch, "ones", pretended)

    return answers


def test_a_gpu_that_computes(pretended_gpu):
    pretended_gpu(1)
    assert machine.accelerator() == (True, "2 × cuda (A Fine GPU)", "")


@pytest.mark.parametrize(
    "message, word",
    [
        ("CUDA error: no kernel image is available for execution on the device", "get_arch_list"),
        ("CUDA out of memory. Tried to allocate 2.00 MiB", "nvidia-smi"),
        ("CUDA error: unknown error", "Restart"),
    ],
)
def test_a_gpu_that_is_there_but_does_not_compute(pretended_gpu, message, word):
    pretended_gpu(RuntimeError(message))
    ok, found, fix = machine.accelerator()
    assert ok is False and message in found and word in fix


def test_a_gpu_that_computes_wrongly(pretended_gpu):
    pretended_gpu(7)
    ok, _, fix = machine.accelerator()
    assert ok is False and fix


@pytest.mark.parametrize(
    "threads, cores, quota, ok, word",
    [
        (4, 8, None, True, ""),
        (8, 8, 8.0, True, ""),
        (2, 8, 1.5, True, ""),
        (16, 64, 2.0, None, "OMP_NUM_THREADS=2"),
        (1, 8, None, None, "set_num_threads(8)"),
        (1, 1, None, True, ""),
    ],
)
def test_threads(monkeypatch, threads, cores, quota, ok, word):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(machine, "usable_cpus", lambda: cores)
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    answer = machine.threads()
    assert answer[0] is ok and word in answer[2]


def test_cpu_quota_is_the_tightest_on_the_way_up(tmp_path):
    job = tmp_path / "slurm" / "job"
    job.mkdir(parents=True)
    own = tmp_path / "cgroup"
    own.write_text("1:cpu:/old\n0::/slurm/job\n")
    assert machine.cpu_quota(tmp_path, own) is None  # no limit anywhere
    (job / "cpu.max").write_text("max 100000\n")
    assert machine.cpu_quota(tmp_path, own) is None
    (tmp_path / "slurm" / "cpu.max").write_text("250000 100000\n")
    assert machine.cpu_quota(tmp_path, own) == 2.5
    (job / "cpu.max").write_text("400000 100000\n")
    assert machine.cpu_quota(tmp_path, own) == 2.5
    assert machine.cpu_quota(tmp_path, tmp_path / "not there") is None


def test_limits_of_the_older_control_groups(tmp_path):
    """Version 1 has a tree for each controller, and -1 or a huge number where there is no limit."""
    own = tmp_path / "cgroup"
    own.write_text("4:memory:/hub/ada\n1:cpu,cpuacct:/hub\n0::/\n")
    memory, cpu = tmp_path / "memory" / "hub" / "ada", tmp_path / "cpu,cpuacct" / "hub"
    memory.mkdir(parents=True)
    cpu.mkdir(parents=True)
    (cpu / "cpu.cfs_quota_us").write_text("-1\n")
    (memory / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert machine.cpu_quota(tmp_path, own) is None and machine.memory_limit(tmp_path, own) is None
    (cpu / "cpu.cfs_quota_us").write_text("150000\n")
    (cpu / "cpu.cfs_period_us").write_text("100000\n")
    (memory.parent / "memory.limit_in_bytes").write_text("2000000000\n")
    assert machine.cpu_quota(tmp_path, own) == 1.5 and machine.memory_limit(tmp_path, own) == 2_000_000_000


def test_memory_limit_of_a_container(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("0::/\n")
    assert machine.memory_limit(tmp_path, own) is None
    (tmp_path / "memory.max").write_text("4000000000\n")
    assert machine.memory_limit(tmp_path, own) == 4_000_000_000


@pytest.mark.parametrize(("free", "limit", "ok"), [(8e9, None, True), (1e9, None, None), (8e9, 2e9, None)])
def test_memory(monkeypatch, free, limit, ok):
    import psutil

    monkeypatch.setattr(psutil, "virtual_memory", lambda: types.SimpleNamespace(total=16e9, available=free))
    monkeypatch.setattr(machine, "memory_limit", lambda: limit)
    answer = machine.memory()
    assert answer[0] is ok and "16 GB" in answer[1]


def test_the_doctor_asks_for_as_much_memory_as_the_hungriest_chapter():
    budgets = [limit["mib"] for c in course.chapters() for kind in c.budget.values() for limit in kind.values()]
    assert max(budgets) * machine.MIB == machine.CHAPTERS_TAKE


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/shm")
@pytest.mark.parametrize(
    ("mib", "ok", "word"), [(8, False, "num_workers=0"), (64, None, "--shm-size"), (4000, True, "")]
)
def test_shared_memory(monkeypatch, mib, ok, word):
    space = types.SimpleNamespace(f_blocks=mib, f_bavail=mib, f_frsize=2**20)
    monkeypatch.setattr(os, "statvfs", lambda path: space)
    answer = machine.shared_memory(Path("/dev/shm"))
    assert answer[0] is ok and word in answer[2]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/shm")
def test_no_shared_memory(tmp_path):
    ok, _, fix = machine.shared_memory(tmp_path / "not there")
    assert ok is False and "num_workers=0" in fix


@pytest.mark.parametrize(
    ("takes", "built", "gpu", "ok", "word"),
    [
        (None, "13.0", False, True, "none needed"),
        (None, "13.0", True, False, "no driver"),
        ((13, 2), "13.0", True, True, "takes CUDA up to 13.2"),
        ((13, 0), "13.2", True, True, "built with CUDA 13.2"),  # newer code of one major version runs
        ((12, 4), "13.0", True, False, "takes CUDA up to 12.4"),
        ((12, 4), None, True, True, "takes CUDA up to 12.4"),
    ],
)
def test_driver(monkeypatch, takes, built, gpu, ok, word):
    monkeypatch.setattr(machine, "driver_cuda", lambda: takes)
    monkeypatch.setattr(machine, "nvidia_gpus", lambda: gpu)
    monkeypatch.setattr(torch.version, "cuda", built)
    answer = machine.driver()
    assert answer[0] is ok and word in answer[1]


def test_the_driver_tells_its_cuda(monkeypatch):
    def library(name):
        def version(pointer):
            pointer._obj.value = 12040
            return 0

        return types.SimpleNamespace(cuDriverGetVersion=version)

    monkeypatch.setattr(machine.ctypes, "CDLL", library)
    assert machine.driver_cuda() == (12, 4)


def test_version_of_the_driver(tmp_path):
    told = tmp_path / "version"
    told.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n")
    assert machine.driver_version(told) == "580.95.05"
    assert machine.driver_version(tmp_path / "not there") == ""


def test_a_clock_that_stands_before_the_installation(monkeypatch):
    monkeypatch.setattr(machine.time, "time", lambda: 1e9)  # 2001
    ok, found, fix = machine.clock()
    assert ok is False and "2001" in found and "before" in found and fix


# ---------------------------------------------------------------------------------------------------------------------
# Disk and data


def test_folders_that_cannot_be_written_to(monkeypatch, tmp_path):
    monkeypatch.setattr(storage, "places", lambda: {"working folder": tmp_path / "not there"})
    ok, found, fix = storage.permission()
    assert ok is False and "working folder" in found and fix


def test_files_from_the_future(monkeypatch):
    monkeypatch.setattr(storage.time, "time", lambda: time.mktime((2020, 1, 1, 0, 0, 0, 0, 1, 0)))
    ok, found, _ = storage.permission()
    assert ok is None and "in the future" in found


def test_a_full_disk(monkeypatch):
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda path: types.SimpleNamespace(free=2e6))
    ok, found, fix = storage.disk()
    assert ok is False and "2 MB free" in found and "du -sh" in fix


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot reserve room on a disk")
def test_a_quota_that_the_free_space_does_not_show(monkeypatch):
    def exceeded(*where):
        raise OSError(storage.errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "posix_fallocate", exceeded)
    ok, found, _ = storage.disk()
    assert ok is False and "home folder: Disk quota exceeded" in found


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_a_data_folder_that_does_not_exist_yet_will_be_made(root):
    ok, found, _ = storage.data_folder()
    assert ok is True and "writable" in found and "$TORCHCOURSE_DATA" in found
    assert not root.exists(), "examining changes nothing"


def test_little_room_on_the_disk(root, monkeypatch):
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda path: types.SimpleNamespace(free=2e8))
    ok, _, fix = storage.data_folder()
    assert ok is None and "more room" in fix


def test_read_only_folder(root, monkeypatch):
    root.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    ok, found, fix = storage.data_folder()
    assert ok is None and "read-only" in found and "TORCHCOURSE_DATA" in fix
    for name in data.NAMES:  # complete: then nobody needs to write
        for split in data.SPLITS:
            (root / name).mkdir(exist_ok=True)
            (root / name / f"{split}.safetensors").touch()
    assert storage.data_folder()[0] is True


def test_data_folder_is_a_file(root):
    root.write_text("not a folder")
    assert storage.data_folder()[0] is False


def test_no_data_yet_is_a_note_with_the_command(root):
    ok, found, fix = storage.data_sets()
    assert ok is None and "mnist" in found and "torchcourse data fetch mnist" in fix


def test_damaged_data_needs_a_fix(root):
    (root / "mnist").mkdir(parents=True)
    for split in data.SPLITS:
        (root / "mnist" / f"{split}.safetensors").write_bytes(b"cut off")
    ok, found, fix = storage.data_sets()
    assert ok is False and "mnist" in found and "torchcourse data fetch mnist" in fix


@pytest.fixture
def small_sets(root, monkeypatch):
    """Data sets of a few images, with the checksums that go with them: returns the images and labels of each."""
    generator = torch.Generator().manual_seed(0)
    sets = {}
    for name in data.NAMES:
        what = data.catalog.SPECS[name]
        monkeypatch.setitem(what.counts, "train", 6)
        monkeypatch.setitem(what.counts, "test", 4)
        for split in data.SPLITS:
            count = what.counts[split]
            images = torch.randint(0, 256, (count, *what.shape), dtype=torch.uint8, generator=generator)
            sets[name, split] = {"images": images, "labels": torch.arange(count)}
            sums = [zlib.crc32(tensor.byte().numpy()) for tensor in sets[name, split].values()]
            if name == "cifar10":
                sums[0] = None
            monkeypatch.setitem(what.checksums, split, tuple(sums))

    def save(*names):
        for (name, split), tensors in sets.items():
            if name in names:
                (root / name).mkdir(parents=True, exist_ok=True)
                save_file(tensors, root / name / f"{split}.safetensors")
        return sets

    return save


def test_real_data_are_named(small_sets):
    small_sets("mnist")
    ok, found, _ = storage.data_sets()
    assert ok is None and "not here yet: fashion_mnist, cifar10; real and whole: mnist" in found
    small_sets(*data.NAMES)
    assert storage.data_sets() == (True, "real and whole: mnist, fashion_mnist, cifar10", "")


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10"])
@pytest.mark.parametrize("part", ["images", "labels"])
def test_data_that_look_right_and_are_not(small_sets, name, part):
    sets = small_sets(*data.NAMES)
    sets[name, "test"][part][1] = 0  # an image or a label that was lost
    small_sets(*data.NAMES)
    ok, found, fix = storage.data_sets()
    assert ok is False and f"{name} is damaged" in found
    assert f"holds {part}" in fix and f"torchcourse data fetch {name}" in fix


def test_the_real_sets_are_whole_where_they_are_here():
    """The checksums in the package are those of the published files."""
    ok, found, _ = storage.data_sets()
    assert ok is not False, found


# ---------------------------------------------------------------------------------------------------------------------
# Several processes


class Failing(torch.utils.data.Dataset):
    """A data set whose workers die, or hang."""

    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.how()


@pytest.mark.parametrize("how", [lambda: os._exit(1), lambda: time.sleep(60), lambda: 1 / 0])
def test_workers_that_do_not_deliver(monkeypatch, how):
    monkeypatch.setattr(processes, "Squares", lambda: Failing(how))
    monkeypatch.setattr(processes, "WORKERS_LIMIT", 2)
    finding = ask("workers", Examination(processes.workers, 30))
    assert finding.ok is not True and finding.found


@pytest.mark.parametrize(
    ("problem", "word"),
    [
        ("DataLoader worker (pid 7) is killed by signal: Bus error. insufficient shared memory (shm).", "/dev/shm"),
        ("Too many open files", "ulimit"),
        ("DataLoader timed out after 15 seconds", "Restart"),
        ("Caught RuntimeError in DataLoader worker process 0.\nTraceback:\n  ...\nNo space left on device", "/dev/shm"),
    ],
)
def test_what_helps_workers(monkeypatch, problem, word):
    def fails(*args, **options):
        raise RuntimeError(problem)

    monkeypatch.setattr(processes, "DataLoader", fails)
    ok, found, fix = processes.workers()
    assert ok is False and found.endswith(problem.splitlines()[-1]) and word in fix


def test_a_machine_that_does_not_know_its_own_name(monkeypatch):
    monkeypatch.delenv("PET_LOCAL_ADDR", raising=False)
    monkeypatch.setattr(socket, "getfqdn", lambda: "nowhere.invalid")
    ok, found, fix = processes.host_name()
    assert ok is False and "own name" in found and "PET_LOCAL_ADDR=127.0.0.1" in fix
    monkeypatch.setenv("PET_LOCAL_ADDR", "127.0.0.1")
    assert processes.host_name()[0] is True


def test_ports(tmp_path):
    told = tmp_path / "range"
    told.write_text("32768\t60999\n")
    ok, found, _ = processes.ports(told)
    assert ok is not False and "32768 to 60999" in found
    told.write_text("40000\t40100\n")
    assert processes.ports(told)[0] is None


def test_the_port_of_torchrun_is_taken(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(processes, "PORT", server.getsockname()[1])
        ok, found, fix = processes.ports()
    assert ok is None and "taken" in found and "--standalone" in fix


def test_nobody_may_listen(monkeypatch):
    def refused(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refused)
    ok, found, fix = processes.ports()
    assert ok is False and "Permission denied" in found and fix


@pytest.mark.parametrize(
    ("interface", "fine", "word"), [(None, True, ""), ("eth47", None, "your own scripts need one")]
)
def test_gloo_leaves_the_environment_as_it_was(monkeypatch, interface, fine, word):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    if interface:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    ok, found, fix = processes.gloo()
    assert ok is fine and (interface or "") in found and word in fix.lower()
    assert os.environ.get("GLOO_SOCKET_IFNAME") == interface


def test_ranks_that_do_not_find_each_other(monkeypatch):
    def lost():
        raise RuntimeError("Connection refused\nand more lines")

    monkeypatch.setattr(processes, "_exchange", lost)
    ok, found, fix = processes.gloo()
    assert ok is False and found.endswith("Connection refused") and "MASTER_ADDR=127.0.0.1" in fix


# ---------------------------------------------------------------------------------------------------------------------
# Notebook kernel


BESIDE = os.path.join(os.path.dirname(sys.executable), "jupyter")


@pytest.mark.parametrize(
    ("program", "jupyter", "ok", "fix"),
    [
        (sys.executable, None, True, ""),
        ("other", None, False, "ipykernel install"),
        ("python", BESIDE, True, ""),
        ("python", None, None, "python -m jupyterlab"),
        ("python", "/somewhere/else/bin/jupyter", None, "python -m jupyterlab"),
    ],
)
def test_kernel(monkeypatch, tmp_path, program, jupyter, ok, fix):
    """program: what Jupyter's kernel starts; jupyter: where the command is."""
    other = tmp_path / "python"
    other.symlink_to(sys.executable)  # another environment with the very same Python behind it
    argv = [str(other) if program == "other" else program]
    manager = pytest.importorskip("jupyter_client.kernelspec").KernelSpecManager
    monkeypatch.setattr(manager, "get_kernel_spec", lambda self, name: types.SimpleNamespace(argv=argv))
    monkeypatch.setattr(software.shutil, "which", lambda name: jupyter)
    answer = software.kernel()
    assert answer[0] is ok and fix in answer[2]


def test_no_kernel_at_all(monkeypatch):
    specs = pytest.importorskip("jupyter_client.kernelspec")

    def none(self, name):
        raise specs.NoSuchKernel(name)

    monkeypatch.setattr(specs.KernelSpecManager, "get_kernel_spec", none)
    ok, _, fix = software.kernel()
    assert ok is False and "ipykernel" in fix


def test_in_a_notebook_the_kernel_is_the_one_that_asks(monkeypatch):
    monkeypatch.setattr(software, "in_notebook", lambda: True)
    assert software.kernel()[0] is True


# ---------------------------------------------------------------------------------------------------------------------
# Paths


def test_paths_do_not_tell_who_you_are(root, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert shown(root) == "$TORCHCOURSE_DATA"
    assert without_user(shown(Path("/home/ada/.cache/torchcourse"))) == str(Path("~/.cache/torchcourse"))
    assert shown(Path("/scratch/course")) == str(Path("/scratch/course"))


def test_reports_name_neither_user_nor_machine(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr(socket, "gethostname", lambda: "lab-pc-7")
    told = "lab-pc-7: /home/ada/data and /scratch/ada/x, /home/adam, /other/home/ada stay"
    assert without_machine(without_user(told)) == "HOST: ~/data and /scratch/$USER/x, /home/adam, /other/home/ada stay"


def test_a_user_without_home_and_name_gets_a_report(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert ask("device", Examination(lambda: (True, "CPU", ""))).found == "CPU"


def test_the_json_of_this_machine_names_neither_user_nor_machine(examined):
    told = report.as_json(examined)
    assert socket.gethostname() not in told or len(socket.gethostname()) < 3
    assert str(Path.home()) + "/" not in told
