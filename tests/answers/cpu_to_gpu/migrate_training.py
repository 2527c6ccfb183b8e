import copy

import torch
from support.answers import mutant, mutants

from torchcourse_labs.cpu_to_gpu.migrate_training import solution

MOVED = "images, labels = images.to(device), labels.to(device)"
BACKWARD = "loss.backward()"


def in_one_piece(model, batches, device, epochs):
    sizes = [len(labels) for _, labels in batches]
    images, labels = (torch.cat(parts).to(device).split(sizes) for parts in zip(*batches, strict=True))
    return solution(model, list(zip(images, labels, strict=True)), device, epochs)


RIGHT = [
    in_one_piece,
    mutant(solution, ("total.item()", "total"), ("return losses", "return torch.stack(losses).tolist()")),
    mutant(solution, ("total = torch.zeros((), device=device)", "total = 0"), ("images.float() / 255", "images / 255")),
]

WRONG = {
    "left_behind": [
        *mutants(solution, MOVED, "images.to(device); labels.to(device)", "images = images.to(device)"),
        *mutants(solution, "model.to(device)", "pass"),
    ],
    "model_elsewhere": [
        lambda model, *given: solution(copy.deepcopy(model), *given),
        lambda model, batches, device, epochs: solution(model, batches, "cpu", epochs),
    ],
    "untrained": mutants(solution, BACKWARD, "pass", f"{BACKWARD}; optimizer.zero_grad()"),
    "not_cleared": mutants(solution, "optimizer.zero_grad()", "pass"),
    "not_there": [
        mutant(solution, ("model.to(device)", "there, device = device, 'cpu'"), ("return ", "model.to(there); return "))
    ],
    "floats": mutants(solution, "images.to(device)", "images.float().to(device)"),
    "too_much": [
        *mutants(solution, MOVED, "images, labels = torch.stack([x.to(device) for x in images]), labels.to(device)"),
        *mutants(solution, BACKWARD, "torch.ones(3).to(device); loss.backward()"),
    ],
    "waits": mutants(solution, "loss.detach()", "loss.item()"),
    None: [
        *mutants(solution, " / len(batches)", ""),
        *mutants(solution, "model.to(device)", "model.to(device).eval()"),
        *mutants(solution, "images.float() / 255", "images.float()"),
        *mutants(solution, "return losses", "return losses[-1]", "optimizer.step(); return losses"),
        *mutants(solution, "    return losses", "        return losses"),
        *mutants(solution, "total.item()", "total"),
    ],
}
