import torch
from support.answers import mutant, mutants

from torchcourse_labs.training_loop.momentum_step import solution

UPDATE, STEP = "v.mul_(momentum).add_(p.grad)", "p.sub_(learning_rate * v)"


def by_torch(parameters, velocities, learning_rate, momentum):
    optimizer = torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum)
    for p, v in zip(parameters, velocities, strict=True):
        optimizer.state[p]["momentum_buffer"] = v
    optimizer.step()


RIGHT = [
    by_torch,
    mutant(
        solution,
        ("for p, v in zip(parameters, velocities, strict=True)", "for i, p in enumerate(parameters)"),
        (UPDATE, "v = velocities[i] = momentum * velocities[i] + p.grad"),
        (STEP, "p.data -= learning_rate * v"),
    ),
]

WRONG = {
    "new_parameters": [
        lambda parameters, *given: parameters.clear(),
        mutant(
            solution,
            (
                "for p, v in zip(parameters, velocities, strict=True)",
                "for i, (p, v) in enumerate(zip(parameters, velocities))",
            ),
            (STEP, "parameters[i] = p - learning_rate * v"),
        ),
    ],
    "not_moved": [*mutants(solution, STEP, "p = p - learning_rate * v"), lambda *given: 1],
    "no_memory": [
        *mutants(solution, UPDATE, "v = momentum * v + p.grad", "v.copy_(p.grad)"),
        *mutants(solution, STEP, "p.sub_(learning_rate * p.grad)"),
    ],
    "rate_in_velocity": [
        mutant(solution, ("add_(p.grad)", "add_(learning_rate * p.grad)"), (STEP, "p.sub_(v)")),
        mutant(solution, ("add_(p.grad)", "sub_(learning_rate * p.grad)"), (STEP, "p.add_(v)")),
    ],
    None: [
        mutant(
            solution,
            ("add_(p.grad)", "add_(torch.zeros_like(p) if p.grad is None else p.grad)"),
            ("p.grad is not None", "True"),
        ),
        *mutants(solution, "add_(p.grad)", "add_(p.grad, alpha=1 - momentum)"),
        *mutants(solution, "add_(p.grad)", "sub_(p.grad)"),
        *mutants(solution, "p.grad is not None", "p.grad is not None and p.grad.any()"),
        *mutants(solution, "no_grad", "enable_grad"),
        *mutants(solution, "p.grad is not None", "True"),
        *mutants(solution, "if p.grad is not None:", "if p.grad is None:\n                break\n            else:"),
        *mutants(solution, UPDATE, "v.add_(p.grad)", "v.add_(p.grad).mul_(momentum)", "v.copy_(p.grad.add_(v))"),
        *mutants(solution, STEP, "p.sub_(v)", f"{STEP}; p.grad = None"),
        *mutants(solution, STEP, "p.data = p.data.double()", "p.sub_(learning_rate * (p.grad + momentum * v))"),
        lambda parameters, *given: solution([p.requires_grad_(False) for p in parameters], *given),
        lambda *given: solution(*given) or (torch.set_grad_enabled(False) and None),
        lambda parameters, velocities, *given: solution(parameters, [*velocities[1:], velocities[0]], *given),
    ],
}
