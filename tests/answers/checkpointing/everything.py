import copy
import random

import numpy as np
import torch
from support.answers import mutant

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


def saving(old, new):
    return mutant(everything, (old, new)), go_on


def restoring(*places):
    return everything, mutant(go_on, *places)


def other_model(run):
    run.model = copy.deepcopy(run.model)
    return run


def without(*names):
    """Some lines of `go_on` left out."""
    lines = {
        "model": 'run.model.load_state_dict(state["model"])',
        "optimizer": 'run.optimizer.load_state_dict(state["optimizer"])',
        "scheduler": 'run.scheduler.load_state_dict(state["scheduler"])',
        "scaler": 'run.scaler.load_state_dict(state["scaler"])',
        "average": 'run.average.load_state_dict(state["average"])',
        "torch": 'torch.set_rng_state(state["torch"])',
        "numpy": 'run.rng.bit_generator.state = state["numpy"]',
        "python": 'random.setstate(state["python"])',
        "position": 'run.epoch, run.batch = state["position"]',
    }
    return restoring(*((lines[name], "pass") for name in names))


RIGHT = [(everything_in_a_list, go_on_from_a_list), (lambda run: copy.deepcopy(everything(run)), go_on)]

WRONG = {
    "none": [(lambda run: print("saved"), go_on)],
    "altered": [
        saving("run.model.state_dict()", "run.model.eval().state_dict()"),
        saving("torch.get_rng_state()", "torch.manual_seed(0).get_state()"),
    ],
    "refused": [
        saving("run.model.state_dict()", "run.model"),
        saving("run.rng.bit_generator.state", "run.rng"),
        saving("run.optimizer.state_dict()", "lambda: 0"),
    ],
    "untouched": [
        (everything, lambda run, state: print(state)),
        (everything, lambda run, state: go_on(run.__class__(0), state)),
    ],
    "random": [
        without("torch"),
        without("numpy"),
        without("python"),
        without("torch", "numpy", "python"),
        restoring(('torch.set_rng_state(state["torch"])', "torch.manual_seed(0)")),
    ],
    "position": [without("position"), saving("(run.epoch, run.batch)", "(run.epoch, 0)")],
    "lost": [
        without("optimizer"),
        without("model"),
        without("scheduler"),
        without("scaler"),
        without("average"),
        without("optimizer", "torch", "position"),
        restoring(('"python"])', '"python"]); run.optimizer.param_groups[0]["lr"] = 0.1')),
        restoring(
            (
                "run.model.load_state_dict",
                "run.model = __import__('copy').deepcopy(run.model); run.model.load_state_dict",
            )
        ),
        (everything, lambda run, state: print(go_on(run, state) or run.step())),
    ],
}
