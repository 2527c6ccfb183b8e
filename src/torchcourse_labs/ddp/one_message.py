"""Average the gradients again, all of them in a single message."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labcheck.authoring import Exercise, Inputs, near, wrong_if
from torchcourse_labs.ddp._shared import draw, judge_gradients, rows, watch


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
    model, gradients = draw(rng)
    seen = watch(answer, model, gradients)
    yours, _, mean = rows(seen, model, gradients)
    known = torch.cat([mean[0], torch.zeros(1)]).round(decimals=3)  # zeros: of the parameter that no rank uses
    complete = all(each["gradients"][name] is not None for each in seen for name in gradients[0])
    wrong_if(
        complete and yours.any() and not near(yours, mean) and torch.isin(yours.round(decimals=3), known).all(),
        "misplaced",
        "You put the mean back in the wrong places: some gradients hold what belongs to other parameters.",
        look="where in the row each parameter's part begins: after all parts before it, not only the last one, and in "
        "the same order on all ranks",
    )
    judge_gradients(seen, model, gradients)
    wrong_if(
        any(each["calls"] != ["all-reduce"] for each in seen),
        "not_one_all_reduce",
        "The gradients are right, but a single all-reduce is enough.",
        look="all gradients in one row; an all-reduce adds the rows up along the way, while with an all-gather every "
        "rank receives the rows of all",
        expected=["all-reduce"],
        yours=seen[0]["calls"],
    )


exercise = Exercise(
    title="All gradients in one message",
    minutes=10,
    difficulty=4,
    points=3,
    takeaway="A message costs time even when it is empty. That is why DDP sends buckets of several megabytes, and "
    "the first one leaves while the backward pass is still running.",
    hints=(
        "Put all gradients into one row, all-reduce it once, then put every part of the row back where it came from.",
        "`torch.cat([g.flatten() for g in gradients])` makes the row, and `row.split([g.numel() for g in "
        "gradients])` cuts it up again. The row must have the same length on all ranks.",
        "Replace missing gradients with zeros, `dist.all_reduce(row)`, `row /= dist.get_world_size()`, then "
        "`gradient.copy_(part.view_as(gradient))` for each pair.",
    ),
    judge=judge,
    seconds=120.0,  # the first check of a session starts a server, which makes the processes
)
