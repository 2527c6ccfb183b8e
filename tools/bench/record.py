"""What all parts of `make bench` share: repeats, a word on progress, and the record."""

import datetime
import importlib.metadata
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.utils import benchmark

from torchcourse import data, measurements
from torchcourse.errors import CourseError

Spread = dict[str, float]  # median, low, high


def say(line: str) -> None:
    """Print a line of progress with the time of day."""
    print(f"{datetime.datetime.now():%H:%M:%S} {line}", flush=True)


def per_second(function: Callable[[], object], work: float, quick: bool) -> Spread:
    """`work` done per second when one call of `function` does `work` (images, GFLOP).

    A short function is called many times in a row. PyTorch's Timer warms up, and synchronizes with the accelerator
    before it reads the clock. quick: once and briefly, as in all parts; such numbers mean nothing.
    """
    repeats, least = (1, 0.001) if quick else (5, 0.3)
    timer = benchmark.Timer("function()", globals={"function": function}, num_threads=torch.get_num_threads())
    calls = max(1, round(least / timer.blocked_autorange(min_run_time=least / 5).median))
    return spread([work / timer.timeit(calls).mean for _ in range(repeats)])


def clock(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of a single call, with no warm-up."""
    synchronize()
    start = time.perf_counter()
    result = function()
    synchronize()
    return time.perf_counter() - start, result


def synchronize() -> None:
    """Wait for the accelerator, if there is one."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def spread(values: list[float]) -> Spread:
    """Median, low and high of the repeats."""
    return {"median": short(statistics.median(values)), "low": short(min(values)), "high": short(max(values))}


def short(value: float) -> float:
    """Four digits: what a measurement is worth."""
    return float(f"{value:.4g}")


def last_words(log: str) -> str:
    """The line of a failed process's log that names the error, without folders of this machine: it may be recorded."""
    lines = [line for line in log.splitlines() if line.strip() and not line[0].isspace()]
    named = [line for line in lines if re.match(r"(\[rank\d+\]: ?)?[\w.]*(Error|Exception|Interrupt)\b", line)]
    return re.sub(r"(/[\w.~+-]+)+/", "", (named or lines[-1:] or ["it printed nothing"])[0])


def real_images(name: str, split: str, quick: bool) -> data.ImageSet:
    """A data set, which has to be the real one unless the run is a quick one."""
    found = data.load(name, split)
    if found.origin != "real" and not quick:
        raise CourseError(f"This part needs the real data. Download them: torchcourse data fetch {name}")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The record


def hardware(device: torch.device) -> dict[str, Any]:
    """What a reader needs to judge a number measured on a device of this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cpu = processor()
    name = (
        f"{cores} cores of {cpu}" if device.type == "cpu" else torch.get_device_module(device).get_device_name(device)
    )
    return {
        "device": name,
        "kind": device.type,
        "cpu": cpu,
        "cores": cores,
        "vector": torch.backends.cpu.get_cpu_capability(),  # AVX2, AVX512, ...: what PyTorch's kernels use
        "gib": round(psutil.virtual_memory().total / 2**30),
        "system": platform.system(),
    }


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


def write(topic: str, results: Any, command: str, device: torch.device, folder: Path = measurements.FOLDER) -> Path:
    """Save one measurement as `TOPIC-MACHINE.json`; an older one of the same topic and machine is replaced."""
    about = hardware(device)
    versions = {name: importlib.metadata.version(name) for name in ("torch", "torchvision", "numpy")}
    content = {
        "topic": topic,
        "command": command,
        "date": datetime.date.today().isoformat(),
        "hardware": about,
        "versions": {"python": platform.python_version()} | versions,
        "results": results,
    }
    path = folder / f"{topic}-{re.sub(r'[^a-z0-9]+', '_', about['device'].lower()).strip('_')}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path
