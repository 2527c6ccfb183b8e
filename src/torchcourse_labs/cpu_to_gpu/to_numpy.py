"""Back to NumPy from any tensor: on any device, with or without a graph, as an independent array."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, call, equal, observe, raises_like, same, wrong_if
from torchcourse import simgpu


def draw(rng: Inputs) -> list[tuple[Tensor, str]]:
    """Values, and what the tensor is that has them. Those on the device come first: PyTorch's errors say the most."""
    rows, columns = rng.sizes(2, 2, 6)
    return [
        (rng.randn(rows, columns).t(), "on the device, with a graph"),
        (rng.randn(1, columns, 1).double(), "on the device"),
        (rng.randn(rows), "on the CPU, with a graph"),
        (rng.ints(0, 2, (columns, rows)).bool(), "on the CPU"),
        (rng.randn(1)[0], "on the CPU"),
        (rng.ints(2, 256, (7, rows), torch.uint8), "on the CPU"),
    ]


def solution(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().copy()


def converted(answer: Callable, values: Tensor, what: str) -> tuple[Any, Any, list[str]]:
    """A probe: what comes back, the same after the tensor has changed, and what the answer changed in the tensor."""
    tensor = values.to(simgpu.accelerator() if "on the device" in what else "cpu", copy=True)
    if "graph" in what:
        tensor = tensor.requires_grad_() * 1
    device = tensor.device
    array = call(answer, tensor, may_change=True)
    if type(array) is not np.ndarray:
        return array, array, []
    changed = {
        "its values": not equal(tensor.detach().cpu(), values),
        "its graph": tensor.requires_grad != ("graph" in what),
        "its device": tensor.device != device,
    }
    before = array.copy()
    with torch.no_grad():  # the training goes on
        tensor.logical_not_() if tensor.dtype == torch.bool else tensor.add_(1)
    return before, array.copy(), [name for name, differs in changed.items() if differs]


def judge(answer: Any, rng: Inputs) -> None:
    for values, what in draw(rng):
        with raises_like(
            "not_removed",
            f"Your function fails for a tensor {what}.",
            "host memory",
            "requires grad",
            "requires_grad",
            look="`.detach()` leaves the graph, `.cpu()` leaves the device; `.numpy()` comes after both",
        ):
            array, later, changed = observe(answer, converted, values, what)
        wrong_if(
            not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf",
            "no_array",
            "Your result is not a NumPy array of numbers.",
            yours=array,
        )
        wrong_if(
            changed,
            "tensor_changed",
            f"Your function changes the tensor itself ({', '.join(map(str, changed))}), here one {what}.",
            look="`detach()` without an underscore and `.cpu()` return new tensors; for values, work on a copy",
        )
        look = "`.numpy()` keeps dtype, shape and values; a detour through Python numbers or arithmetic may not"
        same(torch.from_numpy(array.copy()), values, f"The array of a tensor {what}", look=look)
        wrong_if(
            not np.array_equal(array, later),
            "shared",
            f"Your array shares its memory with a tensor {what}: when training goes on, the array changes.",
            look="`.copy()` or `.clone()` makes a copy on every machine; on the CPU, `.cpu()` does not",
        )


exercise = Exercise(
    title="Back to NumPy",
    minutes=5,
    difficulty=1,
    points=1,
    takeaway="detach leaves the graph, cpu leaves the device, and your own copy makes it safe on every machine.",
    hints=(
        "Three things can be in the way: a graph, a device, and shared memory. Remove them one by one: `.detach()`, "
        "then `.cpu()`, then `.numpy()`, whose result still shares its memory with a tensor on the CPU.",
        "`tensor.detach().cpu().numpy()`, plus one more call that makes a copy.",
    ),
    judge=judge,
)
