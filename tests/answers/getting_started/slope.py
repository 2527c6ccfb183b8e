import torch
from support.answers import mutant, mutants

from torchcourse_labs.getting_started.slope import solution


def by_grad(f, x):
    x = torch.tensor(x, dtype=torch.float64).requires_grad_()
    return torch.autograd.grad(f(x), x, create_graph=True)[0].item()


RIGHT = [
    by_grad,
    mutant(solution, ("float(x)", "[float(x)]"), ("f(x).backward()", "f(x).sum().backward()")),
    lambda f, x: float(torch.func.grad(f)(torch.tensor(float(x)))),
    lambda f, x: [f(x), solution(f, x)][1],  # looks at the value first, with a plain number
]

WRONG = {
    "value": mutants(solution, "x.grad.item()", "f(x).item()", "f(x)"),
    "difference_quotient": [lambda f, x: (f(x + 1e-3) - f(x)) / 1e-3],
    "no_graph": mutants(solution, ", requires_grad=True", ""),
    "plain_number": mutants(solution, "x = torch.tensor(float(x), requires_grad=True)", "pass"),
    "no_gradient": [
        *mutants(solution, "f(x).backward()", "f(x)"),
        lambda f, x: f(torch.tensor(float(x), requires_grad=True)).backward().item(),
    ],
    None: [
        *mutants(solution, "return ", ""),
        *mutants(solution, "float(x)", "x"),
        *mutants(solution, "x.grad.item()", "x.grad", "round(x.grad.item(), 2)"),
        *mutants(solution, "f(x).backward()", "f(x).backward(); f(x).backward()"),
    ],
}
