import torch
import torch.distributed as dist
from support.answers import mutant, mutants

from torchcourse_labs.ddp import average_gradients
from torchcourse_labs.ddp.one_message import solution

COPIED, REDUCED = "parameter.grad.copy_(part.view_as(parameter))", "dist.all_reduce(row)"
TRAINABLE = "if parameter.requires_grad]"
PARTS = "row.split([parameter.numel() for parameter in trainable])"
FROM_ITS_NUMBER = "[row[p.numel() : 2 * p.numel()] for p in trainable]"


def by_name(model):
    parameters = {name: p for name, p in sorted(model.named_parameters()) if p.requires_grad}
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters.values()]
    dist.all_reduce(row := torch.nn.utils.parameters_to_vector(gradients) / dist.get_world_size())
    start = 0
    for p in parameters.values():
        p.grad = row[start : start + p.numel()].reshape(p.shape)
        start += p.numel()


RIGHT = [by_name, mutant(solution, (COPIED, "parameter.grad = part.view_as(parameter)"))]

WRONG = {
    "not_one_all_reduce": [
        average_gradients.solution,
        *mutants(solution, REDUCED, "dist.reduce(row, 0); dist.broadcast(row, 0)"),
    ],
    "sum": mutants(solution, "row /= dist.get_world_size()", "pass"),
    "own_gradients": mutants(solution, COPIED, "pass"),
    "unequal_tensors": mutants(solution, TRAINABLE, "if parameter.grad is not None]"),
    None: [
        *mutants(solution, PARTS, FROM_ITS_NUMBER),
        *mutants(solution, COPIED, "parameter.grad.copy_(row[: part.numel()].view_as(parameter))"),
    ],
}
