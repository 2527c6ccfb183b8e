"""What `average_gradients` and `one_message` share: gradients on three ranks, and what they should become."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labcheck import ranks
from labcheck.authoring import AnswerRaised, Inputs, near, same, wrong_if
from labcheck.collectives import Ledger
from labcheck.probes import weights

Gradients = dict[str, Tensor]  # of one rank, by the parameter's name; NaN: this rank has none


def draw(rng: Inputs) -> tuple[nn.Module, list[Gradients]]:
    """A model and the gradients on three ranks: with two, a fixed 2 would be right. Two layers share a weight, one is
    frozen, one goes unused, and one rank did not use the last one, a branch: if it skips that, the others wait."""
    a, b, c = rng.sizes(3, 3, 9)
    layers = {
        "encode": nn.Linear(a, b, bias=False),
        "decode": nn.Linear(a, b),
        "frozen": nn.Linear(b, c),
        "unused": nn.Linear(c, b, bias=False),
    }
    layers["decode"].weight = layers["encode"].weight  # one parameter under two names
    layers["frozen"].requires_grad_(False)
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
    lonely["branch.weight"].fill_(torch.nan), lonely["branch.bias"].fill_(torch.nan)
    return model, gradients


def on_rank(answer: Any, model: nn.Module, gradients: list[Gradients]) -> dict:
    """What the answer makes of this rank's gradients."""
    for name, parameter in model.named_parameters():
        gradient = gradients[dist.get_rank()].get(name)
        parameter.grad = None if gradient is None or gradient.isnan().any() else gradient.clone()
    answer(model)
    return {
        "weights": weights(model),
        "gradients": {name: parameter.grad for name, parameter in model.named_parameters()},
        "calls": [call["what"] for call in Ledger.current.calls],
    }


def watch(answer: Any, model: nn.Module, gradients: list[Gradients]) -> list[dict]:
    """What `on_rank` sees on each rank."""
    look = "One rank has no gradient for `branch.weight` and `branch.bias`: it still has to take part, with zeros"
    try:
        return ranks.observe(answer, on_rank, model, gradients, world_size=3, look=look)
    except AnswerRaised as raised:
        wrong_if(
            "NoneType" in str(raised) or "of type torch.Tensor" in str(raised),
            "none",
            "You compute with None. A gradient is None if its parameter is frozen (leave it out) or unused, perhaps on "
            "this rank only (take part with zeros); `dist.all_reduce` also returns None, as it changes its argument.",
            look="`parameter.grad is None`; `parameter.grad = dist.all_reduce(…)`",
            yours=str(raised),
        )
        raise


def row(gradients: dict[str, Tensor | None], names: list[str], model: nn.Module) -> Tensor:
    """The gradients of one rank one after the other, with zeros where there is none."""
    whole = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    return torch.cat([(whole[name] if gradients[name] is None else gradients[name]).flatten() for name in names])


def rows(seen: list[dict], model: nn.Module, gradients: list[Gradients]) -> tuple[Tensor, Tensor, Tensor]:
    """The answer's gradients, those that the ranks had (NaN: none), and the means; each float [3, n], a row a rank."""
    names = list(gradients[0])
    yours = torch.stack([row(each["gradients"], names, model) for each in seen])
    own = torch.stack([row(each, names, model) for each in gradients])
    return yours, own, own.nan_to_num().mean(0).expand(3, -1)


def judge_gradients(seen: list[dict], model: nn.Module, gradients: list[Gradients]) -> None:
    """Raise Incorrect unless all ranks have the means."""
    after = [each["gradients"] for each in seen]
    wrong_if(
        any(not torch.equal(each["weights"], weights(model)) for each in seen),
        "weights_changed",
        "Your function changed the weights: only the gradients should change.",
        look="`parameter.grad`, not `parameter` or `parameter.data`",
    )
    wrong_if(
        any(value is not None for each in after for name, value in each.items() if name.startswith("frozen")),
        "frozen",
        "A frozen parameter has a gradient now: weight decay would start to move it.",
        look="`requires_grad` is the same on all ranks, so every rank can skip the frozen ones",
    )
    yours, own, mean = rows(seen, model, gradients)
    wrong_if(
        not any(each["calls"] for each in seen) or near(yours, own.nan_to_num()),
        "own_gradients",
        "Each rank has only its own gradients: those of the other ranks have no part in them.",
        look="`dist.all_reduce`; its result has to end up in `parameter.grad`",
    )
    wrong_if(
        near(yours, own.nanmean(0).expand(3, -1)),
        "missing_not_counted",
        "Where one rank has no gradient, you divide by the number of ranks that have one. A missing gradient counts as "
        "zeros.",
        look="in the loss of the whole batch, the samples of that rank did not touch the branch",
    )
    wrong_if(
        any(each[name] is None for each in after for name in gradients[0])
        and near(torch.where(own.isnan() & (yours == 0), mean, yours), mean),
        "still_none",
        "One rank still has no gradient where the others do: after the next step, their weights differ. A missing "
        "gradient counts as zeros, and all ranks need the mean.",
        look="store the result in `parameter.grad`, also where it was None",
    )
    wrong_if(
        near(yours, 3 * mean),
        "sum",
        "Your gradients are the sum over the ranks: every step is too long by a factor of the number of ranks.",
        look="all-reduce adds up; what is left to do for a mean?",
    )
    wrong_if(
        near(yours, mean / 3),
        "divided_twice",
        "Your gradients are divided twice by the number of ranks: every step is too short.",
        look="one division, either before the all-reduce or after it (`ReduceOp.AVG` divides, too)",
    )
    wrong_if(
        sum(map(near, yours, mean)) == 1,
        "one_rank_only",
        "Only one rank has the mean: the ranks would drift apart.",
        look="`dist.reduce` gives the result to one rank, `dist.all_reduce` to all, with `async_op=True` only after "
        "you call `wait()` on what it returns; then every rank divides",
    )
    look = "`all_reduce` adds up, unless `op` says otherwise; for the mean, divide once by the number of ranks"
    for rank, each in enumerate(after):
        for name in gradients[0]:
            expected = torch.stack([own[name].nan_to_num() for own in gradients]).mean(0)
            same(each[name], expected, f"The gradient of `{name}` on rank {rank}", look=look)
        unused = each["unused.weight"]
        if unused is not None:
            same(unused, torch.zeros_like(unused), f"The gradient of `unused.weight` on rank {rank}", look=look)
