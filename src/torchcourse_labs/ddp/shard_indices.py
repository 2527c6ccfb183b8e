"""Deal out the indices of a data set to the ranks, in a new order each epoch."""

import itertools
import random
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, call, observe, same, wrong_if


def solution(length: int, rank: int, world_size: int, epoch: int, seed: int) -> Tensor:
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))
    return order[rank::world_size]


def shards_of(answer: Callable, length: int, world_size: int, epoch: int, seed: int) -> list:
    """A probe: the shards of all ranks. As between processes, random states, process number and time differ."""
    shards, states, own = [], (random.getstate(), np.random.get_state()), random.SystemRandom()
    with (
        torch.random.fork_rng(devices=[]),
        mock.patch("os.getpid", itertools.count(own.randrange(10**6)).__next__),
        mock.patch("time.time", itertools.count(time.time(), 10).__next__),
        mock.patch("time.time_ns", itertools.count(time.time_ns(), 10**10).__next__),
    ):
        try:
            for rank in range(world_size):
                number = own.randrange(10**6)
                torch.manual_seed(number)
                np.random.seed(number)  # outdated, but students use what it seeds
                random.seed(number)
                shards.append(call(answer, length, rank, world_size, epoch, seed))
        finally:
            random.setstate(states[0]), np.random.set_state(states[1])
    return shards


def neighbors(shards: list[list[int]]) -> set[tuple[int, int]]:
    return {pair for shard in shards for pair in itertools.pairwise(shard)}


def judge(answer: Any, rng: Inputs) -> None:
    sizes = [ranks * rng.size(8, 14) + tail for ranks, tail in ((3, 1), (4, 2), (2, 1))]
    a, b, c, d = rng.sizes(4, 10, 1000)
    for n, ranks, seed in zip(sizes, (3, 4, 2), (a, b, c), strict=True):
        judge_case(answer, n, ranks, rng.size(2, 9), seed)
    judge_case(answer, 40, 4, 0, d)  # the first epoch, and a whole number of rounds
    judge_case(answer, 40, 4, 3, 0)
    judge_case(answer, rng.size(20, 30), 1, 0, 0)
    few = observe(answer, shards_of, 3, 5, rng.size(2, 9), a)
    shards = sorted(shard.tolist() for shard in few)
    same(shards, [[], [], [0], [1], [2]], "The shards of 3 indices among 5 ranks")


def judge_case(answer: Any, length: int, ranks: int, epoch: int, seed: int) -> None:
    def deal(epoch: int, seed: int) -> list[list[int]]:
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
    row, lengths = sorted(itertools.chain(*first)), sorted(map(len, first))
    balanced = sorted(len(range(rank, length, ranks)) for rank in range(ranks))
    details = {"expected": f"shards of {balanced} indices", "yours": f"shards of {lengths} indices"}
    twice = [i for i, following in itertools.pairwise(row) if i == following]
    wrong_if(
        ranks > 1 and lengths == [length] * ranks,
        "all_to_each",
        "Every rank gets all the indices, so each would do all the work.",
        look="the part that `rank` and `world_size` play",
        **details,
    )
    wrong_if(
        first != again or any(len({*shard}) < len(shard) for shard in first),
        "not_repeatable",
        "The ranks cannot agree on this order: the same arguments give different shards, or a shard repeats an index.",
        look="random numbers without a seeded generator, the clock, the process number; `randint` repeats",
    )
    wrong_if(
        0 < len(twice) < ranks and not {*range(length)} - {*row},
        "padded",
        f"The tail is padded: to make all shards equally long, index {min(twice, default=0)} is given out twice.",
        look="`DistributedSampler` pads like this, and a test score then counts samples twice",
        **details,
    )
    wrong_if(
        twice,
        "overlap",
        f"The shards overlap: index {min(twice, default=0)} is in more than one.",
        look="the generator, whose seed must not depend on the rank, and the part that each rank takes",
    )
    wrong_if(
        row != list(range(length)) or lengths != balanced,
        "lost_or_uneven",
        f"Together, the shards should have the indices from 0 to {length - 1}, each once; their lengths differ by one "
        "at most, since in each step all ranks wait for the longest.",
        look="`length // world_size` drops the rest; a slice with a step deals the indices out like cards",
        **details,
    )
    if ranks == 1:  # no other shard to confuse it with
        return
    pairs = neighbors(first)
    wrong_if(
        sum(abs(i - j) in (1, ranks) for i, j in pairs) > length / 2,
        "not_shuffled",
        "Nothing is shuffled: the shards have the indices in their original order.",
        look="`torch.randperm`",
    )
    wrong_if(
        len(pairs & neighbors(later)) > length / 2,
        "no_epoch",
        f"Epochs {epoch} and {epoch + 1} have the same order, perhaps rotated, with seed {seed}.",
        look="the generator's seed should depend on `epoch`, as after `set_epoch`: a sum, as a product with 0 is 0",
    )
    wrong_if(
        all({*one} == {*two} for one, two in zip(first, later, strict=True)),
        "cut_first",
        "A rank gets the same samples in every epoch, only in a different order.",
        look="shuffle first, then cut",
    )
    wrong_if(
        first == other,
        "no_seed",
        f"Another seed gives the same order in epoch {epoch}.",
        look="`seed` and `epoch` both go into the generator, as a sum",
    )


exercise = Exercise(
    title="Split a data set",
    minutes=7,
    difficulty=2,
    points=2,
    takeaway="The ranks don't have to ask each other: one seed gives all of them the same order, and each takes its "
    "own part.",
    hints=(
        "Every rank shuffles all the indices, with its own generator that has the same seed on all ranks. Then each "
        "takes a part that no other rank takes.",
        "The generator's seed must change from epoch to epoch, and must not depend on the rank. For the parts, think "
        "of dealing cards: use a slice with a step.",
        "`order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))`, then "
        "`order[rank::world_size]`.",
    ),
    judge=judge,
    lends=solution,
)
