import torch
import torch.nn.functional as F
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.sharded_models.clip_sharded import solution

CLIP, STEP = "norm = nn.utils.clip_grad_norm_(model.parameters(), largest)", "optimizer.step()"
ZERO = "optimizer.zero_grad()"
SYNC, RETURNED, SHARE = "number == len(pieces) - 1", "norm.full_tensor().item()", " / len(pieces)"
TOTAL = "norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])"


def one_backward(model, optimizer, pieces, largest):
    optimizer.zero_grad()
    torch.stack([F.cross_entropy(model(x), labels) for x, labels in pieces]).mean().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
    optimizer.step()
    return norm.full_tensor().item()


def by_hand(model, optimizer, pieces, largest):
    model.set_requires_gradient_sync(False)
    for x, labels in pieces[:-1]:
        F.cross_entropy(model(x), labels).backward()
    model.set_requires_gradient_sync(True)
    F.cross_entropy(model(pieces[-1][0]), pieces[-1][1]).backward()
    squares = torch.stack([p.grad.full_tensor().square().sum() for p in model.parameters()])
    norm = float(squares.sum().sqrt()) / len(pieces)
    for p in model.parameters():
        p.grad *= min(1, largest / norm) / len(pieces)
    optimizer.step(), optimizer.zero_grad()
    return norm


RIGHT = [by_hand, mutant(solution, (ZERO, "model.zero_grad()"))]

WRONG = {
    "never_sent": mutants(solution, SYNC, "False"),
    "sent_too_often": mutants(solution, SYNC, "True", "number == 0"),
    "all_at_once": [one_backward],
    "share_of_a_piece": mutants(solution, SHARE, "", f"{SHARE} / 2"),
    None: [
        mutant(solution, (f"{CLIP}\n    {STEP}", f"{STEP}\n    {CLIP}")),
        *mutants(solution, RETURNED, "norm", f"min({RETURNED}, largest)"),
        *mutants(solution, ZERO, "pass"),
        *mutants(solution, CLIP, f"{TOTAL}; [p.grad.mul_(largest / {RETURNED}) for p in model.parameters()]"),
    ],
}
