"""What is trained: data sets, networks with their step, and the seconds and test accuracy of whole trainings."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tools.bench.speed import clock, short, spread
from torchcourse import data, models, training
from torchcourse.errors import CourseError

Say = Callable[[str], None]


def mlp() -> nn.Sequential:
    """A small network without convolutions: 784-512-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))


@dataclass(frozen=True)
class Load:
    """A CifarNet of these widths, on batches of random images [batch, 3, side, side]."""

    widths: tuple[int, int, int]
    stride: int
    batch: int
    side: int = 32

    def network(self) -> nn.Module:
        """A new network."""
        return models.CifarNet(self.widths, self.stride, residual=False)

    def images(self, device: torch.device, count: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Random images and labels."""
        return random_images(count or self.batch, (3, self.side, self.side), device)


def random_images(count: int, shape: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Images [count, *shape] and labels: speed does not depend on what is in them."""
    rng = torch.Generator().manual_seed(count)
    images = torch.randn(count, *shape, generator=rng)
    return images.to(device), torch.randint(10, (count,), generator=rng).to(device)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor) -> None:
    """One training step; nothing in it waits for the device."""
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def mflop(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Millions of floating-point operations of a training step, per image, counted by PyTorch."""
    with FlopCounterMode(display=False) as counted:
        train_step(model, torch.optim.SGD(model.parameters()), images, labels)
    return short(counted.get_total_flops() / len(images) / 1e6)


def real_images(name: str, split: str, quick: bool) -> data.ImageSet:
    """A data set, which has to be the real one unless the run is a quick one."""
    found = data.load(name, split)
    if found.origin != "real" and not quick:
        raise CourseError(f"This part needs the real data. Download them: torchcourse data fetch {name}")
    return found


def fastest(model: nn.Module, images: data.ImageSet, batch: int) -> str:
    """The data type that trains this network fastest on its device, by name. Asked once, so all seeds use the same."""
    pixels, labels = (tensor.to(training.device_of(model)) for tensor in images[:batch])
    return str(training.fast_dtype(model.train(), pixels, labels)).removeprefix("torch.")


def scored(
    recipe: ModuleType, setting: Any, seed: int, train: data.ImageSet, test: data.ImageSet, where: dict[str, Any]
) -> dict[str, float]:
    """Seconds of one training by a recipe of the course, and its test accuracy. where: device and dtype."""
    seconds, run = clock(lambda: recipe.train(setting, seed, images=train, **where))
    batches = data.loader(test.to(where["device"]), 500)
    return {"seconds": short(seconds), "accuracy": training.evaluate(run.model, batches).accuracy}


def told(run: dict[str, float]) -> str:
    """A run in a line of progress."""
    return f"{run['seconds']:.2f} s, test accuracy {run['accuracy']:.2%}"


def summary(runs: list[dict[str, float]], goal: float | None = None) -> dict[str, Any]:
    """What is recorded of some runs, one for each seed from 0 up. goal: "reached" counts the seeds at or above it."""
    scores = [run["accuracy"] for run in runs]
    return {
        "seconds": spread([run["seconds"] for run in runs]),
        "accuracy": {"mean": round(statistics.mean(scores), 5), "low": min(scores), "high": max(scores)},
        "reached": None if goal is None else sum(score >= goal for score in scores),
        "runs": [[run["seconds"], run["accuracy"]] for run in runs],
        "repeats": len(runs),
    }
