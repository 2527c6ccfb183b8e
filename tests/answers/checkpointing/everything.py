import copy
import random

import numpy as np
import torch
from support.answers import mutant, mutants

from torchcourse_labs.checkpointing.everything import everything, go_on


def everything_in_a_list(run):
    state = {name: getattr(run, name).state_dict() for name in ("model", "optimizer", "scheduler", "scaler", "average")}
    _, numbers, _ = random.getstate()
    return [state, run.epoch, run.batch, repr(run.rng.bit_generator.state), list(numbers), torch.random.get_rng_state()]


def go_on_from_a_list(run, state):
    parts, run.epoch, run.batch, numpy, numbers, pytorch = state
    for name, part in parts.items():
        getattr(run, name).load_state_dict(part)
    run.rng = np.random.default_rng()
    run.rng.bit_generator.state = eval(numpy)
    random.setstate((3, tuple(numbers), None))
    torch.set_rng_state(pytorch)


def saving(old, *new):
    return [(save, go_on) for save in mutants(everything, old, *new)]


def restoring(*places):
    return everything, mutant(go_on, *places)


TORCH = 'torch.set_rng_state(state["torch"])'
PYTHON = 'random.setstate(state["python"])'

RIGHT = [(everything_in_a_list, go_on_from_a_list), (lambda run: copy.deepcopy(everything(run)), go_on)]

WRONG = {
    "none": [(lambda run: print("saved"), go_on)],
    "altered": [
        *saving("torch.get_rng_state()", "torch.manual_seed(0).get_state()"),
        *saving("run.rng.bit", "run.model.eval() and run.rng.bit"),
    ],
    "refused": saving("run.rng.bit_generator.state", "run.rng", "run.model", "lambda: 0"),
    "untouched": [
        (everything, lambda run, state: print(state)),
        (everything, lambda run, state: go_on(run.__class__(0), state)),
    ],
    "replaced": [restoring(("getattr(run, name).load_state_dict(part)", "setattr(run, name, part)"))],
    "lost": [
        *saving('"optimizer", ', ""),
        *saving('"scaler", ', ""),
        *saving(', "average"', ""),
        *saving("(run.epoch, run.batch)", "(run.epoch, 0)"),
        restoring((TORCH, "pass")),
        restoring((TORCH, "torch.manual_seed(0)"), (PYTHON, "pass")),
        restoring((PYTHON, f'{PYTHON}; run.optimizer.param_groups[0]["lr"] = 0.1')),
        (everything, lambda run, state: print(go_on(run, state) or run.step())),
    ],
    None: [restoring(("    for", "    run.model = __import__('copy').deepcopy(run.model)\n    for"))],
}
