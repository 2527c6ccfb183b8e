"""A convolutional network with at most 20,000 parameters."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, call, near, observe, raises_like, wrong_if


class solution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.dropout = nn.Dropout(0.1)
        self.last = nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.last(self.dropout(x))


def looked_at(answer: Any, images: Tensor, others: Tensor, seed: int) -> dict[str, Any]:
    """A probe: what a network does with these images and with others; its parameters, and which of them learn."""
    torch.manual_seed(seed)
    model = answer if isinstance(answer, nn.Module) else call(answer, may_return_none=True)
    if model is answer or not isinstance(model, nn.Module):
        return {"instead": model}
    model.cpu().eval()
    seen = {"hidden": hidden_layers(model), "logits": call(model, images, may_return_none=True)}
    if not isinstance(seen["logits"], Tensor) or seen["logits"].shape != (len(images), 10):
        return seen
    seen["again"] = call(model, images)
    seen["in company"] = call(model, torch.cat([others, images, others]))[len(others) : -len(others)]
    seen |= {"others": call(model, others), "zero": call(model, 0 * images), "sum": call(model, images + others)}
    seen["operations"] = probes.operations(model, images)
    seen["sizes"] = {name: parameter.numel() for name, parameter in nn.Module.named_parameters(model)}  # of no subclass
    output = call(model.train(), torch.cat([images, others]))
    seen["training"] = output.detach()
    if output.requires_grad:
        output.square().sum().backward()
    learning = {name: each.grad for name, each in model.named_parameters() if each.requires_grad}
    seen["asleep"] = [name for name, gradient in learning.items() if gradient is None] if learning else ["all of it"]
    seen["large"] = []
    for scale in (30, -1):  # with large weights of both signs, it shows if something squashes or cuts the logits
        for parameter in model.eval().parameters():
            parameter.data.mul_(scale).add_(torch.randn_like(parameter))
        seen["large"].append(call(model, 1000 * images).detach())
    return seen


def hidden_layers(model: nn.Module) -> str | None:
    """The attribute in which layers are that PyTorch doesn't see, or weights."""
    for name, value in vars(model).items():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
        weights = [part for part in parts if isinstance(part, Tensor) and part.numel() > 100]
        if not name.startswith("_") and (weights or any(isinstance(part, nn.Module) for part in parts)):
            return name
    return None


def judge(answer: Any, rng: Inputs) -> None:
    features = raises_like(
        "features",
        "A linear layer gets more or fewer features (the last number of mat1) than it takes (the first of mat2).",
        "mat1 and mat2",
        look="channels · height · width before the layer; `flatten(1)` leaves the batch alone, `flatten()` does not",
    )
    for b in (rng.pick([3, 5, 6, 7, 9]), 1):
        images = [rng.randn(b, 1, 28, 28) for _ in range(2)]
        with features:
            seen = observe(answer, looked_at, *images, rng.size(0, 10**6))
        judge_network(seen, b)


def judge_network(seen: dict[str, Any], b: int) -> None:
    if "instead" in seen:
        problem, look = "The check needs your class, which makes networks.", "`check(…, SmallNet)`, without parentheses"
        raise Incorrect(problem, yours=seen["instead"], look=look)
    wrong_if(
        seen["hidden"],
        "hidden",
        f"In `self.{seen['hidden']}` are layers in a plain list or dict, or weights: no optimizer will find them.",
        look="make layers attributes, or use `nn.Sequential` or `nn.ModuleList`; make weights an `nn.Parameter`",
    )
    logits = seen["logits"]
    if not isinstance(logits, Tensor) or logits.shape != (b, 10) or logits.dtype != torch.float32:
        look = "the `return` of `forward`, and the size of the last layer; `flatten(1)` leaves the batch alone"
        raise Incorrect("Your network should return ten logits for each image.", (b, 10), logits, look)
    if not logits.isfinite().all():
        raise Incorrect("Some of your logits are nan or infinite.", "finite numbers", logits, "the end of `forward`")
    again, company = (not near(seen[name], logits, 1e-4, 1e-4) for name in ("again", "in company"))
    look = "`F.dropout` does not know the mode: use `nn.Dropout`. Layers belong in `__init__`, not in `forward`"
    wrong_if(again, "by_chance", "In eval mode, the same images get different logits when they come again.", look)
    look = "in reshapes, means, and softmax of `forward`, axis 0 is the batch; batch norm needs running statistics"
    wrong_if(company, "company", "In eval mode, images get different logits if there are others in their batch.", look)
    large = torch.cat(seen["large"])
    wrong_if(
        any(near(each.exp().sum(1), torch.ones(len(each))) for each in (logits, logits.log(), seen["training"]))
        or 0 < large.abs().max() <= 1
        or large.min() == 0 < large.max(),
        "after_last",
        "Something follows the last layer (softmax, sigmoid, ReLU …). Logits may be any numbers, and the loss has a "
        "softmax inside.",
        look="the last line of `forward`, or the last layer in `__init__`",
    )
    missing = not any("conv" in name for name in seen["operations"])
    look = "at least one `nn.Conv2d`, used in `forward`"
    wrong_if(missing, "no_convolution", "There is no convolution in your network.", look)
    wrong_if(
        not near(logits, seen["zero"]) and near(logits + seen["others"], seen["sum"] + seen["zero"], 1e-4, 1e-4),
        "linear",
        "Your network is linear from end to end, and could be replaced by a single layer.",
        look="something nonlinear between the layers: `nn.ReLU()` after each convolution",
    )
    total, largest = sum(seen["sizes"].values()), max(seen["sizes"].items(), key=lambda item: item[1], default=("", 0))
    wrong_if(
        total > 20_000,
        "budget",
        f"Your network has {total:,} parameters, over the budget of 20,000. `{largest[0]}` alone has {largest[1]:,}.",
        look="halve the image once more before you flatten it, or use fewer channels",
    )
    wrong_if(
        seen["asleep"],
        "asleep",
        f"No gradient reaches part of your network: {', '.join(map(str, seen['asleep']))}.",
        look="every layer of `__init__` that `forward` leaves out; `no_grad`, `detach` and `requires_grad_(False)`",
    )


exercise = Exercise(
    seconds=probes.SLOW_START,
    title="A network within a budget",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="Shrink the image before you flatten it: in a small network, most parameters are in the linear layer.",
    hints=(
        "Two or three convolutions, each followed by ReLU and something that halves the image; then flatten, then one "
        "linear layer.",
        "Count: a convolution has out · in · k · k + out parameters, a linear layer out · in + out. With 16 channels "
        "of 7 × 7 pixels, the last layer has 7,850.",
        "`nn.Conv2d(1, 8, 3, padding=1)`, ReLU, `nn.MaxPool2d(2)`, `nn.Conv2d(8, 16, 3, padding=1)`, ReLU, "
        "`nn.MaxPool2d(2)`, `nn.Flatten()`, `nn.Linear(16 * 7 * 7, 10)`.",
    ),
    judge=judge,
    lends=solution,
)
