"""A DDP training with five faults, found by what the ranks do: the check names one at a time and counts the others."""

import contextlib
import copy
import pickle
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from labcheck import ranks
from labcheck.authoring import Exercise, Incorrect, Inputs, near, same, wrong_if
from labcheck.probes import network, plain_number, weights

EPOCHS, BATCH = 3, 4


def solution(model: nn.Module, train_set: Dataset, epochs: int, path: Path) -> list[float]:
    replica = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=4, sampler=sampler)
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.tensor(0.0)
        for x, labels in loader:
            loss = F.cross_entropy(replica(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)
        dist.all_reduce(total)
        losses.append(total.item() / len(train_set))
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.3f}")
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    return losses


def on_rank(answer: Any, starts: list[nn.Module], x: Tensor, labels: Tensor) -> dict:
    """Let the answer train, and note which samples this rank's model meets, each with its loss at that moment."""
    model, rows, losses = starts[dist.get_rank()], [], []
    path = Path(f"rank_{dist.get_rank()}").resolve() / "model.pt"  # one for each rank: who saves, shows
    path.parent.mkdir()

    def note(module: nn.Module, given: tuple, logits: Tensor) -> None:
        if module is model and torch.is_grad_enabled():
            which = (given[0][:, None] == x).all(2).int().argmax(1)
            rows.extend(which.tolist())
            losses.extend(F.cross_entropy(logits.detach(), labels[which], reduction="none").tolist())

    register_module_forward_hook(note)  # not of the model, which may be saved
    seen = {"returned": answer(model, TensorDataset(x, labels), EPOCHS, path), "rows": rows, "losses": losses}
    seen["weights"], seen["file"] = weights(model), None
    if path.exists():
        with contextlib.suppress(pickle.UnpicklingError):  # a whole model, perhaps
            seen["file"] = torch.load(path)
        seen["file"] = dict(seen["file"]) if isinstance(seen["file"], dict) else "something other than a state_dict"
    return seen


def alone(model: nn.Module, x: Tensor, labels: Tensor, rows: Tensor) -> nn.Module:
    """One process that takes the steps of all ranks; rows: [ranks, epochs, samples of a rank in an epoch]."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in rows.unbind(1):
        for batch in epoch.split(BATCH, dim=1):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch.flatten()]), labels[batch.flatten()]).backward()
            optimizer.step()
    return model


def judge(answer: Any, rng: Inputs) -> None:
    n = 24 + rng.pick((2, 6))  # the last batch of an epoch is a short one
    x, labels, starts = rng.randn(n, 6), rng.ints(0, 3, (n,)), [network(rng, 6, 3) for _ in range(2)]
    look = "a collective that only one rank calls: that is one fault, and it hides the others until all get through"
    seen = ranks.observe(answer, on_rank, starts, x, labels, look=look)
    for rank, each in enumerate(seen):
        look = "the sampler; all batches of the loader"
        what = f"The number of samples that rank {rank} trains on, in all epochs,"
        same(len(each["rows"]), EPOCHS * n // 2, what, look=look)
        yours = each["returned"] if isinstance(each["returned"], list | tuple) else []
        if len(yours) != EPOCHS or None in map(plain_number, yours):
            raise Incorrect("Your function should return a loss for each epoch on every rank.", yours=each["returned"])
    rows = torch.tensor([each["rows"] for each in seen]).view(2, EPOCHS, n // 2)
    for epoch in rows.unbind(1):
        same(sorted(epoch.flatten().tolist()), [*range(n)], "The list of samples of an epoch, on both ranks together,")
    means = torch.tensor([each["losses"] for each in seen]).view(2, EPOCHS, n // 2).mean(2)
    judge_faults(seen, rows, means)
    reference = alone(copy.deepcopy(starts[0]), x, labels, rows)
    what = "The vector of all weights, compared with one process that trains on the same batches,"
    look = "what the script has right: batch size, optimizer, learning rate"
    same(seen[0]["weights"], weights(reference), what, rtol=1e-4, atol=1e-6, look=look)
    file = seen[0]["file"]
    wrong_if(
        isinstance(file, dict) and any(str(name).startswith("module.") for name in file),
        "names",
        "The file has the names of the wrapper, which begin with `module.`: a plain model doesn't find its own.",
        look="`model.state_dict()` of the plain model, or `replica.module.state_dict()`",
    )
    if not isinstance(file, dict):
        raise Incorrect("On rank 0, there should be a `state_dict()` at `path`.", yours=file or "no file")
    look = "saved after the last step"
    same(file, dict(reference.state_dict()), "The saved state_dict", rtol=1e-4, atol=1e-6, look=look)


def judge_faults(seen: list[dict], rows: Tensor, means: Tensor) -> None:
    returned = [torch.tensor([plain_number(loss) for loss in each["returned"]]) for each in seen]
    faults = {
        "apart": not near(seen[0]["weights"], seen[1]["weights"], 1e-4, 1e-6),
        "one order": any(torch.equal(one, two) for one, two in zip(rows[0], rows[0, 1:], strict=False)),
        "loss": not near(returned, [means.mean(0)] * 2, 1e-3, 1e-5),
        "saved": seen[1]["file"] is not None,
    }
    left = sum(faults.values()) - 1
    rest = f"Faults that remain after this one: {left}." if left else "No fault remains after this one."
    wrong_if(
        faults["apart"],
        "ranks_apart",
        f"After training, the ranks have different weights: the gradients were not averaged in every step. {rest}",
        look="which module do you call: the plain model, or the one that averages?",
    )
    wrong_if(
        faults["one order"],
        "same_order",
        f"A rank gets the same samples in the same order in two epochs in a row. {rest}",
        look="`sampler.set_epoch(epoch)`, before the loop over the loader; the sampler shuffles",
    )
    mean = means.mean(0)
    rank = int(near(returned[0], mean, 1e-3, 1e-5))
    twice, own = near(returned[rank], 2 * mean, 1e-3), near(returned, [*means], 1e-3, 1e-5)
    how = ": they are twice as large" if twice else ": they are those of its own samples" if own else ""
    wrong_if(
        faults["loss"],
        "loss",
        f"The losses on rank {rank} are not the means over the samples of all ranks{how}. {rest}",
        look="the sum over the samples of all ranks, each taken in its step, reduced once, and divided by their number",
        expected=[round(loss, 4) for loss in mean.tolist()],
        yours=[round(loss, 4) for loss in returned[rank].tolist()],
    )
    wrong_if(
        faults["saved"],
        "every_rank_saves",
        f"Rank 1 writes the file: only rank 0 should, since two processes that write one file may break it. {rest}",
        look="`if dist.get_rank() == 0:`",
    )


exercise = Exercise(
    title="Repair a DDP training",
    minutes=13,
    difficulty=4,
    points=4,
    takeaway="Only one of the five faults stops a training. Ask of each line which ranks get there, and with what.",
    hints=(
        "Five questions: which ranks reach each collective? who averages the gradients, and is it asked? what does the "
        "sampler know of the epoch? how many samples are in a sum over all ranks? who writes the file?",
        "`replica(x)` in the loop, `sampler.set_epoch(epoch)` before it, `dist.all_reduce(total)` on all ranks, the "
        "sum divided by `len(train_set)`; `torch.save` under `if dist.get_rank() == 0:`.",
    ),
    judge=judge,
    seconds=ranks.SECONDS,
)
