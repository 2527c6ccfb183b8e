import torch
from support.answers import mutants
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from torchcourse_labs.performance.spare_memory import solution


def reentrant_with_gradient(blocks, x):
    x = x.detach().requires_grad_()
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=True)
    return x


def recursive(blocks, x, number=0):
    return (
        x
        if number == len(blocks)
        else recursive(blocks, checkpoint(blocks[number], x, use_reentrant=False), number + 1)
    )


class Recomputed(torch.autograd.Function):
    """A checkpoint by hand: the state of the random numbers, the input, and the block once more in backward."""

    @staticmethod
    def forward(ctx, block, x, _):
        ctx.block, ctx.state = block, torch.get_rng_state()
        ctx.save_for_backward(x)
        return block(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.state)
            ctx.block(x).backward(gradient)
        return None, x.grad, None


def by_hand(blocks, x):
    for block in blocks:
        x = Recomputed.apply(block, x, next(block.parameters()))
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


def in_pairs(blocks, x):
    for i in range(0, len(blocks), 2):
        x = checkpoint(torch.nn.Sequential(*blocks[i : i + 2]), x, use_reentrant=False)
    return x


CALL = "checkpoint(block, x, use_reentrant=False)"

RIGHT = [
    reentrant_with_gradient,
    recursive,
    by_hand,
    lambda blocks, x: checkpoint_sequential(list(blocks), len(blocks), x, use_reentrant=False),
]

WRONG = {
    "never_ran": mutants(solution, "in blocks", "in blocks[1:]", "in blocks[:-1]", "in [blocks[0] for _ in blocks]"),
    "eval_mode": mutants(solution, "return x", "blocks.eval()\n    return x")
    + mutants(solution, "checkpoint(block,", "checkpoint(block.eval(),"),
    "no_gradient": mutants(
        solution,
        CALL,
        "checkpoint(block, x, use_reentrant=True)",
        CALL.replace("x", "x.detach()", 1),
        "block(x).detach()",
    ),
    "late_name": [late_name],
    "too_often": [by_halves],
    "without_checkpoint": [
        *mutants(solution, CALL, "block(x)", f"{CALL} if block.down.bias[0] > 0 else block(x)"),
        lambda blocks, x: checkpoint_sequential(blocks, 2, x, use_reentrant=False),
    ],
    "large_pieces": [
        in_pairs,
        lambda blocks, x: checkpoint(torch.nn.Sequential(*blocks), x, use_reentrant=False),
    ],
    None: [
        *mutants(solution, "in blocks", "in blocks[::-1]"),
        *mutants(solution, "    for", "    torch.manual_seed(0)\n    for"),
        *mutants(solution, "=False", "=False, preserve_rng_state=False"),
        *mutants(solution, "return x", "return x.sum()", "return [x]"),
    ],
}
