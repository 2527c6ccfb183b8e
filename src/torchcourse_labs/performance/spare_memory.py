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
    error = ""
    with warnings.catch_warnings(action="ignore"), LiveBytes() as live:
        result = call(answer, blocks, x.clone(), may_change=True)
        output = result.detach().clone() if isinstance(result, Tensor) else result
        if isinstance(result, Tensor) and result.shape == x.shape and result.requires_grad:
            loss = (result * torch.linspace(0.5, 2, x.numel()).view(x.shape)).sum()
            del result
            try:
                loss.backward()
            except RuntimeError as raised:  # what was computed a second time does not fit
                error = str(raised).splitlines()[0]
    gradients = [p.grad.flatten() for p in blocks.parameters() if p.grad is not None]
    return {
        "output": output,
        "error": error,
        "gradients": torch.cat(gradients) if len(gradients) == len(weights) else None,
        "peak": live.peak,
        "runs": max(block.runs for block in blocks),
        "modes": [module.training for module in blocks.modules()],
    }


def judge(answer: Any, rng: Inputs) -> None:
    weights = [rng.randn(value.numel()) / 3 for _ in range(rng.size(6, 9)) for value in Block(8).parameters()]
    inputs = weights, rng.randn(rng.size(200, 300), 8), rng.size(10**6, 10**9)
    right, seen = (observe(each, kept, *inputs) for each in (solution, answer))
    look = "each block runs once, in order, and takes the output of the last one; all stay in train mode; no seed"
    same(seen["output"], right["output"], "The output of the last block", look=look)
    same(seen["modes"], right["modes"], "The list of modes, True for train mode,", look=look)
    wrong_if(
        seen["gradients"] is None and not seen["error"],
        "no_gradient",
        "The output is right, but not every weight of the blocks gets a gradient. A reentrant checkpoint builds a "
        "graph only if its input requires a gradient, and `x` does not; `detach` and `no_grad` cut the graph, too.",
        look="`use_reentrant=False`; no `detach`, no `no_grad`, and the blocks themselves, not copies of them",
    )
    look = (
        "what is different the second time, in backward: dropout has to draw the same numbers (`preserve_rng_state`), "
        "and a lambda looks up the loop variable, which by then is the last block: pass `block` itself"
    )
    if seen["error"]:
        raise Incorrect("The backward pass through your result raises an error.", yours=seen["error"], look=look)
    same(seen["gradients"], right["gradients"], "The vector of all gradients", look=look)
    look = "once forward, once in backward; is there a checkpoint inside a checkpoint, or a second call of a block?"
    same(max(seen["runs"], 2), 2, "The number of times that a block runs", look=look)
    peak, enough = (f"{each['peak'] / 1000:.0f} kB" for each in (seen, right))
    wrong_if(
        seen["peak"] > 1.15 * right["peak"],
        "too_much",
        "Too much is in memory at the same time. A block without a checkpoint keeps its intermediate results; a "
        "checkpoint around several blocks rebuilds those of all of them at once.",
        look="one `checkpoint` for each block; `checkpoint_sequential` leaves out its last piece",
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
        "One checkpoint around everything saves nothing: backward rebuilds all of it at once. One around each block "
        "rebuilds one block at a time.",
        "In a loop over the blocks: `x = checkpoint(block, x, use_reentrant=False)`.",
    ),
    judge=judge,
    seconds=SLOW_START,
    lends=solution,
)
