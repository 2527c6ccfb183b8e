"""Run blocks one after the other with a checkpoint around each: memory of one block at a time."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, same, wrong_if
from labcheck.probes import SLOW_START
from torchcourse.memory import LiveBytes


def solution(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


class Block(nn.Module):
    """Four times as wide inside, with dropout, and it counts how often it runs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down, self.runs = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return x + self.down(F.dropout(F.gelu(self.up(x)), 0.2, self.training))


def kept(answer: Callable, weights: list[Tensor], x: Tensor, seed: int) -> dict[str, Any]:
    """A probe: output, gradients, peak of the bytes, and how often the blocks ran. The dropout is the same for all."""
    blocks = nn.ModuleList(Block(x.shape[1]) for _ in range(len(weights) // 4))
    for parameter, values in zip(blocks.parameters(), weights, strict=True):
        parameter.data.copy_(values.view_as(parameter))
    torch.manual_seed(seed)
    weighting = torch.linspace(0.5, 2, x.numel()).view(x.shape)
    seen: dict[str, Any] = {"error": ""}
    with warnings.catch_warnings(action="ignore"), LiveBytes() as live:
        result = call(answer, blocks, x.clone(), may_change=True)
        seen["output"] = result.detach().clone() if isinstance(result, Tensor) else result
        if isinstance(result, Tensor) and result.shape == x.shape and result.requires_grad:
            loss = (result * weighting).sum()
            del result
            try:
                loss.backward()
            except RuntimeError as error:  # what was computed a second time does not fit
                seen["error"] = str(error)
    gradients = [p.grad.flatten() for p in blocks.parameters() if p.grad is not None]
    seen["gradients"] = torch.cat(gradients) if len(gradients) == len(weights) else None
    runs, modes = [block.runs for block in blocks], [module.training for module in blocks.modules()]
    return seen | {"peak": live.peak, "runs": runs, "training": all(modes)}


def judge(answer: Any, rng: Inputs) -> None:
    for depth in (rng.size(6, 9), rng.size(5, 7)):
        weights = [rng.randn(value.numel()) / 3 for _ in range(depth) for value in Block(8).parameters()]
        inputs = weights, rng.randn(rng.size(200, 300), 8), rng.size(10**6, 10**9)
        judge_run(*(observe(each, kept, *inputs) for each in (solution, answer)))


def judge_run(right: dict[str, Any], seen: dict[str, Any]) -> None:
    runs, gradients = seen["runs"], seen["gradients"]
    wrong_if(
        0 in runs,
        "never_ran",
        f"Of the {len(runs)} blocks, {runs.count(0)} never run.",
        look="a `return` inside the loop; a block that is the same in each pass of the loop",
    )
    wrong_if(
        not seen["training"],
        "eval_mode",
        "Your function leaves blocks in eval mode. They should stay in train mode, with their dropout.",
    )
    look = "each block takes the output of the one before it; the dropout is that of a run without checkpoints"
    same(seen["output"], right["output"], "The output of the last block", look=look)
    wrong_if(
        gradients is None and not seen["error"],
        "no_gradient",
        "The output is right, but not every weight of the blocks gets a gradient. A reentrant checkpoint builds a "
        "graph only if its input requires a gradient, and `x` does not; `detach` and `no_grad` cut the graph, too.",
        look="`use_reentrant=False`",
    )
    wrong_if(
        runs[-1] > 2 and {*runs[:-1]} == {1},
        "late_name",
        "In backward, every piece computes with the last block: your function looks up the loop variable when it "
        "runs, and by then the variable names the last one.",
        look="hand the block itself to `checkpoint`, not a function that mentions it",
    )
    if seen["error"]:
        raise Incorrect("The backward pass through your result raises an error.", yours=seen["error"].splitlines()[0])
    look = "the second time, dropout has to draw the same numbers: `preserve_rng_state`"
    same(gradients, right["gradients"], "The gradients of all blocks", look=look)
    wrong_if(
        max(runs) > 2,
        "too_often",
        f"Blocks run up to {max(runs)} times; twice is enough, once forward and once in backward.",
        look="a checkpoint inside a checkpoint, or a second call of the block",
    )
    too_much = seen["peak"] > 1.15 * right["peak"]
    peak, enough = (f"{each['peak'] / 1000:.0f} kB" for each in (seen, right))
    wrong_if(
        too_much and 1 in runs,
        "without_checkpoint",
        f"Of {len(runs)} blocks, {runs.count(1)} run without a checkpoint and keep their intermediate results.",
        look="`checkpoint` for each block; `checkpoint_sequential` leaves out its last piece",
        expected=f"{enough} at the peak",
        yours=peak,
    )
    wrong_if(
        too_much,
        "large_pieces",
        "The blocks run twice, but too much is kept at the same time: backward rebuilds a whole piece at once.",
        look="one checkpoint for each block",
        expected=f"{enough} at the peak",
        yours=peak,
    )


exercise = Exercise(
    title="Memory for time",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="Checkpoint the repeated block, not the whole model: backward rebuilds a whole piece at once.",
    hints=(
        "`torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)` calls the function, forgets what is "
        "inside, and calls it again in backward. What is one piece here?",
        "One checkpoint around everything saves nothing: backward rebuilds all of it at once. One around each block "
        "rebuilds one block at a time.",
        "In a loop over the blocks: `x = checkpoint(block, x, use_reentrant=False)`.",
    ),
    judge=judge,
    seconds=SLOW_START,
    lends=solution,
)
