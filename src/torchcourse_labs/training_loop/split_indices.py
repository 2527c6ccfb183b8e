"""The numbers 0 to n - 1 in two random parts, the same in every run, and no other random numbers changed."""

import itertools
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from labcheck import probes
from labcheck.answer import call, observe
from labcheck.exercise import Exercise
from labcheck.inputs import Inputs
from labcheck.verdict import Incorrect, wrong_if


def solution(n: int, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    k = int(n * fraction)
    return order[k:], order[:k]


def judge(answer: Any, rng: Inputs) -> None:
    """A share that comes out even and one that does not; seed 0, which `if seed` takes for none; empty parts."""
    share = rng.pick((0.13, 0.17, 0.23, 0.3, 0.35))
    uneven = next(n for n in range(rng.size(101, 300), 500) if 0.6 < n * share % 1 < 0.95)
    even = 20 * rng.size(5, 30), rng.pick((0.1, 0.15, 0.2, 0.25)), rng.size(1, 1000)
    small = rng.size(5, 9)
    for n, fraction, seed in (even, (uneven, share, 0), (small, 0.1, 7), (small, 0.0, 8), (small, 1.0, 9)):
        judge_case(answer, n, fraction, seed)
    libraries = observe(answer, probes.random_states_changed, *even)
    wrong_if(
        libraries,
        "global_generator",
        f"The split is right, but your function changed the global random state of {' and '.join(libraries)}: all "
        "other code gets different random numbers now.",
        look="`torch.Generator().manual_seed(seed)`, `np.random.default_rng(seed)` or `random.Random(seed)` make a "
        "generator of your own",
    )


def split(answer: Any, n: int, fraction: float, seed: int) -> list[list[int]]:
    """The two parts that the answer returns, each sorted: the order within a part is free."""
    parts = call(answer, n, fraction, seed)
    if not (isinstance(parts, tuple | list) and len(parts) == 2):
        raise Incorrect("Your function should return two tensors, first the training part.", yours=parts)
    for part in parts:
        wrong_if(
            not isinstance(part, Tensor) or part.ndim != 1 or part.dtype != torch.int64,
            "form",
            "Each part should be an int64 tensor with one axis.",
            look="`torch.tensor(indices, dtype=torch.int64)`: an empty list alone makes a float tensor",
            yours=part,
        )
    return [sorted(part.tolist()) for part in parts]


def judge_case(answer: Any, n: int, fraction: float, seed: int) -> None:
    training, validation = split(answer, n, fraction, seed)
    k = int(n * fraction)
    given = f"n = {n}, fraction = {fraction}, seed = {seed}"
    sizes, right = (len(training), len(validation)), (n - k, k)
    lengths = {"expected": f"{n - k} and {k} indices", "yours": f"{sizes[0]} and {sizes[1]} indices"}
    wrong_if(
        k == 0 and sizes == (0, n),
        "minus_zero",
        f"With {given}, the validation part should be empty; `[-0:]` is the same as `[0:]`, which is everything.",
        look="cut the validation part from the front, or count from n",
    )
    wrong_if(
        sizes == (k, n - k) != right,
        "swapped",
        f"The two parts are the other way around for {given}: training comes first.",
        **lengths,
    )
    wrong_if(
        sizes != right,
        "lengths",
        f"With {given}, the parts have the wrong lengths.",
        look="where you cut: at `int(n * fraction)`, which rounds down",
        **lengths,
    )
    both = {*training} & {*validation}
    wrong_if(
        both,
        "overlap",
        f"Some images are in both parts, for example number {min(both, default=0)}: a test on images that the model "
        "has learned from says nothing.",
        look="draw one order of all indices, and cut it",
    )
    if sorted(training + validation) != [*range(n)]:
        look = "`randint` repeats indices, `randperm` does not; does something shift them?"
        raise Incorrect(f"Together, the parts should have the indices 0 to {n - 1}, each once.", look=look)
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
        "Shuffle the numbers 0 to n − 1, then cut the result in two.",
        "`torch.randperm(n, generator=...)` shuffles; `torch.Generator().manual_seed(seed)` is your own generator.",
        "`order = torch.randperm(n, generator=generator)`, `k = int(n * fraction)`, return `order[k:], order[:k]`.",
    ),
    judge=judge,
    lends=solution,
)
