"""Save a model that is spread over two processes, crash, and load the newest whole checkpoint with three."""

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labcheck import ranks
from labcheck.authoring import Exercise, Inputs, near, observe, raises_like, same, wrong_if

STEPS = 0, 90, 100, 110  # the last one is never whole: a crash comes in the middle


def save_sharded(folder: Path, step: int, state: dict[str, Tensor]) -> None:
    import torch.distributed.checkpoint as dcp  # takes a second, which the other exercises need not wait for

    dcp.save(state, checkpoint_id=folder / f"step-{step}")


def load_sharded(folder: Path, state: dict[str, Tensor]) -> int | None:
    import torch.distributed.checkpoint as dcp

    steps = [int(path.parent.name.split("-")[1]) for path in folder.glob("step-*/.metadata")]
    if not steps:
        return None
    dcp.load(state, checkpoint_id=folder / f"step-{max(steps)}")
    return max(steps)


solution = (save_sharded, load_sharded)


def sharded(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state: the rows of the weight are spread over the ranks, the bias is on all of them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {"weight": distribute_tensor(tensors["weight"], mesh, [Shard(0)]), "bias": tensors["bias"].clone()}


def gently(function: Callable, *args: Any) -> Any:
    """What the function returns for the folder. Its error that is no Exception would end the process: make it one."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        return function(Path("checkpoints").absolute(), *args)
    except CheckpointException as error:
        raise RuntimeError(f"CheckpointException: {error}") from None


def saving(answer: tuple, tensors: list[dict]) -> list:
    """On a rank: save three steps. Returns what `load_sharded` returns before the first, and after it."""
    Path("checkpoints").mkdir(exist_ok=True)
    dist.barrier()
    found = []
    for step, state in zip(STEPS[:3], tensors, strict=False):
        if len(found) < 2:
            found.append(gently(answer[1], sharded(tensors[3])))
        gently(answer[0], step, sharded(state))
    return found


def crashing(answer: tuple, tensors: list[dict]) -> None:
    """On a rank: save one more step, and end in the middle: the first rank has written, the others have not."""
    import torch.distributed.checkpoint as dcp

    write = dcp.FileSystemWriter.write_data

    def die(*args: Any, **kwargs: Any) -> None:
        if dist.get_rank() == 0:
            write(*args, **kwargs).wait()
        os.kill(os.getpid(), signal.SIGKILL)

    dcp.FileSystemWriter.write_data = die
    gently(answer[0], STEPS[3], sharded(tensors[3]))


def loading(answer: tuple, tensors: list[dict]) -> dict[str, Any]:
    """On a rank: load into the tensors of a state."""
    state = sharded({name: torch.zeros_like(value) for name, value in tensors[0].items()})
    weight, bias = state.values()
    return {"step": gently(answer[1], state), "state": {"weight": weight.full_tensor(), "bias": bias}}


def save_and_load(answer: Any, tensors: list[dict]) -> dict[str, Any]:
    """A probe: saved by two, interrupted while saving, loaded by three. wrote: how many files each of the two wrote"""
    with tempfile.TemporaryDirectory(prefix="torchcourse-") as folder:
        options = {"folder": folder, "timeout": 40.0}
        saved, _, loaded = (
            ranks.start(answer, 2, harness, (tensors,), world_size=world_size, **options)
            for harness, world_size in ((saving, 2), (crashing, 2), (loading, 3))
        )
        kept = any(Path(folder, "checkpoints").glob("*"))
    for outcome in (saved, loaded):
        if lost := ranks.lost(outcome):
            return {"lost": lost}
        ranks.judge(outcome)
    return {"found": saved.values, "wrote": [len(rank.wrote) for rank in saved], "loaded": loaded.values, "kept": kept}


def judge(answer: Any, rng: Inputs) -> None:
    tensors = [{"weight": rng.randn(7, 4), "bias": rng.randn(3)} for _ in STEPS]
    with raises_like(
        "not_whole",
        "Loading raises a CheckpointException. It is a BaseException, so `except Exception` does not catch it, and "
        "a folder that is not whole has to be passed over.",
        "CheckpointException",
        look="take a folder only if `.metadata` is in it; all ranks save with one `checkpoint_id`, and load with it",
    ):
        seen = observe(answer, save_and_load, tensors)
    ranks.judge_lost(seen.get("lost", {}), "all ranks call `dcp.save` and `dcp.load`")
    look = "`checkpoint_id`: a folder for each step, inside `folder`"
    wrong_if(not seen["kept"], "outside", "`save_sharded` writes nothing into `folder`.", look=look)
    what = "What `load_sharded` returns, on each rank, before the first save and after saving step 0,"
    same(seen["found"], [[None, 0], [None, 0]], what, look="is there a `return`? a dot in `.metadata`? 0 is a step")
    look = "`dcp.save(state, …)` on every rank, with the DTensors as they are: none has to hold a whole tensor"
    wrong_if(0 in seen["wrote"], "one_writes", "Not every rank writes: each should save its rows.", look=look)
    crashed = "after a crash in the middle of saving step 110,"
    for rank, one in zip(range(3), seen["loaded"], strict=True):
        look = 'the newest whole one, by number: as text, "step-100" comes before "step-90". Older ones have to stay'
        same(one["step"], 100, f"What `load_sharded` returns on rank {rank} of 3, {crashed}", look=look)
        loaded = [step for step, state in zip(STEPS, tensors, strict=True) if near(one["state"], state)]
        look = "`dcp.load` of the `state` that came in, not of a copy; a folder for each step, so that older ones stay"
        same(loaded, [100], f"The list of steps whose tensors are in `state`, {crashed}", look=look)


exercise = Exercise(
    title="Save with two processes, load with any number",
    minutes=15,
    difficulty=4,
    points=3,
    takeaway="DCP stores what belongs to the whole tensor, not to a rank, so another number of ranks can read it. A "
    "folder for each step, and a mark when it is whole, are up to you.",
    hints=(
        "Saving is one line, with a folder whose name has the step in it. Loading: find the folders that are whole "
        '(`folder.glob("step-*/.metadata")`), take the newest by its number, load, return the number.',
        '`dcp.save(state, checkpoint_id=folder / f"step-{step}")`; later `dcp.load(state, checkpoint_id=newest)` with '
        "the `state` that came in, not with a copy.",
    ),
    judge=judge,
    seconds=ranks.SECONDS,
)
