import copy

import torch.nn.functional as F
from support.answers import mutant, mutants

from torchcourse_labs.training_loop.train_step import solution

LOSS = "F.cross_entropy(model(images), labels)"
BY_AUTOGRAD = "for p, g in zip(model.parameters(), torch.autograd.grad(loss, [*model.parameters()])): p.grad = g"


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
    *mutants(solution, LOSS, "-model(images).log_softmax(1)[range(len(labels)), labels].mean()"),
]

WRONG = {
    "no_backward": [
        *mutants(solution, "loss.backward()", "pass"),
        lambda model, *given: solution(copy.deepcopy(model), *given),
    ],
    "no_step": mutants(solution, "optimizer.step()", "pass", "torch.optim.SGD(model.parameters(), lr=0.3).step()"),
    "step_without_backward": [
        *mutants(solution, "loss.backward()", "optimizer.step(); loss.backward()"),
        mutant(solution, ("optimizer.zero_grad()", "pass"), ("loss.backward()", "loss.backward(); model.zero_grad()")),
    ],
    "step_inside": [step_first],
    "graph_cut": mutants(solution, "model(images)", "model(images).detach()"),
    "old_gradients": mutants(solution, "optimizer.zero_grad()", "pass"),
    "eval_mode": mutants(solution, "model.train()", "pass"),
    "softmax": mutants(solution, "model(images)", "model(images).softmax(dim=1)"),
    None: [
        *mutants(solution, "return loss.item()", "return loss", "return loss.detach()", "return"),
        *mutants(solution, "loss.item()", "loss.item() * len(labels)", f"{LOSS}.item()"),
        *mutants(solution, "model(images)", "model(images.flatten(1))", "model(images / 255)"),
        *mutants(solution, LOSS, "F.nll_loss(model(images), labels)", f"{LOSS} * len(labels)"),
        *mutants(solution, "optimizer.step()", "optimizer.step(); optimizer.step()"),
        *mutants(solution, "loss.item()", "loss.item() + 0 * model.requires_grad_(False)[-1].weight[0, 0].item()"),
    ],
}
