"""The exercises of chapter 13, a project: every property of it that a small input can show.

The answers are functions from files that the student writes, so a program can import them as well. Training runs in
real processes (`ranks`), and is killed there. Nothing measures time: a model that is part of the check writes down what
each step of a training saw, and the check compares the steps of an interrupted run, or of two processes, with those of
one that nothing disturbed. Only the final run has a budget; its processor seconds are the notebook's own measurement.
"""

import contextlib
import hashlib
import http.client
import io
import itertools
import json
import logging
import math
import operator  # noqa: F401 - for the tables
import os
import re
import signal
import socket
import socketserver
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import BatchSampler, DistributedSampler

from labcheck import ranks
from labcheck.answer import attempted, call, observe
from labcheck.inputs import Inputs
from labcheck.verdict import AnswerRaised, Incorrect
from torchcourse import checkpoint, data
from torchcourse.data import ImageSet, files
from torchcourse.lab.targets import TARGETS
from torchcourse_labs._spec import Mistake, Spec, changed, chapter, says  # noqa: F401 - for the tables

EXERCISES = ()  # declared below

exercise = chapter("13_capstone")
Seen = dict[str, Any]
SHAPES = {"mnist": (1, 28, 28), "fashion_mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


def _has(name: str, *values: Any) -> Callable[..., bool]:
    """A `when`: this entry of what was seen is one of these values."""
    return lambda yours, *_: yours[name] in values


def _not_a_function(answer: Any) -> bool:
    attempted(answer)
    return not callable(answer)


# ---------------------------------------------------------------------------------------------------------------------
# project_data


def _numbered(name: str, which: str, n: int) -> tuple[Tensor, Tensor]:
    """Images and labels in place of a data set's: each image carries its own number, and tells the two splits apart."""
    images = torch.full((n, *SHAPES[name]), 128, dtype=torch.uint8)
    rows = torch.arange(n)
    images[:, 0, 0, 0], images[:, 0, 0, 1], images[:, 0, 0, 2] = rows % 256, rows // 256, 255 * (which == "test")
    return images, rows * 7 % 10


def _numbers_in(part: Any) -> tuple[list[int], bool, bool, bool]:
    """The numbers of the images, whether one is a test image, whether each still has its label, and its pixels."""
    corner = part.images[:, 0, 0, :3].long()
    rows = corner[:, 0] + 256 * corner[:, 1]
    pixels = bool((part.images[:, :, 1:] == 128).all())
    return rows.tolist(), bool(corner[:, 2].any()), part.labels.tolist() == (rows * 7 % 10).tolist(), pixels


def _splits(answer: Callable, n: int, seed: int) -> Seen:
    """The probe: call the answer where `data.load` gives n numbered images in place of the real ones."""
    found = []
    loaded: dict[str, None] = {}

    def find(name: str, which: str, folder: Any) -> tuple[Tensor, Tensor]:
        loaded[name] = None
        return _numbered(name, which, n)

    with mock.patch.object(files, "find", find):
        for each in (seed, seed, seed + 1):
            parts = call(answer, each)
            if not (
                isinstance(parts, tuple | list) and len(parts) == 2 and all(isinstance(p, ImageSet) for p in parts)
            ):
                return {"kind": "other"}
            found.append([_numbers_in(part) for part in parts])
    if not loaded:
        return {"kind": "not loaded"}
    (train, in_train, right, same), (validation, in_validation, also_right, also_same) = found[0]
    places = sorted(validation)
    return {
        "kind": "two sets",
        "names": list(loaded),
        "pixels": same and also_same,
        "train": train,
        "validation": validation,
        "together": len(train) + len(validation),
        "sizes": f"{len(train)} and {len(validation)}",
        "tests": in_train or in_validation,
        "labels": right and also_right,
        "again": [sorted(rows) for rows, *_ in found[0]] == [sorted(rows) for rows, *_ in found[1]],
        "other seed": sorted(found[2][1][0]) == places,
        "gaps": len({b - a for a, b in itertools.pairwise(places)}),
    }


def _split(seed):
    images = data.load("fashion_mnist", "train")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    held_out = len(images) // 10
    return images.subset(order[held_out:]), images.subset(order[:held_out])


def _split_by_labels_apart(seed):
    images = data.load("mnist", "train")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    held_out = len(images) // 10
    parts = images.subset(order[held_out:]), images.subset(order[:held_out])
    for part in parts:
        part.labels = part.labels.sort().values
    return parts


def _split_by_mask(seed):
    images = data.load("cifar10", "train")
    mask = torch.zeros(len(images), dtype=torch.bool)
    mask[torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[: len(images) // 10]] = True
    return [images.subset(~mask), images.subset(mask)]


def _split_at_equal_distances(seed):
    images = data.load("mnist", "train")
    held_out = torch.zeros(len(images), dtype=torch.bool)
    held_out[torch.arange(len(images) // 10) * 10 + seed % 10] = True
    return images.subset(~held_out), images.subset(held_out)


exercise(
    "project_data",
    title="Images to learn from, images to choose by",
    minutes=15,
    difficulty=2,
    points=3,
    takeaway="Always choose by the validation images. The test images answer one question at the end.",
    hints=(
        "Shuffle the numbers from 0 to n - 1 and cut that order in two: the two parts have no image in common.",
        "With its own `torch.Generator().manual_seed(seed)`, the order depends on the seed and on nothing else.",
        "`images.subset(order[tenth:])`, `images.subset(order[:tenth])`.",
    ),
    spec=Spec(
        # Many images: if each is held out with a chance of one in ten, it is rarely a tenth of them.
        draw=lambda new: [(10 * new.size(300, 400) + new.size(1, 9), seed) for seed in (new.size(1, 1000), 0)],
        solution=_split,
        probe=_splits,
        finds={},
        free=True,
        mistakes="""
            return images → return images[:0], images
            = data.load("mnist", "train")
                Your function should return two image sets: (train_set, validation_set).
                look: `subset` of an ImageSet is an ImageSet
                when: _has("kind", "other")
            = (ImageSet(*_numbered("mnist", "train", 180), tuple("0123456789"), "mnist"), ImageSet(*_numbered("mnist",
                    "train", 20), tuple("0123456789"), "mnist"))
                Your images do not come from `data.load`, so this check cannot follow them.
                look: `data.load(NAME, "train")`
                when: _has("kind", "not loaded")
            = (_split(seed)[0], data.load("mnist", "train").subset(slice(30)))
                Both sets should come from one data set. You load {yours[names]}.
                look: `data.load(NAME, "train")`, once
                when: len(yours["names"]) > 1
            = [ImageSet(part.images // 2, part.labels, part.classes, part.name) for part in _split(seed)]
            = [ImageSet(255 - part.images, part.labels, part.classes, part.name) for part in _split(seed)]
                The pixels are not those of the data set. Return the images as they are; the model scales them.
                when: _has("pixels", False)
            = (data.load("mnist", "train"), data.load("mnist", "test"))
            "train" → "test"
                You choose by test images. Then the test score no longer says how the model does on new images.
                look: both sets come from the training images
                when: _has("tests", True)
            order[held_out:] → order
            = (_split(seed)[0], _split(seed + 1)[1])
                Some image is in both sets: the model has already learned what you choose by.
                when: {*yours["train"]} & {*yours["validation"]}
            order[held_out:] → order[[*range(1, held_out, 2), *range(held_out, len(images))]]
                    && order[:held_out] → order[torch.arange(held_out) // 2 * 2]
                An image appears twice in one set: your two sets have {yours[together]} images, the data set has {n}.
                look: `torch.randint` can repeat a number, `torch.randperm` does not
                when: yours["together"] > n and len({*yours["train"], *yours["validation"]}) == n
            order[held_out:] → order[held_out + 1:]
            order[:held_out] → order[:held_out - 1]
                Some images are lost: they are in neither set.
                when: len({*yours["train"], *yours["validation"]}) < n
            // 10 → // 5
            = _split(seed)[::-1]
                Hold out exactly a tenth of the images to choose by, rounded down. Of {n} images, your sets have
                {yours[sizes]}.
                look: the order, (train_set, validation_set). A coin for each image gives only about a tenth
                when: len(yours["validation"]) != n // 10
            _split_by_labels_apart
                The labels no longer belong to their images.
                look: `subset` takes images and labels together
                when: _has("labels", False)
            , generator=torch.Generator().manual_seed(seed) →
            torch.Generator().manual_seed(seed) → torch.Generator().manual_seed(seed) if seed else None
                The same seed ({seed}) gives a different split: a resumed run would learn from its own validation
                images.
                look: a separate generator, with the seed; 0 is a seed, too
                when: _has("again", False)
            torch.randperm(len(images), generator=torch.Generator().manual_seed(seed)) → torch.arange(len(images))
                A different seed gives the same split, and your validation images lie side by side: nothing in your
                split is drawn at random.
                look: `torch.randperm`, with a generator that has the seed
                when: yours["gaps"] <= 2 and _has("other seed", True)(yours)
            manual_seed(seed) → manual_seed(0)
                A different seed gives the same split.
                when: _has("other seed", True)
            torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
                    → torch.arange(len(images)).roll(7 * seed + 1)
            _split_at_equal_distances
                Your validation images are not a random choice: they lie side by side, or at equal distances.
                look: `torch.randperm`, with a generator that has the seed
                when: yours["gaps"] <= 2
        """,
        also_right=[_split_by_mask],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# project_model


def _saved_bytes(model: nn.Module) -> int:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.tell()


def _largest_input(model: nn.Module, images: Tensor) -> float:
    """The largest number that the first layer with weights gets; 0 where that is a normalization."""
    first: list[float] = []

    def note(layer: nn.Module, inputs: tuple) -> None:
        if not first:
            scales = type(layer).__name__.endswith("Norm") or "BatchNorm" in type(layer).__name__
            first.append(0.0 if scales else inputs[0].detach().float().abs().max().item())

    hooks = [
        layer.register_forward_pre_hook(note)
        for layer in model.modules()
        if isinstance(getattr(layer, "weight", None), Tensor)
    ]
    model(images)
    for hook in hooks:
        hook.remove()
    return first[0] if first else 0.0


def _modeled(answer: Any, small: Tensor, large: Tensor, order: Tensor) -> Seen:
    """The probe. small: uint8 [7, 1, 28, 28]; large: uint8 [7, 3, 32, 32]; order: int64 [7], another order of them."""
    if not (isinstance(answer, tuple) and len(answer) == 2) or _not_a_function(answer[1]):
        return {"kind": "other answer"}
    name, build = answer
    if name not in SHAPES:
        return {"kind": "no data set"}
    images = small if SHAPES[name][0] == 1 else large
    models = []
    with torch.random.fork_rng(devices=[]):
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            models.append(call(build))
    model = models[0]
    if not isinstance(model, nn.Module):
        return {"kind": "no module"}
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return {"kind": "frozen" if [*model.parameters()] else "no weights"}
    starts = [torch.cat([p.detach().flatten().float() for p in each.parameters()]) for each in models]
    seen: Seen = {
        "kind": "a model",
        "name": name,
        "bytes": _saved_bytes(model),
        "limit": TARGETS[name].bytes,
        "training": model.training,
    }
    seen |= {"again": starts[0].equal(starts[1]), "fixed": starts[0].equal(starts[2]), "one": models[0] is models[2]}
    model.eval()
    with torch.no_grad():
        try:
            logits = model(images)
        except Exception as error:
            with contextlib.suppress(Exception):
                model(images.float())
                return {**seen, "kind": "takes floats"}
            raise AnswerRaised(error) from error
        if not isinstance(logits, Tensor) or logits.shape != (len(images), 10) or not logits.is_floating_point():
            shown = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            return {**seen, "kind": "no logits", "shape": shown}
        single = model(images[:1])
        if single.shape != (1, 10):
            return {**seen, "kind": "no single", "shape": list(single.shape)}
        seen |= {
            "dtype": str(logits.dtype).removeprefix("torch."),
            "draws": not torch.allclose(model(images), logits, atol=1e-4),
            "logits": logits,
            "apart": torch.cat([model(images[part]) for part in order.split([1, 2, 4])]),
            "sums": logits.exp().sum(1).tolist() if logits.max() <= 0 else [],
            "shares": logits.sum(1).tolist() if logits.min() >= 0 else [],
            "lowest": min(logits.min().item(), models[2].eval()(images).min().item()),
            "blind": torch.allclose(logits[:1].expand_as(logits), logits, atol=1e-6),
            "largest": _largest_input(model, images),
        }
    return seen


def _ones(numbers: list[float]) -> bool:
    return bool(numbers) and all(abs(each - 1) < 1e-3 for each in numbers)


class _Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Dropout2d(0.1),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 49, 10),
        )

    def forward(self, images):
        x = images.float() / 255 - 0.5
        return self.layers(x)


_small_but = partial(changed, _Small)


def _built(*places: tuple[str, str]) -> tuple[str, Callable]:
    return ("mnist", _small_but(*places))


def _seeds_itself():
    torch.manual_seed(0)
    return _Small()


def _for_photographs():
    return nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3072, 10))


class _Bytes(nn.Module):
    def forward(self, images):
        return images.float()


exercise(
    "project_model",
    title="A model that takes bytes",
    minutes=30,
    difficulty=2,
    points=3,
    takeaway="What is inside the model cannot be forgotten later: scaling and normalization travel with the weights.",
    hints=(
        "Start with the smallest network that could work: two convolutions and a linear layer.",
        "`images.float() / 255` belongs in `forward`. So do the mean and the standard deviation, "
        "or `models.Normalize(NAME)` as the first layer.",
        "`return nn.Sequential(models.Normalize(NAME), nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), …, nn.Flatten(), "
        "nn.Linear(…, 10))`",
    ),
    spec=Spec(
        draw=lambda new: [(new.images(7, 1, 28, 28), new.images(7, 3, 32, 32), new.permutation(7))],
        solution=("fashion_mnist", _Small),
        probe=_modeled,
        finds={},
        free=True,
        mistakes="""
            _Small
            ("mnist", _Small, 3)
                Give the check the name of your data set and the function: (NAME, build_model).
                when: _has("kind", "other answer")
            ("MNIST", _Small)
                There is no such data set. Choose "mnist", "fashion_mnist", or "cifar10".
                when: _has("kind", "no data set")
            ("mnist", lambda: _Small)
            ("mnist", lambda: _Small().state_dict())
                `build_model()` should return a model, an object of a class derived from nn.Module.
                look: `return Net()`, with parentheses
                when: _has("kind", "no module")
            ("mnist", lambda: _Bytes())
                PyTorch finds no weights in your model. Layers in a Python list or dict are not part of it.
                look: `nn.Sequential` or `nn.ModuleList` around the layers
                when: _has("kind", "no weights")
            ("mnist", lambda: _Small().requires_grad_(False))
                None of your model's weights can learn: they don't require gradients.
                look: `requires_grad`
                when: _has("kind", "frozen")
            _built(("16 * 49", "16 * 50"))
            _built(("nn.Flatten()", "nn.Flatten(0)"))
                A linear layer does not fit what comes before it. PyTorch says: {yours.message}. The first shape is what
                the layer gets: images, and numbers for each image.
                look: the first number in `nn.Linear(…, …)`
                when: says(yours, "shapes cannot be multiplied")
            _built(("nn.Conv2d(1, 8", "nn.Conv2d(3, 8"))
            _built(("nn.Conv2d(8, 16", "nn.Conv2d(16, 16"))
                A convolution gets another number of channels than it was made for. PyTorch says: {yours.message}
                look: MNIST and Fashion-MNIST have one channel, CIFAR-10 has three
                when: says(yours, "channels")
            _built(("images.float() / 255 - 0.5", "images"))
                Your model takes floats, but images arrive as bytes (uint8). Callers should not have to prepare them.
                look: turn them into floats in `forward`, or in a first layer
                when: _has("kind", "takes floats")
            _built(("49, 10)", "49, 11)"))
            _built(("return self.layers(x)", "return self.layers(x).argmax(1)"))
                For 7 images, the logits should have the shape [7, 10]; yours have {yours[shape]}.
                when: _has("kind", "no logits")
            _built(("return self.layers(x)", "return self.layers(x).squeeze()"))
                For a single image, the logits should have the shape [1, 10]; yours have {yours[shape]}.
                look: `squeeze()` also removes a batch of one
                when: _has("kind", "no single")
            ("mnist", lambda kept=[]: kept[0] if kept else kept.append(_Small()) or kept[0])
                Each call of `build_model` returns the same object. It should make a new network.
                look: what stands outside of the function
                when: _has("one", True)
            ("mnist", lambda: _Small().eval())
                `build_model` should return the model in train mode. Yours is in eval mode.
                look: `train` begins to train it at once; only validation and export call `eval()`
                when: _has("training", False)
            _built(("return self.layers(x)", "return self.layers(x).softmax(1)"))
                Your model ends in a softmax. The loss has one inside, and a second one flattens the gradients.
                look: return the logits; `cross_entropy` does the rest
                when: _ones(yours["shares"])
            _built(("return self.layers(x)", "return F.log_softmax(self.layers(x), 1)"))
                Your model ends in a log_softmax. The loss has one inside, so return the logits.
                look: return the logits; `cross_entropy` does the rest
                when: _ones(yours["sums"])
            *(_built(("return self.layers(x)", f"return self.layers(x).{end}()")) for end in ("relu", "sigmoid"))
                Your logits are never negative: your model ends in a ReLU or a sigmoid. Return what the last linear
                layer gives.
                look: return the logits; `cross_entropy` does the rest
                when: yours["lowest"] >= 0 and not yours["blind"]
            _built(("return self.layers(x)", "return self.layers(x).half()"))
                Your logits are {yours[dtype]}; they should be float32.
                when: yours["dtype"] != "float32"
            _built(("return self.layers(x)", "return self.layers(F.dropout(x, 0.5))"))
                In eval mode, the same images give different logits the second time.
                look: `nn.Dropout` knows the mode; `F.dropout` needs `training=self.training`
                when: _has("draws", True)
            _built(("images.float() / 255 - 0.5", "(images.float() - images.float().mean()) / images.float().std()"))
                In eval mode, the logits of an image depend on the other images of its batch.
                look: normalize with numbers that are known beforehand, those of the training set
                when: not torch.allclose(yours["apart"], yours["logits"][order], rtol=1e-3, atol=1e-3)
            _built(("images.float() / 255 - 0.5", "images.float() * 0"))
                All images get the same logits.
                when: _has("blind", True)
            _built(("images.float() / 255 - 0.5", "images.float()"))
                Your first layer gets numbers up to {yours[largest]:.0f}. Scale the bytes first, or it learns slowly, if
                at all.
                look: `/ 255`, then mean and standard deviation
                when: yours["largest"] > 20
            ("mnist", _seeds_itself)
                Your model has the same weights whatever the seed: `build_model` must leave the seed to its caller.
                look: `torch.manual_seed`
                when: _has("fixed", True)
            ("mnist", lambda: [torch.seed(), _Small()][1])
                After the same `torch.manual_seed`, your model starts with different weights: no run can be repeated.
                look: what else draws the first weights?
                when: _has("again", False)
            ("mnist", lambda: nn.Sequential(_Bytes(), nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(784, 400),
                    nn.Linear(400, 10)))
                Your weights alone take {yours[bytes]:,} bytes; the exported file may have {yours[limit]:,} at most.
                look: where are the parameters? Usually in a linear layer after a large image
                when: yours["bytes"] > yours["limit"]
        """,
        also_right=[("cifar10", lambda: nn.Sequential(_Bytes(), _for_photographs())), ("mnist", _Small)],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# A training that is watched


KILLED = "steps.json"  # what a killed run saw, in the folder where the ranks work


class Watched(nn.Module):
    """Bytes [B, 1, 4, 4] -> logits [B, 3]. `steps` says of each pass in train mode what it saw, as plain data.

    The first pixel of an image is its number. noise: draws random numbers in train mode, as dropout would.
    kill_in: in this step (0 is the first), the process is killed.
    """

    def __init__(self, start: Sequence[Tensor], noise: bool, dtype: torch.dtype, kill_in: int | None) -> None:
        super().__init__()
        self.first, self.last = (nn.Linear(*shape, dtype=dtype) for shape in ((16, 12), (12, 3)))
        with torch.no_grad():
            for parameter, value in zip(self.parameters(), start, strict=True):
                parameter.copy_(value)
        self.noise, self.kill_in, self.steps = noise, kill_in, []

    def forward(self, images: Tensor) -> Tensor:
        x = images.to(self.first.weight.dtype).flatten(1) / 128 - 1
        draw = torch.rand(len(x), 1, dtype=x.dtype) if self.noise and self.training else torch.zeros(len(x), 1)
        hidden = self.first(x * (1 + 0.5 * draw.to(x.dtype)))
        logits = self.last(hidden.tanh())
        if self.training and torch.is_grad_enabled():
            if len(self.steps) == self.kill_in:
                Path(KILLED).write_text(json.dumps(self.steps))
                os.kill(os.getpid(), signal.SIGKILL)
            step = {
                "rows": images[:, 0, 0, 0].tolist(),
                "weights": digest([*self.parameters()]),
                "stored": str(self.first.weight.dtype).removeprefix("torch."),
                "computed": str(hidden.dtype).removeprefix("torch."),
                "draws": draw.sum().item(),
            }
            self.steps.append(step)
            # when backward begins, nothing should be left of an earlier step's gradients
            logits.register_hook(
                lambda _: step.update(left=any(p.grad is not None and bool(p.grad.any()) for p in self.parameters()))
            )
        return logits


def digest(values: Any) -> str:
    """A short text for tensors, numbers, and containers of them: another text if a bit differs."""
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value, key=str):
                found.update(str(key).encode())
                add(value[key])
        elif isinstance(value, list | tuple):
            for each in value:
                add(each)
        elif isinstance(value, Tensor):
            found.update(value.detach().cpu().double().numpy().tobytes())
        else:
            found.update(repr(value).encode())

    add(values)
    return found.hexdigest()[:16]


@contextlib.contextmanager
def _noted(steps: list[dict]) -> Iterator[None]:
    """Every step of an optimizer adds to the latest pass what it will work with."""

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if steps:
            settings = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
            steps[-1] |= {"settings": digest(settings), "state": digest(optimizer.state_dict()["state"])}

    hook = register_optimizer_step_pre_hook(note)
    try:
        yield
    finally:
        hook.remove()


@contextlib.contextmanager
def _cut_off(save: int | None) -> Iterator[None]:
    """The process is killed in the middle of this save (1 is the first)."""
    saves = [0]
    whole = torch.save

    def half(state: Any, file: Any, *args: Any, **options: Any) -> None:
        saves[0] += 1
        if saves[0] != save:
            return whole(state, file, *args, **options)
        buffer = io.BytesIO()
        whole(state, buffer, *args, **options)
        with contextlib.nullcontext(file) if hasattr(file, "write") else open(file, "wb") as target:
            target.write(buffer.getvalue()[: buffer.tell() // 2])
            target.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    with mock.patch.object(torch, "save", half) if save else contextlib.nullcontext():
        yield


def _session(
    answer: Callable,
    samples: tuple[Tensor, Tensor],
    starts: list[list[Tensor]],
    how: dict[str, Any],
    folder: str,
    noise: bool = False,
    double: bool = False,
    kill_in: int | None = None,
    cut: int | None = None,
) -> Seen:
    """One call of the answer, on a rank. Returns what each step saw, and what came of it."""
    Path(folder).mkdir(exist_ok=True)
    images, labels = samples
    model = Watched(starts[dist.get_rank()], noise, torch.float64 if double else torch.float32, kill_in)
    train_set = ImageSet(images, labels, ("a", "b", "c"), "numbered")

    def loss(of: nn.Module) -> float:
        with torch.no_grad():
            return F.cross_entropy(of.eval()(images), labels).item()

    before = loss(model)
    model.train()
    with _noted(model.steps), _cut_off(cut):
        trained = answer(model, train_set, folder=Path(folder).absolute(), **how)
    if not isinstance(trained, Watched):
        return {"returned": type(trained).__name__}
    after = loss(trained)
    flat = torch.cat([p.detach().double().flatten() for p in trained.parameters()])
    stored = str(next(trained.parameters()).dtype).removeprefix("torch.")
    seen = {"returned": "a model", "steps": trained.steps or model.steps, "weights": flat, "stored": stored}
    return seen | {"learned": after < before}


def _perform(answer: Any, world_size: int, home: str, seed: int, *args: Any, **options: Any) -> ranks.Outcome:
    """Run a session as every rank of a fresh group. What the answer prints is not shown: it runs many times."""
    with contextlib.redirect_stdout(None):
        return ranks.start(answer, 1, _asked(options), (*args,), world_size=world_size, folder=home, seed=seed)


def _asked(options: dict[str, Any]) -> Callable:
    return partial(_session, **options)


PER_EPOCH, EPOCHS, BATCH = 6, 3, 8


def _a_training(new: Inputs) -> list[tuple]:
    n = PER_EPOCH * BATCH
    images = new.ints(0, 256, (n, 1, 4, 4), torch.uint8)
    labels = images.flatten(1).float().matmul(new.randn(16, 3)).argmax(1)
    images[:, 0, 0, 0] = new.permutation(256)[:n]  # the numbers of the images
    starts = [[new.randn(12, 16) / 4, new.randn(12), new.randn(3, 12) / 4, new.randn(3)] for _ in range(2)]
    seed, kill_in = new.size(1, 1000), PER_EPOCH + new.size(2, PER_EPOCH - 1)
    return [((images, labels), starts, seed, kill_in)]


def _settings(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    return {"epochs": EPOCHS, "batch_size": BATCH, "seed": seed, "dtype": dtype}


def _train(model, train_set, epochs, batch_size, seed, folder, dtype=torch.float32):
    replica, path = DDP(model), folder / "checkpoint.pt"
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    steps = epochs * (len(train_set) // batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
    done = 0
    if path.exists():
        done = checkpoint.restore(path, model=model, optimizer=optimizer, schedule=schedule)["done"]
    order = DistributedSampler(train_set, seed=seed)
    batches = BatchSampler(order, batch_size // dist.get_world_size(), drop_last=True)
    model.train()
    for epoch in range(done, epochs):
        order.set_epoch(epoch)
        torch.manual_seed(1000 * seed + epoch)
        for rows in batches:
            images, labels = train_set[rows]
            with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                loss = F.cross_entropy(replica(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if dist.get_rank() == 0:
            checkpoint.save(path, model=model, optimizer=optimizer, schedule=schedule, done=epoch + 1)
        dist.barrier()
    return model


_train_but = partial(changed, _train)
_SAVE = "checkpoint.save(path, model=model, optimizer=optimizer, schedule=schedule, done=epoch + 1)"


def _train_with_states(model, train_set, epochs, batch_size, seed, folder, dtype=torch.float32):
    """Without DDP, by batches in between, with all random states in the file."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    done, path = 0, folder / "last.pt"
    if path.exists():
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        generator.set_state(state["generator"])
        torch.set_rng_state(state["rng"])
        done = state["epoch"]
    for epoch in range(done, epochs):
        for rows in torch.randperm(len(train_set), generator=generator).split(batch_size):
            images, labels = train_set[rows[rank::world]]
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                logits = model(images)
            F.cross_entropy(logits.float(), labels).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
            optimizer.step()
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
            state |= {"generator": generator.get_state(), "rng": torch.get_rng_state()}
            torch.save(state, path.with_suffix(".part"))
            os.replace(path.with_suffix(".part"), path)
    return model


# ---------------------------------------------------------------------------------------------------------------------
# project_resume


def _interrupted(answer: Any, samples: tuple, starts: list, seed: int, kill_in: int) -> Seen:
    """The probe: a whole run, one with another seed, and what happens to runs that are called again: one killed in a
    step, one killed in the middle of a save, and one that had finished.

    Each session has other random numbers to begin with: what is equal is so because the answer sees to it. Nothing
    further is tried where something is wrong already.
    """
    attempted(answer)
    with tempfile.TemporaryDirectory() as home:
        inputs = samples, starts, _settings(seed)
        outcome = _perform(answer, 1, home, 1, *inputs, "whole", noise=True)
        ranks.judge(outcome)
        whole = outcome[0].value
        if whole["returned"] != "a model":
            return whole
        steps = whole["steps"]
        seen = {"returned": whole["returned"], "learned": whole["learned"], "rows": [step["rows"] for step in steps]}
        seen["left"] = any(step.get("left") for step in steps)
        if seen["left"] or not seen["learned"] or not _each_image_once(seen["rows"], samples[0]):
            return seen

        short = samples, starts, _settings(seed + 1) | {"epochs": 1}
        other = _perform(answer, 1, home, 2, *short, "other seed", noise=True)
        ranks.judge(other)
        others = other[0].value.get("steps", [])[:PER_EPOCH]
        for what in ("rows", "draws"):
            seen[f"seedless {what}"] = [step[what] for step in others] == [step[what] for step in steps[:PER_EPOCH]]
        if seen["seedless rows"] or seen["seedless draws"]:
            return seen

        _perform(answer, 1, home, 3, *inputs, "killed", noise=True, kill_in=kill_in)
        file = Path(home, KILLED)
        killed = json.loads(file.read_text()) if file.exists() else []  # an answer that never came to that step
        outcome = _perform(answer, 1, home, 4, *inputs, "killed", noise=True)
        resumed = outcome[0].value if outcome.ok else {"steps": [], "weights": whole["weights"]}
        later = resumed["steps"]
        seen |= {"fresh": bool(killed), "stopped": outcome.sentence(), "later": len(later)}
        seen |= {"equal": torch.equal(whole["weights"], resumed["weights"])}
        seen |= {"repeated": _first_difference(steps, killed), "differs": "", "drifts": ""}
        if 0 < len(later) < len(steps):
            seen["differs"] = _first_difference(steps[-len(later) :][:1], later[:1])
            rest = [[step["rows"] for step in part] for part in (steps[-len(later) :], later)]
            if rest[0] != rest[1] and seen["differs"] != "weights":
                seen["differs"] = "rows"
            seen["drifts"] = _first_difference(steps[-len(later) :], later)
        if seen["stopped"] or not seen["equal"] or not killed:
            return seen

        _perform(answer, 1, home, 5, *inputs, "cut", noise=True, cut=2)
        outcome = _perform(answer, 1, home, 6, *inputs, "cut", noise=True)
        seen["cut"] = torch.equal(outcome[0].value["weights"], whole["weights"]) if outcome.ok else outcome.sentence()
        finished = _perform(answer, 1, home, 7, *inputs, "whole", noise=True)
        seen["more"] = finished.sentence() or len(finished[0].value.get("steps", [None]))
    return seen


def _first_difference(steps: list[dict], others: list[dict]) -> str:
    """What differs first between two runs, step by step; "" if nothing does."""
    for one, other in zip(steps, others, strict=False):
        for what in ("weights", "rows", "settings", "state", "draws"):
            if one.get(what) != other.get(what):
                return what
    return ""


def _epochs(steps: list[list[int]]) -> list[list[int]]:
    """The images of each epoch, in order, from those of each step."""
    rows = [row for step in steps for row in step]
    return [rows[i : i + PER_EPOCH * BATCH] for i in range(0, len(rows), PER_EPOCH * BATCH)]


def _each_image_once(steps: list[list[int]], images: Tensor) -> bool:
    """Whether every epoch of one process takes each of the images once, in whole batches."""
    epochs = _epochs(steps)
    whole = len(epochs) == EPOCHS and all(len(step) == BATCH for step in steps)
    return whole and all(sorted(each) == images[:, 0, 0, 0].sort().values.tolist() for each in epochs)


exercise(
    "project_resume",
    title="A training run that survives a kill",
    minutes=75,
    difficulty=4,
    points=5,
    seconds=60,
    takeaway="Resumed means equal, bit for bit. Weights, optimizer, schedule, order, random numbers: all of it.",
    hints=(
        "First write the loop without saving, and ask of each line: what does it use that an earlier step changed?",
        "You don't need to save what depends only on seed and epoch: `sampler.set_epoch(epoch)`, and "
        "`torch.manual_seed(…)` at the start of each epoch.",
        "`checkpoint.save(path, model=model, optimizer=optimizer, schedule=schedule, done=epoch + 1)` after an epoch, "
        "and `checkpoint.restore` with the same parts before the first one.",
    ),
    spec=Spec(
        draw=_a_training,
        solution=_train,
        probe=_interrupted,
        finds={},
        free=True,
        mistakes=r"""
            return model → return model.state_dict() || return || return replica
                Your function should return the trained model; it returned an object of type {yours[returned]}.
                look: the model itself, without DDP around it
                when: yours["returned"] != "a model"
            DDP(model), folder → DDP(__import__('copy').deepcopy(model)), folder
            model.train() → model.eval()
                The model that you return was never called in train mode. Do you train a copy of it, or in eval mode?
                when: not yours["rows"]
            for rows in batches: → for rows in list(batches)[:-1]:
            batch_size // dist.get_world_size() → 2 * batch_size
                An epoch should take each image once, in batches of batch_size.
                look: here, 48 images in batches of 8 make 6 steps an epoch, and 3 epochs 18 steps
                when: not _each_image_once(yours["rows"], samples[0])
            optimizer.zero_grad() → pass
                Your gradients add up: when backward begins, those of the step before are still there.
                look: `optimizer.zero_grad()` in each step
                when: _has("left", True)
            optimizer.step() → optimizer.zero_grad()
            loss.backward() → (-loss).backward()
                The loss on the training images is not lower after the training.
                when: _has("learned", False)
            order.set_epoch(epoch) → pass
                Every epoch uses the images in the same order.
                look: `set_epoch` tells a DistributedSampler which epoch it is
                when: operator.eq(*_epochs(yours["rows"])[:2])
            DistributedSampler(train_set, seed=seed) → DistributedSampler(train_set)
                With a different seed, the images come in the same order.
                look: `DistributedSampler(train_set, seed=seed)`
                when: _has("seedless rows", True)
            torch.manual_seed(1000 * seed + epoch) → torch.manual_seed(epoch)
                With a different seed, the model draws the same random numbers.
                look: `torch.manual_seed`, with a number that seed and epoch decide
                when: _has("seedless draws", True)
            seed=seed → seed=torch.initial_seed()
                Two runs with the same seed take the images in different orders.
                look: the order may depend on seed and epoch, and on nothing else
                when: _has("repeated", "rows")
            torch.manual_seed(1000 * seed + epoch) → pass
                Two runs with the same seed draw different random numbers.
                look: `torch.manual_seed`, with a number that seed and epoch decide
                when: _has("repeated", "draws")
            model.train() → torch.seed(); torch.nn.init.normal_(model.last.bias, std=0.01); model.train()
                Two runs with the same seed differ, long before one of them is killed. The first difference:
                {yours[repeated]}.
                look: what is random in `train` before the first step?
                when: yours["repeated"]
            checkpoint.restore(path, model=model, optimizer=optimizer, schedule=schedule)["done"]
                    → min(0, checkpoint.restore(path, model=model, optimizer=optimizer, schedule=schedule)['done'])
            done=epoch + 1 → done=epoch
                Called again after the kill, your training does not finish. {yours[stopped]}
                look: do you restore the number of finished epochs, and the schedule with it?
                when: yours["stopped"]
            if path.exists(): → if False:
            checkpoint.save(path, model=model, optimizer=optimizer, schedule=schedule, done=epoch + 1) → pass
            done=epoch + 1 → done=epoch && OneCycleLR(optimizer, 0.01, total_steps=steps) → ConstantLR(optimizer, 1)
                After the kill, your training repeats all of its steps, although an epoch was finished.
                look: is there a file after each epoch? Does the next call read it, and the number of finished epochs?
                when: yours["later"] >= PER_EPOCH * EPOCHS
            folder / "checkpoint.pt" → folder.parent / "checkpoint.pt"
                In an empty folder, your training does not begin with the first step. Do you keep your checkpoint
                outside of `folder`?
                look: `folder / ...`
                when: _has("fresh", False)
            done=epoch + 1 → done=epoch + 2
                After the kill, your training skips steps: it takes only {yours[later]} of those that were left.
                look: after the epoch with the number `epoch`, `epoch + 1` epochs are finished
                when: yours["later"] < PER_EPOCH * EPOCHS - kill_in
            checkpoint.restore(path, model=model, optimizer=optimizer, schedule=schedule)
                    → checkpoint.restore(path, optimizer=optimizer, schedule=schedule)
                After the kill, your training continues with weights that the uninterrupted run never had here.
                look: the model's state_dict: saved after the epoch's last step, and loaded before the next one
                when: _has("differs", "weights")
            order.set_epoch(epoch) → order.set_epoch(epoch - done)
                After the kill, the images come in a different order than without it.
                look: let the order depend only on seed and epoch, or save the state of its generator as well
                when: _has("differs", "rows")
            checkpoint.restore(path, model=model, optimizer=optimizer, schedule=schedule)
                    → checkpoint.restore(path, model=model)
                After the kill, the learning rate (or another setting of the optimizer) is not what it was.
                look: optimizer and schedule: each has a state_dict, to be saved and to be restored
                when: _has("differs", "settings")
            checkpoint.restore(path, model=model, optimizer=optimizer, schedule=schedule)
                    → checkpoint.restore(path, model=model, optimizer=optimizer)
                After the kill, the first step is right, but then the learning rate takes another course.
                look: the schedule has a state_dict, too
                when: _has("drifts", "settings")
            checkpoint.restore(path, model=model, optimizer=optimizer, schedule=schedule)
                    → checkpoint.restore(path, model=model, schedule=schedule)
                    && OneCycleLR(optimizer, 0.01, total_steps=steps) → ConstantLR(optimizer, 1)
                After the kill, the optimizer has lost what it remembered of earlier gradients.
                look: `optimizer.state_dict()`
                when: _has("differs", "state")
            torch.manual_seed(1000 * seed + epoch) → pass && model.train() → model.train()\n    torch.manual_seed(seed)
                After the kill, the model draws other random numbers than without it.
                look: seed again at the start of each epoch, or save `torch.get_rng_state()`
                when: _has("differs", "draws")
            images, labels = train_set[rows] → images, labels = train_set[rows]\n            loss = 1 if done else 0
                    && loss.backward() → (loss * (1.5 if done else 1)).backward()
                After the kill, the final weights differ from those without it, although the first step is the same.
                when: _has("equal", False)
            checkpoint.save(path, model=model, optimizer=optimizer, schedule=schedule, done=epoch + 1)
                    → torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'schedule':
                    schedule.state_dict(), 'done': epoch + 1}, path)
                Killed in the middle of a save, your training can't recover: the file is half written.
                look: write to a new file, then `os.replace`; `checkpoint.save` does that
                when: yours["cut"] is not True
            return model → print(loss)\n    return model
                Called again after its last epoch, your training fails. {yours[more]}
                look: what happens if no epoch is left?
                when: isinstance(yours["more"], str)
            _train_but((f"            {_SAVE}\n", "            pass\n"), ("        order.set_epoch(epoch)\n",
                    f"        {_SAVE.replace('epoch + 1', 'epoch')}\n        order.set_epoch(epoch)\n"))
                Called again after its last epoch, your training takes {yours[more]} more steps. The last epoch leaves a
                checkpoint, too, and the newest one counts.
                when: yours["more"] > 0
        """,
        also_right=[_train_with_states],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# project_two


def _in_two(answer: Any, samples: tuple, starts: list, seed: int, kill_in: int) -> Seen:
    """The probe: the same training in one process and in two."""
    attempted(answer)
    with tempfile.TemporaryDirectory() as home:
        inputs = samples, starts, _settings(seed)
        one, two = (_perform(answer, size, home, size, *inputs, f"{size}", double=True) for size in (1, 2))
        ranks.judge(one)
        if lost := ranks.lost(two):
            return lost
        ranks.judge(two)
        values = [one[0].value, *two.values]
        for value in values:
            if value["returned"] != "a model":
                return value
        return {
            "returned": "a model",
            "rows": [[step["rows"] for step in value["steps"]] for value in values],
            "weights": [value["weights"] for value in values],
            "wrote": list(two[1].wrote),
        }


def _near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-4, atol=1e-4)


def _alike(yours: Seen) -> bool:
    """Whether both processes see the same images in each epoch."""
    one, two = ([row for step in rows[:PER_EPOCH] for row in step] for rows in yours["rows"][1:])
    return {*one} == {*two}


exercise(
    "project_two",
    title="Two processes, one training run",
    minutes=30,
    difficulty=4,
    points=4,
    seconds=60,
    takeaway="Same global batches, averaged gradients, one writer: then two processes are one, up to rounding.",
    hints=(
        "Which images does each of two processes take in a step, and which does a single process take?",
        "`DistributedSampler` deals out one order; a process takes `batch_size // dist.get_world_size()` at a time.",
        "Call `DDP(model)`, not `model`, in the loop. Only rank 0 saves; then all ranks wait at `dist.barrier()`.",
    ),
    spec=Spec(
        draw=_a_training,
        solution=_train,
        probe=_in_two,
        finds={},
        free=True,
        mistakes="""
            dist.barrier() → if dist.get_rank() == 0: dist.barrier()
                The processes wait for each other: {yours[deadlock]}.
                look: {yours[lines]}
                when: "deadlock" in yours
            dist.barrier() → dist.all_reduce(torch.zeros(1 + dist.get_rank()))
                The processes bring different tensors to the same collective: {yours[tensors]}.
                look: {yours[lines]}
                when: "tensors" in yours
            return model → return
                Your function should return the trained model; it returned an object of type {yours[returned]}.
                when: yours["returned"] != "a model"
            for rows in batches: → for rows in list(batches)[:-1]:
                One process alone should take each image once in an epoch, in batches of batch_size.
                when: not _each_image_once(yours["rows"][0], samples[0])
            batch_size // dist.get_world_size() → batch_size
                Each of the two processes takes batch_size images in a step. batch_size is what they take together.
                look: `batch_size // dist.get_world_size()`
                when: len(yours["rows"][1][0]) == BATCH and not _alike(yours)
            DistributedSampler(train_set, seed=seed) → DistributedSampler(train_set, 1, 0, seed=seed)
                    && batch_size // dist.get_world_size() → batch_size
                Both processes take the same images, so the second one repeats the work of the first.
                look: `DistributedSampler(train_set, seed=seed)` knows the rank
                when: _alike(yours)
            replica(images) → model(images)
                The two processes end with different weights: each has trained a model of its own.
                look: the call in the loop goes to the model that DDP has wrapped
                when: not _near(yours["weights"][1], yours["weights"][2])
            seed=seed) → seed=seed + dist.get_world_size())
                Together, the two processes take different images in a step than one process alone.
                look: one order for all, set by seed and epoch
                when: [sorted(a + b) for a, b in zip(*yours["rows"][1:], strict=True)] != [sorted(rows) for rows in
                    yours["rows"][0]]
            loss.backward() → (loss * loss.detach() ** dist.get_rank()).backward()
            lr=0.01) → lr=0.01 * dist.get_world_size()) && (optimizer, 0.01, → (optimizer, 0.01 * dist.get_world_size(),
                The images are the same, and still two processes end with different weights than one.
                look: the gradient of a step is the mean over all its images; the learning rate is that of one process
                when: not _near(yours["weights"][0], yours["weights"][1])
            if dist.get_rank() == 0: → if True: || if dist.get_rank() == dist.get_world_size() - 1:
                Rank 1 writes a checkpoint. Leave that to rank 0: of two writers, one can read what the other has half
                written.
                look: `if dist.get_rank() == 0:`
                when: yours["wrote"]
        """,
        also_right=[_train_with_states],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# project_precision

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Table = list[tuple[dict[str, list[float]], dict[str, float]]]


def _in_each_dtype(answer: Any, samples: tuple, starts: list, seed: int, table: Table) -> Seen:
    """The probe: the same training in float32 and in bfloat16, and a choice for each row of measurements."""
    if not (isinstance(answer, tuple) and len(answer) == 2):
        return {"kind": "other answer"}
    train, choose = answer
    if _not_a_function(train) or _not_a_function(choose):
        return {"kind": "other answer"}
    seen: Seen = {"kind": "two functions", "computed": [], "stored": []}
    with tempfile.TemporaryDirectory() as home:
        for name, dtype in DTYPES.items():
            outcome = _perform(train, 1, home, 1, samples, starts, _settings(seed, dtype), name)
            ranks.judge(outcome)
            if outcome[0].value["returned"] != "a model":
                return {"kind": "no model"}
            steps = outcome[0].value["steps"]
            seen["computed"].append(sorted({step["computed"] for step in steps}))
            seen["stored"].append(sorted({step["stored"] for step in steps} | {outcome[0].value["stored"]}))
    choices = [call(choose, *row, may_return_none=True) for row in table]
    return seen | {
        "choices": [_word(choice) if isinstance(choice, torch.dtype) else repr(choice) for choice in choices]
    }


def _rated(ask: Callable, samples: tuple, starts: list, seed: int, table: Table) -> Seen:
    """What the probe saw, and what each choice should be."""
    seen = ask(samples, starts, seed, table)
    right = [_word(_choose_dtype(*row)) for row in table]
    seen = {**seen, "right": right, "wrong": [], "example": ""}
    if "choices" in seen:
        pairs = enumerate(zip(seen["choices"], right, strict=True))
        seen["wrong"] = [i for i, (choice, wanted) in pairs if choice != wanted]
    if seen["wrong"]:
        seconds, accuracy = table[seen["wrong"][0]]
        seen["example"] = " and ".join(
            f"{min(seconds[name]):.3g} to {max(seconds[name]):.3g} s in {name} (accuracy {accuracy[name]:.4f})"
            for name in DTYPES
        )
    return seen


def _word(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _choose_dtype(seconds, accuracy):
    faster = max(seconds["bfloat16"]) < min(seconds["float32"])
    good = accuracy["bfloat16"] >= accuracy["float32"] - 0.005
    return torch.bfloat16 if faster and good else torch.float32


def _measurements(new: Inputs) -> list[tuple]:
    ((samples, starts, seed, _),) = _a_training(new)
    base, good = 1 + 5 * new.rand(1).item(), 0.7 + 0.2 * new.rand(1).item()

    def around(middle: float, width: float) -> list[float]:
        places = [each / 4 - 0.5 for each in new.permutation(5).tolist()]
        return [base * (middle + width * place) for place in places]

    table = [
        # the middle of float32 and its width, those of bfloat16, and what bfloat16 loses in accuracy
        (around(1.0, 0.1), around(0.6, 0.1), 0.001),  # clearly faster, as good
        (around(1.0, 0.1), around(1.7, 0.1), 0.0),  # clearly slower
        (around(1.0, 0.1), around(1.7, 0.1), 0.03),  # clearly slower, and worse
        (around(1.0, 0.5), around(0.8, 0.5), 0.0),  # faster on average, not decided
        (around(1.0, 0.1), around(0.6, 0.1), 0.03),  # faster, but worse
        (around(1.0, 0.2), around(0.7, 0.2), -0.02),  # faster and better
        (around(1.0, 0.1), around(1.1, 0.5), 0.0),  # the fastest of all is bfloat16's, but it is slower
        (sorted(around(1.0, 0.5)), sorted(around(0.9, 0.5)), 0.0),  # run by run it is faster, but they overlap
        (around(1.0, 0.1), around(0.88, 0.1), 0.0),  # clearly faster, but not by much
        (around(1.0, 0.1), around(0.6, 0.1), 0.0048),  # less than 0.005 lost, but more than half a percent
    ]
    one = around(1.0, 0.1)
    table.append((one, [min(one), *around(0.6, 0.1)], 0.0))  # the slowest and the fastest are equal
    rows = [
        ({"float32": one, "bfloat16": other}, {"float32": good, "bfloat16": good - lost}) for one, other, lost in table
    ]
    return [(samples, starts, seed, [rows[i] for i in new.permutation(len(rows)).tolist()])]


def _chosen_as(*rules: Callable) -> Callable[..., bool]:
    """A `when`: all choices are those of one of these functions."""
    return lambda yours, expected, samples, starts, seed, table: any(
        yours["choices"] == [_word(choose(*row)) for row in table] != yours["right"] for choose in rules
    )


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _faster_if(faster: Callable[[list[float], list[float]], bool]) -> Callable:
    """The rule with another comparison: faster(seconds in bfloat16, seconds in float32)."""

    def choose(seconds, accuracy):
        good = accuracy["bfloat16"] >= accuracy["float32"] - 0.005
        return torch.bfloat16 if good and faster(seconds["bfloat16"], seconds["float32"]) else torch.float32

    return choose


def _good_if(good: Callable[[float, float], bool]) -> Callable:
    """The rule with another condition on the accuracies: good(in bfloat16, in float32)."""

    def choose(seconds, accuracy):
        faster = max(seconds["bfloat16"]) < min(seconds["float32"])
        return torch.bfloat16 if faster and good(accuracy["bfloat16"], accuracy["float32"]) else torch.float32

    return choose


def _overlap(seconds: dict[str, list[float]], accuracy: dict[str, float]) -> bool:
    return min(seconds["bfloat16"]) < max(seconds["float32"]) and max(seconds["bfloat16"]) >= min(seconds["float32"])


_by_best = _faster_if(lambda bfloat16, float32: min(bfloat16) < min(float32))
_by_time_alone = _good_if(lambda bfloat16, float32: True)
_by_accuracy_alone = _faster_if(lambda bfloat16, float32: True)


def _by_either(*row):
    return max((_by_time_alone(*row), _by_accuracy_alone(*row)), key=lambda dtype: dtype == torch.bfloat16)


_not_slower = _faster_if(lambda bfloat16, float32: max(bfloat16) <= min(float32))
_OTHER_LOSSES = {
    "You allow no loss of accuracy at all. bfloat16 may cost up to 0.005.": lambda bfloat16, float32: (
        bfloat16 >= float32
    ),
    "You swapped the accuracies: bfloat16 may lose up to 0.005, not win.": lambda bfloat16, float32: (
        bfloat16 - float32 <= 0.005
    ),
    "You allow half a percent of the accuracy. The rule allows half a percentage point: 0.005 of any accuracy.": (
        lambda bfloat16, float32: bfloat16 >= 0.995 * float32
    ),
}


def _turned_round(seconds, accuracy):
    return torch.float32 if _choose_dtype(seconds, accuracy) == torch.bfloat16 else torch.bfloat16


def _in_words(seconds, accuracy):
    return "bf16" if _choose_dtype(seconds, accuracy) == torch.bfloat16 else "fp32"


exercise(
    "project_precision",
    title="Half precision, where it pays off",
    minutes=25,
    difficulty=2,
    points=3,
    seconds=60,
    takeaway="Whether half precision pays off depends on your machine. A gain counts if it exceeds the noise.",
    hints=(
        "A gain is clear if every measurement of one is below every measurement of the other.",
        '`max(seconds["bfloat16"]) < min(seconds["float32"])`, and then the accuracy.',
        'In `train`: `with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):` around model and loss.',
    ),
    spec=Spec(
        draw=_measurements,
        solution=(_train, _choose_dtype),
        probe=_in_each_dtype,
        measure=_rated,
        finds={},
        free=True,
        mistakes=[
            """
            (_train, _choose_dtype, 3)
                Give the check two functions: (train, choose_dtype).
                when: _has("kind", "other answer")
            return model → return
                `train` should return the trained model.
                when: _has("kind", "no model")
            replica, path = DDP(model) → replica, path = DDP(model.to(dtype))
            return model → return model.to(dtype)
                With dtype=torch.bfloat16, your weights themselves are in half precision, where small steps get lost.
                look: `torch.autocast` casts for the computation and leaves the weights in float32
                when: yours["stored"] != [["float32"], ["float32"]]
            torch.autocast("cpu", dtype, enabled=dtype != torch.float32)
                    → contextlib.nullcontext() || torch.autocast("cpu", dtype, enabled=False)
                With dtype=torch.bfloat16, your model still computes in float32.
                look: `torch.autocast` around the call of the model
                when: yours["computed"][1] == ["float32"]
            torch.autocast("cpu", dtype, enabled=dtype != torch.float32)
                    → torch.autocast("cpu", torch.float16, enabled=dtype != torch.float32)
                With dtype=torch.bfloat16, your model computes in {yours[computed][1][0]}.
                look: `torch.autocast` takes the dtype that `train` gets
                when: yours["computed"][1] != ["bfloat16"]
            torch.autocast("cpu", dtype, enabled=dtype != torch.float32) → torch.autocast("cpu", torch.bfloat16)
                With dtype=torch.float32, your model computes in half precision as well.
                look: `enabled=dtype != torch.float32`
                when: yours["computed"][0] != ["float32"]
            (_train, _in_words)
            (_train, lambda *row: _word(_choose_dtype(*row)))
                `choose_dtype` should return torch.float32 or torch.bfloat16. Yours returns {yours[choices][0]}.
                when: not {*yours["choices"]} <= {*DTYPES}
            (_train, _turned_round)
                You choose the slower or the less accurate of the two.
                when: _chosen_as(_turned_round)
            (_train, _not_slower)
                Where the slowest run in bfloat16 is exactly as fast as the fastest in float32, you choose bfloat16.
                Equal is not faster.
                when: _chosen_as(_not_slower)
            (_train, _by_accuracy_alone)
                You choose by accuracy alone: half precision has to be clearly faster as well.
                when: _chosen_as(_by_accuracy_alone)
            (_train, _by_either)
                You choose bfloat16 if it is faster or good enough: it has to be both.
                when: _chosen_as(_by_either)
            (_train, _faster_if(lambda bfloat16, float32: _mean(bfloat16) < _mean(float32)))
            (_train, _by_best)
            (_train, _faster_if(lambda bfloat16, float32: max(bfloat16) < max(float32)))
            (_train, _faster_if(lambda bfloat16, float32: all(map(operator.lt, bfloat16, float32))))
                You choose bfloat16 where the times overlap: {yours[example]}. The next measurements may say the
                opposite, so stay with float32.
                look: the slowest run in bfloat16 against the fastest one in float32
                when: yours["wrong"] and all(yours["right"][i] == "float32" and _overlap(*table[i]) for i in
                    yours["wrong"])
            (_train, _by_time_alone)
            (_train, _good_if(lambda bfloat16, float32: bfloat16 >= float32 - 0.5))
                You choose bfloat16 where it is faster, even if it costs more than 0.005 of accuracy: {yours[example]}.
                look: accuracies go from 0 to 1, so half a percentage point is 0.005
                when: _chosen_as(_by_time_alone)
            """,
            *(
                Mistake(sentence, (_train, _good_if(good)), when=_chosen_as(_good_if(good)))
                for sentence, good in _OTHER_LOSSES.items()
            ),
            """
            (_train, lambda seconds, accuracy: torch.float32)
            (_train, lambda seconds, accuracy: torch.bfloat16)
                You always choose the same dtype, no matter what was measured.
                when: len({*yours["choices"]}) == 1
            (_train, _faster_if(lambda bfloat16, float32: max(bfloat16) < 0.9 * min(float32)))
                One of your choices is wrong: the one for {yours[example]}.
                look: the rule, for these numbers
                when: yours["wrong"]
            """,
        ],
        also_right=[(_train_with_states, _choose_dtype)],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# project_export


class _Exported(nn.Module):
    """Bytes [B, 1, 6, 6] -> logits [B, 10]; dropout and batch norm tell train mode from eval mode."""

    def __init__(self, start: Sequence[Tensor]) -> None:
        super().__init__()
        self.norm, self.drop, self.out = nn.BatchNorm2d(1), nn.Dropout(0.3), nn.Linear(36, 10)
        with torch.no_grad():
            self.out.weight.copy_(start[0])
            self.out.bias.zero_()
            self.norm.running_mean.fill_(0.3)

    def forward(self, images: Tensor) -> Tensor:
        return self.out(self.drop(self.norm(images.float() / 255).flatten(1)))


def _program(path: Any) -> nn.Module:
    """The exported program in a file. What PyTorch says about files of another kind, in fifty lines, is not shown."""
    logging.disable(logging.WARNING)
    try:
        return torch.export.load(path).module()
    finally:
        logging.disable(logging.NOTSET)


def _export_and_read(answer: Callable, weights: Tensor, pixels: Tensor) -> Seen:
    """The probe: export a model in train mode, with two images of many as the example; read the file back."""
    model = _Exported([weights])
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "model.pt2")
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings(action="ignore"):
            call(answer, model, pixels[2:4], path, may_change=True, may_return_none=True)
        if not path.is_file():
            return {"kind": "no file", "files": sorted(each.name for each in Path(home).iterdir())}
        seen: Seen = {"bytes": path.stat().st_size}
        try:
            program = _program(path)
        except Exception:
            return {**seen, "kind": "no program"}
    results = {}
    with torch.no_grad():
        for size in (2, 1, 5, 600):
            try:
                results[size] = program(pixels[:size])
            except Exception as error:
                return {**seen, "kind": "refuses", "size": size, "error": f"{error}".strip().splitlines()[0][:200]}
        again = program(pixels[:5])
    if not all(isinstance(each, Tensor) for each in results.values()):
        return {**seen, "kind": "no tensor"}
    return {**seen, "kind": "a program", "logits": results[5], "again": again, "single": list(results[1].shape)}


def _exported(ask: Callable, weights: Tensor, pixels: Tensor) -> Seen:
    model = _Exported([weights]).eval()
    with torch.no_grad():
        return {**ask(weights, pixels), "right": model(pixels[:5])}


def _export(model, example, path):
    batch = torch.export.Dim("batch")
    program = torch.export.export(model.eval(), (example.clone(),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)


def _export_auto(model, example, path):
    model.eval()
    shapes = ((torch.export.Dim.DYNAMIC, *(torch.export.Dim.STATIC for _ in example.shape[1:])),)
    torch.export.save(torch.export.export(model, (torch.zeros_like(example),), dynamic_shapes=shapes), path)


class _Then(nn.Module):
    def __init__(self, model, change):
        super().__init__()
        self.model, self.change = model, change

    def forward(self, images):
        return self.change(self.model(images))


exercise(
    "project_export",
    title="A file that needs none of your code",
    minutes=25,
    difficulty=3,
    points=4,
    seconds=30,
    takeaway="The file takes bytes, any batch size, in eval mode, and runs without your class.",
    hints=(
        "Export keeps the mode of the model, and the sizes of the example unless you say which of them may change.",
        '`torch.export.Dim("batch")`, and `dynamic_shapes=({0: batch},)`: axis 0 of the first input.',
        "The example is saved with the program. A slice of a tensor brings all of the tensor along: `example.clone()`.",
    ),
    spec=Spec(
        draw=lambda new: [(new.randn(10, 36), new.images(3000, 1, 6, 6))],
        solution=_export,
        probe=_export_and_read,
        measure=_exported,
        finds={},
        free=True,
        mistakes="""
            torch.export.save(program, path) → pass
            program, path) → program, f'{path}.pt2')
                There is no file at `path` after the call.
                when: _has("kind", "no file")
            = torch.save(model.state_dict(), path)
            = torch.save(model.eval().state_dict(), path)
                `torch.export.load` cannot read your file: it holds weights or a pickled object, not a program.
                look: `torch.export.export`, then `torch.export.save`
                when: _has("kind", "no program")
            example.clone() → example[:1].clone()
            ({0: batch},) → ({2: batch},)
                Your export is refused: the batch size becomes a constant, or another axis than the first was to change.
                PyTorch says: {yours.message}
                look: an example of two images, and `dynamic_shapes=({{0: batch}},)`: axis 0
                when: says(yours, "Constraints violated", "specialized")
            , dynamic_shapes=({0: batch},) →
            Dim("batch") → Dim("batch", max=512)
                The program refuses a batch of {yours[size]}. It says: {yours[error]}
                look: `dynamic_shapes`
                when: yours["kind"] == "refuses" and yours["size"] != 2
            (example.clone(),) → (example.float() / 255,)
                The program cannot work with bytes (uint8). It says: {yours[error]}
                look: the example is uint8, as the images of the caller, and scaling belongs to the model
                when: _has("kind", "refuses")
            = _export(_Then(model, lambda logits: (logits, logits + 1)), example, path)
                What the program returns is not a tensor of logits.
                when: _has("kind", "no tensor")
            = _export(_Then(model, torch.squeeze), example, path)
                For a single image, the program returns the shape {yours[single]}, not [1, 10].
                when: yours["single"] != [1, 10] and len(yours["logits"]) == 5 and yours["logits"].dim() == 2
            = _export(_Then(model, torch.Tensor.half), example, path)
                The program's logits are {yours[logits].dtype}; those of the model are {yours[right].dtype}.
                when: yours["logits"].dtype != yours["right"].dtype
            model.eval() → model.train()
                The same images get different logits the second time: the model was exported in train mode.
                look: call `model.eval()` before the export; after it, it is too late
                when: not _near(yours["logits"], yours["again"])
            = _export(nn.Sequential(model, nn.Softmax(1)), example, path)
                The program returns probabilities: it should return the logits of the model.
                when: _near(yours["logits"], yours["right"].softmax(1))
            = _export(nn.Sequential(model, nn.ReLU()), example, path)
            = _export(nn.Sequential(_Bytes(), nn.Flatten(), model.out), example, path)
                The program computes different logits than the model in eval mode.
                when: yours["logits"].shape != yours["right"].shape or not _near(yours["logits"], yours["right"])
            example.clone() → example
                Your file has {yours[bytes]:,} bytes, most of them images: the example is a view and brings its whole
                data set along.
                look: `example.clone()`, or zeros of its shape
                when: yours["bytes"] > 90_000
        """,
        also_right=[_export_auto],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# project_budget


def _recorded(answer: Any) -> Any:
    """The record itself. The lab hands over a function that returns it: functions are asked where their files are."""
    return call(answer, may_return_none=True) if callable(answer) else answer


def _final_run(answer: Any) -> Seen:
    """What the record of the final run says, and the size of its file."""
    answer = _recorded(answer)
    if answer is None or (isinstance(answer, dict) and "cpu_seconds" in answer and answer.get("program") is None):
        return {"kind": "no run" if answer is None else "no program"}
    if not isinstance(answer, dict):
        return {"kind": "no record"}
    path, name, seconds = (answer.get(key) for key in ("program", "data", "cpu_seconds"))
    if not isinstance(path, str | os.PathLike) or not isinstance(seconds, int | float) or name not in TARGETS:
        return {"kind": "no record"}
    if not os.path.isfile(path):
        return {"kind": "no file"}
    return {"kind": "a file", "data": name, "cpu_seconds": float(seconds), "bytes": os.path.getsize(path)}


def _predictions(answer: Any, images: Tensor) -> Tensor | None:
    """What the file of the final run says about images. A part at a time: memory is limited."""
    try:
        program = _program(_recorded(answer)["program"])
        with torch.no_grad():
            return torch.cat([program(part).argmax(1) for part in images.split(500)])
    except Exception:
        return None


@exercise(
    "project_budget",
    title="The final run",
    minutes=40,
    difficulty=3,
    points=5,
    seconds=60,
    takeaway="Accuracy, bytes, and processor seconds together make a result. Each of them alone is easy.",
    hints=(
        "Try settings on a few thousand images first (`--images 6000`), and look at the validation accuracy only.",
        "One cycle of the learning rate that ends at zero gets far in two or three epochs.",
        "If the file is too large, look at the linear layer; if the time is too long, make the image small early "
        "(`stride=2`).",
    ),
)
def project_budget(answer: Any, new: Inputs) -> None:
    """Test images go to the exported file, in an order of their own; their labels stay here."""
    seen = observe(answer, _final_run)
    if seen["kind"] == "no run":
        raise Incorrect("`run` returned None: the program did not come to its end.", look="what the cell above prints")
    if seen["kind"] == "no program":
        raise Incorrect("This run exported no file.", look='`run("final", ..., "--export")`')
    if seen["kind"] == "no record":
        raise Incorrect("This is not the record of a run.", "what `run(...)` returns", look="`final = run(...)`")
    if seen["kind"] == "no file":
        raise Incorrect("The exported file of this run no longer exists.", look="run the cell above once more")
    target, test_set = TARGETS[seen["data"]], data.load(seen["data"], "test")
    order = new.permutation(len(test_set))
    found = observe(answer, _predictions, test_set.images[order])
    if not isinstance(found, Tensor) or found.shape != order.shape:
        raise Incorrect("The exported file does not classify the test images.", look='`check("project_export", …)`')
    accuracy = (found == test_set.labels[order]).float().mean().item()
    if accuracy < target.accuracy:
        raise Incorrect(
            "Too many test images get the wrong class.",
            f"accuracy {target.accuracy:.1%} or more",
            f"{accuracy:.2%}",
            "the validation accuracy: improve it first, and only then run this check again",
        )
    if seen["bytes"] > target.bytes:
        raise Incorrect(
            "Your file is larger than the budget.",
            f"{target.bytes:,} bytes or fewer",
            f"{seen['bytes']:,} bytes",
            "where most parameters are",
        )
    if not 0 < seen["cpu_seconds"] <= target.cpu_seconds:
        raise Incorrect(
            "The training took more processor time than the budget has, or none that could be measured.",
            f"up to {target.cpu_seconds:g} seconds",
            f"{seen['cpu_seconds']:.1f} seconds",
            "fewer epochs, a smaller image early in the network",
        )


# ---------------------------------------------------------------------------------------------------------------------
# project_serve

LONGEST = 1_000_000  # bytes of a request
BAD = {
    "a body that is not JSON": b"images, please",
    "bytes that are no text": b'{"images": [[[[\xff\xfe]]]]}',
    "lists that are nested too deeply": b'{"images": ' + 100_000 * b"[",
    "a list instead of an object": b"[1, 2, 3]",
    "an object without `images`": b'{"pictures": []}',
    "an empty list of images": b'{"images": []}',
    "images of the wrong size": b'{"images": [[[[0, 1], [2, 3]]]]}',
    "rows of unequal length": b'{"images": [[[[0, 1], [2]]]]}',
    "text in place of images": b'{"images": "a seven"}',
    "no images, but null": b'{"images": null}',
    "an empty body": b"",
}
PIXELS = {"a pixel of 256": 256, "a pixel of -1": -1, "a pixel of 0.5": 0.5, "a pixel that is text": "255"}
LENGTHS = {"no Content-Length": "", "a Content-Length of -1": -1, "a Content-Length that is not a number": "many"}
LENGTHS |= {"a Content-Length of ²": "²"}  # "²".isdigit() is true, and int("²") raises
TALL, WIDE, PATIENCE = 6, 6, 15.0


def _request(
    port: int, body: bytes, target: str = "/classify", length: int | str | None = None, method: str = "POST"
) -> dict[str, Any]:
    """The status and the JSON of the answer; "none" and why, where there is no answer. length "": none is announced."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        line.putrequest(method, target)
        line.putheader("Content-Type", "application/json")
        if length != "":
            line.putheader("Content-Length", str(len(body) if length is None else length))
        line.endheaders(body)
        reply = line.getresponse()
        text = reply.read(100_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as problem:
        return {"status": "none", "found": {}, "text": type(problem).__name__}
    finally:
        line.close()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return {"status": reply.status, "found": found if isinstance(found, dict) else {}, "text": text[:200]}


def _as_body(images: Tensor) -> bytes:
    return json.dumps({"images": images.tolist()}).encode()


def _with_pixel(images: Tensor, value: Any) -> bytes:
    rows = images[:2].tolist()
    rows[1][0][2][3] = value
    return json.dumps({"images": rows}).encode()


def _answered(answer: Callable, program: bytes, classes: tuple, images: Tensor) -> Seen:
    """The probe: start the server in a thread, ask it good and bad questions, and stop it."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "model.pt2")
        path.write_bytes(program)
        given = path, classes, (1, TALL, WIDE)
        started: list[Any] = []
        with mock.patch.object(socketserver.BaseServer, "serve_forever", lambda self, *_: started.append(self)):
            server = call(answer, *given, may_return_none=True)
        if started:
            started[0].server_close()
            return {"kind": "started"}
        if not isinstance(server, socketserver.BaseServer):
            return {"kind": "no server", "shown": type(server).__name__}
        try:
            call(answer, *given).server_close()
        except AnswerRaised:
            server.server_close()
            return {"kind": "one port", "port": server.server_address[1]}
        host, port = server.server_address[:2]
        noise = io.StringIO()
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        with contextlib.redirect_stderr(noise), contextlib.redirect_stdout(noise):
            thread.start()
            try:
                seen = {"kind": "a server", "host": host, "one": _request(port, _as_body(images[:1]))}
                seen["many"] = _request(port, _as_body(images))
                one = images[:1]
                bodies = BAD | {
                    "one image in place of a list of images": _as_body(one[0]),
                    "flattened images": _as_body(images.flatten(1)),
                }
                bodies |= {name: _with_pixel(images, value) for name, value in PIXELS.items()}
                seen["bad"] = {}
                for name, body in bodies.items():
                    seen["bad"][name] = _request(port, body)
                    if seen["bad"][name]["status"] == "none":
                        break  # it may be dead: the others would only wait
                else:
                    for name, length in LENGTHS.items():
                        seen["bad"][name] = _request(port, b"", length=length)
                    seen["bad"]["GET in place of POST, as a browser sends it,"] = _request(port, b"", method="GET")
                seen["longest"] = _request(port, _as_body(one).ljust(LONGEST))
                seen["long"] = _request(port, b"", length=LONGEST + 1)
                seen["elsewhere"] = _request(port, _as_body(one), "/classify/elsewhere")
                seen["after"] = seen["beside"] = _request(port, _as_body(one))
                if seen["after"]["status"] == 200:
                    with socket.create_connection(("127.0.0.1", port), PATIENCE) as slow:
                        slow.sendall(b"POST /classify HTTP/1.1\r\n")
                        seen["beside"] = _request(port, _as_body(one))
            finally:
                server.shutdown()
                server.server_close()
                thread.join(PATIENCE)
    return seen


def _served(ask: Callable, program: bytes, classes: tuple, images: Tensor) -> Seen:
    seen = ask(program, classes, images)
    logits = torch.export.load(io.BytesIO(program)).module()(images)
    seen = {**seen, "right": [classes[i] for i in logits.argmax(1)]}
    if seen["kind"] == "a server":
        seen["how many"] = len(seen["many"]["found"].get("classes") or [])
        seen["good"] = seen["one" if seen["one"]["status"] != 200 else "many"]
        refused = [name for name, reply in seen["bad"].items() if _refusal(reply) == "refused"]
        bad = {name: _refusal(reply) for name, reply in seen["bad"].items() if name not in refused}
        seen["first"], seen["how"] = next(iter(bad.items()), ("", ""))
        said = {name: reply["found"].get("error") for name, reply in seen["bad"].items() if name in refused}
        mute = [name for name, each in said.items() if not (isinstance(each, str) and len(each) > 9)]
        seen["mute"], seen["instead"] = (mute[0], repr(seen["bad"][mute[0]]["text"][:60])) if mute else ("", "")
    return seen


def _refusal(reply: dict[str, Any]) -> str:
    status = reply["status"]
    if status == "none":
        return "gets no answer at all"
    if 400 <= status < 500:
        return "refused"
    return "gets a class, as if nothing were wrong" if "classes" in reply["found"] else f"gets status {status}"


def _a_service(new: Inputs) -> list[tuple]:
    weights, images = new.randn(10, 36), new.images(6, 1, TALL, WIDE)
    classes = tuple(
        new.pick(("a ", "the ", "one ")) + name
        for name in ["cat", "dog", "car", "bus", "hat", "mug", "key", "pen", "cup", "fan"]
    )
    order = new.permutation(10).tolist()
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):
        _export(_Exported([weights]), images[:2], file)
    return [(file.getvalue(), tuple(classes[i] for i in order), images)]


def _make_server(path, classes, shape):
    program = torch.export.load(path).module()

    def classify(body):
        try:
            images = torch.tensor(json.loads(body)["images"])
        except (ValueError, KeyError, TypeError, RuntimeError):
            raise ValueError('Send JSON: {"images": [[[[0, 255, ...]]]]}.') from None
        if images.dtype != torch.int64:
            raise ValueError("Pixels are whole numbers.")
        if images.ndim != 4 or tuple(images.shape[1:]) != tuple(shape):
            raise ValueError(f"Images have the shape [B, {', '.join(map(str, shape))}].")
        if images.min() < 0 or images.max() > 255:
            raise ValueError("Pixels are numbers from 0 to 255.")
        with torch.no_grad():
            return [classes[i] for i in program(images.to(torch.uint8)).argmax(1)]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = self.headers.get("Content-Length", "")
            if self.path != "/classify":
                return self.reply(404, {"error": "Post to /classify."})
            if not (length.isascii() and length.isdigit()):
                return self.reply(411, {"error": "Announce the length of the body."})
            length = int(length)
            if length > 1_000_000:
                return self.reply(413, {"error": "At most 1,000,000 bytes."})
            try:
                found = classify(self.rfile.read(length))
            except ValueError as problem:
                return self.reply(400, {"error": str(problem)})
            self.reply(200, {"classes": found})

        def do_GET(self):
            self.reply(405, {"error": "Use POST: send images to /classify."})

        def reply(self, status, content):
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def _make_simple_server(path, classes, shape):
    model = torch.export.load(path).module()

    class Service(BaseHTTPRequestHandler):
        def do_POST(self):
            self.reply(*(404, "There is only /classify.") if self.path != "/classify" else self.classify())

        def do_GET(self):
            self.reply(405, "Use POST: send images to /classify.")

        def reply(self, status, answer):
            body = json.dumps({"classes" if status == 200 else "error": answer}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def classify(self):
            try:
                length = int(self.headers["Content-Length"])
                if length > 1_000_000:
                    return 413, "At most 1,000,000 bytes."
                body = self.rfile.read(length) if length >= 0 else b""
                images = np.asarray(json.loads(body)["images"])
                if images.dtype.kind != "i" or images.min() < 0 or images.max() > 255:
                    return 422, "Pixels are integers from 0 to 255."
                if images.shape != (len(images), *shape):
                    return 422, f"Each image has the shape {tuple(shape)}."
                with torch.inference_mode():
                    numbers = model(torch.from_numpy(images.astype(np.uint8))).argmax(dim=1)
                return 200, [classes[number] for number in numbers.tolist()]
            except Exception as problem:
                return 400, f"Send JSON with a list of images. This went wrong: {problem!r}"

        def log_message(self, *words):
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Service)


exercise(
    "project_serve",
    title="A server that survives its users",
    minutes=50,
    difficulty=4,
    points=5,
    seconds=60,
    takeaway="Check every request before the model sees it. Nonsense gets a 4xx and a sentence, never a crash.",
    hints=(
        "Two parts: a function that turns a body into classes or raises ValueError with a sentence, and a handler that "
        "turns the first into status 200 and the second into 400.",
        '`torch.tensor(json.loads(body)["images"])` fails with KeyError, TypeError, ValueError or RuntimeError for '
        "most bad input; shape, dtype and range are yours to check.",
        '`self.send_response(status)`, `self.send_header("Content-Length", str(len(body)))`, `self.end_headers()`, '
        '`self.wfile.write(body)`. The server: `ThreadingHTTPServer(("127.0.0.1", 0), Handler)`.',
    ),
    spec=Spec(
        draw=_a_service,
        solution=_make_server,
        probe=_answered,
        measure=_served,
        finds={},
        free=True,
        mistakes=r"""
            ThreadingHTTPServer(("127.0.0.1", 0), Handler) → Handler
                `make_server` should return a server that does not run yet; yours is of type {yours[shown]}.
                look: return the ThreadingHTTPServer itself
                when: _has("kind", "no server")
            return ThreadingHTTPServer(("127.0.0.1", 0), Handler)
                    → ThreadingHTTPServer(("127.0.0.1", 0), Handler).serve_forever()
                `make_server` starts the server. It should only return it: the caller calls its `serve_forever`.
                when: _has("kind", "started")
            ("127.0.0.1", 0) → ("127.0.0.1", 47613)
                A second server cannot start beside the first: both want port {yours[port]}. Take any free port.
                look: `("127.0.0.1", 0)`
                when: _has("kind", "one port")
            127.0.0.1 → 0.0.0.0
                Your server listens on {yours[host]}, so every machine in your network can reach it.
                look: `("127.0.0.1", 0)`: this machine only, any free port
                when: yours["host"] not in ("127.0.0.1", "::1")
            images.to(torch.uint8) → images.to(torch.uint8)[0]
            self.reply(200 → self.reply(201
                A valid request gets status {yours[good][status]}, not 200. It says: {yours[good][text]}
                look: try it in a cell of your own: what does your function do with one image?
                when: yours["one"]["status"] != 200 or yours["many"]["status"] != 200
            {"classes": found} → {"class": found}
                The answer has no "classes": it should be {{"classes": [a name for each image]}}.
                when: not isinstance(yours["one"]["found"].get("classes"), list)
            classes[i] for i in program(images.to(torch.uint8)).argmax(1)
                    → int(i) for i in program(images.to(torch.uint8)).argmax(1)
            [classes[i] for i in program(images.to(torch.uint8)).argmax(1)] → ['0'] * len(images)
                Your server answers with {yours[many][found][classes]}; it should answer with the names in `classes`.
                when: not {*yours["many"]["found"]["classes"]} <= {*classes}
            images.to(torch.uint8)).argmax(1) → images.to(torch.uint8)[:1]).argmax(1)
                    || images.to(torch.uint8)).argmax(0)
                A request with {images.shape[0]} images should get {images.shape[0]} classes, in their order. Your
                answer has {yours[how many]}.
                look: the slice of the images; the `dim` of `argmax`: logits are [B, classes]
                when: len(yours["many"]["found"]["classes"]) != len(yours["right"])
            images.to(torch.uint8) → (images / 255).to(torch.uint8)
            .argmax(1) → .argmin(1)
                Your server returns the wrong classes: for the same bytes, the program in the file gives others.
                look: the program takes bytes as they are; scaling is inside
                when: yours["many"]["found"]["classes"] != yours["right"] or yours["one"]["found"]["classes"] !=
                    yours["right"][:1]
            except ValueError as problem: → except ValueError as problem:\n                self.server.socket.close()
                After the bad requests, your server no longer answers good ones.
                when: yours["after"]["status"] != 200
            except (ValueError, KeyError, TypeError, RuntimeError): → except ZeroDivisionError:
            if images.min() < 0 or images.max() > 255: → if False:
            if images.dtype != torch.int64: → if False:
            except (ValueError, KeyError, TypeError, RuntimeError): → except (ValueError, KeyError):
            images.ndim != 4 or → not (images := images.reshape(-1, *shape)).ndim or
            if not (length.isascii() and length.isdigit()): → if not length: || if not length.isdigit():
            do_GET → do_PUT
            if images.ndim != 4 or tuple(images.shape[1:]) != tuple(shape): → if False:
            self.reply(400 → self.reply(500
                A request with {yours[first]} {yours[how]}: it should get a status from 400 to 499.
                look: which line sees this request first, and what does it do?
                when: yours["first"]
            ThreadingHTTPServer( → http.server.HTTPServer(
                While one client is slow to send its request, your server answers nobody else.
                look: `ThreadingHTTPServer`: a thread for each request
                when: yours["beside"]["status"] == "none"
            length > 1_000_000 → length >= 1_000_000 || length > 784_000
                A good request of exactly 1,000,000 bytes gets status {yours[longest][status]}, not 200. Only longer
                ones are refused.
                when: yours["longest"]["status"] != 200
            if length > 1_000_000: → if False:
                A request that announces more than 1,000,000 bytes is not refused at once.
                look: compare Content-Length with the limit before you read the body: status 413
                when: yours["long"]["status"] not in range(400, 500)
            self.reply(413 → self.reply(400
                A request that announces more than 1,000,000 bytes gets status {yours[long][status]}; it should get a
                413.
                when: yours["long"]["status"] != 413
            if self.path != "/classify": → if False:
            self.reply(404 → self.reply(400
                A request to an address other than /classify gets status {yours[elsewhere][status]}; it should get a
                404.
                look: `self.path`
                when: yours["elsewhere"]["status"] != 404
            {"error": str(problem)} → {} || {"error": 400}
                A refusal should say why, in JSON: {{"error": "a sentence"}}. A request with {yours[mute]} gets
                {yours[instead]}.
                when: yours["mute"]
        """,
        also_right=[_make_simple_server],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# project_report


class _Rows(HTMLParser):
    """The texts of each row of a page's tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self.open = True

    def handle_endtag(self, tag: str) -> None:
        self.open = self.open and tag not in ("td", "th")

    def handle_data(self, text: str) -> None:
        if self.open:
            self.rows[-1][-1] += text


def _reported(ask: Callable, numbers: dict[str, float], targets: dict[str, tuple]) -> Seen:
    """What a page says of each number, and whether it says it."""
    page = ask(numbers, targets)
    if not isinstance(page, str):
        return {"kind": "no text"}
    rows: dict[str, list[list[str]]] = {}
    for cells in _Rows(page).rows:
        rows.setdefault(" ".join(" ".join(cells[:1]).lower().replace("_", " ").split()), []).append(cells)
    seen: Seen = {"kind": "a page", "lost": [], "twice": [], "other": [], "unknown": [], "wrong": [], "untold": []}
    for name in [*numbers, *(name for name in targets if name not in numbers)]:
        found = rows.get(name.replace("_", " "), [])
        if len(found) != 1:
            seen["twice" if found else "lost"].append(name)
            continue
        ((_, *cells),) = found
        if name in numbers and not any(_shows(text, numbers[name]) for text in cells[:1]):
            seen["other"].append((name, f"{numbers[name]:.5g}", "".join(cells[:1]).strip() or "nothing"))
        verdict = cells[-1].strip().lower() if len(cells) > 1 else ""
        if name in targets:
            right = _verdict(numbers.get(name), targets[name])
            if verdict not in VERDICTS:
                seen["unknown"].append((name, verdict or "nothing"))
            elif verdict != right:
                seen["wrong"].append((name, numbers.get(name), *targets[name], verdict, right))
        elif verdict in VERDICTS:
            seen["untold"].append((name, verdict))
    return seen


VERDICTS = ("met", "missed", "not measured")


def _shows(text: str, value: float) -> bool:
    """Whether a text begins with this number, up to its third significant digit; percent signs and commas are fine."""
    match = re.match(r"\s*(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*(%?)", text, re.IGNORECASE)
    if not match:
        return False
    shown = float(match[1].replace(",", "")) / (100 if match[2] else 1)
    third = 10.0 ** (math.floor(math.log10(abs(value))) - 2) if value else 0.0
    return abs(shown - value) <= 0.501 * third


def _verdict(value: float | None, target: tuple) -> str:
    if value is None:
        return "not measured"
    relation, limit = target
    return "met" if (value >= limit if relation == ">=" else value <= limit) else "missed"


def _some_numbers(new: Inputs) -> list[tuple]:
    def of(low: float, high: float) -> float:
        return round(low + (high - low) * new.rand(1).item(), 4)

    # the last digits of the accuracy and of the gain are not 0
    accuracy, seconds, size = 0.0137 + new.size(60, 97) / 100, of(20, 300), float(new.size(50_000, 900_000))
    numbers = {"test_accuracy": accuracy, "cpu_seconds": seconds, "bytes": size, "resumed_difference": 0.0}
    numbers |= {f"number_{new.size(2, 99)}": of(1, 9), "gain": -(0.0137 + new.size(0, 7) / 100)}
    first = {"test_accuracy": (">=", accuracy), "cpu_seconds": ("<=", seconds - 1), "bytes": ("<=", size + 5)}
    first |= {"resumed_difference": ("<=", 0), "gain": (">=", 0.005)}
    second = {"test_accuracy": (">=", accuracy + 0.001), "cpu_seconds": ("<=", seconds), "bytes": ("<=", size - 5)}
    missing = {name: value for name, value in numbers.items() if name != "bytes"}
    return [(numbers, first), (numbers, second), (missing, second)]


def _report(numbers, targets):
    rows = []
    for name in [*numbers, *(name for name in targets if name not in numbers)]:
        value = f"{numbers[name]:,.5g}" if name in numbers else ""
        wanted = verdict = ""
        if name in targets:
            relation, limit = targets[name]
            wanted, verdict = f"{relation} {limit:,.5g}", "not measured"
            if name in numbers:
                met = numbers[name] >= limit if relation == ">=" else numbers[name] <= limit
                verdict = "met" if met else "missed"
        cells = (name.replace("_", " "), value, wanted.replace("<", "&lt;").replace(">", "&gt;"), verdict)
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f"<h1>My project</h1><table><tr><th>what<th>measured<th>target<th></tr>{''.join(rows)}</table>"


def _typed_by_hand(numbers, targets):
    return _report(dict.fromkeys(numbers, 0.91), targets)


exercise(
    "project_report",
    title="A report that cannot lie",
    minutes=30,
    difficulty=2,
    points=3,
    takeaway="A number that a program writes stays true with every run. A number that you typed was true once.",
    hints=(
        "One row for each name in `numbers`, then one for each name in `targets` that has no number.",
        'A row: `f"<tr><td>{name}</td><td>{value:,.5g}</td><td>{wanted}</td><td>{verdict}</td></tr>"`.',
        "In HTML, `<=` is written `&lt;=`; `html.escape` does that.",
    ),
    spec=Spec(
        draw=_some_numbers,
        solution=_report,
        measure=_reported,
        finds={},
        free=True,
        mistakes="""
            if name in targets: → if True:
                A number that has no target should still get a row, without a verdict. Yours raises an error there.
                look: `if name in targets`
                when: says(yours, *(repr(name) for name in numbers if name not in targets))
            return f → return None and f
            = [_report(numbers, targets)]
                Your function should return the page as a string.
                when: _has("kind", "no text")
            = "<br>".join(f"{name}: {value}" for name, value in numbers.items())
            for name in [*numbers, * → for name in [*list(numbers)[1:], *
                The page has no table row for {yours[lost][0]}.
                look: the name in the first cell (with _ or spaces), the number in the second
                when: [name for name in yours["lost"] if name in numbers]
            , *(name for name in targets if name not in numbers) →
                A target without a number is missing. The page should say what was not measured.
                look: a row with the verdict "not measured"
                when: yours["lost"]
            = 2 * _report(numbers, targets)
                The page has more than one row for {yours[twice][0]}.
                when: yours["twice"]
            {numbers[name]:,.5g}" if name in numbers → {numbers[name]:,.5g}" if numbers.get(name)
                The row of {yours[other][0][0]} should show 0, and it shows {yours[other][0][2]}: 0 is a number, too.
                look: `name in numbers`, and not `if numbers.get(name)`
                when: yours["other"] and all(shown == "0" for _, shown, _ in yours["other"])
            _typed_by_hand
            :,.5g}" if → :,.1g}" if || :,.2f}" if
            name in numbers else → numbers.get(name) else
                The row of {yours[other][0][0]} should show {yours[other][0][1]}, and it shows {yours[other][0][2]}.
                look: the second cell: each number comes from `numbers`, with three significant digits or more
                when: yours["other"]
            "met" if met else "missed" → "yes" if met else "no"
                In a row with a target, the last cell should say "met", "missed" or "not measured". For
                {yours[unknown][0][0]} yours says {yours[unknown][0][1]}.
                when: yours["unknown"]
            wanted = verdict = "" → wanted, verdict = "", "met"
                {yours[untold][0][0]} has no target, and your page says "{yours[untold][0][1]}".
                look: the last cell of a row without a target
                when: yours["untold"]
            if name in numbers: → if numbers.get(name):
                {yours[wrong][0][0]} was measured, and your page says that it was not. 0 is a number, too.
                look: `name in numbers`
                when: lambda yours, *_: [verdict for *_, verdict, right in yours["wrong"] if verdict == "not measured"]
            "not measured" → "missed" || "met"
                There is no number for {yours[wrong][0][0]}: its target is neither met nor missed, but not measured.
                when: lambda yours, *_: any(value is None for _, value, *_ in yours["wrong"])
            "met" if met else "missed" → "met"
            numbers[name] >= limit if → numbers[name] > limit if
            if relation == ">=" → if True
            numbers[name] >= limit if → abs(numbers[name]) >= limit if
                A verdict is wrong: {yours[wrong][0][0]} is {yours[wrong][0][1]}, the target is {yours[wrong][0][2]}
                {yours[wrong][0][3]}, and your page says "{yours[wrong][0][4]}".
                look: equal counts as met; each target says which way it goes; and what counts is the number itself, not
                    the rounded one
                when: yours["wrong"]
        """,
        also_right=[
            lambda numbers, targets: _report(numbers, targets).replace("<td>test accuracy", "<td>test_accuracy"),
        ],
    ),
)
