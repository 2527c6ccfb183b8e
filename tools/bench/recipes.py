"""Seconds of training and test accuracy: the course's recipes, and PyTorch's official MNIST example as shipped.

    mnist   {"ours": {"99.0": {"settings": {"seen": 28000, ...}, "dtype": "float32",
                               "seconds": {"median", "low", "high"}, "accuracy": {"mean", "low", "high"},
                               "reached": 10, "runs": [[seconds, accuracy], ...], "repeats": 12}, ...},
             "official": [{"seed": 1, "epochs": [[seconds, accuracy], ...]}]}
    cifar   {"ours": {"1": {"epochs": 1, ... as above}, "2": ..., "3": ...}}

Seconds are those of training: without imports, reading the data, and the test passes, for all of them. "99.0" is the
goal in percent for which a setting was chosen on a validation set; "reached" counts the seeds that meet it on the test
set. On CIFAR-10 all numbers of epochs are reported, so none of them is chosen by a look at the test set.
"""

import statistics
from dataclasses import asdict, replace
from functools import partial
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from tools.bench.record import clock, real_images, say, short, spread
from torchcourse import data, models, training
from torchcourse import device as devices
from torchcourse.recipes import cifar as cifar_recipe
from torchcourse.recipes import mnist as mnist_recipe

Sets = tuple[data.ImageSet, data.ImageSet]  # to learn from, to test with
EXAMPLE_EPOCHS = 5  # on a CPU one takes about 40 s
EXAMPLE_SEED = 1  # the one it is shipped with


def mnist(quick: bool) -> dict[str, Any]:
    """Every goal, seed by seed, then the official example, on the best device."""
    device = devices.best()
    train, test = (real_images("mnist", split, quick) for split in ("train", "test"))
    goals, epochs, seeds = dict(mnist_recipe.SETTINGS), EXAMPLE_EPOCHS, (12, 5)  # of the first goal, of the others
    if quick:
        train, test = train.subset(slice(640)), test.subset(slice(100))
        goals, epochs, seeds = {"99.0": mnist_recipe.Setting(seen=640)}, 1, (1, 1)
    ours: dict[str, Any] = {}
    for name, how in goals.items():
        ours[name] = trained(mnist_recipe, name, how, seeds[bool(ours)], (train, test), device)
        ours[name]["reached"] = sum(accuracy >= float(name) / 100 for _, accuracy in ours[name]["runs"])
    steps = example(epochs, train, test, device)
    say(f"mnist: official example: {steps}")
    return {"ours": ours, "official": [{"seed": EXAMPLE_SEED, "epochs": steps}]}


def cifar(quick: bool) -> dict[str, Any]:
    """All numbers of epochs, seed by seed, on the best device."""
    device = devices.best()
    train, test = (real_images("cifar10", split, quick) for split in ("train", "test"))
    setting, epochs, seeds = cifar_recipe.SETTINGS["gpu"], (8, 12), 3
    if device.type == "cpu":
        setting, epochs, seeds = cifar_recipe.SETTINGS["15 s"], (1, 2, 3), 3
    if quick:
        train, test, epochs, seeds = train.subset(slice(512)), test.subset(slice(100)), (1,), 1
        setting = replace(setting, widths=(8, 8, 8), batch_size=64)
    ours = {}
    for count in epochs:
        how = replace(setting, epochs=count)
        found = trained(cifar_recipe, f"{count} epochs", how, seeds, (train, test), device)
        ours[str(count)] = {"epochs": count} | found
    return {"ours": ours}


def trained(recipe: ModuleType, name: str, how: Any, seeds: int, sets: Sets, device: torch.device) -> dict[str, Any]:
    """What is recorded of one setting of a recipe, trained with so many seeds."""
    train, test = sets
    dtype = fastest(recipe.network(how, train).to(device), train, how.batch_size)
    runs = []
    for seed in range(seeds):
        start = partial(recipe.train, how, seed, images=train, device=device, dtype=getattr(torch, dtype))
        taken, run = clock(start)
        score = training.evaluate(run.model, data.loader(test.to(device), 500)).accuracy
        runs.append([short(taken), score])
        say(f"{name}, seed {seed}: {runs[-1][0]:.2f} s, test accuracy {runs[-1][1]:.2%}")
    seconds, scores = zip(*runs, strict=True)
    return {
        "settings": asdict(how),
        "dtype": dtype,
        "seconds": spread(seconds),
        "accuracy": {"mean": round(statistics.mean(scores), 5), "low": min(scores), "high": max(scores)},
        "runs": runs,
        "repeats": len(runs),
    }


def fastest(model: nn.Module, images: data.ImageSet, batch: int) -> str:
    """The data type that trains this network fastest on its device, by name. Asked once, so all seeds use the same."""
    pixels, labels = (tensor.to(training.device_of(model)) for tensor in images[:batch])
    return str(training.fast_dtype(model.train(), pixels, labels)).removeprefix("torch.")


# ---------------------------------------------------------------------------------------------------------------------
# The official example, github.com/pytorch/examples, mnist/main.py. Our own lines of code; what they do, and in which
# order, is the example's: its network with log_softmax, batches of 64 from a DataLoader that fetches image by image,
# Adadelta with learning rate 1, times 0.7 after each epoch. On a CPU it does not shuffle.


class Mnist(datasets.MNIST):
    """torchvision's own `__getitem__` with the example's transforms; the images are in memory already."""

    def __init__(self, images: data.ImageSet) -> None:
        self.data, self.targets = images.images[:, 0].clone(), images.labels  # [N, 28, 28]
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
        self.target_transform = None


def example(epochs: int, train: data.ImageSet, test: data.ImageSet, device: torch.device) -> list[list[float]]:
    """Train; of each epoch the seconds of training, and the test accuracy after it."""
    # On an accelerator the example shuffles, and a worker process fetches into pinned memory.
    fetch = {} if device.type == "cpu" else {"num_workers": 1, "persistent_workers": True, "pin_memory": True}
    torch.manual_seed(EXAMPLE_SEED)
    batches = DataLoader(Mnist(train), batch_size=64, shuffle=device.type != "cpu", **fetch)
    test_batches = DataLoader(Mnist(test), batch_size=1000, **fetch)
    model = nn.Sequential(models.MnistExample(), nn.LogSoftmax(dim=1)).to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)

    def one_epoch() -> None:
        model.train()
        for images, labels in batches:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            F.nll_loss(model(images), labels).backward()
            optimizer.step()

    steps = []
    for _ in range(epochs):
        seconds, _ = clock(one_epoch)
        steps.append([short(seconds), training.evaluate(model, test_batches).accuracy])
        schedule.step()
    return steps
