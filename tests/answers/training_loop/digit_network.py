from support.answers import mutants
from torch import nn

from torchcourse_labs.training_loop.digit_network import solution

STEP, HIDDEN, LAST = "self.dropout(F.relu(layer(x)))", "nn.ModuleList()", "self.last(x)"


def in_one(widths, end=()):
    layers, size = [nn.Flatten()], 784
    for width in widths:
        layers += [nn.Linear(size, width), nn.ReLU(), nn.Dropout(0.2)]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, 10), *end)


RIGHT = [
    in_one,
    *mutants(solution, "nn.Linear(size, width)", "nn.LazyLinear(width)"),
    *mutants(solution, STEP, "F.dropout(layer(x).relu(), 0.2, self.training)", "self.dropout(layer(x)).relu()"),
]

WRONG = {
    "no_module": [lambda widths: 3, in_one([20])],
    "hidden": mutants(solution, HIDDEN, "[]") + mutants(solution, "in widths", "in widths[:1]"),
    "no_relu": mutants(solution, STEP, "self.dropout(layer(x))"),
    "no_dropout": mutants(solution, STEP, "F.relu(layer(x))") + mutants(solution, "Dropout(0.2)", "Dropout(0.0)"),
    None: [
        *mutants(solution, LAST, f"{LAST}.softmax(1)", f"{LAST}.relu()", f"self.dropout({LAST})", "None"),
        *mutants(solution, "super().__init__()", "super().__init__(); self.more = nn.Linear(3, 3)", "pass"),
    ],
}
