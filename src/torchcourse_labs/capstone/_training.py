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
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from labcheck import ranks
from labcheck.authoring import Inputs
from torchcourse.data import ImageSet

PER_EPOCH, EPOCHS, BATCH = 6, 3, 8
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
            # When backward begins, nothing should be left of an earlier step's gradients.
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
def noted(steps: list[dict]) -> Iterator[None]:
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
def cut_off(save: int | None) -> Iterator[None]:
    """The process is killed in the middle of this save (1 is the first)."""
    saves, whole = [0], torch.save

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


def session(
    answer: Callable,
    samples: tuple[Tensor, Tensor],
    starts: list[list[Tensor]],
    how: dict[str, Any],
    folder: str,
    noise: bool = False,
    double: bool = False,
    kill_in: int | None = None,
    cut: int | None = None,
) -> dict:
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
    with noted(model.steps), cut_off(cut):
        trained = answer(model, train_set, folder=Path(folder).absolute(), **how)
    if not isinstance(trained, Watched):
        return {"returned": type(trained).__name__}
    after = loss(trained)
    flat = torch.cat([p.detach().double().flatten() for p in trained.parameters()])
    stored = str(next(trained.parameters()).dtype).removeprefix("torch.")
    seen = {"returned": "a model", "steps": trained.steps or model.steps, "weights": flat, "stored": stored}
    return seen | {"learned": after < before}


def perform(answer: Any, world_size: int, home: str, seed: int, *inputs: Any, **options: Any) -> ranks.Outcome:
    """Run a session as every rank of a fresh group. What the answer prints is not shown: it runs many times."""
    harness = partial(session, **options)
    with contextlib.redirect_stdout(None):
        return ranks.start(answer, 1, harness, inputs, world_size=world_size, folder=home, seed=seed)


def settings(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """What the answer gets besides model, images, and folder."""
    return {"epochs": EPOCHS, "batch_size": BATCH, "seed": seed, "dtype": dtype}


def draw(rng: Inputs) -> tuple[tuple[Tensor, Tensor], list, int, int]:
    """Numbered images with labels, first weights for two ranks, a seed, and the step in which a run is killed."""
    n = PER_EPOCH * BATCH
    images = rng.ints(0, 256, (n, 1, 4, 4), torch.uint8)
    labels = images.flatten(1).float().matmul(rng.randn(16, 3)).argmax(1)
    images[:, 0, 0, 0] = rng.permutation(256)[:n]  # the numbers of the images
    starts = [[rng.randn(12, 16) / 4, rng.randn(12), rng.randn(3, 12) / 4, rng.randn(3)] for _ in range(2)]
    return (images, labels), starts, rng.size(1, 1000), PER_EPOCH + rng.size(2, PER_EPOCH - 1)


def each_image_once(steps: list[list[int]], images: Tensor) -> bool:
    """Whether every epoch of one process takes each of the images once, in whole batches."""
    whole = len(steps) == EPOCHS * PER_EPOCH and all(len(step) == BATCH for step in steps)
    return whole and all(sorted(each) == images[:, 0, 0, 0].sort().values.tolist() for each in epochs(steps))


def epochs(steps: list[list[int]]) -> list[list[int]]:
    """The images of each epoch, in order, from those of each step."""
    return [[*itertools.chain(*steps[i : i + PER_EPOCH])] for i in range(0, len(steps), PER_EPOCH)]
