"""The last minute of a job: a signal comes in the middle of a step, and all ranks save and stop together."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from labcheck import ranks
from labcheck.authoring import AnswerRaised, Exercise, Inputs, same, show, wrong_if

AGAIN = 75
WRITES = 0.5  # seconds that rank 0 takes to save: long enough that a rank that does not wait leaves before


def draw(rng: Inputs) -> list[tuple]:
    """first, last, and the signals: (rank, name, "step" or "save", the number of the step)"""
    first, at = rng.size(0, 40), [rng.size(1, 3) for _ in range(3)]
    return [
        (first, first + 6, [(1, "SIGUSR1", "step", first + at[0])]),
        (first, first + 6, [(0, "SIGTERM", "step", first + at[1])]),
        (first, first + 3, []),
        (first, first + 6, [(0, "SIGUSR1", "step", first + at[2]), (0, "SIGTERM", "save", first + at[2] + 1)]),
    ]


def solution(step: Callable, save: Callable, first: int, last: int) -> int:
    asked = []
    for number in (signal.SIGTERM, getattr(signal, "SIGUSR1", signal.SIGTERM)):  # Windows has no SIGUSR1
        signal.signal(number, lambda number, frame: asked.append(number))
    for number in range(first, last):
        step(number)
        stop = torch.tensor(float(len(asked)))
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if stop:
            save(number + 1)
            dist.barrier()
            return AGAIN
    save(last)
    dist.barrier()
    return 0


class Stopped(BaseException):
    """Ends the answer where a signal would end its process, or where it does what it should not."""


def training(answer: Callable, first: int, last: int, signals: list[tuple]) -> dict[str, Any]:
    """On a rank: what the answer does; saved, left: when. One clock for all processes of a machine."""
    me, inside = dist.get_rank(), []
    seen: dict[str, Any] = {"steps": [], "saves": [], "saved": 0.0}

    def send_signals(place: str, at: int) -> None:
        for name in (name for rank, name, where, when in signals if (rank, where, when) == (me, place, at)):
            number = getattr(signal, name)
            if signal.getsignal(number) in (signal.SIG_DFL, None):
                raise Stopped(f"{name} ends the process of rank {me} in the middle of a {place}")
            os.kill(os.getpid(), number)

    def step(number: int) -> None:
        inside.append(number)
        send_signals("step", number)
        dist.all_reduce(torch.ones(3))
        seen["steps"].append(int(number))
        inside.clear()

    def save(number: int) -> None:
        if inside:
            raise Stopped("your handler calls `save` in the middle of a step")
        seen["saves"].append(int(number))
        send_signals("save", number)
        time.sleep(0.0 if me else WRITES)
        seen["saved"] = time.monotonic()

    try:
        code = answer(step, save, first, last)
    except SystemExit as leaves:
        if inside:
            raise RuntimeError("your handler leaves in the middle of a step") from None
        code = leaves.code
    except Stopped as stopped:
        raise RuntimeError(str(stopped)) from None
    return seen | {"left": time.monotonic(), "code": code if type(code) is int else show(code)}


def judge(answer: Any, rng: Inputs) -> None:
    for case in draw(rng):
        judge_case(answer, *case)


def judge_case(answer: Any, first: int, last: int, signals: list[tuple]) -> None:
    came = next((f"{name} for rank {rank} in step {at}" for rank, name, _, at in signals), "no signal")
    stop = signals[0][3] + 1 if signals else last
    look = "each rank has to learn whether any rank got a signal: the same collective on every rank, after each step"
    try:
        seen = ranks.observe(answer, training, first, last, signals, look=look)
    except AnswerRaised as raised:
        said = str(raised).partition(" (on rank")[0]
        wrong_if(
            "ends the process" in said,
            "killed",
            f"{said}: your function does not handle it there.",
            look="`signal.signal(…)` for SIGTERM and SIGUSR1; more signals may come, so keep the handlers to the end",
        )
        wrong_if(
            "your handler" in said,
            "inside_a_step",
            f"With {came}, {said}: there, some weights may be old and others new.",
            look="the handler only remembers; after the step, the loop saves and stops",
        )
        raise
    wrong_if(
        signals and all(one["steps"] == [*range(first, last)] for one in seen),
        "ignored",
        f"Nothing stops: there was {came}, and all steps are made. A signal on one rank is enough.",
        look="the handler, and how the ranks agree: an all-reduce with MAX hears every rank, a broadcast only one",
    )
    for rank, one in enumerate(seen):
        given = f"on rank {rank}, with {came}"
        same(one["steps"], [*range(first, stop)], f"The list of steps {given},")
        saved = "`save` gets the number of the step that comes next, once, on every rank, also at the end"
        same(one["saves"], [stop], f"The list of calls of `save` {given},", look=saved)
    wrong_if(
        min(one["left"] for one in seen) < max(one["saved"] for one in seen),
        "early",
        "A rank returns while another one is still saving. If it ends with 75, Slurm and torchrun take that for a "
        "failure, and may kill the rank that is saving.",
        look="`dist.barrier()` between `save` and `return`",
    )
    for rank, one in enumerate(seen):
        code = AGAIN if signals else 0
        same(
            one["code"], code, f"What rank {rank} returns, with {came},", look="0: done; 75, AGAIN: to be started again"
        )


exercise = Exercise(
    title="The last minute of a job",
    minutes=9,
    difficulty=4,
    points=4,
    takeaway="A handler only takes a note. The loop looks at it after a whole step, asks the other ranks, saves, and "
    "leaves with a code that means: start me again. `torchcourse.checkpoint.StopFlag` does this.",
    hints=(
        "The handler runs in the middle of a step, so all it does is remember. After each step, every rank has to "
        "learn whether any of them has been asked to stop.",
        "`signal.signal(signal.SIGUSR1, handle)` with `def handle(number, frame):`. A tensor that is 1.0 on ranks with "
        "a note, and `dist.all_reduce(stop, op=dist.ReduceOp.MAX)`, make all ranks agree.",
        "After `step(number)`: `stop = torch.tensor(float(len(asked)))`, the all-reduce, and `if stop:` `save(number + "
        "1)`, `dist.barrier()`, and `return AGAIN`. After the loop: `save(last)`, the barrier, and `return 0`.",
    ),
    judge=judge,
    lends=solution,
    seconds=120.0,  # the first check of a session starts the server from which processes are forked
)
