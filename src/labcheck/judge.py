"""Judge an answer: one of six outcomes, whatever the answer does.

correct         with one sentence of what to take away
not attempted   the answer is still the stub
incorrect       what was expected, what your answer gave, where to look
error           the answer raised: the student's own line and message
not checked     this machine lacks what the check needs, such as a compiler
unknown         there is no such exercise
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from labcheck import exercise, switches
from labcheck.answer import RemoteAnswer, attempted, line_of
from labcheck.inputs import Inputs
from labcheck.show import Result, show
from labcheck.verdict import AnswerRaised, Incorrect, NotAttempted, NotHere, TooSlow

STARVED = 3  # times an exercise's seconds may pass by the clock, where other programs take the processor


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
    found = exercise.find(name)
    if found is None:
        return Result(name, "unknown", f'There is no exercise "{name}".', look=exercise.nearest(name))
    inputs = Inputs(int.from_bytes(os.urandom(6), "big") if seed is None else seed)
    try:
        worked = answer.worked if isinstance(answer, RemoteAnswer) else time.process_time
        with _time_limit(found.seconds, worked):
            attempted(answer)
            found.judge(answer, inputs)
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
            f"Your code was still running after {found.seconds:g} seconds and was stopped.",
            look="a loop that never ends, or with far too many steps; a Python loop over every element",
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
    return Result(name, "correct", found.takeaway)


@contextlib.contextmanager
def _time_limit(seconds: float, worked: Callable[[], float] = time.process_time) -> Iterator[None]:
    """Raise TooSlow after some seconds. Needs SIGALRM and the main thread, where notebooks run; elsewhere no limit.

    On a machine that is busy with other programs, an answer gets more: until it has had that many seconds of a
    processor, or STARVED times as many have passed. A library that it imports is not stopped halfway: PyTorch's
    compiler could not be imported again in this process.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    wall, before_it = time.monotonic(), worked()

    def stop(signum: int, frame: Any) -> None:
        passed = time.monotonic() - wall
        halfway = any("importlib" in each.f_code.co_filename for each, _ in traceback.walk_stack(frame))
        late = worked() - before_it >= seconds or passed >= STARVED * seconds
        if late and (not halfway or passed >= 10 * STARVED * seconds):
            raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    # Again every second: a bare `except:` in the answer may swallow the first alarm.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _error_result(name: str, error: BaseException) -> Result:
    said = textwrap.shorten(str(error), 300, placeholder=" ...")  # what helps is often in PyTorch's second line
    message, look = f"Your code raised {type(error).__name__}: {said}".rstrip(": "), None
    if re.search("no NVIDIA driver|not compiled with CUDA", said):  # the rest says where to download a driver
        message = "Your code asks for an NVIDIA GPU, and PyTorch finds none here."
        look = '`.cuda()` or "cuda" in your code: use the `device` that you are given, or that of your tensors'
    return Result(name, "error", message, yours=line_of(error), look=look)
