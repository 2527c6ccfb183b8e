"""How fast bytes travel, and what a single call costs. Topic "bandwidth":

    {"device": "cuda (NVIDIA H100 80GB HBM3)",
     "mib": [0.0625, ...],                                      x axis of all curves: the size of one copy
     "copies": {"pageable_to_device": {"gb_per_s": [...], "gb_per_s_range": [[low, high], ...]},
                "pinned_to_device": ..., "device_to_pageable": ..., "device_to_pinned": ...,
                "on_device": ...,                               from one place in the device's memory to another
                "host": ...},                                   from one place in the CPU's memory to another
     "calls": {"launch_us": {"median", "low", "high"},          one small kernel of many in a row
               "wait_us": ...,                                  the same, when the CPU waits for each
               "read_us": ...}}                                 reading one number back: .item()

On a CPU `copies` has "host" alone. A copy of n bytes counts n, although it reads n and writes n. 1 GB is 10⁹ bytes.
"""

from typing import Any

import torch

from tools.bench.rows import Rows
from tools.bench.speed import Spread, per_second
from tools.bench.throughput import columns
from tools.bench.training import Say
from torchcourse import device as devices


def measure(rows: Rows, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """All copies and calls of the best device."""
    device, least = devices.best(), 0.001 if quick else 0.1
    mib = [1.0] if quick else [2.0**power for power in range(-4, 9, 2)]
    found = []
    for size in mib:
        found.append(rows(f"copies of {size:g} MiB", "uint8", copies, size, device, least))
        rates = ", ".join(f"{name.replace('_', ' ')} {rate['median']:.1f}" for name, rate in found[-1].items())
        say(f"bandwidth: copies of {size:g} MiB, GB/s: {rates}")
    costs = rows("calls", "float32", calls, device, least)
    say(f"bandwidth: a small kernel of many takes {costs['launch_us']['median']:.1f} µs")
    curves = {name: columns("gb_per_s", [row[name] for row in found]) for name in found[0]}
    return {"device": devices.describe(device), "mib": mib, "copies": curves, "calls": costs}


def copies(mib: float, device: torch.device, least: float) -> dict[str, Spread]:
    """GB/s of all ways to copy that much."""
    count = int(mib * 2**20)
    ordinary, other = (torch.ones(count, dtype=torch.uint8) for _ in range(2))
    pairs = {"host": (other, ordinary)}  # (to, from)
    if device.type != "cpu":
        # Pinned memory never moves, so the device can fetch from it by itself; from ordinary memory the driver first
        # copies to a pinned buffer of its own.
        pinned = ordinary.pin_memory()
        here, there = ordinary.to(device), ordinary.to(device)
        pairs |= {
            "pageable_to_device": (there, ordinary),
            "pinned_to_device": (there, pinned),
            "device_to_pageable": (ordinary, there),
            "device_to_pinned": (pinned, there),
            "on_device": (here, there),
        }
    return {
        # non_blocking: copies queue up as in a good training loop; the Timer waits for the last of them.
        name: per_second(lambda to=to, source=source: to.copy_(source, non_blocking=True), count / 1e9, least)
        for name, (to, source) in pairs.items()
    }


def calls(device: torch.device, least: float) -> dict[str, Spread]:
    """Microseconds of a kernel with almost nothing to do: launched, waited for, and read."""
    number = torch.ones((), device=device)

    def wait() -> None:
        number.add_(1)
        if device.type != "cpu":
            torch.accelerator.synchronize()

    ways = {"launch_us": lambda: number.add_(1), "wait_us": wait, "read_us": lambda: number.add_(1).item()}
    rates = {name: per_second(way, 1e-6, least) for name, way in ways.items()}
    return {
        name: {
            "median": round(1 / rate["median"], 3),
            "low": round(1 / rate["high"], 3),
            "high": round(1 / rate["low"], 3),
        }
        for name, rate in rates.items()
    }
