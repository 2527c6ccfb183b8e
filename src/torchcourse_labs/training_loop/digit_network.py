"""A multilayer perceptron with any number of hidden layers, as an nn.Module of one's own."""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Inputs, call, near, observe, same, wrong_if


class solution(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.hidden, size = nn.ModuleList(), 784
        for width in widths:
            self.hidden.append(nn.Linear(size, width))
            size = width
        self.dropout = nn.Dropout(0.2)
        self.last = nn.Linear(size, 10)

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.hidden:
            x = self.dropout(F.relu(layer(x)))
        return self.last(x)


def looked_at(answer: Any, widths: list[int], images: Tensor, seed: int) -> dict[str, Any]:
    """A probe: the parameters of a new network by shape, and its logits in both modes."""
    torch.manual_seed(seed)
    model = answer if isinstance(answer, nn.Module) else call(answer, widths, may_return_none=True)
    if model is answer or not isinstance(model, nn.Module):
        return {"instead": model}
    call(model.eval(), images, may_return_none=True)  # lazy layers learn their sizes
    weights = {tuple(value.shape): value.detach().clone() for value in model.parameters()}
    seen = {"weights": weights, "count": sum(value.numel() for value in model.parameters())}
    for mode in ("train", "eval"):
        torch.manual_seed(seed)
        seen[mode] = call(model.train(mode == "train"), images, may_return_none=True)
    return seen


def logits(weights: dict, widths: list[int], x: Tensor, seed: int = 0, share: float = 0.0, relu: bool = True) -> Tensor:
    """What the network should say: the shapes tell which weight belongs where, since no two widths are equal."""
    torch.manual_seed(seed)
    x, sizes = x.flatten(1), [784, *widths, 10]
    for a, b in pairwise(sizes[:-1]):
        x = F.linear(x, weights[b, a], weights[(b,)])
        x = F.dropout(F.relu(x) if relu else x, share)
    return F.linear(x, weights[10, sizes[-2]], weights[(10,)])


def judge(answer: Any, rng: Inputs) -> None:
    for widths in (rng.sizes(2, 11, 40), [], rng.sizes(4, 41, 60)):
        judge_network(answer, widths, rng.randn(rng.size(3, 7), 1, 28, 28), rng.size(0, 10**6))


def judge_network(answer: Any, widths: list[int], images: Tensor, seed: int) -> None:
    seen = observe(answer, looked_at, widths, images, seed)
    look = "`check(…, DigitNetwork)`, the class without parentheses; it is a subclass of `nn.Module`"
    wrong_if("instead" in seen, "no_module", "The check needs your class, which makes networks.", look=look)
    sizes = [784, *widths, 10]
    missing = next((f"{a} to {b}" for a, b in pairwise(sizes) if (b, a) not in seen["weights"]), "")
    look = "layers in a plain list are hidden from the module: use `nn.ModuleList` or `nn.Sequential`"
    wrong_if(missing, "hidden", f"Your network has no layer from {missing} numbers, or hides it.", look=look)
    look = "one `nn.Linear`, with its bias, for each hidden layer and one for the logits; nothing else learns"
    same(seen["count"], sum(b * a + b for a, b in pairwise(sizes)), "The number of parameters", look=look)
    right = logits(seen["weights"], widths, images)
    look = "a ReLU after each hidden layer, and none after the last"
    linear = widths and near(seen["eval"], logits(seen["weights"], widths, images, relu=False), 1e-4, 1e-5)
    wrong_if(linear, "no_relu", "There is no ReLU, so your layers together amount to a single one.", look=look)
    look = (
        "in eval mode, dropout is off (`F.dropout` needs `training=self.training`), and nothing follows the last layer"
    )
    same(seen["eval"], right, "What your network returns in eval mode", rtol=1e-4, atol=1e-5, look=look)
    look = "`nn.Dropout(0.2)` after the ReLU of each hidden layer, and nowhere else"
    wrong_if(widths and near(seen["train"], right), "no_dropout", "In train mode, nothing is dropped.", look=look)
    right = logits(seen["weights"], widths, images, seed, 0.2)
    same(seen["train"], right, "What your network returns in train mode", rtol=1e-4, atol=1e-5, look=look)


exercise = Exercise(
    title="A network of your own",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="A module knows the layers that are its attributes, or are in its own kinds of lists.",
    hints=(
        "The sizes are 784, then the widths, then 10; each pair of neighbors is one `nn.Linear`.",
        "`self.hidden = nn.ModuleList([...])` in `__init__`, `for layer in self.hidden: ...` in `forward`.",
    ),
    judge=judge,
)
