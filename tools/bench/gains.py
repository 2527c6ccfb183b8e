"""What each idea of chapter 05 gains: `python -m tools.bench gains`.

It starts from PyTorch's tutorial network and changes one thing at a time; every step keeps the changes of the steps
before it. All runs see the same training images equally often, in the same order for the same seed, and every step
runs with the same seeds. Scores come from a validation set, the last 5,000 training images; the test set stays closed.
The learning rate is 0.05 from the tutorial's step on, until a schedule takes over. On that step, batch norm and the
stages, three other seeds preferred no other rate that was tried (0.02, 0.1, 0.2). With pixels from 0 to 1 it has to be
lower.

Fifty runs have to fit into minutes on one core, so each learns from the first 10,000 images, six times. That is little,
and it shows what ideas against overfitting are for.

It computes in one thread, so that CPU-seconds mean the same on every machine and a seed gives the same bits. Topic
"cifar_gains":

    setting   {"data": "cifar10", "training_images": 10000, "validation_images": 5000, "epochs", "images_seen",
               "batch_size", "seeds": [0, 1, ...], "optimizer": words, "threads"}
    steps     a list, in order, the tutorial network first; of each step
        name                   "tutorial", "normalize", ...
        title                  short words for an axis or a table: "+ batch norm"
        change                 one sentence: what is different from the step before
        learning_rate          constant, or the highest one of the schedule
        parameters             how many the network has
        accuracy               on the validation set: {"mean", "low", "high", "seeds": [one for each seed]}
        gain                   over the step before, seed by seed, so that what a seed brings to both cancels out:
                               {"mean", "low", "high", "seeds"}; None for the first step
        training_accuracy      on 5,000 of the training images, in eval mode and unchanged: the same form
        cpu_seconds_per_epoch  of training, one thread, median over the seeds
        curve                  of the first seed: {"epoch": [1, ...], "training_accuracy": [...],
                               "validation_accuracy": [...], "training_loss": [...], "validation_loss": [...]}

All accuracies are shares from 0 to 1. low and high: the 95 % interval of the mean (Student's t over the seeds).
In the `curve`, too, both scores are taken in eval mode after the epoch, with the plain cross-entropy as the loss.
"""

import math
import statistics
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tools.bench.rows import Rows
from tools.bench.training import Say, real_images
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


@dataclass(frozen=True)
class Step:
    name: str
    title: str
    change: str
    settings: Settings


def steps() -> list[Step]:
    """The story of the chapter, one change after the other."""
    settings = Settings(learning_rate=0.02)
    change = "The network of PyTorch's beginner tutorial; pixels from 0 to 1."
    story = [Step("pixels", "pixels from 0 to 1", change, settings)]

    def then(name: str, title: str, change: str, **changes: Any) -> None:
        nonlocal settings
        settings = replace(settings, **changes)
        story.append(Step(name, f"+ {title}", change, settings))

    change = "Pixels from -1 to 1: now it is the tutorial's training, but for the optimizer's settings."
    then("tutorial", "pixels from −1 to 1", change, pixels="-1 to 1", learning_rate=0.05)
    change = "Every channel has mean 0 and standard deviation 1."
    then("standard", "standardized channels", change, pixels="standard")
    change = "Batch norm after both convolutions."
    then("batch_norm", "batch norm", change, batch_norm=True)
    change = "Three stages of two 3×3 convolutions, with 8, 16 and 32 channels, and one linear layer."
    then("stages", "more, smaller kernels", change, widths=(8, 16, 32))
    change = "Twice as many channels: 16, 32 and 64."
    then("width", "width", change, widths=(16, 32, 64))
    change = "The second convolution of each stage only adds to what it gets."
    then("residual", "residual connections", change, residual=True)
    change = "The learning rate rises to four times its constant value, then falls to zero."
    then("one_cycle", "one-cycle schedule", change, one_cycle=True, learning_rate=0.2)
    change = "Images are flipped and shifted by up to 2 pixels at random, a whole batch at once."
    then("augment", "flips and shifts", change, augment=True)
    change = "The loss asks for 0.91 for the right class and 0.01 for each other."
    then("smoothing", "label smoothing", change, smoothing=0.1)
    change = "The score is that of the mean logits of the image and its mirror image."
    then("average", "test-time averaging", change, average=True)
    return story


class Scale(nn.Module):
    """uint8 images [B, C, H, W] -> float32 from `low` to 1, in channels_last memory. The tutorial's `low` is -1."""

    def __init__(self, low: float) -> None:
        super().__init__()
        self.low = low

    def forward(self, images: Tensor) -> Tensor:
        return self.low + images.to(torch.float32, memory_format=torch.channels_last) * ((1 - self.low) / 255)


def network(settings: Settings) -> nn.Module:
    """uint8 images [B, 3, 32, 32] -> logits [B, 10]; the augmentation is a layer that only acts while training."""
    if settings.widths:
        net = models.CifarNet(settings.widths, residual=settings.residual)
    else:
        net = models.CifarTutorial(batch_norm=settings.batch_norm)
    scales = {"0 to 1": Scale(0), "-1 to 1": Scale(-1), "standard": models.Normalize("cifar10")}
    return nn.Sequential(
        Augment(flip=True, shift=2, mode="reflect") if settings.augment else nn.Identity(),
        scales[settings.pixels],
        net,
    )


def train(
    settings: Settings, seed: int, epochs: int, learn: data.ImageSet, validate: data.ImageSet, curve: bool
) -> dict[str, Any]:
    """One run: the scores at its end and, if asked for, after each epoch."""
    scored = {
        "training": data.loader(learn.subset(slice(0, VALIDATION)), 500),
        "validation": data.loader(validate, 500),
    }
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
    cpu_seconds, history = [], []
    for epoch in range(1, epochs + 1):
        start = time.process_time()
        training.fit(model, batches, optimizer, loss_fn=loss_fn, scheduler=scheduler, verbose=False)
        cpu_seconds.append(time.process_time() - start)
        if curve or epoch == epochs:
            scores = {name: training.evaluate(model, some) for name, some in scored.items()}
            history.append({"epoch": epoch} | {name: asdict(score) for name, score in scores.items()})
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "cpu_seconds_per_epoch": statistics.median(cpu_seconds),
        "history": history,
        "accuracy": scores["validation"].accuracy,
        "averaged": training.evaluate(Averaged(model, flip=True), scored["validation"]).accuracy,
    }


def interval(values: list[float]) -> dict[str, Any]:
    """Mean and 95 % interval of the mean (Student's t) of two values or more, and the values."""
    mean = statistics.fmean(values)
    freedom = min(len(values), len(STUDENT_T)) - 1
    half = STUDENT_T[freedom] * statistics.stdev(values) / math.sqrt(len(values)) if freedom else math.nan
    return {"mean": mean, "low": mean - half, "high": mean + half, "seeds": values}


def summary(step: Step, runs: list[dict[str, Any]], before: list[float] | None) -> dict[str, Any]:
    """One entry of `steps` in the results. runs: one for each seed; before: accuracies of the step before."""
    final = [run["history"][-1] for run in runs]
    accuracy = [run["averaged" if step.settings.average else "accuracy"] for run in runs]
    return {
        "name": step.name,
        "title": step.title,
        "change": step.change,
        "learning_rate": step.settings.learning_rate,
        "parameters": runs[0]["parameters"],
        "accuracy": interval(accuracy),
        "gain": interval([now - then for now, then in zip(accuracy, before, strict=True)]) if before else None,
        "training_accuracy": interval([last["training"]["accuracy"] for last in final]),
        "cpu_seconds_per_epoch": statistics.median(run["cpu_seconds_per_epoch"] for run in runs),
        "curve": {"epoch": [point["epoch"] for point in runs[0]["history"]]}
        | {
            f"{which}_{what}": [point[which][what] for point in runs[0]["history"]]
            for what in ("accuracy", "loss")
            for which in ("training", "validation")
        },
    }


def measure(rows: Rows, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """All runs of all steps, and what the docstring of this module describes."""
    full = real_images("cifar10", "train", quick)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return run(rows, full, 640 if quick else IMAGES, 1 if quick else EPOCHS, 1 if quick else SEEDS, say)
    finally:
        torch.set_num_threads(threads)


def run(rows: Rows, full: data.ImageSet, images: int, epochs: int, seeds: int, say: Say) -> dict[str, Any]:
    """`measure` with the training set and the numbers of images, epochs and seeds given."""
    learn, validate = full.subset(slice(0, len(full) - VALIDATION)), full.subset(slice(-VALIDATION, None))
    learn = learn.subset(slice(0, images))
    story = steps()
    runs: list[list[dict[str, Any]]] = [[] for _ in story]
    for seed in range(seeds):  # seed by seed: a run that is stopped halfway has something to say about every step
        for step, done in zip(story, runs, strict=True):
            how = replace(step.settings, average=False)  # the same training; each run is scored in both ways
            name = f"{len(learn)} images, {epochs} epochs, seed {seed}, {how}"
            done.append(rows(name, "float32", train, how, seed, epochs, learn, validate, seed == 0))
            accuracy = done[-1]["averaged" if step.settings.average else "accuracy"]
            say(f"gains: seed {seed}  {step.title:<24} {accuracy:.2%}")
    told, before = [], None
    for step, done in zip(story, runs, strict=True):
        told.append(summary(step, done, before))
        before = told[-1]["accuracy"]["seeds"]
    setting = {
        "data": full.name,
        "origin": full.origin,
        "training_images": len(learn),
        "validation_images": len(validate),
        "epochs": epochs,
        "images_seen": epochs * (len(learn) // BATCH_SIZE) * BATCH_SIZE,
        "batch_size": BATCH_SIZE,
        "seeds": list(range(seeds)),
        "optimizer": "SGD, Nesterov momentum 0.9, weight decay 0.0005",
        "threads": torch.get_num_threads(),
    }
    return {"setting": setting, "steps": told}
