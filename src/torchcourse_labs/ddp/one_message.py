"""Average the gradients again, all of them in a single message."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labcheck import ranks
from labcheck.authoring import Exercise, Inputs, wrong_if
from torchcourse_labs.ddp._shared import judge_gradients


def solution(model: nn.Module) -> None:
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    row = torch.cat([parameter.grad.flatten() for parameter in trainable])
    dist.all_reduce(row)
    row /= dist.get_world_size()
    parts = row.split([parameter.numel() for parameter in trainable])
    for parameter, part in zip(trainable, parts, strict=True):
        parameter.grad.copy_(part.view_as(parameter))


def judge(answer: Any, rng: Inputs) -> None:
    look = "gradients in the row, not weights; one division, by the number of ranks; each part behind all before it"
    calls = judge_gradients(answer, rng, look)
    wrong_if(
        any(each != ["all-reduce"] for each in calls),
        "not_one_all_reduce",
        "The gradients are right, but a single all-reduce is enough.",
        look="all gradients in one row; all-reduce adds the rows up along the way, all-gather sends each rank all rows",
        expected=["all-reduce"],
        yours=calls[0],
    )


exercise = Exercise(
    title="All gradients in one message",
    minutes=10,
    difficulty=4,
    points=3,
    takeaway="Even an empty message costs time: DDP sends buckets of several megabytes, the first while backward runs.",
    hints=(
        "Put all gradients into one row, all-reduce it once, then put every part of the row back where it came from. "
        "The row must have the same length on all ranks: replace missing gradients with zeros.",
        "`row = torch.cat([g.flatten() for g in gradients])`, `dist.all_reduce(row)`, `row /= dist.get_world_size()`, "
        "`row.split([g.numel() for g in gradients])`, then `gradient.copy_(part.view_as(gradient))` for each pair.",
    ),
    judge=judge,
    seconds=ranks.SECONDS,
)
