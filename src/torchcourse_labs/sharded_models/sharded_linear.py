"""A linear layer whose weight is divided among the ranks, as a function for autograd."""

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labcheck import ranks
from labcheck.authoring import Exercise, Inputs, near, same, wrong_if
from labcheck.collectives import Ledger
from torchcourse.memory import LiveBytes


class solution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard):
        ctx.save_for_backward(x, shard)
        weight = shard.new_empty(dist.get_world_size() * shard.shape[0], shard.shape[1])
        dist.all_gather_into_tensor(weight, shard)
        return x @ weight.T

    @staticmethod
    def backward(ctx, gradient_y):
        x, shard = ctx.saved_tensors
        weight = shard.new_empty(dist.get_world_size() * shard.shape[0], shard.shape[1])
        dist.all_gather_into_tensor(weight, shard)
        gradient_x = gradient_y @ weight
        gradient_shard = torch.empty_like(shard)
        dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x)
        return gradient_x, gradient_shard / dist.get_world_size()


def on_rank(answer: Any, weights: list[Tensor], images: list[Tensor]) -> dict:
    """Two layers in a row, each of them sharded, on this rank's images."""
    rank, world, calls = dist.get_rank(), dist.get_world_size(), Ledger.current.calls
    with LiveBytes() as live:
        shards = [weight.chunk(world)[rank].clone().requires_grad_() for weight in weights]
        x, few = images[rank].clone().requires_grad_(), 0.4 * min(weight.nbytes for weight in weights)
        before = live.now
        hidden = answer.apply(x, shards[0])
        if not isinstance(hidden, Tensor) or hidden.shape != (len(x), len(weights[0])):
            return {"hidden": hidden.detach() if isinstance(hidden, Tensor) else hidden}
        y = answer.apply(hidden.tanh(), shards[1])
    forward, end = len(calls), time.monotonic() + 1
    while live.now > before + few and time.monotonic() < end:  # a message may hold its tensor for a moment
        time.sleep(0.01)
    kept = live.now > before + few
    y.square().mean().backward()
    gradients = [x.grad, *(shard.grad for shard in shards)]
    held = [shard.grad is not None and shard.grad.untyped_storage().nbytes() > shard.nbytes for shard in shards]
    return {
        "hidden": hidden.detach(),
        "gradients": gradients,
        "kept": ["weight"] * kept + ["gradient"] * any(held),
        "forward": [call["what"] for call in calls[:forward]],
        "backward": sorted(call["what"] for call in calls[forward:]),
    }


def on_one(weights: list[Tensor], x: Tensor) -> tuple[Tensor, ...]:
    """The gradients of one rank's loss for its images and for both weights, whole."""
    inputs = [tensor.clone().requires_grad_() for tensor in (x, *weights)]
    loss = ((inputs[0] @ inputs[1].T).tanh() @ inputs[2].T).square().mean()
    return torch.autograd.grad(loss, inputs)


def judge(answer: Any, rng: Inputs) -> None:
    a, b, c = (2 * size for size in rng.sizes(3, 18, 26))
    weights = [rng.randn(b, a) / a**0.5, rng.randn(c, b) / b**0.5]
    images = [rng.randn(3, a) for _ in range(2)]
    seen = ranks.observe(answer, on_rank, weights, images, look="both ranks make the same calls in the same order")
    for rank, each in enumerate(seen):
        look = "gather the weight, not outputs, which belong to other images: x times the whole weight, transposed"
        same(each["hidden"], images[rank] @ weights[0].T, f"The output on rank {rank}", look=look)
    own = [on_one(weights, x) for x in images]
    first, second = (((one + other) / 2).chunk(2) for one, other in list(zip(*own, strict=True))[1:])
    wrong_if(
        near([each["gradients"][2] for each in seen], [2 * part for part in second]),
        "sum",
        "The gradient of the shard is a sum over the ranks, exactly twice that of one process. Each rank's loss is a "
        "mean over its own images, so the gradient of all is the mean.",
        look="one division by the number of ranks",
    )
    for rank, each in enumerate(seen):
        yours = each["gradients"]
        look = "`reduce_scatter_tensor` adds the ranks' gradients; one division makes the mean"
        same(yours[2], second[rank], f"The gradient of the shard on rank {rank}", atol=1e-7, look=look)
        look = "`gradient_y @ weight` with the whole weight: no other rank has a part in it, nothing is to be divided"
        same(yours[0], own[rank][0], f"The gradient of x on rank {rank}", atol=1e-7, look=look)
        same(yours[1], first[rank], f"The gradient of the first layer's shard on rank {rank}", atol=1e-7, look=look)
    for each in seen:
        wrong_if(
            each["kept"],
            "kept",
            f"The whole {' and the whole '.join(each['kept'])} is still there after the pass that needs it.",
            look="save the shard, not the weight, with `save_for_backward` or in `ctx`, and gather again; the gradient "
            "of the shard is a tensor of its own, `torch.empty_like(shard)`, and no view",
        )
        look = "`reduce_scatter_tensor` sends each rank only the rows that it keeps, half as much as an all-reduce"
        same(each["forward"], ["all-gather"] * 2, "The list of collectives for two layers, forward,")
        backward = ["all-gather"] * 2 + ["reduce-scatter"] * 2
        same(each["backward"], backward, "The list of collectives for two layers, backward,", look=look)


exercise = Exercise(
    title="A layer that no rank has",
    minutes=15,
    difficulty=4,
    points=5,
    takeaway="Gather, use, forget; gather again, scatter the gradients: no rank keeps a whole weight.",
    hints=(
        "Forward: make an empty tensor for the whole weight, `dist.all_gather_into_tensor(weight, shard)`, multiply. "
        "Save what is small, x and the shard. Backward: gather again; the gradient for x is `gradient_y @ weight`.",
        "`gradient_shard = torch.empty_like(shard)`, `dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ "
        "x)`, then `return gradient_x, gradient_shard / dist.get_world_size()`: the sum becomes a mean.",
    ),
    judge=judge,
    seconds=ranks.SECONDS,
)
