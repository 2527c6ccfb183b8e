import torch
from support.answers import mutants

from torchcourse_labs.mnist_cnn.go_on_exactly import checkpoint, restore

STATES, SET, END = "return states", "torch.set_rng_state", 'return state["epoch"]'
VALUES = "state_dict().values()"


def as_list(model, optimizer, epoch):
    return [[*model.state_dict().values()], optimizer.state_dict(), torch.get_rng_state(), torch.tensor(epoch)]


def from_list(model, optimizer, state):
    for own, saved in zip(model.state_dict().values(), state[0], strict=True):
        own.data.copy_(saved)
    optimizer.load_state_dict(state[1])
    torch.set_rng_state(state[2])
    return state[3]


def restoring(old, *new):
    return [(checkpoint, mutant) for mutant in mutants(restore, old, *new)]


RIGHT = [(as_list, from_list)]

WRONG = {
    "altered": [(mutant, restore) for mutant in mutants(checkpoint, STATES, f"torch.rand(1); {STATES}")],
    "not_saved": [(mutant, restore) for mutant in mutants(checkpoint, "model.state_dict()", "model", "print")],
    "momentum": restoring("optimizer.load_state_dict", "len", "torch.optim.SGD(model.parameters()).load_state_dict"),
    "random": [*restoring(SET, "len"), *restoring(f'{SET}(state["random"])', "torch.manual_seed(0)")],
    None: [
        *zip(mutants(as_list, VALUES, "parameters()"), mutants(from_list, VALUES, "parameters()"), strict=True),
        *restoring("model.load_state_dict", "len", "model.eval().load_state_dict"),
        *restoring(END, "return", "return str(state['epoch'])", f"optimizer.param_groups[0]['lr'] = 1.0; {END}"),
        *((mutant, restore) for mutant in mutants(checkpoint, "return states", "states")),
        checkpoint,
    ],
}
