import numpy as np
import torch
from support.answers import mutants

from torchcourse_labs.training_loop.accuracy import solution


def confident(logits, labels):
    return (logits.softmax(1)[range(len(labels)), labels] > 0.5).float().mean().item()


RIGHT = [
    lambda logits, labels: int((torch.softmax(logits, -1).max(-1).indices == labels).sum()) / len(labels),
    lambda logits, labels: float(np.mean(logits.numpy().argmax(axis=1) == labels.numpy())),
]

WRONG = {
    "count": mutants(solution, ".mean()", ".sum()"),
    "pair": [lambda logits, labels: (logits.max(dim=1) == labels).sum().item() / len(labels)],
    None: [
        confident,
        *mutants(solution, ".item()", ""),
        lambda logits, labels: (logits.topk(2).indices == labels[:, None]).any(1).double().mean().item(),
    ],
}
