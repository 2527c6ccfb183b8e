import torch
import torch.nn.functional as F
from support.answers import mutant
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Dropout2d(0.1),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 49, 10),
        )

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
    "form": [Net, ("MNIST", Net)],
    "no_module": [("mnist", lambda: Net)],
    "no_weights": [("mnist", Floats), ("mnist", lambda: Net().requires_grad_(False))],
    "takes_floats": built(SCALED, "images"),
    "shape": [*built("49, 10)", "49, 11)"), *built(END, f"{END}.squeeze()", f"{END}.argmax(1)")],
    "not_fresh": [("mnist", lambda: Net().eval()), ("mnist", seeds_itself), ("mnist", lambda: ONE)],
    "unscaled": built(SCALED, "images.float()"),
    "no_logits": built(END, f"{END}.softmax(1)", "return F.log_softmax(self.layers(x), 1)", f"{END}.relu()"),
    "not_alone": [
        *built(SCALED, "(images.float() - images.float().mean()) / images.float().std()"),
        *built(END, "return self.layers(F.dropout(x, 0.5))"),
    ],
    "too_large": [
        (
            "mnist",
            lambda: nn.Sequential(Floats(), nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(784, 400), nn.Linear(400, 10)),
        )
    ],
    None: [*built("16 * 49", "16 * 50"), *built(SCALED, "images.float() * 0"), *built(END, f"{END}.half()")],
}
assert F  # of a mutant
