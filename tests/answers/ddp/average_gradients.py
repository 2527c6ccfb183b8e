import torch
import torch.distributed as dist
from support.answers import mutant, mutants

from torchcourse_labs.ddp.average_gradients import solution

REDUCED, DIVIDED = "dist.all_reduce(parameter.grad)", "parameter.grad /= dist.get_world_size()"
GUARD = "if not parameter.requires_grad"
FILLED = "        if parameter.grad is None:\n            parameter.grad = torch.zeros_like(parameter)\n"


def gathered(model):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, {name: p.grad for name, p in model.named_parameters()})
    for name, parameter in model.named_parameters():
        there = [each[name] for each in everyone if each[name] is not None]
        parameter.grad = sum(there) / len(everyone) if there else None


def counting(model):
    for parameter in filter(lambda p: p.requires_grad, model.parameters()):
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        present = torch.tensor(float(parameter.grad is not None))
        dist.all_reduce(present), dist.all_reduce(gradient)
        parameter.grad = gradient / present.clamp(min=1)


RIGHT = [
    gathered,
    mutant(solution, (REDUCED, "dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)"), (DIVIDED, "pass")),
    mutant(solution, (DIVIDED, "parameter.grad = parameter.grad / 3")),
    mutant(solution, (REDUCED, "dist.all_reduce(parameter.grad, async_op=True).wait()")),
]

WRONG = {
    "deadlock": [
        *mutants(solution, GUARD, "if parameter.grad is None"),
        lambda model: solution(model) if dist.get_rank() == 0 else None,
    ],
    "none": [mutant(solution, (FILLED, "")), *mutants(solution, REDUCED, f"parameter.grad = {REDUCED}")],
    "weights_changed": mutants(solution, REDUCED, "dist.all_reduce(parameter.data)"),
    "frozen": mutants(solution, GUARD, "if False"),
    "own_gradients": [
        *mutants(solution, REDUCED, "pass"),
        mutant(solution, (REDUCED, "mean = parameter.grad.clone(); dist.all_reduce(mean)"), (DIVIDED, "mean /= 3")),
    ],
    "missing_not_counted": [counting],
    "still_none": [
        mutant(
            solution,
            ("parameter.grad = torch.zeros_like(parameter)", "dist.all_reduce(torch.zeros_like(parameter)); continue"),
        )
    ],
    "sum": mutants(solution, DIVIDED, "pass"),
    "divided_twice": mutants(solution, REDUCED, "dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)"),
    "one_rank_only": mutants(solution, REDUCED, "dist.reduce(parameter.grad, 0)"),
    None: [
        *mutants(solution, REDUCED, "dist.all_reduce(parameter.grad, op=dist.ReduceOp.MAX)"),
        *mutants(solution, DIVIDED, "parameter.grad /= 2", f"{DIVIDED}\n        if parameter.grad.any(): break"),
        mutant(solution, (REDUCED, "dist.broadcast(parameter.grad, 0)"), (DIVIDED, "pass")),
    ],
}
