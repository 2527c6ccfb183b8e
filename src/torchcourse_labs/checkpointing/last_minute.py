"""The last minute of a job: a signal comes in the middle of a step, and all ranks save and stop together."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labcheck import ranks
from labcheck.authoring import Exercise, Inputs, same, show, wrong_if

AGAIN = 75
WRITES = 0.5  # seconds that rank 0 takes to save: long enough that a rank that does not wait leaves before


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


def training(answer: Callable, first: int, last: int, signals: dict[str, str]) -> dict[str, Any]:
    """On a rank: what the answer does, while signals come. early: it leaves before rank 0 has saved."""
    me, inside = dist.get_rank(), []
    seen: dict[str, Any] = {"steps": [], "saves": []}

    def come_to(place: str) -> None:
        name = signals.get(f"{place} on rank {me}")
        if name and signal.getsignal(getattr(signal, name)) in (signal.SIG_DFL, None):
            raise RuntimeError(f"{name} ends the process in {place}: your function does not handle it there")
        if name:
            os.kill(os.getpid(), getattr(signal, name))

    def step(number: int) -> None:
        inside.append(number)
        come_to(f"step {number}")
        dist.all_reduce(torch.ones(3))
        seen["steps"].append(int(number))
        inside.clear()

    def save(number: int) -> None:
        if inside:
            raise RuntimeError("`save` is called while a step is unfinished: your handler broke it off or saves itself")
        seen["saves"].append(int(number))
        come_to(f"save {number}")
        if me == 0:
            time.sleep(WRITES)
            Path("saved").touch()

    try:
        code = answer(step, save, first, last)
        code = code if type(code) is int else show(code)
    except SystemExit as leaves:
        code = f"nothing: it exits with {leaves.code}"
    return seen | {"early": not Path("saved").exists(), "code": code}


def judge(answer: Any, rng: Inputs) -> None:
    first = rng.size(0, 40)
    later = first + rng.size(2, 4)
    alone = [(later, later + 2, {f"step {later - 1} on rank {rank}": "SIGTERM"}) for rank in (1, 0)]
    both = {f"step {first} on rank {rank}": "SIGUSR1" for rank in range(2)}  # what Slurm does: all ranks get it
    both[f"save {first + 1} on rank 0"] = "SIGTERM"
    # In the last case, there is nothing left to do: the signal came in the last step of the session before.
    cases = *alone, (first + 1, later, both), (later, later, {}), (first, first, {})
    for stop, last, signals in cases:
        look = "after each step, the same collective tells all ranks whether any got a signal; handlers only take notes"
        seen = ranks.observe(answer, training, first, last, signals, look=look)
        came = ", ".join(f"{name} in {place}" for place, name in signals.items()) or "no signal"
        came = f"with {came}, first = {first} and last = {last}"
        for rank, one in enumerate(seen):
            look = "range; `nonlocal` in a handler; all ranks agree after each step: MAX hears all, a broadcast one"
            same(one["steps"], [*range(first, stop)], f"The list of steps on rank {rank}, {came},", look=look)
            look = "`save` gets the number of the step that comes next, once, on every rank, also at the end"
            same(one["saves"], [stop], f"The list of numbers that `save` gets on rank {rank}, {came},", look=look)
        wrong_if(
            any(one["early"] for one in seen),
            "early",
            "A rank returns while another one still saves: with 75, Slurm or torchrun may kill the one that saves.",
            look="`dist.barrier()` between `save` and `return`",
        )
        codes, look = [AGAIN if signals else 0] * 2, "0: done; 75, AGAIN: to be started again"
        same([one["code"] for one in seen], codes, f"The list of what the ranks return, {came},", look=look)


exercise = Exercise(
    title="The last minute of a job",
    minutes=9,
    difficulty=4,
    points=4,
    takeaway="A handler only takes a note. The loop looks at it after a whole step, asks the other ranks, saves, and "
    "leaves with a code that means: start me again. `torchcourse.checkpoint.StopFlag` does this.",
    hints=(
        "`signal.signal(signal.SIGUSR1, handle)` with `def handle(number, frame):`, which only remembers. After each "
        "step, a tensor that is 1.0 on ranks with a note, and `dist.all_reduce(stop, op=dist.ReduceOp.MAX)`.",
        "After `step(number)`: `stop = torch.tensor(float(len(asked)))`, the all-reduce, and `if stop:` `save(number + "
        "1)`, `dist.barrier()`, and `return AGAIN`. After the loop: `save(last)`, the barrier, and `return 0`.",
    ),
    judge=judge,
    lends=solution,
    seconds=ranks.SECONDS,
)
