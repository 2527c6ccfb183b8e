"""Networks for MNIST and Fashion-MNIST: images [B, 1, 28, 28] -> logits [B, 10]."""

import torch
from torch import Tensor, nn

from torchcourse.models.layers import ConvBlock


class MnistExample(nn.Sequential):
    """The network of PyTorch's official MNIST example: 1.2 million parameters, nearly all in one linear layer.

    The same layers in the same order; the example ends in log_softmax and a loss to match, this one in logits.
    """

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 32, 3),  # [B, 32, 26, 26]
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),  # [B, 64, 24, 24]
            nn.ReLU(),
            nn.MaxPool2d(2),  # [B, 64, 12, 12]
            nn.Dropout(0.25),
            nn.Flatten(),  # [B, 9216]
            nn.Linear(9216, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(128, 10),
        )


class MnistNet(nn.Module):
    """A small network that learns quickly: three convolutions, each with batch norm and ReLU, and one linear layer.

    widths: channels of the three convolutions.

    Most work lies where pixels are many, so the image is small at once: the first convolution takes every second pixel,
    the second one's result is pooled, and only then come batch norm and ReLU, for a quarter of the numbers. The linear
    layer sees where each feature was (5×5 places), which for digits is worth more than a last pooling.
    """

    def __init__(self, widths: tuple[int, int, int] = (16, 32, 64)):
        super().__init__()
        first, second, third = widths
        self.layers = nn.Sequential(
            ConvBlock(1, first, kernel=5, stride=2),  # [B, 16, 14, 14]
            ConvBlock(first, second, pool=True),  # [B, 32, 7, 7]
            ConvBlock(second, third, padding=0),  # [B, 64, 5, 5]
            nn.Flatten(),
            nn.Linear(third * 25, 10),
        )
        self.to(memory_format=torch.channels_last)  # all channels of a pixel side by side

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)
