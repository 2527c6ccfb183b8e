"""How throughput depends on size: images per second against batch size, GFLOP/s against matrix size.

Everything runs on `device.best()`, warm and synchronized, with the images on the device already. Topic "throughput":

    {"device": "cpu (2 threads)", "threads": 2, "dtype": "float32",
     "networks": {"MnistNet": {"parameters": 66554, "mflop": 5.9,        of training, for one image
                               "batch": [1, 2, 4, ...],                  x axis of both curves
                               "train": [images/s, ...], "train_range": [[low, high], ...],
                               "forward": [images/s, ...], "forward_range": [...]},
                  "MLP": {...}},
     "matmul": {"size": [32, ...], "gflops": [...], "gflops_range": [...]}}          two square matrices of that size

A training step is forward, loss, backward and a step of SGD with momentum; forward is in eval mode, without gradients.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tools.bench.quiet import short
from tools.bench.rates import per_second
from torchcourse import device as devices
from torchcourse import models

Say = Callable[[str], None]


def mlp() -> nn.Sequential:
    """A small network without convolutions: 784-512-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))


NETWORKS = {"MnistNet": models.MnistNet, "MLP": mlp}


def measure(quick: bool = False, say: Say = print) -> dict[str, Any]:
    """All curves on the best device."""
    device = devices.best()
    batches = [1, 16] if quick else [2**power for power in range(13)]
    sizes = [32, 64] if quick else [2**power for power in range(5, 12 if device.type == "cpu" else 14)]
    least = 0.001 if quick else 0.1
    results = {
        "device": devices.describe(device),
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "networks": {name: network(name, device, batches, least, say) for name in NETWORKS},
        "matmul": matmul(device, sizes, least),
    }
    top = max(results["matmul"]["gflops"])
    say(f"throughput: matrix products of up to {top:,.0f} GFLOP/s")
    return results


def network(name: str, device: torch.device, batches: list[int], least: float, say: Say) -> dict[str, Any]:
    """Curves of one network over the batch size."""
    model = NETWORKS[name]().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with FlopCounterMode(display=False) as counted:
        train_step(model, optimizer, *batch_of(32, device))
    curves = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "mflop": short(counted.get_total_flops() / 32e6),
    }
    train, forward = [], []
    for size in batches:
        images, labels = batch_of(size, device)
        model.train()
        step = lambda images=images, labels=labels: train_step(model, optimizer, images, labels)  # noqa: E731
        train.append(per_second(step, size, least))
        model.eval()
        with torch.no_grad():
            forward.append(per_second(lambda images=images: model(images), size, least))
        say(f"throughput: {name}, batch {size}: {train[-1]['median']:,.0f} images/s in training")
    return curves | {"batch": batches} | columns("train", train) | columns("forward", forward)


def batch_of(size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images [size, 1, 28, 28] and labels: speed does not depend on what is in them."""
    generator = torch.Generator().manual_seed(size)
    images = torch.randn(size, 1, 28, 28, generator=generator)
    return images.to(device), torch.randint(10, (size,), generator=generator).to(device)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor) -> None:
    """One step of training; nothing in it waits for the device."""
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def matmul(device: torch.device, sizes: list[int], least: float, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """GFLOP/s of the product of two square matrices: 2 n³ operations."""
    rows = []
    for size in sizes:
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(a)
        rows.append(per_second(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), 2 * size**3 / 1e9, least))
    return {"size": sizes} | columns("gflops", rows)


def columns(name: str, rows: list[dict[str, float]]) -> dict[str, list]:
    """Medians as one list, ranges as another: the form that plots take."""
    return {name: [row["median"] for row in rows], f"{name}_range": [[row["low"], row["high"]] for row in rows]}
