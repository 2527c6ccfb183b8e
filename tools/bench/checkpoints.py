"""How long saving a checkpoint of a real model keeps a training waiting. Topic "checkpoints":

    {"device": "cuda (NVIDIA H100 80GB HBM3)",
     "network": "24 layers of a transformer, width 1024",
     "gib": {"model": 1.13, "optimizer": 2.25},           AdamW keeps two numbers for each weight
     "step_ms": {"median", "low", "high"},                one training step, to compare with
     "saves": [{"way": "torch.save",
                "blocked_s": {"median", "low", "high"},   until the weights may change again
                "done_s": {"median", "low", "high"}},     until the file is there
               ...]}

The ways: "torch.save" to the final name; "checkpoint.save" of the course, which also flushes to the disk and renames;
"dcp.save"; "dcp.async_save", which copies to ordinary memory of the CPU and writes in a thread.
"""

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.utils._pytree import tree_leaves

from tools.bench.record import clock, say, short, spread, synchronize
from torchcourse import checkpoint
from torchcourse import device as devices


def measure(quick: bool) -> dict[str, Any]:
    """All ways on the best device."""
    device = devices.best()
    layers, width = (1, 32) if quick else (8, 512) if device.type == "cpu" else (24, 1024)
    training = Training(layers, width, device)
    repeats = 1 if quick else 5 if device.type == "cpu" else 2  # there, a state has 3.4 GiB
    step = spread([1000 * clock(training.step)[0] for _ in range(3 if quick else 15)])
    saves = []
    for way in ("torch.save", "checkpoint.save", "dcp.save", "dcp.async_save"):
        times = []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="torch.distributed")  # that one process saves without a group
            for _ in range(repeats + 1):
                with tempfile.TemporaryDirectory() as folder:
                    times.append(save(training, way, Path(folder, "file")))
        blocked, done = zip(*times[1:], strict=True)  # the first one warms up
        saves.append({"way": way, "blocked_s": spread(blocked), "done_s": spread(done)})
        say(f"checkpoints: {saves[-1]}")
    return {
        "device": devices.describe(device),
        "network": f"{layers} layers of a transformer, width {width}",
        "gib": {name: short(gib(part.state_dict())) for name, part in training.parts.items()},
        "step_ms": step,
        "saves": saves,
    }


class Training:
    """A transformer and its optimizer, after some steps."""

    def __init__(self, layers: int, width: int, device: torch.device) -> None:
        layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, dropout=0.0, batch_first=True)
        self.model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self.parts = {"model": self.model, "optimizer": self.optimizer}
        self.batch = torch.randn(4, 64, width, device=device)
        for _ in range(3):
            self.step()

    def step(self) -> None:
        """One training step."""
        self.optimizer.zero_grad()
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()

    def states(self) -> dict[str, Any]:
        """What is saved."""
        return {name: part.state_dict() for name, part in self.parts.items()}


def save(training: Training, way: str, path: Path) -> tuple[float, float]:
    """Save once: seconds until the weights may change, and until the file is there."""
    synchronize()
    start, staged = time.perf_counter(), None
    if way == "torch.save":
        torch.save(training.states(), path)
    elif way == "checkpoint.save":
        checkpoint.save(path, **training.parts)
    elif way == "dcp.save":
        dcp.save(training.states(), checkpoint_id=path)
    else:
        future = dcp.async_save(training.states(), checkpoint_id=path)
        staged = time.perf_counter()
        future.result()
    end = time.perf_counter()
    return (staged or end) - start, end - start


def gib(state: Any) -> float:
    """Size of all tensors in a state."""
    return sum(leaf.nbytes for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)) / 2**30
