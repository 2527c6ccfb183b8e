import torch
import torch.nn.functional as F
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.performance.no_recompiles import SteadyStep


class CountsOutside(nn.Module):
    def __init__(self, width, backend):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.calls = 0
        self.compiled = torch.compile(lambda x: (x - x.mean(dim=0)) * self.scale, backend=backend)

    def forward(self, x, mirror):
        self.calls += 1
        factor = min(1.0, self.calls / 5)
        return self.compiled(x) * (-factor if mirror else factor)


class Pads(nn.Module):
    """One size for all: the padding takes no part in the mean."""

    def __init__(self, width, backend):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.calls = 0
        self.compiled = torch.compile(self.compute, backend=backend, dynamic=False)

    def forward(self, x, mirror):
        self.calls += 1
        factor = torch.tensor(min(1.0, self.calls / 5) * (-1 if mirror else 1))
        padded = F.pad(x, (0, 0, 0, 64 - len(x)))
        return self.compiled(padded, torch.tensor(float(len(x))), factor)[: len(x)]

    def compute(self, x, rows, factor):
        return (x - x.sum(dim=0) / rows) * self.scale * factor


class Restless(CountsOutside):
    """The module that the lab gives."""

    def __init__(self, width, backend):
        super().__init__(width, backend)
        self.compiled = torch.compile(self.compute, backend=backend, dynamic=False)

    def forward(self, x, mirror):
        return self.compiled(x, mirror)

    def compute(self, x, mirror):
        self.calls += 1
        x = (x - x.mean(dim=0)) * self.scale * min(1.0, self.calls / 5)
        return -x if mirror else x


TOTAL = torch.zeros(())  # one counter for all modules
IN_PLACE = ("self.calls += 1", "self.calls.add_(0.2).clamp_(max=1)"), ("(self.calls / 5).clamp(max=1)", "self.calls")
RIGHT = [CountsOutside, Pads, mutant(SteadyStep, *IN_PLACE)]

WRONG = {
    "factor": [
        *mutants(SteadyStep, "* warm * sign", "* sign", "* warm", "* self.calls / 5 * sign"),
        *mutants(CountsOutside, "= 0", "= TOTAL"),
    ],
    "uncompiled": [
        *mutants(SteadyStep, ", backend=backend", ""),
        *mutants(SteadyStep, "return self.compiled(", "return (self.compute if mirror else self.compiled)("),
    ],
    "outside": [
        mutant(SteadyStep, ("self.compiled(x,", "self.compiled(x - x.mean(dim=0),"), ("(x - x.mean(dim=0))", "x"))
    ],
    "too_often": [
        Restless,
        mutant(Restless, ("dynamic=False", "dynamic=True")),
        *mutants(SteadyStep, "dynamic=True", "dynamic=False"),
    ],
    None: [
        *mutants(SteadyStep, "* self.scale", "* self.scale.detach()"),
        *mutants(SteadyStep, "x.mean(dim=0)", "x.mean()"),
        *mutants(SteadyStep, "nn.Parameter(torch.ones(width))", "torch.ones(width)"),
        *mutants(SteadyStep, "return self.compiled", "self.compiled"),
    ],
}
