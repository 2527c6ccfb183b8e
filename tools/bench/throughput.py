"""How throughput depends on size: images per second against batch size, GFLOP/s against matrix size.

Everything runs on `device.best()`, with the images on the device already. Topic "throughput":

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
from torch import nn

from tools.bench.peak import matmul
from tools.bench.precision import float32_bits
from tools.bench.rows import Rows
from tools.bench.speed import Spread, per_second
from tools.bench.training import Say, mflop, mlp, random_images, train_step
from torchcourse import device as devices
from torchcourse import models

NETWORKS = {"MnistNet": models.MnistNet, "MLP": mlp}


def measure(rows: Rows, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """All curves on the best device."""
    device = devices.best()
    batches = [1, 16] if quick else [2**power for power in range(13)]
    sizes = [32, 64] if quick else [2**power for power in range(5, 12 if device.type == "cpu" else 14)]
    least = 0.001 if quick else 0.1
    with float32_bits("fp32", device):  # what the rows are called; on a GPU, convolutions use TF32 otherwise
        networks = {}
        for name, make in NETWORKS.items():
            found = []
            for batch in batches:
                found.append(rows(f"{name}, batch {batch}", "float32", both, make, batch, device, least))
                say(f"throughput: {name}, batch {batch}: {found[-1]['train']['median']:,.0f} images/s in training")
            model = make().to(device)
            networks[name] = {
                "parameters": sum(p.numel() for p in model.parameters()),
                "mflop": mflop(model, *random_images(32, (1, 28, 28), device)),
                "batch": batches,
            }
            for way in ("train", "forward"):
                networks[name] |= columns(way, [row[way] for row in found])
        products = [rows(f"matmul {size}", "float32", matmul, size, torch.float32, device, least) for size in sizes]
        say(f"throughput: matrix products of up to {max(row['median'] for row in products):,.0f} GFLOP/s")
    return {
        "device": devices.describe(device),
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "networks": networks,
        "matmul": {"size": sizes} | columns("gflops", products),
    }


def both(make: Callable[[], nn.Module], batch: int, device: torch.device, least: float) -> dict[str, Spread]:
    """Images per second of a network, in training and forward."""
    model = make().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = random_images(batch, (1, 28, 28), device)
    train = per_second(lambda: train_step(model, optimizer, images, labels), batch, least)
    model.eval()
    with torch.no_grad():
        return {"train": train, "forward": per_second(lambda: model(images), batch, least)}


def columns(name: str, found: list[Spread]) -> dict[str, list]:
    """Medians as one list, ranges as another: the form that plots take."""
    return {name: [row["median"] for row in found], f"{name}_range": [[row["low"], row["high"]] for row in found]}
