"""A model that is sharded before it has memory, so that it is never whole on any rank."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from labcheck import ranks
from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, same, wrong_if
from torchcourse_labs.sharded_models._shared import Living


def solution(build: Callable, mesh: DeviceMesh, read: Callable) -> nn.Module:
    with torch.device("meta"):
        model = build()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for name, p in model.named_parameters():
            rows = math.ceil(len(p) / mesh.size())
            first = min(mesh.get_local_rank() * rows, len(p))
            last = min(first + rows, len(p))
            p.to_local().copy_(read(name, first, last))
        for name, buffer in model.named_buffers():
            buffer.copy_(read(name, 0, len(buffer)))
    return model


class Net(nn.Module):
    """Numbers [B, 6] -> logits [B, 5]. Rows that two ranks cannot share equally, and a buffer."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth))
        self.head = nn.Linear(width, 5)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) * self.scale
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def on_rank(answer: Any, width: int, depth: int, checkpoint: dict[str, Tensor], x: Tensor) -> dict:
    """What the answer reads, what it holds meanwhile, and the model that comes out."""
    reads: list[tuple[str, int, int]] = []
    held = [0]  # bytes that were there at each call of read

    def read(name: str, first: int, last: int) -> Tensor:
        held.append(memory.bytes())
        reads.append((name, int(first), int(last)))
        return checkpoint[name][first:last].clone()

    mesh, block = init_device_mesh("cpu", (dist.get_world_size(),)), checkpoint["blocks.0.0.weight"]
    with Living(*checkpoint.values(), least=block.nbytes) as memory:
        model = answer(partial(Net, width, depth), mesh, read)
    if not isinstance(model, nn.Module):
        return {"returned": model}
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    seen = {
        "reads": reads,
        "most": memory.most,
        "held": max(held),
        "groups": sorted(name or "the model" for name, m in model.named_modules() if isinstance(m, FSDPModule)),
        "meta": [name for name, tensor in tensors.items() if tensor.is_meta],
        "unsharded": [name for name, p in model.named_parameters() if not isinstance(p, DTensor)],
    }
    if seen["meta"] or seen["unsharded"]:
        return seen
    whole = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in tensors.items()}
    return {**seen, "tensors": {name: tensor.detach() for name, tensor in whole.items()}, "output": model(x).detach()}


def judge(answer: Any, rng: Inputs) -> None:
    width, depth, x = 2 * rng.size(20, 24) + 1, rng.size(4, 5), rng.randn(3, 6)
    model = Net(width, depth)
    checkpoint = {name: 0.2 * rng.randn(*tensor.shape) for name, tensor in model.state_dict().items()}
    model.load_state_dict(checkpoint)
    try:
        look = "all ranks make the same calls in the same order"
        seen = ranks.observe(answer, on_rank, width, depth, checkpoint, x, look=look)
    except AnswerRaised as raised:
        wrong_if(
            "must match the size of tensor b" in str(raised),
            "number_of_rows",
            "The number of rows that you copy is not the number that this rank keeps.",
            look="a rank has `math.ceil(len(p) / mesh.size())` rows, the last rank the rest; `read` leaves out `last`",
            yours=str(raised),
        )
        raise
    for each in seen:
        if "most" not in each:
            raise Incorrect("Your function should return the model.", yours=each["returned"])
    judge_memory(seen, sum(tensor.nbytes for tensor in checkpoint.values()))
    for rank, each in enumerate(seen):
        judge_shards(rank, each, checkpoint)
    for rank, each in enumerate(seen):
        judge_values(each, checkpoint)
        same(each["output"], model(x).detach(), f"The output of the model on rank {rank}")


def judge_memory(seen: list[dict], size: int) -> None:
    """size: bytes of all tensors of the model"""
    most, held = max(each["most"] for each in seen), max(each["held"] for each in seen)
    wrong_if(
        most > 0.5 * size,
        "whole_model",
        f"Too much of the model was whole at the same time: at its peak, a rank held {most:,} bytes of full-size "
        f"weights, copies included. All tensors of the model together have {size:,}.",
        look='the order: `with torch.device("meta")` around `build()`, then all calls of `fully_shard`, then '
        "`to_empty`, and from `read` only the rows of this rank",
    )
    wrong_if(
        held > 0.75 * size,
        "shards_twice",
        f"The shards were there twice on a rank: at a call of `read`, it held {held:,} bytes, and all tensors of the "
        f"model together have {size:,}. What `read` gave you before was still there, beside the model.",
        look="copy each tensor's rows before you read the next ones, or let them become the shard",
    )


def judge_shards(rank: int, seen: dict, checkpoint: dict[str, Tensor]) -> None:
    wrong_if(
        seen["meta"],
        "still_on_meta",
        "Some tensors are still on `meta`, without memory, and copying into them does nothing.",
        look='`model.to_empty(device="cpu")`, after sharding and before you copy values in',
        yours=seen["meta"],
    )
    look = "a last call of `fully_shard`, on the model itself"
    same(seen["unsharded"], [], "The list of weights that are not sharded", look=look)
    groups = sorted({name.rpartition(".")[0][: len("blocks.0")] for name in checkpoint if "blocks" in name})
    look = "`fully_shard` for each block first, for the model last"
    same(seen["groups"], [*groups, "the model"], "The list of groups", look=look)
    for name, first, last in seen["reads"]:
        rows = range(len(checkpoint[name]))
        mine = rows if name == "scale" else rows[: -(-len(rows) // 2)] if rank == 0 else rows[-(-len(rows) // 2) :]
        wrong_if(
            not {*rows[first:last]} <= {*mine},
            "foreign_rows",
            f"Rank {rank} reads rows that it does not keep: with a tensor too large for one rank, it would fail here.",
            look="ask `read` for the rows of this rank only: `math.ceil(len(p) / mesh.size())` of them, beginning with "
            "its number times as many",
            expected=f'read("{name}", {mine.start}, {mine.stop})',
            yours=f'read("{name}", {first}, {last})',
        )


def judge_values(seen: dict, checkpoint: dict[str, Tensor]) -> None:
    for name in checkpoint.keys() - {"scale"}:
        look = "what `read` gives for the rows of this rank should end up in `p.to_local()`"
        same(seen["tensors"][name], checkpoint[name], f"`{name}`", look=look)
    wrong_if(
        not torch.equal(seen["tensors"]["scale"], checkpoint["scale"]),
        "buffer",
        "The buffer does not have the values of the checkpoint. On `meta` it lost those that `build` computes, and "
        "`to_empty` gave it uninitialized memory.",
        look="`model.named_buffers()`: buffers are not sharded, each rank needs them whole",
    )


exercise = Exercise(
    title="Stretch: born in pieces",
    minutes=15,
    difficulty=4,
    points=4,
    takeaway="Shapes first, then shards, then memory, then values: a model that fits on no machine is never whole on "
    "any.",
    hints=(
        'Four steps in this order: build on the `meta` device, shard, `model.to_empty(device="cpu")`, fill in.',
        '`with torch.device("meta"): model = build()` takes no memory. After `to_empty`, each parameter is a DTensor '
        "with this rank's rows in `p.to_local()`: copy into them, under `torch.no_grad()`.",
        "A rank has `math.ceil(len(p) / mesh.size())` rows, beginning with `mesh.get_local_rank()` times as many, and "
        "none beyond `len(p)`. Buffers are not sharded: each rank reads them whole, `read(name, 0, len(buffer))`.",
    ),
    judge=judge,
    seconds=120.0,  # the first check of a session starts a server, which makes the processes
)
