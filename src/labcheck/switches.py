"""The defaults of Python, NumPy and PyTorch around a check, whatever the notebook has switched on or off before.

    with switches.neutral() as seen:
        ...             # inputs, the student's function and the comparison see the defaults
    seen.changed        # what the notebook had changed, in words: ["default dtype torch.float64"]
    seen.left_on        # modes that the block entered and did not leave

What one cell switches stays switched: after `torch.set_default_device(gpu)` a check would draw its inputs on the GPU
and compare them with numbers from the CPU. A check judges the answer, not the switches, so it runs as in a fresh
notebook. Afterward every switch is as it was.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.overrides
from torch.utils import _device, _python_dispatch
from torch.utils._device import DeviceContext

from torchcourse import device


@dataclass
class Seen:
    """In words: what the notebook had changed that can make an answer fail here that works there, and what the answer
    left switched on that can change the comparison itself."""

    changed: list[str] = field(default_factory=list)
    left_on: list[str] = field(default_factory=list)


@contextlib.contextmanager
def neutral() -> Iterator[Seen]:
    """Run the block with the defaults and restore everything afterward, random generators included."""
    seen = Seen()

    def end_modes() -> None:
        """Before anything is restored: modes that the answer left on would see that."""
        functions, operations = _take_modes()
        # A default device is harmless: the comparison says where its tensors are.
        seen.left_on += [type(mode).__name__ for mode in functions + operations if type(mode) is not DeviceContext]

    with contextlib.ExitStack() as stack:
        for part in (_python_and_numpy, _modes, _gradients, _autocast, _precision, _simple):
            seen.changed += stack.enter_context(part())
        stack.enter_context(_random_state())
        stack.callback(end_modes)
        yield seen


# ---------------------------------------- Python and NumPy


@contextlib.contextmanager
def _python_and_numpy() -> Iterator[list[str]]:
    """Warnings are no errors, and the current folder is there."""
    try:
        folder, gone = os.getcwd(), False
    except FileNotFoundError:  # deleted: it still has a number, if no longer a name
        folder, gone = os.open(".", os.O_RDONLY), True
        os.chdir(tempfile.gettempdir())
    out, err = sys.stdout, sys.stderr
    try:
        with (
            warnings.catch_warnings(),
            np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"),
            np.printoptions(),
        ):
            warnings.filters[:] = [entry for entry in warnings.filters if entry[0] != "error"]
            warnings.simplefilter("default", append=True)  # changes nothing, but makes Python read the list again
            yield []
    finally:
        sys.stdout, sys.stderr = out, err
        with contextlib.suppress(OSError):
            os.chdir(folder)
        if gone:
            os.close(folder)


# ---------------------------------------- modes: what PyTorch asks before every function and every operation


def _take_modes() -> tuple[list[Any], list[Any]]:
    """All modes of functions and of operations, the innermost first; from then on none is on.

    The default device is such a mode. PyTorch has no public way to see which modes are on: the private names are here.
    """
    vars(torch._GLOBAL_DEVICE_CONTEXT).clear()
    _device.CURRENT_DEVICE = None
    functions, operations = torch.overrides, _python_dispatch
    return (
        [functions._pop_mode() for _ in range(functions._len_torch_function_stack())],
        [operations._pop_mode() for _ in range(operations._len_torch_dispatch_stack())],
    )


@contextlib.contextmanager
def _modes() -> Iterator[list[str]]:
    """No mode is on: neither a TorchFunctionMode nor a TorchDispatchMode that was entered and never left."""
    default, current = vars(torch._GLOBAL_DEVICE_CONTEXT).copy(), _device.CURRENT_DEVICE
    of_functions, of_operations = _take_modes()
    try:
        yield [
            f"default device {mode.device}" if isinstance(mode, DeviceContext) else f"{type(mode).__name__} on"
            for mode in (*of_functions, *of_operations)
        ]
    finally:
        for mode in reversed(of_functions):
            torch.overrides._push_mode(mode)
        for mode in reversed(of_operations):
            _python_dispatch._push_mode(mode)
        vars(torch._GLOBAL_DEVICE_CONTEXT).update(default)
        _device.CURRENT_DEVICE = current


# ---------------------------------------- PyTorch's switches


@contextlib.contextmanager
def _gradients() -> Iterator[list[str]]:
    changed = ["inference mode on"] if torch.is_inference_mode_enabled() else []
    changed = changed or ([] if torch.is_grad_enabled() else ["gradients off"])
    with torch.inference_mode(False), torch.enable_grad():
        yield changed


@contextlib.contextmanager
def _autocast() -> Iterator[list[str]]:
    """Autocast off on every kind of device, its dtypes and its cache as at the start of a process."""
    kinds = sorted({"cpu", "cuda", device.best().type})
    before = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
    cache = torch.is_autocast_cache_enabled()
    # Casts of weights are kept until the outermost autocast ends. One that never ends would keep them for the block:
    # an optimizer's step changes the weights, and the old casts go on computing.
    depth = _set_depth(0)
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(True)
    for kind in kinds:
        torch.set_autocast_enabled(kind, False)
        torch.set_autocast_dtype(kind, torch.bfloat16 if kind == "cpu" else torch.float16)
    try:
        yield [f"autocast on for {kind}" for kind, enabled, _ in before if enabled]
    finally:
        _set_depth(depth)
        torch.clear_autocast_cache()
        torch.set_autocast_cache_enabled(cache)
        for kind, enabled, dtype in before:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)


def _set_depth(depth: int) -> int:
    """Set how many autocasts PyTorch takes to be open, and return how many it was."""
    before = now = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    while now > depth:
        now = torch.autocast_decrement_nesting()
    while now < depth:
        now = torch.autocast_increment_nesting()
    return before


@contextlib.contextmanager
def _precision() -> Iterator[list[str]]:
    """Products and convolutions of float32 in float32, except cuDNN's convolutions, whose default is TF32."""
    onednn = torch.backends.mkldnn
    places = (torch.backends, torch.backends.cuda.matmul, onednn, onednn.matmul, onednn.conv, onednn.rnn)
    before = [place.fp32_precision for place in places]
    old_switch = None
    with contextlib.suppress(RuntimeError):  # it refuses to answer once the newer switches below were used
        old_switch = torch.get_float32_matmul_precision()
    if old_switch not in (None, "highest"):
        torch.set_float32_matmul_precision("highest")
    for place in places:
        if place.fp32_precision not in ("none", "ieee"):
            place.fp32_precision = "ieee"
    try:
        yield []
    finally:
        with contextlib.suppress(RuntimeError):
            if old_switch is not None and torch.get_float32_matmul_precision() != old_switch:
                torch.set_float32_matmul_precision(old_switch)
        for place, precision in zip(places, before, strict=True):
            if place.fp32_precision != precision:
                place.fp32_precision = precision


KEEP = object()  # a switch that no answer depends on: left as it is, and restored if the answer changes it
# What it is, how to read it, how to set it, and its default.
SIMPLE: list[tuple[str, Callable[[], Any], Callable[[Any], Any], Any]] = [
    ("default dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    ("deterministic algorithms", torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 0),
    (
        "anomaly detection",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda pair: torch.set_anomaly_enabled(*pair),
        (False, True),
    ),
    # What a check computes is small: several threads would wait for one another, for seconds on a busy machine.
    ("number of threads", torch.get_num_threads, torch.set_num_threads, 1),
    (
        "print options",
        torch._tensor_str.get_printoptions,
        lambda options: torch._tensor_str.set_printoptions(**options),
        KEEP,
    ),
]


@contextlib.contextmanager
def _simple() -> Iterator[list[str]]:
    before = [read() for _, read, _, _ in SIMPLE]
    changed = []
    for (name, _, write, default), value in zip(SIMPLE, before, strict=True):
        if default is not KEEP and value != default:
            write(default)
            changed += [f"{name} {value}"] if name == "default dtype" else []
    try:
        yield changed
    finally:
        for (_, read, write, _), value in zip(SIMPLE, before, strict=True):
            if read() != value:
                write(value)


@contextlib.contextmanager
def _random_state() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    with device.random_numbers_kept(device.best()):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
