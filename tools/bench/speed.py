"""How fast this device is: matrix products and training by precision and by batch size.

    peak        {"fp32": {"matmul_2048": {"median", "low", "high"}}, "bf16": ...} in GFLOP/s

    throughput  {"device": "cpu (2 threads)", "networks": {"MLP": {"batch": [1, 2, 4, ...], "train": [images/s, ...]}}}

    precision   {"device": "cuda (NVIDIA H100 80GB HBM3)",
                 "modes": ["fp32", "tf32", "fp16", "bf16"],   those that this device has, in this order
                 "matmul": {"size": [256, ...],               two square matrices, in the mode's dtype
                            "fp32": {"gflops": [...]}, "tf32": ..., ...},
                 "training": {"batch": 512,
                              "rows": [{"mode": "bf16", "channels_last": true,
                                        "images_per_s": {"median", "low", "high"},
                                        "peak_mib": 812.5}, ...]}}     most memory in use; null on a CPU

Everything runs on `device.best()`, with the data on the device already. A training step is forward, loss, backward and
a step of SGD with momentum. The modes: fp32 and tf32 compute in float32, with all its bits or with TF32 inside products
and convolutions; fp16 and bf16 train under autocast with float32 weights, fp16 with a gradient scaler.
"""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tools.bench.record import Spread, per_second, say, short
from torchcourse import device as devices
from torchcourse import models, timing

MODES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def peak(quick: bool) -> dict[str, Any]:
    """Products in both data types."""
    device, size = devices.best(), 64 if quick else 2048
    results: dict[str, Any] = {}
    for mode in ("fp32", "bf16"):
        if not emulated(MODES[mode], device):
            results[mode] = {f"matmul_{size}": matmul(size, MODES[mode], device, quick)}
            say(f"peak: {mode}: {results[mode]}")
    return results


def throughput(quick: bool) -> dict[str, Any]:
    """Training of a small network with each batch size."""
    device, found = devices.best(), []
    batches = [1, 16] if quick else [2**power for power in range(13)]
    for batch in batches:
        model = mlp().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        step = partial(train_step, model, optimizer, *random_images(batch, (1, 28, 28), device))
        found.append(per_second(step, batch, quick)["median"])
        say(f"throughput: batch {batch}: {found[-1]:,.0f} images/s in training")
    return {"device": devices.describe(device), "networks": {"MLP": {"batch": batches, "train": found}}}


def precision(quick: bool) -> dict[str, Any]:
    """Products and training in all modes."""
    device = devices.best()
    modes = [mode for mode in MODES if usable(mode, device)]
    sizes = [32, 64] if quick else [256, 512, 1024, 2048] + ([] if device.type == "cpu" else [4096, 8192])
    batch = 4 if quick else 128 if device.type == "cpu" else 512
    products: dict[str, Any] = {"size": sizes}
    rows = []
    for mode in modes:
        with float32_bits(mode, device):
            speeds = [matmul(n, MODES[mode], device, quick)["median"] for n in sizes]
            products[mode] = {"gflops": speeds}
            say(f"precision: products in {mode}: up to {max(speeds):,.0f} GFLOP/s")
            for last in (False, True):
                rows.append({"mode": mode, "channels_last": last} | training(mode, last, batch, device, quick))
                say(f"precision: {rows[-1]}")
    results = {"device": devices.describe(device), "modes": modes, "matmul": products}
    return results | {"training": {"batch": batch, "rows": rows}}


def usable(mode: str, device: torch.device) -> bool:
    """Whether the mode is worth measuring on a device: TF32 is a format of NVIDIA GPUs since Ampere."""
    if mode == "tf32":
        return bool(device.type == "cuda" and torch.version.cuda and torch.cuda.get_device_capability(device) >= (8, 0))
    if mode == "bf16" and device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return not emulated(MODES[mode], device)


def emulated(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a processor computes in a data type step by step: products at less than a quarter of float32's speed.

    The best of some tries counts: during a single one another program may have the processor.
    """
    if device.type != "cpu":
        return False
    full, other = torch.rand(256, 256), torch.rand(256, 256).to(dtype)
    return timing.seconds(lambda: other @ other, on=device).low > 4 * timing.seconds(lambda: full @ full, on=device).low


def matmul(size: int, dtype: torch.dtype, device: torch.device, quick: bool) -> Spread:
    """GFLOP/s of the product of two square matrices: 2 n³ operations. Random numbers: zeros would cost less power."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return per_second(lambda: torch.mm(a, b, out=out), 2 * size**3 / 1e9, quick)


def training(mode: str, channels_last: bool, batch: int, device: torch.device, quick: bool) -> dict[str, Any]:
    """Images per second in training of a convolutional network, and MiB of the device's memory at the peak."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = network_for(device, quick).to(memory_format=layout)
    images, labels = random_images(batch, (3, 32, 32), device)
    images = images.to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type) if mode == "fp16" else None
    if device.type != "cpu":
        torch.accelerator.empty_cache()
        torch.accelerator.reset_peak_memory_stats()
    speed = per_second(lambda: train_step(model, optimizer, images, labels, mode, scaler), batch, quick)
    peak_mib = None if device.type == "cpu" else short(torch.accelerator.max_memory_allocated() / 2**20)
    return {"images_per_s": speed, "peak_mib": peak_mib}


# ---------------------------------------------------------------------------------------------------------------------
# What is trained


def mlp() -> nn.Sequential:
    """A small network without convolutions: 784-512-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))


def network_for(device: torch.device, quick: bool) -> nn.Module:
    """The CIFAR-10 recipe's large network on a GPU, a small one on a CPU."""
    widths, stride = ((8, 8, 8), 2) if quick else ((32, 64, 128), 2) if device.type == "cpu" else ((64, 256, 256), 1)
    return models.CifarNet(widths, stride, residual=False).to(device)


def random_images(count: int, shape: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Images [count, *shape] and labels: speed does not depend on what is in them."""
    return torch.randn(count, *shape, device=device), torch.randint(10, (count,), device=device)


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: torch.Tensor,
    labels: torch.Tensor,
    mode: str = "fp32",
    scaler: torch.amp.GradScaler | None = None,
) -> None:
    """One training step. Without a scaler, nothing in it waits for the device."""
    with torch.autocast(images.device.type, MODES[mode], enabled=mode in ("fp16", "bf16")):
        loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@contextlib.contextmanager
def float32_bits(mode: str, device: torch.device) -> Iterator[None]:
    """All bits of float32 in products and convolutions, or with mode "tf32" those of TF32; afterward as before.

    Only CUDA has the choice. The modes of 16 bits leave PyTorch's defaults alone.
    """
    places = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)
    before = [place.fp32_precision for place in places]
    if device.type == "cuda" and mode in ("fp32", "tf32"):
        for place in places:
            place.fp32_precision = "tf32" if mode == "tf32" else "ieee"
    try:
        yield
    finally:
        if device.type == "cuda":
            for place, value in zip(places, before, strict=True):
                place.fp32_precision = value
