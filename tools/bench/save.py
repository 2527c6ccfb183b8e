"""Write a measurement where the package finds it, with machine, versions and date."""

import datetime
import importlib.metadata
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import psutil
import torch

from torchcourse import measurements

PACKAGES = ("torch", "torchvision", "numpy")


def hardware(device: torch.device | str = "cpu") -> dict[str, Any]:
    """What a reader needs to judge a number measured on `device` of this machine."""
    device = torch.device(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    about = {
        "kind": device.type,
        "cpu": processor(),
        "cores": cores,
        "vector": torch.backends.cpu.get_cpu_capability(),  # AVX2, AVX512, ...: what PyTorch's kernels use
        "gib": round(psutil.virtual_memory().total / 2**30),
        "system": platform.system(),
    }
    if device.type == "cpu":
        return {"device": f"{cores} cores of {about['cpu']}"} | about
    backend = getattr(torch, device.type)
    return {"device": backend.get_device_name(device)} | about


def processor() -> str:
    """The processor as people call it. Rented machines often hide the model: then family and model numbers tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = re.sub(r"\((R|TM)\)|CPU|Processor|\d+-Core", "", facts.get("model name", platform.machine()))
    name = " ".join(name.split("@")[0].split())
    generation = {("25", "1"): "Zen 3", ("25", "17"): "Zen 4", ("26", "2"): "Zen 5"}
    zen = generation.get((facts.get("cpu family", ""), facts.get("model", "")))
    return f"{name} ({zen})" if zen and not re.search(r"\d", name) else name


def slug(device: str) -> str:
    """A device's name as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "_", device.lower()).strip("_")


def write(
    topic: str,
    results: Any,
    command: str,
    device: torch.device | str = "cpu",
    packages: tuple[str, ...] = PACKAGES,
    folder: Path = measurements.FOLDER,
    date: str = "",
) -> Path:
    """Save one measurement as `TOPIC-MACHINE.json`; an older one of the same topic and machine is replaced.

    date: ISO; "" means today.
    """
    about = hardware(device)
    versions = {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages}
    path = folder / f"{topic}-{slug(about['device'])}.json"
    content = {
        "topic": topic,
        "command": command,
        "date": date or datetime.date.today().isoformat(),
        "hardware": about,
        "versions": versions,
        "results": results,
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path
