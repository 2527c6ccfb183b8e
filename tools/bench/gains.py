"""What each idea of chapter 05 gains: `python -m tools.bench gains`.

It starts from PyTorch's tutorial network and changes one thing at a time; every step keeps the changes of the steps
before it. All runs see the same training images equally often, in the same order for the same seed, and every step
runs with the same seeds. Scores come from a validation set, the last 5,000 training images; the test set stays closed.
The learning rate is 0.05 from the tutorial's step on, until a schedule takes over. On that step, batch norm and the
stages, three other seeds preferred no other rate that was tried (0.02, 0.1, 0.2). With pixels from 0 to 1 it has to be
lower.

Fifty runs have to fit into minutes on one core, so each learns from the first 10,000 images, six times. That is little,
and it shows what ideas against overfitting are for. It computes in one thread, so that CPU-seconds mean the same on
every machine and a seed gives the same bits. Topic "cifar_gains":

    setting   {"images_seen": of each run, "seeds": [0, 1, ...], "optimizer": words}
    steps     a list, in order, the tutorial network first; of each step
        title                  short words for an axis or a table: "+ batch norm"
        learning_rate          constant, or the highest one of the schedule
        parameters             how many the network has
        accuracy               on the validation set, from 0 to 1: {"mean", "low", "high", "seeds": [one for each seed]}
        gain                   over the step before, seed by seed, so that what a seed brings to both cancels out:
                               {"mean", "low", "high", "seeds"}; None for the first step
        cpu_seconds_per_epoch  of training, one thread, median over the seeds

low and high: the 95 % interval of the mean (Student's t over the seeds).
"""

import math
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from tools.bench.record import real_images, say
from torchcourse import data, models, training
from torchcourse.augment import Augment, Averaged

IMAGES, EPOCHS, BATCH_SIZE, SEEDS = 10_000, 6, 128, 5
VALIDATION = 5_000  # images at the end of the training set
STUDENT_T = (math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 97.5 %, by degrees of freedom


@dataclass(frozen=True)
class Settings:
    """Everything in which two steps can differ."""

    learning_rate: float
    pixels: str = "0 to 1"  # or "-1 to 1", as in the tutorial, or "standard": mean 0 and deviation 1 in each channel
    batch_norm: bool = False
    widths: tuple[int, ...] = ()  # of the three stages; () is the tutorial network
    residual: bool = False
    one_cycle: bool = False
    augment: bool = False
    smoothing: float = 0.0
    average: bool = False  # test-time augmentation; changes nothing in the training


def steps() -> list[tuple[str, Settings]]:
    """The story of the chapter: title and settings, one change after the other."""
    changes: list[tuple[str, dict[str, Any]]] = [
        ("pixels from −1 to 1", {"pixels": "-1 to 1", "learning_rate": 0.05}),  # the tutorial's training
        ("standardized channels", {"pixels": "standard"}),
        ("batch norm", {"batch_norm": True}),
        ("six 3×3 convolutions", {"widths": (8, 16, 32)}),
        ("width", {"widths": (16, 32, 64)}),
        ("residual connections", {"residual": True}),
        ("one-cycle schedule", {"one_cycle": True, "learning_rate": 0.2}),
        ("flips and shifts", {"augment": True}),
        ("label smoothing", {"smoothing": 0.1}),
        ("test-time averaging", {"average": True}),
    ]
    story = [("pixels from 0 to 1", Settings(learning_rate=0.02))]
    for title, change in changes:
        story.append((f"+ {title}", replace(story[-1][1], **change)))
    return story


def scale(low: float) -> nn.Module:
    """uint8 images [B, C, H, W] -> float32 from `low` to 1. The tutorial's `low` is -1."""
    layer = models.Normalize("cifar10")
    layer.scale, layer.shift = torch.tensor((1 - low) / 255), torch.tensor(float(low))
    return layer


def network(settings: Settings) -> nn.Module:
    """uint8 images [B, 3, 32, 32] -> logits [B, 10]; the augmentation is a layer that only acts while training."""
    net = models.CifarTutorial(batch_norm=settings.batch_norm)
    if settings.widths:
        net = models.CifarNet(settings.widths, residual=settings.residual)
    scales = {"0 to 1": scale(0), "-1 to 1": scale(-1), "standard": models.Normalize("cifar10")}
    augment = Augment(flip=True, shift=2, mode="reflect") if settings.augment else nn.Identity()
    return nn.Sequential(augment, scales[settings.pixels], net)


def train(
    settings: Settings, seed: int, epochs: int, learn: data.ImageSet, validate: data.ImageSet
) -> dict[str, float]:
    """One run: the accuracy at its end, and with test-time averaging."""
    scored = data.loader(validate, 500)
    batches = data.loader(learn, BATCH_SIZE, shuffle=True, seed=seed, drop_last=True)
    torch.manual_seed(seed)
    model = network(settings)
    optimizer = torch.optim.SGD(
        model.parameters(), settings.learning_rate, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    scheduler = None
    if settings.one_cycle:
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, settings.learning_rate, total_steps=epochs * len(batches), cycle_momentum=False
        )
    loss_fn = nn.CrossEntropyLoss(label_smoothing=settings.smoothing)
    cpu_seconds = []
    for _ in range(epochs):
        start = time.process_time()
        training.fit(model, batches, optimizer, loss_fn=loss_fn, scheduler=scheduler, verbose=False)
        cpu_seconds.append(time.process_time() - start)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "cpu_seconds_per_epoch": statistics.median(cpu_seconds),
        "accuracy": training.evaluate(model, scored).accuracy,
        "averaged": training.evaluate(Averaged(model, flip=True), scored).accuracy,
    }


def interval(values: list[float]) -> dict[str, Any]:
    """Mean and 95 % interval of the mean (Student's t) of two values or more, and the values."""
    mean = statistics.fmean(values)
    freedom = min(len(values), len(STUDENT_T)) - 1
    half = STUDENT_T[freedom] * statistics.stdev(values) / math.sqrt(len(values)) if freedom else math.nan
    return {"mean": mean, "low": mean - half, "high": mean + half, "seeds": values}


def measure(quick: bool) -> dict[str, Any]:
    """All runs of all steps, and what the docstring of this module describes."""
    full = real_images("cifar10", "train", quick)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return compared(full, *((640, 1, 1) if quick else (IMAGES, EPOCHS, SEEDS)))
    finally:
        torch.set_num_threads(threads)


def compared(full: data.ImageSet, images: int, epochs: int, seeds: int) -> dict[str, Any]:
    """`measure` with the training set and the numbers of images, epochs and seeds given."""
    validate, learn = full.subset(slice(-VALIDATION, None)), full.subset(slice(0, min(images, len(full) - VALIDATION)))
    story = steps()
    runs: list[list[dict[str, float]]] = [[] for _ in story]
    for seed in range(seeds):  # seed by seed: a run that is stopped halfway has something to say about every step
        for (title, settings), done in zip(story, runs, strict=True):
            how = replace(settings, average=False)  # the same training; each run is scored in both ways
            done.append(train(how, seed, epochs, learn, validate))
            say(f"gains: seed {seed}  {title:<24} {done[-1]}")
    told: list[dict[str, Any]] = []
    for (title, settings), done in zip(story, runs, strict=True):
        scores = [one["averaged" if settings.average else "accuracy"] for one in done]
        before = told[-1]["accuracy"]["seeds"] if told else []
        entry = {
            "title": title,
            "learning_rate": settings.learning_rate,
            "parameters": done[0]["parameters"],
            "accuracy": interval(scores),
            "gain": interval([now - then for now, then in zip(scores, before, strict=True)]) if before else None,
            "cpu_seconds_per_epoch": statistics.median(one["cpu_seconds_per_epoch"] for one in done),
        }
        told.append(entry)
    setting = {
        "images_seen": epochs * (len(learn) // BATCH_SIZE) * BATCH_SIZE,
        "seeds": list(range(seeds)),
        "optimizer": "SGD, Nesterov momentum 0.9, weight decay 0.0005",
    }
    return {"setting": setting, "steps": told}
