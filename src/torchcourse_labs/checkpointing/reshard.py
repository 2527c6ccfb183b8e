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
from labcheck.authoring import AnswerRaised, Exercise, Inputs, near, observe, same, wrong_if

STEPS = 0, 90, 100, 110  # the last one is never whole: a crash comes in the middle
Pair = tuple[Tensor, Tensor]  # weight and bias


def save_sharded(folder: Path, step: int, state: dict[str, Tensor]) -> None:
    import torch.distributed.checkpoint as dcp  # takes a second, which the other exercises need not wait for

    dcp.save(state, checkpoint_id=folder / f"step-{step}")


def load_sharded(folder: Path, state: dict[str, Tensor]) -> int | None:
    import torch.distributed.checkpoint as dcp

    whole = [path.parent for path in folder.glob("step-*/.metadata")]
    if not whole:
        return None
    newest = max(whole, key=lambda path: int(path.name.split("-")[1]))
    dcp.load(state, checkpoint_id=newest)
    return int(newest.name.split("-")[1])


solution = (save_sharded, load_sharded)


def sharded(weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """A state: the rows of one tensor are spread over the ranks, the other one is on all of them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {"weight": distribute_tensor(weight, mesh, [Shard(0)]), "bias": bias.clone()}


def gently(function: Callable, *args: Any) -> Any:
    """What the function returns. An error that is no Exception would end the process, so it becomes one."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        return function(*args)
    except CheckpointException as error:
        causes = {type(cause[0]).__name__ for cause in error.failures.values()}
        raise RuntimeError(f"CheckpointException: {', '.join(sorted(causes))}") from None


def saving(answer: tuple, tensors: list[Pair]) -> list:
    """On a rank: save three steps. Returns what `load_sharded` found before the first, and after it."""
    Path("checkpoints").mkdir(exist_ok=True)
    dist.barrier()
    folder, (save, load) = Path("checkpoints").absolute(), answer
    found = [gently(load, folder, sharded(*tensors[3]))]
    gently(save, folder, STEPS[0], sharded(*tensors[0]))
    found.append(gently(load, folder, sharded(*tensors[3])))
    for step, pair in zip(STEPS[1:3], tensors[1:3], strict=True):
        gently(save, folder, step, sharded(*pair))
    return found


def crashing(answer: tuple, tensors: list[Pair]) -> None:
    """On a rank: save one more step, and end in the middle: the first rank has written, the others have not."""
    import torch.distributed.checkpoint as dcp

    write = dcp.FileSystemWriter.write_data

    def die(*args: Any, **kwargs: Any) -> None:
        if dist.get_rank() == 0:
            write(*args, **kwargs).wait()
        os.kill(os.getpid(), signal.SIGKILL)

    dcp.FileSystemWriter.write_data = die
    gently(answer[0], Path("checkpoints").absolute(), STEPS[3], sharded(*tensors[3]))


def loading(answer: tuple, tensors: list[Pair]) -> dict[str, Any]:
    """On a rank: load into the tensors of a state."""
    state = sharded(*(torch.zeros_like(each) for each in tensors[0]))
    weight, bias = state.values()
    step = gently(answer[1], Path("checkpoints").absolute(), state)
    return {"step": step, "weight": weight.full_tensor(), "bias": bias}


def save_and_load(answer: Any, tensors: list[Pair]) -> dict[str, Any]:
    """A probe: saved by two, interrupted while saving, loaded by three. wrote: how many files each of the two wrote"""
    with tempfile.TemporaryDirectory(prefix="torchcourse-") as folder:
        options = {"folder": folder, "timeout": 40.0}
        saved = ranks.start(answer, 2, saving, (tensors,), world_size=2, **options)
        if saved.ok:
            ranks.start(answer, 2, crashing, (tensors,), world_size=2, **options)
            loaded = ranks.start(answer, 2, loading, (tensors,), world_size=3, **options)
        for outcome in (saved, loaded) if saved.ok else (saved,):
            lost = ranks.lost(outcome)
            if lost:
                return {"lost": lost}
            ranks.judge(outcome)
    return {"found": saved.values, "wrote": [len(rank.wrote) for rank in saved], "loaded": loaded.values}


def judge(answer: Any, rng: Inputs) -> None:
    tensors = [(rng.randn(7, 4), rng.randn(3)) for _ in STEPS]
    try:
        seen = observe(answer, save_and_load, tensors)
    except AnswerRaised as raised:
        wrong_if(
            "CheckpointException" in str(raised),
            "not_whole",
            "Loading raises a CheckpointException. It is a BaseException, so `except Exception` does not catch it, and "
            "a folder that is not whole has to be passed over.",
            look="take a folder only if `.metadata` is in it",
        )
        wrong_if(
            any(word in str(raised) for word in ("No such file", "must match the size", "different meshes")),
            "for_each_rank",
            f"Three processes cannot load what two have saved ({raised}): each of your files belongs to a rank.",
            look="`dcp.save` and `dcp.load` divide the rows anew",
        )
        raise
    ranks.judge_lost(seen.get("lost", {}), "all ranks call `dcp.save` and `dcp.load`")
    what = "What `load_sharded` returns, on each rank, before the first save and after saving step 0,"
    same(seen["found"], [[None, 0], [None, 0]], what, look="None only says that there is none; 0 is a step, too")
    wrong_if(
        0 in seen["wrote"],
        "one_writes",
        "Not every rank writes: each should save the rows that it has, so that none has to hold the whole tensor.",
        look="`dcp.save(state, …)` on every rank, with the DTensors as they are",
    )
    for rank, one in zip(range(3), seen["loaded"], strict=True):
        judge_loaded(one, tensors, f"on rank {rank} of 3")


def judge_loaded(one: dict[str, Any], tensors: list[Pair], where: str) -> None:
    now = (one["weight"], one["bias"])
    loaded = [step for step, pair in zip(STEPS, tensors, strict=True) if near(now, pair)]
    nothing = near(now, [torch.zeros_like(each) for each in tensors[0]])
    wrong_if(
        nothing and one["step"] is None,
        "gone",
        "After a crash in step 110, `load_sharded` returns None: the checkpoint of step 100 is gone, or passed over.",
        look="keep older folders until a newer one is whole; load the newest of those that are whole",
    )
    wrong_if(
        nothing,
        "elsewhere",
        "The tensors that came in are as they were: the loaded ones are elsewhere, and the caller does not have them.",
        look="`dcp.load(state, …)` with the dict that came in",
    )
    wrong_if(
        loaded in ([0], [90]),
        "not_the_newest",
        f"You loaded step {''.join(map(str, loaded))}, and 100 is the newest whole one.",
        look='compare the numbers of the steps: as text, "step-100" comes before "step-90"',
    )
    wrong_if(
        not loaded,
        "overwritten",
        "What you load is the state of no step that was saved. The crash in step 110 must not touch the checkpoint of "
        "step 100, and all tensors have to come from there.",
        look="a folder for each step",
    )
    same(loaded, [100], f"The list of loaded steps {where}")
    same(one["step"], 100, f"What `load_sharded` returns {where}", look="its `return`: the loaded step, an int")


exercise = Exercise(
    title="Save with two processes, load with any number",
    minutes=15,
    difficulty=4,
    points=3,
    takeaway="DCP stores what belongs to the whole tensor, not to a rank, so another number of ranks can read it. A "
    "folder for each step, and a mark when it is whole, are up to you.",
    hints=(
        "Saving is one line, with a folder whose name has the step in it. Loading: find the folders that are whole, "
        "take the newest by its number, load, return the number.",
        '`folder.glob("step-*/.metadata")` finds the whole ones; `path.parent.name` is the name of the folder. Compare '
        'steps as numbers: as text, "step-100" comes before "step-90".',
        '`dcp.save(state, checkpoint_id=folder / f"step-{step}")`; later `dcp.load(state, checkpoint_id=newest)` with '
        "the `state` that came in, not with a copy.",
    ),
    judge=judge,
    seconds=120.0,  # the first check of a session starts the server from which processes are forked
)
