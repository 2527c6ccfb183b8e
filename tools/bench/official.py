"""PyTorch's official MNIST example, settings as shipped: what the course's training is compared with.

From github.com/pytorch/examples, mnist/main.py: its network with log_softmax, batches of 64 from a DataLoader that
fetches image by image, Adadelta with learning rate 1, times 0.7 after each epoch, seed 1. On a CPU it does not shuffle.
Our own lines of code; what they do, and in which order, is the example's.
"""

import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from tools.bench.persample import dataset
from torchcourse import data, models


class Example(nn.Module):
    """The example's network: the layers of models.MnistExample, and log_softmax as it has it."""

    def __init__(self):
        super().__init__()
        self.layers = models.MnistExample()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.layers(images), dim=1)


def epochs(seed: int, most: int, train: data.ImageSet, test: data.ImageSet) -> Iterator[dict[str, float]]:
    """Train, and after each epoch tell its number, the seconds of training in it, and the test accuracy so far."""
    torch.manual_seed(seed)
    batches = DataLoader(dataset(train), batch_size=64)
    test_batches = DataLoader(dataset(test), batch_size=1000)
    model = Example()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for number in range(1, most + 1):
        start = time.perf_counter()
        model.train()
        for images, labels in batches:
            optimizer.zero_grad()
            F.nll_loss(model(images), labels).backward()
            optimizer.step()
        seconds = time.perf_counter() - start
        score, random = accuracy(model, test_batches), torch.get_rng_state()
        yield {"epoch": number, "seconds": seconds, "accuracy": score}
        torch.set_rng_state(random)  # whatever the caller did meanwhile
        schedule.step()


@torch.no_grad()
def accuracy(model: nn.Module, batches: DataLoader) -> float:
    """Share of the test images that the network gets right."""
    model.eval()
    right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in batches)
    return right / len(batches.dataset)
