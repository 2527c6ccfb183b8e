"""The numbers 0 to n - 1 in two random parts, the same in every run, and no other random numbers changed."""

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, same, wrong_if


def solution(n: int, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    k = int(n * fraction)
    return order[k:], order[:k]


def generators() -> dict[str, Any]:
    return {"PyTorch": torch.get_rng_state().tolist(), "NumPy": str(np.random.get_state()), "Python": random.getstate()}


def generators_changed(answer: Callable, *inputs: Any) -> list[str]:
    """A probe: the libraries whose global random numbers are others after the call."""
    torch.rand(1), np.random.random(), random.random()  # mid-sequence, so that seeding again doesn't restore it
    before = generators()
    call(answer, *inputs)
    return [library for library, state in generators().items() if state != before[library]]


def judge(answer: Any, rng: Inputs) -> None:
    """A share that comes out even and one that does not; seed 0, which `if seed` takes for none; empty parts."""
    even, few = (20 * rng.size(5, 30), rng.pick((0.1, 0.15, 0.2, 0.25)), rng.size(1, 1000)), rng.size(5, 9)
    for case in (even, (100 * rng.size(1, 4) + 5, 0.17, 0), (few, 0.1, 7), (few, 1.0, 9)):
        judge_case(answer, *case)
    libraries = observe(answer, generators_changed, *even)
    wrong_if(
        libraries,
        "global_generator",
        f"You change the global random state of {' and '.join(libraries)}: all other code gets other random numbers.",
        look="your own generator: `torch.Generator().manual_seed(seed)`, `np.random.default_rng(seed)`",
    )


def split(answer: Any, *given: Any) -> list[list[int]]:
    """The two parts that the answer returns, each sorted: the order within a part is free."""
    parts = call(answer, *given)
    if not (isinstance(parts, tuple | list) and len(parts) == 2):
        raise Incorrect("Your function should return two tensors, first the training part.", yours=parts)
    for part in parts:
        if not isinstance(part, Tensor) or part.ndim != 1 or part.dtype != torch.int64:
            look = "`torch.tensor(indices, dtype=torch.int64)`: an empty list alone makes a float tensor"
            raise Incorrect("Each part should be an int64 tensor with one axis.", yours=part, look=look)
    return [sorted(part.tolist()) for part in parts]


def judge_case(answer: Any, n: int, fraction: float, seed: int) -> None:
    training, validation = split(answer, n, fraction, seed)
    k, given = int(n * fraction), f"n = {n}, fraction = {fraction} and seed = {seed}"
    together = training + validation
    wrong_if(
        len({*together}) < len(together) or not {*together} <= {*range(n)},
        "not_each_once",
        f"For {given}, the parts should have the indices 0 to {n - 1}, each once: some are repeated, or out of range.",
        look="cut one order of all indices; `randint` repeats, `randperm` does not; `[-0:]` is everything, like `[0:]`",
    )
    look = "where you cut: at `int(n * fraction)`, training part first; `[-0:]` is not empty, it is the same as `[0:]`"
    same([len(training), len(validation)], [n - k, k], f"The pair of lengths for {given}", look=look)
    wrong_if(
        split(answer, n, fraction, seed)[1] != validation,
        "not_repeatable",
        f"Two calls with {given} give two different splits.",
        look="does everything random take its numbers from a generator that starts with `seed`, even if it is 0?",
    )
    if k < 10 or k == n:  # too few for what follows
        return
    steps = Counter(b - a for a, b in itertools.pairwise(validation))
    wrong_if(
        max(steps.values()) >= k - 2,
        "not_shuffled",
        "Nothing is shuffled: the indices of your validation part follow each other at a fixed distance.",
        look="`torch.randperm`; in a file sorted by class, a block would be one class",
    )
    wrong_if(
        split(answer, n, fraction, seed + 1)[1] == validation,
        "no_seed",
        "Another seed gives the same split.",
        look="whether `seed` reaches the generator: a new `torch.Generator()` always starts with the same seed",
    )


exercise = Exercise(
    title="Training and validation",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="With its own generator, the split is the same in every run, and no other random numbers change.",
    hints=(
        "Shuffle, then cut in two. `torch.Generator().manual_seed(seed)` is your own generator, for `randperm`.",
        "`order = torch.randperm(n, generator=generator)`, `k = int(n * fraction)`, return `order[k:], order[:k]`.",
    ),
    judge=judge,
    lends=solution,
)
