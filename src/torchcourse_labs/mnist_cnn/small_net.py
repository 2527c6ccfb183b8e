"""A convolutional network with at most 20,000 parameters."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, wrong_if
from labcheck.probes import SLOW_START

BUDGET = 20_000


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


def looked_at(answer: Any, images: Tensor, labels: Tensor, seed: int) -> dict[str, Any]:
    """A probe: what a network does with these images, and with others; its parameters, and which of them learn."""
    torch.manual_seed(seed)
    model = answer if isinstance(answer, nn.Module) else call(answer, may_return_none=True)
    if model is answer or not isinstance(model, nn.Module):
        return {"instead": model}
    model.cpu().eval()
    seen = {"hidden": hidden_layers(model), "logits": call(model, images, may_return_none=True)}
    if not isinstance(seen["logits"], Tensor) or seen["logits"].shape != (len(images), 10):
        return seen
    others = 2 * images.flip(3)
    given = {"again": images, "zero": 0 * images, "others": others, "sum": images + others}
    seen |= {name: call(model, each) for name, each in given.items()}
    seen["in company"] = call(model, torch.cat([others, images, others]))[len(images) : -len(images)]
    seen["amplified"] = amplified(answer, images)
    seen["operations"] = probes.operations(model, images)
    seen["sizes"] = {name: parameter.numel() for name, parameter in nn.Module.named_parameters(model)}  # of no subclass
    loss = F.cross_entropy(call(model.train(), torch.cat([images, others])), torch.cat([labels, labels]))
    if loss.requires_grad:
        loss.backward()
    learning = {name: each.grad for name, each in model.named_parameters() if each.requires_grad}
    seen["asleep"] = [name for name, gradient in learning.items() if gradient is None] if learning else ["all of it"]
    return seen


def hidden_layers(model: nn.Module) -> str | None:
    """The attribute in which layers are that PyTorch doesn't see."""
    for name, value in vars(model).items():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        if not name.startswith("_") and any(isinstance(part, nn.Module) for part in parts):
            return name
    return None


def amplified(answer: Callable, images: Tensor) -> Tensor:
    """Logits of three networks with large weights: if something squashes them, it shows."""
    outputs = []
    for _ in range(3):
        model = call(answer).cpu().eval()
        with torch.no_grad():
            model(images)  # lazy layers get their weights
            for parameter in model.parameters():
                parameter.mul_(5).add_(torch.randn_like(parameter))
            outputs.append(model(10 * images))
    return torch.cat(outputs)


def differ(one: Tensor, other: Tensor) -> bool:
    return not torch.allclose(one, other, rtol=1e-4, atol=1e-4, equal_nan=True)


def judge(answer: Any, rng: Inputs) -> None:
    for b in (rng.pick([3, 5, 6, 7, 9]), 1):
        images, labels, seed = rng.randn(b, 1, 28, 28), rng.ints(0, 10, (b,)), rng.size(0, 10**6)
        seen = observe(answer, looked_at, images, labels, seed)
        if "instead" in seen:
            look = "`check(…, SmallNet)`, without parentheses; a function has to return an nn.Module"
            raise Incorrect(
                "The check needs your class, or a function that makes networks.", yours=seen["instead"], look=look
            )
        judge_layers(seen, b)
        judge_logits(seen)
        judge_learning(seen)


def judge_layers(seen: dict[str, Any], b: int) -> None:
    wrong_if(
        seen["hidden"],
        "hidden",
        f"The layers in `self.{seen['hidden']}` are in a plain list or dict: no optimizer will find them.",
        look="make them attributes, or use `nn.Sequential` or `nn.ModuleList`",
    )
    logits, expected = seen["logits"], f"a float32 tensor of shape ({b}, 10)"
    if not isinstance(logits, Tensor) or logits.shape != (b, 10) or logits.dtype != torch.float32:
        look = "the end of `forward`, its `return`, and the size of the last layer; `flatten(1)` leaves the batch alone"
        raise Incorrect(f"Your network should return ten logits for each of {b} images.", expected, logits, look)
    if not logits.isfinite().all():
        look = "a logarithm, a root or a division in `forward`"
        raise Incorrect("Some of your logits are nan or infinite.", "finite numbers", logits, look)


def judge_logits(seen: dict[str, Any]) -> None:
    logits, large = seen["logits"], seen["amplified"]
    wrong_if(
        differ(logits, seen["again"]),
        "random",
        "In eval mode, the same images get different logits the second time: something is drawn at random.",
        look="`F.dropout` does not know the mode: use `nn.Dropout`. Layers belong in `__init__`",
    )
    wrong_if(
        differ(logits, seen["in company"]),
        "company",
        "The logits of an image depend on the other images of its batch.",
        look="each reshape, mean and maximum in `forward`: axis 0 is the batch",
    )
    softmax = any(not differ(numbers.sum(1), torch.ones(())) for numbers in (logits, logits.exp()))
    wrong_if(
        softmax or (large.abs() <= 1).all() or large.min() == 0 < large.max(),
        "after_last",
        "Something follows the last layer (softmax, sigmoid, ReLU …). Logits may be any numbers, and the loss has a "
        "softmax inside.",
        look="the last line of `forward`, or the last layer in `__init__`",
    )
    wrong_if(
        not any("conv" in name for name in seen["operations"]),
        "no_convolution",
        "There is no convolution in your network.",
        look="at least one `nn.Conv2d`, used in `forward`",
    )
    wrong_if(
        differ(logits, seen["zero"]) and not differ(logits + seen["others"], seen["sum"] + seen["zero"]),
        "linear",
        "Your network is linear from end to end, and could be replaced by a single layer: it needs an activation "
        "function between its layers.",
        look="something nonlinear between the layers: `nn.ReLU()` after each convolution",
    )


def judge_learning(seen: dict[str, Any]) -> None:
    total, largest = sum(seen["sizes"].values()), max(seen["sizes"].items(), key=lambda item: item[1], default=("", 0))
    wrong_if(
        total > BUDGET,
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
    seconds=SLOW_START,
    title="A network within a budget",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="Shrink the image before you flatten it: in a small network, most parameters are in the first linear "
    "layer.",
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
