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


BRANCH = "self.norm2(self.conv2(y))"
SUM, INSIDE = f"self.shortcut(x) + {BRANCH}", "F.relu(self.norm1(self.conv1(x)))"
FITS, ZEROS, FIRST = "stride == 1 and inputs == outputs", "nn.init.zeros_(self.norm2.weight)", "outputs, 3, stride"

RIGHT = [InOneSequence, mutant(ResidualBlock, (SUM, f"F.relu({SUM})"), ("self.conv1(x)", "self.conv1.forward(x)"))]

WRONG = {
    "branch": [
        *mutants(ResidualBlock, INSIDE, "self.norm1(F.relu(self.conv1(x)))", "self.norm1(self.conv1(x))"),
        *mutants(ResidualBlock, INSIDE, "F.gelu(self.norm1(self.conv1(x)))"),
    ],
    "does_not_fit": [
        *mutants(ResidualBlock, FITS, "True", "inputs == outputs"),
        *mutants(ResidualBlock, "1, stride, bias", "1, bias"),
        *mutants(ResidualBlock, f"{FIRST}, padding=1", FIRST),
        *mutants(ResidualBlock, "outputs, outputs, 3", "outputs, outputs, 3, stride"),
    ],
    "always_conv": mutants(ResidualBlock, FITS, "False"),
    "not_the_sum": [*mutants(ResidualBlock, BRANCH, f"F.relu({BRANCH})"), *mutants(ResidualBlock, SUM, BRANCH)],
    "start": mutants(
        ResidualBlock, ZEROS, "pass", "nn.init.zeros_(self.conv2.weight)", f"nn.init.zeros_(self.norm1.weight); {ZEROS}"
    ),
    None: [
        *mutants(ResidualBlock, "self.norm2(", "self.norm1("),
        *mutants(ResidualBlock, "self.norm2(self.conv2(y))", "self.conv2(y)"),
        mutant(ResidualBlock, (FIRST, "outputs, 3"), ("outputs, outputs, 3", "outputs, outputs, 3, stride")),
    ],
}
