import torch
from support.answers import mutants
from torch import nn

from torchcourse_labs.mnist_cnn.go_on_exactly import checkpoint, restore

STATES, SET, END = "return states", "torch.set_rng_state", 'return state["epoch"]'


def as_list(model, optimizer, epoch):
    return [[*model.parameters()], optimizer.state_dict(), torch.get_rng_state(), torch.tensor(epoch)]


def from_list(model, optimizer, state):
    nn.utils.vector_to_parameters(torch.cat([saved.flatten() for saved in state[0]]), model.parameters())
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
        *restoring("model.load_state_dict", "len"),
        *restoring(END, "return", "return str(state['epoch'])", f"optimizer.param_groups[0]['lr'] = 1.0; {END}"),
        checkpoint,
    ],
}
