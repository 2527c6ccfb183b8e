import math

import torch
from torch import nn

from torchcourse_labs.mnist_cnn.conv_size import solution

RIGHT = [
    lambda n, kernel, stride=1, padding=0: len(range(-padding, n + padding - kernel + 1, stride)),
    lambda n, kernel, stride=1, padding=0: math.floor((n + 2 * padding - (kernel - 1) - 1) / stride + 1),
    lambda n, kernel, stride=1, padding=0: nn.Conv1d(1, 1, kernel, stride, padding)(torch.zeros(1, n)).shape[1],
]

WRONG = {
    "float": [lambda n, kernel, stride=1, padding=0: (n + 2 * padding - kernel) / stride + 1],
    None: [
        lambda n, kernel, stride=1, padding=0: (n + 2 * padding) // stride,
        lambda n, kernel, stride=1, padding=0: solution(n, kernel, stride, padding) ** 2,
        lambda n, kernel, stride=1, padding=0: (solution(n, kernel, stride, padding),) * 2,
        lambda n, kernel, stride=1, padding=0: [][n],
    ],
}
