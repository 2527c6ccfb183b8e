"""What this processor can do at most: products of big matrices, and convolutions, in GFLOP/s.

Result: for "fp32" and "bf16" a dict of {"matmul_2048", "conv_128", "conv_256"}, each with median, low, high, and what
`quiet.Turns.summary` adds. A data type that this processor has to emulate is {"skipped": "why"} instead.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tools.bench.quiet import median_range, take_turns
from tools.bench.rates import per_second

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
HOPELESS = 0.25  # of the speed of float32: below that, big matrices are not worth the wait


def measure(quick: bool = False, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Both data types on the CPU, taking turns."""
    repeats, least = (1, 0.001) if quick else (5, 0.5)
    size, channels = (64, (8,)) if quick else (2048, (128, 256))
    ratio = probe(torch.bfloat16) / probe(torch.float32)
    kinds = ["fp32"] + (["bf16"] if ratio >= HOPELESS else [])
    contestants: dict[str, Callable[[], object]] = {}
    for kind in kinds:
        dtype = DTYPES[kind]
        contestants[f"{kind} matmul_{size}"] = matmul(size, dtype, least)
        contestants |= {f"{kind} conv_{n}": convolution(n, dtype, least, quick) for n in channels}
    turns = take_turns(contestants, repeats, extra=0 if quick else None, say=lambda line: say(f"peak: {line}"))
    results: dict[str, Any] = {kind: {} for kind in kinds}
    for name, turn in turns.items():
        kind, what = name.split()
        results[kind][what] = median_range(turn.results(repeats)) | turn.summary(repeats)
    if "bf16" not in kinds:
        reason = "slow: this processor has no bf16 instructions"
        results["bf16"] = {"skipped": reason, "share_of_fp32": round(ratio, 4)}
        say(f"peak: bf16 left out, {reason}")
    return results


def probe(dtype: torch.dtype, size: int = 128) -> float:
    """Products of two small matrices per second: milliseconds, even where the data type has to be emulated.

    The best of some tries: one alone may fall into a moment in which another program has the processor.
    """
    a = torch.randn(size, size).to(dtype)
    tries = []
    for _ in range(6):
        start = time.perf_counter()
        for _ in range(5):
            torch.mm(a, a)
        tries.append(5 / (time.perf_counter() - start))
    return max(tries)


def matmul(size: int, dtype: torch.dtype, least: float) -> Callable[[], float]:
    """A function that returns the GFLOP/s of the product of two square matrices."""
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    return lambda: per_second(lambda: torch.mm(a, b), 2 * size**3 / 1e9, least, repeats=1)["median"]


def convolution(channels: int, dtype: torch.dtype, least: float, quick: bool = False) -> Callable[[], float]:
    """A function that returns the GFLOP/s of a 3×3 convolution, channels_last, as many channels out as in."""
    batch, side = (2, 8) if quick else (32, 28)
    images = torch.randn(batch, channels, side, side).to(dtype, memory_format=torch.channels_last)
    weight = torch.randn(channels, channels, 3, 3).to(dtype, memory_format=torch.channels_last)
    gflop = 2 * batch * side**2 * channels**2 * 9 / 1e9
    return lambda: per_second(lambda: F.conv2d(images, weight, padding=1), gflop, least, repeats=1)["median"]
