"""Seconds of training and test accuracy on MNIST: the course's recipe, and the official example as shipped.

    {"ours": {"99.0": {"settings": {"seen": 28000, ...}, "dtype": "float32",
                       "seconds": {"median", "low", "high"}, "accuracy": {"mean", "low", "high"},
                       "reached": 10, "runs": [[seconds, accuracy], ...], "repeats": 12}, ...},
     "official": [{"seed": 1, "epochs": [[seconds, accuracy], ...]}]}

Seconds are those of training: without imports, reading the data, and the test passes, for both. "99.0" is the goal in
percent for which a setting was chosen on a validation set; "reached" counts the seeds that meet it on the test set.
"""

from dataclasses import asdict
from typing import Any

import torch

from tools.bench import official
from tools.bench.rows import Rows
from tools.bench.training import Say, fastest, real_images, scored, summary, told
from torchcourse import device as devices
from torchcourse.data import ImageSet
from torchcourse.recipes import mnist as recipe

SEEDS, FEWER = 12, 5  # of the first goal, of the others
EPOCHS = 5  # of the official example: on a CPU one takes about 40 s
EXAMPLE_SEED = 1  # the one it is shipped with


def measure(rows: Rows, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """Every goal, seed by seed, then the official example, on the best device."""
    device = devices.best()
    train, test = (real_images("mnist", split, quick) for split in ("train", "test"))
    goals, epochs, seeds = dict(recipe.SETTINGS), EPOCHS, SEEDS
    if quick:
        train, test = train.subset(slice(640)), test.subset(slice(100))
        goals, epochs, seeds = {"99.0": recipe.Setting(seen=640)}, 1, 1
    if not rows.over:
        recipe.train(recipe.Setting(seen=640), images=train.subset(slice(640)), device=device)  # warms up
    ours = {}
    for name, how in goals.items():
        network = recipe.network(how, train).to(device)
        dtype = rows(f"fastest, {how.seen} images", "any", fastest, network, train, how.batch_size)
        runs, where = [], {"device": device, "dtype": getattr(torch, dtype)}
        for seed in range(seeds if not ours else min(seeds, FEWER)):
            runs.append(rows(f"{how.seen} images, seed {seed}", dtype, scored, recipe, how, seed, train, test, where))
            say(f"mnist: ours, {how.seen:,} images, seed {seed}: {told(runs[-1])}")
        ours[name] = {"settings": asdict(how), "dtype": dtype}
        ours[name] |= summary(runs, float(name) / 100)
    steps = rows("official example", "float32", example, epochs, train, test, device, say)
    return {"ours": ours, "official": [{"seed": EXAMPLE_SEED, "epochs": steps}]}


def example(epochs: int, train: ImageSet, test: ImageSet, device: torch.device, say: Say) -> list[list[float]]:
    """The official example's epochs, each as [seconds, test accuracy]."""
    steps = []
    for epoch in official.epochs(EXAMPLE_SEED, epochs, train, test, device):
        say(f"mnist: official example, epoch {epoch['epoch']}: {told(epoch)}")
        steps.append([epoch["seconds"], epoch["accuracy"]])
    return steps
