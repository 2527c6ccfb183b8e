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

On a CPU `copies` has "host" alone. A copy of n bytes counts n, also where it reads n and writes n. 1 GB is 10⁹ bytes.
"""

from collections.abc import Callable
from typing import Any

import torch

from tools.bench.rates import per_second
from torchcourse import device as devices

Say = Callable[[str], None]
Rate = dict[str, float]  # median, low, high


def measure(quick: bool = False, say: Say = print) -> dict[str, Any]:
    """All copies and calls of the best device."""
    device = devices.best()
    mib = [1.0] if quick else [2.0**power for power in range(-4, 9, 2)]
    least = 0.001 if quick else 0.1
    rows = [copies(size, device, least) for size in mib]
    for size, row in zip(mib, rows, strict=True):
        told = ", ".join(f"{name.replace('_', ' ')} {rate['median']:.1f}" for name, rate in row.items())
        say(f"bandwidth: copies of {size:g} MiB, GB/s: {told}")
    calls = {name: microseconds(rate) for name, rate in call_rates(device, least).items()}
    say(f"bandwidth: a small kernel of many takes {calls['launch_us']['median']:.1f} µs")
    curves = {name: curve([row[name] for row in rows]) for name in rows[0]}
    return {"device": devices.describe(device), "mib": mib, "copies": curves, "calls": calls}


def curve(rates: list[Rate]) -> dict[str, list]:
    """Medians as one list, ranges as another: the form that plots take."""
    return {
        "gb_per_s": [rate["median"] for rate in rates],
        "gb_per_s_range": [[rate["low"], rate["high"]] for rate in rates],
    }


def copies(mib: float, device: torch.device, least: float) -> dict[str, Rate]:
    """GB/s of all ways to copy so much."""
    count = int(mib * 2**20)
    ordinary, other = (torch.ones(count, dtype=torch.uint8) for _ in range(2))
    pairs = {"host": (other, ordinary)}  # (to, from)
    if device.type != "cpu":
        # Pinned memory stays where it is, so the device can fetch from it by itself; from ordinary memory the driver
        # first copies to a pinned place of its own.
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
        # non_blocking: copies queue up as in a good training loop; per_second waits for the last of them.
        name: per_second(lambda to=to, source=source: to.copy_(source, non_blocking=True), count / 1e9, least)
        for name, (to, source) in pairs.items()
    }


def call_rates(device: torch.device, least: float) -> dict[str, Rate]:
    """How many calls a second: a kernel with almost nothing to do, launched, waited for, and read."""
    number = torch.ones((), device=device)

    def wait() -> None:
        number.add_(1)
        if device.type != "cpu":
            torch.accelerator.synchronize()

    def read() -> float:
        return number.add_(1).item()

    ways = {"launch_us": lambda: number.add_(1), "wait_us": wait, "read_us": read}
    return {name: per_second(way, 1, least) for name, way in ways.items()}


def microseconds(rate: Rate) -> Rate:
    """Calls a second as microseconds for a call; the fastest repeat is the lowest number."""
    took = {"median": 1e6 / rate["median"], "low": 1e6 / rate["high"], "high": 1e6 / rate["low"]}
    return {name: round(value, 3) for name, value in took.items()}
