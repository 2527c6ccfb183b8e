"""Shard a model with FSDP2: a group for each block, one for the rest, and then the optimizer."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, same, wrong_if
from torchcourse import models
from torchcourse.cluster import planning
from torchcourse_labs.sharded_models._shared import MODEL_FIRST


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
            return {"optimizer": optimizer}
        parameters = dict(model.named_parameters())
        known = {id(p) for group in optimizer.param_groups for p in group["params"]}
        rates = ", ".join(sorted({f"{group['lr']:g}" for group in optimizer.param_groups}))
        dtypes: set[str] = set()
        for layer in model.modules():
            if isinstance(getattr(layer, "weight", None), Tensor):
                layer.register_forward_pre_hook(lambda layer, _: dtypes.add(str(layer.weight.dtype)))
        error = ""
        with planning.messages() as sent:
            try:
                model(torch.zeros(2, 3, dtype=torch.int64) if tied else torch.zeros(2, 1, 28, 28)).sum().backward()
            except Exception as raised:  # whatever a model that is wrongly sharded raises
                error = str(raised)
        return {
            "groups": sorted(name or "the model" for name, m in model.named_modules() if isinstance(m, FSDPModule)),
            "whole": [name for name, p in parameters.items() if not isinstance(p, DTensor)],
            "missing": [name for name, p in parameters.items() if id(p) not in known],
            "optimizer": f"{type(optimizer).__name__} with learning rate {rates}",
            "error": error,
            "messages": dict(sent.counts),
            "dtypes": sorted(dtypes),
        }


def judge(answer: Any, rng: Inputs) -> None:
    for tied, rates in ((True, [1e-2, 2e-3]), (False, [1e-3, 3e-4])):
        judge_case(answer, rng.size(2, 4), tied, rng.pick(rates))


def judge_case(answer: Any, depth: int, tied: bool, lr: float) -> None:
    with MODEL_FIRST:
        seen = observe(answer, in_fake_world, depth, tied, lr)
    if "groups" not in seen:
        raise Incorrect("Your function should return the optimizer.", "an optimizer", seen["optimizer"])
    wrong_if(
        "shared" in seen["error"],
        "shared_weight",
        "Two calls of `fully_shard` take the same weight: that of the first layer is also that of the last one.",
        look="one call for each whole block, `model.blocks[i]`, and one for the model, which takes both layers",
    )
    wrong_if(
        seen["groups"] == ["the model"],
        "one_group",
        "The whole model is one group: it is gathered at once and stays whole from the first layer to the last, so "
        "little is saved.",
        look="one call for each block, before that on the model",
    )
    groups = [*(f"blocks.{i}" for i in range(depth)), "the model"]
    look = "`fully_shard(module, mesh=mesh)`, in place: one call for each block alone, then one for the model itself"
    same(seen["groups"], groups, "The list of groups", look=look)
    same(seen["whole"], [], "The list of weights that are not sharded", look="a last call, on the model itself")
    look = "after all calls of `fully_shard`, which replaces weights by DTensors: `AdamW(model.parameters(), lr=lr)`"
    same(seen["missing"], [], "The list of weights that the optimizer does not have", look=look)
    same(seen["optimizer"], f"AdamW with learning rate {lr:g}", "The optimizer")
    look = "one call for each block alone; the options of `fully_shard` other than the mesh keep their defaults"
    same(seen["dtypes"], ["torch.float32"], "The list of dtypes that weights have in a step", look=look)
    same(seen["error"], "", "The error message of a step")
    expected = {"all-gather": 2 * depth + 1, "reduce-scatter": depth + 1}
    same(seen["messages"], expected, "The number of messages in a step", look=look)


exercise = Exercise(
    title="Shard a model by blocks",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Blocks first, the model last, the optimizer after both: each block is whole only while it computes.",
    hints=(
        "The blocks first, then what is left, then the optimizer. `fully_shard(module, mesh=mesh)` works in place. "
        "Called on the model, it takes all parameters that no call before it has taken.",
        "`for block in model.blocks: fully_shard(block, mesh=mesh)`, then `fully_shard(model, mesh=mesh)`, then "
        "`torch.optim.AdamW(model.parameters(), lr=lr)`.",
    ),
    judge=judge,
)
