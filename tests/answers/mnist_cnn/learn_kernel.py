import torch
import torch.nn.functional as F
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.mnist_cnn.learn_kernel import solution


def by_adam(images, outputs, kernel_size, steps=400):
    layer = nn.Conv2d(images.shape[1], outputs.shape[1], kernel_size)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(steps):
        loss = F.mse_loss(layer(images), outputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layer.weight.detach(), layer.bias.detach()


RIGHT = [
    by_adam,
    mutant(by_adam, ("optim.Adam(", "optim.SGD("), ("lr=0.05", "lr=0.3, momentum=0.8")),
    mutant(by_adam, ("layer.weight.detach(), layer.bias.detach()", "layer.weight, layer.bias")),
]

WRONG = {
    "flipped": mutants(by_adam, "layer.weight.detach()", "layer.weight.flip(2, 3)"),
    "no_bias": [lambda *case: (solution(*case)[0], torch.zeros(case[1].shape[1]))],
    "not_learned": [
        *mutants(by_adam, "optimizer.step()", "pass"),
        *mutants(by_adam, "    return", "        return"),
        mutant(by_adam, ("Adam(", "SGD("), ("0.05", "9.0")),
    ],
    "too_early": mutants(by_adam, "steps=400", "steps=30"),
    None: [lambda *case: solution(*case)[::-1], mutant(by_adam, ("images.shape[1], outputs.shape[1]", "1, 1"))],
}
