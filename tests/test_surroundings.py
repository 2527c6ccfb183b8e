"""What a machine, a site, or a folder brings along: each works, or is said in a sentence, here and by the doctor."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from labcheck import reports
from torchcourse import place
from torchcourse.commands import cli
from torchcourse.commands.doctor.finding import Examination, ask
from torchcourse.errors import CourseError
from torchcourse.lectures import compiling


def python(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess:
    """Run code as a notebook does: with Python's own modules loaded before the notebook's folder is on the path."""
    code = f"import argparse, asyncio, json, random, sys, tempfile\nsys.path.insert(0, '')\n{code}"
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "PYTHON", "GLOO_", "TMPDIR"))}
    env = inherited | {"TORCHCOURSE_DATA": str(folder / "no data")} | variables
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)


# ---------------------------------------------------------------------------------------------------------------------
# Nothing can be imported

FIRST_CELL_AND_DOCTOR = """
import torchcourse
try:
    torchcourse.setup("00_getting_started")
except torchcourse.CourseError as error:
    print(error)
from torchcourse.commands import cli
sys.exit(cli.main(["doctor"]))
"""
NUMPY_OF_ANOTHER_PYTHON = 'raise ImportError("IMPORTANT: ADVICE\\n\\nImporting the numpy C-extensions failed.")'


@pytest.mark.parametrize(
    ("file", "text", "cell", "report"),
    [
        ("torch.py", "", "torch cannot be imported", "Rename it, then restart"),
        ("other/torch/__init__.py", "__version__ = '1.13'", "1.13 is too old: this course needs", "torch from"),
        ("other/numpy/__init__.py", NUMPY_OF_ANOTHER_PYTHON, "(ImportError: Importing the numpy C-", "numpy from"),
        ("other/psutil/__init__.py", "1 / 0", "psutil cannot be imported", "unset PYTHONPATH"),
    ],
)
def test_what_hides_a_library_is_named_by_the_first_cell_and_by_the_doctor(tmp_path, file, text, cell, report):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    elsewhere = file.startswith("other")
    done = python(FIRST_CELL_AND_DOCTOR, tmp_path, **({"PYTHONPATH": str(tmp_path / "other")} if elsewhere else {}))
    said, *findings = done.stdout.splitlines()
    assert cell in said and ("unset PYTHONPATH" if elsewhere else f"Rename {file}") in said, done
    assert any(report in line for line in findings) and done.returncode == 1 and "Traceback" not in done.stderr, done
    assert findings[-1].startswith("Fix this first:") and "PyTorch" in findings[-1]


# ---------------------------------------------------------------------------------------------------------------------
# Settings of other people, all at once, and everything works

MATPLOTLIBRC = "text.usetex: True\nsavefig.dpi: 600\nfont.family: No Such Font\nbackend: TkAgg\n"
LESSON = """
import io, os
import torchcourse
torchcourse.setup("06_ddp")
import torch, torch.distributed as dist
from torchcourse import distributed, plots
from labcheck import exercise, judge, ranks
from torchcourse.distributed import magic
from torch.utils.data import DataLoader

torch.ones(600, 600) @ torch.ones(600, 600)
print("cores", len(os.sched_getaffinity(0)))
print("workers", sum(batch.sum().item() for batch in DataLoader(torch.arange(8), num_workers=2, timeout=60)))
with distributed.setup("gloo", alone=True) as me:
    print("alone", me.world_size)
print("later", os.environ["GLOO_SOCKET_IFNAME"])
print("check", ranks.run(lambda: dist.get_rank()).values)
magic.torchrun("-n 2", "import torch.distributed as dist\\n"
               "dist.init_process_group('gloo')\\ndist.barrier()\\nprint(dist.get_world_size())")
figure = plots.curves({"loss": [3, 2, 1]}, "epoch", "loss")
print("picture", len(plots._small_png(figure)) < 100_000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ties a process to cores, and starts ranks by forking")
def test_a_sites_settings_do_no_harm(tmp_path):
    (tmp_path / "matplotlibrc").write_text(MATPLOTLIBRC)
    for name in ("json.py", "random.py"):  # beside the notebook
        (tmp_path / name).write_text("raise ImportError('the wrong one')")
    long = tmp_path / ("long" * 25)
    long.mkdir()
    site = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores", "GLOO_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_IFNAME": "ib0"}
    site |= {"TMPDIR": str(long), "PYTHONSAFEPATH": "1", "MATPLOTLIBRC": str(tmp_path), "OMP_NUM_THREADS": "2"}
    # The shell that salloc opens for a job of four tasks.
    site |= {"SLURM_NTASKS": "4", "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}
    site |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": "n1"}
    done = python(LESSON, tmp_path, **site)
    cores = len(os.sched_getaffinity(0))
    said = [f"cores {cores}", "workers 28", "alone 1", "later ib0", "check [0, 1]", "[rank 0] 2", "[rank 1] 2"]
    said += ["picture True"]
    assert sorted(done.stdout.splitlines()[1:]) == sorted(said), done
    assert done.stderr == ""


# ---------------------------------------------------------------------------------------------------------------------
# What cannot work says why


def test_a_disk_without_programs_is_noticed(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "ST_NOEXEC", 8, raising=False)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=8))
    said = compiling.noexec("/scratch/of/someone")
    assert "mounted with the option noexec" in said and "Set TMPDIR" in said


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="needs g++ on Linux")
def test_a_compiler_that_links_libstdcxx_statically_is_noticed(tmp_path):
    """Seen on a GPU machine: errors that left such a library ended the process."""
    compiler = tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@" -static-libstdc++\n')
    compiler.chmod(0o755)
    assert "statically" in compiling.own_runtime(str(compiler)) and compiling.own_runtime("g++") is None


def test_a_relative_folder_is_refused(monkeypatch, tmp_path):
    for variable, path in (("TORCHCOURSE_DATA", place.root_folder), ("TORCHCOURSE_PROGRESS", reports.path)):
        monkeypatch.setenv(variable, "data")
        with pytest.raises(CourseError, match=f'{variable} is "data".*for example {Path("data").absolute()}'):
            path()
        monkeypatch.setenv(variable, str(tmp_path))
        assert path() == tmp_path
        monkeypatch.setenv(variable, "~/data")
        assert path() == Path.home() / "data"


def nowhere(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "TORCHCOURSE_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])


def test_the_doctor_names_the_variable(monkeypatch):
    for bring_about, name, found, fix in (
        (nowhere, "storage.data_folder", "could not be examined", "Set HOME to"),
        (lambda m: m.setenv("TORCHCOURSE_DATA", "data"), "storage.data_folder", "", 'TORCHCOURSE_DATA is "data"'),
        (lambda m: m.setattr(tempfile, "tempdir", "/" + 90 * "x"), "processes.workers", "91 char", "TMPDIR=/tmp"),
        (lambda m: m.setenv("OMP_PROC_BIND", "close"), "machine.threads", "OMP_PROC_BIND binds", "Unset it"),
        (lambda m: m.setenv("OMP_PLACES", "cores"), "machine.threads", "OMP_PLACES binds", "Unset it"),
    ):
        with monkeypatch.context() as changed:
            for variable in ("OMP_PROC_BIND", "OMP_PLACES"):
                changed.delenv(variable, raising=False)
            bring_about(changed)
            finding = ask(name, Examination(name))
        assert finding.ok is not True and found in finding.found and fix in finding.fix, finding


def test_a_cache_folder_needs_no_home(monkeypatch, tmp_path):
    nowhere(monkeypatch)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert place.root_folder() == tmp_path / "torchcourse"


def test_a_terminal_without_our_signs_shows_the_rest(monkeypatch, capfd):
    stream = open(1, "w", encoding="ascii", closefd=False)  # noqa: SIM115
    monkeypatch.setattr(sys, "stdout", stream)
    assert cli.main(["plan", "7B", "--sharding", "zero1", "--blocks", "3"]) == 0
    stream.flush()
    assert "7,000,000,000 parameters" in capfd.readouterr().out
