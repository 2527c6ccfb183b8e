"""What the crash test kills: small trainings that save and go on as chapter 09 teaches, and say how far they are.

Each has everything that must come back for equal weights: momentum, a schedule, dropout, images shifted by NumPy's and
Python's random numbers, and a position in the middle of an epoch. With two ranks, each has random numbers of its own.
"""

import mmap
import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from torchcourse import checkpoint
from torchcourse.errors import CourseError

PHASES = ("starting", "restoring", "training", "writing", "flushing", "reading back", "renaming", "tidying", "ending")
IN_A_SAVE = PHASES[3:8]  # in the first three of them the new file is beside the old one, under another name


@dataclass(frozen=True)
class Kind:
    """A training: chapter 04's network in one process, or chapter 06's in two, each with all weights or with a half."""

    name: str
    chapter: str
    ranks: int
    sharded: bool = False
    steps: int = 40
    interval: int = 4  # steps between two saves
    images: int = 256
    batch: int = 32  # of all ranks together

    def network(self) -> nn.Module:
        """The first weights are those of the random numbers of this process."""
        if self.ranks == 1:
            return nn.Sequential(
                *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Dropout(0.25), nn.Flatten(), nn.Linear(16 * 5 * 5, 64), nn.ReLU()),
                *(nn.Dropout(0.5), nn.Linear(64, 10)),
            )
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10))


SHARDED = "two ranks, sharded"
KINDS = {
    kind.name: kind for kind in (Kind("one process", "04", 1), Kind("two ranks", "06", 2), Kind(SHARDED, "09", 2, True))
}


class Board:
    """A few numbers in a file that another process reads, also after this one was killed."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(32))
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), 32)).cast("I")
        self.ranks = self._numbers[4:]  # the process ids of the ranks, 0 before they are there

    @property
    def phase(self) -> str:
        """What the process does now, or did when it ended."""
        return PHASES[self._numbers[0]]

    @phase.setter
    def phase(self, phase: str) -> None:
        self._numbers[0] = PHASES.index(phase)

    def begin(self) -> None:
        """A save begins."""
        self._numbers[1] += 1
        self.phase = "writing"

    def saved(self, step: int) -> None:
        """The save of this step is done."""
        self._numbers[2] = step
        self.phase = "training"

    @property
    def begun(self) -> int:
        """How many saves have begun."""
        return self._numbers[1]

    @property
    def step(self) -> int:
        """The last step whose save was done."""
        return self._numbers[2]

    @property
    def full(self) -> bool:
        """Whether a save failed because the disk was full."""
        return bool(self._numbers[3])

    def disk_is_full(self) -> None:
        """A save has failed for this reason."""
        self._numbers[3] = 1


def train(kind: Kind, way: str, folder: Path, board: Board, rank: int, store: Path) -> None:
    """One rank of a training, from the newest file in the folder, or from the beginning, to its end.

    way: "checkpoint", by `torchcourse.checkpoint`; "dcp", by torch.distributed.checkpoint into a folder for each save,
        for the sharded one; or "in place", by torch.save to the final name, for comparison.
    store: a file by which the ranks find each other; new for each start.
    """
    torch.set_num_threads(1)
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(rank)
    images, labels = pictures(kind)
    torch.manual_seed(100)  # the same weights on all ranks, whatever they have drawn
    net = kind.network()
    torch.manual_seed(rank)  # and dropout of its own on each
    model = net
    if kind.ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=kind.ranks)
        model = fully_shard(net, mesh=init_device_mesh("cpu", (2,))) if kind.sharded else DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, kind.steps)
    parts, rng = {"model": net, "optimizer": optimizer, "scheduler": scheduler}, checkpoint.RngState("cpu")
    if rank == 0:
        watch(board)
        board.phase = "restoring"
    step = load_shards(folder, parts, rng, rank) if way == "dcp" else load(way, folder, parts, rng, rank)
    if kind.ranks > 1:
        dist.barrier()  # before the first save, which deletes the file that another rank may still be reading
    if rank == 0:
        board.phase = "training"

    batches = kind.images // kind.batch
    while step < kind.steps:
        epoch, place = divmod(step, batches)
        order = torch.randperm(kind.images, generator=torch.Generator().manual_seed(epoch))
        mine = order.split(kind.batch)[place].chunk(kind.ranks)[rank]
        loss = F.cross_entropy(model(shifted(images[mine])), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if step % kind.interval == 0 or step == kind.steps:
            if rank == 0:
                board.begin()
            try:
                if way == "dcp":
                    save_shards(folder, step, parts, rng, rank)
                else:
                    save(way, folder, step, loss.item(), parts, rng, rank)
            except (OSError, RuntimeError, CheckpointException):
                board.disk_is_full()
                raise
            if rank == 0:
                board.saved(step)
    if rank == 0:
        board.phase = "ending"
    if kind.ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def save(way: str, folder: Path, step: int, loss: float, parts: dict[str, Any], rng: Any, rank: int) -> None:
    """Rank 0 saves, with the random states of all ranks."""
    states = [rng.state_dict()]
    if dist.is_initialized():
        states *= dist.get_world_size()
        dist.all_gather_object(states, rng.state_dict())
    if rank == 0 and way == "checkpoint":
        checkpoint.Keeper(folder, last=2, best=1, mode="min").save(step, loss, **parts, rng=states)
    elif rank == 0:
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save(state | {"rng": states, "step": step}, folder / "latest.pt")
    if dist.is_initialized():
        dist.barrier()  # no rank continues before the file is there


def load(way: str, folder: Path, parts: dict[str, Any], rng: Any, rank: int) -> int:
    """Every rank loads the newest file; returns its step, 0 if the training begins."""
    try:
        if way == "checkpoint" and not checkpoint.Keeper(folder).newest:
            return 0
        state = checkpoint.restore(folder if way == "checkpoint" else folder / "latest.pt", **parts)
    except CourseError:
        if way == "checkpoint":
            raise
        return 0  # no file, or half a file: all is lost
    rng.load_state_dict(state["rng"][rank])
    return state["step"]


def save_shards(folder: Path, step: int, parts: dict[str, Any], rng: Any, rank: int, last: int = 2) -> None:
    """All ranks save into one new folder. It is whole when it has `.metadata`, which DCP writes after all else."""
    if rank == 0:
        for left in sorted(set(folder.glob("step_*")) - set(whole_folders(folder))):
            shutil.rmtree(left)
    dist.barrier()  # no rank writes before the leftovers are gone
    model, optimizer = get_state_dict(parts["model"], parts["optimizer"])
    state = {"model": model, "optimizer": optimizer, "scheduler": parts["scheduler"].state_dict()}
    dcp.save(state | {f"rng_{rank}": rng.state_dict()}, checkpoint_id=folder / f"step_{step:08d}")
    if rank == 0:
        for old in whole_folders(folder)[:-last]:
            (old / ".metadata").unlink()  # first: half a folder must not look whole
            shutil.rmtree(old)
    dist.barrier()


def load_shards(folder: Path, parts: dict[str, Any], rng: Any, rank: int) -> int:
    """All ranks load their parts of the newest whole folder; returns its step, 0 if the training begins."""
    folders = whole_folders(folder)
    if not folders:
        return 0
    model, optimizer = get_state_dict(parts["model"], parts["optimizer"])
    state = {"model": model, "optimizer": optimizer, "scheduler": parts["scheduler"].state_dict()}
    state[f"rng_{rank}"] = rng.state_dict()
    dcp.load(state, checkpoint_id=folders[-1])
    set_state_dict(parts["model"], parts["optimizer"], model_state_dict=model, optim_state_dict=optimizer)
    parts["scheduler"].load_state_dict(state["scheduler"])
    rng.load_state_dict(state[f"rng_{rank}"])
    return int(folders[-1].name[5:])


def whole_folders(folder: Path) -> list[Path]:
    """The folders of shards that are whole, by step."""
    return sorted(mark.parent for mark in folder.glob("step_*/.metadata"))


def watch(board: Board) -> None:
    """Have the calls that a save is made of tell the board."""

    def tell(module: Any, name: str, phases: dict[str, str], after: str | None = None) -> None:
        real = getattr(module, name)

        def told(*arguments: Any, **options: Any) -> Any:
            board.phase = phases.get(board.phase, board.phase)
            result = real(*arguments, **options)
            if after:
                board.phase = after
            return result

        setattr(module, name, told)

    tell(os, "fsync", {"writing": "flushing"})
    tell(torch, "load", {"flushing": "reading back"})
    tell(os, "replace", {"reading back": "renaming"}, after="tidying")
    tell(Path, "rename", {"flushing": "renaming"}, after="tidying")  # what DCP calls


def pictures(kind: Kind) -> tuple[Tensor, Tensor]:
    """uint8 images [N, 1, 28, 28] and labels: a bar for each digit, in noise."""
    rng = torch.Generator().manual_seed(7)
    labels = torch.randint(10, (kind.images,), generator=rng)
    images = torch.randint(0, 128, (kind.images, 1, 28, 28), generator=rng, dtype=torch.uint8)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[:, :, 2 * label + 4] = 255
    return images, labels


def shifted(images: Tensor) -> Tensor:
    """Images as float, shifted and a little brighter or darker: draws from NumPy and from Python."""
    down, right = np.random.randint(-2, 3, 2).tolist()
    return torch.roll(images, (down, right), (2, 3)).float() / 255 * random.uniform(0.9, 1.1)
