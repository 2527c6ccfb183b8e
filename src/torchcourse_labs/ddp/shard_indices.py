"""Deal out the indices of a data set to the ranks, in a new order each epoch."""

import itertools
import random
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, call, observe, raises_like, same, wrong_if


def solution(length: int, rank: int, world_size: int, epoch: int, seed: int) -> Tensor:
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))
    return order[rank::world_size]


def shards_of(answer: Callable, length: int, world_size: int, epoch: int, seed: int) -> list:
    """A probe: the shards of all ranks. As between processes, random states, texts' hashes and more differ."""
    numbers, times = itertools.count(random.SystemRandom().randrange(10**6)), itertools.count(time.time(), 10)
    hashes = {"hash": lambda key: next(numbers) if isinstance(key, str) else key.__hash__()}
    with (
        torch.random.fork_rng(devices=[]),
        mock.patch("os.getpid", numbers.__next__),
        mock.patch("time.time", times.__next__),
        mock.patch.dict(getattr(answer, "__globals__", {}), hashes),
    ):
        torch.seed()
        return [call(answer, length, rank, world_size, epoch, seed) for rank in range(world_size)]


def judge(answer: Any, rng: Inputs) -> None:
    for number, ranks, tail in ((1, 3, 1), (2, 4, 2), (0, 4, 0), (3, 2, 1)):
        judge_case(answer, ranks * rng.size(8, 14) + tail, ranks, number * rng.size(1, 4), rng.size(10, 1000))
    judge_case(answer, 40, 4, 3, 0)
    few = sorted(shard.tolist() for shard in observe(answer, shards_of, 3, 5, 2, 4))
    same(few, [[], [], [0], [1], [2]], "The list of shards of 3 indices among 5 ranks")


def judge_case(answer: Any, length: int, ranks: int, epoch: int, seed: int) -> None:
    def deal(epoch: int, seed: int) -> list[list[int]]:
        with raises_like("asks_group", "No group is needed: use the arguments rank and world_size.", "process_group"):
            shards = observe(answer, shards_of, length, ranks, epoch, seed)
        for shard in shards:
            wrong_if(
                not isinstance(shard, Tensor) or shard.ndim != 1 or shard.dtype != torch.int64,
                "form",
                "A shard should be a one-dimensional int64 tensor.",
                look="`torch.tensor(…)` makes a tensor of a list; `mask.nonzero().flatten()` makes indices of a mask",
                yours=shard,
            )
        return [shard.tolist() for shard in shards]

    first, again, later, other = deal(epoch, seed), deal(epoch, seed), deal(epoch + 1, seed), deal(epoch, seed + 13)
    row, lengths = sorted(itertools.chain(*first)), [len(shard) for shard in first]
    wrong_if(
        first != again or any(len({*shard}) < len(shard) for shard in first),
        "not_repeatable",
        "The ranks cannot agree on this order: the same arguments give different shards, or a shard repeats an index.",
        look="random numbers without a seeded generator, clock, process number, `hash` of a text; `randint` repeats",
    )
    twice = [i for i, following in itertools.pairwise(row) if i == following]
    balanced = [len(range(rank, length, ranks)) for rank in range(ranks)]
    missing = f", without {sorted({*range(length)} - {*row})[:5]}" if {*range(length)} - {*row} else ""
    details = {"expected": f"shards of {balanced} indices", "yours": f"shards of {lengths} indices{missing}"}
    wrong_if(
        twice,
        "overlap",
        f"The shards overlap: index {min(twice, default=0)} is in more than one.",
        look="the part that each rank takes, without padding at the end; the seed, which must not depend on the rank",
        **details,
    )
    wrong_if(
        row != list(range(length)) or sorted(lengths) != sorted(balanced),
        "lost_or_uneven",
        f"The shards should have each index from 0 to {length - 1} once, and lengths that differ by one at most.",
        look="`randperm(length)`; `length // world_size` drops the rest; a slice with a step deals out like cards",
        **details,
    )
    pairs, next_pairs = ({pair for shard in shards for pair in itertools.pairwise(shard)} for shards in (first, later))
    wrong_if(
        sum(abs(i - j) in (1, ranks) for i, j in pairs) > length / 2,
        "not_shuffled",
        "Nothing is shuffled: the shards have the indices in their original order.",
        look="`torch.randperm`",
    )
    wrong_if(
        first == other or len(pairs & next_pairs) > length / 2,
        "same_order",
        f"The order is the same, perhaps rotated, with another {'seed' if first == other else 'epoch'}.",
        look="`seed` and `epoch` both go into the generator, as a sum: a product with 0 is 0",
        expected=f"another order than with epoch {epoch} and seed {seed}",
        yours=f"the same with seed {seed + 13}" if first == other else f"the same in epoch {epoch + 1}",
    )
    wrong_if(
        all({*one} == {*two} for one, two in zip(first, later, strict=True)),
        "cut_first",
        "A rank gets the same samples in every epoch, only in a different order.",
        look="shuffle first, then cut",
    )


exercise = Exercise(
    title="Split a data set",
    minutes=7,
    difficulty=2,
    points=2,
    takeaway="The ranks don't have to ask each other: one seed gives all the same order, and each takes its own part.",
    hints=(
        "Every rank shuffles all the indices, with a generator whose seed changes from epoch to epoch, but not from "
        "rank to rank. Then each takes its part, as if cards were dealt: a slice with a step.",
        "`order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))`, then "
        "`order[rank::world_size]`.",
    ),
    judge=judge,
    lends=solution,
)
