import torch
from support.answers import mutant
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        first = nn.Conv2d(1, 8, 5, 2, 2), nn.ReLU(), nn.Dropout2d(0.1)
        self.layers = nn.Sequential(*first, nn.Flatten(), nn.Linear(8 * 196, 10))

    def forward(self, images):
        x = images.float() / 255 - 0.5
        return self.layers(x)


class Floats(nn.Module):
    def forward(self, images):
        return images.float()


def built(old, *new):
    return [("mnist", mutant(Net, (old, each))) for each in new]


def seeds_itself():
    torch.manual_seed(0)
    return Net()


ONE = Net()
SCALED, END = "images.float() / 255 - 0.5", "return self.layers(x)"

RIGHT = [
    ("fashion_mnist", Net),
    ("cifar10", lambda: nn.Sequential(Floats(), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3072, 10))),
]

WRONG = {
    "takes_floats": built(SCALED, "images"),
    "shape": [*built("196, 10)", "196, 11)"), *built(END, f"{END}.squeeze()")],
    "not_fresh": [("mnist", lambda: Net().eval()), ("mnist", seeds_itself), ("mnist", lambda: ONE)],
    "unscaled": built(SCALED, "images.float()"),
    "no_logits": built(END, f"{END}.softmax(1)", f"{END}.log_softmax(1)", f"{END}.relu()"),
    "not_alone": [
        *built(SCALED, "(images.float() - images.float().mean()) / images.float().std()"),
        *built(END, "return self.layers(nn.functional.dropout(x, 0.5))"),
    ],
    "too_large": built("self.layers = ", "self.more = nn.Linear(1000, 1000)\n        self.layers = "),
    None: [Net, ("mnist", lambda: Net), ("mnist", Floats), *built("8 * 196", "8 * 200")],
}
