"""Train and evaluate: the loop of chapter 02 with a name.

Nothing is hidden here that the chapter does not write out first; with the same seeds both give the same weights, bit
for bit. What a model does only while it learns (dropout, shifted copies of the images) belongs in a module that
looks at `self.training`: `fit` and `evaluate` set that mode.
"""

import copy
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcourse import device as devices
from torchcourse.errors import CourseError

Batches = Iterable[tuple[Tensor, Tensor]]  # yields (images, labels); a DataLoader, or a list of batches


@dataclass(frozen=True)
class Score:
    """How good a model is on some batches."""

    loss: float  # mean over all images, in nats for cross-entropy
    accuracy: float  # share of the images whose largest logit is the right class, 0 to 1


@dataclass(frozen=True)
class Epoch:
    """What one pass through the training set did. The training score is taken while the model changes."""

    number: int  # 1 for the first
    training: Score
    validation: Score | None  # after the epoch, in eval mode
    learning_rate: float  # of the first parameter group, when the epoch began
    seconds: float  # of training and validation together

    def __str__(self) -> str:
        line = f"epoch {self.number}: training loss {self.training.loss:.4f}, accuracy {self.training.accuracy:.2%}"
        if self.validation:
            line += f" · validation loss {self.validation.loss:.4f}, accuracy {self.validation.accuracy:.2%}"
        return f"{line} · {self.seconds:.1f} s"


def fit(
    model: nn.Module,
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    epochs: int = 1,
    *,
    validation: Batches | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
    dtype: torch.dtype | Literal["fast"] | None = None,
    verbose: bool = True,
) -> list[Epoch]:
    """Train the model in place, on the device where its parameters are, and return the history, an `Epoch` for each.

    batches: (images [B, ...] of any dtype, labels int64 [B]); shuffled when they are made.
    optimizer: over the parameters of the model.
    validation: batches for a score after each epoch; None means no such score.
    prepare: images on the device -> input of the model; this is where uint8 becomes float and is normalized.
    loss_fn: (logits [B, classes], labels [B]) -> mean loss of the batch, a scalar tensor.
    scheduler: of the learning rate; moves on after every batch.
    dtype: compute in it what may be computed in it (autocast). The weights stay float32. "fast" tries the model on its
        first batch, in bfloat16 and in float32, and takes the faster one. None and torch.float32 change nothing.
    verbose: print one line for each epoch.
    Raises CourseError when there is no batch.
    """
    device = device_of(model)
    history = []
    for number in range(1, epochs + 1):
        start, learning_rate = time.perf_counter(), optimizer.param_groups[0]["lr"]
        model.train()
        total = _Total(device)
        for images, labels in batches:
            images, labels = _to(device, images, labels, prepare)
            if dtype == "fast":
                dtype = fast_dtype(model, images, labels, loss_fn)
            with _precision(device, dtype):
                logits = model(images)
                loss = loss_fn(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if scheduler:
                scheduler.step()
            total.add(loss, logits, labels)
        training = total.score()
        score = None
        if validation is not None:
            score = evaluate(model, validation, prepare=prepare, loss_fn=loss_fn, dtype=dtype)
        history.append(Epoch(number, training, score, learning_rate, time.perf_counter() - start))
        if verbose:
            print(history[-1], flush=True)
    return history


def evaluate(
    model: nn.Module,
    batches: Batches,
    *,
    prepare: Callable[[Tensor], Tensor] | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    dtype: torch.dtype | None = None,
) -> Score:
    """Return loss and accuracy of the model over all batches; a short last batch counts by its images.

    The arguments are those of `fit`. The model runs in eval mode and without gradients, and every part of it is
    afterward in the mode in which it was before.
    """
    modes = [(module, module.training) for module in model.modules()]
    device = device_of(model)
    total = _Total(device)
    model.eval()
    try:
        with torch.no_grad():
            for images, labels in batches:
                images, labels = _to(device, images, labels, prepare)
                with _precision(device, dtype):
                    logits = model(images)
                    loss = loss_fn(logits, labels)
                total.add(loss, logits, labels)
    finally:
        for module, training in modes:
            module.training = training
    return total.score()


def fast_dtype(
    model: nn.Module, images: Tensor, labels: Tensor, loss_fn: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
) -> torch.dtype:
    """torch.bfloat16 if this model trains clearly faster in it on this batch, else torch.float32.

    A copy of the model takes the steps: weights, gradients, running statistics and random numbers stay as they are.
    Measured once for each architecture, shape of the batch and device; the result is remembered.
    """
    place = images.device
    if place.type == "cpu":  # a few images tell as much there as all of them, and sooner
        images, labels = images[:32], labels[:32]
    key = (place, repr(model), tuple(images.shape))
    if key not in _faster:
        # Of a wrapper, what it wraps: a copy must not talk to other processes or be compiled again.
        copied = copy.deepcopy(getattr(model, "module", getattr(model, "_orig_mod", model)))
        with devices.random_numbers_kept(place):
            _faster[key] = devices.faster_dtype(lambda: loss_fn(copied(images), labels), place)
    return _faster[key]


_faster: dict[tuple, torch.dtype] = {}


def device_of(model: nn.Module) -> torch.device:
    """The device of the model's first parameter; the CPU for a model without any."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _to(
    device: torch.device, images: Tensor, labels: Tensor, prepare: Callable[[Tensor], Tensor] | None
) -> tuple[Tensor, Tensor]:
    """One batch on the device. Images travel as they are (uint8 is a quarter of float32) and are prepared there."""
    images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
    return (prepare(images) if prepare else images), labels


def _precision(device: torch.device, dtype: torch.dtype | None) -> AbstractContextManager:
    """Where to compute the model and its loss: under autocast, or just so."""
    return nullcontext() if dtype in (None, torch.float32) else torch.autocast(device.type, dtype)


class _Total:
    """Sums over batches. They stay on the device until `score`: reading a number makes the CPU wait for a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.loss = torch.zeros((), device=device)
        self.right = torch.zeros((), device=device, dtype=torch.int64)
        self.images = 0

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        # A batch's loss is a mean: times its size it is a sum, and sums of short and long batches may be added.
        self.loss += loss.detach() * len(labels)
        self.right += (logits.detach().argmax(1) == labels).sum()
        self.images += len(labels)

    def score(self) -> Score:
        if not self.images:
            raise CourseError(
                "There was no batch to learn from or to test on. Is the data set empty, "
                "or smaller than one batch with drop_last=True, or are the batches a generator that was used up?"
            )
        return Score(self.loss.item() / self.images, self.right.item() / self.images)
