"""One rank saves a checkpoint, atomically; all ranks resume from it."""

import io
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

from labcheck import ranks
from labcheck.authoring import AnswerRaised, Exercise, Inputs, same, wrong_if
from labcheck.probes import network, weights

NAME, OLD = "training.pt", b"the checkpoint from before"


def save_from_main(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    if dist.get_rank() == 0:
        temporary = path.with_suffix(".tmp")
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, temporary)
        os.replace(temporary, path)
    dist.barrier()


def resume(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]


solution = (save_from_main, resume)


def record(path: Path) -> tuple[list[bool], list[dict]]:
    """From now on, note what this rank writes (True: it renames a file to `path`), and the options of its loads."""
    writes, loads, save, load = [], [], torch.save, torch.load

    def hook(event: str, args: tuple) -> None:
        if event == "os.rename":
            old, new = (Path(os.fsdecode(file)).resolve() for file in args[:2])
            writes.append(new == path and new.exists() and old.is_relative_to(path.parent))

    def slow_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        writes.extend([] if isinstance(f, io.BytesIO) else [False])
        time.sleep(0.15)  # a rank that does not wait for the file comes too early
        save(obj, f, *args, **kwargs)

    def noted_load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(f, io.BytesIO):  # which PyTorch loads from when it receives objects
            given, safe = map_location is not None, kwargs.get("weights_only") is not False
            loads.append({"map_location": "given" if given else "missing", "weights_only": "on" if safe else "off"})
        return load(f, map_location, *args, **kwargs)

    torch.save, torch.load = slow_save, noted_load
    sys.addaudithook(hook)
    return writes, loads


def step(model: nn.Module, optimizer: torch.optim.Optimizer, gradients: list[Tensor]) -> Tensor:
    """The weights after a step with these gradients."""
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.clone()
    optimizer.step()
    return weights(model)


def on_rank(answer: tuple, starts: list[nn.Module], gradients: list[Tensor], epoch: int) -> dict:
    """Save after a step of the first model, then do what another session would: resume with the second one."""
    (save, restore), (model, fresh), early = answer, starts, Path("early").resolve()
    path = early.parent / "checkpoints" / NAME  # not in the current folder, where a relative name would do
    optimizer, another = (torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in starts)
    step(model, optimizer, gradients)
    if dist.get_rank() == 0:
        path.parent.mkdir()
        path.write_bytes(OLD)
    dist.barrier()
    writes, loads = record(path)
    save(path, DDP(model), optimizer, epoch)
    seen = {"waited": path.exists() and path.read_bytes() != OLD, "writes": [*writes]}
    if not seen["waited"]:
        early.touch()  # no collective tells the other rank: one that it alone makes in `save` would meet it
    seen["files"] = {
        file.name: "a folder" if file.is_dir() else "old" if file.read_bytes() == OLD else "new"
        for file in sorted(path.parent.iterdir())
    }
    if early.exists() or seen["files"].get(NAME) != "new":
        return seen
    try:
        seen["epoch"] = restore(path, fresh, another, torch.device("cpu"))
    except RuntimeError as error:
        if "loading state_dict" not in str(error):
            raise
        return {**seen, "names": " ".join(str(error).split())}
    return {**seen, "loads": loads, "weights": weights(fresh), "next weights": step(fresh, another, gradients)}


def judge(answer: Any, rng: Inputs) -> None:
    starts, epoch, error, seen = [network(rng, 6, 3) for _ in range(2)], rng.size(3, 60), None, []
    gradients = [rng.randn(*parameter.shape) for parameter in starts[0].parameters()]
    look = "what is under `if dist.get_rank() == 0:`, or after a `return`: only one rank reaches a barrier there"
    try:
        seen = ranks.observe(answer, on_rank, starts, gradients, epoch, functions=2, look=look)
    except AnswerRaised as raised:
        error = raised
    wrong_if(
        "Weights only load failed" in str(error) or "Unsupported global" in str(error),
        "whole_objects",
        "The file holds a whole model or optimizer: `torch.load` reads only what cannot run code, such as tensors.",
        look="`model.module.state_dict()`, `optimizer.state_dict()`",
    )
    wrong_if(
        "' -> '" in str(error) or any(each["writes"] for each in seen[1:]),  # it was renamed already
        "rank_1_writes",
        "Rank 1 writes or renames a file: only rank 0 should, or the ranks overwrite each other's file.",
        look="`if dist.get_rank() == 0:`",
    )
    if error:
        raise error
    judge_file(seen)
    optimizer = torch.optim.SGD(starts[0].parameters(), lr=0.1, momentum=0.9)
    expected, following = (step(starts[0], optimizer, gradients) for _ in range(2))
    for rank, each in enumerate(seen):
        same(each["epoch"], epoch, f"What `resume` returns on rank {rank}")
        look = "`model.load_state_dict(…)` on each rank; with `strict=False`, names that don't match are skipped"
        same(each["weights"], expected, f"The vector of all weights after `resume` on rank {rank}", look=look)
        look = "the momentum: `optimizer.state_dict()` in the file, `optimizer.load_state_dict` on every rank"
        same(each["next weights"], following, f"The vector of all weights one step later on rank {rank}", look=look)


def judge_file(seen: list[dict]) -> None:
    look = "`os.replace(temporary, path)`, with the folder in `path`: the new file takes the old one's place, alone"
    same(seen[0]["files"], {NAME: "new"}, "What is in the folder after `save_from_main`", look=look)
    wrong_if(
        True not in seen[0]["writes"],
        "not_atomic",
        "The new file does not take the place of the old one all at once: a process that dies in the middle leaves "
        "half a file, or none.",
        look='`path.with_suffix(".tmp")`, on the same disk as it is in the same folder; then `os.replace`',
    )
    wrong_if(
        not all(each["waited"] for each in seen),
        "no_wait",
        "A rank did not wait: when `save_from_main` returned there, the new file was not there yet.",
        look="`dist.barrier()` on every rank, after rank 0 has written",
    )
    unfit = [each["names"] for each in seen if "names" in each]
    wrong_if(
        unfit,
        "names",
        "`load_state_dict` doesn't find the names of a plain model. From the DDP wrapper, each begins with `module.`.",
        look='`model.module.state_dict()`; to load, only the part of the file with the weights: `state["model"]`',
        yours="".join(unfit[:1]),
    )
    look = "without `weights_only`, a file may run code; without `map_location`, all ranks fill rank 0's GPU"
    for load in seen[0]["loads"] + seen[1]["loads"]:
        same(load, {"map_location": "given", "weights_only": "on"}, "The options of `torch.load`", look=look)


exercise = Exercise(
    title="Save from one rank, resume on all",
    minutes=15,
    difficulty=4,
    points=4,
    takeaway="One rank writes, under another name first; all ranks wait, and all read: no reader sees half a file.",
    hints=(
        "Rank 0 writes under a second name beside `path`: `torch.save(state, temporary)`, then "
        "`os.replace(temporary, path)`. After that, not in the `if`, all ranks meet: `dist.barrier()`.",
        '`state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}`; in '
        "`resume`, `torch.load(path, map_location=device)`, then `load_state_dict` twice.",
    ),
    judge=judge,
    seconds=ranks.SECONDS,
    lends=solution,
)
