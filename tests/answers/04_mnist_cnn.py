"""Chapter 04: answers beside those in the exercises' specifications (torchcourse/checks/mnist_cnn.py)."""

from torch import nn


class DoublesItsImages(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))

    def forward(self, x):
        return self.layers(x.mul_(2))


RIGHT = {}

WRONG = {
    "small_net": [(DoublesItsImages, "changed its argument")],
}
