"""How often per second: work timed with `torch.utils.benchmark`, and how a few values are summed up."""

import statistics
import time
from collections.abc import Callable

import torch
from torch.utils import benchmark

Spread = dict[str, float]  # median, low, high


def per_second(function: Callable[[], object], work: float, least: float = 0.1, repeats: int = 5) -> Spread:
    """`work` done per second when one call of `function` does `work` (images, GFLOP, GB).

    least: seconds that each repeat lasts; a short function is called that many times in a row. PyTorch's Timer
    warms up, and synchronizes with the accelerator before it reads the clock.
    """
    timer = benchmark.Timer("function()", globals={"function": function}, num_threads=torch.get_num_threads())
    once = timer.blocked_autorange(min_run_time=least / 5).median
    calls = max(1, round(least / once))
    return spread([work / timer.timeit(calls).mean for _ in range(repeats)])


def clock(function: Callable[[], object]) -> tuple[float, object]:
    """Seconds and result of a single call, with no warm-up: for whole trainings and first steps."""
    start = time.perf_counter()
    result = function()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter() - start, result


def spread(values: list[float]) -> Spread:
    """Median, low and high of the repeats."""
    return {"median": short(statistics.median(values)), "low": short(min(values)), "high": short(max(values))}


def short(value: float) -> float:
    """Four digits: what a measurement is worth."""
    return float(f"{value:.4g}")
