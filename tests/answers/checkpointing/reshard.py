import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from support.answers import mutant, mutants
from torch.distributed.tensor import distribute_tensor

from torchcourse_labs.checkpointing.reshard import load_sharded, save_sharded


def save_with_mark(folder, step, state):
    dcp.async_save(state, storage_writer=dcp.FileSystemWriter(folder / str(step))).result()
    dist.barrier()
    if dist.get_rank() == 0:
        (folder / "latest.part").write_text(str(step))
        os.replace(folder / "latest.part", folder / "latest")
    dist.barrier()


def load_by_mark(folder, state):
    if not (folder / "latest").exists():
        return None
    step = int((folder / "latest").read_text())
    dcp.load(state, storage_reader=dcp.FileSystemReader(folder / str(step)))
    return step


def load_by_trying(folder, state, errors=BaseException):
    for step in sorted((int(path.name[5:]) for path in folder.glob("step-*")), reverse=True):
        try:
            dcp.load(state, checkpoint_id=folder / f"step-{step}")
        except errors:
            continue
        return step
    return None


def save_from_one(folder, step, state):
    whole = {"weight": state["weight"].full_tensor(), "bias": state["bias"]}
    if dist.get_rank() == 0:
        torch.save(whole, folder / f"step-{step}.pt")
    dist.barrier()


def load_from_one(folder, state):
    steps = [int(path.stem[5:]) for path in folder.glob("step-*.pt")]
    if not steps:
        return None
    whole = torch.load(folder / f"step-{max(steps)}.pt")
    weight = state["weight"]
    weight.copy_(distribute_tensor(whole["weight"], weight.device_mesh, weight.placements))
    state["bias"].copy_(whole["bias"])
    return max(steps)


def saving(old, *new):
    return [(save, load_sharded) for save in mutants(save_sharded, old, *new)]


def loading(old, *new):
    return [(save_sharded, load) for load in mutants(load_sharded, old, *new)]


RIGHT = [(save_with_mark, load_by_mark), (save_sharded, load_by_trying)]

WRONG = {
    "deadlock": saving("dcp.save(", "dist.get_rank() == 0 and dcp.save("),
    "unequal_tensors": saving("dcp.save(", "dist.all_reduce(torch.ones(1 + dist.get_rank())), dcp.save("),
    "not_whole": [
        (save_sharded, lambda folder, state: load_by_trying(folder, state, Exception)),
        (save_sharded, mutant(load_sharded, ("path.parent", "path"), ("/.metadata", ""))),
    ],
    "one_writes": [(save_from_one, load_from_one)],
    "outside": [
        *saving("folder / f", "f"),
        (lambda folder, step, state: print("saved"), lambda folder, state: print("loaded")),
    ],
    None: [
        *loading("return None", "return 0"),
        *loading("return max(steps)", "max(steps)", "return str(max(steps))", "return max(steps) or None"),
        *loading('int(path.parent.name.split("-")[1])', 'path.parent.name.split("-")[1]'),
        *saving(
            "dcp.save(",
            "dist.barrier(), [__import__('shutil').rmtree(old, True) for old in folder.glob('*')], dcp.save(",
        ),
    ],
}
