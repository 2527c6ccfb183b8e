import torch
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.cifar_cnn.residual_block import ResidualBlock


class InOneSequence(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.same = stride == 1 and inputs == outputs
        middle = max(inputs, outputs)
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, middle, 3, stride=stride, padding="same" if stride == 1 else 1),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            nn.ZeroPad2d(1),
            nn.Conv2d(middle, outputs, 3),
            nn.BatchNorm2d(outputs),
        )
        torch.nn.init.constant_(self.layers[-1].weight, 0)
        if not self.same:
            self.match = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.layers(x)
        y += x if self.same else self.match(x)
        return y.clamp(min=0)


SUM, INSIDE, OUTSIDE = "self.shortcut(x) + y", "F.relu(self.norm1(self.conv1(x)))", "self.norm2(self.conv2(y))"
NEEDED, ZEROS = "if stride != 1 or inputs != outputs", "nn.init.zeros_(self.norm2.weight)"
FIRST, SECOND = "outputs, 3, stride, padding=1", "outputs, outputs, 3, padding=1"

RIGHT = [
    InOneSequence,
    mutant(ResidualBlock, (SUM, f"F.relu({SUM})")),
    mutant(
        ResidualBlock,
        ("1, stride, bias=False", "1, bias=False"),
        (SUM, "self.shortcut(x[:, :, :: self.conv1.stride[0], :: self.conv1.stride[1]]) + y"),
    ),
]

WRONG = {
    "weights": [
        *mutants(ResidualBlock, OUTSIDE, "self.norm1(self.conv2(y))"),
        mutant(
            ResidualBlock, ("self.conv2 =", "self.convs = [None]; self.convs[0] ="), ("self.conv2(", "self.convs[0](")
        ),
    ],
    "branch": [
        *mutants(ResidualBlock, INSIDE, "self.norm1(F.relu(self.conv1(x)))", "self.norm1(self.conv1(x))"),
        *mutants(
            ResidualBlock, INSIDE, "F.gelu(self.norm1(self.conv1(x)))", "F.relu(self.norm1(self.conv1(x.relu())))"
        ),
        *mutants(ResidualBlock, OUTSIDE, "self.conv2(y)", "self.norm2(nn.functional.dropout(self.conv2(y)))"),
        *mutants(ResidualBlock, FIRST, "outputs, 5, stride, padding=2"),
    ],
    "stride_or_padding": [
        *mutants(ResidualBlock, FIRST, "outputs, 3, stride", "outputs, 3, padding=1"),
        *mutants(ResidualBlock, SECOND, "outputs, outputs, 3, stride, padding=1"),
    ],
    "does_not_fit": [
        *mutants(ResidualBlock, NEEDED, "if False", "if stride != 1", "if inputs != outputs"),
        *mutants(ResidualBlock, "1, stride, bias", "1, bias"),
    ],
    "shortcut_not_plain": mutants(ResidualBlock, NEEDED, "if True"),
    "relu_before_sum": mutants(ResidualBlock, SUM, "self.shortcut(x) + F.relu(y)"),
    "not_the_sum": [
        *mutants(
            ResidualBlock, SUM, "y", "self.shortcut(x)", f"{SUM} + y", "(self.shortcut(x) + y).repeat(1, 2, 1, 1)"
        ),
        *mutants(ResidualBlock, "nn.Identity()", "nn.BatchNorm2d(inputs)"),
        *mutants(ResidualBlock, "inputs, outputs, 1, stride", "inputs, outputs, 3, stride, 1"),
    ],
    "not_the_identity": mutants(ResidualBlock, ZEROS, "pass"),
    "does_not_learn": [
        *mutants(ResidualBlock, ZEROS, f"nn.init.zeros_(self.norm1.weight); {ZEROS}"),
        *mutants(ResidualBlock, ZEROS, f"{ZEROS}; self.requires_grad_(False)"),
    ],
    None: [
        lambda inputs, outputs, stride=1: lambda x: x,
        *mutants(ResidualBlock, "super().__init__()", "pass"),
        *mutants(ResidualBlock, SUM, "self.shortcut(x), y", "None"),
    ],
}
