"""Images per second on identical networks: the course, the plain loop, and libraries, on the CPU.

    {"threads": 2,
     "versions": {"lightning": "2.6.6", ...},
     "networks": {"example": {"mflop": 43.9,               of one image in a training step
                              "rows": [{"name": "ours", "batch": 64, "workers": 0, "dtype": "float32",
                                        "images_per_s": {"median": ..., "low": ..., "high": ...},
                                        "gflops": ...,      mflop times the median
                                        "repeats": 5}, ...]},
                  "mlp": ..., "tutorial": ...}}

A row that failed has "error", a sentence. Each row runs in a process of its own, so that no library changes the
settings of another. Same network, batch size, optimizer (the official example's) and threads for all, each as its
documentation does it. Progress bars, logs and checkpoints are off, in favor of the libraries that have them. The
network notes when each training step begins; so what comes before the first step and after the last does not count.
"""

import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode
from torchvision import datasets, transforms

from tools import overlay
from tools.bench.record import last_words, real_images, say, short, spread
from tools.bench.speed import mlp, train_step
from tools.course import ROOT
from torchcourse import data, device, models, training

ENVIRONMENT = ROOT / "build" / "bench-venv"
ADVICE = "The libraries to compare with are not installed: run `make bench`, or `make bench PARTS=install`."
NETWORKS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "example": ("mnist", models.MnistExample),  # the official MNIST example's
    "mlp": ("mnist", mlp),
    "tutorial": ("cifar10", models.CifarTutorial),  # the CIFAR-10 tutorial's
}


@dataclass(frozen=True)
class Task:
    """What to train, and how much of it."""

    network: str  # a key of NETWORKS
    batch: int
    images: int  # so many that a repeat takes a few seconds
    workers: int = 0  # of the DataLoader
    dtype: str = "float32"  # ours only


def plan(quick: bool) -> list[tuple[str, Task]]:
    """What is measured: who, and what."""
    if quick:
        return [(name, Task("mlp", 16, 160)) for name in ("ours", "loop")]
    example, tutorial = Task("example", 64, 6_400), Task("tutorial", 512, 40_000)
    rows = [("ours", example), ("ours", replace(example, batch=256, images=12_800))]
    rows += [(name, example) for name in CONTESTANTS if name != "ours"]
    for batch in (64, 512):
        rows += [
            (name, Task("mlp", batch, 40_000, workers)) for name, workers in (("ours", 0), ("loop", 0), ("loop", 4))
        ]
    rows += [("ours", tutorial), *(("loop", replace(tutorial, workers=workers)) for workers in (0, 1, 2, 4))]
    fast = str(device.fast_dtype("cpu")).removeprefix("torch.")
    if fast != "float32":  # where a shorter format pays, as a row of its own
        rows += [(who, replace(task, dtype=fast)) for who, task in rows if who == "ours"]
    return rows


def measure(quick: bool) -> dict[str, Any]:
    """All rows of all networks. Libraries that don't work here are named and left out."""
    networks: dict[str, Any] = {}
    versions = {}
    for who, task in plan(quick):
        if task.network not in networks:
            networks[task.network] = {"mflop": mflop(task.network, quick), "rows": []}
        found = in_a_process(who, task, 1 if quick else 5)
        row = {"name": who, "batch": task.batch, "workers": task.workers, "dtype": task.dtype}
        if "error" in found:
            row |= found
        else:
            speed = spread(found["images_per_s"])
            gflops = short(speed["median"] * networks[task.network]["mflop"] / 1e3)
            row |= {"images_per_s": speed, "gflops": gflops, "repeats": len(found["images_per_s"])}
            if who not in ("ours", "loop"):
                versions[who] = found["version"]
        networks[task.network]["rows"].append(row)
        say(f"libraries: {task.network}: {row}")
    return {"threads": torch.get_num_threads(), "versions": versions, "networks": networks}


def mflop(network: str, quick: bool) -> float:
    """Millions of floating-point operations of a training step, per image, counted by PyTorch."""
    name, make = NETWORKS[network]
    pixels, labels = real_images(name, "train", quick)[0:32]
    model = make()
    with FlopCounterMode(display=False) as counted:
        train_step(model, torch.optim.SGD(model.parameters()), models.Normalize(name)(pixels), labels)
    return short(counted.get_total_flops() / len(pixels) / 1e6)


def in_a_process(who: str, task: Task, repeats: int, patience: float = 600) -> dict[str, Any]:
    """Version and images per second, or {"error": sentence}. patience: in seconds; then the library hangs."""
    variables = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [overlay.python(ENVIRONMENT), "-m", "tools.bench.libraries", who, json.dumps(asdict(task)), str(repeats)]
    how = {"capture_output": True, "text": True, "cwd": ROOT, "env": os.environ | variables}
    try:
        done = subprocess.run(command, timeout=patience, **how)
    except subprocess.TimeoutExpired:
        return {"error": f"It took more than {patience:.0f} s."}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    error = last_words(done.stderr)
    return {"error": ADVICE if "PackageNotFoundError" in error else error}


# ---------------------------------------------------------------------------------------------------------------------
# In a process of its own: one epoch of training by each library

MOMENTS: list[float] = []  # when each training step began


class Watched(nn.Module):
    """A network that notes when each training step begins."""

    def __init__(self, name: str, memory_format: torch.memory_format = torch.contiguous_format):
        super().__init__()
        self.network = NETWORKS[name][1]().to(memory_format=memory_format)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            MOMENTS.append(time.perf_counter())
        return self.network(images)


class Mnist(datasets.MNIST):
    """torchvision's own `__getitem__`; the images are in memory already."""

    def __init__(self, images: data.ImageSet, transform: Callable) -> None:
        self.data, self.targets = images.images[:, 0].clone(), images.labels  # [N, 28, 28]
        self.transform, self.target_transform = transform, None


class Cifar10(datasets.CIFAR10):
    """As Mnist."""

    def __init__(self, images: data.ImageSet, transform: Callable) -> None:
        self.data, self.targets = images.images.permute(0, 2, 3, 1).numpy().copy(), images.labels.tolist()
        self.transform, self.target_transform = transform, None


def dataset(images: data.ImageSet) -> Dataset:
    """One image at a time through ToTensor and Normalize, as the official examples do, with their numbers."""
    kind, mean, std = (Cifar10, (0.5,) * 3, (0.5,) * 3) if images.name == "cifar10" else (Mnist, (0.1307,), (0.3081,))
    return kind(images, transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, std)]))


@cache
def image_set(network: str, count: int) -> data.ImageSet:
    """The first training images of the network's data set, as many as asked for."""
    return data.load(NETWORKS[network][0], "train").subset(slice(count))


def per_sample(task: Task) -> DataLoader:
    """Batches in the usual way: image by image, each through the transforms, then stacked."""
    return DataLoader(dataset(image_set(task.network, task.images)), task.batch, shuffle=True, num_workers=task.workers)


def adadelta(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adadelta(model.parameters(), lr=1.0)


def ours(task: Task) -> None:
    """The course: whole batches, uint8 until the device, channels_last, training.fit."""
    images = image_set(task.network, task.images)
    model = Watched(task.network, torch.channels_last)
    batches = data.loader(images, task.batch, shuffle=True, num_workers=task.workers)
    prepare, dtype = models.Normalize(images.name), getattr(torch, task.dtype)
    training.fit(model, batches, adadelta(model), prepare=prepare, verbose=False, dtype=dtype)


def loop(task: Task) -> None:
    """The loop of the official examples: a DataLoader that fetches image by image."""
    model = Watched(task.network)
    optimizer = adadelta(model)
    model.train()
    for images, labels in per_sample(task):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


def lightning(task: Task) -> None:
    """PyTorch Lightning: a LightningModule and a Trainer."""
    import lightning as L

    class Classifier(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Watched(task.network)

        def training_step(self, batch, batch_idx):
            images, labels = batch
            loss = F.cross_entropy(self.model(images), labels)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self):
            return adadelta(self)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(max_epochs=1, accelerator="cpu", enable_checkpointing=False, **quiet)
    trainer.fit(Classifier(), per_sample(task))


def accelerate(task: Task) -> None:
    """Hugging Face Accelerate: the same loop after `prepare`."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = Watched(task.network)
    model, optimizer, batches = accelerator.prepare(model, adadelta(model), per_sample(task))
    model.train()
    for images, labels in batches:
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(model(images), labels))
        optimizer.step()


# The order is that of the table.
CONTESTANTS = {function.__name__: function for function in (ours, loop, lightning, accelerate)}


def train(name: str, task: Task) -> float:
    """Images per second, without the first steps: those are slow, or fed from what DataLoader workers fetched ahead."""
    MOMENTS.clear()
    CONTESTANTS[name](task)
    steps = MOMENTS[min(5 + 2 * task.workers, len(MOMENTS) // 2) :]
    return (len(steps) - 1) * task.batch / (steps[-1] - steps[0])


def main(name: str, orders: str, repeats: str) -> None:
    """Warm up briefly, then train as often as asked; prints {"version": ..., "images_per_s": [...]}."""
    warnings.simplefilter("ignore")
    task = Task(**json.loads(orders))
    with contextlib.redirect_stdout(sys.stderr):  # whatever a library prints
        version = importlib.metadata.version({"ours": "torchcourse", "loop": "torch"}.get(name, name))
        train(name, replace(task, images=min(task.images, 12 * task.batch)))
        speeds = [train(name, task) for _ in range(int(repeats))]
    print(json.dumps({"version": version, "images_per_s": speeds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
