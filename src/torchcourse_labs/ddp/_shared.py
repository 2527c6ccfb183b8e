"""What `average_gradients` and `one_message` share: gradients on three ranks, and what they should become."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labcheck import ranks
from labcheck.authoring import Inputs, near, raises_like, same, wrong_if
from labcheck.collectives import Ledger
from labcheck.probes import weights

Gradients = dict[str, Tensor]  # of one rank, by the parameter's name


def draw(rng: Inputs) -> tuple[nn.Module, list[Gradients]]:
    """A model and the gradients on three ranks: with two, a fixed 2 would be right. Two layers share a weight, one is
    frozen, one goes unused, and one rank did not use the last one, a branch: if it skips that, the others wait."""
    a, b, c = rng.sizes(3, 3, 9)
    layers = {
        "encode": nn.Linear(a, b, bias=False),
        "decode": nn.Linear(a, b),
        "frozen": nn.Linear(b, c).requires_grad_(False),
        "unused": nn.Linear(c, b, bias=False),
    }
    layers["decode"].weight = layers["encode"].weight  # one parameter under two names
    names = list(layers)
    model = nn.ModuleDict({names[i]: layers[names[i]] for i in rng.permutation(4).tolist()})
    model["branch"] = nn.Linear(c, a)
    gradients: list[Gradients] = [{}, {}, {}]
    for name, parameter in model.named_parameters():
        parameter.data = rng.randn(*parameter.shape)
        for rank, own in enumerate(gradients):
            if not name.startswith(("frozen", "unused")):
                own[name] = rng.randn(*parameter.shape) + 2 * rank
    lonely = gradients[rng.size(0, 2)]
    del lonely["branch.weight"], lonely["branch.bias"]
    return model, gradients


def on_rank(answer: Any, model: nn.Module, gradients: list[Gradients]) -> dict:
    """What the answer makes of this rank's gradients."""
    for name, parameter in model.named_parameters():
        gradient = gradients[dist.get_rank()].get(name)
        parameter.grad = None if gradient is None else gradient.clone()
    answer(model)
    return {
        "weights": weights(model),
        "gradients": {name: parameter.grad for name, parameter in model.named_parameters()},
        "calls": [call["what"] for call in Ledger.current.calls],
    }


def judge_gradients(answer: Any, rng: Inputs, look: str) -> list[list[str]]:
    """Raise Incorrect unless all ranks have the means. Returns the collectives of each rank.

    look: where to look if a gradient is not the mean
    """
    model, gradients = draw(rng)
    with raises_like(
        "none",
        "You compute with None. A gradient is None if its parameter is frozen (leave it out) or unused, perhaps on "
        "this rank only (take part with zeros); `dist.all_reduce` also returns None, as it changes its argument.",
        "NoneType",
        "of type torch.Tensor",
        look="`parameter.grad is None`; `parameter.grad = dist.all_reduce(…)`",
    ):
        waiting = "every rank calls every collective; one without a gradient, as for `branch.bias`, gives zeros"
        seen = ranks.observe(answer, on_rank, model, gradients, world_size=3, look=waiting)
    names = sorted({name for own in gradients for name in own}, key=lambda name: "branch" in name)
    means = {name: sum(own[name] for own in gradients if name in own) / 3 for name in names}
    both = [name for name in names if "branch" not in name]  # that all ranks used
    yours = [[each["gradients"][name] for name in both] for each in seen]
    wrong_if(
        not any(each["calls"] for each in seen) or near(yours, [[own[name] for name in both] for own in gradients]),
        "own_gradients",
        "Each rank has only its own gradients: those of the other ranks have no part in them.",
        look="`dist.all_reduce`; its result has to end up in `parameter.grad`",
    )
    wrong_if(
        near(yours, [[3 * means[name] for name in both]] * 3),
        "sum",
        "Your gradients are the sum over the ranks: every step is too long by a factor of the number of ranks.",
        look="all-reduce adds up; what is left to do for a mean? (`/=` divides in place, `/` makes a new tensor)",
    )
    for rank, each in enumerate(seen):
        unchanged = "your function should change only the gradients"
        same(each["weights"], weights(model), f"The vector of all weights on rank {rank}", look=unchanged)
        for name, yours in each["gradients"].items():
            what = f"The gradient of `{name}` on rank {rank}"
            if name.startswith("frozen"):
                same(yours, None, what, look="frozen parameters stay without a gradient: `requires_grad`")
            elif name.startswith("branch"):
                same(yours, means[name], what, look="a rank without a gradient gives zeros, and gets the mean, too")
            elif name in means:
                same(yours, means[name], what, look=look)
            elif yours is not None:  # of the layer that no rank used
                same(yours, torch.zeros_like(yours), what, look=look)
    return [each["calls"] for each in seen]
