"""The most this device can do: products of two matrices of 2048×2048, in GFLOP/s.

    {"fp32": {"matmul_2048": {"median", "low", "high"}}, "bf16": ...}

A data type that this device has to emulate is {"skipped": "why"} instead.
"""

from typing import Any

import torch

from tools.bench.rows import Rows
from tools.bench.speed import Spread, per_second
from tools.bench.training import Say
from torchcourse import device as devices

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def measure(rows: Rows, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """Both data types on the best device."""
    device, size = devices.best(), 64 if quick else 2048
    results: dict[str, Any] = {}
    for kind, dtype in DTYPES.items():
        if emulated(dtype, device):
            results[kind] = {"skipped": f"slow: this processor has no {kind} instructions"}
            say(f"peak: {kind} left out, {results[kind]['skipped']}")
            continue
        least, repeats = (0.001, 1) if quick else (0.5, 5)
        speed = rows(f"matmul_{size}", str(dtype).removeprefix("torch."), matmul, size, dtype, device, least, repeats)
        results[kind] = {f"matmul_{size}": speed}
        say(f"peak: {kind} {speed['median']:,.0f} GFLOP/s")
    return results


def matmul(size: int, dtype: torch.dtype, device: torch.device, least: float, repeats: int = 5) -> Spread:
    """GFLOP/s of the product of two square matrices: 2 n³ operations. Random numbers: zeros would cost less power."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return per_second(lambda: torch.mm(a, b, out=out), 2 * size**3 / 1e9, least, repeats)


def emulated(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a processor computes in a data type step by step: products at less than a quarter of float32's speed.

    The best of some tries counts: during a single one another program may have the processor.
    """
    if device.type != "cpu" or dtype == torch.float32:
        return False
    speed = {kind: matmul(128, kind, device, 0.002)["high"] for kind in (dtype, torch.float32)}
    return speed[dtype] < 0.25 * speed[torch.float32]
