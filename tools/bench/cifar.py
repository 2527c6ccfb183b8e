"""Seconds of training and test accuracy on CIFAR-10: the course's recipe for several numbers of epochs.

    {"ours": {"1": {"epochs": 1, "settings": {...}, "dtype": "float32", "seconds": {"median", "low", "high"},
                    "accuracy": {"mean", "low", "high"}, "runs": [[seconds, accuracy], ...], "repeats": 3},
              "2": ..., "3": ...}}

Seconds are those of training, the whitening of the stem included, without imports, reading the data and the test.
All numbers of epochs are reported, so none of them is chosen by a look at the test set.
"""

from dataclasses import asdict, replace
from typing import Any

import torch

from tools.bench.rows import Rows
from tools.bench.training import Say, fastest, real_images, scored, summary, told
from torchcourse import device as devices
from torchcourse.recipes import cifar as recipe

SEEDS = {"cpu": 3, "gpu": 5}
EPOCHS = {"cpu": (1, 2, 3), "gpu": (8, 12, 16, 24)}


def measure(rows: Rows, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """All numbers of epochs, seed by seed, on the best device."""
    device = devices.best()
    kind = "cpu" if device.type == "cpu" else "gpu"
    how, epochs, seeds = recipe.SETTINGS["15 s" if kind == "cpu" else "gpu"], EPOCHS[kind], range(SEEDS[kind])
    train, test = (real_images("cifar10", split, quick) for split in ("train", "test"))
    if quick:
        train, test, epochs, seeds = train.subset(slice(512)), test.subset(slice(100)), (1,), range(1)
        how = replace(how, widths=(8, 8, 8), batch_size=64)
    if not rows.over:
        few = train.subset(slice(2 * how.batch_size))
        recipe.train(replace(how, epochs=1), images=few, device=device)  # warms up
    dtype = rows("fastest", "any", fastest, recipe.network(how, train).to(device), train, how.batch_size)
    where = {"device": device, "dtype": getattr(torch, dtype)}
    ours = {}
    for count in epochs:
        runs, setting = [], replace(how, epochs=count)
        for seed in seeds:
            runs.append(rows(f"{count} epochs, seed {seed}", dtype, scored, recipe, setting, seed, train, test, where))
            say(f"cifar: ours, {count} epochs, seed {seed}: {told(runs[-1])}")
        ours[str(count)] = {"epochs": count, "settings": asdict(setting), "dtype": dtype} | summary(runs)
    return {"ours": ours}
