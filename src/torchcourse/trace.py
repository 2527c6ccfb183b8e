"""What a GPU was asked to do: copies, synchronizations and kernels, each with the line of your code that caused it.

    with trace() as t:
        train_one_epoch(...)
    print(t)                 # a short table
    len(t.syncs)             # how often the CPU had to wait
    t.seconds(Cost())        # how long that would take on a GPU as in the model `Cost`

It works the same for a real accelerator and for the practice GPU: everything that PyTorch computes passes through its
dispatcher, and a *dispatch mode* sees each operation there, in the backward pass too. What does not pass there in a
form that can be recognized is wrapped while the trace runs: `synchronize()`, printing, `torch.tensor([loss, ...])`.

What counts, for tensors that are not on the CPU:

- "to device": a tensor is copied from the CPU to the device. `bytes` is its size there.
- "to host": a tensor is copied from the device to the CPU: `.cpu()`, `.to("cpu")`, `.tolist()`.
- "synchronize": the CPU waits until the device has finished everything, because it needs a value (`.item()`, `float()`,
  `if loss > 1:`, printing a tensor), a size (`nonzero()`, indexing with a mask), or because it was told to
  (`torch.accelerator.synchronize()`). A "to host" copy waits as well, so `.cpu()` gives two events; only with
  `non_blocking=True` it does not.
- "kernel": any other operation that computes. Views and allocations are no work for the device and are not listed.
  One operation counts as one kernel; a real GPU may need several, or one for many.
"""

import contextlib
import linecache
import os
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import NamedTuple

import torch
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode

TO_DEVICE, TO_HOST, SYNCHRONIZE, KERNEL = "to device", "to host", "synchronize", "kernel"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that the device was asked to do.

    kind: "to device", "to host", "synchronize" or "kernel".
    op: PyTorch's name of the operation, for example "addmm", "item", "print".
    bytes: moved by a copy; read and written by a kernel. flops: floating-point operations of a matrix product or
    convolution, 0 for everything else (there the bytes decide how long it takes).
    line, number, file: the line of your own code that caused it, its number in the file or notebook cell, the file.
    waits: the CPU goes on only when this is done. pinned: a copy from or to pinned memory.
    """

    kind: str
    op: str
    bytes: int = 0
    flops: int = 0
    line: str = ""
    number: int = 0
    file: str = ""
    waits: bool = False
    pinned: bool = False


class Row(NamedTuple):
    """Everything that one line of code caused."""

    number: int
    line: str
    to_device: int
    to_host: int
    syncs: int
    kernels: int
    bytes: int  # copied, in both directions


@dataclass
class Trace:
    """The events of a `with trace() as t:` block, in order."""

    events: list[Event] = field(default_factory=list)

    def _of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    @property
    def to_device(self) -> list[Event]:
        """Copies from the CPU to the device."""
        return self._of(TO_DEVICE)

    @property
    def to_host(self) -> list[Event]:
        """Copies from the device to the CPU."""
        return self._of(TO_HOST)

    @property
    def syncs(self) -> list[Event]:
        """The moments at which the CPU waited for the device."""
        return self._of(SYNCHRONIZE)

    @property
    def kernels(self) -> list[Event]:
        """Operations that compute."""
        return self._of(KERNEL)

    def by_line(self) -> list[Row]:
        """One row for each line of your code that gave the device something to do, in the order of first use."""
        groups: dict[tuple[str, int], list[Event]] = {}
        for event in self.events:
            groups.setdefault((event.file, event.number), []).append(event)
        rows = []
        for (_, number), events in groups.items():
            count = Counter(event.kind for event in events)
            moved = sum(event.bytes for event in events if event.kind in (TO_DEVICE, TO_HOST))
            counts = (count[TO_DEVICE], count[TO_HOST], count[SYNCHRONIZE], count[KERNEL])
            rows.append(Row(number, events[0].line, *counts, moved))
        return rows

    def seconds(self, cost: "Cost | None" = None) -> float:
        """How long the events would take on a GPU as in the model `cost`. A model, not a measurement."""
        return max((span.end for span in self.schedule(cost)), default=0.0)

    def schedule(self, cost: "Cost | None" = None) -> "list[Span]":
        """When each event would run on which row, in seconds: the picture that `timeline.draw` draws."""
        return (cost or Cost()).schedule(self.events)

    def __str__(self) -> str:
        head = f"{'to device':>9} {'to host':>8} {'syncs':>6} {'kernels':>8} {'copied':>10}  line"
        rows = [
            f"{row.to_device:>9} {row.to_host:>8} {row.syncs:>6} {row.kernels:>8} {_size(row.bytes):>10}"
            f"  {row.number:>3}: {row.line[:70]}"
            for row in self.by_line()
        ]
        copied = sum(event.bytes for event in self.to_device + self.to_host)
        total = (len(self.to_device), len(self.to_host), len(self.syncs), len(self.kernels))
        last = f"{total[0]:>9} {total[1]:>8} {total[2]:>6} {total[3]:>8} {_size(copied):>10}  in all"
        return "\n".join([head, *rows, last])


def _size(number: int) -> str:
    for unit, power in ("GiB", 30), ("MiB", 20), ("KiB", 10):
        if number >= 2**power:
            return f"{number / 2**power:.1f} {unit}"
    return f"{number} B"


# ---------------------------------------- recording


@contextlib.contextmanager
def trace() -> Iterator[Trace]:
    """Record what the block gives an accelerator, real or practice, to do. Yields the Trace, which fills as it runs."""
    record = Trace()
    recorder = _Recorder(record)
    with recorder, _wrapped(recorder):
        yield record


# The size of the result depends on the values: the CPU has to ask for it before it can go on.
_ASK_FOR_SIZE = {
    *("nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "repeat_interleave"),
    "bincount",
}
# Memory is reserved or relabeled; no kernel runs.
_NO_WORK = {
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "set_", "resize_", "_pin_memory"),
    *("detach", "detach_", "alias", "lift", "split", "split_with_sizes", "unbind", "chunk", "_unsafe_view"),
    *("_reshape_alias", "_conj", "record_stream", "is_pinned", "is_same_size", "_has_compatible_shallow_copy_type"),
}


class _Recorder(TorchDispatchMode):
    def __init__(self, record: Trace) -> None:
        super().__init__()
        self.record = record
        self.thread = threading.get_ident()
        self.paused = False

    def add(self, kind: str, op: str, **more: object) -> None:
        line, number, file = _line(self.thread)
        self.record.events.append(Event(kind, op, line=line, number=number, file=file, **more))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not self.paused:
            self.note(func, args, kwargs, result)
        return result

    def note(self, func: torch._ops.OpOverload, args: tuple, kwargs: dict, result: object) -> None:
        """Decide what kind of event an operation was."""
        inputs, outputs = list(_tensors((args, tuple(kwargs.values())))), list(_tensors(result))
        if not any(_on_device(tensor) for tensor in (*inputs, *outputs)):
            return
        name = func._schema.name.removeprefix("aten::")
        if name in ("_to_copy", "copy_"):
            target, source = (args[0], args[1]) if name == "copy_" else (result, args[0])
            non_blocking = kwargs.get("non_blocking", args[2] if name == "copy_" and len(args) > 2 else False)
            self.copied("copy_" if name == "copy_" else "to", source, target, non_blocking)
        elif name == "lift_fresh":  # torch.tensor(values, device=...): made on the CPU, then copied
            self.add(TO_DEVICE, "tensor", bytes=outputs[0].nbytes, waits=True)
        elif name == "_local_scalar_dense":  # what .item(), float(), int() and bool() are inside
            self.add(SYNCHRONIZE, "item", bytes=inputs[0].nbytes, waits=True)
        elif name not in _NO_WORK and not func.is_view:
            if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
                self.indexed(name, args)
            moved = sum({id(tensor): tensor.nbytes for tensor in (*inputs, *outputs)}.values())
            self.add(KERNEL, name, bytes=moved, flops=_flops(func, args, kwargs, result))
            if name in _ASK_FOR_SIZE or isinstance(result, (bool, int, float)):  # a number for Python
                self.add(SYNCHRONIZE, name, bytes=8, waits=True)

    def copied(self, op: str, source: torch.Tensor, target: torch.Tensor, non_blocking: bool) -> None:
        if _on_device(source) == _on_device(target):
            self.add(KERNEL, op, bytes=source.nbytes + target.nbytes)  # a copy inside the device is a kernel
        elif _on_device(target):
            # From pageable memory the bytes first go to a pinned buffer of the driver: the CPU is busy anyway.
            pinned = source.device.type == "cpu" and source.is_pinned()
            self.add(TO_DEVICE, op, bytes=target.nbytes, pinned=pinned, waits=not (pinned and non_blocking))
        else:
            # `.to(..., non_blocking=True)` copies to pinned memory of its own. For ordinary memory, Python has to wait.
            free = non_blocking and (op == "to" or target.is_pinned())
            self.add(TO_HOST, op, bytes=target.nbytes, pinned=free, waits=not free)
            if not free:
                self.add(SYNCHRONIZE, op, waits=True)

    def indexed(self, name: str, args: tuple) -> None:
        """Indices on the CPU are copied to the device first; a mask on the device has to be counted first."""
        fills = name != "index" and args[2].numel() == 1  # x[mask] = 0 writes where the mask says, without counting it
        for index in _tensors(args[1]):
            if not _on_device(index):
                self.add(TO_DEVICE, "index", bytes=index.nbytes, waits=True)
            if index.dtype in (torch.bool, torch.uint8) and not fills:
                self.add(SYNCHRONIZE, "mask", bytes=8, waits=True)


def _on_device(tensor: torch.Tensor) -> bool:
    return tensor.device.type not in ("cpu", "meta")


def _tensors(values: object) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _tensors(value)


def _flops(func: torch._ops.OpOverload, args: tuple, kwargs: dict, result: object) -> int:
    from torch.utils.flop_counter import flop_registry  # PyTorch's own formulas for matrix products and convolutions

    formula = flop_registry.get(func._overloadpacket)
    return int(formula(*args, **kwargs, out_val=result)) if formula else 0


@contextlib.contextmanager
def _wrapped(recorder: _Recorder) -> Iterator[None]:
    """Count what no dispatch mode can recognize, while the trace runs."""

    def one_event(op: str, function: Callable) -> Callable:
        def wrapper(*args: object, **kwargs: object) -> object:
            if recorder.paused or (op == "print" and not _on_device(args[0])):
                return function(*args, **kwargs)
            recorder.add(SYNCHRONIZE, op, waits=True)
            recorder.paused = True  # printing reads many values: one event says it better
            try:
                return function(*args, **kwargs)
            finally:
                recorder.paused = False

        return wrapper

    def reads_values(op: str, function: Callable) -> Callable:
        def wrapper(*args: object, **kwargs: object) -> object:
            if args and isinstance(args[0], (list, tuple)):  # torch.tensor([loss, loss]) reads each loss
                for value in filter(_on_device, _tensors(args[0])):
                    recorder.add(SYNCHRONIZE, op, bytes=value.nbytes, waits=True)
            return function(*args, **kwargs)

        return wrapper

    changes = [
        (torch._tensor_str, "_str", one_event("print", torch._tensor_str._str)),
        (torch.accelerator, "synchronize", one_event("synchronize", torch.accelerator.synchronize)),
        (torch, "tensor", reads_values("tensor", torch.tensor)),
    ]
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    backend = getattr(torch, accelerator.type, None) if accelerator else None
    if hasattr(backend, "synchronize"):
        changes.append((backend, "synchronize", one_event("synchronize", backend.synchronize)))
    _device_constructors()  # `with torch.device(...)` lists functions at its first use: let it be the true ones
    before = [getattr(place, name) for place, name, _ in changes]
    try:
        for place, name, function in changes:
            setattr(place, name, function)
        yield
    finally:
        for (place, name, _), function in zip(changes, before, strict=True):
            setattr(place, name, function)


# ---------------------------------------- whose line it is

_NOT_YOURS = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in (
        os.path.dirname(torch.__file__),
        os.path.dirname(__file__),
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
    )
)
_yours: dict[str, bool] = {}


def _is_yours(file: str) -> bool:
    if file not in _yours:
        _yours[file] = not file.startswith("<frozen") and not os.path.realpath(file).startswith(_NOT_YOURS)
    return _yours[file]


def _line(thread: int) -> tuple[str, int, str]:
    """Text, number and file of the nearest line of your own code.

    thread: the one that started the trace. The backward pass of a real GPU runs in a thread of PyTorch's own, in which
    there is no line of yours; meanwhile your thread waits at the line that called `backward()`.
    """
    for start in (sys._getframe(1), sys._current_frames().get(thread)):
        frame: FrameType | None = start
        while frame is not None:
            file = frame.f_code.co_filename
            if _is_yours(file):
                return linecache.getline(file, frame.f_lineno).strip(), frame.f_lineno, file
            frame = frame.f_back
    return "", 0, ""


# ---------------------------------------- a model of cost


class Span(NamedTuple):
    """A stretch of time on one row of the schedule, in seconds from the start."""

    row: str  # "CPU", "copies" or "GPU"
    start: float
    end: float
    kind: str  # kind of the event, or "wait" where the CPU does nothing but wait
    event: Event


@dataclass(frozen=True)
class Cost:
    """What things cost on a GPU: a model with seven numbers, not a measurement. Change any: `Cost(launch=2e-6)`.

    The numbers are those of a data-center GPU behind PCI Express, rounded. The model knows one queue: copies and
    kernels run one after the other, in the order in which they were asked for. The CPU only asks, and waits where it
    must; the time that your Python code takes between two operations is not in it.
    """

    launch: float = 8e-6
    """Seconds of CPU time to hand one operation to the GPU, PyTorch's own work included. Kernels that are shorter than
    this leave the GPU idle: the reason why small networks gain nothing."""
    kernel: float = 3e-6
    """Seconds that even the smallest kernel takes."""
    copy: float = 1e-5
    """Seconds that even the smallest copy between CPU and GPU takes."""
    pageable: float = 6e9
    """Bytes per second of a copy from or to ordinary memory: it goes through a pinned buffer on its way."""
    pinned: float = 24e9
    """Bytes per second of a copy from or to pinned memory: about what PCI Express 4 carries."""
    throughput: float = 20e12
    """Floating-point operations per second of matrix products and convolutions in float32."""
    bandwidth: float = 1.5e12
    """Bytes per second between the memory of the GPU and its processors: what bounds everything that is no product."""

    def duration(self, event: Event) -> float:
        """Seconds that an event keeps the GPU or the bus busy."""
        if event.kind in (TO_DEVICE, TO_HOST):
            return self.copy + event.bytes / (self.pinned if event.pinned else self.pageable)
        if event.kind == KERNEL:
            return max(self.kernel, event.flops / self.throughput, event.bytes / self.bandwidth)
        return 0.0

    def schedule(self, events: list[Event]) -> list[Span]:
        """Play the events: when does what run?"""
        spans = []
        cpu = gpu = 0.0  # until when each is busy
        for event in events:
            if event.kind != SYNCHRONIZE:
                spans.append(Span("CPU", cpu, cpu + self.launch, event.kind, event))
                cpu += self.launch
                start = max(cpu, gpu)  # the GPU cannot begin before it is asked, nor before it has finished the last
                gpu = start + self.duration(event)
                spans.append(Span("GPU" if event.kind == KERNEL else "copies", start, gpu, event.kind, event))
            if event.waits:
                done = max(cpu, gpu) + (self.copy if event.kind == SYNCHRONIZE and event.bytes else 0.0)
                if done > cpu:
                    spans.append(Span("CPU", cpu, done, "wait", event))
                cpu = gpu = done
        return spans
