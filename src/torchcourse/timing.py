"""How long something takes, measured so that the number means something."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from torchcourse import device


class Times(NamedTuple):
    """Seconds per call: the median, and the fastest and slowest call."""

    median: float
    low: float
    high: float


def seconds(
    function: Callable[[], object], repeats: int = 7, warmup: int = 2, on: torch.device | str | None = None
) -> Times:
    """Wall time of `function()`, in seconds.

    The first calls are slow for reasons of their own (caches, memory, compilation), so `warmup` calls are not counted.
    The median is the number to quote: one disturbed call moves the mean, but not the median.
    on: the device on which the function computes; None means `device.best()`. An accelerator works through its queue
        while Python goes on, so the clock waits until the queue is empty. For the CPU there is nothing to wait for.
    """
    place = device.best() if on is None else torch.device(on)
    wait = (lambda: None) if place.type == "cpu" else torch.accelerator.synchronize
    for _ in range(warmup):
        function()
    taken = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        function()
        wait()
        taken.append(time.perf_counter() - start)
    return Times(statistics.median(taken), min(taken), max(taken))
