"""Turn each gradient into its mean over all ranks: the heart of data parallel training."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labcheck import ranks
from labcheck.authoring import Exercise, Inputs
from torchcourse_labs.ddp._shared import judge_gradients


def solution(model: nn.Module) -> None:
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def judge(answer: Any, rng: Inputs) -> None:
    look = "`all_reduce` adds up, on all ranks, unless `op` says otherwise; divide once, by the number of all ranks"
    judge_gradients(answer, rng, look)


exercise = Exercise(
    title="Average the gradients",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="This loop is the heart of data parallel training. DDP does the same, earlier and in fewer messages.",
    hints=(
        "Which parameters take part must not depend on the rank. Skip what is frozen (`requires_grad` is False on all "
        "ranks alike). Where `.grad` is None, first put zeros of the same shape there.",
        "`dist.all_reduce(parameter.grad)`, then `parameter.grad /= dist.get_world_size()`, in a loop over "
        "`model.parameters()`; before it, `parameter.grad = torch.zeros_like(parameter)` if it is None.",
    ),
    judge=judge,
    seconds=ranks.SECONDS,
    lends=solution,
)
