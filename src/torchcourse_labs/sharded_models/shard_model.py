"""Shard a model with FSDP2: a group for each block, one for the rest, and then the optimizer."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from labcheck.authoring import AnswerRaised, Exercise, Inputs, call, observe, same, wrong_if
from torchcourse import models
from torchcourse.cluster import planning


def solution(model: nn.Module, mesh: DeviceMesh, lr: float) -> torch.optim.Optimizer:
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return torch.optim.AdamW(model.parameters(), lr=lr)


class Tied(nn.Module):
    """Tokens int64 [B, T] -> logits [B, T, tokens]: the last layer has the weight of the first one."""

    def __init__(self, depth: int, tokens: int = 32, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth))
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def in_fake_world(answer: Any, depth: int, tied: bool, lr: float) -> dict:
    """A probe: the answer shards a model in a world of eight ranks, then comes a step."""
    with planning.fake_world(8) as mesh, torch.random.fork_rng(devices=[]):
        model = Tied(depth) if tied else models.Patches(width=16, depth=depth, heads=2)
        optimizer = call(answer, model, mesh, lr, may_change=True, may_return_none=True)
        if not isinstance(optimizer, torch.optim.Optimizer):
            return {"returned": optimizer}
        parameters = dict(model.named_parameters())
        known = {id(p) for group in optimizer.param_groups for p in group["params"]}
        rates = ", ".join(sorted({f"{group['lr']:g}" for group in optimizer.param_groups}))
        dtypes: set[str] = set()
        for layer in model.modules():
            if isinstance(getattr(layer, "weight", None), Tensor):
                layer.register_forward_pre_hook(lambda layer, _: dtypes.add(str(layer.weight.dtype)))
        seen = {
            "groups": sorted(name or "the model" for name, m in model.named_modules() if isinstance(m, FSDPModule)),
            "whole": [name for name, p in parameters.items() if not isinstance(p, DTensor)],
            "missing": [name for name, p in parameters.items() if id(p) not in known],
            "stale": bool(known - {*map(id, parameters.values())}),
            "optimizer": f"{type(optimizer).__name__} with learning rate {rates}",
            "error": "",
        }
        with planning.messages() as sent:
            try:
                model(torch.zeros(2, 3, dtype=torch.int64) if tied else torch.zeros(2, 1, 28, 28)).sum().backward()
            except Exception as error:  # whatever a model that is wrongly sharded raises
                seen["error"] = str(error)
        messages = f"{sent.counts['all-gather']} all-gathers, {sent.counts['reduce-scatter']} reduce-scatters"
        return {**seen, "messages": messages, "dtypes": sorted(dtypes)}


def judge(answer: Any, rng: Inputs) -> None:
    judge_case(answer, rng.size(2, 4), True, rng.pick([1e-2, 2e-3]))
    judge_case(answer, rng.size(2, 4), False, rng.pick([1e-3, 3e-4]))


def judge_case(answer: Any, depth: int, tied: bool, lr: float) -> None:
    groups = [*(f"blocks.{i}" for i in range(depth)), "the model"]
    try:
        seen = observe(answer, in_fake_world, depth, tied, lr)
    except AnswerRaised as raised:
        model_first("Invariant encountered" in str(raised))
        raise
    wrong_if(
        "returned" in seen,
        "no_optimizer",
        "Your function should return the optimizer.",
        yours=seen.get("returned"),
    )
    wrong_if(
        "shared" in seen["error"],
        "shared_weight",
        "Two calls of `fully_shard` take the same weight: that of the first layer is also that of the last one. Leave "
        "both layers to the last call, the one on the model.",
        look="one call for each whole block, `model.blocks[i]`, and one for the model",
    )
    odd = [dtype for dtype in seen["dtypes"] if dtype != "torch.float32"]
    same(odd, [], "The list of dtypes other than float32 that weights have in a step", look="`mp_policy`")
    model_first(seen["error"] and seen["groups"] == groups)
    wrong_if(
        not seen["groups"],
        "nothing_sharded",
        "Nothing is sharded: `fully_shard` works in place, on the very model that comes in.",
        look="`fully_shard(module, mesh=mesh)`, and whether you call it on a copy",
    )
    wrong_if(
        seen["groups"] == ["the model"],
        "one_group",
        "The whole model is one group: it is gathered at once and stays whole from the first layer to the last, so "
        "little is saved.",
        look="one call for each block, before that on the model",
    )
    wrong_if(
        seen["whole"],
        "rest_is_whole",
        "Some weights are not sharded. Each rank keeps them whole, and their gradients are not averaged.",
        look="a last call, on the model itself",
        yours=seen["whole"],
    )
    wrong_if(
        seen["stale"],
        "old_weights",
        "The optimizer has the old weights: `fully_shard` replaces them with DTensors, which no step will change.",
        look="make the optimizer after all calls of `fully_shard`",
    )
    same(seen["missing"], [], "The list of weights that the optimizer does not have", look="`model.parameters()`")
    look = (
        "one call for each block, with this block alone, and one for the model: what shares a group is gathered at once"
    )
    same(seen["groups"], groups, "The list of groups", look=look)
    same(seen["error"], "", "The error message of a step")
    look = "one call for each block, with this block alone; `reshard_after_forward` keeps its default"
    expected = f"{2 * depth + 1} all-gathers, {depth + 1} reduce-scatters"
    same(seen["messages"], expected, "The number of messages in a step", look=look)
    same(seen["optimizer"], f"AdamW with learning rate {lr:g}", "The optimizer")


def model_first(condition: object) -> None:
    wrong_if(
        condition,
        "model_first",
        "You shard the model before its blocks: the first call takes all parameters, and none are left for the blocks.",
        look="the inner modules first, the model last",
    )


exercise = Exercise(
    title="Shard a model by blocks",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Blocks first, the model last, the optimizer after both: each block is whole only while it computes.",
    hints=(
        "Three things in this order: the blocks, what is left, the optimizer.",
        "`fully_shard(module, mesh=mesh)` works in place. Called on the model, it takes all parameters that no call "
        "before it has taken.",
        "`for block in model.blocks: fully_shard(block, mesh=mesh)`, then `fully_shard(model, mesh=mesh)`, then "
        "`torch.optim.AdamW(model.parameters(), lr=lr)`.",
    ),
    judge=judge,
)
