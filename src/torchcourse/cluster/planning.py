"""Plan a distributed training on one machine without a GPU: a world without processes, memory without memory.

    with planning.fake_world(8) as mesh:        this process is rank 0 of 8; the other seven do not exist
        with planning.messages() as seen:       which collectives a step makes, and how many bytes they carry
            ...
    with planning.fake_tensors():               tensors with a shape, a dtype and a device, but no values and no memory
        with planning.memory(model, optimizer) as held:     what one step would hold at its peak
            ...

Shapes, placements, collectives and bytes are those of a real run. Values are not: no other rank answers.

The tools behind it are PyTorch's own, but some of their names are private and may move with any release. `private`
imports them, and says in one sentence which one is gone.
"""

import gc
import importlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from torchcourse.errors import CourseError

__all__ = ["Held", "Messages", "fake_tensors", "fake_world", "memory", "messages"]

# What this module takes from PyTorch beyond its public names.
NAMES = {
    "FakeStore": "torch.testing._internal.distributed.fake_pg",
    "TorchDispatchMode": "torch.utils._python_dispatch",
    "FakeTensorMode": "torch._subclasses.fake_tensor",
    "MemTracker": "torch.distributed._tools.mem_tracker",
}
# The operators behind a message -> its name in this course. PyTorch has several for each.
COLLECTIVES = {
    "all_gather": "all-gather",
    "allgather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_reduce": "all-reduce",
    "allreduce": "all-reduce",
    "all_to_all": "all-to-all",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
}
# What MemTracker calls the kinds of memory -> our names.
KINDS = {
    "Parameter": "weights",
    "Gradient": "gradients",
    "Optstate": "optimizer",
    "Activation": "activations",
    "Temp": "temporary",
    "Buffer": "buffers",
    "Other": "inputs",
}


def private(name: str) -> Any:
    """One of the names above. Raises CourseError if this version of PyTorch does not have it."""
    try:
        return getattr(importlib.import_module(NAMES[name]), name)
    except (ImportError, AttributeError):
        raise CourseError(
            f"PyTorch {torch.__version__} has no {NAMES[name]}.{name}, which is not a public name. "
            "Planning works with the versions from 2.11 to 2.15; everything else in the course works without it."
        ) from None


@contextmanager
def fake_world(*shape: int, names: Sequence[str] | None = None, rank: int = 0) -> Iterator[DeviceMesh]:
    """This process as one rank of a world that does not exist. The block gets the mesh of all its ranks.

    shape: number of ranks, or of ranks along each axis of a mesh, for example `fake_world(2, 4)`.
    names: of the axes. Tensors stay on the CPU. DistributedDataParallel fails here: it waits for results.
    """
    if dist.is_initialized():
        raise CourseError("This process has a process group already: leave it before you open a fake world.")
    size = torch.Size(shape).numel()
    hook = sys.excepthook  # every group puts its rank before the lines of a traceback, and never takes it away
    dist.init_process_group("fake", store=private("FakeStore")(), rank=rank, world_size=size)
    try:
        yield init_device_mesh("cpu", shape, mesh_dim_names=tuple(names) if names else None)
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook


@dataclass
class Messages:
    """What was sent in a `with messages()` block."""

    counts: Counter[str] = field(default_factory=Counter)  # "all-gather" -> how many
    bytes: Counter[str] = field(default_factory=Counter)  # "all-gather" -> bytes of the whole tensors, over all of them

    def __str__(self) -> str:
        each = (f"{n} {name} ({self.bytes[name]:,} bytes)" for name, n in sorted(self.counts.items()))
        return ", ".join(each) or "no messages"


@contextmanager
def messages() -> Iterator[Messages]:
    """Counts the collectives in the block, forward and backward: of FSDP2, tensor parallelism, DDP, or your own.

    Bytes are those of the whole tensor: what an all-gather ends with, what a reduce-scatter begins with.
    PyTorch's own `CommDebugMode` counts the same; this one also
    adds up bytes, and takes more than one step in a block (with older versions of PyTorch, too).
    """
    seen = Messages()

    class Counting(private("TorchDispatchMode")):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if DTensor in types:
                return NotImplemented  # a DTensor turns into plain tensors and messages first; those come back here
            result = func(*args, **(kwargs or {}))
            if name := _collective(func):
                seen.counts[name] += 1
                seen.bytes[name] += max(sum(t.nbytes for t in _tensors(side)) for side in _sides(args, result))
            return result

    with Counting():
        yield seen


def _collective(func: Any) -> str | None:
    """The name of a collective operator, None for any other."""
    namespace, _, operator = getattr(func, "_name", "").partition("::")
    if namespace not in ("c10d", "_c10d_functional", "c10d_functional"):
        return None
    return next((name for begin, name in COLLECTIVES.items() if operator.lstrip("_").startswith(begin)), None)


def _sides(args: tuple, result: Any) -> Iterator[Any]:
    """What goes into a message and what comes out: operators of c10d write into their first argument."""
    yield args[0]
    yield args[1] if len(args) > 1 and isinstance(args[1], (torch.Tensor, list)) else ()
    yield result


def _tensors(part: Any) -> Iterator[torch.Tensor]:
    if isinstance(part, torch.Tensor):
        yield part
    elif isinstance(part, (list, tuple)):
        for inner in part:
            yield from _tensors(inner)


def fake_tensors() -> AbstractContextManager:
    """Tensors made in the block have no values and take no memory; operations on them give shapes."""
    return private("FakeTensorMode")()


@dataclass
class Held:
    """What a step held at its peak, after a `with memory()` block: bytes by kind."""

    peak: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Bytes at the peak, all kinds together."""
        return sum(self.peak.values())


@contextmanager
def memory(*things: Any) -> Iterator[Held]:
    """Follows every allocation of one step, made inside `fake_tensors()`, and says what was held at the peak.

    things: what exists before the step: model, optimizer, inputs. Track one step in each block.
    """
    held, tracker = Held(), private("MemTracker")()
    gc.collect()  # what an earlier step left behind would be counted
    tracker.track_external(*things)
    with tracker:
        yield held
    peak: Counter[str] = Counter()
    for of_device in tracker.get_tracker_snapshot("peak").values():
        for kind, size in of_device.items():
            if name := KINDS.get(getattr(kind, "value", None)):
                peak[name] += size
    held.peak = {name: peak[name] for name in KINDS.values() if peak[name]}
