import torch
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.performance.one_graph import solution


def by_cond(x, gain):
    x = x / x.abs().max().detach()
    return torch.cond(x.min() > 0, lambda x: x.sqrt(), lambda x: x.clone(), (x,)) * gain


def by_exponent(x, gain):
    with torch.no_grad():
        largest = torch.linalg.vector_norm(x, float("inf"))
    x = x / largest
    return gain * x ** torch.where((x > 0).all(), 0.5, 1.0)


class Reports(nn.Module):
    def forward(self, x, gain):
        if not torch.compiler.is_compiling():
            print("largest:", x.abs().max().item())
        return solution(x, gain)


def compiled_itself(x, gain):
    return torch.compile(solution, backend="eager")(x, gain)


def prints(x, gain):
    print("forward of a batch of", len(x))
    return solution(x, gain)


def asks_item(x, gain):
    largest = x.abs().max().item()
    return solution(x / largest, gain)


def asks_float(x, gain):
    return solution(x / float(x.abs().max()), gain)


def branches(x, gain):
    x = x / x.abs().max().detach()
    if x.min() > 0:
        x = x.sqrt()
    return x * gain


def branches_by_expression(x, gain):
    x = x / x.abs().max().detach()
    return (x.sqrt() if x.min() > 0 else x) * gain


def not_compiled(x, gain):
    return torch.compiler.disable(solution)(x, gain)


def breaks(x, gain):
    torch._dynamo.graph_break()
    return solution(x, gain)


SAFE, PICKED, LARGEST = "torch.where(bright, x, 1.0).sqrt()", "torch.where(bright, root, x)", "x.abs().max().detach()"

RIGHT = [by_cond, by_exponent, Reports(), compiled_itself]

WRONG = {
    "one_by_one": [
        mutant(solution, (PICKED, "torch.where(x > 0, x.abs().sqrt(), x)")),
        mutant(solution, ("x.min() > 0", "x.amin((1, 2, 3), keepdim=True) > 0")),
    ],
    "floor": mutants(solution, SAFE, "x.clamp(min=1e-4).sqrt()", "(x.clamp(min=0) + 1e-5).sqrt()"),
    "cut_off": [torch.no_grad()(solution), lambda x, gain: solution(x.detach(), gain)],
    "nan": mutants(solution, SAFE, "x.sqrt()", "x.abs().sqrt()"),
    "through_scale": mutants(solution, ".detach()", ""),
    "print": [prints],
    "number": [asks_item, asks_float],
    "branch": [branches, branches_by_expression],
    "cut": [breaks, not_compiled],
    None: [
        *mutants(solution, PICKED, "x", "root", "x.sqrt()", "torch.where(bright, x, root)"),
        *mutants(solution, LARGEST, "x.max().detach()", "x.abs().amax((1, 2, 3), keepdim=True).detach()", "1"),
        *mutants(solution, "x.min() > 0", "x.min() >= 0"),
        *mutants(solution, " * gain", ""),
        mutant(solution, (f"x = x / {LARGEST}", "x = x + (x / x.abs().max() - x).detach()")),
        lambda x, gain: solution(x, gain).tolist(),
        lambda x, gain: print(end=""),
    ],
}
