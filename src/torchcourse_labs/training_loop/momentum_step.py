"""A step of gradient descent with momentum, in place, as an optimizer takes it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, call, near, observe, same, wrong_if
from labcheck.probes import SLOW_START


def solution(parameters: list[nn.Parameter], velocities: list[Tensor], learning_rate: float, momentum: float) -> None:
    with torch.no_grad():
        for p, v in zip(parameters, velocities, strict=True):
            if p.grad is not None:
                v.mul_(momentum).add_(p.grad)
                p.sub_(learning_rate * v)


def steps(answer: Callable, start: list[Tensor], gradients: list[list], rates: list[float], momentum: float) -> dict:
    """A probe: where parameters and velocities are after a step with each row of gradients, and what else changed."""
    own, velocities = [nn.Parameter(value.clone()) for value in start], [0 * value for value in start]
    parameters, changed = list(own), []
    for rate, row in zip(rates, gradients, strict=True):
        for p, gradient in zip(own, row, strict=True):
            p.grad = None if gradient is None else gradient.clone()
        with torch.enable_grad():
            call(answer, parameters, velocities, rate, momentum, may_change=True, may_return_none=True)
            changed += [] if torch.is_grad_enabled() else ["the gradient mode"]
        if len(velocities) != len(start):
            return {"changed": ["the length of `velocities` (assign to `velocities[i]`, without `append`)"]}
        forms = [(getattr(each, "shape", None), getattr(each, "dtype", None)) for each in own + velocities]
        if forms != [(each.shape, each.dtype) for each in start * 2] or not all(p.requires_grad for p in own):
            return {"changed": ["shapes, dtypes and `requires_grad` of the tensors in both lists"]}
        if any(g is not None and not near(p.grad, g) for p, g in zip(own, row, strict=True)):
            changed += ["the gradients"]
    end = {"parameters": [p.detach() for p in own], "velocities": [v.detach() for v in velocities]}
    return end | {"changed": changed, "replaced": [*map(id, own)] != [*map(id, parameters)]}


def judge(answer: Any, rng: Inputs) -> None:
    """One parameter is frozen, one has no gradient in the last step, one a gradient of zero; and the rate changes."""
    start = [rng.randn(*shape) for shape in (rng.sizes(2, 2, 5), [rng.size(1, 6)], [4], [3])]
    gradients = [[None if i == 1 else rng.randn(*value.shape) for i, value in enumerate(start)] for _ in range(3)]
    gradients[2][2] = None
    gradients[1][3].zero_()
    rates, momentum = [0.5, 0.1, 0.3], rng.pick((0.6, 0.7, 0.8))
    case = (start, gradients, rates, momentum)
    seen, right = observe(answer, steps, *case), steps(solution, *case)
    if seen["changed"]:
        raise Incorrect(f"Your step should leave {seen['changed'][0]} unchanged.")
    yours = seen["parameters"]
    wrong_if(
        seen["replaced"],
        "new_parameters",
        "The list no longer holds the model's own parameters, the only ones that it uses: change those in place.",
        look="methods that work in place: `p.sub_(...)`, `p -= ...`",
    )
    look = "a step in place, `p.sub_(...)` or `p -= ...`: `p = p - …` only gives a new tensor the name p"
    wrong_if(near(yours, start), "not_moved", "The parameters are what they were before your steps.", look=look)
    wrong_if(
        near(yours, steps(solution, start, gradients, rates, 0.0)["parameters"]),
        "no_memory",
        "Your step follows the gradient alone: this is plain SGD without momentum.",
        look="the step uses v; it stays in `velocities` (`v.mul_(…)`, not `v = …`), and a new optimizer has no memory",
    )
    scaled = [[g if g is None else rate * g for g in row] for rate, row in zip(rates, gradients, strict=True)]
    wrong_if(
        near(yours, steps(solution, start, scaled, [1.0, 1.0, 1.0], momentum)["parameters"]),
        "rate_in_velocity",
        "The learning rate is inside your velocity. It belongs in the step alone, because the rate may change.",
    )
    look = "v ← momentum · v + gradient, then p ← p − learning rate · v; only a parameter whose grad is None is skipped"
    same(yours, right["parameters"], "The list of parameters after three of your steps", look=look)
    velocities = [seen["velocities"][i] for i in (0, 3)]  # those that get a gradient in each step
    same(velocities, [right["velocities"][i] for i in (0, 3)], "The list of first and last velocities", look=look)


exercise = Exercise(
    title="Stretch: momentum",
    minutes=10,
    difficulty=4,
    points=2,
    takeaway="You have written `torch.optim.SGD(momentum=...)`: an optimizer is just a loop over the parameters.",
    hints=(
        "With `torch.no_grad():`, change first the velocity, then the parameter, in place, if its `grad` is not None.",
        "`v.mul_(momentum).add_(p.grad)`, then `p.sub_(learning_rate * v)`.",
    ),
    judge=judge,
    seconds=SLOW_START,
)
