import copy

import torch
import torch.nn.functional as F
from support.answers import mutant, mutants

from torchcourse_labs.training_loop.train_step import solution

LOSS = "loss_of(model(images), labels)"
BY_AUTOGRAD = "for p, g in zip(model.parameters(), torch.autograd.grad(loss, [*model.parameters()])): p.grad = g"


def then(action):
    return lambda *given: [solution(*given), action(*given)][0]


def step_first(model, images, labels, optimizer):
    loss = F.cross_entropy(model.train()(images), labels)
    optimizer.step()
    loss.backward()
    optimizer.zero_grad()
    return loss.item()


RIGHT = [
    mutant(solution, ("optimizer.zero_grad()", "pass"), ("loss =", "model.zero_grad(set_to_none=False); loss =")),
    mutant(solution, ("loss.backward()", BY_AUTOGRAD), ("loss.item()", "float(loss.detach())")),
    mutant(solution, ("loss.backward()", "pass"), ("optimizer.step()", "optimizer.step(loss.backward)")),
    lambda model, images, labels, optimizer: solution(
        model, images, labels, optimizer, lambda logits, y: -logits.log_softmax(1)[range(len(y)), y].mean()
    ),
]

WRONG = {
    "no_backward": [
        *mutants(solution, "loss.backward()", "pass", "loss.detach().requires_grad_().backward()"),
        lambda model, *given: solution(copy.deepcopy(model), *given),
    ],
    "no_step": mutants(
        solution,
        "optimizer.zero_grad()",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.3); optimizer.zero_grad()",
    )
    + mutants(solution, "optimizer.step()", "pass"),
    "step_before_backward": mutants(solution, "loss.backward()", "optimizer.step(); loss.backward()"),
    "step_inside": [step_first],
    "cleared_before_step": [
        mutant(solution, ("optimizer.zero_grad()", "pass"), ("loss.backward()", "loss.backward(); model.zero_grad()"))
    ],
    "old_gradients": mutants(solution, "optimizer.zero_grad()", "pass"),
    "eval_mode": mutants(solution, "model.train()", "pass", "model.eval()"),
    "second_forward": [
        mutant(solution, ("loss.item()", "F.cross_entropy(model(images), labels).item()")),
        mutant(solution, ("loss =", "model(images); loss =")),
    ],
    "softmax": mutants(solution, "model(images)", "model(images).softmax(dim=1)"),
    "sum": mutants(solution, LOSS, 'loss_of(model(images), labels, reduction="sum")', f"{LOSS} * len(labels)"),
    None: [
        *mutants(solution, "return loss.item()", "return loss", "return loss.detach()", "return"),
        *mutants(solution, "loss.item()", "loss.item() * len(labels)", "round(loss.item(), 2)"),
        *mutants(solution, LOSS, "F.nll_loss(model(images), labels)", f"{LOSS} / len(labels)"),
        *mutants(solution, "loss.backward()", "loss.detach().backward()"),
        *mutants(solution, "optimizer.step()", "optimizer.step(); optimizer.step()"),
        then(lambda model, *given: model.pop(-1)),
        then(lambda model, images, *given: images.zero_()),
        then(lambda model, *given: model.requires_grad_(False)),
        then(lambda *given: torch.set_grad_enabled(False)),
    ],
}
