import torch.distributed as dist
from support.answers import mutant, mutants

from torchcourse_labs.ddp.average_gradients import solution

REDUCED, DIVIDED = "dist.all_reduce(parameter.grad)", "parameter.grad /= dist.get_world_size()"
GUARD, ZEROS = "if not parameter.requires_grad", "parameter.grad = torch.zeros_like(parameter)"
FILLED = f"        if parameter.grad is None:\n            {ZEROS}\n"


def gathered(model):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, {name: p.grad for name, p in model.named_parameters()})
    for name, parameter in model.named_parameters():
        there = [each[name] for each in everyone if each[name] is not None]
        parameter.grad = sum(there) / len(everyone) if there else None


RIGHT = [
    gathered,
    mutant(solution, (REDUCED, "dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)"), (DIVIDED, "pass")),
    mutant(solution, (REDUCED, "dist.all_reduce(parameter.grad, async_op=True).wait()")),
]

WRONG = {
    "deadlock": [
        *mutants(solution, GUARD, "if parameter.grad is None"),
        lambda model: solution(model) if dist.get_rank() == 0 else None,
    ],
    "none": [mutant(solution, (FILLED, "")), *mutants(solution, REDUCED, f"parameter.grad = {REDUCED}")],
    "own_gradients": [
        *mutants(solution, REDUCED, "pass"),
        mutant(solution, (REDUCED, "mean = parameter.grad.clone(); dist.all_reduce(mean)"), (DIVIDED, "mean /= 3")),
    ],
    "sum": mutants(solution, DIVIDED, "pass"),
    None: [
        *mutants(solution, REDUCED, "dist.all_reduce(parameter.data)", "dist.reduce(parameter.grad, 0)"),
        *mutants(solution, REDUCED, "dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)"),
        *mutants(solution, GUARD, "if False"),
        *mutants(solution, DIVIDED, "parameter.grad /= 2", f"{DIVIDED}\n        if parameter.grad.any(): break"),
        *mutants(solution, ZEROS, "dist.all_reduce(torch.zeros_like(parameter)); continue"),
    ],
}
