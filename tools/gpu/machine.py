"""What this machine has and what it lacks, each with its fix in one sentence."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

OLDEST_PYTHON, OLDEST_TORCH = (3, 11), (2, 11)
WHEELS = "build/wheelhouse"

NEEDED = {  # module that is imported -> what for
    "torchvision": "the notebooks",
    "numpy": "the notebooks",
    "matplotlib": "the notebooks",
    "safetensors": "the data",
    "cloudpickle": "the checks of chapter 06",
    "psutil": "measuring",
    "tqdm": "executing notebooks",
    "ipykernel": "executing notebooks",
    "papermill": "executing notebooks",
    "nbclient": "executing notebooks",
    "nbconvert": "executing notebooks",
    "pytest": "the tests",
}
POWER = {"pynvml": "the energy of a training run"}  # of the package nvidia-ml-py, for torch.cuda.power_draw
HELPFUL = {"lightning": "a section of chapter 06", "accelerate": "a section of chapter 06"}


@dataclass(frozen=True)
class Finding:
    """One line: what was looked for, whether it is fine (None: worth knowing), what is there, and what to do."""

    name: str
    ok: bool | None
    found: str
    fix: str = ""

    def __str__(self) -> str:
        sign = {True: "✓", False: "✗", None: "○"}[self.ok]
        return f"{sign} {self.name:<12} {self.found}" + (f"\n{'':<15}→ {self.fix}" if self.fix else "")


def look(kind: str) -> list[Finding]:
    """All findings about this machine, for a run on devices of this kind."""
    return [python(), torch_version(), device(kind), driver(), *packages(), compiler(), data()]


def python() -> Finding:
    version = platform.python_version()
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding("Python", False, version, "Take a Python of 3.11 or newer: make gpu PYTHON=python3.12")
    return Finding("Python", True, f"{version}, {os.cpu_count()} processors")


def torch_version() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("PyTorch", False, "not installed", "Take the Python that has PyTorch: make gpu PYTHON=...")
    import torch

    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST_TORCH:
        return Finding("PyTorch", False, f"{torch.__version__} is too old", "The course needs PyTorch 2.11 or newer.")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    return Finding("PyTorch", True, f"{torch.__version__}, built with {build}")


def kind_of_device() -> str:
    """The kind of this machine's accelerator ("cuda"), or "cpu"."""
    if importlib.util.find_spec("torch") is None:
        return "cpu"
    import torch

    best = torch.accelerator.current_accelerator(check_available=True)
    return best.type if best else "cpu"


def device(kind: str) -> Finding:
    """The device that everything runs on."""
    if kind == "cpu":
        return Finding("device", None, "the processor, as asked for: this shows that it runs, and measures nothing")
    if kind_of_device() != kind:
        return Finding("device", False, f"no {kind} device")
    import torch

    count = torch.accelerator.device_count()
    names = sorted({torch.get_device_module(kind).get_device_name(index) for index in range(count)})
    memory = torch.get_device_module(kind).get_device_properties(0).total_memory / 2**30
    return Finding("device", True, f"{count} × {', '.join(names)}, {memory:.0f} GiB")


def no_device(kind: str) -> str:
    """What to do where there is no such device."""
    return (
        f"This command measures on a {kind} device, and PyTorch finds none here: run it on a machine that has one, "
        "or try the whole way with `python -m tools.gpu --on cpu --quick`."
    )


def driver() -> Finding:
    """The version of NVIDIA's driver, from nvidia-smi or from the kernel."""
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.split()
        except (OSError, subprocess.TimeoutExpired):
            said = []
        if said:
            return Finding("driver", True, said[0])
    try:
        words = Path("/proc/driver/nvidia/version").read_text().splitlines()[0].split()
    except (OSError, IndexError):
        return Finding("driver", None, "no NVIDIA driver found")
    return Finding("driver", True, next((word for word in words if word[:1].isdigit()), "unknown"))


def lacking(modules: dict[str, str]) -> list[str]:
    """Those of the modules that cannot be imported here."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def packages() -> list[Finding]:
    """Python packages: everything needed in one line, or a line for each that is missing."""
    fix = (
        f"Where there is a network, run `make wheelhouse` and bring {WHEELS} along (or `pip install` it here); "
        "--wheels names another folder."
    )
    found = [Finding(name, False, f"missing: {NEEDED[name]} need{'s' * (NEEDED[name] != 'the notebooks')} it", fix)
             for name in lacking(NEEDED)]  # fmt: skip
    if not found:
        versions = ", ".join(f"{name} {version(name)}" for name in ("torchvision", "numpy", "papermill"))
        found = [Finding("packages", True, f"all there ({versions}, ...)")]
    absent = lacking(HELPFUL)
    if absent:
        said = f"{' and '.join(absent)} not there: the cells of chapter 06 that use them say so and go on"
        found.append(Finding("frameworks", None, said))
    if lacking(POWER):
        said = "nvidia-ml-py not there: the energy of a training run will not be measured"
        found.append(Finding("power", None, said, "pip install nvidia-ml-py"))
    return found


def version(name: str) -> str:
    """Of an installed package; "?" where it does not tell."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "?"


def compiler() -> Finding:
    """torch.compile builds a small C program for a GPU's kernels, C++ for a processor's, both with Python.h."""
    found = next((name for name in (os.environ.get("CC"), "gcc", "cc", "clang") if name and shutil.which(name)), None)
    if not found:
        return Finding("compiler", None, "no C compiler", "torch.compile will not be measured: install gcc to have it.")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        remedy = "torch.compile will not be measured: install Python's headers (python3-dev) to have it."
        return Finding("compiler", None, f"{found}, but no Python.h", remedy)
    return Finding("compiler", True, f"{found}, for torch.compile")


def data() -> Finding:
    """Whether the real data sets are in reach. Reads nothing but names."""
    try:
        from torchcourse.data import files
        from torchcourse.data.catalog import SPECS
        from torchcourse.place import root_folder
    except ImportError as error:  # numpy may be missing still
        return Finding("data", None, f"not looked at ({error})")
    root = root_folder()
    absent = [
        what.title
        for name, what in SPECS.items()
        if any(files.locate(name, split, root) is None for split in ("train", "test"))
    ]
    if not absent:
        return Finding("data", True, f"all data sets in {root}")
    fix = (
        "Name a folder with --data (see `python -m tools.gpu pack-data`) or TORCHCOURSE_DATA; without the real data "
        "the notebooks run on synthetic images, and recipes are not measured."
    )
    return Finding("data", None, f"{', '.join(absent)} not in {root}", fix)
