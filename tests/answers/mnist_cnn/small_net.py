from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.mnist_cnn.small_net import solution

LOGITS, LAST = "self.last(self.dropout(x))", "nn.Linear(16 * 7 * 7, 10)"


def with_norm():
    layers = []
    for inputs, outputs in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def short(*between, classes=10):
    return lambda: nn.Sequential(nn.Conv2d(1, 8, 3, stride=3), *between, nn.Flatten(), nn.Linear(8 * 81, classes))


RIGHT = [
    mutant(solution, (f"return {LOGITS}", f"self.seen = x; return {LOGITS}")),
    with_norm,
    mutant(solution, (LAST, f"{LAST}; nn.init.zeros_(self.last.weight)")),
    lambda: nn.Sequential(nn.LazyConv2d(8, 5), nn.MaxPool2d(4), nn.Flatten(), nn.LazyLinear(10)),
]

WRONG = {
    "hidden": [
        mutant(solution, ("self.conv2 =", "self.more = [0]; self.more[0] ="), ("self.conv2(", "self.more[0](")),
        mutant(solution, ("self.last =", "self.more = torch.ones(784, 10); self.last ="), (LOGITS, "x @ self.more")),
    ],
    "after_last": mutants(solution, LOGITS, *(f"self.last(x).{end}" for end in ("softmax(1)", "tanh()", "relu()"))),
    "by_chance": mutants(solution, LOGITS, "self.last(F.dropout(x, 0.2))", "nn.Linear(16 * 7 * 7, 10)(x)"),
    "company": mutants(solution, LOGITS, "self.last(x - x.mean(0))"),
    "no_convolution": [lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 20), nn.ReLU(), nn.Linear(20, 10))],
    "linear": [short(), short(nn.Dropout(0.1), nn.BatchNorm2d(8), nn.AvgPool2d(1))],
    "budget": [short(nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Flatten(), nn.Linear(8 * 81, 8 * 81))],
    "features": [*mutants(solution, ".flatten(1)", ".flatten()"), *mutants(solution, LAST, "nn.Linear(400, 10)")],
    "asleep": mutants(solution, LAST, f"{LAST}; self.more = nn.Conv2d(8, 8, 3)", f"{LAST}; self.requires_grad_(False)"),
    None: [
        nn.Flatten(),
        *mutants(solution, "super().__init__()", "pass"),
        *mutants(solution, ".flatten(1)", ".view(64, -1)"),
        *mutants(solution, f"return {LOGITS}", "self.last(x)"),
        *mutants(solution, LOGITS, "self.last(x).argmax(1)", "self.last(x).squeeze()", "self.last(x) / 0"),
    ],
}
