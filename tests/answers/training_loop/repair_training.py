import copy

import torch.nn.functional as F
from support.answers import mutant, mutants

from torchcourse_labs.training_loop.repair_training import solution

OUTSIDE = ("losses, accuracies = [], []", "losses, accuracies = [], []; model.train()")


def unrepaired(model, training_batches, validation_batches, optimizer, epochs):
    losses, accuracies = [], []
    model.train()
    optimizer.zero_grad()
    for _ in range(epochs):
        for images, labels in training_batches:
            probabilities = model(images).softmax(dim=1)
            loss = F.cross_entropy(probabilities, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss)
        model.eval()
        right, count = 0, 0
        for images, labels in validation_batches:
            right += (model(images).argmax(dim=1) == labels).sum().item()
            count += len(labels)
        accuracies.append(right / count)
    return losses, accuracies


RIGHT = [
    mutant(solution, ("optimizer.zero_grad()", "pass"), ("r.step()", "r.step(); model.zero_grad()")),
    mutant(solution, ("torch.no_grad()", "torch.inference_mode()"), (".append(loss.item())", " += [float(loss)]")),
]

WRONG = {
    "eval_mode": [unrepaired, mutant(solution, ("model.train()", "pass"), OUTSIDE)],
    "old_gradients": mutants(solution, "optimizer.zero_grad()", "pass"),
    "softmax": mutants(solution, "model(images), labels", "model(images).softmax(dim=1), labels"),
    "tensors_kept": mutants(solution, "loss.item()", "loss", "loss.detach()"),
    "graph": mutants(solution, "torch.no_grad()", "torch.enable_grad()"),
    "train_mode": mutants(solution, "model.eval()", "pass"),
    "graph_cut": mutants(solution, "model(images), labels", "model(images).detach(), labels"),
    "no_backward": [lambda model, *given: solution(copy.deepcopy(model), *given)],
    "no_step": mutants(solution, "optimizer.step()", "pass"),
    None: [
        *mutants(solution, "    return losses, accuracies", "        return losses, accuracies"),
        *mutants(solution, "in validation_batches", "in training_batches"),
    ],
}
