import copy

import numpy as np
import torch
import torch.nn.functional as F
from support.answers import mutant, mutants

from torchcourse_labs.training_loop.evaluate_model import solution


@torch.inference_mode()
def all_at_once(model, batches):
    mode = model.training
    logits, labels = torch.cat([model.eval()(images) for images, _ in batches]), torch.cat([y for _, y in batches])
    model.train(mode)
    return [F.cross_entropy(logits, labels).item(), np.mean((logits.argmax(1) == labels).numpy())]


RIGHT = [
    all_at_once,
    lambda model, batches: solution(copy.deepcopy(model), batches),
    mutant(solution, (").item() * len(labels)", ', reduction="sum").item()')),
]

WRONG = {
    "train_mode": mutants(solution, "model.eval()", "pass", "model.training = False")
    + mutants(solution, "    model.train(was", "            model.train(was"),
    "graph": mutants(solution, "no_grad", "enable_grad"),
    "mode_left": mutants(solution, "model.train(was_training)", "pass", "model.training = was_training"),
    "mean_of_means": [
        mutant(solution, (" * len(labels)", ""), ("loss_sum / seen", "loss_sum / len(batches)")),
        mutant(solution, (".sum().item()", ".float().mean().item()"), ("right / seen", "right / len(batches)")),
    ],
    "not_sums": [
        *mutants(solution, " * len(labels)", ""),
        *mutants(solution, ").item() * len(labels)", ', reduction="sum").item() * len(labels)'),
    ],
    None: [
        lambda *given: solution(*given)[::-1],
        *mutants(solution, "model.eval()", "model.eval().zero_grad()"),
        mutant(solution, ("loss_sum +=", "loss_sum ="), ("loss_sum / seen", "loss_sum / len(labels)")),
    ],
}
