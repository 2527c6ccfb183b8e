import copy

import torch
from support.answers import mutants
from torch import nn

from torchcourse_labs.cpu_to_gpu.keep_weights import solution


def in_a_loop(model):
    kept = {}
    for name, value in model.state_dict().items():
        kept[name] = torch.empty_like(value, device="cpu").copy_(value)
    return kept


RIGHT = [
    in_a_loop,
    lambda model: {name: value.to("cpu", copy=True) for name, value in model.state_dict().items()},
    lambda model: copy.deepcopy(model).cpu().state_dict(),
]

WRONG = {
    "model_changed": [
        *mutants(solution, "model.state_dict()", "model.cpu().state_dict()", "model.eval().state_dict()"),
        *mutants(solution, "return", "model.zero_grad(); return"),
    ],
    "no_buffers": mutants(solution, "model.state_dict().items()", "model.named_parameters()"),
    "on_device": [lambda model: model.state_dict(), *mutants(solution, ".cpu()", "")],
    "shared": mutants(solution, ".clone()", ""),
    None: [
        *mutants(in_a_loop, "    return kept", "        return kept"),
        lambda model: {n: nn.Parameter(v) if v.is_floating_point() else v for n, v in solution(model).items()},
        *mutants(solution, "model.state_dict().items()", "[*model.named_parameters(), *model.named_buffers()]"),
        lambda model: copy.deepcopy(model).cpu(),
        lambda model: {name: value.half() for name, value in solution(model).items()},
    ],
}
