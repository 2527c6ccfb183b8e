import pickle

import torch
from support.answers import mutant, mutants

from torchcourse_labs.checkpointing.load_any import solution

STRIP = 'while name.startswith(("module.", "_orig_mod.")):\n            name = name.partition(".")[2]'
SHAPE = "own[name].shape == tensor.shape"
LISTS = "[name for name in own if name not in fits], unexpected"


def one_by_one(path, model):
    saved = {}
    for name, tensor in torch.load(path, "cpu").items():
        words = name.split(".")
        while words[0] in ("module", "_orig_mod"):
            words = words[1:]
        saved[".".join(words)] = tensor
    missing, unexpected = {*model.state_dict()}, {*saved}
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name in saved and saved[name].size() == value.size():
                value.copy_(saved[name])
                missing.remove(name)
                unexpected.remove(name)
    return missing, unexpected


def trusting(path, model):
    try:
        return solution(path, model)
    except pickle.UnpicklingError:
        torch.load(path, map_location="cpu", weights_only=False)
        raise


def swallowing(path, model):
    try:
        return solution(path, model)
    except pickle.UnpicklingError:
        return [], []


RIGHT = [one_by_one]

WRONG = {
    "ran_code": [*mutants(solution, "weights_only=True", "weights_only=False"), trusting],
    "all_or_nothing": [*mutants(solution, f" and {SHAPE}", ""), *mutants(solution, ", strict=False", "")],
    None: [
        swallowing,
        lambda path, model: solution(path, model)[::-1],
        *mutants(solution, ', map_location="cpu"', ""),
        *mutants(solution, LISTS, "[], []", LISTS + "[:0]"),
        *mutants(solution, STRIP, "pass", 'name = name.removeprefix("module.").removeprefix("_orig_mod.")'),
        *mutants(solution, STRIP, 'name = name.replace("_orig_mod.", "").replace("module.", "")'),
        *mutants(one_by_one, "saved[name].size() == value.size()", "saved[name].numel() in (1, value.numel())"),
        *mutants(solution, SHAPE, f"{SHAPE} and own[name].dtype == tensor.dtype"),
        *mutants(solution, "model.state_dict()", "dict(model.named_parameters())"),
        *mutants(solution, "model.load_state_dict(fits, strict=False)", "pass"),
        *mutants(solution, "strict=False", "strict=False, assign=True"),
        mutant(solution, ("] = tensor", "] = tensor.to(own[name])"), ("strict=False", "strict=False, assign=True")),
    ],
}
