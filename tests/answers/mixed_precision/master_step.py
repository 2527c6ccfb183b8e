import torch
from support.answers import mutant, mutants

from torchcourse_labs.mixed_precision.master_step import solution


def by_dict(model, master, rate):
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            master[name] = master.get(name, parameter.detach().double()).sub(parameter.grad, alpha=rate)
            parameter.data = master[name].bfloat16()


@torch.no_grad()
def by_lists(model, master, rate):
    parameters = [p for p in model.parameters() if p.grad is not None]
    copies = [master.setdefault(p, p.float()) for p in parameters]
    torch._foreach_add_(copies, [p.grad.float() for p in parameters], alpha=-rate)
    torch._foreach_copy_(parameters, copies)


MAKE, GRAD = "master.setdefault(name, parameter.detach().float())", "rate * parameter.grad.float()"
BACK, QUIET = "parameter.copy_(master[name])", ("torch.no_grad()", "torch.enable_grad()")
SOME = "master or master.update((n, p.float()) for n, p in model.named_parameters() if p.grad is not None)"


def by_place(model, master, rate):
    with torch.no_grad():
        for i, p in enumerate([p for p in model.parameters() if p.grad is not None]):
            master.setdefault(i, p.detach().float()).sub_(rate * p.grad.float())
            p.copy_(master[i])


RIGHT = [by_dict, by_lists]

WRONG = {
    "recorded": [mutant(solution, QUIET)],
    "no_gradient": mutants(solution, "if parameter.grad is not None", "if True"),
    "not_bfloat16": mutants(solution, BACK, "parameter.data = master[name]", "model.float()"),
    "not_moved": mutants(solution, BACK, "pass", "parameter = master[name].bfloat16()"),
    "swallowed": [
        *mutants(solution, MAKE, "master[name] = parameter.float()", "master.setdefault(name, parameter.clone())"),
        *mutants(solution, "with", "master = {}\n    with"),
    ],
    "graph": [mutant(solution, (".detach()", ""), QUIET, (".copy_", ".data.copy_"))],
    "replaced": mutants(solution, BACK, "model[int(name)] = nn.Parameter(master[name].bfloat16())"),
    None: [
        by_place,
        *mutants(solution, MAKE, "master.setdefault(name, 0 * parameter)", SOME),
        *mutants(solution, GRAD, f"-{GRAD}"),
        *mutants(solution, "if parameter.grad is not None:", "if parameter.grad is None: return\n            else:"),
    ],
}
