"""The exercises of chapter 06: data parallel training, judged by runs in two real processes.

Every judge does the same: it draws inputs, computes in this process what a single process would get, lets the answer
work in two processes, and compares. The functions named `_on_rank_...` run in those processes, once on each rank.
"""

import contextlib
import copy
import inspect
import io
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from torchcourse.checks import ranks
from torchcourse.checks.collectives import Ledger, details, sentence
from torchcourse.checks.engine import (
    AnswerRaised,
    Incorrect,
    Inputs,
    attempted,
    call,
    chapter,
    is_students,
    mistake,
    same,
)
from torchcourse.checks.show import show
from torchcourse.checks.training_loop import plain_number, weights

RANKS = 2
PATIENCE = 60.0  # seconds for the two processes; after the first start they need well under one
SECONDS = 120.0  # for a whole check: the first one of a session starts the server from which processes are forked

exercise = chapter("06_ddp")
Batch = tuple[Tensor, Tensor]
Visit = dict[str, Any]  # what happened on one rank while the answer ran: see `_visit`


# ---------------------------------------------------------------------------------------------------------------------
# Into the two processes, and back


def _in_two(harness: Callable[..., Any], *args: Any, seed: int, look: str | None = None) -> list[Any]:
    """What `harness(*args)` returns on each of two ranks. Shows what the ranks printed, on whatever ends the run.

    seed: rank r starts with the random state of seed + r.
    look: where to look if the ranks lose each other.
    Raises what the engine shows if they do, or if the answer raised on a rank.
    """
    outcome = ranks.run(harness, *args, world_size=RANKS, timeout=PATIENCE, seed=seed)
    for rank in outcome:
        for line in rank.printed.splitlines()[:20]:
            print(f"[rank {rank.rank}] {line}")
    ranks.judge(outcome)
    for visits in zip(*(value if isinstance(value, list) else [value] for value in outcome.values), strict=True):
        for visit in visits:
            if visit["trouble"]:
                raise Incorrect(
                    sentence(visit["trouble"]),
                    "the same collectives in the same order on every rank",
                    details(visit["trouble"]),
                    visit.get("look", look),
                )
    return outcome.values


def _visit(name: str, answer: Callable[..., Any], *args: Any) -> Visit:
    """Run the answer on this rank and describe what happened. What it raises goes on, and ends the run.

    name: of this visit, the same on all ranks.
    returns: "returned", "calls" (its collectives), "trouble" (None, or what each rank was about to do when they
    disagreed), "over" (whether to stop here, on all ranks alike)
    """
    ledger, returned = Ledger(name), None
    try:
        with ledger:
            returned = answer(*args)
    except (Exception, SystemExit):
        if ledger.trouble is None:
            raise
    return {"returned": returned, "calls": ledger.calls, "trouble": ledger.trouble, "over": ledger.over}


def _plain(value: Any) -> Any:
    """The value itself if it can travel between processes as it is, else words for it."""
    if value is None or isinstance(value, (bool, int, float, str, np.number)):
        return value
    if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_meta:
        return value.detach().cpu().clone()
    return show(value)


def _ready(answer: Any, *names: str) -> None:
    """Raise NotAttempted for a stub and Incorrect for what takes no such arguments, before any process starts."""
    attempted(answer)
    if not callable(answer):
        raise Incorrect("Your answer is not a function.", "the function itself, without parentheses", answer)
    try:
        inspect.signature(answer).bind(*names)
    except TypeError as error:
        raise Incorrect(
            "Your function does not take the arguments that it is given.", ", ".join(names), str(error)
        ) from None
    except ValueError:  # a callable without a signature, from C
        pass


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-6, equal_nan=True)


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "shard_indices",
    seconds=SECONDS,
    title="Share out a data set",
    minutes=7,
    difficulty=2,
    points=2,
    takeaway="No rank has to ask another one: one seed gives all of them the same row, and each takes its own part.",
    hints=(
        "Every rank shuffles all the numbers, with a generator of its own that is seeded alike on all ranks. Then each "
        "takes a part that no other one takes.",
        "The generator's seed must change from epoch to epoch, and must not depend on the rank. For the parts, "
        "think of dealing cards: a slice with a step.",
        "`order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))`, and then "
        "`order[rank::world_size]`.",
    ),
)
def shard_indices(answer: Any, new: Inputs) -> None:
    _ready(answer, "length", "rank", "world_size", "epoch", "seed")
    seed, epoch = new.size(10, 1000), new.size(2, 9)
    for world in (2, 4, 3):
        length = world * new.size(8, 14) + new.size(1, world - 1)  # never a multiple: there is a tail
        _shards_right(answer, new, length, world, epoch, seed)
        if world == 2:
            _shards_anew(answer, length, world, epoch, seed)
    _shards_right(answer, new, 3, 4, epoch, seed)  # fewer samples than ranks
    # In two processes, which have nothing in common but the arguments.
    length = 2 * new.size(10, 20) + 1
    expected = [_shard(answer, length, rank, 2, epoch, seed) for rank in range(2)]
    visits = _in_two(_on_rank_shard, answer, length, epoch, seed, seed=seed)
    if [visit["returned"] for visit in visits] != expected:
        raise Incorrect(
            "In two processes your shards are others than in one: they depend on something that ranks do not share.",
            "shards made from the arguments alone",
            look="random numbers without a seeded generator, the clock, the process number, the order of a set",
        )


def _on_rank_shard(answer: Any, length: int, epoch: int, seed: int) -> Visit:
    visit = _visit("shard", answer, length, dist.get_rank(), dist.get_world_size(), epoch, seed)
    with contextlib.suppress(TypeError, ValueError):
        visit["returned"] = [int(i) for i in visit["returned"]]
    return visit


def _shard(answer: Any, length: int, rank: int, world: int, epoch: int, seed: int) -> list[int]:
    """One rank's shard as a list of ints. Raises Incorrect for anything that is no row of whole numbers."""
    yours = call(answer, length, rank, world, epoch, seed)
    if isinstance(yours, (Tensor, np.ndarray)) and yours.dtype in (torch.bool, np.bool_):
        raise Incorrect("Your shard is a mask.", "the indices themselves", yours, "`mask.nonzero().flatten()`")
    if isinstance(yours, Tensor) and yours.ndim == 1 and not yours.is_floating_point() and not yours.is_complex():
        return yours.tolist()
    if isinstance(yours, np.ndarray) and yours.ndim == 1 and np.issubdtype(yours.dtype, np.integer):
        return yours.tolist()
    if isinstance(yours, (list, tuple, range)) and all(isinstance(i, (int, np.integer)) for i in yours):
        return [int(i) for i in yours]
    raise Incorrect("Your shard is not a row of whole numbers.", "an int64 tensor [n]", yours)


def _shards_right(answer: Any, new: Inputs, length: int, world: int, epoch: int, seed: int) -> None:
    """Raise Incorrect unless every index from 0 to length - 1 is in exactly one shard."""
    shards = []
    for rank in range(world):
        torch.manual_seed(new.size(0, 10**6))  # every process has random numbers of its own
        np.random.seed(new.size(0, 10**6))  # outdated, but answers may draw from it
        shards.append(_shard(answer, length, rank, world, epoch, seed))
    everything = sorted(itertools.chain.from_iterable(shards))
    case = f"{length} indices for {world} ranks"
    sizes = ", ".join(str(len(shard)) for shard in shards)
    outside = [i for i in everything if not 0 <= i < length]
    if outside:
        raise Incorrect(f"Your shards hold indices that do not exist ({case}).", f"0 to {length - 1}", outside[0])
    twice = [i for i, next_one in itertools.pairwise(everything) if i == next_one]
    missing = sorted(set(range(length)) - set(everything))
    if world > 1 and length > world and all(sorted(shard) == list(range(length)) for shard in shards):
        raise Incorrect(
            f"Every rank gets all the indices ({case}): each would do the whole work.",
            f"about {length // world} indices for each rank",
            f"{sizes} indices",
            "the part that `rank` and `world_size` play",
        )
    if twice and not missing and len(twice) < world and len({len(shard) for shard in shards}) == 1:
        raise Incorrect(
            f"The tail is padded ({case}): to make all shards equally long, some indices are given out twice.",
            "every index once; some shards are one longer",
            f"{sizes} indices, {twice[0]} twice",
            "`DistributedSampler` pads like this, and a test score then counts samples twice",
        )
    if missing and not twice and len(missing) < world and length >= world:
        raise Incorrect(
            f"The tail is lost ({case}): nobody gets the last few indices.",
            "every index once; some shards are one longer",
            f"{sizes} indices, nobody has {missing[0]}",
            "whole-number division: `length // world_size` drops the rest",
        )
    if twice and missing and len({len(shard) for shard in shards}) <= 2:
        raise Incorrect(
            f"The shards overlap, and other indices are in none ({case}): the ranks did not shuffle alike.",
            "the same order on every rank, of which each takes its part",
            f"{len(twice)} indices twice, {len(missing)} in no shard",
            "the generator: its seed must not depend on the rank, and the global generator differs in every process",
        )
    if twice:
        raise Incorrect(f"The shards overlap ({case}).", "every index once", f"{twice[0]} is there twice")
    if missing:
        raise Incorrect(f"Indices are lost ({case}).", "every index once", f"nobody has {missing[0]}")
    if max(map(len, shards)) - min(map(len, shards)) > 1:
        raise Incorrect(
            f"The shards are of very different lengths ({case}): in each step, all wait for the longest.",
            "lengths that differ by one at most",
            f"{sizes} indices",
            "deal them out like cards: a slice with a step",
        )


def _turned(row: list[int]) -> bool:
    """True if the indices come in equal steps, but for one place where a row that was turned begins anew."""
    steps = [b - a for a, b in itertools.pairwise(row)]
    return max(map(steps.count, steps)) >= len(steps) - 1


def _shards_anew(answer: Any, length: int, world: int, epoch: int, seed: int) -> None:
    """Raise Incorrect unless the shards are shuffled, come again with the same seed, and change with epoch and seed."""
    first, again, later = (_shard(answer, length, 0, world, e, seed) for e in (epoch, epoch, epoch + 1))
    if first != again:
        raise Incorrect(
            "The same arguments give another shard each time: two ranks, or a run repeated, would not agree.",
            look="`torch.Generator().manual_seed(…)`, handed to `torch.randperm`",
        )
    rows = (first, later, _shard(answer, length, 0, world, epoch, seed + 13))
    if all(_turned(row) for row in rows):
        raise Incorrect("Nothing is shuffled: the shard is the indices in their order.", "a random order", first)
    if first == later:
        raise Incorrect(
            "Every epoch has the same order: this is what a forgotten `set_epoch` does.",
            "another order in each epoch",
            f"epochs {epoch} and {epoch + 1} give the same shard",
            "let the seed of the generator depend on `epoch`",
        )
    if sorted(first) == sorted(later):
        raise Incorrect(
            "A rank gets the same samples in every epoch, only in another order.",
            "all indices shuffled anew, then shared out",
            f"epochs {epoch} and {epoch + 1} give the same set",
            "shuffle first, cut afterwards",
        )
    neighbors = [
        {pair for rank in range(world) for pair in itertools.pairwise(_shard(answer, length, rank, world, e, seed))}
        for e in (epoch, epoch + 1)
    ]
    if len(neighbors[0] & neighbors[1]) > length / 2:  # of a row that is shuffled anew hardly any stay together
        raise Incorrect(
            "The next epoch has the same row, only turned, or dealt to other ranks.",
            "all indices shuffled anew",
            f"{len(neighbors[0] & neighbors[1])} neighbors stay together from epoch {epoch} to {epoch + 1}",
            "let the seed of the generator depend on `epoch`",
        )
    for e in (epoch, 0):
        if _shard(answer, length, 0, world, e, seed) == _shard(answer, length, 0, world, e, seed + 13):
            raise Incorrect(
                f"Another seed gives the same order in epoch {e}.", look="`seed` and `epoch` both go into the generator"
            )


# ---------------------------------------------------------------------------------------------------------------------


class TiedNet(nn.Module):
    """Two layers share one weight, one is frozen, one goes unused, and the last one is a branch that is not taken on
    every rank. Its forward is never called: the judge sets the gradients itself."""

    def __init__(self, new: Inputs) -> None:
        super().__init__()
        a, b, c = new.sizes(3, 3, 9)
        layers = {
            "encode": nn.Linear(a, b, bias=False),
            "decode": nn.Linear(a, b),
            "frozen": nn.Linear(b, c),
            "branch": nn.Linear(c, a),
            "unused": nn.Linear(c, b, bias=False),
        }
        layers["decode"].weight = layers["encode"].weight  # one parameter under two names
        layers["frozen"].requires_grad_(False)
        names = list(layers)
        # The branch comes last: who skips it on one rank leaves the other one waiting.
        for i in [*(i for i in new.permutation(len(names)).tolist() if names[i] != "branch"), names.index("branch")]:
            self.add_module(names[i], layers[names[i]])


Gradients = dict[str, Tensor | None]  # by the parameter's name


def _on_rank_gradients(answer: Any, model: TiedNet, cases: list[list[Gradients]], looks: list[str]) -> list[Visit]:
    """For each case: give the model this rank's gradients, call the answer, return what the gradients are then."""
    visits = []
    for number, case in enumerate(cases):
        for name, parameter in model.named_parameters():
            gradient = case[dist.get_rank()][name]
            parameter.grad = None if gradient is None else gradient.clone()
        visit = _visit(f"gradients {number}", answer, model) | {"look": looks[number]}
        visit["returned"] = None
        visit["gradients"] = {name: _plain(parameter.grad) for name, parameter in model.named_parameters()}
        visit["weights"] = weights(model)
        visits.append(visit)
        if visit["over"]:
            break
    return visits


def _gradients_right(answer: Any, new: Inputs, one_message: bool) -> None:
    """Judge `average_gradients` and `one_message`, which differ in the number of messages only."""
    _ready(answer, "model")
    model = TiedNet(new)
    for parameter in model.parameters():
        parameter.data = new.randn(*parameter.shape)
    names = [name for name, _ in model.named_parameters()]
    lonely = new.size(0, 1)  # the rank that did not go through the branch, in the second case

    def of(rank: int, name: str, second: bool) -> Tensor | None:
        nothing = name.startswith(("frozen", "unused")) or (second and rank == lonely and name.startswith("branch"))
        return None if nothing else new.randn(*model.get_parameter(name).shape) + 2 * rank

    cases = [[{name: of(rank, name, second) for name in names} for rank in range(RANKS)] for second in (False, True)]
    branch = f"rank {lonely} has no gradient for `branch.weight` and `branch.bias`"
    looks = ["what only some ranks do", f"{branch}: it takes part all the same, with zeros"]
    try:
        by_rank = _in_two(_on_rank_gradients, answer, model, cases, looks, seed=new.size(0, 10**6))
    except AnswerRaised as raised:
        if "NoneType" in str(raised) or "Expected parameter `tensor` of type torch.Tensor" in str(raised):
            raise Incorrect(
                "A gradient may be None: on all ranks, where a parameter is frozen or unused, or on one of them only.",
                "frozen: skipped; None on this rank: zeros, so that it takes part",
                f"{type(raised.error).__name__}: {raised}",
                "`parameter.grad is None`",
            ) from None
        raise
    for number, case in enumerate(cases):
        visits = [by_rank[rank][number] for rank in range(RANKS)]
        _gradients_of_case(visits, case, weights(model), number, lonely)
        if one_message:
            _one_call(visits)


def _row(gradients: Gradients) -> Tensor:
    """All gradients in one row; a missing one counts as nothing at all."""
    return torch.cat([g.flatten() for name, g in gradients.items() if g is not None and not name.startswith("unused")])


def _gradients_of_case(visits: list[Visit], case: list[Gradients], start: Tensor, number: int, lonely: int) -> None:
    for rank, visit in enumerate(visits):
        if not torch.equal(visit["weights"], start):
            raise Incorrect(
                f"Your function changed the weights on rank {rank}.",
                "weights as they were, other gradients",
                look="`parameter.grad`, not `parameter` or `parameter.data`",
            )
        frozen = [name for name, g in visit["gradients"].items() if name.startswith("frozen") and g is not None]
        if frozen:
            raise Incorrect(
                f"`{frozen[0]}` is frozen and now has a gradient: weight decay would begin to move it.",
                "None, as it was",
                visit["gradients"][frozen[0]],
                "`requires_grad` is alike on all ranks, so all of them can skip these",
            )
        for name, gradient in visit["gradients"].items():
            if gradient is None and any(own[name] is not None for own in case):
                raise Incorrect(
                    f"On rank {rank}, `{name}` still has no gradient, and on the other rank it has one: after the next "
                    "step the two ranks have different weights.",
                    "the mean on both ranks; a missing gradient counts as zeros",
                    "None",
                    "store the result in `.grad`",
                )
            if isinstance(gradient, str):
                raise Incorrect(f"The gradient of `{name}` on rank {rank} is not a tensor.", "a tensor", gradient)
            if gradient is not None and _shape_of(case, name) not in (None, gradient.shape):
                raise Incorrect(
                    f"The gradient of `{name}` on rank {rank} has another shape than before.",
                    tuple(_shape_of(case, name)),
                    tuple(gradient.shape),
                )
    full = [{n: _zeros_if(g, _shape_of(case, n)) for n, g in own.items()} for own in case]
    a, b = (_row(own) for own in full)
    yours = torch.stack([_row(visit["gradients"]) for visit in visits])
    mean = (a + b) / 2

    def both(row: Tensor) -> Tensor:
        return torch.stack([row, row])

    if _close(yours, both(mean)):
        for gradient in (visit["gradients"]["unused.weight"] for visit in visits):
            if gradient is not None and gradient.any():
                text = "`unused.weight` has a gradient on no rank, and yours is not zero."
                raise Incorrect(text, "None, or zeros", gradient)
        return
    tied = "encode.weight" if "encode.weight" in case[0] else "decode.weight"
    twice = [{**own, tied: 2 * own[tied]} for own in full]
    exchanged = any(visit["calls"] for visit in visits)
    mistake(
        yours,
        both(a + b),
        "Your gradients are the sum over the ranks: every step is as many times too long as there are ranks.",
        "all-reduce adds; what remains to be done for a mean?",
    )
    mistake(
        yours,
        both(mean / 2),
        "Your gradients are divided twice by the number of ranks: every step is too short.",
        "one division, either before the all-reduce or after it (`ReduceOp.AVG` divides too)",
    )
    if not exchanged:
        text = "The ranks exchanged nothing: each has only its own gradients"
        text += "." if _close(yours, torch.stack([a, b])) else ", divided or changed."
        raise Incorrect(text, "the mean over the ranks", look="`dist.all_reduce`")
    mistake(
        yours,
        torch.stack([a, b]),
        "The ranks exchange something, but their gradients are afterwards what they were.",
        "the result has to end up in `parameter.grad`: `copy_`, or work on `.grad` itself",
    )
    for rank, row in enumerate((a, b)):
        mistake(
            yours,
            both(row),
            f"Every rank now has the gradients of rank {rank}: what the other one learned is lost.",
            "`broadcast` copies; wanted is a mean",
        )
        one_only = torch.stack([mean if r == rank else own for r, own in enumerate((a, b))])
        if _close(yours[rank], mean) and not _close(yours[1 - rank], mean):
            raise Incorrect(
                f"Only rank {rank} has the mean: the ranks would walk apart.",
                "the mean on every rank",
                look="`dist.reduce` gives the result to one rank, `dist.all_reduce` to all"
                if not _close(yours, one_only)
                else "`dist.all_reduce`, on every rank",
            )
    mistake(
        yours,
        both((_row(twice[0]) + _row(twice[1])) / 2),
        "The tied weight is counted twice: it stands under two names in the model, but is one parameter.",
        "`model.parameters()` names it once",
    )
    if number:
        alone = [{n: _zeros_if(g, _shape_of(case, n)) for n, g in own.items()} for own in case]
        for n in case[0]:
            if n.startswith("branch"):
                alone[lonely][n] = alone[1 - lonely][n]
        mistake(
            yours,
            both((_row(alone[0]) + _row(alone[1])) / 2),
            f"Where rank {lonely} has no gradient, you divide by the ranks that have one: it has to count as zeros.",
            "in the loss of the whole batch, these samples did not touch the branch",
        )
    if all(_close(_values(visit["gradients"].values()), _values([mean])) for visit in visits):
        raise Incorrect(
            "The right numbers stand in the wrong places.",
            look="take them out of the row in the order in which you put them in",
        )
    for rank in range(RANKS):
        _same_gradients(visits[rank]["gradients"], full, rank)


def _values(gradients: Iterable[Tensor | None]) -> Tensor:
    """All numbers in the gradients but zeros, in the order of their size."""
    row = torch.cat([gradient.flatten() for gradient in gradients if gradient is not None])
    return row[row != 0].sort().values


def _same_gradients(yours: Gradients, full: list[Gradients], rank: int) -> None:
    for name, gradient in yours.items():
        if gradient is not None and full[0][name] is not None:
            same(gradient, (full[0][name] + full[1][name]) / 2, f"The gradient of `{name}` on rank {rank}")


def _shape_of(case: list[Gradients], name: str) -> torch.Size | None:
    """The shape of a parameter's gradient, None if no rank has one."""
    return next((own[name].shape for own in case if own[name] is not None), None)


def _zeros_if(gradient: Tensor | None, shape: torch.Size | None) -> Tensor | None:
    return torch.zeros(shape) if gradient is None and shape is not None else gradient


@exercise(
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
        "Skip what is frozen (`requires_grad` is False everywhere alike). Where `.grad` is None, put zeros of the same "
        "shape there first, and then do what all do.",
        "`dist.all_reduce(parameter.grad)`, then `parameter.grad /= dist.get_world_size()`, in a loop over "
        "`model.parameters()`; before it, `parameter.grad = torch.zeros_like(parameter)` if it is None.",
    ),
)
def average_gradients(answer: Any, new: Inputs) -> None:
    _gradients_right(answer, new, one_message=False)


# ---------------------------------------------------------------------------------------------------------------------


class ScoreNet(nn.Sequential):
    """float [N, 5] -> logits [N, 3], with a batch norm whose statistics differ from those of any batch."""

    def __init__(self, new: Inputs) -> None:
        super().__init__(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(new.randn(*parameter.shape))
            self[1].running_mean.copy_(2 * new.randn(12))
            self[1].running_var.copy_(new.rand(12) * 3 + 0.2)


def _right_of(model: nn.Module, batches: list[Batch], training: bool = False) -> list[int]:
    """How many of each batch are right."""
    model = copy.deepcopy(model).train(training)
    with torch.no_grad():
        return [int((model(x).argmax(1) == y).sum()) for x, y in batches]


def _on_rank_score(answer: Any, model: nn.Module, cases: list[list[list[Batch]]]) -> list[Visit]:
    visits = []
    for number, case in enumerate(cases):
        visit = _visit(f"score {number}", answer, copy.deepcopy(model).train(), case[dist.get_rank()])
        visit["returned"] = _plain(visit["returned"])
        visits.append(visit)
        if visit["over"]:
            break
    return visits


@exercise(
    "exact_score",
    seconds=SECONDS,
    title="An exact score",
    minutes=8,
    difficulty=2,
    points=3,
    takeaway="Add up counts over the ranks and divide once: then it does not matter how the samples were shared out.",
    hints=(
        "Which two numbers of a rank can be added over the ranks without losing anything? An accuracy is not one.",
        "Count right answers and samples in the loop; after the loop, one all-reduce of a tensor that holds both.",
        "`counts = torch.tensor([right, seen])`, `dist.all_reduce(counts)`, `return (counts[0] / counts[1]).item()`; "
        "before it `model.eval()` and `torch.no_grad()`.",
    ),
)
def exact_score(answer: Any, new: Inputs) -> None:
    _ready(answer, "model", "batches")
    model, shards, slips = _unequal_shards(new)
    empty = [shards[0] + shards[1], []]
    look = "the ranks have different numbers of batches: what all ranks must do together may not stand in the loop"
    try:
        by_rank = _in_two(_on_rank_score, answer, model, [shards, empty], seed=new.size(0, 10**6), look=look)
    except AnswerRaised as raised:
        kind = type(raised.error).__name__
        if kind == "ZeroDivisionError" or "empty" in str(raised):  # torch.cat and torch.stack of nothing
            raise Incorrect(
                f"A rank without any batch {'divides by zero' if kind[0] == 'Z' else 'stumbles'}: a rank may have "
                "none, and then adds zero to the sums.",
                "the accuracy over all ranks, on every rank",
                f"{kind}: {raised}",
                "divide once, after the counts of all ranks are added",
            ) from None
        raise
    for number, case in enumerate((shards, empty)):
        visits = [by_rank[rank][number] for rank in range(RANKS)]
        everything = case[0] + case[1]
        right = sum(_right_of(model, everything)) / sum(len(y) for _, y in everything)
        values = [_as_number(visit["returned"], rank) for rank, visit in enumerate(visits)]
        if number == 0:
            _score_mistakes(values, right, slips, bool(visits[0]["calls"]))
        for rank, value in enumerate(values):
            where = " when rank 1 has no batches" if number else ""
            same(value, right, f"The accuracy on rank {rank}{where}", look="counts added over all ranks, divided once")


def _unequal_shards(new: Inputs) -> tuple[nn.Module, list[list[Batch]], dict[str, list[float]]]:
    """A model, the batches of two ranks, and what known mistakes give on each rank: none of it is what is right."""
    while True:
        model, size = ScoreNet(new), new.size(9, 13)
        sizes = [[size] * 3 + [new.size(3, 7)], [new.size(3, 5)]]
        shards = [[(new.randn(n, 5), new.ints(0, 3, (n,))) for n in row] for row in sizes]
        rights, totals = [_right_of(model, row) for row in shards], [sum(row) for row in sizes]
        sums = [sum(row) for row in rights]
        right = sum(sums) / sum(totals)
        own = [s / t for s, t in zip(sums, totals, strict=True)]
        shares = [[r / n for r, n in zip(*pair, strict=True)] for pair in zip(rights, sizes, strict=True)]
        by_batch, batches = [sum(row) / len(row) for row in shares], shares[0] + shares[1]
        in_train = sum(sum(_right_of(model, row, training=True)) for row in shards) / sum(totals)
        slips = {
            "own": own,
            "mean of means": [sum(own) / 2] * 2,
            "sum of means": [sum(own)] * 2,
            "mean of batch means": [sum(by_batch) / 2] * 2,
            "mean over all batches": [sum(batches) / len(batches)] * 2,
            "own count": [sum(sums) / t for t in totals],
            "own count times ranks": [sum(sums) / t / 2 for t in totals],
            "train mode": [in_train] * 2,
            "count": [float(sum(sums))] * 2,
            "percent": [100 * right] * 2,
        }
        rows = torch.tensor([*slips.values(), [right, right]])
        if all((one - two).abs().max() > 0.002 for one, two in itertools.combinations(rows, 2)):
            return model, shards, slips


def _as_number(value: Any, rank: int) -> float:
    if value is None:
        raise Incorrect(f"On rank {rank} your function returned None.", "the accuracy, on every rank", "None")
    number = plain_number(value)
    if number is None:
        raise Incorrect(f"What your function returns on rank {rank} is not a number.", "a Python float", value)
    return number


def _score_mistakes(values: list[float], right: float, slips: dict[str, list[float]], exchanged: bool) -> None:
    yours = torch.tensor(values)
    expected, got = (
        f"{right:.4f} on every rank",
        ", ".join(f"{value:.4f} on rank {r}" for r, value in enumerate(values)),
    )

    def slip(name: str, problem: str, look: str) -> None:
        if torch.allclose(yours, torch.tensor(slips[name]), rtol=0, atol=1e-4):
            raise Incorrect(problem, expected, got, look)

    add = "add right answers and samples over the ranks, then divide"
    slip("own", "Each rank returns the accuracy of its own samples.", "what the ranks have to exchange")
    slip(
        "mean of means",
        "This is the mean of the ranks' accuracies. The ranks have different numbers of samples, and a sample of a "
        "short shard counts for more.",
        add,
    )
    slip("sum of means", "This is the sum of the ranks' accuracies.", add)
    slip("mean of batch means", "This is a mean of means of means: of batches, then of ranks. Both are unequal.", add)
    slip("mean over all batches", "This is the mean over all batches, and some of them are shorter than others.", add)
    slip(
        "own count",
        "The right answers of all ranks are divided by the samples of one: the samples have to be added too.",
        add,
    )
    slip(
        "own count times ranks",
        "You take it that every rank has as many samples as yours: the shards are unequal.",
        add,
    )
    slip(
        "train mode",
        "The model is still in train mode: batch norm uses the statistics of each batch, and the score depends on how "
        "the batches were cut.",
        "`model.eval()`",
    )
    slip("count", "This is the number of right answers: divide it by the number of samples on all ranks.", add)
    slip("percent", "This is in percent; wanted is a share from 0 to 1.", "the last line")
    for rank in range(RANKS):
        if abs(values[rank] - right) < 1e-4 < abs(values[1 - rank] - right):
            raise Incorrect(
                f"Only rank {rank} has the right result.",
                expected,
                got,
                "`dist.reduce` gives the sum to one rank, `dist.all_reduce` to all",
            )
    if not exchanged and abs(values[0] - right) > 1e-4:
        raise Incorrect("The ranks exchanged nothing.", expected, got, "`dist.all_reduce`")


# ---------------------------------------------------------------------------------------------------------------------


class Samples(Dataset):
    """Samples (float [6], int) that write down who was asked for."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.asked = x, y, []

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.asked.append(int(index))
        return self.x[index], int(self.y[index])


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))


def _sgd(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def _on_rank_train(answer: Any, x: Tensor, y: Tensor, epochs: range, batch_size: int, lr: float, seed: int) -> Visit:
    model, samples = _network(), Samples(x, y)  # every rank draws other weights
    optimizer, start = _sgd(model, lr), weights(model)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            visit = _visit("train", answer, model, optimizer, samples, epochs, batch_size, seed)
    finally:
        print(printed.getvalue(), end="")
    trained = visit["returned"]
    while isinstance(getattr(trained, "module", None), nn.Module):
        trained = trained.module
    # The same model wrapped in DDP, or as it came: both will do.
    visit["weights"] = weights(trained) if isinstance(trained, nn.Module) else None
    visit["returned"] = None if trained is None else show(trained)
    stepped = bool(optimizer.state)  # SGD with momentum keeps one from its first step on
    return {**visit, "start": start, "stepped": stepped, "asked": samples.asked, "printed": printed.getvalue()}


@exercise(
    "train_replicas",
    seconds=SECONDS,
    title="Train with two processes as with one",
    minutes=14,
    difficulty=4,
    points=4,
    takeaway="Same global batch, same order, same start: then two processes take the very steps of one, and nothing "
    "has to be scaled.",
    hints=(
        "Four things change in the loop of chapter 02: the model is wrapped, a sampler deals out the samples, the "
        "sampler is told the epoch, and only rank 0 speaks.",
        "`DistributedSampler(train_set, seed=seed)`, `DataLoader(train_set, batch_size // ranks, sampler=sampler)`, "
        "`sampler.set_epoch(epoch)` at the start of each epoch. Call the wrapped model, not the one inside.",
        "`replica = DDP(model)` before the loop. In it the usual five lines with `replica(x)`; after each epoch "
        '`if dist.get_rank() == 0: print(f"epoch {epoch}: loss {loss.item():.3f}")`. At the end `return replica`.',
    ),
)
def train_replicas(answer: Any, new: Inputs) -> None:
    _ready(answer, "model", "optimizer", "train_set", "epochs", "batch_size", "seed")
    batch_size, lr, seed = 8, 0.1, new.size(1, 500)
    first = new.size(2, 5)
    epochs = range(first, first + 3)
    n = 3 * batch_size + new.pick((2, 4, 6))  # a multiple of the ranks, but not of the batch size
    x, y = new.randn(n, 6), new.ints(0, 3, (n,))
    look = "do all ranks go through equally many batches, and does each do what the others do?"
    visits = _in_two(_on_rank_train, answer, x, y, epochs, batch_size, lr, seed, seed=seed, look=look)
    for rank, visit in enumerate(visits):
        if visit["weights"] is None:
            raise Incorrect(
                f"On rank {rank} your function returns no model.", "the trained model", visit["returned"] or "None"
            )
    start, yours = visits[0]["start"], torch.stack([visit["weights"] for visit in visits])

    def baseline(**changes: Any) -> Tensor:
        return _one_process(start, x, y, **{"epochs": epochs, "batch": batch_size, "lr": lr, "seed": seed, **changes})

    if yours.shape != (RANKS, len(start)):
        raise Incorrect("The model that you return has other weights than the one that came in.")
    right = baseline()
    if not _close(yours, torch.stack([right] * RANKS)):
        _apart(yours, visits)
        _why_not_equal(yours[0], visits, baseline, n, batch_size, epochs)
        same(yours[0], right, "The weights (compared with one process that trains with the same global batches)")
    _who_prints([visit["printed"] for visit in visits], len(epochs))


def _one_process(
    start: Tensor, x: Tensor, y: Tensor, epochs: Sequence[int], batch: int, lr: float, seed: int, **how: Any
) -> Tensor:
    """The weights after training in this process, with the global batches that the ranks have together.

    how: mistakes to make. "order": "none", "drop_last": True, "sum": True (of the loss), "factor": of the loss,
    "keep": True (the old gradients)
    """
    model = _network()
    torch.nn.utils.vector_to_parameters(start.float(), model.parameters())
    optimizer = _sgd(model, lr)
    for epoch in epochs:
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed + epoch))
        if how.get("order") == "none":
            order = torch.arange(len(y))
        for rows in order.split(batch):
            if how.get("drop_last") and len(rows) < batch:
                continue
            loss = F.cross_entropy(model(x[rows]), y[rows])
            if not how.get("keep"):
                optimizer.zero_grad()
            (loss * how.get("factor", 1) * (len(rows) / RANKS if how.get("sum") else 1)).backward()
            optimizer.step()
    return weights(model)


def _apart(yours: Tensor, visits: list[Visit]) -> None:
    """Raise Incorrect if the ranks ended with different weights, and say why."""
    if _close(yours[0], yours[1]):
        return
    done = {one["what"] for visit in visits for one in visit["calls"]}
    ends = "The two ranks end with different weights"
    if not done:
        raise Incorrect(
            f"{ends}: each trained for itself, they exchanged nothing.",
            "one model, the same on both ranks",
            look="`DistributedDataParallel(model)`",
        )
    if "all-reduce" not in done:
        raise Incorrect(
            f"{ends}: the model was wrapped, but no gradient was averaged.",
            "all-reduces during `backward()`",
            f"only {' and '.join(sorted(done))}",
            "call the wrapped model, not the one inside: DDP prepares its work in the wrapper's forward",
        )
    starts = visits[1]["start"] - visits[0]["start"]
    if _close(yours[1] - yours[0], starts):
        raise Incorrect(
            f"{ends}: they took the same steps, but from different initial weights.",
            "the weights of rank 0 on every rank, before the first step",
            look="DDP broadcasts them when it wraps the model; by hand it is `dist.broadcast` of each parameter",
        )
    raise Incorrect(f"{ends}.", "one model, the same on both ranks", look="are all gradients averaged in every step?")


def _why_not_equal(
    yours: Tensor, visits: list[Visit], baseline: Callable[..., Tensor], n: int, batch_size: int, epochs: range
) -> None:
    """Raise Incorrect with the reason why ranks that agree did not train as one process does, if it is a known one."""
    asked = [len(visit["asked"]) // len(epochs) for visit in visits]
    if min(asked) >= n:
        raise Incorrect(
            f"Every rank went through all {n} samples in each epoch: each does the whole work.",
            f"{n // RANKS} samples for each rank and epoch",
            f"{asked[0]}",
            "`DataLoader(…, sampler=DistributedSampler(…))`",
        )
    if not all(visit["stepped"] for visit in visits):
        raise Incorrect(
            "The optimizer that came in never took a step.",
            "`optimizer.step()` after each backward pass",
            look="its learning rate and its momentum are part of the task",
        )
    per_rank = batch_size // RANKS
    for problem, look, changes in (
        (
            "Every epoch has the order of epoch 0: the sampler was never told which epoch it is.",
            "`sampler.set_epoch(epoch)` at the start of each epoch",
            {"epochs": [0] * len(epochs)},
        ),
        (
            f"You count the epochs from 0, but this training begins with epoch {epochs[0]}: resumed, it would repeat "
            "orders that it has seen.",
            "`for epoch in epochs`, `sampler.set_epoch(epoch)`",
            {"epochs": range(len(epochs))},
        ),
        (
            f"You count the epochs from 1, but this training begins with epoch {epochs[0]}.",
            "`for epoch in epochs`, `sampler.set_epoch(epoch)`",
            {"epochs": range(1, len(epochs) + 1)},
        ),
        ("You trained one epoch only.", "does the `return` stand in the loop?", {"epochs": epochs[:1]}),
        (
            "Gradients of earlier batches are still there when the next backward pass adds to them.",
            "`optimizer.zero_grad()` in each step",
            {"keep": True},
        ),
        ("The samples come unshuffled.", "`shuffle=True`, the default of DistributedSampler", {"order": "none"}),
        ("The order does not depend on `seed`.", "`DistributedSampler(train_set, seed=seed)`", {"seed": 0}),
        (
            f"Every rank takes {batch_size} samples a step: the global batch is {RANKS * batch_size}, and there are "
            "half as many steps.",
            f"the batch size of one rank: {batch_size} divided by the number of ranks",
            {"batch": RANKS * batch_size},
        ),
        (
            "The learning rate was scaled with the number of ranks. The global batch is that of one process, so the "
            "averaged gradient is the same: there is nothing to scale.",
            "`optimizer.param_groups`, a factor before the loss",
            {"factor": RANKS},
        ),
        (
            "Your steps are too short: gradients are divided twice by the number of ranks. DDP takes the mean itself.",
            "a division of the loss or of the gradients",
            {"factor": 1 / RANKS},
        ),
        (
            "Your loss is the sum over the samples of a rank: the step depends on the batch size.",
            "`F.cross_entropy` takes the mean by itself",
            {"sum": True},
        ),
        (
            f"The last, shorter batch of each epoch is missing: {n % batch_size} samples are never learned from.",
            "`drop_last`",
            {"drop_last": True},
        ),
    ):
        mistake(yours, baseline(**changes), problem, look)
    if not all(visit["asked"] for visit in visits):
        raise Incorrect("No sample of `train_set` was ever asked for on some rank.", f"{per_rank} a step", asked)


def _who_prints(visits: list[str], epochs: int) -> None:
    """Raise Incorrect unless rank 0, and only rank 0, reports each epoch."""
    for rank, printed in enumerate(visits):
        if rank and printed.strip():
            raise Incorrect(
                f"Rank {rank} prints too: with many ranks, every line would come as many times.",
                "one report, from rank 0",
                printed.splitlines()[0],
                "`if dist.get_rank() == 0:`",
            )
    lines = len(visits[0].strip().splitlines())
    if lines < epochs:
        raise Incorrect(
            "Rank 0 does not report its epochs: a training that says nothing cannot be followed.",
            f"a line for each of the {epochs} epochs",
            f"{lines} line{'s' * (lines != 1)}",
            "`print`, at the end of each epoch",
        )


# ---------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _watched(slow: bool) -> Iterator[dict[str, list]]:
    """Write down what is asked for: {"saves": targets of torch.save, "loads": options of the answer's own torch.load,
    "removed": files deleted}.

    slow: the disk takes its time, so that whoever does not wait for the file comes too early.
    """
    seen: dict[str, list] = {"saves": [], "loads": [], "removed": []}
    save, load, remove, unlink = torch.save, torch.load, os.remove, os.unlink

    def watching_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        target = f if isinstance(f, (str, Path)) else getattr(f, "name", None)
        if isinstance(target, (str, Path)):  # not a buffer in memory
            seen["saves"].append(str(Path(target).absolute()))
        if slow:
            time.sleep(0.15)
        return save(obj, f, *args, **kwargs)

    def watching_load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if is_students(sys._getframe(1).f_code.co_filename):  # torch.distributed calls it, too, to receive objects
            seen["loads"].append({"mapped": map_location is not None, "weights_only": kwargs.get("weights_only")})
        return load(f, map_location, *args, **kwargs)

    def watching_remove(path: Any, **kwargs: Any) -> None:
        seen["removed"].append(Path(os.fsdecode(path)).name)
        remove(path, **kwargs)

    torch.save, torch.load, os.remove, os.unlink = watching_save, watching_load, watching_remove, watching_remove
    try:
        yield seen
    finally:
        torch.save, torch.load, os.remove, os.unlink = save, load, remove, unlink


def _steps(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> Tensor:
    """Data parallel training by hand; the weights afterwards."""
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
    return weights(model)


OLD_FILE = b"the checkpoint from before"


def _on_rank_save(save: Any, resume: Any, shards: list[list[Batch]], epoch: int) -> list[Visit]:
    """Train, save, go on; then, as another process would: fresh model, resume, go on. One Visit each."""
    rank = dist.get_rank()
    batches, path = shards[rank], Path.cwd() / "training.pt"
    model = _network()
    wrapped = DistributedDataParallel(model)  # now all ranks have the weights of rank 0
    optimizer = _sgd(model, 0.1)
    _steps(model, optimizer, batches[:3])
    before, momentum = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    if rank == 0:
        path.write_bytes(OLD_FILE)
    dist.barrier()
    old = path.stat().st_ino

    def new_file() -> bool:
        return path.exists() and path.read_bytes() != OLD_FILE

    def save_and_look() -> bool:
        result = save(path, wrapped, optimizer, epoch)
        if inspect.isgenerator(result):
            raise TypeError("save_from_main is a generator: it has a `yield`, and so nothing in it ran")
        return new_file()

    with _watched(slow=rank == 0) as seen:
        saved = _visit("save", save_and_look) | seen
    if saved["over"]:
        return [saved]
    dist.barrier()
    saved["folder"] = path.parent.name
    saved["files"] = sorted(file.name for file in path.parent.iterdir())
    saved["changed"] = not torch.equal(weights(model), _row_of(before))
    saved["new"] = new_file()
    if not saved["new"]:
        return [saved]
    saved["in place"] = path.stat().st_ino == old  # what is renamed is another file than the one it replaces
    uninterrupted = _steps(model, optimizer, batches[3:])
    fresh = _network()
    its_optimizer = _sgd(fresh, 0.1)
    with _watched(slow=False) as seen:
        resumed = _visit("resume", resume, path, fresh, its_optimizer, torch.device("cpu")) | seen
    if resumed["over"]:
        return [saved, resumed]
    resumed["returned"] = _plain(resumed["returned"])
    resumed["restored"], resumed["saved"] = weights(fresh), _row_of(before)
    resumed["continued"], resumed["right"] = _steps(fresh, its_optimizer, batches[3:]), uninterrupted
    forgetful = _network()
    forgetful.load_state_dict(before)
    resumed["without optimizer"] = _steps(forgetful, _sgd(forgetful, 0.1), batches[3:])
    resumed["momentum"] = len(momentum["state"])
    return [saved, resumed]


def _row_of(state: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.double().flatten() for value in state.values()])


@exercise(
    "save_from_main",
    seconds=SECONDS,
    title="Save from one rank, resume on all",
    minutes=15,
    difficulty=4,
    points=4,
    takeaway="One rank writes, under another name first; all wait, all read. So no reader ever meets half a file.",
    hints=(
        "Saving: rank 0 writes to a second name beside `path` and renames it; then all ranks meet, so that nobody "
        "reads too early. What must be in the file: whatever changes from step to step, and where the training stands.",
        "`torch.save(state, temporary)` and `os.replace(temporary, path)` under `if dist.get_rank() == 0:`, and "
        "`dist.barrier()` after it, not in it. Inside the DDP wrapper the model is `model.module`.",
        '`state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}`; in '
        "resume `state = torch.load(path, map_location=device, weights_only=True)`, two times `load_state_dict`, and "
        '`return state["epoch"]`.',
    ),
)
def save_from_main(answer: Any, new: Inputs) -> None:
    attempted(answer)
    if not isinstance(answer, (tuple, list)) or len(answer) != 2 or not all(callable(part) for part in answer):
        raise Incorrect("Two functions are asked for.", "(save_from_main, resume)", answer, "the call of `check`")
    save, resume = answer
    _ready(save, "path", "model", "optimizer", "epoch")
    _ready(resume, "path", "model", "optimizer", "device")
    epoch = new.size(3, 60)
    shards = [[(new.randn(5, 6), new.ints(0, 3, (5,))) for _ in range(6)] for _ in range(RANKS)]
    look = "what stands under `if dist.get_rank() == 0:`: a barrier in there is met by one rank only"
    try:
        by_rank = _in_two(_on_rank_save, save, resume, shards, epoch, seed=new.size(0, 10**6), look=look)
    except AnswerRaised as raised:
        _reading_failed(str(raised))
        raise
    _saved_well([visits[0] for visits in by_rank])
    _resumed_well([visits[1] for visits in by_rank], epoch)


def _reading_failed(text: str) -> None:
    """Raise Incorrect for what PyTorch says about files that were not saved well."""
    if "Weights only load failed" in text or "Unsupported global" in text:
        raise Incorrect(
            "The file holds whole objects, a model or an optimizer: `torch.load` reads tensors, numbers, strings and "
            "containers only, because anything else could run code.",
            "state_dicts and plain values",
            look="`model.module.state_dict()`, `optimizer.state_dict()`",
        )
    if "loading state_dict" in text:
        raise Incorrect(
            "The names in the file do not fit the model. Saved from the wrapper, every name begins with `module.`; a "
            "plain model knows no such names.",
            "the names of the model inside the wrapper",
            look="`model.module.state_dict()`",
        )


def _saved_well(visits: list[Visit]) -> None:
    path = "training.pt"
    writers = [rank for rank, visit in enumerate(visits) if visit["saves"]]
    if len(writers) > 1:
        raise Incorrect(
            "Every rank saves: they write the same numbers at the same time, over one another.",
            "rank 0 writes, the others wait",
            " and ".join(f"rank {rank} writes {Path(visits[rank]['saves'][0]).name}" for rank in writers),
            "`if dist.get_rank() == 0:`",
        )
    if any(visit["changed"] for visit in visits):
        raise Incorrect("Saving changed the weights of the model.", "the model as it was")
    files = visits[0]["files"]
    if path not in files:
        raise Incorrect(
            "After `save_from_main` there is no file at `path`.", path, ", ".join(files) or "an empty folder"
        )
    if not visits[0]["new"]:
        raise Incorrect(
            "After `save_from_main` there is no new file at `path`.", path, "the file from before, which was there"
        )
    if writers and writers != [0]:
        raise Incorrect(f"Rank {writers[0]} saves; by custom it is rank 0, which is there however few ranks there are.")
    targets = [Path(target) for target in visits[0]["saves"]]
    if visits[0]["in place"] or any(target.name == path for target in targets):
        raise Incorrect(
            "The file is written in place: a process that dies in the middle leaves half a file, and the checkpoint "
            "from before is gone.",
            "another name beside it first, then `os.replace`",
            f"the old {path} itself is opened and overwritten",
            "`os.replace(temporary, path)` happens all at once",
        )
    if any(target.parent.name != visits[0]["folder"] for target in targets):
        raise Incorrect(
            "The temporary file lies in another folder. That may be another disk, where renaming takes many steps.",
            "a second name in the folder of `path`",
            str(targets[0].parent.name),
            '`path.with_suffix(".tmp")`',
        )
    if any(path in visit["removed"] for visit in visits):
        raise Incorrect(
            "The old file is deleted before the new one has its name: a process that dies in between leaves none.",
            "the old file or the new one, at every moment",
            f"{path} is removed",
            "`os.replace(temporary, path)` does both at once",
        )
    if not all(visit["returned"] for visit in visits):
        early = next(rank for rank, visit in enumerate(visits) if not visit["returned"])
        raise Incorrect(
            f"Rank {early} did not wait: when `save_from_main` returned, the new file was not there yet. Whoever loads "
            "it then finds nothing, or an old one.",
            "all ranks return after the file is in its place",
            look="`dist.barrier()` on every rank, after rank 0 has written",
        )
    if len(files) > 1:
        left = [name for name in files if name != path]
        raise Incorrect(
            "Files are left behind.", f"only {path}", ", ".join(left), "`os.replace` renames, it leaves none"
        )


def _resumed_well(visits: list[Visit], epoch: int) -> None:
    for rank, visit in enumerate(visits):
        for load in visit["loads"]:
            if load["weights_only"] is False:
                raise Incorrect(
                    "`weights_only` switched off lets the file run any code that somebody put into it.",
                    "`weights_only=True`, the default",
                    look="your file needs nothing but tensors, numbers, strings and containers",
                )
            if not load["mapped"]:
                raise Incorrect(
                    "Without `map_location`, tensors come back on the device they were saved from: on a machine with "
                    "several GPUs, every rank would fill the GPU of rank 0.",
                    "`torch.load(path, map_location=device, …)`",
                    f"rank {rank} loads without it",
                )
    right = [_close(visit["restored"], visit["saved"]) for visit in visits]
    if any(right) and not all(right):
        raise Incorrect(
            f"Only rank {right.index(True)} has the saved weights: the ranks would go on from different ones.",
            "every rank loads",
            f"rank {right.index(False)} has kept its fresh weights",
            "what stands under `if dist.get_rank() == 0:`",
        )
    if not any(right):
        raise Incorrect("After `resume` the model does not have the saved weights.", look="`model.load_state_dict(…)`")
    for rank, visit in enumerate(visits):
        if visit["returned"] is None:
            raise Incorrect(
                f"On rank {rank}, `resume` does not say where to go on.", f"the epoch, {epoch}", "None", "its `return`"
            )
    yours, expected = (torch.stack([visit[key] for visit in visits]) for key in ("continued", "right"))
    if not _close(yours, expected):
        mistake(
            yours,
            torch.stack([visit["without optimizer"] for visit in visits]),
            "The optimizer starts anew: its momentum is lost, and what follows is not what would have followed.",
            "`optimizer.state_dict()` in the file, `optimizer.load_state_dict` in resume",
        )
        if not _close(yours[0], yours[1]):
            raise Incorrect(
                "After going on, the ranks have different weights: model or optimizer came back on one of them only.",
                "every rank loads everything",
            )
        same(yours[0], expected[0], "The weights after going on (compared with a training that nobody interrupted)")
    for rank, visit in enumerate(visits):
        same(visit["returned"], epoch, f"The epoch that `resume` returns on rank {rank}")


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "one_message",
    seconds=SECONDS,
    title="All gradients in one message",
    minutes=10,
    difficulty=4,
    points=3,
    takeaway="A message costs time even when it is empty. For this reason DDP sends buckets of megabytes, and the "
    "first one leaves while the backward pass still runs.",
    hints=(
        "One row of all gradients, one all-reduce, and then every part of the row back to where it came from.",
        "`torch.cat([g.flatten() for g in gradients])` makes the row, `row.split([g.numel() for g in gradients])` cuts "
        "it up again. On all ranks the row must be equally long.",
        "Fill up missing gradients with zeros, `dist.all_reduce(row)`, `row /= dist.get_world_size()`, then "
        "`gradient.copy_(part.view_as(gradient))` for each pair.",
    ),
)
def one_message(answer: Any, new: Inputs) -> None:
    _gradients_right(answer, new, one_message=True)


def _one_call(visits: list[Visit]) -> None:
    """Raise Incorrect unless each rank called exactly one collective, an all-reduce."""
    for rank, visit in enumerate(visits):
        words = [one["what"] for one in visit["calls"]]
        if len(words) != 1:
            kinds = ", ".join(f"{words.count(word)} × {word}" for word in dict.fromkeys(words)) or "none"
            raise Incorrect(
                f"The gradients are right, but took {len(words)} collectives.",
                "one all-reduce",
                f"rank {rank}: {kinds}",
            )
        if words != ["all-reduce"]:
            raise Incorrect(
                f"The gradients are right, but each rank was sent the gradients of all of them ({words[0]}): with many "
                "ranks that is many times the data.",
                "one all-reduce, which adds on the way",
                look="`dist.all_reduce`",
            )
