"""The accuracy over the samples of all ranks, whose shards have different sizes."""

import copy
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


def counts(model: nn.Module, batches: list[Batch]) -> Tensor:
    """Right answers and samples, float [2, batches]."""
    with torch.no_grad():
        return torch.tensor([[(model(x).argmax(1) == y).sum(), float(len(y))] for x, y in batches]).T


def draw(rng: Inputs) -> tuple[nn.Module, Shards, float, dict[str, list[float]]]:
    """A model, batches, the right score, and those of mistakes, none of which gives what another one gives."""
    while True:
        model, size = network(rng, 5, 3, norm=True), rng.size(9, 13)
        sizes = [[size] * 3 + [rng.size(3, 7)], [rng.size(3, 5), rng.size(6, 8)]]
        shards = [[(rng.randn(n, 5), rng.ints(0, 3, (n,))) for n in row] for row in sizes]
        trained = counts(copy.deepcopy(model).train(), shards[0] + shards[1])
        one, two = (counts(model.eval(), batches) for batches in shards)
        both = torch.cat([one, two], 1)
        right, training, *own = (float(each[0].sum() / each[1].sum()) for each in (both, trained, one, two))
        means = [sum(own) / 2, float((both[0] / both[1]).mean())]
        scores = torch.tensor([right, round(right, 2), training, *own, *means])
        if torch.pdist(scores[:, None]).min() > 0.0015:
            return model, shards, right, {"own": own, "means": means, "training": [training]}


def on_rank(answer: Any, model: nn.Module, shards: Shards) -> dict:
    score = answer(copy.deepcopy(model).train(), shards[dist.get_rank()])
    return {"score": score, "collectives": len(Ledger.current.calls)}


def judge(answer: Any, rng: Inputs) -> None:
    model, shards, expected, mistakes = draw(rng)
    for case, batches in (("", shards), (", when rank 1 has no batches,", [shards[0] + shards[1], []])):
        seen, error = [], None
        look = "ranks have different numbers of batches: each calls the collective after its loop"
        try:
            seen = ranks.observe(answer, on_rank, model, batches, look=look)
        except AnswerRaised as raised:
            error = raised
        yours = [plain_number(each["score"]) for each in seen]
        wrong_if(
            any(word in str(error) for word in ("empty", "requires at least one", "division by zero"))
            or any(number != number for number in yours),
            "no_batches",
            "A rank may have no batches: you divide by their number, take a mean of nothing, or stack an empty list.",
            look="start both counts at 0, before the loop; after it, add the counts of all ranks, and divide once",
        )
        if error:
            raise error
        if not case:
            judge_mistakes(yours, mistakes, any(each["collectives"] for each in seen))
        look = "right answers and samples of all batches, added up on every rank with `all_reduce`; a share, no percent"
        for rank, each in enumerate(seen):
            same(each["score"], expected, f"The accuracy on rank {rank}{case}", rtol=0, atol=1e-4, look=look)


def judge_mistakes(yours: list, mistakes: dict[str, list[float]], exchanged: bool) -> None:
    wrong_if(
        not exchanged or near(yours, mistakes["own"], 0, 1e-4),
        "nothing_exchanged",
        "Each rank's result comes from its own batches alone: nothing from the other ranks went into it.",
        look="`dist.all_reduce`",
    )
    wrong_if(
        any(near(yours, [mean] * 2, 0, 1e-4) for mean in mistakes["means"]),
        "means_of_means",
        "You average or add up the accuracies of batches or of ranks. These have different numbers of samples, so a "
        "sample in a short one would count for more.",
        look="counts: right answers and samples, added up over the ranks and divided once",
    )
    wrong_if(
        near(yours, mistakes["training"] * 2, 0, 1e-4),
        "train_mode",
        "The model is still in train mode: batch norm uses the statistics of each batch, so the score depends on how "
        "the batches were cut.",
        look="`model.eval()`",
    )


exercise = Exercise(
    title="An exact score",
    minutes=8,
    difficulty=2,
    points=3,
    takeaway="Add up counts over the ranks and divide once: then it doesn't matter how the samples were split.",
    hints=(
        "Which two numbers can you add over the ranks without losing anything? An accuracy is not one of them.",
        "Count right answers and samples in the loop, with `model.eval()` and `torch.no_grad()`; then "
        "`counts = torch.tensor([right, seen])`, `dist.all_reduce(counts)`, `return (counts[0] / counts[1]).item()`.",
    ),
    judge=judge,
    seconds=ranks.SECONDS,
    lends=solution,
)
