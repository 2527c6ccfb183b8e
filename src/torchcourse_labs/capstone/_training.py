"""A training that is watched: a model that writes down what each step saw, in real processes that can be killed.

An interrupted run, or two processes, are compared with a run that nothing disturbed, step by step; nothing is timed.
"""

import contextlib
import hashlib
import io
import itertools
import json
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from labcheck import probes, ranks
from labcheck.authoring import Inputs, wrong_if
from torchcourse.data import ImageSet

PER_EPOCH, EPOCHS, BATCH = 6, 3, 8
KILLED = "steps.json"  # what a killed run saw, in the folder where the ranks work


class Watched(nn.Module):
    """Bytes [B, 1, 4, 4] -> logits [B, 3]. `steps` says of each pass in train mode what it saw, as plain data.

    The first pixel of an image is its number. In train mode, the model draws random numbers, as dropout would.
    exact: no random numbers, and float64, so that two processes can do as one; kill_in: in this step (0 is the first),
    the process is killed.
    """

    def __init__(self, start: Sequence[Tensor], exact: bool, kill_in: int | None) -> None:
        super().__init__()
        dtype = torch.float64 if exact else torch.float32
        self.first, self.last = nn.Linear(16, 12, dtype=dtype), nn.Linear(12, 3, dtype=dtype)
        with torch.no_grad():
            for parameter, value in zip(self.parameters(), start, strict=True):
                parameter.copy_(value)
        self.exact, self.kill_in, self.steps = exact, kill_in, []

    def forward(self, images: Tensor) -> Tensor:
        x = images.to(self.first.weight.dtype).flatten(1) / 128 - 1
        draw = torch.rand(len(x), 1, dtype=x.dtype) * (self.training and not self.exact)
        hidden = self.first(x * (1 + 0.5 * draw))
        logits = self.last(hidden.tanh())
        if self.training and torch.is_grad_enabled():
            if len(self.steps) == self.kill_in:
                Path(KILLED).write_text(json.dumps(self.steps))
                os.kill(os.getpid(), signal.SIGKILL)
            step = {
                "rows": images[:, 0, 0, 0].tolist(),
                "weights": digest([*self.parameters()]),
                "stored": str(self.first.weight.dtype),
                "computed": str(hidden.dtype),
                "draws": draw.sum().item(),
            }
            self.steps.append(step)

            def begins(_: Tensor) -> None:  # when backward begins, no gradient of an earlier step should be left
                step["left"] = any(p.grad is not None and bool(p.grad.any()) for p in self.parameters())

            logits.register_hook(begins)
        return logits


def digest(values: Any) -> str:
    """A short text for tensors, numbers, and containers of them: another text if a bit differs."""

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, Tensor) else repr(value)

    return hashlib.sha256(json.dumps(values, default=plain, sort_keys=True).encode()).hexdigest()[:16]


def noting(steps: list[dict]) -> RemovableHandle:
    """Every step of an optimizer adds to the latest pass what it will work with."""

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if steps:
            settings = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
            steps[-1] |= {"settings": digest(settings), "state": digest(optimizer.state_dict()["state"])}

    return register_optimizer_step_pre_hook(note)


def cut_off(save: int | None) -> Any:
    """The process is killed in the middle of this save (1 is the first); None: of none."""
    saves, whole = itertools.count(1), torch.save

    def half(state: Any, file: Any, *args: Any, **options: Any) -> None:
        if next(saves) != save:
            return whole(state, file, *args, **options)
        buffer = io.BytesIO()
        whole(state, buffer, *args, **options)
        with contextlib.nullcontext(file) if hasattr(file, "write") else open(file, "wb") as target:
            target.write(buffer.getvalue()[: buffer.tell() // 2])
            target.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    return mock.patch.object(torch, "save", half)


def session(
    answer: Callable,
    samples: tuple[Tensor, Tensor],
    starts: list[list[Tensor]],
    how: dict[str, Any],
    folder: str,
    exact: bool = False,
    kill_in: int | None = None,
    cut: int | None = None,
) -> dict:
    """One call of the answer, on a rank. Returns what each step saw, and what came of it."""
    Path(folder).mkdir(exist_ok=True)
    images, labels = samples
    model = Watched(starts[dist.get_rank()], exact, kill_in)
    train_set = ImageSet(images, labels, ("a", "b", "c"), "numbered")

    def loss(of: nn.Module) -> float:
        with torch.no_grad():
            return F.cross_entropy(of.eval()(images), labels).item()

    before = loss(model)
    with noting(model.steps), cut_off(cut):
        trained = answer(model.train(), train_set, folder=Path(folder).absolute(), **how)
    if not isinstance(trained, Watched):
        return {"returned": type(trained).__name__}
    seen = {"returned": "a model", "steps": trained.steps or model.steps, "stored": str(trained.first.weight.dtype)}
    return seen | {"learned": loss(trained) < before, "weights": probes.weights(trained)}


def perform(answer: Any, world_size: int, home: str, seed: int, *inputs: Any, **options: Any) -> ranks.Outcome:
    """Run a session as every rank of a fresh group. What the answer prints is not shown: it runs many times."""
    harness = partial(session, **options)
    with contextlib.redirect_stdout(None):
        return ranks.start(answer, 1, harness, inputs, world_size=world_size, folder=home, seed=seed)


def alone(answer: Any, home: str, seed: int, *inputs: Any, **options: Any) -> dict:
    """What a session of one process returns. Raises what there is to say if it fails."""
    outcome = perform(answer, 1, home, seed, *inputs, **options)
    ranks.judge(outcome)
    return outcome[0].value


def draw(rng: Inputs) -> tuple[tuple[Tensor, Tensor], list, dict[str, Any], int]:
    """Numbered images with labels, first weights for two ranks, settings, and the step in which a run is killed."""
    n = PER_EPOCH * BATCH
    images = rng.ints(0, 256, (n, 1, 4, 4), torch.uint8)
    labels = images.flatten(1).float().matmul(rng.randn(16, 3)).argmax(1)
    images[:, 0, 0, 0] = rng.permutation(256)[:n]  # the numbers of the images
    starts = [[rng.randn(12, 16) / 4, rng.randn(12), rng.randn(3, 12) / 4, rng.randn(3)] for _ in range(2)]
    how = {"epochs": EPOCHS, "batch_size": BATCH, "seed": rng.size(1, 1000), "dtype": torch.float32}
    return (images, labels), starts, how, PER_EPOCH + rng.size(2, PER_EPOCH - 1)


def each_image_once(steps: list[list[int]], images: Tensor) -> bool:
    """Whether every epoch of one process takes each of the images once, in whole batches."""
    whole = len(steps) == EPOCHS * PER_EPOCH and all(len(step) == BATCH for step in steps)
    return whole and all(sorted(each) == images[:, 0, 0, 0].sort().values.tolist() for each in epochs(steps))


def epochs(steps: list[list[int]]) -> list[list[int]]:
    """The images of each epoch, in order, from those of each step."""
    return [[*itertools.chain(*steps[i : i + PER_EPOCH])] for i in range(0, len(steps), PER_EPOCH)]


def judge_returned(seen: dict) -> None:
    wrong_if(
        seen["returned"] != "a model",
        "returned",
        f"Your function should return the trained model; it returned an object of type {seen['returned']}.",
        look="the model itself, without DDP around it",
    )


def judge_rows(rows: list[list[int]], images: Tensor) -> None:
    """rows: the images of each step of one process that nothing disturbed"""
    wrong_if(
        not each_image_once(rows, images),
        "once",
        "An epoch should train the model that you return, in train mode, on each image once, in batches of batch_size.",
        look="here, 48 images in batches of 8 make 6 steps an epoch, and 3 epochs 18 steps",
        yours=f"{len(rows)} steps",
    )
