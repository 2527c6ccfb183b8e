"""What the checks on the device have in common: what an answer gives the device to do, and what comes back from it."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcheck.authoring import call, show
from torchcourse.trace import Event, trace

Work = dict[str, list[tuple[int, str]]]


def device_work(answer: Callable, *inputs: Any) -> tuple[Any, Work]:
    """For probes: what the answer returns for these inputs, not copies, and what it gives the device to do.

    The work is, for each kind of event ("to device", "synchronize", "kernel", "product": a matrix product), a list of
    (bytes, line of the answer), in the order of the events.
    """
    with trace() as seen:
        result = call(answer, *inputs, may_change=True)

    def told(events: Sequence[Event]) -> list[tuple[int, str]]:
        return [(each.bytes, f"line {each.number}: `{each.line[:100]}`" if each.line else "") for each in events]

    kernels, products = seen.kernels, [event for event in seen.kernels if event.flops]
    kinds = {"to device": seen.to_device, "synchronize": seen.syncs, "kernel": kernels, "product": products}
    return result, {kind: told(events) for kind, events in kinds.items()}


def busiest_line(events: Sequence[tuple[int, str]]) -> str:
    """The line of the answer that caused most of these events, and how often: "line 3: `x.item()` (8 times)"."""
    line, times = Counter(line for _, line in events).most_common(1)[0] if events else ("", 0)
    return f"{line or 'your loop'} ({times} times)" if times > 1 else line


def as_numbers(values: Any) -> Tensor | str:
    """For probes: Python numbers, one or several, as a float64 tensor; for anything else, what it is, in words."""
    several = isinstance(values, list | tuple)
    parts = values if several else [values]
    if several and any(isinstance(part, Tensor) for part in parts):
        return f"a {type(values).__name__} with tensors in it"
    if isinstance(values, Tensor):
        return f"{show(values)}, on {'the CPU' if values.device.type == 'cpu' else 'the device'}"
    if not all(isinstance(part, int | float | np.number) and not isinstance(part, bool) for part in parts):
        return show(values)
    return torch.tensor([float(part) for part in parts] if several else float(values), dtype=torch.float64)
