"""The doctor: each finding on machines that we pretend to have."""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import types
import urllib.error
import warnings
from collections.abc import Callable
from dataclasses import replace
from http.client import InvalidURL
from importlib import metadata
from pathlib import Path

import pytest
import torch
from conftest import need
from environments import small_machine
from support.data_files import tensors, write_cache
from support.submissions import put as write

from tools import course
from torchcourse import data, importing
from torchcourse.commands import cli, doctor
from torchcourse.commands.doctor import Examination, Finding, machine, processes, report, software, storage
from torchcourse.commands.doctor.finding import ask, shown, without_machine, without_user


def says(answer: tuple, ok: bool | None, found: str = "", fix: str = "") -> bool:
    """Whether an examination came to this verdict, with these words in its finding and in its fix."""
    assert answer[0] is ok and found in answer[1] and fix in answer[2], answer
    return True


def raises(error: Exception) -> Callable:
    """A function that only raises an error."""

    def function(*args: object, **options: object) -> None:
        raise error

    return function


@pytest.fixture
def pretend(monkeypatch):
    """`pretend(module, name=value)`: until the end of the test, a function of the module returns this value.

    Something that can be called takes the function's place instead.
    """

    def pretended(module, **values):
        for name, value in values.items():
            monkeypatch.setattr(module, name, value if callable(value) else lambda *_, value=value, **__: value)

    return pretended


@pytest.fixture
def no_gpu(pretend, monkeypatch):
    """A machine without an accelerator; the tests that pretend otherwise start from here."""
    pretend(torch.accelerator, is_available=False, current_accelerator=None)
    pretend(machine, nvidia_gpus=False, driver_cuda=None)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


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


# The report


def test_this_machine_is_examined_and_in_order(examined):
    assert [finding.name for finding in examined] == list(doctor.EXAMINATIONS)
    assert all(finding.found and "could not be examined" not in finding.found for finding in examined)
    assert all(finding.fix for finding in examined if finding.ok is False), "each failure has its fix"
    of = {finding.name: finding for finding in examined}
    for name in ("Python", "PyTorch", "torchvision", "write permission", "DataLoader workers", "gloo", "clock"):
        assert of[name].ok is True, of[name]
    assert of["data sets"].ok is not False, "the checksums in the package are those of the published files"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("doctor")]
    assert not list(Path.cwd().glob(".doctor-*"))
    told = report.as_json(examined)  # which others may read
    assert socket.gethostname() not in told or len(socket.gethostname()) < 3
    assert str(Path.home()) + "/" not in told


PATIENT_DOCTOR = """
import os
from dataclasses import replace
from labcheck import ranks
from torchcourse import distributed
from torchcourse.commands import doctor
from torchcourse.commands.doctor import processes

def another_group():
    import torch.distributed as dist
    group = dist.new_group()
    dist.barrier(group)
    return dist.get_world_size(group)

with distributed.setup("gloo", alone=True) as me:
    print("alone", me.world_size, "GLOO_SOCKET_IFNAME" in os.environ)
outcome = ranks.run(another_group)
print("check", outcome.values, [rank.errors for rank in outcome])
processes.WORKERS_LIMIT = processes.RANKS_LIMIT = 60
for name, examination in doctor.EXAMINATIONS.items():
    doctor.EXAMINATIONS[name] = replace(examination, limit=180)
doctor.main(json=True)
"""


def test_on_a_small_machine_without_network(tmp_path):
    """Two cores, 64 MiB of /dev/shm, no network: enough for the course, and each process of it works. No process group
    looks up the name of the machine: gloo's warning would come from below Python, into the middle of a notebook."""
    need("bubblewrap")
    command = [*small_machine(tmp_path), sys.executable, "-c", PATIENT_DOCTOR]
    env = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
    env |= {"TORCHCOURSE_DATA": str(tmp_path / "nothing")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    groups, report_at, findings = done.stdout.partition("{")
    assert "alone 1 False\n" in groups and "check [2, 2] ['', '']\n" in groups, done
    told = {finding["name"]: finding for finding in json.loads(report_at + findings)["findings"]}
    assert told["shared memory"]["ok"] is None and "64 MiB" in told["shared memory"]["found"]
    assert told["data sets"]["ok"] is None
    assert told["host name"]["ok"] is False and "PET_LOCAL_ADDR" in told["host name"]["fix"]
    for name in ("DataLoader workers", "ports", "gloo"):
        assert told[name]["ok"] is not False, told[name]
    assert done.stderr == ""


def test_verdict_and_exit_status(examinations, capsys):
    examinations(a=(True, "good", ""), b=(None, "so", "Hm."))
    assert doctor.main() == 0
    out = capsys.readouterr().out
    assert "✓ a" in out and "○ b" in out and "Ready for the course." in out
    examinations(torchvision=(False, "is bad", "Do this."), disk=(None, "so", ""))
    assert doctor.main() == 1
    out = capsys.readouterr().out
    assert "✗ torchvision" in out and "→ Do this." in out and "Fix this first: torchvision." in out
    doctor.show()  # outside of Jupyter it prints
    assert "torchvision" in capsys.readouterr().out


def test_what_breaks_or_hangs_becomes_a_finding_and_hides_no_other(monkeypatch):
    strange = Examination(raises(OSError("the disk is on fire")))
    monkeypatch.setattr(doctor, "EXAMINATIONS", {"strange": strange, "Python": Examination(software.python)})
    first, second = doctor.examine()
    assert first.ok is None and "the disk is on fire" in first.found
    assert second.ok is True
    woken = threading.Event()
    finding = ask("disk", Examination(lambda: woken.wait(60) and (True, "", ""), 0.1, "Tell someone."))
    woken.set()
    assert finding.ok is False and "no answer within 0.1 s" in finding.found and finding.fix == "Tell someone."


def test_the_report_as_json_and_as_html(examinations, capsys):
    examinations(threads=(None, "1 × cpu", "More."))
    assert cli.main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.keys() == {"format", "torchcourse", "ready", "seconds", "findings"}
    assert told["format"] == 1 and told["ready"] is True
    (finding,) = told["findings"]
    assert finding.pop("seconds") >= 0
    assert finding == {"name": "threads", "ok": None, "found": "1 × cpu", "fix": "More."}
    page = report.as_html([Finding("device", False, "<b>torch</b>", "a < b: `x`")])
    assert "&lt;b&gt;torch" in page and "a &lt; b: <code>x</code>" in page and "✗ fix this" in page


# A class


def test_the_reports_of_a_class_are_pooled(tmp_path, capsys):
    """Three students: one is ready, two have trouble with gloo, one of them with the disk as well."""
    trouble = {
        "ada": [Finding("disk", True, ""), Finding("gloo", True, "")],
        "bob": [Finding("disk", None, "", "Hm."), Finding("gloo", False, "", "Do this.")],
        "eve": [Finding("disk", False, "", "Do that."), Finding("gloo", False, "", "Do this.")],
    }
    for who, findings in trouble.items():
        (tmp_path / f"{who}.json").write_text(report.as_json(findings))
    reports = [str(tmp_path / f"{who}.json") for who in trouble]
    assert cli.main(["doctor", "--pool", *reports]) == 1
    out = capsys.readouterr().out
    assert "3 reports, 1 ready" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["gloo", "2", "0", "1"] in rows and ["disk", "1", "1", "1"] in rows
    assert rows.index(["gloo", "2", "0", "1"]) < rows.index(["disk", "1", "1", "1"]), "the most frequent comes first"
    assert ["bob", "gloo"] in rows and ["eve", "disk,", "gloo"] in rows and "ada" not in out
    assert cli.main(["doctor", "--pool", reports[0]]) == 0
    assert capsys.readouterr().out.strip() == "1 report, 1 ready for the course."


def test_what_is_no_report_is_refused_in_a_sentence(tmp_path, capsys):
    path = tmp_path / "ada.json"
    for content, word in ((None, "cannot be read"), ("{}", "not a report"), ('{"format": 2}', "form 2")):
        if content is not None:
            path.write_text(content)
        assert cli.main(["doctor", "--pool", str(path)]) == 1
        err = capsys.readouterr().err
        assert word in err and err.startswith("torchcourse: ") and err.count("\n") == 1


# Versions and packages


def test_old_python_and_another_encoding(monkeypatch):
    with monkeypatch.context() as old:
        old.setattr(sys, "version_info", (3, 9, 1, "final", 0))
        assert says(software.python(), False, "3.9.1", "3.11")
    monkeypatch.setattr(software, "sys", types.SimpleNamespace(flags=types.SimpleNamespace(utf8_mode=0)))
    monkeypatch.setattr(software.locale, "getencoding", lambda: "cp1252")
    assert says(software.text_encoding(), None, "cp1252", "PYTHONUTF8")


def test_torchvision(pretend, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.15.0+cu132")
    pretend(metadata, version="0.30.0")
    for fits in (["numpy", "torch==2.15.0", "scipy; extra == 'scipy'"], ["torch>=2.14.0"], None):
        pretend(metadata, requires=fits)
        assert says(software.torchvision(), True, "0.30.0")
    for needs_another in (["torch==2.12.0"], ["torch (<2.15)"]):
        pretend(metadata, requires=needs_another)
        assert says(software.torchvision(), False, "0.30.0", "both together")
    pretend(metadata, version=raises(metadata.PackageNotFoundError("torchvision")))
    assert says(software.torchvision(), False, fix="pip install torchvision")


def test_where_packages_come_from(monkeypatch, tmp_path):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert says(software.packages(), True, "one place")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert says(software.packages(), None, "PYTHONPATH is set", "PYTHONPATH")
    monkeypatch.delenv("PYTHONPATH")
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(importing.site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(importing.site, "getusersitepackages", lambda: str(tmp_path))
    monkeypatch.delitem(sys.modules, "numpy")  # found again, not imported
    assert says(software.packages(), None, "numpy from", "PYTHONPATH")


def test_a_file_that_hides_a_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torchcourse").mkdir()  # what `git clone` leaves: a folder, not a package
    for harmless in ("torchcourse/README.md", "test.py", "my_torch.py", "torch.txt"):
        (tmp_path / harmless).touch()
    assert says(software.names(), True)
    for made in ("torch.py", "random.py", "torchcourse/__init__.py"):
        (tmp_path / made).touch()
        assert says(software.names(), False, made.split("/")[0], "Rename it")
        (tmp_path / made).unlink()
    monkeypatch.chdir(course.ROOT / "src")
    assert says(software.names(), True), "the package itself hides nothing"


# Device and threads


def test_no_accelerator_works(no_gpu, pretend, monkeypatch):
    for built_for, gpu, visible, ok, found, fix in (
        (None, False, None, True, "no accelerator", ""),
        ("13.0", False, None, True, "could use cuda", ""),  # the standard build on a machine without a GPU
        (None, True, None, None, "built for the CPU only", "pip install"),
        ("13.0", True, "", None, "CUDA_VISIBLE_DEVICES hides", "Unset"),
    ):
        monkeypatch.setattr(torch.version, "cuda", built_for)
        pretend(torch.accelerator, current_accelerator=torch.device("cuda") if built_for else None)
        pretend(machine, nvidia_gpus=gpu)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert says(machine.accelerator(), ok, found, fix)


def test_gpu_with_an_old_driver(no_gpu, pretend, monkeypatch):
    def old_driver():
        warnings.warn("The NVIDIA driver on your system is too old (found version 11040).", stacklevel=1)
        return False

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    pretend(torch.accelerator, current_accelerator=torch.device("cuda"), is_available=old_driver)
    pretend(machine, nvidia_gpus=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning becomes part of the finding and does not appear twice
        assert says(machine.accelerator(), False, "too old", "driver")


def test_a_gpu_that_is_there(no_gpu, pretend):
    pretend(torch.accelerator, is_available=True, device_count=2, current_accelerator=torch.device("cuda"))
    pretend(machine.device, describe="cuda (A Fine GPU)")
    ones = torch.ones
    pretend(torch, ones=lambda *shape, device: ones(*shape))
    assert machine.accelerator() == (True, "2 × cuda (A Fine GPU)", "")
    pretend(torch, ones=lambda *shape, device: 7 * ones(*shape))
    assert says(machine.accelerator(), False, "computes wrongly", "Restart")
    for message, fix in (
        ("CUDA error: no kernel image is available for execution on the device", "get_arch_list"),
        ("CUDA out of memory. Tried to allocate 2.00 MiB", "nvidia-smi"),
        ("CUDA error: unknown error", "Restart"),
    ):
        pretend(torch, ones=raises(RuntimeError(message)))
        assert says(machine.accelerator(), False, message, fix)


def test_driver(pretend, monkeypatch):
    for takes, built, gpu, ok, word in (
        (None, "13.0", False, True, "none needed"),
        (None, "13.0", True, False, "no driver"),
        ((13, 0), "13.2", True, True, "built with CUDA 13.2"),  # newer code of one major version runs
        ((12, 4), "13.0", True, False, "takes CUDA up to 12.4"),
        ((12, 4), None, True, True, "takes CUDA up to 12.4"),
    ):
        pretend(machine, driver_cuda=takes, nvidia_gpus=gpu)
        monkeypatch.setattr(torch.version, "cuda", built)
        assert says(machine.driver(), ok, word)


def test_threads_and_memory(pretend):
    import psutil

    for threads, cores, quota, ok, word in (
        (8, 8, 8.0, True, ""),
        (2, 8, 1.5, True, ""),
        (16, 64, 2.0, None, "OMP_NUM_THREADS=2"),
        (1, 8, None, None, "set_num_threads(8)"),
    ):
        pretend(torch, get_num_threads=threads)
        pretend(machine, usable_cpus=cores, cpu_quota=quota)
        assert says(machine.threads(), ok, fix=word)
    for free, limit, ok in ((8e9, None, True), (1e9, None, None), (8e9, 2e9, None)):
        pretend(psutil, virtual_memory=types.SimpleNamespace(total=16e9, available=free))
        pretend(machine, memory_limit=limit)
        assert says(machine.memory(), ok, "16 GB")


def test_the_tightest_limit_on_the_way_up_holds(tmp_path):
    own, job, older = tmp_path / "cgroup", tmp_path / "slurm" / "job", tmp_path / "older"

    def limits(folder: Path) -> tuple:
        return machine.cpu_quota(folder, own), machine.memory_limit(folder, own)

    assert limits(tmp_path) == (None, None)
    write(own, "1:cpu:/old\n0::/slurm/job\n")
    write(job / "cpu.max", "max 100000\n")
    assert limits(tmp_path) == (None, None)
    write(job.parent / "cpu.max", "250000 100000\n")
    write(job / "cpu.max", "400000 100000\n")
    write(job / "memory.max", "4000000000\n")
    assert limits(tmp_path) == (2.5, 4_000_000_000)
    # Version 1 has a tree for each controller, and -1 or a huge number where there is no limit.
    write(own, "4:memory:/hub/ada\n1:cpu,cpuacct:/hub\n0::/\n")
    write(older / "cpu,cpuacct/hub/cpu.cfs_quota_us", "-1\n")
    write(older / "memory/hub/ada/memory.limit_in_bytes", "9223372036854771712\n")
    assert limits(older) == (None, None)
    write(older / "cpu,cpuacct/hub/cpu.cfs_quota_us", "150000\n")
    write(older / "cpu,cpuacct/hub/cpu.cfs_period_us", "100000\n")
    write(older / "memory/hub/memory.limit_in_bytes", "2000000000\n")
    assert limits(older) == (1.5, 2_000_000_000)


def test_the_doctor_asks_for_as_much_memory_as_the_hungriest_chapter():
    budgets = [limit["mib"] for c in course.chapters() for kind in c.budget.values() for limit in kind.values()]
    assert max(budgets) * machine.MIB == machine.CHAPTERS_TAKE


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/shm")
def test_shared_memory(pretend, tmp_path):
    assert says(machine.shared_memory(tmp_path / "not there"), False, fix="num_workers=0")
    for mib, ok, word in ((8, False, "num_workers=0"), (64, None, "--shm-size"), (4000, True, "")):
        pretend(os, statvfs=types.SimpleNamespace(f_blocks=mib, f_bavail=mib, f_frsize=2**20))
        assert says(machine.shared_memory(Path("/dev/shm")), ok, fix=word)


# Disk and data


def test_folders_that_cannot_be_written_to_and_a_clock_that_is_wrong(pretend, tmp_path):
    pretend(machine.time, time=1e9)  # before the installation
    assert says(machine.clock(), False, "2001", "Set the date")
    assert says(storage.permission(), None, "in the future")
    pretend(storage, places={"working folder": tmp_path / "not there"})
    assert says(storage.permission(), False, "working folder") and storage.permission()[2]


def test_a_full_disk(pretend):
    pretend(storage.shutil, disk_usage=types.SimpleNamespace(free=2e6))
    assert says(storage.disk(), False, "2 MB free", "du -sh")
    if hasattr(os, "posix_fallocate"):  # a quota that the free space does not show
        pretend(storage.shutil, disk_usage=types.SimpleNamespace(free=2e12))
        pretend(os, posix_fallocate=raises(OSError(storage.errno.EDQUOT, "Disk quota exceeded")))
        assert says(storage.disk(), False, "home folder: Disk quota exceeded")


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    return tmp_path / "data"


def test_the_data_folder(root, pretend):
    assert says(storage.data_folder(), True, "writable") and "$TORCHCOURSE_DATA" in storage.data_folder()[1]
    assert says(storage.data_sets(), None, "mnist", "torchcourse data fetch mnist")
    assert not root.exists(), "examining changes nothing"
    pretend(storage.shutil, disk_usage=types.SimpleNamespace(free=2e8))
    assert says(storage.data_folder(), None, fix="more room")
    root.write_text("not a folder")
    assert says(storage.data_folder(), False)


def test_a_proxy_or_a_certificate_is_not_a_missing_network(root, pretend, monkeypatch):
    monkeypatch.delenv("TORCHCOURSE_OFFLINE")
    proxy = {"https": "http://ada:secret@"}
    unknown = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]")
    for error, proxies, found, fix in (
        (OSError("Name or service not known"), {}, "; no network: Name", "set https_proxy to this"),
        (urllib.error.URLError(unknown), {}, "does not trust the certificate", "SSL_CERT_FILE"),
        (OSError("Tunnel connection failed: 407"), proxy, "the proxy in https_proxy", "HOST:PORT"),
        (InvalidURL("nonnumeric port: 'secret'"), proxy, "not an address", "HOST:PORT"),
        (urllib.error.HTTPError("", 403, "Forbidden", None, None), {}, "the server answers 403", "by hand"),
    ):
        pretend(urllib.request, urlopen=raises(error), getproxies=proxies)
        assert says(storage.data_sets(), None, found, fix) and "secret" not in str(storage.data_sets())
    pretend(urllib.request, urlopen=lambda *_, **__: contextlib.nullcontext())
    assert says(storage.data_sets(), None, "not here yet", "`torchcourse data fetch mnist` gets it")


def test_a_data_folder_that_is_read_only(root, pretend):
    root.mkdir()
    pretend(os, access=False)
    assert says(storage.data_folder(), None, "read-only", "TORCHCOURSE_DATA")
    for name in data.NAMES:  # complete: then nobody needs to write
        for split in data.SPLITS:
            (root / name).mkdir(exist_ok=True)
            (root / name / f"{split}.safetensors").touch()
    assert says(storage.data_folder(), True)


def test_real_data_are_named_and_what_only_looks_right_is_damaged(root, no_network, monkeypatch):
    for name in data.NAMES:
        for split in data.SPLITS:
            monkeypatch.setitem(data.catalog.SPECS[name].counts, split, 20)
            write_cache(root, name, split)
        if name == "mnist":
            assert says(storage.data_sets(), None, "not here yet: fashion_mnist, cifar10; real and whole: mnist")
    assert storage.data_sets() == (True, "real and whole: mnist, fashion_mnist, cifar10", "")
    for part, values in zip(("images", "labels"), tensors("mnist", 20), strict=True):
        write_cache(root, **{part: values.flip(0)})
        assert says(storage.data_sets(), False, "mnist is damaged", "torchcourse data fetch mnist")
        assert f"holds {part}" in storage.data_sets()[2]


# Several processes


@pytest.mark.parametrize("how", [lambda *_: os._exit(1), lambda *_: time.sleep(60)])
def test_workers_that_do_not_deliver(monkeypatch, how):
    monkeypatch.setattr(processes, "Squares", type("Failing", (processes.Squares,), {"__getitem__": how}))
    monkeypatch.setattr(processes, "WORKERS_LIMIT", 2)
    finding = ask("workers", Examination(processes.workers, 30))
    assert finding.ok is not True and finding.found


def test_what_helps_workers(pretend):
    for problem, word in (
        ("DataLoader worker (pid 7) is killed by signal: Bus error. insufficient shared memory (shm).", "/dev/shm"),
        ("Too many open files", "ulimit"),
        ("DataLoader timed out after 15 seconds", "Restart"),
        ("Caught RuntimeError in DataLoader worker process 0.\nTraceback:\n ...\nNo space left on device", "/dev/shm"),
    ):
        pretend(processes, DataLoader=raises(RuntimeError(problem)))
        assert says(processes.workers(), False, problem.splitlines()[-1], word)


def test_a_machine_that_does_not_know_its_own_name(pretend, monkeypatch):
    monkeypatch.delenv("PET_LOCAL_ADDR", raising=False)
    pretend(socket, getfqdn="nowhere.invalid")
    assert says(processes.host_name(), False, "own name", "PET_LOCAL_ADDR=127.0.0.1")
    monkeypatch.setenv("PET_LOCAL_ADDR", "127.0.0.1")
    assert says(processes.host_name(), True)


def test_ports(tmp_path, pretend, monkeypatch):
    told = tmp_path / "range"
    told.write_text("32768\t60999\n")
    ok, found, _ = processes.ports(told)
    assert ok is not False and "32768 to 60999" in found
    told.write_text("40000\t40100\n")
    assert says(processes.ports(told), None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(processes, "PORT", server.getsockname()[1])
        assert says(processes.ports(), None, "taken", "--standalone")
    pretend(socket, create_server=raises(PermissionError(13, "Permission denied")))
    assert says(processes.ports(), False, "Permission denied") and processes.ports()[2]


def test_gloo_leaves_the_environment_as_it_was(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth47")
    assert says(processes.gloo(), None, "eth47", "our own scripts need one")
    assert os.environ.get("GLOO_SOCKET_IFNAME") == "eth47"


def test_ranks_that_do_not_find_each_other(pretend):
    pretend(processes, _exchange=raises(RuntimeError("Connection refused\nand more lines")))
    assert says(processes.gloo(), False, "Connection refused", "MASTER_ADDR=127.0.0.1")
    assert "more lines" not in processes.gloo()[1]


# Notebook kernel


def test_kernel(monkeypatch, tmp_path):
    """The program that Jupyter's kernel starts, and where the command `jupyter` is."""
    other = tmp_path / "python"
    other.symlink_to(sys.executable)  # another environment with the very same Python behind it
    beside = os.path.join(os.path.dirname(sys.executable), "jupyter")
    specs = pytest.importorskip("jupyter_client.kernelspec")
    for program, jupyter, ok, fix in (
        (sys.executable, None, True, ""),
        (str(other), None, False, "ipykernel install"),
        ("python", beside, True, ""),
        ("python", "/somewhere/else/bin/jupyter", None, "python -m jupyterlab"),
    ):
        spec = types.SimpleNamespace(argv=[program])
        monkeypatch.setattr(specs.KernelSpecManager, "get_kernel_spec", lambda self, name, spec=spec: spec)
        monkeypatch.setattr(software.shutil, "which", lambda name, jupyter=jupyter: jupyter)
        assert says(software.kernel(), ok, fix=fix)
    monkeypatch.setattr(specs.KernelSpecManager, "get_kernel_spec", raises(specs.NoSuchKernel("python3")))
    assert says(software.kernel(), False, fix="ipykernel")
    monkeypatch.setattr(software, "in_notebook", lambda: True)
    assert says(software.kernel(), True), "in a notebook, the kernel is the one that asks"


# Paths


def test_reports_name_neither_user_nor_machine(root, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr(socket, "gethostname", lambda: "lab-pc-7")
    assert shown(root) == "$TORCHCOURSE_DATA"
    assert without_user(shown(Path("/home/ada/.cache/torchcourse"))) == str(Path("~/.cache/torchcourse"))
    assert shown(Path("/scratch/course")) == str(Path("/scratch/course"))
    told = "lab-pc-7: /home/ada/data and /scratch/ada/x, /home/adam, /other/home/ada stay"
    assert without_machine(without_user(told)) == "HOST: ~/data and /scratch/$USER/x, /home/adam, /other/home/ada stay"
    monkeypatch.setattr("getpass.getuser", raises(KeyError("getpwuid(): uid not found: 1234")))
    assert ask("device", Examination(lambda: (True, "CPU", ""))).found == "CPU", "a user without a name gets a report"
