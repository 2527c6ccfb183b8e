"""Seconds of training to a test accuracy on the best device: 99.4 % on MNIST, 90 % and 94 % on CIFAR-10.

Topic "recipes":

    {"device": "cuda (NVIDIA H100 80GB HBM3)", "dtype": "bfloat16",
     "mnist": {"99.4": GOAL}, "cifar10": {"90": GOAL, "94": GOAL}}

    GOAL = {"goal": 0.94, "target_reached": true,         the mean test accuracy of the seeds is at least the goal
            "setting": {...}, "epochs": 10,               of the recipe
            "chosen_by": {"6": 0.931, "10": 0.9422},      epochs tried -> accuracy on the validation split; MNIST: null
            "seconds": {"median", "low", "high"}, "accuracy": {"mean", "low", "high"}, "reached": 4,
            "runs": [[seconds, accuracy], ...],
            "repeats": 5, "rejected": 0, "foreign": 0.01, "disturbed": false}

Seconds are those of training, after one short run that does not count; without imports, reading the data and the test.
"reached" counts the seeds whose test accuracy is at least the goal. A goal for which there was no time is missing.

How long to train on CIFAR-10 is chosen here, on this device: one number of epochs after the other is tried with one
seed on 45,000 images and scored on the other 5,000 of the training set; the first that gets to the goal is taken, the
best one if none does. Then each seed trains on all 50,000 images and is tested once, whatever comes out.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

from tools.bench.journal import Journal
from tools.bench.runs import ATTEMPTS, images, one, summary, told
from torchcourse import data, training
from torchcourse import device as devices
from torchcourse.recipes import cifar, mnist

Say = Callable[[str], None]
SEEDS = 5
VALIDATION = 5_000  # images at the end of CIFAR-10's training set: those that the recipe's other numbers were chosen on
SETTING = "gpu"
LADDER = {"90": (2, 3, 4, 5, 6, 8), "94": (8, 10, 12, 16, 20, 30)}  # goal in percent -> epochs to try, in this order


def measure(quick: bool = False, say: Say = print, journal: Journal | None = None) -> dict[str, Any]:
    """All goals, one after the other; every run is kept in the journal."""
    device, journal = devices.best(), journal or Journal()
    dtype = devices.fast_dtype(device)
    return {
        "device": devices.describe(device),
        "dtype": str(dtype).removeprefix("torch."),
        "mnist": digits(device, dtype, quick, say, journal),
        "cifar10": photographs(device, dtype, quick, say, journal),
    }


def digits(device: torch.device, dtype: torch.dtype, quick: bool, say: Say, journal: Journal) -> dict[str, Any]:
    """MNIST's goal."""
    settings = mnist.SETTINGS["99.4"]
    train, test = (images("mnist", split, quick) for split in ("train", "test"))
    if quick:
        train, test, settings = train.subset(slice(640)), test.subset(slice(100)), replace(settings, seen=640)

    def network(seed: int, some: data.ImageSet = train) -> nn.Module:
        return mnist.train(settings, seed, images=some, device=device, dtype=dtype).model

    if not journal.over:
        network(0, train.subset(slice(640)))  # warms up
    found = seeds("mnist 99.4", network, test, quick, say, journal)
    if not found:
        return {}
    epochs = max(1, round(settings.seen / len(train)))
    return {"99.4": result(0.994, found, asdict(settings), epochs, None)}


def photographs(device: torch.device, dtype: torch.dtype, quick: bool, say: Say, journal: Journal) -> dict[str, Any]:
    """CIFAR-10's goals."""
    train, test = (images("cifar10", split, quick) for split in ("train", "test"))
    setting, ladder = cifar.SETTINGS[SETTING], LADDER
    if quick:
        train, test = train.subset(slice(600)), test.subset(slice(100))
        setting = replace(cifar.SETTINGS["15 s"], widths=(8, 8, 8), batch_size=64)
        ladder = {"90": (1, 2)}
    held_out = 100 if quick else VALIDATION
    learned, validation = train.subset(slice(len(train) - held_out)), train.subset(slice(-held_out, None))
    options = {"device": device, "dtype": dtype, "verbose": False}

    def network(seed: int, epochs: int, some: data.ImageSet = train) -> nn.Module:
        return cifar.train(replace(setting, epochs=epochs), seed, images=some, **options).model

    def score(epochs: int) -> float:
        model = network(0, epochs, learned)
        return training.evaluate(model, data.loader(validation, 500)).accuracy

    if not journal.over:
        network(0, 1, train.subset(slice(2 * setting.batch_size)))  # warms up
    results = {}
    for name, steps in ladder.items():
        goal, tried, decided = float(name) / 100, {}, False
        for epochs in steps:
            reached = journal.once(f"cifar10 validation, {epochs} epochs", lambda epochs=epochs: score(epochs))
            if reached is None:
                break
            tried[epochs] = reached
            say(f"recipes: cifar10, {epochs} epochs: validation accuracy {reached:.2%}")
            if decided := reached >= goal:
                break
        else:
            decided = True
            say(f"recipes: no number of epochs that was tried reaches {goal:.0%} on the validation split")
        if not decided:
            continue
        chosen = max(tried, key=tried.get)  # the last one, if it got to the goal
        found = seeds(f"cifar10 {name}", lambda seed, n=chosen: network(seed, n), test, quick, say, journal)
        if found:
            results[name] = result(goal, found, asdict(setting) | {"epochs": chosen}, chosen, tried)
    return results


def seeds(
    name: str, network: Callable[[int], nn.Module], test: data.ImageSet, quick: bool, say: Say, journal: Journal
) -> list[dict[str, Any]]:
    """One run for each seed, as many as the time suffices for."""
    found, attempts = [], 1 if quick else ATTEMPTS
    for seed in range(1 if quick else SEEDS):
        key = f"{name}, seed {seed}"
        run = journal.once(key, lambda seed=seed: one(lambda: network(seed), test, attempts))
        if run is None:
            break
        say(f"recipes: {key}: {told(run)}")
        found.append(run)
    return found


def result(
    goal: float, runs: list[dict[str, Any]], setting: dict[str, Any], epochs: int, tried: dict[int, float] | None
) -> dict[str, Any]:
    """What is recorded of a goal."""
    told = summary(runs, goal)
    head = {"goal": goal, "target_reached": told["accuracy"]["mean"] >= goal, "setting": setting, "epochs": epochs}
    return head | {"chosen_by": tried and {str(epochs): score for epochs, score in tried.items()}} | told
