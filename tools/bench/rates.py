"""How often a second: for work too short to time one call of it."""

import time
from collections.abc import Callable

from tools.bench.quiet import short
from torchcourse import timing


def per_second(function: Callable[[], object], work: float, least: float = 0.1, repeats: int = 5) -> dict[str, float]:
    """`work` done per second when one call of `function` does `work` (images, GFLOP, GB): median, low, high.

    least: seconds that one repeat lasts at least; short functions are called so many times in a row.
    """
    function()  # warm: the first call allocates memory and chooses kernels
    once = timing.seconds(function, repeats=1, warmup=1).median
    calls = max(1, round(least / once))

    def many() -> None:
        for _ in range(calls):
            function()

    taken = timing.seconds(many, repeats, warmup=0)
    done = work * calls
    return {"median": short(done / taken.median), "low": short(done / taken.high), "high": short(done / taken.low)}


def clock(function: Callable[[], object]) -> tuple[float, object]:
    """(seconds, result) of one call."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result
