"""The fastest honest training that the course knows, a page for each data set: `mnist` and `cifar`.

Both are used in the same way:

    from torchcourse.recipes import mnist
    run = mnist.train("99.4", seed=0)
    run.model, run.history, run.seconds
"""

from dataclasses import dataclass

from torch import nn

from torchcourse.training import Epoch


@dataclass(frozen=True)
class Run:
    """What a training leaves."""

    model: nn.Module  # takes uint8 images [B, C, H, W] on its device, gives logits [B, classes]
    history: list[Epoch]
    seconds: float  # of training alone: from the first image to the last step
