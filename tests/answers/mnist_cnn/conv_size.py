import math

from torchcourse_labs.mnist_cnn.conv_size import solution

RIGHT = [
    lambda n, kernel, stride=1, padding=0: len(range(-padding, n + padding - kernel + 1, stride)),
    lambda n, kernel, stride=1, padding=0: math.floor((n + 2 * padding - (kernel - 1) - 1) / stride + 1),
]

WRONG = {
    None: [
        lambda n, kernel, stride=1, padding=0: (n + 2 * padding - kernel) / stride + 1,
        lambda n, kernel, stride=1, padding=0: (n + 2 * padding) // stride,
        lambda n, kernel, stride=1, padding=0: (solution(n, kernel, stride, padding),) * 2,
    ]
}
