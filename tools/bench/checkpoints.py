"""What a checkpoint of a real model costs: seconds of saving and loading. Topic "checkpoints":

    {"device": "cuda (NVIDIA H100 80GB HBM3)",
     "network": "24 layers of a transformer, width 1024", "parameters": 302000000,
     "gib": {"model": 1.13, "optimizer": 2.25},           AdamW keeps two numbers for each weight
     "step_ms": {"median", "low", "high"},                one training step, to compare with
     "saves": [{"way": "torch.save",
                "blocked_s": {"median", "low", "high"},   until the weights may change again
                "done_s": {"median", "low", "high"}},     until the file is there
               ...],
     "loads": [{"way": "torch.load", "s": {"median", "low", "high"}}, ...]}

The ways to save: "torch.save" to the final name; "checkpoint.save" of the course, which also flushes to the disk and
renames; "dcp.save"; "dcp.async_save", which copies to ordinary memory of the CPU and writes in a thread; "pinned", the
same with a stager of its own, whose pinned memory is made once and used again; "pinned, in a thread", which copies in
a thread, too. To load: "torch.load" to the CPU; "mmap", which reads nothing before it is needed; both as
far as the model alone; "checkpoint.restore" and "dcp.load" of everything, into the model and the optimizer.

What was just written is in the memory of the system, so loads say what the software costs and not the disk. A way that
failed has "error", a sentence.
"""

import contextlib
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from tools.bench.rows import Rows
from tools.bench.speed import Spread, per_second, short, spread
from tools.bench.training import Say
from torchcourse import checkpoint
from torchcourse import device as devices

SAVES = ("torch.save", "checkpoint.save", "dcp.save", "dcp.async_save", "pinned", "pinned, in a thread")
LOADS = ("torch.load", "mmap", "checkpoint.restore", "dcp.load")
ON_GPU = ("pinned", "pinned, in a thread")
STAGERS = {  # pinned memory, shared memory, in a thread, without waiting for each copy
    "pinned": (True, False, False, True),
    "pinned, in a thread": (True, False, True, True),
}


def measure(rows: Rows, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """All ways on the best device."""
    device = devices.best()
    layers, width = (1, 32) if quick else (8, 512) if device.type == "cpu" else (24, 1024)
    training = Training(layers, width, device)
    repeats = 1 if quick else 5 if device.type == "cpu" else 2  # there, a state has 3.4 GiB
    step = rows("step", "float32", training.milliseconds, 0.001 if quick else 0.5)
    saves, loads = [], []
    for way in SAVES:
        if way in ON_GPU and device.type == "cpu":
            continue
        saves.append({"way": way} | rows(f"save by {way}", "float32", tried, save, training, way, repeats))
        seconds = saves[-1].get("error") or f"training waits {saves[-1]['blocked_s']['median']:.3f} s"
        say(f"checkpoints: {way}: {seconds}")
    for way in LOADS:
        loads.append({"way": way} | rows(f"load by {way}", "float32", tried, load, training, way, repeats))
        say(f"checkpoints: {way}: {loads[-1].get('error') or format(loads[-1]['s']['median'], '.3f') + ' s'}")
    return {
        "device": devices.describe(device),
        "network": f"{layers} layers of a transformer, width {width}",
        "parameters": sum(p.numel() for p in training.model.parameters()),
        "gib": {name: short(gib(part.state_dict())) for name, part in training.parts.items()},
        "step_ms": step,
        "saves": saves,
        "loads": loads,
    }


class Training:
    """A transformer and its optimizer, after some steps."""

    def __init__(self, layers: int, width: int, device: torch.device) -> None:
        layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, dropout=0.0, batch_first=True)
        self.model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self.parts = {"model": self.model, "optimizer": self.optimizer}
        self.batch = torch.randn(4, 64, width, device=device)
        self.step()

    def step(self) -> None:
        """One training step."""
        self.optimizer.zero_grad()
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()

    def milliseconds(self, least: float) -> Spread:
        """How long a step takes."""
        rate = per_second(self.step, 1e-3, least)
        return {"median": short(1 / rate["median"]), "low": short(1 / rate["high"]), "high": short(1 / rate["low"])}

    def states(self) -> dict[str, Any]:
        """What is saved."""
        return {name: part.state_dict() for name, part in self.parts.items()}


def tried(function: Callable[..., dict[str, Any]], training: Training, way: str, repeats: int) -> dict[str, Any]:
    """What the function returns, or {"error": sentence}: the other ways may well work."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch.distributed")  # that one process saves without a group
        try:
            return function(training, way, repeats, Path(folder, "file"))
        except (Exception, CheckpointException) as error:  # the latter is none of the former
            return {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}


def save(training: Training, way: str, repeats: int, path: Path) -> dict[str, Any]:
    """Seconds of saving so often, after once to warm up: a stager makes its memory at the first."""
    times = []
    with contextlib.closing(DefaultStager(StagingOptions(*STAGERS.get(way, (False,) * 4)))) as stager:
        for _ in range(repeats + 1):
            remove(path)
            synchronize()
            start, staged = time.perf_counter(), None
            if way == "torch.save":
                torch.save(training.states(), path)
            elif way == "checkpoint.save":
                checkpoint.save(path, **training.parts)
            elif way == "dcp.save":
                dcp.save(training.states(), checkpoint_id=path)
            else:
                own = {"async_stager": stager} if way in STAGERS else {}
                answer = dcp.async_save(training.states(), checkpoint_id=path, **own)
                if hasattr(answer, "staging_completion"):  # copied in a thread
                    answer.staging_completion.result()
                    answer = answer.upload_completion
                staged = time.perf_counter()
                answer.result()
            end = time.perf_counter()
            times.append(((staged or end) - start, end - start))
    blocked, done = zip(*times[1:], strict=True)
    return {"blocked_s": spread(blocked), "done_s": spread(done)}


def load(training: Training, way: str, repeats: int, path: Path) -> dict[str, Any]:
    """Seconds of loading so often."""
    if way == "dcp.load":
        dcp.save(training.states(), checkpoint_id=path)
    else:
        checkpoint.save(path, **training.parts)
    times = []
    for _ in range(repeats):
        synchronize()
        start = time.perf_counter()
        if way == "dcp.load":
            states = training.states()
            dcp.load(states, checkpoint_id=path)
            for name, part in training.parts.items():
                part.load_state_dict(states[name])
        elif way == "checkpoint.restore":
            checkpoint.restore(path, **training.parts)
        else:
            training.model.load_state_dict(torch.load(path, map_location="cpu", mmap=way == "mmap")["model"])
        synchronize()
        times.append(time.perf_counter() - start)
    return {"s": spread(times)}


def remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def synchronize() -> None:
    """Wait for the accelerator, if there is one."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def gib(state: Any) -> float:
    """Size of all tensors in a state."""
    if isinstance(state, torch.Tensor):
        return state.nbytes / 2**30
    if isinstance(state, dict):
        return sum(map(gib, state.values()))
    return sum(map(gib, state)) if isinstance(state, (list, tuple)) else 0.0
