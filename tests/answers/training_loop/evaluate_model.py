import copy

import numpy as np
import torch
import torch.nn.functional as F
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.training_loop.evaluate_model import solution


@torch.inference_mode()
def all_at_once(model, batches):
    mode = model.training
    logits, labels = torch.cat([model.eval()(images) for images, _ in batches]), torch.cat([y for _, y in batches])
    model.train(mode)
    return [F.cross_entropy(logits, labels).item(), np.mean((logits.argmax(1) == labels).numpy())]


def on_a_copy(model, batches):
    return mutant(solution, ("no_grad", "enable_grad"))(copy.deepcopy(model).requires_grad_(False), batches)


def then(action):
    return lambda *given: [solution(*given), action(*given)][0]


RIGHT = [
    all_at_once,
    on_a_copy,
    mutant(solution, (").item() * len(labels)", ', reduction="sum").item()')),
]

WRONG = {
    "train_mode": mutants(solution, "model.eval()", "pass", "model.training = False"),
    "graph": mutants(solution, "no_grad", "enable_grad"),
    "mode_left": [
        *mutants(solution, "model.train(was_training)", "pass", "model.train()", "model.training = was_training"),
        mutant(
            solution, ("    was_training = model.training\n", ""), ("eval()", "eval(); was_training = model.training")
        ),
    ],
    "mean_of_means": [
        mutant(solution, (" * len(labels)", ""), ("loss_sum / seen", "loss_sum / len(batches)")),
        mutant(solution, (".sum().item()", ".float().mean().item()"), ("right / seen", "right / len(batches)")),
    ],
    "one_batch": [
        mutant(solution, ("loss_sum +=", "loss_sum ="), ("loss_sum / seen", "loss_sum / len(labels)")),
        *mutants(solution, "seen += len(labels)", "seen += len(labels); break"),
    ],
    "softmax": mutants(solution, "model(images)", "model(images).softmax(dim=1)"),
    None: [
        then(lambda model, batches: batches.pop()),
        then(lambda model, batches: nn.init.zeros_(model[1].weight)),
        then(lambda model, batches: model.zero_grad()),
        then(lambda model, batches: torch.set_grad_enabled(False)),
        lambda *given: solution(*given)[0],
        lambda *given: solution(*given)[::-1],
        lambda *given: tuple(map(torch.tensor, solution(*given))),
        *mutants(solution, "in batches", "in batches[:-1]"),
        *mutants(
            solution, "right / seen", "100 * right / seen", "right", "right / (len(batches) * len(batches[0][1]))"
        ),
        *mutants(solution, " * len(labels)", ""),
        *mutants(solution, "return ", ""),
    ],
}
