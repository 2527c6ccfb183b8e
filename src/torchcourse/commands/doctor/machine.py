"""The hardware, and how much of it this process may use: device, driver, threads, memory, clock."""

from __future__ import annotations

import ctypes
import glob
import math
import os
import sys
import time
import warnings
from datetime import datetime
from importlib import metadata
from pathlib import Path

import torch

from torchcourse import device
from torchcourse.commands.doctor.finding import Answer

MIB = 2**20
CHAPTERS_TAKE = 3000 * MIB  # the hungriest notebook of the course
SMALLEST_SHM = 32 * MIB  # less than this, and even the small batches of the course do not fit
ROOMY_SHM = 500 * MIB  # batches of other people's programs, several of them waiting


# ---------------------------------------- device and driver


def accelerator() -> Answer:
    """Which device will compute, and does it?"""
    found = torch.accelerator.current_accelerator()  # what the build is made for, whether or not it is there
    with warnings.catch_warnings(record=True) as said:  # a driver that is too old is told as a warning
        warnings.simplefilter("always")
        works = torch.accelerator.is_available()
    if works:
        return _computes(found)
    if torch.version.cuda and os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None, "CPU; CUDA_VISIBLE_DEVICES hides every GPU", "Unset CUDA_VISIBLE_DEVICES to see the GPUs again."
    if torch.version.cuda and nvidia_gpus():
        reason = f" ({str(said[0].message).splitlines()[0]})" if said else ""
        fix = (
            "Update the NVIDIA driver, or install a PyTorch built for an older CUDA: `nvidia-smi` shows which it takes."
        )
        return False, f"this machine has an NVIDIA GPU, but PyTorch cannot use it{reason}", fix
    if nvidia_gpus() and not found:
        fix = "To use the GPU, install the standard build: `pip install --force-reinstall torch torchvision`."
        return None, "CPU; there is an NVIDIA GPU, but this PyTorch is built for the CPU only", fix
    made_for = f"; this build could use {found.type}, which does no harm" if found else ""
    return True, f"CPU, no accelerator found{made_for}", ""


def _computes(accelerator: torch.device) -> Answer:
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
            fix = "Another program fills the GPU: `nvidia-smi` names it. Perhaps another notebook of yours?"
        else:
            fix = "Restart the kernel; if that does not help, update the driver of the device."
        return False, f"{found}, but it does not compute: {problem}", fix
    return right, found if right else f"{found}, but it computes wrongly", "" if right else "Restart the machine."


def nvidia_gpus() -> bool:
    """Whether the operating system shows an NVIDIA GPU to this process (Linux), whatever PyTorch thinks."""
    return bool(glob.glob("/dev/nvidia[0-9]*"))


def driver() -> Answer:
    """Is the NVIDIA driver new enough for the CUDA that this PyTorch was built with?"""
    takes = driver_cuda()
    if takes is None:
        if nvidia_gpus():
            fix = "Install the NVIDIA driver; a container needs `--gpus all`."
            return False, "this machine has an NVIDIA GPU, but no driver of it can be loaded", fix
        return True, "no NVIDIA driver, and none needed", ""
    version = f" {driver_version()}" if driver_version() else ""
    found = f"NVIDIA{version}, takes CUDA up to {takes[0]}.{takes[1]}"
    if not torch.version.cuda:
        return True, found, ""
    found += f"; this PyTorch is built with CUDA {torch.version.cuda}"
    if int(torch.version.cuda.split(".")[0]) > takes[0]:  # within one major version, newer code runs on older drivers
        fix = (
            "Update the driver, or take a build for its CUDA: https://pytorch.org/get-started/locally lists them, "
            "`pip install torch torchvision --index-url https://download.pytorch.org/whl/cu126` for example."
        )
        return False, found, fix
    return True, found, ""


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that the NVIDIA driver takes, as (major, minor); None where there is no driver."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()  # 13020 is 13.2
    failed = library.cuDriverGetVersion(ctypes.byref(number))
    return None if failed or not number.value else (number.value // 1000, number.value % 1000 // 10)


def driver_version(told: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The version of the driver itself, as the kernel tells it (Linux)."""
    words = told.read_text().split() if told.is_file() else []
    return next((word for word in words if word.count(".") in (1, 2) and word.replace(".", "").isdigit()), "")


# ---------------------------------------- processors and memory


def threads() -> Answer:
    """Does an operation use the cores that this process may use, and no more?"""
    count, usable, quota = torch.get_num_threads(), usable_cpus(), cpu_quota()
    found = f"{count} for one operation, on {usable} usable CPU cores"
    if quota and count > math.ceil(quota):
        # PyTorch counts the cores that it may run on, and knows nothing of a quota of time on them.
        fix = (
            f"Set OMP_NUM_THREADS={math.ceil(quota)} before Python starts: more threads than that slow each other down."
        )
        return None, f"{found}, but a quota gives this process the time of {quota:g}", fix
    bound = [name for name in ("OMP_PLACES", "GOMP_CPU_AFFINITY", "OMP_PROC_BIND") if os.environ.get(name)]
    if bound and os.environ.get("OMP_PROC_BIND", "").lower() != "false":
        fix = "Unset it, or your own scripts, their workers, and their ranks share that core. The course overrides it."
        return None, f"{found}; {bound[-1]} binds a process and all that it starts to one core", fix
    if count == 1 and usable > 1:
        reason = "OMP_NUM_THREADS is 1" if os.environ.get("OMP_NUM_THREADS") == "1" else "the others are idle"
        return None, f"{found}: {reason}", f"For more speed, `torch.set_num_threads({usable})`."
    return True, found, ""


def usable_cpus() -> int:
    """How many CPU cores this process may run on; a cluster job may own few of the many that a node has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> Answer:
    """Is there enough memory for the chapters?"""
    import psutil

    now, limit = psutil.virtual_memory(), memory_limit()
    found = f"{_gb(now.total)}, {_gb(now.available)} of it free"
    if limit and limit < now.total:
        found += f"; this process may have {_gb(limit)}"
    if min(now.available, limit or now.available) < CHAPTERS_TAKE:
        fix = f"The largest chapters take {_gb(CHAPTERS_TAKE)}: shut down other kernels, or ask for a larger server."
        return None, found, fix
    return True, found, ""


def _gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count < 9.95e9 else f"{count / 1e9:.0f} GB"


def shared_memory(folder: Path = Path("/dev/shm")) -> Answer:
    """Is there room where the workers of a DataLoader hand over their batches?"""
    if sys.platform != "linux":
        return True, "this system needs no /dev/shm", ""
    room = "more room with `docker run --shm-size=1g`; on a hub, ask for a larger /dev/shm"
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        return False, f"{folder} is missing or cannot be written to", f"`num_workers=0` in every DataLoader; or {room}."
    space = os.statvfs(folder)
    size, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    found = f"{folder}: {_mb(size)}, {_mb(free)} free"
    if free < SMALLEST_SHM:
        return False, found, f"Workers of a DataLoader will die with a bus error: `num_workers=0`; or {room}."
    if free < ROOMY_SHM:
        fix = f"Enough for the course. Where large batches end in a bus error: `num_workers=0`; or {room}."
        return None, found, fix
    return True, found, ""


def _mb(count: float) -> str:
    return _gb(count) if count >= 1e9 else f"{count / MIB:.0f} MiB"


# ---------------------------------------- limits of containers and hubs (Linux control groups)

CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")  # where the kernel tells; others in tests


def cpu_quota(cgroups: Path = CGROUPS, own: Path = OWN) -> float | None:
    """CPUs' worth of time that a container or a hub grants this process; None: no limit known."""
    quotas = []
    for folder in _groups("cpu", cgroups, own):
        new, old = _words(folder / "cpu.max"), _words(folder / "cpu.cfs_quota_us")
        if new and new[0] != "max":
            quotas.append(int(new[0]) / int(new[1]))
        elif old and int(old[0]) > 0:  # -1: no limit
            quotas.append(int(old[0]) / int(_words(folder / "cpu.cfs_period_us")[0]))
    return min(quotas, default=None)


def memory_limit(cgroups: Path = CGROUPS, own: Path = OWN) -> int | None:
    """Bytes that this process and its group may have; None: no limit known."""
    limits = []
    for folder in _groups("memory", cgroups, own):
        for words in (_words(folder / "memory.max"), _words(folder / "memory.limit_in_bytes")):
            if words and words[0] != "max" and int(words[0]) < 2**60:  # version 1 writes "none" as a huge number
                limits.append(int(words[0]))
    return min(limits, default=None)


def _groups(controller: str, cgroups: Path, own: Path) -> list[Path]:
    """The folders of this process's group and of all groups above it: the tightest limit on the way up holds.

    Version 2 has one tree ("0::/job"), version 1 a tree for each controller ("4:memory:/job"); some machines have both.
    """
    folders = []
    for line in own.read_text().splitlines() if own.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            tree = cgroups
        elif controller in controllers.split(","):
            tree = next((cgroups / name for name in (controllers, controller) if (cgroups / name).is_dir()), None)
        else:
            continue
        if tree:
            here = tree / path.strip("/")
            folders += [folder for folder in (here, *here.parents) if folder.is_relative_to(tree)]
    return folders


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


# ---------------------------------------- clock


def clock() -> Answer:
    """Is the date plausible, and is the clock fine enough for timings?"""
    now, resolution = time.time(), time.get_clock_info("perf_counter").resolution
    here = datetime.fromtimestamp(now).astimezone()
    found = f"{here:%Y-%m-%d %H:%M} (UTC{here:%z}), finest timing {_short(max(resolution, _tick()))}"
    if now < installed() - 86400:
        return False, f"{found}: before PyTorch was made", "Set the date: downloads and file times go wrong without."
    if resolution > 1e-3:
        return None, found, "Timings below some milliseconds mean nothing on this machine."
    return True, found, ""


def installed() -> float:
    """When the files of the installed PyTorch were written: an earlier date cannot be right."""
    origin = metadata.distribution("torch").locate_file("torch/version.py")
    return os.stat(origin).st_mtime


def _tick() -> float:
    """The smallest step that the clock for timings was seen to make."""
    steps = []
    for _ in range(20):
        start = time.perf_counter()
        while (step := time.perf_counter() - start) <= 0:
            pass
        steps.append(step)
    return min(steps)


def _short(seconds: float) -> str:
    return f"{seconds * 1e9:.0f} ns" if seconds < 1e-6 else f"{seconds * 1e6:.0f} µs"
