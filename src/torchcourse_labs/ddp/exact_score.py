"""The accuracy over the samples of all ranks, whose shards have different sizes."""

import copy
import itertools
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labcheck import ranks
from labcheck.authoring import AnswerRaised, Exercise, Inputs, near, same, wrong_if
from labcheck.collectives import Ledger
from labcheck.probes import Batch, network, plain_number

Shards = list[list[Batch]]  # the batches of each rank


def solution(model: nn.Module, batches: list[Batch]) -> float:
    counts = torch.zeros(2, dtype=torch.int64)  # right answers, samples: whole numbers stay exact
    model.eval()
    with torch.no_grad():
        for x, labels in batches:
            counts[0] += (model(x).argmax(dim=1) == labels).sum()
            counts[1] += len(labels)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def counts(model: nn.Module, shards: Shards, training: bool = False) -> Tensor:
    """How many are right and how many there are, float [2, 2, 4], by rank and batch; 0 where there is no batch."""
    model, counted = copy.deepcopy(model).train(training), torch.zeros(2, 2, 4)
    with torch.no_grad():
        for rank, batches in enumerate(shards):
            for i, (x, labels) in enumerate(batches):
                counted[:, rank, i] = torch.tensor([(model(x).argmax(1) == labels).sum(), len(labels)])
    return counted


def scores(model: nn.Module, shards: Shards) -> dict[str, list[Tensor]]:
    """The right score, and what mistakes make of it: one number, or one for each rank."""
    right, samples = counts(model, shards)
    training_right, _ = counts(model, shards, training=True)
    own = right.sum(1) / samples.sum(1)
    return {
        "right": [right.sum() / samples.sum()],
        "own": [own],
        "means": [own.mean(), own.sum(), (right / samples).nanmean(), (right / samples).nanmean(1).mean()],
        "training": [training_right.sum() / samples.sum()],
    }


def draw(rng: Inputs) -> tuple[nn.Module, Shards]:
    """A model, and batches for which no mistake gives what is right, or what another one gives."""
    while True:
        model, size = network(rng, 5, 3, norm=True), rng.size(9, 13)
        sizes = [[size] * 3 + [rng.size(3, 7)], [rng.size(3, 5), rng.size(6, 8)]]
        shards = [[(rng.randn(n, 5), rng.ints(0, 3, (n,))) for n in row] for row in sizes]
        found = [each.expand(2) for each in itertools.chain(*scores(model, shards).values())]
        if torch.pdist(torch.stack(found), p=torch.inf).min() > 0.002:
            return model, shards


def on_rank(answer: Any, model: nn.Module, shards: Shards) -> dict:
    score = answer(copy.deepcopy(model).train(), shards[dist.get_rank()])
    return {"score": score, "collectives": len(Ledger.current.calls)}


def watch(answer: Any, model: nn.Module, shards: Shards) -> list[dict]:
    look = "The ranks have different numbers of batches, perhaps none: each calls the collective once, after the loop"
    try:
        return ranks.observe(answer, on_rank, model, shards, look=look)
    except AnswerRaised as raised:
        no_batches(any(word in str(raised) for word in ("empty", "requires at least one", "division by zero")))
        raise


def judge(answer: Any, rng: Inputs) -> None:
    model, shards = draw(rng)
    known = scores(model, shards)
    expected = known["right"][0].item()
    seen = watch(answer, model, shards)
    yours = [each["score"] for each in seen]
    numbers = [plain_number(score) for score in yours]

    def got(mistake: str) -> bool:
        return None not in numbers and any(near(numbers, v.expand(2).tolist(), 0, 1e-4) for v in known[mistake])

    wrong_if(
        got("own") or not any(each["collectives"] for each in seen),
        "nothing_exchanged",
        "Each rank's result comes from its own batches alone: nothing from the other ranks went into it.",
        look="`dist.all_reduce`",
    )
    wrong_if(
        got("means"),
        "means_of_means",
        "You average or add up the accuracies of batches or of ranks. These have different numbers of samples, so a "
        "sample in a short one would count for more.",
        look="counts: right answers and samples, added up over the ranks and divided once",
    )
    wrong_if(
        got("training"),
        "train_mode",
        "The model is still in train mode: batch norm uses the statistics of each batch, so the score depends on how "
        "the batches were cut.",
        look="`model.eval()`",
    )
    wrong_if(
        sum(near(number, expected, 0, 1e-4) for number in numbers) == 1,
        "one_rank_only",
        "Only one rank has the right result.",
        look="`dist.reduce` gives the sum to one rank, `dist.all_reduce` to all; every rank returns the accuracy",
        expected=[expected] * 2,
        yours=numbers,
    )
    look = "counts of all ranks added up, each batch with its own length, then divided once; `.item()` at the end"
    for rank, score in enumerate(yours):
        same(score, expected, f"The accuracy on rank {rank}", rtol=0, atol=1e-4, look=look)
    for rank, each in enumerate(watch(answer, model, [shards[0] + shards[1], []])):
        no_batches(each["score"] != each["score"])  # nan
        what = f"The accuracy on rank {rank}, when rank 1 has no batches,"
        same(each["score"], expected, what, rtol=0, atol=1e-4, look=look)


def no_batches(condition: bool) -> None:
    wrong_if(
        condition,
        "no_batches",
        "A rank may have no batches: you divide by their number, or take a mean of nothing, or stack an empty list. "
        "Such a rank adds zero to the sums.",
        look="start both counts at 0, before the loop; after it, add the counts of all ranks, and divide once",
    )


exercise = Exercise(
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
    judge=judge,
    seconds=120.0,  # the first check of a session starts a server, which makes the processes
    lends=solution,
)
