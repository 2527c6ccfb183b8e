import torch
from support.answers import mutants
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from torchcourse_labs.performance.spare_memory import solution


def reentrant_with_gradient(blocks, x):
    x = x.detach().requires_grad_()
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=True)
    return x


def late_name(blocks, x):
    for block in blocks:
        x = checkpoint(lambda y: block(y), x, use_reentrant=False)  # noqa: B023
    return x


def by_halves(blocks, x):
    if len(blocks) == 1:
        return checkpoint(blocks[0], x, use_reentrant=False)
    half = len(blocks) // 2
    x = checkpoint(by_halves, blocks[:half], x, use_reentrant=False)
    return checkpoint(by_halves, blocks[half:], x, use_reentrant=False)


CALL = "checkpoint(block, x, use_reentrant=False)"

RIGHT = [
    reentrant_with_gradient,
    lambda blocks, x: checkpoint_sequential(list(blocks), len(blocks), x, use_reentrant=False),
]

WRONG = {
    "no_gradient": mutants(solution, CALL, "checkpoint(block, x, use_reentrant=True)"),
    "too_much": [
        *mutants(solution, CALL, "block(x)"),
        lambda blocks, x: checkpoint_sequential(blocks, 2, x, use_reentrant=False),
        lambda blocks, x: checkpoint(torch.nn.Sequential(*blocks), x, use_reentrant=False),
    ],
    None: [
        late_name,
        by_halves,
        *mutants(solution, "in blocks", "in blocks[1:]"),
        *mutants(solution, "return x", "blocks.eval()\n    return x"),
        *mutants(solution, "=False", "=False, preserve_rng_state=False"),
    ],
}
