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


def on_a_copy(model, batches, device, epochs):
    return solution(copy.deepcopy(model), batches, device, epochs)


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
        on_a_copy,
        *mutants(solution, "return losses", "model.cpu(); return losses"),
        lambda model, batches, device, epochs: solution(model, batches, "cpu", epochs),
    ],
    "sums": mutants(solution, " / len(batches)", ""),
    "not_there": [
        mutant(
            solution,
            ("model.to(device)", "there, device = device, 'cpu'"),
            ("return losses", "model.to(there); return losses"),
        )
    ],
    "floats": [
        mutant(
            solution, ("images.float() / 255", "images"), ("images.to(device)", "(images.float() / 255).to(device)")
        ),
        *mutants(solution, "images.to(device)", "images.to(device, torch.float32)"),
    ],
    "one_by_one": mutants(
        solution,
        MOVED,
        "images, labels = torch.stack([image.to(device) for image in images]), labels.to(device)",
        "images, labels = images.to(device), torch.stack([label.to(device) for label in labels])",
    ),
    "too_much": mutants(
        solution,
        BACKWARD,
        "images = batches[0][0].to(device); loss.backward()",
        "torch.ones(3).to(device); loss.backward()",
    ),
    "waits": [
        *mutants(solution, "loss.detach()", "loss.item()"),
        *mutants(solution, BACKWARD, "torch.accelerator.synchronize(); loss.backward()", "loss.cpu(); loss.backward()"),
    ],
    None: [
        *mutants(solution, "optimizer.zero_grad()", "pass"),
        *mutants(solution, "optimizer.step()", "pass"),
        *mutants(solution, "images.float() / 255", "images.float()"),
        *mutants(solution, ", momentum=0.9", ""),
        *mutants(solution, "return losses", "return losses[-1]", "return", "optimizer.step(); return losses"),
        *mutants(solution, "total.item()", "total"),
    ],
}
