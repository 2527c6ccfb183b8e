"""A network with channels_last from the first convolution to the last."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from labcheck.authoring import Exercise, Inputs, call, observe, same, wrong_if


class ShuffleNet(nn.Module):
    """The network that the lab gives."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, groups=2)
        self.conv3 = nn.Conv2d(channels, channels, 3, padding=1, groups=2)
        self.head = nn.Linear(channels, 10)

    def shuffle(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        x = x.reshape(batch, 2, channels // 2, height, width).transpose(1, 2)
        return x.reshape(batch, channels, height, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.shuffle(F.relu(self.conv2(F.relu(self.conv1(x)))))
        return self.head(F.relu(self.conv3(x)).mean((2, 3)))


class LastNet(ShuffleNet):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.to(memory_format=torch.channels_last)

    def shuffle(self, x: Tensor) -> Tensor:
        return super().shuffle(x).contiguous(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.contiguous(memory_format=torch.channels_last))


solution = LastNet


class Layouts(TorchDispatchMode):
    """Writes down whether the images and the weights of every convolution are in channels_last."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[bool]] = []

    def __torch_dispatch__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.__name__.partition(".")[0] == "convolution":
            self.seen.append([each.is_contiguous(memory_format=torch.channels_last) for each in args[:2]])
        return func(*args, **(kwargs or {}))


def laid_out(answer: Callable, channels: int, images: Tensor, state: dict[str, Tensor]) -> dict[str, Any]:
    """A probe: what the network with these weights computes, and in which layouts."""
    model = call(answer, channels, may_change=True)
    if not isinstance(model, nn.Module):
        return {"unfit": f"no module, but an object of the type {type(model).__name__}"}
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        return {"unfit": " ".join(str(error).split())}
    with Layouts() as layouts:
        logits = call(model, images, may_change=True)
    if isinstance(logits, Tensor) and logits.requires_grad:
        logits.sum().backward()
        logits = logits.detach()
    cut_off = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    return {"logits": logits, "layouts": layouts.seen, "cut off": cut_off}


def judge(answer: Any, rng: Inputs) -> None:
    channels = 2 * rng.size(3, 5)  # not 4: two groups of two can be swapped either way
    model = ShuffleNet(channels)
    state = {name: rng.randn(*value.shape) / 2 for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    images = rng.randn(rng.size(2, 4), 3, *rng.sizes(2, 5, 9))
    seen = observe(answer, laid_out, channels, images, state)
    wrong_if(
        "unfit" in seen,
        "other_parameters",
        "Your class should make a module with the parameters of the network above, so that trained weights still fit.",
        look="the layers and their names: keep all of them, and add none",
        yours=seen.get("unfit"),
    )
    look = "the layout may change, and nothing else: in the shuffle, the same channels change places"
    same(seen["logits"], model(images).detach(), "The output of your network", rtol=1e-3, atol=1e-3, look=look)
    look = "`detach`, `.data`, `no_grad`, NumPy"
    same(seen["cut off"], [], "The list of parameters at which no gradient arrives", look=look)
    wrong_if(
        not all(weights for _, weights in seen["layouts"]),
        "weights",
        "The weights are not in channels_last, so PyTorch rearranges them in every call.",
        look="`self.to(memory_format=torch.channels_last)`, after the layers are made",
    )
    lost = [number for number, (images, _) in enumerate(seen["layouts"], 1) if not images]
    wrong_if(
        lost,
        "inputs",
        f"The input of convolution {lost and lost[0]} is not in channels_last, so it has to rearrange it.",
        look="`x = x.contiguous(memory_format=torch.channels_last)` in `forward`, and in `shuffle` after the `reshape`",
    )
    same(len(seen["layouts"]), 3, "The number of convolutions that run")


exercise = Exercise(
    title="Channels last, all the way",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="A layout is kept from layer to layer until one reshape copies; look at strides where it matters.",
    hints=(
        "Three things need the layout: the weights, the images, and what comes out of the shuffle. Print "
        "`x.is_contiguous(memory_format=torch.channels_last)` before each convolution.",
        "`self.to(memory_format=torch.channels_last)` after the layers are made; "
        "`x.contiguous(memory_format=torch.channels_last)` where the images come in, and behind the second `reshape`.",
    ),
    judge=judge,
)
