"""One training step of a sharded model from several small batches, with the gradient clipped."""

import copy
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from labcheck import ranks
from labcheck.authoring import AnswerRaised, Exercise, Inputs, near, same, wrong_if
from labcheck.collectives import Ledger
from labcheck.probes import Batch, graphs_at_once

NORMS = (0.1, 50.0)  # the largest of two steps: one that the gradient's norm exceeds, one that it doesn't


def solution(model: nn.Module, optimizer: torch.optim.Optimizer, pieces: list[Batch], largest: float) -> float:
    optimizer.zero_grad()
    for number, (x, labels) in enumerate(pieces):
        model.set_requires_gradient_sync(number == len(pieces) - 1)
        loss = F.cross_entropy(model(x), labels) / len(pieces)
        loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
    optimizer.step()
    return norm.full_tensor().item()


def on_rank(answer: Any, model: nn.Module, pieces: list[list[Batch]]) -> dict:
    """The answer makes two steps; what is sent and held is that of the first one."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    calls, passes, graphs = Ledger.current.calls, [], graphs_at_once(model)
    model.register_forward_pre_hook(lambda _, given: passes.append((len(given[0]), len(calls))))
    seen: dict[str, Any] = {"norms": [], "weights": []}
    for largest in NORMS:
        Ledger.current.again()
        norm = answer(model, optimizer, pieces[dist.get_rank()], largest)
        if not seen["norms"]:
            sent = [i for i, call in enumerate(calls) if call["what"] == "reduce-scatter"]
            seen["sent in"] = sorted({sum(place <= i for _, place in passes) for i in sent})
            seen["at once"] = max(graphs(), max((size for size, _ in passes), default=0) // 4)
        seen["norms"].append("a DTensor" if isinstance(norm, DTensor) else norm)
        seen["weights"].append(torch.cat([p.full_tensor().flatten() for p in model.parameters()]).detach())
    return seen


def on_one(model: nn.Module, batches: list[Batch]) -> tuple[list[float], list[Tensor]]:
    """The norm of each step, and the weights after it, when one process has all pieces."""
    norms, weights = [], []
    for largest in NORMS:
        loss = sum(F.cross_entropy(model(x), labels) for x, labels in batches) / len(batches)
        gradients = torch.autograd.grad(loss, [*model.parameters()])
        norms.append(torch.cat([gradient.flatten() for gradient in gradients]).norm().item())
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.data -= 0.5 * gradient * min(1, largest / norms[-1])
        weights.append(nn.utils.parameters_to_vector(model.parameters()).detach())
    return norms, weights


def judge(answer: Any, rng: Inputs) -> None:
    inputs, count = rng.size(6, 9), rng.pick([3, 5])
    model = nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 5))
    for parameter in model.parameters():
        parameter.data = 0.4 * rng.randn(*parameter.shape)
    pieces = [[(2 * rng.randn(4, inputs) + rank, rng.ints(0, 5, (4,))) for _ in range(count)] for rank in range(2)]
    seen, error = [], None
    try:
        look = "all ranks make the same calls in the same order"
        seen = ranks.observe(answer, on_rank, copy.deepcopy(model), pieces, look=look)
    except AnswerRaised as raised:
        error = raised
    wrong_if(
        "full_tensor" in str(error) or any(not each["sent in"] for each in seen),
        "never_sent",
        "There are no sharded gradients to clip: the ranks never exchanged any, or they were zeroed after that, or you "
        "took local tensors.",
        look="`set_requires_gradient_sync(True)` before the last piece, and `zero_grad` once, before the first",
    )
    if error:
        raise error
    wrong_if(
        any(each["at once"] > 1 for each in seen),
        "all_at_once",
        "The activations of several pieces are in memory at the same time. The pieces come one by one because those of "
        "all don't fit.",
        look="a forward and a backward pass for each piece",
    )
    wrong_if(
        any(each["sent in"] != [count] for each in seen),
        "sent_too_often",
        f"The ranks exchange gradients in the backward pass of other pieces than the last, which has number {count}.",
        look="`model.set_requires_gradient_sync(…)` before each backward pass: True only for the last piece",
        expected=f"gradients sent in piece {count}",
        yours=f"gradients sent in piece {', '.join(map(str, seen[0]['sent in']))}",
    )
    norms, weights = on_one(model, pieces[0] + pieces[1])
    norm = seen[0]["norms"][0]
    wrong_if(
        near(norm, count * norms[0]) or near(norm, norms[0] / 2),
        "share_of_a_piece",
        f"Your gradients are {count if near(norm, count * norms[0]) else 0.5} times the right ones. Each piece counts "
        "for its share, and FSDP has already averaged over the ranks.",
        look="divide each loss by the number of pieces, and by nothing else",
        expected=f"the norm {norms[0]:.4g}",
        yours=norm,
    )
    for rank, each in enumerate(seen):
        look = f"each piece's mean loss / {count}; all ranks' shards (squares add up), unclipped: `norm.full_tensor()`"
        same(each["norms"][0], norms[0], f"The norm that you return on rank {rank}", look=look)
        look = "one factor for all weights on all ranks: `clip_grad_norm_` after the last backward pass, then `step`"
        same(each["weights"][0], weights[0], f"The vector of all weights after a step on rank {rank}", look=look)
        look = "`optimizer.zero_grad()` before the first piece: are the gradients of the first step still there?"
        same(each["norms"][1], norms[1], f"The norm of a second step on rank {rank}", look=look)
        look = f"with a norm below `largest`, here {NORMS[1]:g}, nothing is scaled: clipping never enlarges gradients"
        same(each["weights"][1], weights[1], f"The vector of all weights after a second step on rank {rank}", look=look)


exercise = Exercise(
    title="Accumulate, clip, step",
    minutes=7,
    difficulty=3,
    points=3,
    takeaway="The norm is that of all shards together: with a factor of its own, each rank would go its own way.",
    hints=(
        "`model.set_requires_gradient_sync(False)` before a piece keeps its gradients on the rank, `True` before "
        "the last piece sends the sum of all. `clip_grad_norm_` comes once, after the last piece.",
        "`norm = nn.utils.clip_grad_norm_(model.parameters(), largest)` is a DTensor; "
        "`norm.full_tensor().item()` is the number.",
    ),
    judge=judge,
    seconds=ranks.SECONDS,
)
