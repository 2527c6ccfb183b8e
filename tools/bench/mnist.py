"""Seconds of training to a test accuracy on MNIST: the course's recipe, and the official example as shipped.

    {"ours": {"99.0": {"settings": {"images": 19200, ...}, "seconds": {"median", "low", "high"},
                       "accuracy": {"mean", "low", "high"}, "reached": 10, "runs": [[seconds, accuracy], ...],
                       "repeats": 12, "rejected": 1, "foreign": 0.03, "disturbed": false}, ...},
     "official": [{"seed": 1, "epochs": [[seconds, accuracy, foreign], ...],
                   "seconds_to_99": 181.2 or null}, ...],              null: not reached in the epochs that were run
     "times_sooner": 150.3 or null}

Seconds are those of training: without imports, without reading the data, without the test passes, for both. The recipe
was chosen on a validation set. "reached" counts the seeds whose test accuracy reaches the goal; the goal is about the
mean. The recipe's runs take place between the example's epochs, so that both meet the same machine.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from torch import nn

from tools.bench import official
from tools.bench.quiet import foreign, read, short
from tools.bench.runs import ATTEMPTS, images, one, summary, told
from torchcourse import data
from torchcourse.recipes import mnist as recipe

Say = Callable[[str], None]
SEEDS, FEWER = 12, 5  # of the first goal, of the others
EPOCHS = 5  # of the official example at most: one takes about 40 s
EXAMPLE_SEEDS = (1,)  # the one it is shipped with


def measure(quick: bool = False, say: Say = print) -> dict[str, Any]:
    """Both in turns: an epoch of the example, a few runs of ours, and so on."""
    train, test = (images("mnist", split, quick) for split in ("train", "test"))
    goals = dict(recipe.SETTINGS)
    first = next(iter(goals))
    jobs = [(name, seed) for seed in range(SEEDS) for name in goals if name == first or seed < FEWER]
    epochs, attempts = EPOCHS, ATTEMPTS
    if quick:
        train, test = train.subset(slice(640)), test.subset(slice(100))
        goals, jobs, epochs, attempts = {first: recipe.Setting(seen=640)}, jobs[:1], 1, 1
    ours: dict[str, list[dict]] = {name: [] for name in goals}

    def run(jobs: list[tuple[str, int]]) -> None:
        for name, seed in jobs:
            network = partial(trained, goals[name], seed, train)
            result = one(network, test, attempts)
            say(f"mnist: ours for {name} %, seed {seed}: {told(result)}")
            ours[name].append(result)

    examples = []
    share = -(-len(jobs) // epochs)  # runs of ours after each epoch of the example
    for seed in EXAMPLE_SEEDS:
        examples.append({"seed": seed, "epochs": [], "seconds_to_99": None})
        for number, step in enumerate(official_epochs(seed, epochs, train, test), start=1):
            say(f"mnist: official example, epoch {number}: {step[0]:.1f} s, test accuracy {step[1]:.2%}")
            examples[-1]["epochs"].append(step)
            run(jobs[:share])
            jobs = jobs[share:]
            if step[1] >= 0.99:
                examples[-1]["seconds_to_99"] = short(sum(seconds for seconds, _, _ in examples[-1]["epochs"]))
                break
    run(jobs)  # what is left when the example was quick
    results = {
        name: {"settings": asdict(goals[name])} | summary(runs, float(name) / 100)
        for name, runs in ours.items()
        if runs
    }
    times = [example["seconds_to_99"] for example in examples if example["seconds_to_99"]]
    sooner = short(statistics.median(times) / results[first]["seconds"]["median"]) if times else None
    return {"ours": results, "official": examples, "times_sooner": sooner}


def trained(setting: recipe.Setting, seed: int, train: data.ImageSet) -> nn.Module:
    """The network of one run of the recipe."""
    return recipe.train(setting, seed, images=train, device="cpu").model


def official_epochs(seed: int, most: int, train: data.ImageSet, test: data.ImageSet) -> Iterator[list[float]]:
    """The example's epochs, each as [seconds, test accuracy, share of the processor that others used]."""
    epochs = official.epochs(seed, most, train, test)
    while True:
        before = read()
        epoch = next(epochs, None)
        if epoch is None:
            return
        yield [short(epoch["seconds"]), epoch["accuracy"], round(foreign(before, read()), 4)]
