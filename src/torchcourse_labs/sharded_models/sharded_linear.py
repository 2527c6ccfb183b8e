"""A linear layer whose weight is divided among the ranks, as a function for autograd."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labcheck import ranks
from labcheck.authoring import AnswerRaised, Exercise, Inputs, near, same, wrong_if
from labcheck.collectives import Ledger
from torchcourse_labs.sharded_models._shared import Living


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
    if not (isinstance(answer, type) and issubclass(answer, torch.autograd.Function)):
        return {"no function": True}
    rank, world = dist.get_rank(), dist.get_world_size()
    shards = [weight.chunk(world)[rank].clone().requires_grad_() for weight in weights]
    x = images[rank].clone().requires_grad_()
    calls = Ledger.current.calls
    with Living(x, *shards) as living:
        hidden = answer.apply(x, shards[0])
        if not isinstance(hidden, Tensor) or hidden.shape != (len(x), len(weights[0])):
            return {"hidden": hidden.detach() if isinstance(hidden, Tensor) else hidden}
        y = answer.apply(hidden.tanh(), shards[1])
    forward, kept = len(calls), living.settled(0.4 * min(weight.nbytes for weight in weights))
    y.square().mean().backward()
    return {
        "hidden": hidden.detach(),
        "kept": kept,
        "gradients": [x.grad, *(shard.grad for shard in shards)],
        "held": [0 if shard.grad is None else shard.grad.untyped_storage().nbytes() for shard in shards],
        "forward": [call["what"] for call in calls[:forward]],
        "backward": [call["what"] for call in calls[forward:]],
    }


def on_one(weights: list[Tensor], images: list[Tensor]) -> list[tuple[Tensor, ...]]:
    """The gradients of each rank's loss for its images and for both weights."""
    gradients = []
    for x in images:
        inputs = [tensor.clone().requires_grad_() for tensor in (x, *weights)]
        loss = ((inputs[0] @ inputs[1].T).tanh() @ inputs[2].T).square().mean()
        gradients.append(torch.autograd.grad(loss, inputs))
    return gradients


def judge(answer: Any, rng: Inputs) -> None:
    a, b, c = (2 * size for size in rng.sizes(3, 18, 26))
    weights = [rng.randn(b, a) / a**0.5, rng.randn(c, b) / b**0.5]
    images = [rng.randn(3, a) for _ in range(2)]
    try:
        seen = ranks.observe(answer, on_rank, weights, images, look="both ranks make the same calls in the same order")
    except AnswerRaised as raised:
        wrong_if(
            "invalid gradient at index" in str(raised),
            "other_order",
            "The gradients do not have the shapes of their inputs: `backward` returns one for each input of `forward`, "
            "first that of x, then that of the shard.",
            yours=str(raised),
        )
        raise
    wrong_if(
        any("no function" in each for each in seen),
        "no_function",
        "Your answer is not an `autograd.Function`: give `check` the class itself, which has `apply`.",
    )
    judge_outputs(seen, weights, images)
    judge_gradients([each["gradients"] for each in seen], on_one(weights, images))
    judge_costs(seen, *(weight.nbytes for weight in weights))


def judge_outputs(seen: list[dict], weights: list[Tensor], images: list[Tensor]) -> None:
    mixed = torch.cat([x @ part.T for x, part in zip(images, weights[0].chunk(2), strict=True)], dim=1)
    wrong_if(
        all(near(each["hidden"], mixed) for each in seen),
        "outputs_gathered",
        "You gather outputs: each rank computes its rows of the weight with its own images, and the rest of its output "
        "then belongs to the other rank's images.",
        look="gather the weight, and multiply after that",
    )
    look = (
        "x times the *whole* weight, transposed, with its rows in the order of the ranks: a shard has half of the rows"
    )
    for rank, each in enumerate(seen):
        same(each["hidden"], images[rank] @ weights[0].T, f"The output on rank {rank}", look=look)


def judge_gradients(yours: list[list], own: list[tuple[Tensor, ...]]) -> None:
    """Both: on each rank those of the images, of the first and of the second layer; `own` are of whole weights."""
    means = [((one + other) / 2).chunk(2) for one, other in zip(*own, strict=True)]
    last, own_rows = [each[2] for each in yours], [each[2].chunk(2)[rank] for rank, each in enumerate(own)]
    wrong_if(
        near(last, [2 * part for part in means[2]]),
        "sum",
        "The gradient of the shard is a sum over the ranks. Each rank's loss is a mean over its own images, so the "
        "gradient of all is the mean.",
        look="one division by the number of ranks",
    )
    wrong_if(
        near(last, own_rows) or near(last, [rows / 2 for rows in own_rows]),
        "own_images_only",
        "The gradient of the shard lacks the other rank's images: each rank takes its rows of its own gradient.",
        look="`dist.reduce_scatter_tensor` adds the ranks' gradients, and gives each rank its rows",
    )
    for rank, (x, first, second) in enumerate(yours):
        look = "`backward` returns a gradient for each input: for the shard, the mean of its rows over the ranks"
        same(second, means[2][rank], f"The gradient of the shard on rank {rank}", atol=1e-7, look=look)
        look = "`gradient_y @ weight` with the whole weight: no other rank has a part in it, nothing is to be divided"
        same(x, own[rank][0], f"The gradient of x on rank {rank}", atol=1e-7, look=look)
        same(first, means[1][rank], f"The gradient of the first layer's shard on rank {rank}", atol=1e-7, look=look)


def judge_costs(seen: list[dict], *whole: int) -> None:
    """whole: the bytes of each weight"""
    wrong_if(
        any(each["kept"] > 0.4 * min(whole) for each in seen),
        "weight_kept",
        "The whole weight is still there after the forward pass.",
        look="what you save, with `save_for_backward` or as an attribute of `ctx`: save the shard, and gather again",
        expected=f"fewer than {min(whole)} bytes, those of a weight",
        yours=f"{seen[0]['kept']} bytes",
    )
    wrong_if(
        any("all-reduce" in each["backward"] for each in seen),
        "all_reduce",
        "Every rank gets the whole gradient of all images, and then drops half of it: twice the bytes.",
        look="`dist.reduce_scatter_tensor` sends each rank only the rows that it keeps",
    )
    wrong_if(
        any(held > size / 2 for each in seen for held, size in zip(each["held"], whole, strict=True)),
        "gradient_kept",
        "The whole gradient is still there after the backward pass: the gradient of the shard is a view of it, not a "
        "tensor of its own.",
        look="`.clone()`, or write into `torch.empty_like(shard)`",
    )
    for each in seen:
        same(each["forward"], ["all-gather"] * 2, "The list of collectives for two layers, forward,")
        backward = ["all-gather", "reduce-scatter"] * 2
        same(sorted(each["backward"]), sorted(backward), "The list of collectives for two layers, backward,")


exercise = Exercise(
    title="A layer that no rank has",
    minutes=15,
    difficulty=4,
    points=5,
    takeaway="Gather, use, forget; gather again, scatter the gradients: three messages instead of DDP's two, and no "
    "rank keeps a whole weight.",
    hints=(
        "Forward: make an empty tensor for the whole weight, `dist.all_gather_into_tensor(weight, shard)`, "
        "multiply. Save for the backward pass what is small: x and the shard.",
        "Backward: gather again. The gradient for x is `gradient_y @ weight`: it belongs to this rank's images, so no "
        "other rank needs it. The gradient for the whole weight is `gradient_y.T @ x`, of this rank's images only.",
        "`gradient_shard = torch.empty_like(shard)`, `dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ "
        "x)`, then `return gradient_x, gradient_shard / dist.get_world_size()`: the sum becomes a mean.",
    ),
    judge=judge,
    seconds=120.0,  # the first check of a session starts a server, which makes the processes
)
