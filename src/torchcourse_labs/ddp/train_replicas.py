"""Train with DDP so that two processes take exactly the steps of one."""

import contextlib
import copy
import io
import itertools
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from labcheck import ranks
from labcheck.authoring import Exercise, Incorrect, Inputs, near, same, wrong_if
from labcheck.probes import network, weights


def solution(model, optimizer, train_set, epochs, batch_size, seed):
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


def on_rank(answer: Any, x: Tensor, labels: Tensor, epochs: range, batch_size: int, seed: int, starts: list) -> dict:
    """Let the answer train; starts: the model of each rank."""
    model, printed, lines, samples, modes = starts[dist.get_rank()], io.StringIO(), [0], [], set()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.register_step_post_hook(lambda *_: lines.append(len(printed.getvalue())))
    model.register_forward_pre_hook(lambda _, given: samples.append(len(given[0]) if torch.is_grad_enabled() else 0))
    model.register_forward_pre_hook(lambda *_: modes.add(model.training or not torch.is_grad_enabled()))
    try:
        with contextlib.redirect_stdout(printed):
            trained = answer(model, optimizer, TensorDataset(x, labels), epochs, batch_size, seed)
    finally:
        print(printed.getvalue(), end="")
    if False in modes:
        raise RuntimeError("the model trains in eval mode: dropout is off, and batch norm learns nothing")
    if not dist.is_initialized():
        raise RuntimeError("your function ends the process group, which the caller made and still needs")
    lines.append(len(printed.getvalue()))
    return {
        "weights": weights(trained) if isinstance(trained, nn.Module) else trained,
        "steps": len(lines) - 2,
        "samples": sum(samples),  # that went through the model, in training
        "lines": [step for step, (before, now) in enumerate(itertools.pairwise(lines)) if now > before],
    }


def alone(x, labels, epochs, batch_size, seed, starts) -> Tensor:
    """The weights after one process has trained with the global batches of the ranks."""
    model = copy.deepcopy(starts[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in epochs:
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed + epoch))
        for rows in order.split(batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), labels[rows]).backward()
            optimizer.step()
    return weights(model)


def judge(answer: Any, rng: Inputs) -> None:
    first, n, size = rng.size(2, 5), 24 + rng.pick((2, 4, 6)), 8  # the last batch of an epoch is a short one
    given = {"x": rng.randn(n, 6), "labels": rng.ints(0, 3, (n,)), "epochs": range(first, first + 3)}
    given |= {"batch_size": size, "seed": rng.size(1, 500), "starts": [network(rng, 6, 3) for _ in range(2)]}
    seen = ranks.observe(answer, on_rank, *given.values(), look="Do all ranks go through equally many batches?")
    yours, other = (each["weights"] for each in seen)

    def like(**changes: Any) -> bool:
        return near(yours, alone(**(given | changes)), 1e-4, 1e-6)

    if not (isinstance(yours, Tensor) and isinstance(other, Tensor)):
        raise Incorrect("Your function should return the trained model on every rank.", yours=[yours, other])
    wrong_if(
        not all(each["steps"] for each in seen) or near(yours, weights(given["starts"][0])),
        "unchanged",
        "On a rank, the model didn't learn: its optimizer took no step, or found no gradients on the weights.",
        look="`zero_grad()`, `backward()`, `step()`, in this order, with the optimizer and the model that you get",
    )
    wrong_if(
        all(each["samples"] >= 3 * n for each in seen) and not like(epochs=[*given["epochs"]] * 2),
        "all_samples",
        "Every rank went through all samples in each epoch, so each does all the work.",
        look="`DataLoader(…, sampler=DistributedSampler(…))`, for as many ranks as there are",
    )
    wrong_if(
        not near(yours, other, 1e-4, 1e-6),
        "ranks_apart",
        "The ranks end with different weights: some gradients were not averaged, or the initial weights differed.",
        look="`DDP(model)` broadcasts the weights of rank 0, and averages if you call the result, not the model inside",
    )
    late = [0, first, first + 1]  # set after the loop over the batches
    wrong_if(
        any(like(epochs=each) for each in ([0] * 3, range(3), range(1, 4), range(first - 1, first + 2), late)),
        "other_epochs",
        f"The samples come in the order of epochs other than those in `epochs`, which begin with {first}.",
        look="`sampler.set_epoch(epoch)` in each epoch, before the loop over the loader begins",
    )
    wrong_if(
        like(batch_size=2 * size),
        "global_batch",
        f"Every rank takes {size} samples in a step. That is the global batch size: divide it by the number of ranks.",
        look="the batch size of the DataLoader",
    )
    what = "The vector of all weights, compared with one process that trains on the same global batches,"
    look = "`DistributedSampler(train_set, seed=seed)`, shuffled; no `drop_last`; `zero_grad`; loss and rate not scaled"
    same(yours, alone(**given), what, rtol=1e-4, atol=1e-6, look=look)
    ends = [-(-n // size) * epoch for epoch in (1, 2, 3)]
    wrong_if(
        [each["lines"] for each in seen] != [ends, []],
        "line_per_epoch",
        "Rank 0 should print one line after each epoch, and nothing within one; the other ranks print nothing.",
        look="`if dist.get_rank() == 0:`, and is the `print` in the loop over the batches?",
        expected=f"lines after steps {ends} on rank 0",
        yours=" and ".join(f"lines after steps {each['lines']} on rank {rank}" for rank, each in enumerate(seen)),
    )


exercise = Exercise(
    title="Two processes, the same result as one",
    minutes=14,
    difficulty=4,
    points=4,
    takeaway="With the same global batch, order, and initial weights, two processes take exactly the steps of one.",
    hints=(
        "Four things change in the loop of chapter 02: `replica = DDP(model)` wraps the model, a sampler splits the "
        "samples, you tell the sampler the epoch, and only rank 0 prints.",
        "`sampler = DistributedSampler(train_set, seed=seed)`, `DataLoader(train_set, batch_size // ranks, "
        "sampler=sampler)`, `sampler.set_epoch(epoch)` at the start of each epoch, then the usual five lines.",
    ),
    judge=judge,
    seconds=ranks.SECONDS,
    lends=solution,
)
