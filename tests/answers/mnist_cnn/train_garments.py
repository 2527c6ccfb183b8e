import torch
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.mnist_cnn.train_garments import solution

NETWORK, STEP, RETURNED, BACKWARD = "SmallNet()", "optimizer.step()", "return model", "loss.backward()"
MLP = "nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))"
SCHEDULER = "        scheduler.step()"

RIGHT = [
    mutant(solution, (NETWORK, MLP), (RETURNED, "return model.eval()")),
    mutant(
        solution,
        ("Adam(model.parameters(), lr=0.01)", "SGD(model.parameters(), 0.1, 0.9)"),
        ("0.01, total", "0.1, total"),
    ),
]

WRONG = {
    "second_pass": mutants(solution, "model.train()", "next(iter(batches))", "[*batches]"),
    "softmax": mutants(
        solution,
        NETWORK,
        *(f"nn.Sequential(SmallNet(), nn.{end})" for end in ("Softmax(1)", "LogSoftmax(1)", "Sigmoid()")),
    ),
    "more_steps": [mutant(solution, ("in batches", "in 2 * list(batches)"), (SCHEDULER, ""))],
    "stopped_early": [
        *mutants(solution, STEP, "break"),
        *mutants(solution, "    return model", "        return model"),
        lambda batches: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
    ],
    "no_gradient": [
        *mutants(solution, STEP, "pass", "optimizer.zero_grad(); optimizer.step()"),
        *mutants(solution, BACKWARD, "pass"),
    ],
    "rate_fell": mutants(solution, SCHEDULER, "        optimizer.param_groups[0]['lr'] *= 0.1"),
    "linear": mutants(solution, NETWORK, "nn.Sequential(nn.Flatten(), nn.Linear(784, 10))"),
    None: [
        *mutants(solution, RETURNED, "return model.state_dict()", "return nn.Flatten()", "return SmallNet()"),
        *mutants(solution, "CycleLR(optimizer, 0.01", "CycleLR(optimizer, 1e6", "CycleLR(optimizer, 1e-7"),
        *mutants(solution, "labels)", "labels.roll(1))"),
        lambda batches: [images for images, labels in batches] and torch.zeros(10),
    ],
}
