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


def _wait() -> None:
    """An accelerator works through its queue while Python goes on: wait until the queue is empty."""
    if device.best().type != "cpu":
        torch.accelerator.synchronize()


def seconds(function: Callable[[], object], repeats: int = 7, warmup: int = 2) -> Times:
    """Wall time of `function()`, in seconds.

    The first calls are slow for reasons of their own (caches, memory, compilation), so `warmup` calls are not counted.
    The median is the number to quote: one disturbed call moves the mean, but not the median.
    """
    for _ in range(warmup):
        function()
    taken = []
    for _ in range(repeats):
        _wait()
        start = time.perf_counter()
        function()
        _wait()
        taken.append(time.perf_counter() - start)
    return Times(statistics.median(taken), min(taken), max(taken))
