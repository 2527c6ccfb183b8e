"""A ledger of collectives: each rank compares its next one with those of the other ranks before any of them runs.

A collective works only if every rank calls the same one. If one rank skips it, the others wait, with no error and no
line to look at. Here every rank first tells each of the others, through a pipe, what it is about to call, and hears
what they call. Where these differ, each rank gets a sentence that says who waits where, at once. (PyTorch's own
TORCH_DISTRIBUTED_DEBUG=DETAIL says nothing of a missing call until the group's time limit, then names the wrong
collective for one that has no tensors, and no line.)

A dispatch mode sees every collective that passes through PyTorch on this rank: those of `torch.distributed`, those
that `DistributedDataParallel` starts in the middle of a backward pass, and those inside an operation on DTensors.
"""

from __future__ import annotations

import contextlib
import linecache
import math
import sys
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from labcheck.answer import is_students

LATE = 30.0  # seconds; a rank that has not come by then does not come
LEFT, RAISED, ABSENT = "left", "raised", "absent"

# The names inside PyTorch -> the words for them. (Sending and receiving are no collectives: they have two sides.)
WORDS = {
    "allreduce_": "all-reduce",
    "allreduce_coalesced_": "all-reduce",
    "all_reduce": "all-reduce",
    "reduce_": "reduce",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "allgather_": "all-gather",
    "_allgather_base_": "all-gather",
    "allgather_coalesced_": "all-gather",
    "allgather_into_tensor_coalesced_": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "gather_": "gather",
    "scatter_": "scatter",
    "reduce_scatter_": "reduce-scatter",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "alltoall_": "all-to-all",
    "alltoall_base_": "all-to-all",
    "barrier": "barrier",
    "monitored_barrier_": "barrier",
}
ELEMENTWISE = ("all-reduce", "reduce", "broadcast")  # of these, every rank must bring the same shape and dtype


class Mismatch(RuntimeError):
    """The ranks disagree about the next collective."""


class Ledger(TorchDispatchMode):
    """Collectives called inside the `with` block, in `calls`; `trouble` is None or what each rank was about to do.

    others: rank -> the line to it, for all ranks but this one
    Raises Mismatch in the code that called a collective which the others do not call, and again at each later one.
    """

    current: Ledger | None = None  # of this process

    def __init__(self, others: dict[int, Connection]) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []
        self.trouble: list[dict[str, Any]] | None = None
        self._others, self._world = others, len(others) + 1
        self._before = 0

    def again(self) -> None:
        """Number the collectives from 1 once more: the answer is about to be called another time."""
        self._before = len(self.calls)

    def __enter__(self) -> Ledger:
        Ledger.current = self
        return super().__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        # An operation on DTensors comes back as its parts, collectives among them. The import would cost a second.
        if getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None) in types:
            return NotImplemented
        word = WORDS.get(func._schema.name.split("::")[-1]) if "c10d" in func.namespace else None
        if word and _group_size(args) in (None, self._world):
            tensors = _tensors(args)
            self._meet(
                {
                    "what": word,
                    "shapes": [list(tensor.shape) for tensor in tensors],
                    "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in tensors],
                    **_place(),
                }
            )
        return func(*args, **(kwargs or {}))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, where)
        if self.trouble is None:  # the others learn of it when they call their next one
            self._say({"what": RAISED if kind else LEFT})

    def _say(self, mine: dict[str, Any]) -> None:
        for line in self._others.values():
            with contextlib.suppress(OSError):  # a process that died reads no more
                line.send(mine)

    def _meet(self, mine: dict[str, Any]) -> None:
        if self.trouble:
            raise Mismatch(sentence(self.trouble))
        self._say(mine)
        self.calls.append(mine)
        heard = {rank: _hear(line) for rank, line in self._others.items()}
        all_of_them = [heard.get(rank, mine) for rank in range(self._world)]
        if any(not _agree(mine, other) for other in all_of_them):
            self.trouble = [{**one, "number": len(self.calls) - self._before} for one in all_of_them]
            raise Mismatch(sentence(self.trouble))


def _hear(line: Connection) -> dict[str, Any]:
    """The next collective of another rank: each sends one message for each of its own, so they come in order."""
    try:
        return line.recv() if line.poll(LATE) else {"what": ABSENT}
    except (EOFError, OSError):
        return {"what": ABSENT}


def sentence(trouble: list[dict[str, Any]]) -> str:
    """Who waits where, in one sentence. trouble: for each rank its next collective, as in `Ledger.trouble`."""
    waiting = [(rank, one) for rank, one in enumerate(trouble) if one["what"] not in (LEFT, RAISED, ABSENT)]
    gone = [(rank, one) for rank, one in enumerate(trouble) if one["what"] in (LEFT, RAISED, ABSENT)]
    if waiting and gone:
        (rank, one), (other, its) = waiting[0], gone[0]
        why = {
            LEFT: "has already left your function",
            RAISED: "has stopped with an error",
            ABSENT: "does not get there",
        }
        return f"Rank {rank} waits for rank {other} in {a(one)}, but rank {other} {why[its['what']]}: a deadlock."
    if len({one["what"] for _, one in waiting}) > 1:
        calls = " and ".join(f"rank {rank} in {a(one)}" for rank, one in waiting)
        return f"The ranks wait in different collectives, {calls}: a deadlock."
    calls = ", ".join(f"rank {rank} brings {size(one)}" for rank, one in waiting)
    return f"The ranks meet in {a(waiting[0][1], short=True)} with different tensors: {calls}."


def details(trouble: list[dict[str, Any]]) -> str:
    """What each rank was about to do, with its line."""
    parts = []
    for rank, one in enumerate(trouble):
        if one["what"] in (LEFT, RAISED, ABSENT):
            done = one["number"] - 1
            after = {LEFT: "left", RAISED: "stopped with an error", ABSENT: "busy with something else"}[one["what"]]
            parts.append(f"rank {rank}: {after} after {done} collective{'s' * (done != 1)}")
        else:
            parts.append(f"rank {rank}: collective {one['number']} is {a(one)}{_line(one)}")
    return "; ".join(parts)


def a(call: dict[str, Any], short: bool = False) -> str:
    """For example "an all-reduce of 12 numbers"."""
    article = "an" if call["what"][0] == "a" else "a"
    return f"{article} {call['what']}" + ("" if short or call["what"] == "barrier" else f" of {size(call)}")


def size(call: dict[str, Any]) -> str:
    """For example "shape (3, 4)" or, with another dtype than float32, "shape (3, 4), int64"."""
    shapes = [tuple(shape) for shape in call["shapes"]]
    dtypes = [dtype for dtype in call["dtypes"] if dtype != "float32"]
    text = f"shape {shapes[0]}" if len(shapes) == 1 else f"{sum(map(math.prod, shapes))} numbers"
    return text + (f", {dtypes[0]}" if dtypes else "")


def _line(call: dict[str, Any]) -> str:
    if not call.get("line"):
        return ""
    return f" (line {call['line']}: `{call['source']}`)" if call.get("source") else f" (line {call['line']})"


def _agree(mine: dict[str, Any], other: dict[str, Any]) -> bool:
    keys = ("what", "shapes", "dtypes") if mine["what"] in ELEMENTWISE else ("what",)
    # A rank that raised and one that left are both gone: neither waits for the other.
    if {mine["what"], other["what"]} <= {LEFT, RAISED}:
        return True
    return all(mine.get(key) == other.get(key) for key in keys)


def _tensors(args: tuple) -> list[Tensor]:
    """The tensors of a collective: in its first argument, alone or in a list."""
    first = args[0] if args else None
    rows = first if isinstance(first, (list, tuple)) else [first]
    return [tensor for tensor in rows if isinstance(tensor, Tensor)]


def _group_size(args: tuple) -> int | None:
    """How many ranks the collective's group has; None if the arguments do not say."""
    for value in args:
        if isinstance(value, torch.ScriptObject):
            try:
                return dist.ProcessGroup.unbox(value).size()
            except Exception:  # the other script object among the arguments, a ReduceOp
                continue
    return None


def _place() -> dict[str, Any]:
    """The student's own line that is being run, or nothing if there is none."""
    frame = sys._getframe(2)
    while frame is not None:
        filename = frame.f_code.co_filename
        if is_students(filename) and not filename.startswith(("<torch", "<string>")):  # <string> starts a process
            source = linecache.getline(filename, frame.f_lineno).strip()
            return {"line": frame.f_lineno, "source": source}
        frame = frame.f_back
    return {}
