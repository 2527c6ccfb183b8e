from support.answers import mutant, mutants
from torch import nn

from torchcourse import models
from torchcourse_labs.cifar_cnn.train_within import solution


def linear(budget):
    import torch

    torch.manual_seed(0)
    model = nn.Sequential(models.Normalize("cifar10"), nn.Flatten(), nn.Linear(3072, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.003)
    for images, labels in budget:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


RIGHT = [
    mutant(
        solution,
        ("Adam(model.parameters())", "SGD(model.parameters(), lr=0.1, momentum=0.9)"),
        ("max_lr=0.01", "max_lr=0.1"),
        ("model(images)", "model(images.flip(-1))"),
    )
]

WRONG = {
    "few_steps": [
        *mutants(linear, "loss.backward()", "loss.backward()\n        if budget.used > 20: break"),
        *mutants(
            linear,
            "return model",
            "return nn.Sequential(models.Normalize('cifar10'), nn.Flatten(), nn.Linear(3072, 10))",
        ),
    ],
    "more_steps": mutants(linear, "optimizer.step()", "optimizer.step()\n        optimizer.step()"),
    "bytes": [lambda budget: nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))],
    "probabilities": mutants(linear, "return model", "return nn.Sequential(model, nn.Softmax(1))"),
    None: [
        linear,
        lambda budget: (nn.Linear(3072, 10), []),
        *mutants(linear, "for images", "list(budget)\n    for images"),
        *mutants(linear, "loss.backward()", "(loss * float('inf')).backward()"),
    ],
}
