import torch
import torch.nn.functional as F
from support.answers import mutant, mutants

from torchcourse_labs.beyond_python.my_op import sliding_mean, solution

LIBRARIES = []  # an operator lives as long as its library


def through_itself(name):
    """The gradient of a moving mean is a moving mean, of the gradient between zeros."""
    moving_mean = torch.library.custom_op(
        name,
        lambda x, width: torch.from_numpy(sliding_mean(x.numpy(), width).copy()),
        mutates_args=(),
        schema="(Tensor x, int width) -> Tensor",
    )
    torch.library.register_fake(name, lambda x, width: x.unfold(1, width, 1).mean(2))

    def remember(ctx, inputs, output):
        ctx.width = inputs[1]

    def backward(ctx, gradient):
        return moving_mean(F.pad(gradient, (ctx.width - 1, ctx.width - 1)), ctx.width), None

    torch.library.register_autograd(name, backward, setup_context=remember)


def by_hand(name):
    namespace, _, operator = name.partition("::")
    library = torch.library.Library(namespace, "FRAGMENT")
    LIBRARIES.append(library)
    library.define(f"{operator}(Tensor x, int width) -> Tensor")
    library.impl(operator, lambda x, width: x.unfold(1, width, 1).mean(2), "CompositeImplicitAutograd")


MEAN = "torch.from_numpy(sliding_mean(x.numpy(), width))"
FAKE = "x.new_empty(x.shape[0], x.shape[1] - width + 1)"
BACK = "around.unfold(1, ctx.width, 1).mean(dim=2)"

RIGHT = [through_itself, by_hand]

WRONG = {
    "no_fake": mutants(solution, "@moving_mean.register_fake", "") + mutants(solution, FAKE, MEAN),
    "no_gradient": mutants(solution, "moving_mean.register_autograd(backward, setup_context=remember)", ""),
    "none_for_width": mutants(solution, f"{BACK}, None", BACK, f"None, {BACK}"),
    None: [
        *mutants(solution, FAKE, "torch.empty_like(x)", FAKE.replace("x.new_empty", "torch.empty")),
        *mutants(solution, "custom_op(name", 'custom_op("lab::moving_" + "average"'),
        *mutants(solution, f"{MEAN}.contiguous()", "sliding_mean(x.numpy(), width)"),
        mutant(solution, ("width: int", "w: int"), ("numpy(), width", "numpy(), w")),
        *mutants(solution, MEAN, "torch.from_numpy(sliding_mean(x.float().numpy(), width)).to(x.dtype)"),
        *mutants(solution, BACK, BACK.replace("mean", "sum"), "gradient / ctx.width"),
        *mutants(solution, BACK, "torch.from_numpy(sliding_mean(around.numpy(), ctx.width))"),
        *mutants(solution, ".contiguous()", ""),
    ],
}
