import torch
from answers.capstone._training import AUTOCAST, train, with_states
from support.answers import mutants

from torchcourse_labs.capstone.project_precision import best_dtype as choose


def pairs(old, *new):
    return [(each, choose) for each in mutants(train, old, *new)]


def choices(old, *new):
    return [(train, each) for each in mutants(choose, old, *new)]


FASTER = 'max(seconds["bfloat16"]) < min(seconds["float32"])'
GOOD = 'accuracy["bfloat16"] >= accuracy["float32"] - 0.005'

RIGHT = [(train, choose), (with_states, choose)]

WRONG = {
    "form": [train, (train, choose, 3)],
    "no_model": pairs("return model", "return"),
    "half_weights": pairs("DDP(model)", "DDP(model.to(dtype))"),
    "not_in_half": pairs(AUTOCAST, 'torch.autocast("cpu", dtype, enabled=False)'),
    "always_half": pairs(AUTOCAST, 'torch.autocast("cpu", torch.bfloat16)'),
    "no_choice": [(train, lambda seconds, accuracy: torch.float32)],
    "overlap": choices(FASTER, 'min(seconds["bfloat16"]) < min(seconds["float32"])'),
    "accuracy": choices(GOOD, "True"),
    None: [
        *choices("torch.bfloat16 if faster", '"bf16" if faster'),
        *choices("faster and good", "good"),
        *choices(GOOD, 'accuracy["bfloat16"] >= accuracy["float32"]'),
    ],
}
