import torch
from support.answers import mutants

from torchcourse_labs.performance.one_graph import solution


def by_cond(x, gain):
    x = x / x.abs().max().detach()
    return torch.cond(x.min() > 0, lambda x: x.sqrt(), lambda x: x.clone(), (x,)) * gain


def by_exponent(x, gain):
    with torch.no_grad():
        largest = torch.linalg.vector_norm(x, float("inf"))
    x = x / largest
    return gain * x ** torch.where((x > 0).all(), 0.5, 1.0)


def branches(x, gain):
    x = x / x.abs().max().detach()
    if x.min() > 0:
        x = x.sqrt()
    return x * gain


SAFE, PICKED, LARGEST = "torch.where(bright, x, 1.0).sqrt()", "torch.where(bright, root, x)", "x.abs().max().detach()"

RIGHT = [by_cond, by_exponent]

WRONG = {
    "one_by_one": mutants(solution, PICKED, "torch.where(x > 0, x.abs().sqrt(), x)"),
    "nan": mutants(solution, SAFE, "x.sqrt()", "x.abs().sqrt()"),
    "through_scale": mutants(solution, ".detach()", ""),
    "cut": [branches, *mutants(solution, "return", "print('forward'); return"), torch.compiler.disable(solution)],
    None: [
        *mutants(solution, "x.min() > 0", "x.min() >= 0", "x.amin((1, 2, 3), keepdim=True) > 0"),
        *mutants(solution, LARGEST, "x.max().detach()"),
        *mutants(solution, SAFE, "x.clamp(min=1e-4).sqrt()"),
        lambda x, gain: solution(x.detach(), gain),
    ],
}
