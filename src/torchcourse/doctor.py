"""Is this machine ready for the course? One small function for each finding, and for each failure its fix.

torchcourse doctor            in a terminal
torchcourse doctor --json     for scripts, and for a question in a forum
doctor.show()                 in a notebook
"""

from __future__ import annotations

import glob
import html
import math
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from json import dumps
from pathlib import Path

import torch

import torchcourse
from torchcourse import data, device
from torchcourse.checks.show import in_notebook
from torchcourse.data import files

OLDEST_PYTHON = (3, 11)
ROOMY = 1e9  # bytes: all data sets of the course, downloaded and unpacked, take about half of it

# ok -> (sign, word, color): the sign and the word say the same as the color
LOOKS = {True: ("✓", "fine", "#009E73"), False: ("✗", "mend this", "#D55E00"), None: ("○", "note", "#6B6B6B")}


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    ok: True is fine, False must be mended, None is worth knowing: the course runs all the same.
    found: what is there; fix: what to do, "" when there is nothing to do.
    """

    name: str
    ok: bool | None
    found: str
    fix: str = ""


def examine() -> list[Finding]:
    """All findings about this machine. Takes a second or so, changes nothing and raises nothing."""
    findings = []
    for name, look in EXAMINATIONS.items():
        try:
            ok, found, fix = look()
        except Exception as error:  # a strange machine must not hide the other findings
            ok, found, fix = None, f"could not be examined ({type(error).__name__}: {error})", ""
        findings.append(Finding(name, ok, found, fix))
    return findings


def main(json: bool = False) -> int:
    """Print the findings; the exit status is 1 if anything must be mended.

    json: print a list of objects with name, ok (true, false, null), found and fix.
    """
    findings = examine()
    print(dumps([asdict(f) for f in findings], indent=2, ensure_ascii=False) if json else as_text(findings))
    return int(any(finding.ok is False for finding in findings))


def show() -> None:
    """Show the findings under a notebook cell as a table, or print them."""
    findings = examine()
    if in_notebook():
        from IPython.display import display

        display({"text/html": as_html(findings), "text/plain": as_text(findings)}, raw=True)
    else:
        print(as_text(findings))


def as_text(findings: list[Finding]) -> str:
    """A line for each finding, its fix below it, and the verdict."""
    lines = []
    for finding in findings:
        lines.append(f"{LOOKS[finding.ok][0]} {finding.name:<16} {finding.found}")
        if finding.fix:
            lines.append(f"{'':<18} → {finding.fix}")
    return "\n".join([*lines, _verdict(findings)])


def as_html(findings: list[Finding]) -> str:
    """The same as a table."""
    rows = []
    for finding in findings:
        sign, word, color = LOOKS[finding.ok]
        fix = f"<br><b>→</b> {_inline(finding.fix)}" if finding.fix else ""
        rows.append(
            f'<tr><td style="text-align:left;white-space:nowrap;color:{color}"><b>{sign} {word}</b></td>'
            f'<td style="text-align:left;white-space:nowrap">{html.escape(finding.name)}</td>'
            f'<td style="text-align:left">{_inline(finding.found)}{fix}</td></tr>'
        )
    return f"<table>{''.join(rows)}</table><b>{html.escape(_verdict(findings))}</b>"


def _inline(text: str) -> str:
    """Escaped text in which `code` between backticks is set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _verdict(findings: list[Finding]) -> str:
    broken = [finding.name for finding in findings if finding.ok is False]
    return f"To be mended first: {', '.join(broken)}." if broken else "Ready for the course."


# ---------------------------------------------------------------------------------------------------------------------
# The examinations. Each returns (ok, found, fix).

Answer = tuple[bool | None, str, str]


def _python() -> Answer:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return False, version, f"Install Python {oldest} or newer and make a new environment with it."
    return True, version, ""


def _torch() -> Answer:
    version = torch.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < torchcourse.OLDEST_TORCH:
        return False, f"{version} is too old", "Run `pip install --upgrade torch torchvision`."
    return True, f"{version} ({_build()})", ""


def _build() -> str:
    """What this PyTorch was compiled for."""
    if torch.version.hip:
        return f"a build for AMD GPUs, ROCm {torch.version.hip}"
    if torch.version.cuda:
        return f"a build for NVIDIA GPUs, CUDA {torch.version.cuda}"
    accelerator = torch.accelerator.current_accelerator()
    return f"a build for {accelerator.type}" if accelerator else "a build for the CPU only"


def _torchvision() -> Answer:
    # Importing torchvision takes seconds, and fails in a puzzling way ("operator torchvision::nms does not exist")
    # beside a torch that it was not built for. What it was built for stands in its own list of requirements.
    from packaging.requirements import Requirement

    try:
        version = metadata.version("torchvision")
    except metadata.PackageNotFoundError:
        return False, "not installed", "Run `pip install torchvision`; pip chooses the one that fits your torch."
    for line in metadata.requires("torchvision") or []:
        need = Requirement(line)
        if need.name == "torch" and not need.specifier.contains(torch.__version__, prereleases=True):
            found = f"{version} needs torch{need.specifier}, and torch {torch.__version__} is installed"
            return False, found, "Run `pip install --upgrade torch torchvision`: both together, so that they fit."
    return True, f"{version}, fits this torch", ""


def _device() -> Answer:
    accelerator = torch.accelerator.current_accelerator()  # what the build is made for, whether or not it is there
    with warnings.catch_warnings(record=True) as said:  # a driver that is too old is told as a warning
        warnings.simplefilter("always")
        works = torch.accelerator.is_available()
    if works:
        return _device_computes(accelerator)
    if torch.version.cuda and os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None, "CPU; CUDA_VISIBLE_DEVICES hides every GPU", "Unset CUDA_VISIBLE_DEVICES to see the GPUs again."
    if torch.version.cuda and nvidia_gpus():
        reason = f" ({str(said[0].message).splitlines()[0]})" if said else ""
        fix = (
            "Update the NVIDIA driver, or install a PyTorch built for an older CUDA: `nvidia-smi` shows which it takes."
        )
        return False, f"this machine has an NVIDIA GPU, but PyTorch cannot use it{reason}", fix
    if nvidia_gpus() and not accelerator:
        fix = "To use the GPU, install the standard build: `pip install --force-reinstall torch torchvision`."
        return None, "CPU; there is an NVIDIA GPU, but this PyTorch is built for the CPU only", fix
    made_for = f"; this build could use {accelerator.type}, which does no harm" if accelerator else ""
    return True, f"CPU, no accelerator found{made_for}", ""


def _device_computes(accelerator: torch.device) -> Answer:
    """A device that is there may still fail at the first operation: so compute something."""
    count = torch.accelerator.device_count()
    found = f"{count} × {device.describe(accelerator)}"
    try:
        right = (torch.ones(3, device=accelerator) + 1).sum().item() == 6
    except RuntimeError as error:
        problem = str(error).splitlines()[0]
        if "no kernel image" in problem:
            fix = (
                "This PyTorch has no code for this GPU, which is too old or too new for it: compare "
                "`torch.cuda.get_arch_list()` with `torch.cuda.get_device_capability()`, then install one that has."
            )
        elif "out of memory" in problem:
            fix = "Somebody's program fills the GPU: `nvidia-smi` names it. Perhaps another notebook of yours?"
        else:
            fix = "Restart the kernel; if that does not help, update the driver of the device."
        return False, f"{found}, but it does not compute: {problem}", fix
    return right, found if right else f"{found}, but it computes wrongly", "" if right else "Restart the machine."


def nvidia_gpus() -> bool:
    """Whether the operating system shows an NVIDIA GPU to this process (Linux), whatever PyTorch thinks."""
    return bool(glob.glob("/dev/nvidia[0-9]*"))


def _threads() -> Answer:
    threads, usable, quota = torch.get_num_threads(), usable_cpus(), cpu_quota()
    found = f"{threads} for one operation, on {usable} usable CPU cores"
    if quota and threads > math.ceil(quota):
        # PyTorch counts the cores that it may run on, and knows nothing of a quota of time on them.
        fix = (
            f"Set OMP_NUM_THREADS={math.ceil(quota)} before Python starts: more threads than that slow each other down."
        )
        return None, f"{found}, but a quota gives this process the time of {quota:g}", fix
    if threads == 1 and usable > 1:
        reason = "OMP_NUM_THREADS is 1" if os.environ.get("OMP_NUM_THREADS") == "1" else "the others stand idle"
        return None, f"{found}: {reason}", f"For more speed, `torch.set_num_threads({usable})`."
    return True, found, ""


def usable_cpus() -> int:
    """How many CPU cores this process may run on; a cluster job may own few of the many that a node has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float | None:
    """CPUs' worth of time that a container or a hub grants this process (Linux, cgroup v2); None: no limit known.

    cgroups, own: where the kernel tells about control groups; others in tests.
    """
    try:
        group = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    here, quotas = cgroups / group.strip("/"), []
    for folder in (here, *here.parents):  # the tightest of the group's own limit and those above it
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()[:2]
            quotas += [] if quota == "max" else [int(quota) / int(period)]
    return min(quotas, default=None)


def _data_folder() -> Answer:
    root = data.root_folder()
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    where = shown(root)
    if not existing.is_dir():
        return False, f"{where} is a file, not a folder", "Set TORCHCOURSE_DATA to a folder."
    if not os.access(existing, os.W_OK):
        if all(files.locate(name, split, root) for name in data.NAMES for split in data.SPLITS):
            return True, f"{where}: read-only, and all data sets are in it", ""
        fix = "Set TORCHCOURSE_DATA to a folder that you may write to, or ask whoever keeps this one."
        return None, f"{where}: read-only, and not all data sets are in it", fix
    free = shutil.disk_usage(existing).free
    found = f"{where}: writable, {free / 1e9:.0f} GB free"
    if free < ROOMY:
        return None, found, "Set TORCHCOURSE_DATA to a folder on a disk with more room before you download."
    return True, found, ""


def _data_sets() -> Answer:
    rows = data.overview()
    for row in rows:
        if row["problem"]:
            return False, f"{row['name']} is damaged", row["problem"]
    drawn = {row["name"]: None for row in rows if row["origin"] == "drawn"}  # a dict keeps the order
    real = {row["name"]: None for row in rows if row["name"] not in drawn}
    if not drawn:
        return True, f"real: {', '.join(real)}", ""
    found = f"not here yet: {', '.join(drawn)}" + (f"; real: {', '.join(real)}" if real else "")
    name = next(iter(drawn))
    fix = f"`torchcourse data fetch {name}` gets it where there is a network; without one, drawn look-alikes serve."
    return None, found, fix


def _kernel() -> Answer:
    """Whether notebooks run in the environment that this is: packages installed elsewhere are not found there."""
    here = f"Python {sys.version_info[0]}.{sys.version_info[1]} in {shown(Path(sys.prefix))}"
    if in_notebook():
        return True, f"this notebook runs {here}", ""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        return False, "Jupyter is not installed here", "Run `pip install jupyterlab ipykernel`."
    try:
        program = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return False, "Jupyter has no kernel named python3", "Run `pip install ipykernel`."
    if os.path.isabs(program):
        # The folder of the program, not where the program leads to: the Pythons of two environments are often
        # links to one and the same file.
        if same_folder(program, sys.executable):
            return True, f"notebooks run {here}", ""
        fix = "Run `python -m ipykernel install --sys-prefix --name python3` in the environment of the course."
        return False, f"notebooks run another Python, {shown(Path(program))}, not {here}", fix
    # "python" alone: Jupyter starts the Python that it runs on itself.
    jupyter = shutil.which("jupyter")
    if jupyter and same_folder(jupyter, sys.executable):
        return True, f"notebooks run {here}", ""
    found = (
        f"the command `jupyter` belongs to {shown(Path(jupyter).parent)}" if jupyter else "no command `jupyter` found"
    )
    return None, f"{found}; this is {here}", "Activate this environment, or start with `python -m jupyterlab` in it."


def same_folder(one: str, other: str) -> bool:
    """Whether two programs lie in one folder, links in the folders' own path resolved."""
    return os.path.realpath(os.path.dirname(one)) == os.path.realpath(os.path.dirname(other))


def shown(path: Path) -> str:
    """A path in few words, without the name of the user: what people paste into forums."""
    given = os.environ.get("TORCHCOURSE_DATA")
    if given and path == data.root_folder():
        return "$TORCHCOURSE_DATA"
    if path == Path(sys.prefix):
        return f"the environment {path.name}"
    return str(Path("~") / path.relative_to(Path.home())) if path.is_relative_to(Path.home()) else str(path)


EXAMINATIONS: dict[str, Callable[[], Answer]] = {
    "Python": _python,
    "PyTorch": _torch,
    "torchvision": _torchvision,
    "device": _device,
    "threads": _threads,
    "data folder": _data_folder,
    "data sets": _data_sets,
    "notebook kernel": _kernel,
}
