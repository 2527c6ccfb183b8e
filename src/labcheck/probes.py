"""Probes: what they see of an answer while it works.

A probe is a function `probe(answer, *inputs)` that calls the answer and returns plain data. It runs where the answer
is, see `labcheck.answer.observe`. Further down is what probes and judges of several chapters are made of.
"""

import copy
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from labcheck.answer import call, is_students
from labcheck.compare import equal
from labcheck.inputs import Inputs
from labcheck.verdict import Incorrect

# The first optimizer of a process imports much of PyTorch, which takes seconds on a slow machine.
SLOW_START = 30.0

Batch = tuple[Tensor, Tensor]


def steps(answer: Callable, *inputs: Any) -> int:
    """How many bytecodes of Python and operations of PyTorch run.

    One number says little. With more images or points, though, the count of vectorized code stays the same, and that of
    a loop grows, whether it runs over tensors, arrays or lists.
    """
    with _NameOperations():  # the first call in a process imports what a dispatch mode needs, which would hide a loop
        call(answer, *inputs)
    with _CountSteps() as counted:
        call(answer, *inputs)
    return counted.count


def operations(answer: Callable, *inputs: Any) -> list[str]:
    """The names of PyTorch's operations that run, each once."""
    with _NameOperations() as named:
        call(answer, *inputs)
    return sorted(named.names)


def graphs_at_once(model: nn.Module) -> Callable[[], int]:
    """Watch a model from now on. The function that comes back tells how many of its outputs waited for their backward
    pass at the same time, at most: with each of them waits the memory of its activations.
    """
    waiting = most = 0

    def made(_: nn.Module, given: Any, out: Any) -> None:
        nonlocal waiting, most
        if isinstance(out, Tensor) and out.requires_grad:
            waiting += 1
            most = max(most, waiting)
            out.register_hook(used)

    def used(gradient: Tensor) -> None:
        nonlocal waiting
        waiting -= 1

    model.register_forward_hook(made)
    return lambda: most


class _NameOperations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.names.add(func.__name__)
        return func(*args, **(kwargs or {}))


class _CountSteps(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __enter__(self) -> "_CountSteps":
        self.tracer, self.threads_tracer = sys.gettrace(), threading.gettrace()  # of a debugger, say
        # When tracing begins, Python 3.12 checks whether any frame wants opcode events, so ask beforehand.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self.trace)
        threading.settrace(self.trace)  # a loop in a thread of its own counts, too
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        sys.settrace(self.tracer)
        threading.settrace(self.threads_tracer)

    def trace(self, frame: Any, event: str, arg: Any) -> Callable | None:
        if not is_students(frame.f_code.co_filename):  # libraries import and cache, which would count once
            return None
        # Not lines: a comprehension is one line, and since Python 3.12 it has no frame of its own either.
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.count += event == "opcode"
        return self.trace

    def __torch_dispatch__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


# ---------------------------------------------------------------------------------------------------------------------
# What probes and judges of several chapters are made of


def network(new: Inputs, pixels: int, classes: int, norm: bool = False) -> nn.Sequential:
    """A small network, its weights from the check's own generator."""
    layers = [nn.Flatten(), nn.Linear(pixels, 12), *([nn.BatchNorm1d(12)] if norm else []), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(12, classes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(new.randn(*parameter.shape) * 0.4)
        if norm:  # statistics that differ from those of any batch
            model[2].running_mean.copy_(new.randn(12))
            model[2].running_var.copy_(new.rand(12) + 0.5)
    return model


def weights(model: nn.Module) -> Tensor:
    """All parameters, one after the other, in one tensor."""
    return torch.cat([p.detach().cpu().double().flatten() for p in model.parameters()])


def number(value: Any, what: str) -> float:
    """The value as a Python number. Raises Incorrect for anything else, with a word about the graph for tensors."""
    plain = plain_number(value)
    if plain is None:
        raise Incorrect(f"{what} is not a number.", "a Python number", value)
    if isinstance(value, Tensor):
        graph = " that still holds its graph: keep it, and you keep every step that led to it"
        kind = f"a tensor{graph if value.requires_grad else ''}"
        raise Incorrect(f"{what} is {kind}.", "a Python number", value, "`.item()` takes the number out")
    return plain


def plain_number(value: Any) -> float | None:
    """A number or a tensor of one element as a float; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, Tensor)):
        return None
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # many elements, complex, far too large
        return None


CHANGES = {  # what `changes` can find, in words for a sentence
    "layers": "the layers of the model",
    "modes": "the mode of the model (train or eval)",
    "weights": "the values of the model",
    "gradients": "the gradients of the model",
    "requires_grad": "`requires_grad` of the parameters",
    "batches": "the batches that it gets",
    "switch": "the gradient mode (`torch.is_grad_enabled()`)",
}


def changes(
    model: nn.Module, start: nn.Module, batches: Sequence[Batch] = (), before: Sequence[Batch] = ()
) -> list[str]:
    """What is not as it was, as keys of CHANGES. With other layers, nothing else is compared."""
    now, then = model.state_dict(), start.state_dict()
    shapes, old_shapes = ({name: value.shape for name, value in state.items()} for state in (now, then))
    if shapes != old_shapes or [type(m) for m in model.modules()] != [type(m) for m in start.modules()]:
        return ["layers"]
    parameters, old_parameters = [*model.parameters()], [*start.parameters()]
    found = {
        "modes": [m.training for m in model.modules()] != [m.training for m in start.modules()],
        "weights": not equal(now, then),
        "gradients": not equal([p.grad for p in parameters], [p.grad for p in old_parameters]),
        "requires_grad": [p.requires_grad for p in parameters] != [p.requires_grad for p in old_parameters],
        "batches": not equal(list(batches), list(before)),
        "switch": not torch.is_grad_enabled(),
    }
    return [name for name, differs in found.items() if differs]


# Losses and networks: gradients, functions, what layers compute


def with_gradient(answer: Callable, x: Tensor, *others: Any) -> tuple[Any, Tensor | None]:
    """What the answer returns for an `x` that requires a gradient, and the gradient of its sum; None if none flows."""
    x = x.clone().requires_grad_()
    result = call(answer, x, *copy.deepcopy(others), may_change=True)  # x itself: no gradient arrives at a copy
    if not isinstance(result, Tensor) or not result.requires_grad:
        return result, None
    return result.detach(), torch.autograd.grad(result.sum(), x, allow_unused=True)[0]


def functions(answer: Callable, *inputs: Any) -> list[str]:
    """The names of PyTorch's functions that the answer calls itself, each once."""
    with _NameFunctions() as named:
        call(answer, *inputs)
    return sorted(named.names)


class _NameFunctions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.names.add(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))
