"""The student's answer: calling it, watching it, and telling its stub from an attempt.

A judge meets an answer through `call` and `observe` alone, so the answer may live in another process.
"""

from __future__ import annotations

import contextlib
import copy
import dis
import functools
import inspect
import linecache
import os
import sys
import time
import traceback
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import torchcourse
from labcheck.compare import equal
from labcheck.exercise import labs
from labcheck.verdict import AnswerRaised, Incorrect, NotAttempted, not_none
from torchcourse.predict import is_open


class RemoteAnswer:
    """Takes the place of an answer in another process: `call` and `observe` reach the answer through it.

    That is how `make grade` keeps an answer away from what it is compared with.

    worked: a function that returns the seconds of processor time that the other process has had until now
    """

    worked: Callable[[], float] = staticmethod(time.process_time)

    def observe(self, probe: Callable, *args: Any, **kwargs: Any) -> Any:
        """What `probe(answer, *args, **kwargs)` returns there, as plain data; raises what it raises there.

        Plain data: None, numbers, strings, bytes, dtypes, tensors, arrays, and lists, tuples and dicts of these.
        Anything else arrives as a `Foreign`.
        """
        raise NotImplementedError


def is_stub(function: Any) -> bool:
    """Tell whether the body of a function is empty but for its docstring, `...` or `pass`.

    Looks at the bytecode, which is there also when the source is not: a stub does nothing but return None.
    """
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return code is not None and _does_nothing(code)


@functools.lru_cache(maxsize=4096)  # a check calls the answer, and each wrong solution, in several cases
def _does_nothing(code: types.CodeType) -> bool:
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("RESUME", "NOP", "COPY_FREE_VARS")]
    does_nothing = all(step.opname in ("LOAD_CONST", "RETURN_CONST", "RETURN_VALUE") for step in steps)
    return does_nothing and all(step.argval is None for step in steps if step.opname in ("LOAD_CONST", "RETURN_CONST"))


def attempted(answer: Any) -> Any:
    """The answer itself; raises NotAttempted while it is the stub."""
    if isinstance(answer, RemoteAnswer):
        answer.observe(_attempted_there)
        return answer
    if not isinstance(answer, dict) and is_open(answer):
        raise NotAttempted
    if isinstance(answer, tuple) and all(map(callable, answer)):
        empty = [part.__name__ for part in answer if is_stub(part)]
        if empty:
            raise NotAttempted("" if len(empty) == len(answer) else f"Your function `{empty[0]}` is still empty.")
    if isinstance(answer, dict):
        still_open = [key for key, value in answer.items() if is_open(value)]
        if still_open and len(still_open) == len(answer):
            raise NotAttempted
        if still_open:
            raise Incorrect(f'"{still_open[0]}" is still open.', look="the dots: replace all of them")
    if inspect.isclass(answer):
        unwrapped = {name: getattr(value, "__func__", value) for name, value in vars(answer).items()}  # static methods
        own = {name: value for name, value in unwrapped.items() if inspect.isfunction(value)}
        empty = [name for name, value in own.items() if is_stub(value)]
        if empty and len(empty) == len(own):
            raise NotAttempted
        if empty and set(own) <= {*empty, "__init__"}:  # the lab may have given the lines of __init__
            raise NotAttempted(f"The method `{empty[0]}` of your class is still empty.")
        if empty:
            raise Incorrect(f"The method `{empty[0]}` of your class is still empty.", look=f"`def {empty[0]}`")
    elif is_stub(answer):
        raise NotAttempted
    return comparable(answer)


def _attempted_there(answer: Any) -> None:
    attempted(answer)


# What a user's class may define to decide what its objects equal.
COMPARING = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__sub__", "__rsub__", "__torch_function__")
LIBRARIES = ("collections", "numpy", "torch", "torchvision", "torchcourse")
DIMENSIONS = 64  # as many as NumPy's arrays may have; with very many, C functions of both libraries crash
MADE_IN_PYTHON = 1 << 9  # the flag of a class that a `class` statement made (Py_TPFLAGS_HEAPTYPE)


def comparable(value: Any) -> Any:
    """The value itself; raises Incorrect if a part of it cannot be compared.

    That is an object with its own idea of equality (`unittest.mock.ANY`, say), or a tensor of too many dimensions.
    """
    if isinstance(value, torch.Tensor) and value.dim() > DIMENSIONS:
        raise Incorrect("Your tensor has too many dimensions.", f"at most {DIMENSIONS}", str(value.dim()))
    if isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            comparable(part)
    for kind in type(value).__mro__:
        module = kind.__module__ or ""
        known = module.partition(".")[0] in LIBRARIES and getattr(sys.modules.get(module), kind.__name__, None) is kind
        if known or not kind.__flags__ & MADE_IN_PYTHON:
            continue
        if isinstance(value, torch.Tensor) or any(name in vars(kind) for name in COMPARING):
            raise Incorrect(
                "Your result is of a class that says itself what it equals, so it cannot be compared.",
                "an ordinary tensor, number, list or text",
                f"an object of the class {kind.__name__}",
            )
    return value


def call(answer: Any, *args: Any, may_change: bool = False, may_return_none: bool = False, **kwargs: Any) -> Any:
    """What the student's function (or class) returns for copies of these arguments.

    Raises NotAttempted for a stub, AnswerRaised when it raises, and Incorrect when it is not a function, returns None
    (unless may_return_none), or changed its arguments (unless may_change: then it gets the arguments themselves).
    """
    if isinstance(answer, RemoteAnswer):
        return answer.observe(call, *args, may_change=may_change, may_return_none=may_return_none, **kwargs)
    attempted(answer)
    if not callable(answer):
        raise Incorrect(
            "Your answer is not a function.",
            expected="the function itself, without parentheses",
            yours=answer,
            look="the call of `check`",
        )
    given, named = (args, kwargs) if may_change else copy.deepcopy((args, kwargs))
    try:
        result = answer(*given, **named)
    except NotImplementedError as error:
        if raised_by_hand(error):  # `raise NotImplementedError` is a stub too
            raise NotAttempted from None
        raise AnswerRaised(error) from error
    except (Exception, SystemExit) as error:
        raise AnswerRaised(error) from error
    if not may_change and not equal((args, kwargs), (given, named)):
        raise Incorrect(
            "Your function changed its argument, so the caller has lost the original values.",
            expected="a new result, the argument left as it was",
            yours="the argument is different after the call",
            look="what works in place: methods that end in an underscore (`add_`), `+=`, assignments to elements "
            "or slices, `append`, `pop`, `sort`, `del`; work on a copy",
        )
    if result is ...:
        raise NotAttempted
    if not may_return_none:
        not_none(result)
    return comparable(result)


def observe(answer: Any, probe: Callable, *args: Any, **kwargs: Any) -> Any:
    """What `probe(answer, *args, **kwargs)` returns: the way to watch an answer while it works.

    A judge puts into `probe` what has to be close to the answer (counting steps, looking at random generators), and
    into its own body what the answer is compared with: in grading, the probe runs in the process of the answer and the
    judge in another one. The probe is a function of a module; it returns plain data.
    """
    if isinstance(answer, RemoteAnswer):
        return answer.observe(probe, *args, **kwargs)
    return probe(answer, *args, **kwargs)


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return list(traceback.extract_tb(error.__traceback__))


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of the student's own code: not ours, and not those of installed libraries."""
    return [frame for frame in _frames(error) if is_students(frame.filename)]


@functools.cache
def is_students(filename: str) -> bool:
    """Tell whether a file (or a notebook's cell) is the student's: not ours, not an installed library, not Python's."""
    course = [torchcourse.__file__, __file__, *([package.__file__] if (package := labs()) else [])]
    installed = (os.path.dirname(os.path.dirname(os.path.abspath(module.__file__))) for module in (torch, np))
    python = os.path.dirname(os.path.abspath(contextlib.__file__))
    folders = (*map(os.path.dirname, course), *installed, python)
    return not filename.startswith(("<frozen ", *(f"{folder}{os.sep}" for folder in folders)))


def raised_by_hand(error: BaseException) -> bool:
    """Tell whether a `raise` statement of the student's raised it.

    PyTorch raises NotImplementedError too, for `torch.rand(2, dtype=torch.long)` say. Its C++ has no frames, so the
    last frame is the student's in both cases; the last instruction tells them apart.
    """
    last = error.__traceback__
    while last.tb_next:
        last = last.tb_next
    statement = dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]]
    return statement == "RAISE_VARARGS" and _own_frames(error)[-1:] == _frames(error)[-1:]


def line_of(error: BaseException) -> str | None:
    """The last line of the student's own code that an error came through, with its number."""
    own = _own_frames(error)
    if not own:
        return getattr(error, "line_elsewhere", None)  # of an answer in another process
    source = linecache.getline(own[-1].filename, own[-1].lineno or 0).strip() or own[-1].line
    return f"line {own[-1].lineno}: {source}" if source else f"line {own[-1].lineno}"
