"""Images per second on identical networks: the course, the plain loop, and libraries, on the CPU.

    {"threads": 2,
     "versions": {"lightning": "2.6.6", ...},
     "networks": {"example": {"mflop": 43.9,               of one image in a training step
                              "rows": [{"name": "ours", "batch": 64, "workers": 0, "dtype": "float32",
                                        "images_per_s": {"median": ..., "low": ..., "high": ...},
                                        "gflops": ...,      mflop times the median
                                        "repeats": 5}, ...]},
                  "mlp": ..., "tutorial": ...}}

A row that failed has "error", a sentence, instead of numbers. Each row runs in a process of its own, so that no library
changes the settings of another.
"""

import json
import os
import subprocess
from dataclasses import asdict, replace
from typing import Any

import torch

from tools.bench import environment
from tools.bench.contestants import CONTESTANTS, NETWORKS, Task, image_set
from tools.bench.rows import Rows, last_words
from tools.bench.speed import short, spread
from tools.bench.training import Say, mflop, real_images
from tools.course import ROOT
from torchcourse import device, models

REPEATS = 5
PATIENCE = 600  # seconds for one row; then the library hangs
Row = tuple[str, Task]  # who, what


def plan(quick: bool = False) -> dict[str, list[Row]]:
    """What is measured: network -> rows. The number of images makes a repeat take a few seconds."""
    if quick:
        return {"mlp": [(name, Task("mlp", 16, 160)) for name in ("ours", "loop")]}
    steps = 100
    example, mlp, tutorial = Task("example", 64, 64 * steps), Task("mlp", 64, 40_000), Task("tutorial", 512, 40_000)
    large = replace(example, batch=256, images=256 * steps // 2)
    rows = {
        "example": [("ours", example), ("ours", large), *((name, example) for name in CONTESTANTS if name != "ours")],
        "mlp": [
            (name, replace(mlp, batch=batch, workers=workers))
            for batch in (64, 512)
            for name, workers in (("ours", 0), ("loop", 0), ("loop", 4))
        ],
        "tutorial": [("ours", tutorial), *(("loop", replace(tutorial, workers=workers)) for workers in (0, 1, 2, 4))],
    }
    fast = str(device.fast_dtype("cpu")).removeprefix("torch.")
    if fast != "float32":  # where a shorter format pays, as a row of its own
        for some in rows.values():
            some += [(who, replace(task, dtype=fast)) for who, task in some if who == "ours"]
    return rows


def measure(rows: Rows, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """All rows of all networks. Libraries that don't work here are named and left out."""
    networks, versions = {}, {}
    for network, some in plan(quick).items():
        name, make = NETWORKS[network]
        real_images(name, "train", quick)  # complains here where the real data are missing
        pixels, labels = image_set(network, 32)[0:32]
        cost = mflop(make(), models.Normalize(name)(pixels), labels)
        networks[network] = {"mflop": cost, "rows": []}
        for who, task in some:
            label = f"{who}, {network}, batch {task.batch}, {task.workers} workers"
            patience = rows.patience(PATIENCE)
            found = rows(label, task.dtype, train, who, task, 1 if quick else REPEATS, patience)
            row = {"name": who} | {key: asdict(task)[key] for key in ("batch", "workers", "dtype")}
            if "error" in found:
                say(f"libraries: {label}: {found['error']}")
                networks[network]["rows"].append(row | found)
                continue
            speed = spread(found["images_per_s"])
            say(f"libraries: {label}: {speed['median']:,.0f} images/s")
            row |= {"images_per_s": speed, "gflops": short(speed["median"] * cost / 1e3)}
            networks[network]["rows"].append(row | {"repeats": len(found["images_per_s"])})
            if who not in ("ours", "loop"):
                versions[who] = found["version"]
    return {"threads": torch.get_num_threads(), "versions": versions, "networks": networks}


def train(who: str, task: Task, repeats: int, patience: float = PATIENCE) -> dict[str, Any]:
    """What `contestants` measures in a process of its own: version and images per second, or {"error": sentence}."""
    orders = json.dumps(asdict(task) | {"repeats": repeats})
    # All of them on the CPU: some libraries take a GPU wherever they see one.
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    variables = os.environ | threads | {"KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
    command = [environment.interpreter(), "-m", "tools.bench.contestants", who, orders]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, cwd=ROOT, env=variables)
    except subprocess.TimeoutExpired:
        return {"error": f"It took more than {patience:.0f} s."}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    error = last_words(done.stderr)
    return {"error": environment.ADVICE if "PackageNotFoundError" in error else error}
