import torch
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.cifar_cnn.parameter_groups import solution

BODY, HEAD, MADE = "model.body, body_lr", "model.head, head_lr", "torch.optim.AdamW(groups"
FLAT, NO_DECAY, DECAY = "p.ndim <= 1", ', "weight_decay": 0.0', ', "weight_decay": weight_decay'


def by_kind(model, body_lr, head_lr, weight_decay):
    groups = []
    for name, module in model.named_modules():
        decay, lr = isinstance(module, nn.Conv2d | nn.Linear) * weight_decay, body_lr if "body" in name else head_lr
        for kind, p in module.named_parameters(recurse=False):
            groups.append({"params": p, "lr": lr, "weight_decay": decay * (kind == "weight")})
    return torch.optim.AdamW(groups)


RIGHT = [by_kind, mutant(solution, (DECAY, ""), (f"{MADE})", f"{MADE}, weight_decay=weight_decay)"))]

WRONG = {
    "two_groups": mutants(solution, f"if {FLAT}", ""),
    "left_out": mutants(solution, FLAT, "p.ndim == 0", "p.requires_grad_(lr > body_lr).ndim <= 1"),
    "default_decay": mutants(solution, NO_DECAY, ""),
    "all_decay": [
        lambda model, lr, head_lr, decay: torch.optim.AdamW(model.parameters(), head_lr, weight_decay=decay),
        *mutants(solution, NO_DECAY, DECAY),
    ],
    "one_rate": mutants(solution, BODY, "model.body, head_lr"),
    None: [
        mutant(solution, (BODY, "model.body, head_lr"), (HEAD, "model.head, body_lr")),
        *mutants(solution, f"{MADE})", "groups", "torch.optim.Adam(groups)") + mutants(solution, DECAY, NO_DECAY),
    ],
}
