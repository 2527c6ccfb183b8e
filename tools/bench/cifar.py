"""Accuracy on CIFAR-10 and the seconds of training it takes: the course's recipe in its settings, and in 60 seconds.

    {"ours": {"15 s": {"epochs": 1, "seconds": {"median", "low", "high"}, "accuracy": {"mean", "low", "high"},
                       "runs": [[seconds, accuracy], ...], "repeats": 3, "disturbed": false, ...},
              "75 s": ..., "60 s": ...}}

The settings are named after the seconds that they took on the machine on which they were chosen. "60 s" is the largest
of them with as many epochs as fit into 60 seconds here. Seconds are those of training, the whitening of the stem
included, without imports, reading the data and the test.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tools.bench.runs import ATTEMPTS, images, one, summary, told
from torchcourse import device
from torchcourse.recipes import cifar as recipe

Say = Callable[[str], None]
SEEDS = 3
SETTINGS = ("15 s", "75 s")  # those for a CPU
LIMIT = 60  # seconds


def measure(quick: bool = False, say: Say = print) -> dict[str, Any]:
    """All settings, seed by seed, so that a slow spell of the machine hits all of them."""
    train, test = (images("cifar10", split, quick) for split in ("train", "test"))
    epochs = {name: recipe.SETTINGS[name].epochs for name in SETTINGS}
    seeds, attempts = range(SEEDS), ATTEMPTS
    if quick:
        train, test, epochs = train.subset(slice(512)), test.subset(slice(100)), {SETTINGS[0]: 1}
        seeds, attempts = range(1), 1
    options = {"images": train, "device": "cpu", "dtype": device.fast_dtype("cpu")}

    def run(setting: str, seed: int, count: int) -> dict[str, Any]:
        how = replace(recipe.SETTINGS[setting], epochs=count)
        result = one(lambda: recipe.train(how, seed, **options).model, test, attempts)
        say(f"cifar: ours, setting {setting!r}, {count} epochs, seed {seed}: {told(result)}")
        return result

    runs: dict[str, list[dict]] = {name: [] for name in epochs}
    for seed in seeds:
        for name in runs:
            runs[name].append(run(name, seed, epochs[name]))
    if not quick:
        largest = SETTINGS[-1]
        seconds = summary(runs[largest])["seconds"]["median"] / epochs[largest]
        name = f"{LIMIT} s"
        epochs[name] = max(1, int(LIMIT / seconds))
        runs[name] = [run(largest, seed, epochs[name]) for seed in seeds]
    return {"ours": {name: {"epochs": epochs[name]} | summary(some) for name, some in runs.items()}}
