import torch
from answers.capstone._training import AUTOCAST, train, with_states
from support.answers import mutants

from torchcourse_labs.capstone.project_precision import best_dtype as choose


def pairs(old, *new):
    return [(each, choose) for each in mutants(train, old, *new)]


def choices(old, *new):
    return [(train, each) for each in mutants(choose, old, *new)]


RIGHT = [(train, choose), (with_states, choose)]

WRONG = {
    "returned": pairs("return model", "return"),
    "half_weights": pairs("DDP(model)", "DDP(model.to(dtype))"),
    "other_dtype": pairs(
        AUTOCAST, AUTOCAST.replace("dtype != torch.float32", "False"), 'torch.autocast("cpu", torch.bfloat16)'
    ),
    None: [
        train,
        (train, lambda seconds, accuracy: torch.float32),
        *choices('max(seconds["bfloat16"])', 'min(seconds["bfloat16"])'),
        *choices("faster and good", "good", "faster"),
        *choices("torch.bfloat16 if faster", '"bf16" if faster'),
    ],
}
