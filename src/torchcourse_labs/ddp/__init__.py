"""The exercises of chapter 06: data parallel training, judged by what two or three real processes do.

A function `_..._on_rank(answer, *inputs)` runs on each rank and returns what it saw there (`ranks.measure`). Wrong
solutions start processes, too, so they run in the tests only: every mistake has a `when`.
"""

import contextlib
import copy
import io
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from labcheck.answer import call
from labcheck.collectives import Ledger
from labcheck.inputs import Inputs
from labcheck.probes import network, weights
from labcheck.show import show
from labcheck.verdict import AnswerRaised
from torchcourse_labs import _pairs as pairs
from torchcourse_labs._spec import Mistake, Spec, altered, changed, chapter, measure, says  # noqa: F401 - for the tables

SECONDS = 120.0  # for a whole check: the first one of a session starts the server from which processes are forked

CHAPTER = "06_ddp"
EXERCISES = ("shard_indices", "average_gradients", "exact_score", "train_replicas", "save_from_main", "one_message")

exercise = chapter("06_ddp")
Batch = tuple[Tensor, Tensor]


def _plain(value: Any) -> Any:
    """The value itself if it can travel between processes as it is, otherwise a description of it."""
    if value is None or isinstance(value, bool | int | float | str | np.number):
        return value
    if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_meta:
        return value.detach().cpu().clone()
    return show(value)


# ---------------------------------------------------------------------------------------------------------------------


def _shard(length, rank, world_size, epoch, seed):
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))
    return order[rank::world_size]


def _shards_of(answer: Callable, length: int, world_size: int, epoch: int, seed: int) -> list:
    """A probe: the shards of all ranks. What differs between processes differs between them: the global random states,
    the process number, the time."""
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
                shards.append(call(answer, length, rank, world_size, epoch, seed, may_return_none=True))
        finally:
            random.setstate(states[0]), np.random.set_state(states[1])
    return shards


def _neighbors(shards: list[list[int]]) -> set[tuple[int, int]]:
    return {pair for shard in shards for pair in itertools.pairwise(shard)}


def _listed(shards: list) -> list:
    whole = all(isinstance(shard, Tensor) and shard.dtype == torch.int64 for shard in shards)
    return sorted(shard.tolist() for shard in shards) if whole else [*map(show, shards)]


def _dealt(ask: Any, length: int, world_size: int, epoch: int, seed: int) -> dict:
    """The measure of `shard_indices`."""
    epochs_and_seeds = (epoch, seed), (epoch, seed), (epoch + 1, seed), (epoch, seed + 13)
    every = [ask.observe(_shards_of, length, world_size, *given) for given in epochs_and_seeds]
    try:
        few = ask.observe(_shards_of, 3, 5, epoch, seed) if length % world_size > 1 else []
    except AnswerRaised as raised:
        few = [f"an error: {raised}"]
    for shard in itertools.chain(*every):
        if not isinstance(shard, Tensor) or shard.ndim != 1 or shard.dtype != torch.int64:
            return {"instead": shard}
    first, again, later, other_seed = ([shard.tolist() for shard in shards] for shards in every)
    row = sorted(itertools.chain(*first))
    parts = {
        "Numbers that are no index": [i for i in row if not 0 <= i < length],
        "Indices given out twice": [i for i, following in itertools.pairwise(row) if i == following],
        "Indices in no shard": sorted({*range(length)} - {*row}),
        "The lengths of the shards": sorted(map(len, first)),
        "The same arguments give the same shards": first == again,
        "With fewer indices than ranks": _listed(few),
        "repeated": any(len({*shard}) < len(shard) for shards in (first, again, later, other_seed) for shard in shards),
        "sizes": ", ".join(str(len(shard)) for shard in first),
    }
    if length < 16 or world_size == 1:  # so few may come in the same order twice
        return parts
    neighbors = _neighbors(first)
    return parts | {
        "The indices are shuffled": sum(abs(a - b) in (1, world_size) for a, b in neighbors) <= length / 2,
        "Another epoch gives another order": len(neighbors & _neighbors(later)) <= length / 2,
        "Another epoch gives other shards": any({*a} != {*b} for a, b in zip(first, later, strict=True)),
        "Another seed gives another order": first != other_seed,
    }


def _deals(new: Inputs) -> list[tuple]:
    tails = [world * new.size(8, 14) + tail for world, tail in ((3, 1), (4, 2), (2, 1))]
    seeds = new.sizes(4, 10, 1000)
    cases = [(n, world, new.size(2, 9), seed) for n, world, seed in zip(tails, (3, 4, 2), seeds, strict=False)]
    # The first epoch and a whole number of rounds; seed 0, with several ranks and with one.
    return [*cases, (40, 4, 0, seeds[3]), (40, 4, 3, 0), (new.size(20, 30), 1, 0, 0)]


exercise(
    "shard_indices",
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
    spec=Spec(
        draw=_deals,
        solution=_shard,
        measure=_dealt,
        mistakes="""
            world_size] → world_size].tolist() || world_size].numpy() || world_size].int() || world_size][None]
            order[rank::world_size] → order % world_size == rank
            return  →
                A shard is an int64 tensor of one dimension; yours is {yours[instead]}.
                look: `torch.tensor(…)` makes a tensor of a list, for an empty one with `dtype=torch.int64`;
                    `mask.nonzero().flatten()` makes indices of a mask
                when: "instead" in yours
            world_size] → world_size] + 1
                There is no index {yours[Numbers that are no index][0]}: the indices run from 0 to {length} - 1.
                when: yours["Numbers that are no index"]
            [rank::world_size] →
                Every rank gets all the indices, so each would do all the work. With {world_size} ranks, the lengths are
                {expected[sizes]}; yours are {yours[sizes]}.
                look: the part that `rank` and `world_size` play
                when: world_size > 1 and yours["The lengths of the shards"] == [length] * world_size
            torch.randperm(length, → torch.randint(0, length, (length,),
                A rank gets some indices more than once, for example {yours[Indices given out twice][0]}: each index
                comes once in an epoch.
                look: `randint` can repeat a number, `randperm` does not
                when: yours["repeated"]
            , generator=torch.Generator().manual_seed(seed + epoch) →
            seed + epoch → seed + epoch + os.getpid() || time.time_ns() % 10**9
                The same arguments give different shards each time: two ranks, or two runs, would not agree.
                look: random numbers without a seeded generator, the clock, the process number
                when: not yours["The same arguments give the same shards"]
            order[ → torch.cat([order, order[: -length % world_size]])[
                The tail is padded: to make all shards equally long, index {yours[Indices given out twice][0]} of
                {length} is given out twice. With {world_size} ranks, the lengths are {expected[sizes]}; yours are
                {yours[sizes]}.
                look: `DistributedSampler` pads like this, and a test score then counts samples twice
                when: 0 < len(yours["Indices given out twice"]) < world_size and not yours["Indices in no shard"]
            seed + epoch → seed + epoch + rank
            rank::world_size → rank:
                The shards overlap: index {yours[Indices given out twice][0]} is in more than one.
                look: the generator, whose seed must not depend on the rank, and the part that each rank takes
                when: yours["Indices given out twice"]
            [rank::world_size] → [rank * (length // world_size) : (rank + 1) * (length // world_size)]
            rank::world_size → rank:world_size || rank + 1::world_size
                No rank gets index {yours[Indices in no shard][0]} of {length}. With {world_size} ranks, the lengths are
                {expected[sizes]}; yours are {yours[sizes]}.
                look: `length // world_size` drops the rest; a slice with a step deals the indices out like cards
                when: yours["Indices in no shard"]
            order[rank::world_size] → order.chunk(world_size)[rank]
            [rank::world_size]
                    → [rank * (length // world_size) :][: None if rank == world_size - 1 else length // world_size]
                The lengths of the shards are {yours[sizes]} instead of {expected[sizes]}. They may differ by one at
                most: in each step, all ranks wait for the longest.
                look: a slice with a step, or `tensor_split`, while `chunk` rounds up all parts but the last
                when: yours["The lengths of the shards"] != expected["The lengths of the shards"]
            torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))
                    → torch.arange(length) || torch.arange(length).roll(epoch)
                Nothing is shuffled: the shard has the indices in their original order.
                look: `torch.randperm`
                when: not yours["The indices are shuffled"]
            seed + epoch → seed * epoch || seed * (epoch + 1)
                With seed = {seed} and epoch = {epoch}, your generator's seed is 0, and it stays 0 if only the other of
                the two changes: a product with 0 is 0.
                look: a sum of `seed` and `epoch`
                when: (epoch == 0 and not yours["Another seed gives another order"]) or (seed == 0 and not
                    yours["Another epoch gives another order"])
            seed + epoch → seed
            seed + epoch)) → seed)).roll(epoch)
                Every epoch has the same order, perhaps rotated. (A `DistributedSampler` does that if you forget
                `set_epoch`.)
                look: let the seed of the generator depend on `epoch`
                when: not yours["Another epoch gives another order"]
            order[rank::world_size] → torch.arange(length)[rank::world_size][order[rank::world_size].argsort()]
                A rank gets the same samples in every epoch, only in a different order.
                look: shuffle first, then cut
                when: not yours["Another epoch gives other shards"]
            seed + epoch → epoch
                Another seed gives the same order in epoch {epoch}.
                look: `seed` and `epoch` both go into the generator
                when: not yours["Another seed gives another order"]
            order[ → order[-1:] if length <= rank else order[
                With fewer indices than ranks, each index comes once, and some shards are empty. Yours for 3 indices are
                {yours[With fewer indices than ranks]}.
                when: yours["With fewer indices than ranks"] not in ([], [[], [], [0], [1], [2]])
        """,
        also_right=[
            changed(
                _shard, ("[rank::world_size]", "[length * rank // world_size : length * (rank + 1) // world_size]")
            ),
            changed(_shard, ("seed + epoch", "hash((seed, epoch)) % 2**31")),
            lambda length, rank, world_size, epoch, seed: torch.tensor(
                random.Random(f"{seed} {epoch}").sample(range(length), length)[rank::world_size], dtype=torch.int64
            ),
            lambda length, rank, world_size, epoch, seed: torch.from_numpy(
                np.array_split(np.random.default_rng([seed, epoch]).permutation(length), world_size)[rank]
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


Gradients = dict[str, Tensor]  # by the parameter's name; NaN: this rank has none


def _untidy(new: Inputs) -> list[tuple]:
    """A model and the gradients on three ranks: with two, a fixed 2 would be right. Two layers share a weight, one is
    frozen, one goes unused, and one rank did not use the last one, a branch: if it skips that, the others wait."""
    a, b, c = new.sizes(3, 3, 9)
    layers = {
        "encode": nn.Linear(a, b, bias=False),
        "decode": nn.Linear(a, b),
        "frozen": nn.Linear(b, c),
        "unused": nn.Linear(c, b, bias=False),
    }
    layers["decode"].weight = layers["encode"].weight  # one parameter under two names
    layers["frozen"].requires_grad_(False)
    names = list(layers)
    model = nn.ModuleDict({names[i]: layers[names[i]] for i in new.permutation(4).tolist()})
    model["branch"] = nn.Linear(c, a)
    gradients: list[Gradients] = [{}, {}, {}]
    for name, parameter in model.named_parameters():
        parameter.data = new.randn(*parameter.shape)
        if not name.startswith(("frozen", "unused")):
            for rank, own in enumerate(gradients):
                own[name] = new.randn(*parameter.shape) + 2 * rank
    lonely = gradients[new.size(0, 2)]
    lonely["branch.weight"].fill_(torch.nan)
    lonely["branch.bias"].fill_(torch.nan)
    return [(model, gradients)]


def _gradients_on_rank(answer: Any, model: nn.Module, gradients: list[Gradients]) -> dict:
    """Give the model this rank's gradients, call the answer, and look what the gradients are then."""
    for name, parameter in model.named_parameters():
        gradient = gradients[dist.get_rank()].get(name)
        parameter.grad = None if gradient is None or gradient.isnan().any() else gradient.clone()
    before = weights(model)
    answer(model)
    seen: dict[str, Any] = {"The model's weights": "as they were" if weights(model).equal(before) else "changed"}
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        if name.startswith("unused") and gradient is not None and not gradient.any():
            gradient = None  # zeros do as well
        seen[f"The gradient of `{name}`"] = _plain(gradient)
    return seen | {"calls": [one["what"] for one in Ledger.current.calls]}


def _messages_on_rank(answer: Any, model: nn.Module, gradients: list[Gradients]) -> dict:
    seen = _gradients_on_rank(answer, model, gradients)
    return {**seen, "The list of collectives": seen["calls"]}


def _row(seen: dict, gradients: list[Gradients], rank: int) -> Tensor:
    """All gradients that were seen on a rank, with zeros where it has none."""
    values = [(seen[f"The gradient of `{name}` on rank {rank}"], own) for name, own in gradients[rank].items()]
    return torch.cat([(torch.zeros_like(own) if value is None else value).flatten() for value, own in values])


def _matrix(seen: dict, gradients: list[Gradients]) -> Tensor:
    return torch.stack([_row(seen, gradients, rank) for rank in range(len(gradients))])


def _rows(test: Callable[[Tensor, Tensor, Tensor], Any]) -> Callable:
    """A `when`: test(yours, mean, own), each float [3, n], a row for each rank. In own, a missing gradient is NaN."""

    def when(yours: dict, expected: dict, model: nn.Module, gradients: list[Gradients]) -> bool:
        own = torch.stack([torch.cat([each.flatten() for each in row.values()]) for row in gradients])
        return test(_matrix(yours, gradients), _matrix(expected, gradients), own)

    return when


def _right_ranks(yours: Tensor, mean: Tensor) -> int:
    return sum(map(pairs.close, yours, mean))


def _equal_but_wrong(yours: Tensor, mean: Tensor, own: Tensor) -> bool:
    return pairs.close(yours, yours[:1].expand(3, -1)) and not pairs.close(yours, mean)


def _partly_averaged(yours: Tensor, mean: Tensor, own: Tensor) -> bool:
    averaged = yours.isclose(mean, 1e-4, 1e-6) | own.isnan()
    return bool((averaged | yours.isclose(own, 1e-4, 1e-6)).all() and not averaged.all())


def _average(model):
    for parameter in model.parameters():
        if parameter.requires_grad:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(gradient)
            parameter.grad = gradient / dist.get_world_size()


_average_but = partial(changed, _average)
_SUM, _PRESENT = "dist.all_reduce(gradient)", "torch.tensor(float(parameter.grad is not None))"


GRADIENT_MISTAKES = [
    *altered(
        _average,
        """
        = _average(model) if dist.get_rank() == 0 else None
        = _average(model) if dist.get_rank() == 1 else None
            {yours[deadlock]}: a deadlock.
            look: All ranks have to make the call, whatever their number is. {yours[lines]}
            when: "deadlock" in yours and "after 0 collectives" in yours["lines"]
        """,
    ),
    *pairs.lost(
        _average_but(("parameter.requires_grad", "parameter.grad is not None")),
        look="One rank has no gradient for `branch.weight` and `branch.bias`: it still has to take part, with zeros",
    ),
    *altered(
        _average,
        r"""
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad → parameter.grad
        = [setattr(each, "grad", dist.all_reduce(torch.zeros(1)) / 2) for each in model.parameters()]
            You compute with None. A gradient is None if its parameter is frozen (leave it out) or unused, perhaps on
            this rank only (take part with zeros). And `dist.all_reduce` returns None: it changes its argument.
            look: `parameter.grad is None`; `parameter.grad = dist.all_reduce(…)`
            when: says(yours, "NoneType", "of type torch.Tensor")
        dist.all_reduce(gradient) → dist.all_reduce(parameter.data)
            Your function changed the weights: only the gradients should change.
            look: `parameter.grad`, not `parameter` or `parameter.data`
            when: "changed" in pairs.on_both(yours, "The model's weights")
        if parameter.requires_grad: → if True:
            A frozen parameter has a gradient now: weight decay would start to move it.
            look: `requires_grad` is the same on all ranks, so every rank can skip the frozen ones
            when: any("frozen" in name and value is not None for name, value in yours.items())
        dist.all_reduce(gradient) → pass
            The ranks exchanged nothing: each has only its own gradients, changed or not.
            look: `dist.all_reduce`
            when: not any(yours["calls"])
        else parameter.grad → else parameter.grad.clone()
                && parameter.grad = gradient / dist.get_world_size() → gradient /= dist.get_world_size()
            The ranks exchange something, but afterward their gradients are what they were before.
            look: the result has to end up in `parameter.grad`: `copy_`, or work on `.grad` itself
            when: _rows(lambda yours, mean, own: pairs.close(yours, own.nan_to_num()))
        dist.all_reduce(gradient) → present = torch.tensor(float(parameter.grad is not None));
                dist.all_reduce(present); dist.all_reduce(gradient) && / dist.get_world_size() → / present.clamp(min=1)
            Where one rank has no gradient, you divide by the number of ranks that have one. A missing gradient counts
            as zeros.
            look: in the loss of the whole batch, the samples of that rank did not touch the branch
            when: _rows(lambda yours, mean, own: pairs.close(yours, own.nanmean(0).expand(3, -1)))
        dist.get_world_size() → dist.get_world_size()\n            if gradient.any(): break
            Only some gradients are averaged; the others are still those of each rank.
            look: the loop: does it reach every parameter?
            when: _rows(_partly_averaged)
        parameter.grad = gradient / dist.get_world_size() → gradient /= dist.get_world_size()
            One rank still has no gradient where the others do: after the next step, their weights differ. A missing
            gradient counts as zeros, and all ranks need the mean.
            look: store the result in `parameter.grad`, also where it was None
            when: any(value is None and expected[name] is not None for name, value in yours.items())
        gradient / dist.get_world_size() → gradient
            Your gradients are the sum over the ranks: every step is too long by a factor of the number of ranks.
            look: all-reduce adds up; what is left to do for a mean?
            when: _rows(lambda yours, mean, own: pairs.close(yours, 3 * mean))
        dist.all_reduce(gradient) → dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
            Your gradients are divided twice by the number of ranks: every step is too short.
            look: one division, either before the all-reduce or after it (`ReduceOp.AVG` divides, too)
            when: _rows(lambda yours, mean, own: pairs.close(yours, mean / 3))
        dist.all_reduce(gradient) → dist.reduce(gradient, 0)
            Only one rank has the mean: the ranks would drift apart.
            look: `dist.reduce` gives the result to one rank, `dist.all_reduce` to all, with `async_op=True` only after
                you call `wait()` on what it returns; then every rank divides
            when: _rows(lambda yours, mean, own: _right_ranks(yours, mean) == 1)
        dist.all_reduce(gradient) → dist.broadcast(gradient, 0) && / dist.get_world_size() →
            All ranks now have the gradients of one of them: the gradients of the others are lost.
            look: `broadcast` copies; the exercise asks for the mean
            when: _rows(lambda yours, mean, own: any(pairs.close(yours, row.nan_to_num().expand(3, -1)) for row in own))
        dist.all_reduce(gradient) → dist.all_reduce(gradient, op=dist.ReduceOp.MAX)
        / dist.get_world_size() → / 2
            All ranks now have the same gradients, but these are not the mean of what the three ranks had.
            look: `all_reduce` adds up, unless `op` says otherwise. Divide by the number of ranks, once for each
                parameter, and keep every number in its place.
            when: _rows(_equal_but_wrong)
        """,
    ),
]

exercise(
    "average_gradients",
    seconds=SECONDS,
    title="Average the gradients",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="This loop is the heart of data parallel training. DistributedDataParallel does the same, earlier and in "
    "fewer messages.",
    hints=(
        "One all-reduce for each parameter adds up its gradients over the ranks. Which parameters take part must not "
        "depend on the rank.",
        "Skip what is frozen (`requires_grad` is False on all ranks alike). Where `.grad` is None, first put zeros of "
        "the same shape there, then do what all ranks do.",
        "`dist.all_reduce(parameter.grad)`, then `parameter.grad /= dist.get_world_size()`, in a loop over "
        "`model.parameters()`; before it, `parameter.grad = torch.zeros_like(parameter)` if it is None.",
    ),
    spec=Spec(
        draw=_untidy,
        solution=_average,
        measure=measure(_gradients_on_rank, world_size=3),
        mistakes=GRADIENT_MISTAKES,
        also_right=[
            _average_but((_SUM, "dist.all_reduce(gradient, op=dist.ReduceOp.AVG)"), (" / dist.get_world_size()", "")),
            _average_but((_SUM, "parts = [None] * 3; dist.all_gather_object(parts, gradient); gradient = sum(parts)")),
            _average_but(  # where no rank has a gradient, None stays
                (
                    "if parameter.requires_grad",
                    f"present = {_PRESENT}\n        dist.all_reduce(present)\n        if present",
                )
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


SLIPS: dict[str, list[Callable[[Tensor, Tensor], Tensor]]] = {  # what mistakes make of the counts of right and seen
    "ranks": [lambda right, seen: _shares(right, seen).mean(), lambda right, seen: _shares(right, seen).sum()],
    "batches": [lambda right, seen: (right / seen).nanmean(), lambda right, seen: (right / seen).nanmean(1).mean()],
    "own samples": [lambda right, seen: right.sum() / seen.sum(1), lambda right, seen: right.sum() / seen.sum(1) / 2],
    "own right": [lambda right, seen: right.sum(1) / seen.sum()],
    "divided": [lambda right, seen: _share(right, seen) / 2],
    "one batch": [lambda right, seen, at=at: _share(right[[0, 1], at], seen[[0, 1], at]) for at in ([0, 0], [3, 1])],
    "count": [lambda right, seen: right.sum()],
    "percent": [lambda right, seen: 100 * _share(right, seen)],
    "rounded": [lambda right, seen: _share(right, seen).round(decimals=2), lambda right, seen: torch.zeros(1)],
    "wrong": [lambda right, seen: 1 - _share(right, seen)],
}


def _share(right: Tensor, seen: Tensor) -> Tensor:
    return right.sum() / seen.sum()


def _shares(right: Tensor, seen: Tensor) -> Tensor:
    return right.sum(1) / seen.sum(1)


def _counts(model: nn.Module, shards: list[list[Batch]], training: bool = False) -> Tensor:
    """How many are right and how many there are, float [2, 2, 4], of each batch of each rank; 0 where there is none."""
    model, counts = copy.deepcopy(model).train(training), torch.zeros(2, 2, 4)
    with torch.no_grad():
        for rank, batches in enumerate(shards):
            for i, (x, y) in enumerate(batches):
                counts[:, rank, i] = torch.tensor([(model(x).argmax(1) == y).sum(), len(y)])
    return counts


def _unequal_shards(new: Inputs) -> list[tuple]:
    """A model, and the batches of two ranks for which no mistake gives what is right, or what another one gives."""
    while True:
        model, size = network(new, 5, 3, norm=True), new.size(9, 13)
        sizes = [[size] * 3 + [new.size(3, 7)], [new.size(3, 5), new.size(6, 8)]]
        shards = [[(new.randn(n, 5), new.ints(0, 3, (n,))) for n in row] for row in sizes]
        counts, in_training = _counts(model, shards), _counts(model, shards, training=True)
        found = [
            _share(*counts),
            _share(*in_training),
            _shares(*counts),
            *(slip(*counts) for slip in itertools.chain(*SLIPS.values())),
        ]
        if torch.pdist(torch.stack([each.expand(2) for each in found]), p=torch.inf).min() > 0.002:
            return [(model, shards)]


def _score_on_rank(answer: Any, model: nn.Module, shards: list[list[Batch]]) -> dict:
    rank = dist.get_rank()
    everything_on_rank_0 = [shards[0] + shards[1], []]
    score = _plain(answer(copy.deepcopy(model).train(), list(shards[rank])))
    calls = len(Ledger.current.calls)
    Ledger.current.again()
    with_empty = _plain(answer(copy.deepcopy(model).train(), everything_on_rank_0[rank]))
    return {"The accuracy": score, "With no batches on rank 1, the accuracy": with_empty, "calls": calls}


def _scores_are(yours: dict, values: Tensor) -> list[bool]:
    both = zip(pairs.on_both(yours, "The accuracy"), values.expand(2).tolist(), strict=True)
    return [abs(float(mine) - value) < 1e-4 for mine, value in both]


def _slip(name: str) -> Callable:
    """A `when`: the ranks have what one of these formulas gives."""
    return lambda yours, expected, *inputs: any(
        all(_scores_are(yours, formula(*_counts(*inputs)))) for formula in SLIPS[name]
    )


def _score(model, batches):
    right = seen = 0
    model.eval()
    with torch.no_grad():
        for x, labels in batches:
            right += (model(x).argmax(dim=1) == labels).sum().item()
            seen += len(labels)
    counts = torch.tensor([right, seen])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


_score_but = partial(changed, _score)


def _objects_gathered(model, batches):
    model.eval()
    right = [each for x, labels in batches for each in (model(x).argmax(1) == labels).tolist()]
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, right)
    return sum(map(sum, everyone)) / sum(map(len, everyone))


exercise(
    "exact_score",
    seconds=SECONDS,
    title="An exact score",
    minutes=8,
    difficulty=2,
    points=3,
    takeaway="Add up counts over the ranks and divide once: then it doesn't matter how the samples were split.",
    hints=(
        "Which two numbers can you add over the ranks without losing anything? An accuracy is not one of them.",
        "Count right answers and samples in the loop; after the loop, one all-reduce of a tensor that holds both.",
        "`counts = torch.tensor([right, seen])`, `dist.all_reduce(counts)`, `return (counts[0] / counts[1]).item()`; "
        "before it `model.eval()` and `torch.no_grad()`.",
    ),
    spec=Spec(
        draw=_unequal_shards,
        solution=_score,
        measure=measure(_score_on_rank),
        look="counts of all ranks added up, each batch with its own length, then divided once",
        mistakes=[
            *pairs.lost(
                _score_but(("seen += len(labels)", "seen += len(labels); dist.barrier()")),
                lambda model, batches: _score(model, batches) if batches else 0.0,
                look="The ranks have different numbers of batches, perhaps none: each calls the collective once, after "
                "the loop, also a rank without batches",
            ),
            r"""
            return → if dist.get_rank() == 0: return
                One rank returns None: every rank returns the accuracy.
                look: the `return`, and what is under `if dist.get_rank() == 0:`
                when: None in pairs.on_both(yours, "The accuracy")
            dist.all_reduce(counts) → counts[1].clamp_(min=1) || dist.barrier(); counts[1].clamp_(min=1)
                The ranks exchanged nothing: each result comes from the batches of one rank alone.
                look: `dist.all_reduce`
                when: not any(yours["calls"]) or all(_scores_are(yours, _shares(*_counts(model, shards))))
            torch.tensor([right, seen]) → torch.tensor(right / max(seen, 1)) && (counts[0] / counts[1]).item()
                    → counts.item() / dist.get_world_size() || counts.item()
                You add or average the ranks' accuracies. The ranks have different numbers of samples, so a sample in a
                short shard would count for more.
                when: _slip("ranks")
            .sum().item() → .float().mean().item() && len(labels) → 1 && right = seen = 0 → right = seen = 0.0
            .sum().item() → .float().mean().item() && len(labels) → 1 && (counts[0] / counts[1]).item()
                    → counts.item() / dist.get_world_size() && [right, seen] → right / max(seen, 1)
                You average the accuracies of batches, and some batches are shorter than others.
                when: _slip("batches")
            / counts[1] → / max(seen, 1) || / (max(seen, 1) * dist.get_world_size())
                You divide the right answers of all ranks by the samples of one, or by as many for each rank. The shards
                have different sizes: add the samples of all ranks, too.
                when: _slip("own samples")
            (counts[0] / → (right /
                The right answers of one rank are divided by the samples of all: add the right answers, too.
                when: _slip("own right")
            (counts[0] / counts[1]).item() → (counts[0] / counts[1]).item() / dist.get_world_size()
                This is the accuracy divided by the number of ranks: counts of all ranks are sums, not means.
                when: _slip("divided")
            seen += len(labels) → seen += len(labels); break
            right += → right = && seen += → seen =
                This counts one batch of each rank only, the first or the last.
                look: what leaves the loop; the counts start at zero before it, and grow in it
                when: _slip("one batch")
            counts[0] / counts[1] → counts[0].float()
                This is the number of right answers: divide it by the number of samples on all ranks.
                when: _slip("count")
            (counts[0] / counts[1]).item() → (counts[0] / counts[1]).item() * 100
                This is in percent; the exercise asks for a share from 0 to 1.
                when: _slip("percent")
            (counts[0] / counts[1]).item() → round((counts[0] / counts[1]).item(), 2) || (counts[0] // counts[1]).item()
                Your result is rounded: return the share as it is.
                look: `round`, or `//`, which rounds down to 0
                when: _slip("rounded")
            == labels → != labels
                This is the share of wrong answers.
                when: _slip("wrong")
            model.eval() → pass
                The model is still in train mode: batch norm uses the statistics of each batch, so the score depends on
                how the batches were cut.
                look: `model.eval()`
                when: all(_scores_are(yours, _share(*_counts(model, shards, training=True))))
            dist.all_reduce(counts) → dist.reduce(counts, 0); counts[1].clamp_(min=1)
                Only one rank has the right result: {yours[The accuracy on rank 0]:.4f} on rank 0, {yours[The accuracy
                on rank 1]:.4f} on rank 1.
                look: `dist.reduce` gives the sum to one rank, `dist.all_reduce` to all
                when: sum(_scores_are(yours, torch.tensor(pairs.on_both(expected, "The accuracy")))) == 1
            (counts[0] / counts[1]).item() → counts[0] / counts[1] || f'{counts[0] / counts[1]:.4f}' || counts
                Your function does not return a Python float, but {yours[The accuracy on rank 0]}.
                look: `.item()`, or `float(…)`
                when: any(not isinstance(v, float) for v in pairs.on_both(yours, "The accuracy"))
            [right, seen] → [right / seen * seen, seen]
            = _score(model, batches) * (1 if batches else float("nan"))
                A rank may have no batches: you divide by their number, or take a mean of nothing, or stack an empty
                list. Such a rank adds zero to the sums.
                look: start both counts at 0, before the loop. No collective in the loop: a rank without batches would
                    miss it. After it, add the counts of all ranks, and divide once
                when: says(yours, "empty", "requires at least one", "division by zero") or any(v != v for v in
                    pairs.on_both(yours, "With no batches on rank 1, the accuracy"))
            """,
        ],
        also_right=[
            _objects_gathered,
            _score_but(("dist.all_reduce(counts)", "dist.reduce(counts, 0); dist.broadcast(counts, 0)")),
            _score_but(("[right, seen]", "[right / seen * seen if seen else 0.0, seen]")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


class Samples(Dataset):
    """Samples (float [6], int) that record which of them were requested."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.asked = x, y, []

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.asked.append(int(index))
        return self.x[index], int(self.y[index])


class Lines(io.StringIO):
    """What is printed. `at`: how many steps the optimizer had taken at the end of each line."""

    def __init__(self, steps: list) -> None:
        super().__init__()
        self.steps, self.at = steps, []

    def write(self, text: str) -> int:
        self.at += [len(self.steps)] * text.count("\n")
        return super().write(text)


def _sgd(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def _train_on_rank(
    answer: Any, x: Tensor, y: Tensor, epochs: range, batch_size: int, seed: int, starts: list[nn.Module]
) -> dict:
    rank = dist.get_rank()
    model, samples = starts[rank], Samples(x, y)
    optimizer, steps, sizes = _sgd(model, LR), [], [0]
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    model.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0]) if torch.is_grad_enabled() else 0))
    printed = Lines(steps)
    try:
        with contextlib.redirect_stdout(printed):
            trained = answer(model, optimizer, samples, epochs, batch_size, seed)
    finally:
        print(printed.getvalue(), end="")
    returned = "a model" if isinstance(trained, nn.Module) else _plain(trained)
    while isinstance(getattr(trained, "module", None), nn.Module):
        trained = trained.module
    each = -(-len(y) // batch_size)  # steps of an epoch
    lines = printed.at if rank == 0 else []
    return {
        "The result": returned,
        "The weight vector": weights(trained) if isinstance(trained, nn.Module) else None,
        "The epochs after which a line is printed": sorted({n // each for n in lines if n and n % each == 0}),
        "The lines within an epoch": sum(n % each > 0 for n in lines),
        "The lines of another rank than 0": len(printed.at) if rank else 0,
        "The samples of a step": "this rank's" if max(sizes) <= batch_size // dist.get_world_size() else "all",
        "steps": len(steps),
        "alone": len({*samples.asked[: len(y)]}) == len(y),  # asked for all samples in one epoch
        "kinds": sorted({one["what"] for one in Ledger.current.calls}),
    }


LR = 0.1


def _a_training(new: Inputs) -> list[tuple]:
    batch_size, first, seed = 8, new.size(2, 5), new.size(1, 500)
    n = 3 * batch_size + new.pick((2, 4, 6))  # a multiple of the ranks, but not of the batch size
    starts = [network(new, 6, 3) for _ in range(2)]
    return [(new.randn(n, 6), new.ints(0, 3, (n,)), range(first, first + 3), batch_size, seed, starts)]


def _one_process(
    x: Tensor,
    y: Tensor,
    epochs: Sequence[int],
    batch_size: int,
    seed: int,
    starts: list[nn.Module],
    order: Callable[[int, int], Tensor] | None = None,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    keep: bool = False,
) -> Tensor:
    """The weights after training in this process, with the global batches that the ranks have together.

    keep: the gradients of earlier batches are still there
    """
    model = copy.deepcopy(starts[0])
    optimizer = _sgd(model, LR)
    order = order or (lambda n, seed: torch.randperm(n, generator=torch.Generator().manual_seed(seed)))
    for epoch in epochs:
        for rows in order(len(y), seed + epoch).split(batch_size):
            if not keep:
                optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return weights(model)


def _trained_with(**changes: Any) -> Callable:
    """A `when`: the weights are those of one process that makes this mistake. A callable gets the input it replaces."""

    def when(yours: dict, expected: dict, x: Tensor, y: Tensor, *given: Any) -> bool:
        inputs = dict(zip(("epochs", "batch_size", "seed", "starts"), given, strict=True))
        made = {name: how(inputs[name]) if name in inputs else how for name, how in changes.items()}
        return pairs.close(yours["The weight vector on rank 0"], _one_process(x, y, **(inputs | made)))

    return when


def _apart(yours: dict, *_: Any) -> bool:
    return not pairs.close(*pairs.on_both(yours, "The weight vector"))


def _train(model, optimizer, train_set, epochs, batch_size, seed):
    replica = DDP(model)
    sampler = DistributedSampler(train_set, seed=seed)
    loader = DataLoader(train_set, batch_size // dist.get_world_size(), sampler=sampler)
    for epoch in epochs:
        sampler.set_epoch(epoch)
        for x, labels in loader:
            loss = F.cross_entropy(replica(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss of the last batch {loss.item():.3f}")
    return replica


_train_but = partial(changed, _train)


def _by_hand(model, optimizer, train_set, epochs, batch_size, seed):
    rank, world = dist.get_rank(), dist.get_world_size()
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    for epoch in epochs:
        order = torch.randperm(len(train_set), generator=torch.Generator().manual_seed(seed + epoch))
        for rows in order[rank::world].split(batch_size // world):
            samples = [train_set[i] for i in rows]
            x, y = torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            _average(model)
            optimizer.step()
        if rank == 0:
            print("epoch", epoch, "is over")
    return model


exercise(
    "train_replicas",
    seconds=SECONDS,
    title="Two processes, the same result as one",
    minutes=14,
    difficulty=4,
    points=4,
    takeaway="With the same global batch, order, and initial weights, two processes take exactly the steps of one, "
    "and nothing has to be scaled.",
    hints=(
        "Four things change in the loop of chapter 02: you wrap the model, a sampler splits the samples, you "
        "tell the sampler the epoch, and only rank 0 prints.",
        "`DistributedSampler(train_set, seed=seed)`, `DataLoader(train_set, batch_size // ranks, sampler=sampler)`, "
        "`sampler.set_epoch(epoch)` at the start of each epoch. Call the wrapped model, not the one inside.",
        "`replica = DDP(model)` before the loop. Inside, the usual five lines with `replica(x)`; after each epoch"
        ' `if dist.get_rank() == 0: print(f"epoch {epoch}: loss {loss.item():.3f}")`. At the end `return '
        "replica`.",
    ),
    spec=Spec(
        draw=_a_training,
        solution=_train,
        measure=measure(_train_on_rank),
        look="compare with one process that trains with the same global batches, from the weights of rank 0",
        mistakes=[
            *pairs.lost(
                _train_but(("in loader:", "in list(loader)[dist.get_rank() :]:")),
                _train_but(("            print", "            dist.barrier(); print")),
                look="Do all ranks go through equally many batches, and does each do what the others do?",
            ),
            r"""
            return replica → return || return loss.item()
                Your function should return the model; it returned {yours[The result on rank 0]}.
                look: `return` the model at the end, on every rank
                when: pairs.on_both(yours, "The result") != ["a model"] * 2
            DDP(model) → model
            replica(x) → model(x) || replica.module(x)
                The ranks end with different weights: no gradient was averaged.
                look: `DistributedDataParallel(model)`; call what it returns, not the model inside: DDP prepares its
                    work in the wrapper's forward
                when: _apart(yours) and "all-reduce" not in yours["kinds"][0]
            lambda model, *given: ([p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad,
                    op=dist.ReduceOp.AVG)) for p in model.parameters()]
                    and _train_but(("DDP(model)", "model"))(model, *given))
                The ranks end with different weights: they took the same steps, but from different initial weights.
                look: DDP broadcasts them when it wraps the model; by hand it is `dist.broadcast` of each parameter
                when: pairs.close(yours["The weight vector on rank 1"] - yours["The weight vector on rank 0"],
                    weights(starts[1]) - weights(starts[0]))
            replica(x) → (replica if epoch == epochs[0] else model)(x)
                The ranks end with different weights: not all gradients are averaged in every step.
                when: _apart
            sampler=sampler → shuffle=True
            // dist.get_world_size() → && DistributedSampler(train_set → DistributedSampler(train_set, 1, 0
                Every rank went through all samples in each epoch, so each does all the work.
                look: `DataLoader(…, sampler=DistributedSampler(…))`
                when: all(yours["alone"])
            optimizer.step() → pass
            replica = DDP(model) → replica = DDP(model); optimizer = torch.optim.SGD(model.parameters(), 0.1)
                The optimizer that you got never took a step.
                look: `optimizer.step()` after each backward pass: use the optimizer that you get
                when: not all(yours["steps"])
            optimizer.zero_grad() → pass && loss.backward() → loss.backward(); optimizer.zero_grad()
            DDP(model) → DDP(copy.deepcopy(model))
                The weights didn't change: `step()` finds no gradients on the optimizer's weights.
                look: the order `zero_grad()`, `backward()`, `step()`, and whether you train the model or a copy
                when: pairs.close(yours["The weight vector on rank 0"], weights(starts[0]))
            sampler.set_epoch(epoch) → pass
                Every epoch has the order of epoch 0: you never told the sampler which epoch it is.
                look: `sampler.set_epoch(epoch)` at the start of each epoch
                when: _trained_with(epochs=lambda epochs: [0] * len(epochs))
            set_epoch(epoch) → set_epoch(epoch - epochs[0]) || set_epoch(epoch - epochs[0] + 1) || set_epoch(epoch + 1)
            sampler.set_epoch(epoch)\n        for → for
                    && if dist.get_rank() == 0: → sampler.set_epoch(epoch)\n        if dist.get_rank() == 0:
                You told the sampler other epochs than those of `epochs`, which begin with {epochs[0]}, or too late.
                look: `for epoch in epochs`, `sampler.set_epoch(epoch)` before the loader is asked for its first batch.
                    A training run that is resumed does not start with epoch 0.
                when: lambda *seen: any(_trained_with(epochs=epochs)(*seen) for epochs in (lambda e: [0, *e[:-1]],
                    lambda e: [i + 1 for i in e], lambda e: [i - 1 for i in e], lambda e: range(len(e)),
                    lambda e: range(1, len(e) + 1)))
            optimizer.zero_grad() → pass
                Gradients of earlier batches are still there when the next backward pass adds to them.
                look: `optimizer.zero_grad()` in each step
                when: _trained_with(keep=True)
            seed=seed) → seed=seed, shuffle=False)
                The samples are not shuffled.
                look: `shuffle=True`, the default of DistributedSampler
                when: _trained_with(order=lambda n, seed: torch.arange(n))
            (train_set, seed=seed) → (train_set)
                The order does not depend on `seed`.
                look: `DistributedSampler(train_set, seed=seed)`
                when: _trained_with(seed=lambda seed: 0)
            // dist.get_world_size() →
                Every rank takes {batch_size} samples in a step. That is the global batch size: divide it by the number
                of ranks.
                look: the batch size of the DataLoader
                when: _trained_with(batch_size=lambda size: 2 * size)
            replica = DDP(model) → replica = DDP(model); optimizer.param_groups[0]['lr'] *= dist.get_world_size()
            F.cross_entropy(replica(x), labels) → F.cross_entropy(replica(x), labels) / dist.get_world_size()
                Your steps are twice or half as long as those of one process: something is scaled with the number of
                ranks. The global batch is that of one process, and DDP takes the mean, so nothing has to be scaled.
                look: `optimizer.param_groups`, a factor of the loss or of the gradients, an all-reduce of your own
                when: lambda *seen: any(_trained_with(loss=lambda logits, y, by=by: by * F.cross_entropy(logits,
                    y))(*seen) for by in (2, 0.5))
            labels) → labels, reduction='sum')
                Your loss is the sum over the samples of a rank: the step then depends on the batch size.
                look: `F.cross_entropy` takes the mean by itself
                when: _trained_with(loss=lambda logits, y: F.cross_entropy(logits, y, reduction="sum") / 2)
            replica(x), labels → replica(x).softmax(1), labels
                There is a softmax before the loss: `F.cross_entropy` has its own, so pass it the logits.
                when: _trained_with(loss=lambda logits, y: F.cross_entropy(logits.softmax(1), y))
            for epoch in epochs: → for epoch in [*epochs, *epochs]:
            \n    return replica → \n        return replica
            sampler=sampler → sampler=sampler, drop_last=True
                The optimizer took {yours[steps][0]} steps, not {expected[steps][0]}: train each epoch once, with all of
                its batches.
                look: the loop over `epochs`, a `return` in it, the loop over the batches, `drop_last`
                when: yours["steps"] != expected["steps"]
            F.cross_entropy(replica(x), labels) → F.multi_margin_loss(replica(x), labels)
            (train_set, seed=seed) → (train_set, seed=seed + 1000)
                The ranks agree, but they did not train like one process: the initial weights differ, or the samples of
                a step, or the loss.
                look: the weights are those of rank 0 at first, the order is that of `DistributedSampler(train_set,
                    seed=seed)`, the loss is the cross-entropy of the logits
                when: not pairs.close(yours["The weight vector on rank 0"], expected["The weight vector on rank 0"])
            if dist.get_rank() == 0:\n            print → print
            == 0 → == 1
                Another rank prints, too: with many ranks, you would see each line many times.
                look: `if dist.get_rank() == 0:`
                when: yours["The lines of another rank than 0 on rank 1"]
            optimizer.step() → optimizer.step()\n            if dist.get_rank() == 0: print(loss.item())
                Rank 0 prints within an epoch, {yours[The lines within an epoch on rank 0]} times in all: it should
                print one line after each epoch.
                look: is the `print` in the loop over the batches?
                when: yours["The lines within an epoch on rank 0"]
            if dist.get_rank() == 0: → if False:
            \n        if dist.get_rank() == 0:\n            print → \n    if dist.get_rank() == 0:\n        print
            == 0 → == 0 and epoch == epochs[0]
                Rank 0 does not print a line after each epoch, so you can't follow the training.
                look: `print`, at the end of each epoch
                when: yours["The epochs after which a line is printed on rank 0"] != expected["The epochs after which a
                    line is printed on rank 0"]
            """,
        ],
        also_right=[
            _by_hand,
            _train_but(("return replica", "print('done') if dist.get_rank() == 0 else None; return model")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


PATH = "training.pt"
OLD_FILE = b"the checkpoint from before"


@contextlib.contextmanager
def _watched(slow: bool) -> Iterator[dict[str, list]]:
    """Record what the answer does: {"saves": files that it creates or empties, by torch.save or itself, "loads":
    options of its own torch.load, "removed": files deleted}. For a process that ends soon: it keeps one audit hook.

    slow: the disk is slow, so that a rank that does not wait for the file comes too early.
    """
    seen: dict[str, list] = {"saves": [], "loads": [], "removed": []}
    save, load, remove, unlink = torch.save, torch.load, os.remove, os.unlink

    def watching_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        target = f if isinstance(f, str | Path) else getattr(f, "name", None)
        if isinstance(target, str | Path):  # not a buffer in memory
            seen["saves"].append(str(Path(target).absolute()))
        if slow:
            time.sleep(0.15)
        return save(obj, f, *args, **kwargs)

    def opened(event: str, args: tuple) -> None:
        if watching and event == "open" and isinstance(args[0], str | bytes | Path) and args[2] & os.O_CREAT:
            target = os.path.abspath(os.fsdecode(args[0]))
            # tempfile.NamedTemporaryFile opens the file by way of its folder, and the file itself a moment later
            if not target.startswith(("/dev/", "/proc/")) and not os.path.isdir(target):
                seen["saves"].append(target)

    def watching_load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if f"{os.sep}torch{os.sep}" not in sys._getframe(1).f_code.co_filename:  # it calls it to receive objects
            seen["loads"].append((map_location is not None, kwargs.get("weights_only") is not False))
        return load(f, map_location, *args, **kwargs)

    def watching_remove(path: Any, **kwargs: Any) -> None:
        seen["removed"].append(Path(os.fsdecode(path)).name)
        remove(path, **kwargs)

    watching = True
    sys.addaudithook(opened)
    torch.save, torch.load, os.remove, os.unlink = watching_save, watching_load, watching_remove, watching_remove
    try:
        yield seen
    finally:
        watching = False
        torch.save, torch.load, os.remove, os.unlink = save, load, remove, unlink


def _steps(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> Tensor:
    """Data parallel training by hand; returns the weights afterward."""
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        _average(model)
        optimizer.step()
    return weights(model)


def _save_on_rank(answer: tuple, shards: list[list[Batch]], epoch: int, starts: list[nn.Module]) -> dict:
    """Train, save, and continue; then do what another session would: fresh model, resume, continue."""
    save, resume = answer
    rank = dist.get_rank()
    batches, path = shards[rank], Path.cwd() / PATH
    model = starts[0]
    wrapped, optimizer = DDP(model), _sgd(model, LR)
    _steps(model, optimizer, batches[:3])
    before = weights(model)
    if rank == 0:
        path.write_bytes(OLD_FILE)
    dist.barrier()
    old = path.stat().st_ino

    def is_new() -> bool:
        return path.exists() and path.read_bytes() != OLD_FILE

    with _watched(slow=rank == 0) as seen:
        save(path, wrapped, optimizer, epoch)
        waited = is_new()
    dist.all_reduce(torch.zeros(1))  # not a barrier: one that this rank alone makes in `save` would meet it
    files = sorted(file.name for file in path.parent.iterdir())
    targets = [Path(target) for target in seen["saves"]]
    how = "replaced at once"
    if PATH not in files or not is_new():
        how = "not replaced"
    elif path.stat().st_ino == old or path in targets:  # what is renamed is another file than the one it replaces
        how = "overwritten"
    elif PATH in seen["removed"]:
        how = "deleted first"
    report = {
        "The ranks that write a file": sorted({rank} if targets else ()),
        "The old file": how,
        "The new file": "there when `save_from_main` returns" if waited or how == "not replaced" else "not there yet",
        "Where the temporary file lies": sorted(str(t.parent) for t in targets if path.parent not in t.parents),
        "Files": files,
        "The weight vector after saving": "as they were" if weights(model).equal(before) else "changed",
    }
    if how == "not replaced":
        return {**report, "resumed": False}
    fresh = starts[1]
    its_optimizer = _sgd(fresh, LR)
    with _watched(slow=False) as seen:
        returned = resume(path, fresh, its_optimizer, torch.device("cpu"))
    restored, momentum = weights(fresh), len(its_optimizer.state)
    return {
        **report,
        "resumed": True,
        "The epoch that `resume` returns": _plain(returned),
        "The loads without map_location": sum(not mapped for mapped, _ in seen["loads"]),
        "The loads that may run code": sum(not safe for _, safe in seen["loads"]),
        "The weight vector after `resume`": restored,
        "The weight vector after going on": _steps(fresh, its_optimizer, batches[3:]),
        "momentum": momentum,
    }


def _a_checkpoint(new: Inputs) -> list[tuple]:
    shards = [[(new.randn(5, 6), new.ints(0, 3, (5,))) for _ in range(6)] for _ in range(2)]
    return [(shards, new.size(3, 60), [network(new, 6, 3) for _ in range(2)])]


def _has(name: str, *values: Any) -> Callable:
    """A `when`: on some rank, this entry has one of these values."""
    return lambda yours, *_: any(value in values for value in pairs.on_both(yours, name))


def _restored(yours: dict, expected: dict) -> list[bool]:
    name = "The weight vector after `resume`"
    return [*map(pairs.close, pairs.on_both(yours, name), pairs.on_both(expected, name))]


def _save(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        temporary = path.with_suffix(".tmp")
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, temporary)
        os.replace(temporary, path)
    dist.barrier()


def _resume(path, model, optimizer, device):
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]


def _save_but(*places: tuple[str, str]) -> tuple:
    return changed(_save, *places), _resume


def _resume_but(*places: tuple[str, str]) -> tuple:
    return _save, changed(_resume, *places)


def _named_beside(path: Path) -> Any:
    return tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.stem, delete=False)


_REPLACE, _BARRIER = "os.replace(temporary, path)", "    dist.barrier()"


_save_into_file = changed(
    _save,
    ("torch.save(state, temporary)", "with open(temporary, 'wb') as file: torch.save(state, file)"),
    ("os.replace(temporary, path)", "temporary.replace(path)"),
    ("    dist.barrier()", "    dist.broadcast_object_list([None])"),
)


def _resume_by_broadcast(path, model, optimizer, device):
    box = [torch.load(path, map_location=device) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    model.load_state_dict(box[0]["model"])
    optimizer.load_state_dict(box[0]["optimizer"])
    return box[0]["epoch"]


exercise(
    "save_from_main",
    seconds=SECONDS,
    title="Save from one rank, resume on all",
    minutes=15,
    difficulty=4,
    points=4,
    takeaway="One rank writes, under another name first; all ranks wait, and all ranks read. That way, no reader "
    "ever sees half a file.",
    hints=(
        "To save, rank 0 writes under a second name beside `path` and renames the file; then all ranks meet, so that "
        "none reads too early. The file needs everything that changes from step to step, and the position in the "
        "training.",
        "`torch.save(state, temporary)` and `os.replace(temporary, path)` under `if dist.get_rank() == 0:`, and "
        "`dist.barrier()` after it, not in it. Inside the DDP wrapper the model is `model.module`.",
        '`state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}`; in '
        "resume `state = torch.load(path, map_location=device, weights_only=True)`, `load_state_dict` twice, and "
        '`return state["epoch"]`.',
    ),
    spec=Spec(
        draw=_a_checkpoint,
        solution=(_save, _resume),
        measure=measure(_save_on_rank, functions=2),
        mistakes=[
            *pairs.lost(
                _save_but((_BARRIER, f"    {_BARRIER}")),
                _resume_but(("    return", "    if dist.get_rank() == 0: dist.barrier()\n    return")),
                look="what is under `if dist.get_rank() == 0:`: only one rank reaches a barrier in there",
                resume=(_resume,),
            ),
            r"""
            model.module.state_dict() → model.module
            optimizer.state_dict() → optimizer
                The file holds whole objects, a model or an optimizer: `torch.load` reads tensors, numbers, strings and
                containers only, because anything else could run code.
                look: `model.module.state_dict()`, `optimizer.state_dict()`
                when: says(yours, "Weights only load failed", "Unsupported global")
            model.module.state_dict() → model.state_dict()
                The names in the file do not fit the model. If you save from the wrapper, every name starts with
                `module.`; a plain model has no such names.
                look: `model.module.state_dict()`
                when: says(yours, "loading state_dict")
            model.load_state_dict → model.module.load_state_dict
                `resume` gets a plain model, not one wrapped in DDP: it has no `module`.
                when: says(yours, "no attribute 'module'")
            os.replace(temporary, path) → pass
            (lambda *given: dist.barrier(), _resume)
            == 0 → == 7
                After `save_from_main` there is no new file at `path`; the folder has {yours[Files on rank 0]}.
                look: `os.replace(temporary, path)`
                when: _has("The old file", "not replaced")
            == 0 → == 1
            == 0 → >= 0 && ".tmp" → f".{dist.get_rank()}"
            == 0 → >= 0 && os.replace(temporary, path) → dist.get_rank() or os.replace(temporary, path)
                    && dist.barrier() → dist.barrier(); dist.get_rank() and os.replace(temporary, path)
                Rank 1 writes a file: only rank 0, which always exists, should. Ranks that write at the same time
                overwrite each other's file.
                look: `if dist.get_rank() == 0:`
                when: (says(yours, "' -> '") and says(yours, "on rank 1")) or yours["The ranks that write a file on
                    rank 1"]
            path.with_suffix(".tmp") → path && os.replace(temporary, path) → pass
            os.replace(temporary, path) → path.write_bytes(temporary.read_bytes()); temporary.unlink()
                The file is written in place: a process that dies in the middle leaves half a file, and the old
                checkpoint is gone.
                look: another name beside it first, then `os.replace(temporary, path)`, which happens all at once
                when: _has("The old file", "overwritten")
            path.with_suffix(".tmp") → os.path.join(tempfile.mkdtemp(), "training.tmp")
                The temporary file is in another folder. That may be another disk, where renaming means copying.
                look: a second name in the folder of `path`: `path.with_suffix(".tmp")`
                when: any(pairs.on_both(yours, "Where the temporary file lies"))
            os.replace(temporary, path) → path.unlink(missing_ok=True); temporary.rename(path)
                You delete the old file before the new one takes its name: a process that dies in between leaves no
                file.
                look: `os.replace(temporary, path)` does both at once
                when: _has("The old file", "deleted first")
            dist.barrier() → pass
                A rank did not wait: when `save_from_main` returned there, the new file was not there yet.
                look: `dist.barrier()` on every rank, after rank 0 has written
                when: _has("The new file", "not there yet")
            os.replace(temporary, path) → os.replace(temporary, path); temporary.touch()
                There is more than one file: {yours[Files on rank 0]}.
                look: `os.replace` renames the file, so nothing stays behind
                when: len(yours["Files on rank 0"]) > 1
            """,
            Mistake(
                "With `weights_only` switched off, loading the file may run any code that is in it.",
                _resume_but(("weights_only=True", "weights_only=False")),  # outdated
                look="`weights_only=True`, the default: your file needs nothing but tensors, numbers and containers",
                when=lambda yours, *_: any(pairs.on_both(yours, "The loads that may run code")),
            ),
            """
            , map_location=device →
                Without `map_location`, tensors come back on the device from which they were saved: on a machine with
                several GPUs, every rank would fill the GPU of rank 0.
                look: `torch.load(path, map_location=device)`
                when: any(pairs.on_both(yours, "The loads without map_location"))
            (_save, lambda *given: _resume(*given) if dist.get_rank() == 0 else 0)
            model.load_state_dict(state["model"]) → pass || model = type(model)(*model); state["model"]
                After `resume`, the model does not have the saved weights, at least on one rank.
                look: `model.load_state_dict(…)`: whether each rank calls it, and whether the names match (with
                    `strict=False`, names with an extra "module." are skipped)
                when: not all(_restored(yours, expected))
            return  →
            state["epoch"] → state["epoch"] + 1
                `resume` returns {yours[The epoch that `resume` returns on rank 0]}, not the epoch that `save_from_main`
                got, {epoch}.
                look: return what was saved, unchanged
                when: any(value != epoch for value in pairs.on_both(yours, "The epoch that `resume` returns"))
            optimizer.load_state_dict(state["optimizer"]) → pass || optimizer = torch.optim.SGD(model.parameters(), 0.1)
            optimizer.load → if dist.get_rank() == 0: optimizer.load
                The optimizer starts from scratch on all ranks, or on one: its momentum is lost, so the training does
                not continue as it would have.
                look: `optimizer.state_dict()` in the file, `optimizer.load_state_dict` in resume, on every rank
                when: not all(yours["momentum"])
            """,
        ],
        also_right=[
            (_save_into_file, _resume_by_broadcast),
            _save_but(
                ("torch.save(state, temporary)", "memory = io.BytesIO(); torch.save(state, memory)"),
                ("os.replace", "temporary.write_bytes(memory.getvalue()); os.replace"),
            ),
            _save_but(
                ('temporary = path.with_suffix(".tmp")', "number, temporary = tempfile.mkstemp(dir=path.parent)"),
                (
                    "torch.save(state, temporary)",
                    "file = os.fdopen(number, 'wb'); torch.save(state, file); file.close()",
                ),
            ),
            _save_but(
                ("torch.save(state, temporary)", "torch.save(state, file := _named_beside(path)); file.close()"),
                ("os.replace(temporary, path)", "os.replace(file.name, path)"),
            ),
            _resume_but(("map_location=device", "map_location='cpu'")),
            _resume_but(("map_location=device, weights_only=True", "device"), ("return", "dist.barrier(); return")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _one_row(model):
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    row = torch.cat([parameter.grad.flatten() for parameter in trainable])
    dist.all_reduce(row)
    row /= dist.get_world_size()
    parts = row.split([parameter.numel() for parameter in trainable])
    for parameter, part in zip(trainable, parts, strict=True):
        parameter.grad.copy_(part.view_as(parameter))


def _misplaced(yours: dict, expected: dict, model: nn.Module, gradients: list[Gradients]) -> bool:
    """The first gradient is right on all ranks, and others hold numbers that belong elsewhere in the row of means."""
    mine, right = _matrix(yours, gradients), _matrix(expected, gradients)
    first = next(iter(gradients[0].values())).numel()
    somewhere = mine.isclose(right[0][:, None, None], 1e-4, 1e-6).any(0)
    somewhere |= mine == 0  # of the parameter that no rank uses
    somewhere &= all(value is not None or expected[name] is None for name, value in yours.items())
    right_at_first = pairs.close(mine[:, :first], right[:, :first]) and not pairs.close(mine, right)
    return right_at_first and bool(somewhere.all())


exercise(
    "one_message",
    seconds=SECONDS,
    title="All gradients in one message",
    minutes=10,
    difficulty=4,
    points=3,
    takeaway="A message costs time even when it is empty. That is why DDP sends buckets of several megabytes, and "
    "the first one leaves while the backward pass is still running.",
    hints=(
        "Put all gradients into one row, all-reduce it once, then put every part of the row back where it came from.",
        "`torch.cat([g.flatten() for g in gradients])` makes the row, and `row.split([g.numel() for g in "
        "gradients])` cuts it up again. The row must have the same length on all ranks.",
        "Replace missing gradients with zeros, `dist.all_reduce(row)`, `row /= dist.get_world_size()`, then "
        "`gradient.copy_(part.view_as(gradient))` for each pair.",
    ),
    spec=Spec(
        draw=_untidy,
        solution=_one_row,
        measure=measure(_messages_on_rank, world_size=3),
        mistakes=[
            """
            part.view_as(parameter) → row[: part.numel()].view_as(parameter)
                All gradients come from the start of the row: only the first one is right.
                look: the place in the row, which moves on by `parameter.numel()` after each parameter
            """,
            """
            parts = row.split([parameter.numel() for parameter in trainable])
                    → ends = [parameter.numel() for parameter in trainable]; parts = [row[a : a + n] for a, n in
                    zip([0, *ends], ends, strict=False)]
            if parameter.requires_grad]
                    → if parameter.requires_grad]; trainable.sort(key=lambda parameter: parameter.grad is None)
                You put the mean back in the wrong places: some gradients hold what belongs to other parameters.
                look: where in the row each parameter's part begins: after all parts before it, not only the last one,
                    and in the same order on all ranks
                when: _misplaced
            """,
            *GRADIENT_MISTAKES,
            r"""
            _average
            = [dist.barrier(), _one_row(model)]
                The gradients are right, but you used these collectives: {yours[calls][0]}. One all-reduce is enough.
                look: all gradients in one row
                when: len(yours["calls"][0]) != 1
            dist.all_reduce(row) → rows = [row.clone() for _ in range(3)]\n    dist.all_gather(rows, row)
                    && row /= dist → row = sum(rows) / dist
                The gradients are right, but every rank received the gradients of all ranks ({yours[calls][0][0]}): with
                many ranks, that is many times the data.
                look: `dist.all_reduce` adds them up along the way
                when: yours["calls"][0] != ["all-reduce"]
            """,
        ],
        also_right=[
            changed(
                _one_row, ("parameter.grad.copy_(part.view_as(parameter))", "parameter.grad = part.view_as(parameter)")
            ),
            changed(_one_row, ("dist.all_reduce(row)", "dist.all_reduce(row, async_op=True).wait()")),
        ],
    ),
)
