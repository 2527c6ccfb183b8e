import torch
from support.answers import mutant, mutants

from torchcourse_labs.training_loop.momentum_step import solution

LOOP = "for p, v in zip(parameters, velocities, strict=True)"
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
        (LOOP, "for i, p in enumerate(parameters)"),
        (UPDATE, "v = velocities[i] = momentum * velocities[i] + p.grad"),
        (STEP, "p.data -= learning_rate * v"),
    ),
]

WRONG = {
    "new_parameters": [
        mutant(
            solution,
            (LOOP, f"for i, (p, v) in enumerate({LOOP[12:]})"),
            (STEP, "parameters[i] = p - learning_rate * v"),
        )
    ],
    "not_moved": [*mutants(solution, STEP, "p = p - learning_rate * v"), lambda *given: 1],
    "no_memory": mutants(solution, UPDATE, "v = momentum * v + p.grad", "v.copy_(p.grad)"),
    "rate_in_velocity": [mutant(solution, ("add_(p.grad)", "add_(learning_rate * p.grad)"), (STEP, "p.sub_(v)"))],
    None: [
        *mutants(solution, "add_(p.grad)", "add_(p.grad, alpha=1 - momentum)"),
        *mutants(solution, "no_grad", "enable_grad"),
        *mutants(solution, UPDATE, "v = momentum * v + p.grad; velocities.append(v)"),
        *mutants(solution, "p.grad is not None", "True"),
        *mutants(solution, STEP, "p.sub_(v)", f"{STEP}; p.grad = None"),
    ],
}
