"""One training step of a sharded model from several small batches, with the gradient clipped."""

import copy
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from labcheck import ranks
from labcheck.authoring import AnswerRaised, Exercise, Inputs, near, same, wrong_if
from labcheck.collectives import Ledger
from labcheck.probes import Batch, graphs_at_once

LARGEST, FAR, GROUPS = 0.1, 50.0, 3  # norms: one that every gradient exceeds, one that none reaches


def solution(model: nn.Module, optimizer: torch.optim.Optimizer, pieces: list[Batch], largest: float) -> float:
    optimizer.zero_grad()
    for number, (x, labels) in enumerate(pieces):
        model.set_requires_gradient_sync(number == len(pieces) - 1)
        loss = F.cross_entropy(model(x), labels) / len(pieces)
        loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
    optimizer.step()
    return norm.full_tensor().item()


def on_rank(answer: Any, model: nn.Module, pieces: list[list[Batch]], norms: tuple[float, ...]) -> dict:
    """The answer makes a step for each of these norms; the messages are those of the first one."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    calls, passes, graphs = Ledger.current.calls, [], graphs_at_once(model)
    model.register_forward_pre_hook(lambda _, given: passes.append((len(given[0]), len(calls))))
    begun, seen = len(calls), {"norms": [], "weights": []}
    for largest in norms:
        Ledger.current.again()
        norm = answer(model, optimizer, pieces[dist.get_rank()], largest)
        if isinstance(norm, bool) or not isinstance(norm, float):
            return {"returned": "a DTensor" if isinstance(norm, DTensor) else norm}
        if not seen["norms"]:
            sent = [i for i, call in enumerate(calls) if i >= begun and call["what"] == "reduce-scatter"]
            seen |= {"sent": len(sent), "largest batch": max((size for size, _ in passes), default=0)}
            seen |= {"sent after": sum(place <= sent[0] for _, place in passes) if sent else 0, "graphs": graphs()}
        seen["norms"].append(norm)
        seen["weights"].append(torch.cat([p.full_tensor().flatten() for p in model.parameters()]).detach())
    return seen


def on_one(
    model: nn.Module, pieces: list[list[Batch]], norms: tuple[float, ...], clip: bool = True
) -> tuple[list, list]:
    """The norm of each step, and the weights after it, when one process has all pieces."""
    model, norms_before, weights = copy.deepcopy(model), [], []
    for largest in norms:
        batches = [batch for row in pieces for batch in row]
        loss = sum(F.cross_entropy(model(x), labels) for x, labels in batches) / len(batches)
        gradients = torch.autograd.grad(loss, [*model.parameters()])
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.data -= 0.5 * gradient * (min(1, largest / norm) if clip else 1)
        norms_before.append(norm.item())
        weights.append(nn.utils.parameters_to_vector(model.parameters()).detach())
    return norms_before, weights


def draw(rng: Inputs) -> tuple[nn.Module, list[list[Batch]]]:
    inputs, count = rng.size(6, 9), rng.size(3, 4)
    model = nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 5))
    for parameter in model.parameters():
        parameter.data = 0.4 * rng.randn(*parameter.shape)
    return model, [[(2 * rng.randn(4, inputs) + rank, rng.ints(0, 5, (4,))) for _ in range(count)] for rank in range(2)]


def judge(answer: Any, rng: Inputs) -> None:
    model, pieces = draw(rng)
    count, norms = len(pieces[0]), (LARGEST, LARGEST, FAR)
    try:
        look = "all ranks make the same calls in the same order"
        seen = ranks.observe(answer, on_rank, model, pieces, norms, look=look)
    except AnswerRaised as raised:
        never_sent("full_tensor" in str(raised))
        raise
    expected, weights = on_one(model, pieces, norms)
    for each in seen:
        if "returned" in each:
            look = "`norm.full_tensor().item()`"
            same(each["returned"], expected[0], "What your function returns", look=look)
    judge_messages(seen, count)
    (norm, second, third), (other, *_) = yours = [each["norms"] for each in seen]
    wrong_if(
        not near(*yours),
        "norms_differ",
        f"The ranks have different norms, {norm:.3g} and {other:.3g}, so each scales its shards by a different factor. "
        "The norm is that of all shards together.",
        look="`clip_grad_norm_` on the parameters as they are, and `full_tensor()` for its result",
    )
    wrong_if(
        near(norm, count * expected[0]) or near(norm, expected[0] / 2),
        "share_of_a_piece",
        f"Your gradients are {norm / expected[0]:g} times the right ones. Each piece counts for its share, and FSDP "
        "has already averaged over the ranks.",
        look="divide each loss by the number of pieces, and by nothing else",
        expected=f"the norm {expected[0]:.4g}",
        yours=f"the norm {norm:.4g}",
    )
    look = "the root of the sum of squares of all gradients; `clip_grad_norm_` returns the norm before clipping"
    same(norm, expected[0], "The norm of the first step", look=look)
    wrong_if(
        near(seen[0]["weights"][0], on_one(model, pieces, norms[:1], clip=False)[1][0]),
        "not_clipped",
        "The norm is right, but the step uses gradients that were not clipped.",
        look="`clip_grad_norm_` after the last backward pass and before the step",
    )
    look = "one `optimizer.step()` after clipping, which multiplies all gradients by one factor"
    same(seen[0]["weights"][0], weights[0], "The vector of all weights after the first step", look=look)
    look = "are the gradients of the first step still there? `optimizer.zero_grad()`, before the first piece"
    same(second, expected[1], "The norm of the second step", look=look)
    look = f"the norm is below {FAR:g}, and clipping only makes gradients smaller: a factor of at most 1"
    same(seen[0]["weights"][2], weights[2], "The vector of all weights after a step without clipping", look=look)
    same(third, expected[2], "The norm of a step without clipping", look=look)


def judge_messages(seen: list[dict], count: int) -> None:
    never_sent(not all(each["sent"] for each in seen))
    wrong_if(
        any(each["sent"] > GROUPS for each in seen),
        "sent_too_often",
        f"The ranks exchange gradients {seen[0]['sent']} times; the model has {GROUPS} groups, so {GROUPS} times are "
        "enough: in the backward pass of the last piece.",
        look="`model.set_requires_gradient_sync(…)` before each backward pass",
    )
    wrong_if(
        any(each["largest batch"] > 4 or each["graphs"] > 1 for each in seen),
        "all_at_once",
        "The activations of several pieces are in memory at the same time. The pieces come one by one because those of "
        "all don't fit.",
        look="a forward and a backward pass for each piece",
    )
    wrong_if(
        any(each["sent after"] < count for each in seen),
        "sent_too_early",
        f"The ranks exchange gradients in the backward pass of piece {seen[0]['sent after']} of {count}: those of "
        "later pieces never leave their rank.",
        look="`set_requires_gradient_sync(True)` before the last piece",
    )


def never_sent(condition: bool) -> None:
    wrong_if(
        condition,
        "never_sent",
        "There are no sharded gradients to clip: the ranks never exchanged any, or they were zeroed after that, or you "
        "took local tensors.",
        look="`set_requires_gradient_sync(True)` before the last piece, and `zero_grad` once, before the first",
    )


exercise = Exercise(
    title="Accumulate, clip, step",
    minutes=7,
    difficulty=3,
    points=3,
    takeaway="The norm is that of all shards together: a factor that differs from rank to rank would tear the model "
    "apart.",
    hints=(
        "The loop is that of one process. Only two lines know of shards: when the ranks exchange gradients, and how "
        "the norm becomes a number.",
        "`model.set_requires_gradient_sync(False)` before a piece keeps its gradients on the rank, `True` before "
        "the last piece sends the sum of all. `clip_grad_norm_` comes once, after the last piece.",
        "`norm = nn.utils.clip_grad_norm_(model.parameters(), largest)` is a DTensor; "
        "`norm.full_tensor().item()` is the number.",
    ),
    judge=judge,
    seconds=120.0,  # the first check of a session starts a server, which makes the processes
)
