import torch
from support.answers import mutant, mutants

from torchcourse_labs.cpu_to_gpu.make_portable import solution

BUFFER, LIST, ZEROS = 'self.register_buffer("mean", mean)', "nn.ModuleList(networks)", ", device=x.device)"
FAULTS = (BUFFER, "self.mean = mean"), (LIST, "networks"), (ZEROS, ")")

RIGHT = [
    *mutants(solution, "torch.zeros(len(x), 10, device=x.device)", "0", "x.new_zeros(len(x), 10)"),
    *mutants(solution, BUFFER, "self.mean = nn.Parameter(mean, requires_grad=False)"),
    *mutants(solution, LIST, "nn.Sequential(*networks)"),
]

WRONG = {
    "no_module": [lambda mean, members: 3, solution(torch.ones(12), 3)],
    "hidden": [mutant(solution, *FAULTS), *mutants(solution, LIST, "networks", "tuple(networks)")],
    "mean_learns": mutants(solution, BUFFER, "self.mean = nn.Parameter(mean)"),
    "not_saved": [
        *mutants(solution, BUFFER, "self.mean = mean", 'self.register_buffer("mean", mean, persistent=False)'),
        mutant(solution, (BUFFER, "self.mean = mean"), ("- self.mean", "- self.mean.to(x.device)")),
    ],
    "elsewhere": [
        *mutants(solution, ZEROS, ")", ", device=torch.accelerator.current_accelerator())"),
        mutant(solution, (BUFFER, f"{BUFFER}; self.there = mean.device"), (ZEROS, ", device=self.there)")),
    ],
    "changes_x": mutants(solution, "x = x.flatten(1) - self.mean", "x = x.flatten(1).sub_(self.mean)"),
    "travels": mutants(solution, ZEROS, ").to(x.device)"),
    None: [
        *mutants(solution, "total / len(self.members)", "total", "(total / len(self.members)).cpu()"),
        *mutants(solution, " - self.mean", "") + mutants(solution, "return total", "total"),
        *mutants(solution, "range(members)", "range(members + 1)") + mutants(solution, "nn.ReLU(), ", ""),
    ],
}
