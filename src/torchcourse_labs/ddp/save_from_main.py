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

NAME = "training.pt"


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


def record() -> tuple[list, list]:
    """From now on, note what this rank does to files, and of each `torch.load`: has it a map_location, is it safe?"""
    events, loads, save, load = [], [], torch.save, torch.load

    def hook(event: str, args: tuple) -> None:
        if event in ("os.rename", "os.remove"):
            names = [os.path.relpath(os.fsdecode(path)) for path in args[: 2 if event == "os.rename" else 1]]
            if not names[-1].startswith(".."):
                events.append((event, *names))

    def slow_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(f, io.BytesIO):
            events.append(("torch.save",))
        time.sleep(0.15)  # a rank that does not wait for the file comes too early
        save(obj, f, *args, **kwargs)

    def watching_load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if f"{os.sep}torch{os.sep}" not in sys._getframe(1).f_code.co_filename:  # it calls it to receive objects
            loads.append((map_location is not None, kwargs.get("weights_only") is not False))
        return load(f, map_location, *args, **kwargs)

    torch.save, torch.load = slow_save, watching_load
    sys.addaudithook(hook)
    return events, loads


def trained(model: nn.Module, gradients: list[Tensor]) -> torch.optim.Optimizer:
    """An optimizer of the model, after a step with these gradients, if there are any."""
    for parameter, gradient in zip(model.parameters(), gradients, strict=False):
        parameter.grad = gradient.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.step()
    return optimizer


def on_rank(answer: tuple, starts: list[nn.Module], gradients: list[Tensor], epoch: int) -> dict:
    """Save after a step of the first model, then do what another session would: resume with the second one."""
    save, restore = answer
    path, optimizer = Path.cwd() / NAME, trained(starts[0], gradients)
    if dist.get_rank() == 0:
        path.write_bytes(b"the checkpoint from before")
    dist.barrier()

    def is_new() -> bool:
        return path.exists() and path.read_bytes() != b"the checkpoint from before"

    events, loads = record()
    save(path, DDP(starts[0]), optimizer, epoch)
    seen = {"waited": is_new(), "events": [*events]}
    dist.all_reduce(torch.zeros(1))  # not a barrier: one that this rank alone makes in `save` would meet it
    seen |= {"new": is_new(), "files": sorted(file.name for file in path.parent.iterdir())}
    if not seen["new"]:
        return seen
    fresh = trained(starts[1], [])
    seen["epoch"] = restore(path, starts[1], fresh, torch.device("cpu"))
    momentum = [state["momentum_buffer"].flatten() for state in fresh.state.values()]
    return {**seen, "loads": loads, "weights": weights(starts[1]), "momentum": torch.cat([torch.zeros(0), *momentum])}


def judge(answer: Any, rng: Inputs) -> None:
    starts, epoch = [network(rng, 6, 3) for _ in range(2)], rng.size(3, 60)
    gradients = [rng.randn(*parameter.shape) for parameter in starts[0].parameters()]
    look = "what is under `if dist.get_rank() == 0:`: only one rank reaches a barrier in there"
    try:
        seen = ranks.observe(answer, on_rank, starts, gradients, epoch, functions=2, look=look)
    except AnswerRaised as raised:
        judge_error(str(raised))
        raise
    judge_file(seen)
    trained(starts[0], gradients)
    expected = torch.cat([gradient.flatten() for gradient in gradients])
    for rank, each in enumerate(seen):
        same(each["epoch"], epoch, f"What `resume` returns on rank {rank}")
        look = "`model.load_state_dict(…)` on each rank; do the names match? With `strict=False`, others are skipped"
        same(each["weights"], weights(starts[0]), f"The vector of all weights after `resume` on rank {rank}", look=look)
        look = "`optimizer.state_dict()` in the file, `optimizer.load_state_dict` in resume, on every rank"
        same(
            each["momentum"], expected, f"The momentum that the optimizer has after `resume` on rank {rank}", look=look
        )


def judge_error(error: str) -> None:
    wrong_if(
        "Weights only load failed" in error or "Unsupported global" in error,
        "whole_objects",
        "The file holds a whole model or optimizer: `torch.load` reads only what cannot run code, such as tensors.",
        look="`model.module.state_dict()`, `optimizer.state_dict()`",
    )
    wrong_if(
        "loading state_dict" in error,
        "names",
        "The names in the file do not fit a plain model: saved from the wrapper, every name starts with `module.`.",
        look="`model.module.state_dict()`",
    )
    only_rank_0("' -> '" in error)  # a rank renames what the other one has renamed already


def only_rank_0(condition: object) -> None:
    wrong_if(
        condition,
        "rank_1_writes",
        "Rank 1 writes or renames a file: only rank 0 should. Ranks that write at the same time overwrite each other's "
        "file.",
        look="`if dist.get_rank() == 0:`",
    )


def judge_file(seen: list[dict]) -> None:
    events = seen[0]["events"]
    only_rank_0(any(event[0] != "os.remove" for event in seen[1]["events"]))
    wrong_if(
        not seen[0]["new"],
        "no_new_file",
        "After `save_from_main` there is no new file at `path`.",
        look=f"`os.replace(temporary, path)`; the folder has {seen[0]['files']}",
    )
    beside = any(event[0] == "os.rename" and event[2] == NAME and event[1][:2] != ".." for event in events)
    wrong_if(
        not beside or ("os.remove", NAME) in events,
        "not_atomic",
        "The new file does not take the place of the old one all at once. A process that dies in the middle of writing "
        "or copying leaves half a file, or none.",
        look='another name beside it first, in the same folder and so on the same disk: `path.with_suffix(".tmp")`; '
        "then `os.replace(temporary, path)`",
    )
    wrong_if(
        not all(each["waited"] for each in seen),
        "no_wait",
        "A rank did not wait: when `save_from_main` returned there, the new file was not there yet.",
        look="`dist.barrier()` on every rank, after rank 0 has written",
    )
    same(seen[0]["files"], [NAME], "The list of files in the folder", look="`os.replace` renames: nothing stays behind")
    loads = [load for each in seen for load in each["loads"]]
    wrong_if(
        not all(safe for _, safe in loads),
        "unsafe_load",
        "With `weights_only` switched off, loading the file may run any code that is in it.",
        look="`weights_only=True`, the default: your file needs nothing but tensors, numbers and containers",
    )
    wrong_if(
        not all(mapped for mapped, _ in loads),
        "no_map_location",
        "Without `map_location`, tensors come back on the device from which they were saved: on a machine with several "
        "GPUs, every rank would fill the GPU of rank 0.",
        look="`torch.load(path, map_location=device)`",
    )


exercise = Exercise(
    title="Save from one rank, resume on all",
    minutes=15,
    difficulty=4,
    points=4,
    takeaway="One rank writes, under another name first; all ranks wait, and all ranks read. That way, no reader "
    "ever sees half a file.",
    hints=(
        "To save, rank 0 writes under a second name beside `path` and renames the file; then all ranks meet, so that "
        "none reads too early. The file needs everything that changes from step to step, and the position in the "
        "training.",
        "`torch.save(state, temporary)` and `os.replace(temporary, path)` under `if dist.get_rank() == 0:`, and "
        "`dist.barrier()` after it, not in it. Inside the DDP wrapper the model is `model.module`.",
        '`state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}`; in '
        "resume `state = torch.load(path, map_location=device, weights_only=True)`, `load_state_dict` twice, and "
        '`return state["epoch"]`.',
    ),
    judge=judge,
    seconds=120.0,  # the first check of a session starts a server, which makes the processes
    lends=solution,
)
