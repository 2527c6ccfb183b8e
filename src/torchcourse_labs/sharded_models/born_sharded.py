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
from labcheck.authoring import Exercise, Incorrect, Inputs, raises_like, same, wrong_if
from torchcourse.memory import LiveBytes
from torchcourse_labs.sharded_models._shared import MODEL_FIRST

LAST = "`fully_shard` for each block first, for the model last"


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
    """It only holds tensors: rows that two ranks cannot share equally, and a buffer."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth))
        self.head = nn.Linear(width, 5)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, width))


class Held(LiveBytes):
    """Counts the tensors that take memory, and those inside of a DTensor."""

    def __torch_dispatch__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if DTensor in types:
            return NotImplemented  # it turns into plain tensors first, and those come back here
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _count(self, memory: torch.UntypedStorage) -> None:
        if memory.device.type != "meta":
            super()._count(memory)


def on_rank(answer: Any, width: int, depth: int, checkpoint: dict[str, Any]) -> dict:
    """What the answer reads, what it holds meanwhile, and the model that comes out; checkpoint: arrays."""
    reads: list[tuple[str, int, int]] = []
    peaks = [0]  # bytes until each call of `read`: with `assign=True`, `load_state_dict` copies what it may let go

    def read(name: str, first: int, last: int) -> Tensor:
        reads.append((name, int(first), int(last)))
        peaks.append(memory.peak)
        return torch.tensor(checkpoint[name][first:last])

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    with Held() as memory:
        model = answer(partial(Net, width, depth), mesh, read)
    if not isinstance(model, nn.Module):
        return {"model": model}
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    sharded = ((name, module) for name, module in model.named_modules() if isinstance(module, FSDPModule))
    groups = {fully_shard.state(module): name or "the model" for name, module in sharded}  # modules can share a group
    seen = {
        "reads": reads,
        "peak": peaks[-1],
        "groups": sorted(groups.values()),
        "meta": [name for name, tensor in tensors.items() if tensor.is_meta],
        "unsharded": [name for name, p in model.named_parameters() if not isinstance(p, DTensor)],
    }
    if seen["meta"] or seen["unsharded"]:
        return seen
    whole = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in tensors.items()}
    return {**seen, "tensors": {name: tensor.detach() for name, tensor in whole.items()}}


def judge(answer: Any, rng: Inputs) -> None:
    width, depth = 2 * rng.size(20, 24) + 1, rng.size(4, 5)
    checkpoint = {name: 0.2 * rng.randn(*tensor.shape) for name, tensor in Net(width, depth).state_dict().items()}
    arrays = {name: tensor.numpy() for name, tensor in checkpoint.items()}
    look = "all ranks make the same calls in the same order"
    unsharded = raises_like("unsharded", "Some weights are not sharded.", "to_local", look=LAST)
    recorded = raises_like("recorded", "Autograd records your copies.", "a view and is being", look="`torch.no_grad`")
    with MODEL_FIRST, unsharded, recorded:
        seen = ranks.observe(answer, on_rank, width, depth, arrays, look=look)
    for rank, each in enumerate(seen):
        if "model" in each:
            raise Incorrect("Your function should return the model.", yours=each["model"])
        judge_shards(rank, each, checkpoint)
    for each in seen:
        for name, tensor in checkpoint.items():
            look = "what `read` gives for the rows of this rank should end up in `p.to_local()`"
            if name == "scale":
                look = "buffers, which each rank needs whole: what `build` computes is lost on `meta`, so `read` them"
            same(each["tensors"][name], tensor, f"`{name}`", look=look)


def judge_shards(rank: int, seen: dict, checkpoint: dict[str, Tensor]) -> None:
    look = '`model.to_empty(device="cpu")`, after sharding and before you copy values in'
    same(seen["meta"], [], "The list of tensors that are still on `meta`, without memory,", look=look)
    same(seen["unsharded"], [], "The list of weights that are not sharded", look=LAST)
    groups = sorted({name[: len("blocks.0")] for name in checkpoint if "blocks" in name})
    same(seen["groups"], [*groups, "the model"], "The list of groups", look=LAST)
    for name, first, last in seen["reads"]:
        rows = range(len(checkpoint[name]))
        half = -(-len(rows) // 2)
        mine = rows if name == "scale" else rows[:half] if rank == 0 else rows[half:]
        wrong_if(
            first < last and not (mine.start <= first and last <= mine.stop),
            "foreign_rows",
            f"Rank {rank} reads rows that it does not keep: with a tensor too large for one rank, it would fail here.",
            look="ask `read` for the rows of this rank only: `math.ceil(len(p) / mesh.size())` of them, beginning with "
            "its number times as many, and none beyond the end",
            expected=f'read("{name}", {mine.start}, {mine.stop})',
            yours=f'read("{name}", {first}, {last})',
        )
    size = sum(tensor.nbytes for tensor in checkpoint.values())
    wrong_if(
        seen["peak"] > 0.8 * size,
        "too_much",
        f"A rank holds too much at the same time, {seen['peak']:,} bytes at its peak. All tensors of the model have "
        f"{size:,}, the shards of a rank about half.",
        look='the order: `with torch.device("meta")` around `build()`, then all calls of `fully_shard`, then '
        "`to_empty`; and copy each tensor's rows before you read the next ones",
    )


exercise = Exercise(
    title="Stretch: born in pieces",
    minutes=15,
    difficulty=4,
    points=4,
    takeaway="Shapes first, then shards, then memory, then values: the model is never whole on any machine.",
    hints=(
        'Build on the `meta` device, `with torch.device("meta")`; shard; `model.to_empty(device="cpu")`; fill in: each '
        "parameter is a DTensor with this rank's rows in `p.to_local()`. Copy into them, under `torch.no_grad()`.",
        "A rank has `math.ceil(len(p) / mesh.size())` rows, beginning with `mesh.get_local_rank()` times as many, and "
        "none beyond `len(p)`. Buffers are not sharded: each rank reads them whole, `read(name, 0, len(buffer))`.",
    ),
    judge=judge,
    seconds=ranks.SECONDS,
)
