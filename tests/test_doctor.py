"""The doctor: each finding on machines that we pretend to have."""

import json
import os
import sys
import types
import warnings
from importlib import metadata
from pathlib import Path

import pytest
import torch

from torchcourse import data, doctor
from torchcourse.doctor import Finding


@pytest.fixture
def no_gpu(monkeypatch):
    """A machine without an accelerator; the tests that pretend otherwise start from here."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *a, **k: None)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(doctor, "nvidia_gpus", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def cuda_build(no_gpu, monkeypatch):
    """The standard build of PyTorch on Linux, on a machine without a GPU."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *a, **k: torch.device("cuda"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")


# ---------------------------------------------------------------------------------------------------------------------
# The report


def test_every_examination_gives_one_finding():
    findings = doctor.examine()
    assert [finding.name for finding in findings] == list(doctor.EXAMINATIONS)
    assert all(finding.ok in (True, False, None) and finding.found for finding in findings)
    assert all(finding.fix for finding in findings if finding.ok is False), "each failure has its fix"


def test_the_environment_of_these_tests_is_in_order():
    by_name = {finding.name: finding for finding in doctor.examine()}
    for name in ("Python", "PyTorch", "torchvision"):
        assert by_name[name].ok is True, by_name[name]


def test_nothing_broken_means_ready(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "EXAMINATIONS", {"a": lambda: (True, "good", ""), "b": lambda: (None, "so", "Hm.")})
    assert doctor.main() == 0
    out = capsys.readouterr().out
    assert "✓ a" in out and "○ b" in out and "Ready for the course." in out


def test_one_strange_finding_does_not_hide_the_others(monkeypatch):
    def strange():
        raise OSError("the disk is on fire")

    monkeypatch.setattr(doctor, "EXAMINATIONS", {"strange": strange, "Python": doctor._python})
    first, second = doctor.examine()
    assert first.ok is None and "the disk is on fire" in first.found
    assert second.ok is True


def test_exit_status_and_verdict_tell_what_is_broken(monkeypatch, capsys):
    monkeypatch.setattr(
        doctor, "EXAMINATIONS", {"torchvision": lambda: (False, "is bad", "Do this."), "disk": lambda: (None, "so", "")}
    )
    assert doctor.main() == 1
    out = capsys.readouterr().out
    assert "✗ torchvision" in out and "→ Do this." in out and "mended first: torchvision." in out


def test_json_is_a_list_of_objects(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "EXAMINATIONS", {"threads": lambda: (None, "1 × cpu", "More.")})
    assert doctor.main(json=True) == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "threads", "ok": None, "found": "1 × cpu", "fix": "More."}]


def test_html_escapes_what_it_shows():
    page = doctor.as_html([Finding("device", False, "<b>torch</b>", "a < b: `x`")])
    assert "&lt;b&gt;torch" in page and "a &lt; b: <code>x</code>" in page and "✗ mend this" in page


def test_show_prints_outside_of_jupyter(capsys):
    doctor.show()
    assert "PyTorch" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------------------------
# Versions


def test_old_python(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 1, "final", 0))
    ok, found, fix = doctor._python()
    assert ok is False and found == "3.9.1" and "3.11" in fix


@pytest.mark.parametrize("version, fine", [("1.13.1+cu117", False), ("2.10.9", False), ("2.11.0a0+git1", True)])
def test_torch_version(monkeypatch, version, fine):
    monkeypatch.setattr(torch, "__version__", version)
    assert doctor._torch()[0] is fine


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
    ok, found, fix = doctor._torchvision()
    assert ok is fine and "0.30.0" in found
    assert fine or "both together" in fix


def test_torchvision_missing(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    ok, _, fix = doctor._torchvision()
    assert ok is False and "pip install torchvision" in fix


# ---------------------------------------------------------------------------------------------------------------------
# Device and threads


def test_cpu_build_without_gpu_is_fine(no_gpu):
    ok, found, _ = doctor._device()
    assert ok is True and "no accelerator" in found


def test_cuda_build_without_gpu_is_fine_and_said_plainly(cuda_build):
    ok, found, _ = doctor._device()
    assert ok is True and "could use cuda" in found


def test_gpu_with_an_old_driver(cuda_build, monkeypatch):
    def old_driver():
        warnings.warn("The NVIDIA driver on your system is too old (found version 11040).", stacklevel=1)
        return False

    monkeypatch.setattr(torch.accelerator, "is_available", old_driver)
    monkeypatch.setattr(doctor, "nvidia_gpus", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning becomes part of the finding and does not appear twice
        ok, found, fix = doctor._device()
    assert ok is False and "too old" in found and "driver" in fix


def test_gpus_hidden_on_purpose(cuda_build, monkeypatch):
    monkeypatch.setattr(doctor, "nvidia_gpus", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ok, found, _ = doctor._device()
    assert ok is None and "CUDA_VISIBLE_DEVICES" in found


def test_gpu_but_cpu_build(no_gpu, monkeypatch):
    monkeypatch.setattr(doctor, "nvidia_gpus", lambda: True)
    ok, found, fix = doctor._device()
    assert ok is None and "CPU only" in found and "pip install" in fix


@pytest.fixture
def pretended_gpu(cuda_build, monkeypatch):
    """An accelerator that is there; what it answers to the first operation is up to the test."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(doctor.device, "describe", lambda device: "cuda (A Fine GPU)")
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
    assert doctor._device() == (True, "2 × cuda (A Fine GPU)", "")


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
    ok, found, fix = doctor._device()
    assert ok is False and message in found and word in fix


def test_a_gpu_that_computes_wrongly(pretended_gpu):
    pretended_gpu(7)
    ok, _, fix = doctor._device()
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
    monkeypatch.setattr(doctor, "usable_cpus", lambda: cores)
    monkeypatch.setattr(doctor, "cpu_quota", lambda: quota)
    answer = doctor._threads()
    assert answer[0] is ok and word in answer[2]


def test_cpu_quota_is_the_tightest_on_the_way_up(tmp_path):
    job = tmp_path / "slurm" / "job"
    job.mkdir(parents=True)
    own = tmp_path / "cgroup"
    own.write_text("1:cpu:/old\n0::/slurm/job\n")
    assert doctor.cpu_quota(tmp_path, own) is None  # no limit anywhere
    (job / "cpu.max").write_text("max 100000\n")
    assert doctor.cpu_quota(tmp_path, own) is None
    (tmp_path / "slurm" / "cpu.max").write_text("250000 100000\n")
    assert doctor.cpu_quota(tmp_path, own) == 2.5
    (job / "cpu.max").write_text("400000 100000\n")
    assert doctor.cpu_quota(tmp_path, own) == 2.5
    assert doctor.cpu_quota(tmp_path, tmp_path / "not there") is None


# ---------------------------------------------------------------------------------------------------------------------
# Data


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_a_data_folder_that_does_not_exist_yet_will_be_made(root):
    ok, found, _ = doctor._data_folder()
    assert ok is True and "writable" in found and "$TORCHCOURSE_DATA" in found
    assert not root.exists(), "examining changes nothing"


def test_little_room_on_the_disk(root, monkeypatch):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: types.SimpleNamespace(free=2e8))
    ok, _, fix = doctor._data_folder()
    assert ok is None and "more room" in fix


def test_read_only_folder(root, monkeypatch):
    root.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    ok, found, fix = doctor._data_folder()
    assert ok is None and "read-only" in found and "TORCHCOURSE_DATA" in fix
    for name in data.NAMES:  # complete: then nobody needs to write
        for split in data.SPLITS:
            (root / name).mkdir(exist_ok=True)
            (root / name / f"{split}.safetensors").touch()
    assert doctor._data_folder()[0] is True


def test_data_folder_is_a_file(root):
    root.write_text("not a folder")
    assert doctor._data_folder()[0] is False


def test_no_data_yet_is_a_note_with_the_command(root):
    ok, found, fix = doctor._data_sets()
    assert ok is None and "mnist" in found and "torchcourse data fetch mnist" in fix


def test_damaged_data_must_be_mended(root):
    (root / "mnist").mkdir(parents=True)
    for split in data.SPLITS:
        (root / "mnist" / f"{split}.safetensors").write_bytes(b"cut off")
    ok, found, fix = doctor._data_sets()
    assert ok is False and "mnist" in found and "torchcourse data fetch mnist" in fix


def test_real_data_are_named(monkeypatch):
    rows = [{"name": "mnist", "origin": "kit cache", "problem": None}] * 2
    monkeypatch.setattr(data, "overview", lambda: rows)
    assert doctor._data_sets() == (True, "real: mnist", "")
    rows = [*rows, {"name": "cifar10", "origin": "drawn", "problem": None}]
    ok, found, _ = doctor._data_sets()
    assert ok is None and "not here yet: cifar10; real: mnist" in found


# ---------------------------------------------------------------------------------------------------------------------
# Notebook kernel


@pytest.fixture
def kernelspec(monkeypatch):
    """Sets the program that Jupyter's kernel python3 starts."""
    manager = pytest.importorskip("jupyter_client.kernelspec").KernelSpecManager

    def starts(program):
        monkeypatch.setattr(manager, "get_kernel_spec", lambda self, name: types.SimpleNamespace(argv=[program]))

    return starts


def test_kernel_is_this_environment(kernelspec):
    kernelspec(sys.executable)
    assert doctor._kernel()[0] is True


def test_kernel_is_another_environment(kernelspec, tmp_path):
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.symlink_to(sys.executable)  # another environment with the very same Python behind it
    kernelspec(str(other))
    ok, found, fix = doctor._kernel()
    assert ok is False and str(tmp_path) in found and "ipykernel install" in fix


def test_jupyter_of_this_environment(kernelspec, monkeypatch):
    kernelspec("python")
    beside = os.path.join(os.path.dirname(sys.executable), "jupyter")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: beside)
    assert doctor._kernel()[0] is True


@pytest.mark.parametrize("jupyter", [None, "/somewhere/else/bin/jupyter"])
def test_jupyter_of_another_environment_or_none(kernelspec, monkeypatch, jupyter):
    kernelspec("python")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: jupyter)
    ok, _, fix = doctor._kernel()
    assert ok is None and "python -m jupyterlab" in fix


def test_no_kernel_at_all(monkeypatch):
    specs = pytest.importorskip("jupyter_client.kernelspec")

    def none(self, name):
        raise specs.NoSuchKernel(name)

    monkeypatch.setattr(specs.KernelSpecManager, "get_kernel_spec", none)
    ok, _, fix = doctor._kernel()
    assert ok is False and "ipykernel" in fix


def test_in_a_notebook_the_kernel_is_the_one_that_asks(monkeypatch):
    monkeypatch.setattr(doctor, "in_notebook", lambda: True)
    assert doctor._kernel()[0] is True


# ---------------------------------------------------------------------------------------------------------------------
# Paths


def test_paths_do_not_tell_who_you_are(root, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert doctor.shown(root) == "$TORCHCOURSE_DATA"
    assert doctor.shown(Path("/home/ada/.cache/torchcourse")) == str(Path("~/.cache/torchcourse"))
    assert doctor.shown(Path("/scratch/course")) == str(Path("/scratch/course"))
