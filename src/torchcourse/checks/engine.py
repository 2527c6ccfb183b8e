"""How a check works: from the student's answer to one of five outcomes.

    correct         with one sentence of what to take away
    not attempted   the answer is still the stub
    incorrect       what was expected, what your answer gave, where to look
    error           the answer raised: the student's own line and message
    not checked     this machine lacks what the check needs, such as a compiler

A chapter's module declares its exercises with the decorator that `chapter(...)` returns. The decorated function gets
the answer and fresh random inputs, and raises `Incorrect` when something is wrong; `call`, `mistake` and `same` do that
for it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import difflib
import dis
import functools
import importlib
import inspect
import linecache
import os
import pkgutil
import re
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchcourse import board, standing
from torchcourse.checks import switches
from torchcourse.checks.show import Result, render_progress, show, show_result
from torchcourse.predict import is_open

if TYPE_CHECKING:
    from torchcourse.checks.spec import Spec

TIME_LIMIT = 10.0  # seconds for one answer
STARVED = 3  # times as many, where other programs take the processor


@dataclass(frozen=True)
class Exercise:
    """One exercise: what the lab says about it, and the function that judges an answer."""

    name: str
    chapter: str
    title: str
    minutes: int
    difficulty: int  # 1 (a line) to 5 (takes thinking)
    points: int
    takeaway: str
    hints: tuple[str, ...]
    judge: Callable[[Any, Inputs], None]  # meets the answer through `call` and `observe` alone: see `Elsewhere`
    few_mistakes: str | None = None  # why there are fewer than three named mistakes
    seconds: float = TIME_LIMIT

    @property
    def spec(self) -> Spec | None:
        """The specification of an exercise; None if its judge is a procedure."""
        from torchcourse.checks.spec import Spec  # it imports this module

        return self.judge if isinstance(self.judge, Spec) else None


EXERCISES: dict[str, Exercise] = {}
current_chapter: str | None = None  # set by torchcourse.setup

HELP = "Still stuck? Go back to the lectures, or ask the person next to you."  # when the hints are used up

STATES = {  # outcome -> what it means for the student's progress
    "correct": standing.CORRECT,
    "not attempted": standing.NOT_STARTED,
    "not checked": standing.NOT_STARTED,
    "incorrect": standing.TRYING,
    "error": standing.TRYING,
}

_latest: dict[str, Result] = {}  # exercise -> the latest result of this session
_attempts: dict[str, int] = {}
_hints_given: dict[str, int] = {}


def chapter(name: str) -> Callable[..., Callable]:
    """What declares the exercises of chapter `name`, for example "01_tensors".

    Use it as the decorator of a judge, or pass `spec=Spec(…)`.
    """

    def exercise(
        exercise_name: str,
        *,
        title: str,
        minutes: int,
        difficulty: int,
        points: int,
        takeaway: str,
        hints: Sequence[str],
        few_mistakes: str | None = None,
        seconds: float = TIME_LIMIT,
        spec: Spec | None = None,
    ) -> Callable:
        def declare(judge: Callable[[Any, Inputs], None]) -> Callable[[Any, Inputs], None]:
            other = EXERCISES.get(exercise_name)
            if other and other.chapter != name:
                raise ValueError(f'Two exercises are called "{exercise_name}": in {other.chapter} and in {name}.')
            EXERCISES[exercise_name] = Exercise(
                exercise_name,
                name,
                title,
                minutes,
                difficulty,
                points,
                takeaway,
                tuple(hints),
                judge,
                few_mistakes,
                seconds,
            )
            return judge

        return declare(spec) if spec else declare

    return exercise


def load_chapters() -> dict[str, Exercise]:
    """All exercises by name. The chapters' modules are imported at the first call, which takes seconds."""
    package = importlib.import_module("torchcourse.checks")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name != "rank_server":  # a program of its own, which imports what no exercise needs
            importlib.import_module(f"torchcourse.checks.{module.name}")
    return EXERCISES


def load_chapter(name: str) -> dict[str, Exercise]:
    """The exercises of one chapter, for example "01_tensors", by name; none if there is no such chapter."""
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(f"torchcourse.checks.{name.partition('_')[2]}")
    return {each.name: each for each in EXERCISES.values() if each.chapter == name}


def find(name: str) -> Exercise | None:
    """The exercise of this name, if there is one. Looks in this notebook's chapter first: that imports one module."""
    if name not in EXERCISES and current_chapter:
        load_chapter(current_chapter)
    return EXERCISES.get(name) or load_chapters().get(name)


# ---------------------------------------------------------------------------------------------------------------------
# What a judge raises and calls


UNSAID = object()  # tells "nothing to say" from the value None


class Incorrect(Exception):
    """The answer is wrong: `problem` says how, the rest what was expected, what came, and where to look.

    misconception: its key in `Spec.misconceptions`, if it is a known one
    """

    def __init__(
        self,
        problem: str,
        expected: Any = UNSAID,
        yours: Any = UNSAID,
        look: str | None = None,
        misconception: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem, self.look, self.misconception = problem, look, misconception
        self.expected, self.yours = (
            None if value is UNSAID else value if isinstance(value, str) else show(value) for value in (expected, yours)
        )


class NotAttempted(Exception):
    """The answer is still the stub."""


class NotHere(Exception):
    """This machine lacks what the check needs. The message says what, and what to do."""


class AnswerRaised(Exception):
    """The student's code raised `error`; kept apart from mistakes in the check itself."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Elsewhere:
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


class TooSlow(BaseException):
    """The time is up. Not an Exception, so that an `except Exception` in the answer does not swallow it."""


class Inputs:
    """Fresh random inputs for one check, from a generator of its own: the global random state stays as it is."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def size(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def sizes(self, count: int, low: int, high: int) -> list[int]:
        """`count` different integers from low to high: no two axes can be mixed up without being noticed."""
        return [low + int(i) for i in torch.randperm(high - low + 1, generator=self.generator)[:count]]

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of the choices."""
        return choices[self.size(0, len(choices) - 1)]

    def rand(self, *shape: int) -> torch.Tensor:
        """float32 tensor, uniform from 0 to 1."""
        return torch.rand(*shape, generator=self.generator)

    def randn(self, *shape: int) -> torch.Tensor:
        """float32 tensor, normally distributed."""
        return torch.randn(*shape, generator=self.generator)

    def ints(self, low: int, high: int, shape: Sequence[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Integer tensor, from low up to high - 1."""
        return torch.randint(low, high, tuple(shape), generator=self.generator, dtype=dtype)

    def images(self, n: int, channels: int, height: int, width: int) -> torch.Tensor:
        """uint8 tensor [N, C, H, W], values 0 to 255; 0 and 255 occur."""
        pixels = self.ints(0, 256, (n, channels, height, width), torch.uint8)
        pixels.view(-1)[0], pixels.view(-1)[-1] = 0, 255
        return pixels

    def permutation(self, n: int) -> torch.Tensor:
        """int64 tensor [n]: 0 to n - 1 in random order."""
        return torch.randperm(n, generator=self.generator)


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
    if isinstance(answer, Elsewhere):
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

    Raises NotAttempted for a stub, AnswerRaised when it raises, and Incorrect when it is no function, returns None
    (unless may_return_none), or changed its arguments (unless may_change: then it gets the arguments themselves).
    """
    if isinstance(answer, Elsewhere):
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
        if _raised_by_hand(error):  # `raise NotImplementedError` is a stub too
            raise NotAttempted from None
        raise AnswerRaised(error) from error
    except (Exception, SystemExit) as error:
        raise AnswerRaised(error) from error
    if not may_change:
        for before, after in zip((*args, *kwargs.values()), (*given, *named.values()), strict=True):
            if not _equal(before, after):
                raise Incorrect(
                    "Your function changed its argument, so the caller has lost the original values.",
                    expected="a new result, the argument left as it was",
                    yours="the argument is different after the call",
                    look=_in_place(before, after),
                )
    if result is ...:
        raise NotAttempted
    if not may_return_none:
        not_none(result)
    return comparable(result)


def _in_place(before: Any, after: Any) -> str:
    if isinstance(after, list | dict | set) and (len(before) != len(after) or not _holds_tensors(after)):
        return "what works in place: `append`, `pop`, `sort`, `del`, or an assignment to an element; work on a copy"
    return "what works in place: methods that end in an underscore (`add_`), `+=`, assignments to slices"


def _holds_tensors(container: list | dict | set) -> bool:
    values = container.values() if isinstance(container, dict) else container
    return any(isinstance(value, torch.Tensor | np.ndarray) for value in values)


def not_none(result: Any) -> None:
    """Raise Incorrect for None: the usual sign of a forgotten `return`."""
    if result is None:
        raise Incorrect("Your function returned None.", look="is there a `return` at its end?")


def observe(answer: Any, probe: Callable, *args: Any, **kwargs: Any) -> Any:
    """What `probe(answer, *args, **kwargs)` returns: the way to watch an answer while it works.

    A judge puts into `probe` what has to be close to the answer (counting steps, looking at random generators), and
    into its own body what the answer is compared with: in grading, the probe runs in the process of the answer and the
    judge in another one. The probe is a function of a module; it returns plain data.
    """
    if isinstance(answer, Elsewhere):
        return answer.observe(probe, *args, **kwargs)
    return probe(answer, *args, **kwargs)


def mistake(yours: Any, wrong: Any, problem: str, look: str | None = None) -> None:
    """If `yours` equals `wrong`, the result of a mistake we know: raise Incorrect with its message."""
    if _equal(yours, wrong, close=True):
        raise Incorrect(problem, look=look)


def same(
    yours: Any,
    expected: Any,
    what: str = "Your result",
    dtype: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    look: str | None = None,
) -> None:
    """Raise Incorrect unless `yours` equals `expected`: type, then shape, then dtype, then values.

    dtype: False accepts every dtype (values are compared as float64). Tensors may be on any device.
    """
    if not isinstance(expected, torch.Tensor):
        _same_value(yours, expected, what, rtol, atol, look)
        return
    if not isinstance(yours, torch.Tensor):
        raise Incorrect(f"{what} is not a tensor.", "a tensor", show(yours), look)
    if yours.is_meta or yours.layout != torch.strided:
        raise Incorrect(f"{what} is a tensor without readable values.", "an ordinary tensor", show(yours), look)
    if yours.shape != expected.shape:
        raise Incorrect(f"{what} has the wrong shape.", tuple(expected.shape), tuple(yours.shape), look)
    if dtype and yours.dtype != expected.dtype:
        raise Incorrect(f"{what} has the wrong dtype.", str(expected.dtype), str(yours.dtype), look)
    a, b = _comparable(yours), _comparable(expected)
    a, b = (a, b.to(a.dtype)) if a.is_complex() else (a.to(b.dtype), b)
    near = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if not near.all():
        where = tuple(int(i) for i in (~near).nonzero()[0])
        place = f" at index {list(where)}" if where else ""
        differ = f"has the right shape, but {int((~near).sum())} of {near.numel()} values differ"
        raise Incorrect(
            f"{what} {differ if near.numel() > 1 else 'is not right'}.",
            f"{b[where].item():.5g}{place}",
            f"{a[where].item():.5g}{place}",
            look,
        )


def _same_value(yours: Any, expected: Any, what: str, rtol: float, atol: float, look: str | None) -> None:
    if isinstance(expected, (int, float)) and not isinstance(expected, bool):
        if (isinstance(yours, torch.Tensor) and yours.numel() == 1) or isinstance(yours, np.number):
            yours = yours.item()
        if isinstance(yours, bool) or not isinstance(yours, (int, float)):
            raise Incorrect(f"{what} is not a number.", show(expected), show(yours), look)
        if abs(yours - expected) <= atol + rtol * abs(expected):
            return
    elif isinstance(expected, (tuple, list, torch.Size)):
        if isinstance(yours, (tuple, list, torch.Size)) and list(yours) == list(expected):
            return
    elif type(yours) is type(expected) and yours == expected:
        return
    raise Incorrect(f"{what} is not right.", show(expected), show(yours), look)


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, in a dtype that holds the integers and floats of the course exactly; complex stays complex."""
    tensor = tensor.detach().cpu()
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _equal(a: Any, b: Any, close: bool = False) -> bool:
    """True if two values are equal; `close` allows for rounding and other dtypes. Never raises."""
    try:
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            if a.shape != b.shape or not (close or a.dtype == b.dtype):
                return False
            return torch.allclose(_comparable(a), _comparable(b), rtol=1e-4 * close, atol=1e-5 * close, equal_nan=True)
        if isinstance(b, torch.Tensor) or (isinstance(a, torch.Tensor) and not (close and isinstance(b, (int, float)))):
            return False
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return a.shape == b.shape and bool(np.array_equal(a, b))
        if isinstance(a, torch.nn.Module) and isinstance(b, torch.nn.Module):
            first, second = a.state_dict(), b.state_dict()
            return first.keys() == second.keys() and all(_equal(first[key], second[key]) for key in first)
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            return len(a) == len(b) and all(_equal(x, y, close) for x, y in zip(a, b, strict=True))
        if isinstance(a, dict) and isinstance(b, dict):
            return a.keys() == b.keys() and all(_equal(a[key], b[key], close) for key in a)
        if close and isinstance(a, torch.Tensor) and a.numel() == 1 and isinstance(b, (int, float)):
            return abs(a.item() - b) <= 1e-5 + 1e-4 * abs(b)
        if close and isinstance(a, float | int) and isinstance(b, float | int):
            return abs(a - b) <= 1e-5 + 1e-4 * abs(b)
        if isinstance(a, (str, bytes, int, float, complex, bool, type(None))):
            return type(a) is type(b) and (a == b or a != a)
    except Exception:
        return False
    return not close  # objects that we cannot look into count as unchanged, and never as a known mistake


# ---------------------------------------------------------------------------------------------------------------------
# Judging


def evaluate(name: str, answer: Any, seed: int | None = None) -> Result:
    """Judge an answer and return the Result, without showing it. Raises nothing, whatever the answer does.

    seed: of the random inputs; None takes a fresh one, so that no result can be hard-coded
    """
    with switches.neutral() as seen:
        result = _evaluate(name, answer, seed)
    if seen.left_on and result.correct:  # the mode has seen the comparison, too
        problem = f"Your answer leaves {seen.left_on[0]} switched on, which may change all that comes after it."
        look = "a `with` block switches it off again"
        return dataclasses.replace(result, outcome="incorrect", message=problem, look=look)
    if seen.changed and result.outcome in ("incorrect", "error"):
        note = f"The check runs with PyTorch's defaults. Your notebook has changed: {', '.join(seen.changed)}."
        return dataclasses.replace(result, footer=note)
    return result


def _evaluate(name: str, answer: Any, seed: int | None) -> Result:
    exercise = find(name)
    if exercise is None:
        return Result(name, "unknown", f'There is no exercise "{name}".', look=_nearest(name, EXERCISES))
    inputs = Inputs(int.from_bytes(os.urandom(6), "big") if seed is None else seed)
    try:
        worked = answer.worked if isinstance(answer, Elsewhere) else time.process_time
        with _time_limit(exercise.seconds, worked):
            attempted(answer)
            exercise.judge(answer, inputs)
    except NotAttempted as stub:
        what = str(stub) or "Write your answer in the cell above, run it, then run this cell again."
        return Result(name, "not attempted", what)
    except NotHere as missing:
        return Result(name, "not checked", str(missing))
    except Incorrect as wrong:
        said = (wrong.problem, wrong.expected, wrong.yours, wrong.look)
        return Result(name, "incorrect", *said, misconception=wrong.misconception)
    except AnswerRaised as raised:
        return _error_result(name, raised.error)
    except TooSlow:
        return Result(
            name,
            "error",
            f"Your code was still running after {exercise.seconds:g} seconds and was stopped.",
            look="a loop that never ends, or a Python loop over every element",
        )
    except Exception as error:  # the judge met something that it did not expect from a wrong answer
        return Result(
            name,
            "incorrect",
            "Your answer is of a kind that this check cannot work with.",
            yours=show(answer),
            look=f"the description of the exercise ({type(error).__name__}: {error})",
            judge_failed=error,
        )
    return Result(name, "correct", exercise.takeaway)


def check(name: str, answer: Any) -> None:
    """Judge an answer and show the outcome under the cell: HTML in Jupyter, text elsewhere.

    name: of the exercise
    answer: a function, a class or a value, as the exercise says
    Raises nothing, except AssertionError when nbgrader runs the notebook: there, only "correct" earns the points.
    """
    result = evaluate(name, answer)
    if name in EXERCISES:
        _latest[name] = result
        _attempts[name] = _attempts.get(name, 0) + (not result.outcome.startswith("not "))
    footer = " ".join(filter(None, [result.footer, _what_next(name, result.outcome)]))
    show_result(dataclasses.replace(result, footer=footer))
    if os.environ.get("NBGRADER_EXECUTION"):
        if result.outcome != "correct":
            raise AssertionError(result.text)
    elif name in EXERCISES:
        found = standing.Report(name, STATES[result.outcome], result.misconception)
        standing.keep(found)
        board.send(found)


def _what_next(name: str, outcome: str) -> str:
    """The last line below a verdict: how far along you are, or where to get help."""
    if outcome == "correct":
        lab = load_chapter(EXERCISES[name].chapter)
        done = sum(each in _latest and _latest[each].correct for each in lab)
        return f"{done} of {len(lab)} exercises correct in this session."
    if outcome not in ("incorrect", "error"):
        return ""
    if _hints_given.get(name, 0) < len(EXERCISES[name].hints):
        return f'Stuck? Run `hint("{name}")` in a new cell.'
    return f"You have seen all hints. {HELP}"


def hint(name: str) -> None:
    """Show a hint; called again, the next one, from the idea to almost the code."""
    exercise = find(name)
    if exercise is None:
        show_result(Result(name, "unknown", f'There is no exercise "{name}".', look=_nearest(name, EXERCISES)))
        return
    hints = exercise.hints
    number = _hints_given.get(name, 0)
    _hints_given[name] = number + 1
    if number < len(hints):
        last = number + 1 == len(hints)
        more = f"That was the last one. {HELP}" if last else f'Run `hint("{name}")` again for the next one.'
        show_result(Result(name, f"hint {number + 1} of {len(hints)}", hints[number], look=None, footer=more))
    else:
        _hints_given[name] = 0
        show_result(Result(name, "hint", f"There are no more hints: the next call starts over. {HELP}"))


def progress(chapter: str | None = None) -> None:
    """Show which exercises of a chapter are done in this session.

    chapter: for example "01_tensors"; None means the chapter of this notebook.
    """
    chapter = chapter or current_chapter
    chosen = (load_chapter(chapter) if chapter else load_chapters()).values()
    rows = [
        (e.name, e.title, _latest[e.name].outcome if e.name in _latest else "not attempted", _attempts.get(e.name, 0))
        for e in chosen
    ]
    points = sum(e.points for e in chosen if e.name in _latest and _latest[e.name].outcome == "correct")
    render_progress(rows, points, sum(e.points for e in chosen))


def _nearest(name: str, exercises: dict[str, Exercise]) -> str:
    here = [e.name for e in exercises.values() if current_chapter in (None, e.chapter)]
    near = difflib.get_close_matches(str(name), list(exercises), n=1, cutoff=0.5)
    return f'did you mean "{near[0]}"?' if near else "the exercises here are " + ", ".join(here)


@contextlib.contextmanager
def _time_limit(seconds: float, worked: Callable[[], float] = time.process_time) -> Iterator[None]:
    """Raise TooSlow after some seconds. Needs SIGALRM and the main thread, where notebooks run; elsewhere no limit.

    On a machine that is busy with other programs, an answer gets more: until it has had that many seconds of a
    processor, or STARVED times as many have passed.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    wall, before_it = time.monotonic(), worked()

    def stop(signum: int, frame: Any) -> None:
        if worked() - before_it >= seconds or time.monotonic() - wall >= STARVED * seconds:
            raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    # Again every second: a bare `except:` in the answer may swallow the first alarm.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return list(traceback.extract_tb(error.__traceback__))


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of the student's own code: not ours, and not those of installed libraries."""
    return [frame for frame in _frames(error) if is_students(frame.filename)]


@functools.cache
def is_students(filename: str) -> bool:
    """Tell whether a file (or a notebook's cell) is the student's: not ours, not an installed library, not Python's."""
    ours = os.path.dirname(os.path.dirname(__file__))
    installed = (os.path.dirname(os.path.dirname(os.path.abspath(module.__file__))) for module in (torch, np))
    python = os.path.dirname(os.path.abspath(contextlib.__file__))
    return not filename.startswith(("<frozen ", *(folder + os.sep for folder in (ours, *installed, python))))


def _raised_by_hand(error: BaseException) -> bool:
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


def _error_result(name: str, error: BaseException) -> Result:
    said = str(error).splitlines()[0] if str(error) else ""
    message, look = f"Your code raised {type(error).__name__}: {said}".rstrip(": "), None
    if re.search("no NVIDIA driver|not compiled with CUDA", said):  # the rest says where to download a driver
        message = "Your code asks for an NVIDIA GPU, and PyTorch finds none here."
        look = '`.cuda()` or "cuda" in your code: use the `device` that you are given, or that of your tensors'
    return Result(name, "error", message, yours=line_of(error), look=look)
