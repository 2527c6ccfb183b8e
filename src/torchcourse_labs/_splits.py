"""What chapters check of a split: the numbers 0 to n − 1 in two random parts.

Their functions take (n, how much is held out, seed) and return (training part, held-out part), two int64 tensors.
"""

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcheck.probes import random_states_changed
from torchcourse_labs._spec import Habit, Mistake, says

Split = tuple[Tensor, Tensor]


def split_report(split: Callable, n: int, held_out: int | float, seed: int) -> dict[str, Any]:
    """What matters of a split of n images, whichever indices it has drawn (`held_out` of them, or that share)."""
    result = split(n, held_out, seed)
    if not (isinstance(result, tuple | list) and len(result) == 2):
        return {"instead": result}
    for part in result:
        if not (isinstance(part, torch.Tensor) and part.dim() == 1 and part.dtype == torch.int64):
            return {"part": part}
    train, held = (part.tolist() for part in result)
    steps = [b - a for a, b in itertools.pairwise(sorted(held))]
    again, other = (_held_out(split(n, held_out, s)) for s in (seed, seed + 1))
    return {
        "Sizes": (len(train), len(held)),
        "Not an index": [i for i in train + held if not 0 <= i < n][:1],
        "In both": sorted({*train} & {*held})[:1],
        "Repeated": len({*train, *held}) < len(train) + len(held),
        "different": len({*held}),
        "In order": steps.count(1) >= len(held) - 2,  # a piece cut out of the data, perhaps around its end
        "Every few": steps[0] if len(steps) > 5 and steps[0] > 1 and len({*steps}) == 1 else None,
        "The same again": again == sorted(held),
        "Other with another seed": other != sorted(held),
    }


def _held_out(result: Any) -> Any:
    part = result[1] if isinstance(result, tuple | list) and len(result) == 2 else None
    return sorted(part.tolist()) if isinstance(part, torch.Tensor) and part.dim() == 1 else part


def _drawn(solution: Callable, order: Callable) -> Callable:
    """A split of the same sizes as the solution's that cuts `order(n, seed)`."""

    def split(n: int, held_out: int | float, seed: int) -> Split:
        k = len(solution(n, held_out, 0)[1])
        indices = order(n, seed)
        return indices[k:], indices[:k]

    return split


def _cut_from_the_end(solution: Callable) -> Callable:
    def split(n: int, held_out: int | float, seed: int) -> Split:
        training, held = solution(n, held_out, seed)
        indices, k = torch.cat([training, held]), len(held)
        return indices[:-k], indices[-k:]

    return split


def _own(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _with_repetition(training: Tensor, held: Tensor) -> Split:
    return torch.cat([training[:1], training[:-1]]), held


def _drawn_with_repetition(training: Tensor, held: Tensor) -> Split:
    return torch.cat([held[1:2], training]), torch.cat([held[:1], held[:1], held[2:]])[: len(held)]


def _every_few(n: int, k: int) -> Split:
    held = torch.arange(k) * (n // max(k, 1))
    return torch.tensor([i for i in range(n) if i not in held.tolist()], dtype=torch.int64), held


def _random_split(solution: Callable, n: int, held_out: int | float, seed: int, **options: Any) -> list:
    return torch.utils.data.random_split(range(n), [len(part) for part in solution(n, held_out, 0)], **options)


def split_mistakes(solution: Callable, *wrong_sizes: Callable) -> list[Mistake]:
    """For `measure=split_report`. wrong_sizes: splits at another place."""
    return [
        Mistake(
            "Your function should return two tensors, the training part and the held-out part; it returned "
            "{yours[instead]}.",
            lambda *given: solution(*given)[0],
            lambda *given: None if given else 0,
            when=lambda yours, *_: "instead" in yours,
        ),
        Mistake(
            "Each part should be an int64 tensor with one axis; one of yours is {yours[part]}.",
            lambda *given: tuple(part.int() for part in solution(*given)),
            lambda *given: tuple(part.tolist() for part in solution(*given)),
            lambda *given: tuple(part[None] for part in solution(*given)),
            lambda *given: tuple(part.numpy() for part in solution(*given)),
            look="`torch.tensor(indices, dtype=torch.int64)`: an empty list alone makes a float tensor",
            when=lambda yours, *_: "part" in yours,
        ),
        Mistake(
            "For n = {n} and a held-out part of {held_out}, the second part should be empty, and `[-0:]` is the same "
            "as `[0:]`.",
            _cut_from_the_end(solution),
            look="cut the held-out part from the front, or count from n: where does the first part end?",
            when=lambda yours, expected, *_: yours["Sizes"] == expected["Sizes"][::-1] and not expected["Sizes"][1],
        ),
        Mistake(
            "The two parts are the other way around. With n = {n} and a held-out part of {held_out}, the sizes of "
            "training and held-out part are {expected[Sizes]}; yours are {yours[Sizes]}.",
            lambda *given: solution(*given)[::-1],
            when=lambda yours, expected, *_: (
                abs(yours["Sizes"][0] - expected["Sizes"][1]) <= 1 < abs(yours["Sizes"][0] - expected["Sizes"][0])
            ),
        ),
        Mistake(
            "Of the {yours[Sizes][1]} indices that you hold out, only {yours[different]} are different.",
            lambda *given: _drawn_with_repetition(*solution(*given)),
            look="`randint` draws with replacement, `randperm` without",
            when=lambda yours, expected, *_: yours["different"] < yours["Sizes"][1] == expected["Sizes"][1],
        ),
        Mistake(
            "The parts have the wrong sizes for n = {n} and a held-out part of {held_out}: {expected[Sizes]} is right, "
            "yours are {yours[Sizes]}.",
            *wrong_sizes,
            lambda *given: tuple(part[1:] for part in solution(*given)),
            when=lambda yours, expected, *_: yours["Sizes"] != expected["Sizes"],
        ),
        Mistake(
            "There is no index {yours[Not an index][0]}: the indices of {n} images start at 0 and stop before {n}.",
            lambda *given: tuple(part + 1 for part in solution(*given)),
            look="is something added to the order, or is it drawn from another range?",
            when=lambda yours, *_: yours["Not an index"],
        ),
        Mistake(
            "Some images are in both parts, for example number {yours[In both][0]}: a test on images that the "
            "model has learned from says nothing.",
            lambda n, held_out, seed: (solution(n, held_out, seed)[0], solution(n, held_out, seed + 1)[1]),
            look="draw one order of all indices, and cut it",
            when=lambda yours, *_: yours["In both"],
        ),
        Mistake(
            "Some indices occur more than once, and others not at all.",
            lambda *given: _with_repetition(*solution(*given)),
            look="`randint` draws with replacement, `randperm` without",
            when=lambda yours, *_: yours["Repeated"],
        ),
        Mistake(
            "Nothing is shuffled: the held-out part is a block. In a file sorted by class that would be one class.",
            _drawn(solution, lambda n, seed: torch.arange(n)),
            _drawn(solution, lambda n, seed: torch.arange(n).flip(0)),
            _drawn(solution, lambda n, seed: torch.arange(n).roll(seed + n // 3)),
            look="`torch.randperm`",
            when=lambda yours, expected, *_: yours["In order"] and not expected["In order"],
        ),
        Mistake(
            "Nothing is random: the indices of your held-out part are all {yours[Every few]} apart.",
            lambda n, held_out, seed: _every_few(n, len(solution(n, held_out, seed)[1])),
            look="`torch.randperm`",
            when=lambda yours, *_: yours["Every few"],
        ),
        Mistake(
            "With seed = 0 the split is different in each call, and with other seeds it is not.",
            _drawn(solution, lambda n, seed: torch.randperm(n, generator=_own(seed or random.getrandbits(40)))),
            look="`if seed` or `seed or …`: 0 counts as False there",
            when=lambda yours, expected, n, held_out, seed: seed == 0 and not yours["The same again"],
        ),
        Mistake(
            "Two calls with the same seed give two different splits.",
            lambda *given: tuple(solution(*given[:2], random.getrandbits(40))),
            lambda *given: tuple(torch.tensor(list(part)) for part in _random_split(solution, *given)),
            look="does everything random take its numbers from a generator that starts with `seed`?",
            when=lambda yours, *_: not yours["The same again"],
        ),
        Mistake(
            "Another seed gives the same split.",
            lambda n, held_out, seed: solution(n, held_out, 0),
            look="whether `seed` reaches the generator: a new `torch.Generator()` always starts with the same seed",
            when=lambda yours, expected, *_: yours["Other with another seed"] != expected["Other with another seed"],
        ),
        Mistake(
            "`torch.Generator(seed)` takes the seed as the number of a device.",
            _drawn(solution, lambda n, seed: torch.randperm(n, generator=torch.Generator(seed))),
            look="`torch.Generator().manual_seed(seed)`",
            when=lambda yours, *_: says(yours, "CUDA", "device", "enerator"),
        ),
    ]


def split_habits(solution: Callable) -> list[Habit]:
    """The global random generators are to stay as they are."""
    libraries = {
        "PyTorch": (
            "`torch.manual_seed(seed)` sets the global generator; `torch.Generator().manual_seed(seed)` makes one",
            lambda n, seed: torch.manual_seed(seed) and torch.randperm(n),
        ),
        "NumPy": (
            "`np.random.seed` and `np.random.rand` use the global "  # outdated
            "generator; `np.random.default_rng(seed)` makes one",
            lambda n, seed: np.random.seed(seed) or torch.from_numpy(np.random.permutation(n)),  # outdated
            lambda n, seed: np.random.rand() and torch.randperm(n, generator=_own(seed)),
        ),
        "Python": (
            "`random.seed(seed)` sets the global generator; `random.Random(seed)` makes one",
            lambda n, seed: random.seed(seed) or torch.tensor(random.sample(range(n), n)),
        ),
    }
    return [
        Habit(
            f"The split is right, but your function changed the global random state of {library}: all other code gets "
            "different random numbers now.",
            *(_drawn(solution, order) for order in orders),
            probe=random_states_changed,
            when=lambda *changed, library=library: any(library in libraries for libraries in changed),
            look=look,
        )
        for library, (look, *orders) in libraries.items()
    ]


def right_splits(solution: Callable) -> list[Callable]:
    """The same in other ways."""

    def state_put_back(*given: Any) -> Split:
        with torch.random.fork_rng():
            torch.manual_seed(given[-1])
            order = torch.randperm(given[0])
        return _drawn(solution, lambda n, seed: order)(*given)

    return [
        _drawn(solution, lambda n, seed: torch.from_numpy(np.random.default_rng(seed).permutation(n))),
        _drawn(solution, lambda n, seed: torch.tensor(random.Random(seed).sample(range(n), n))),
        lambda *given: [part.sort().values for part in solution(*given)],
        state_put_back,
        lambda *given: tuple(
            torch.tensor(list(part), dtype=torch.int64)
            for part in _random_split(solution, *given, generator=_own(given[-1]))
        ),
    ]
