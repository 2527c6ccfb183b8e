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
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.shuffle(x)
        x = F.relu(self.conv3(x))
        return self.head(x.mean((2, 3)))


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
        self.images: list[bool] = []
        self.weights: list[bool] = []

    def __torch_dispatch__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.__name__.partition(".")[0] == "convolution":
            self.images.append(args[0].is_contiguous(memory_format=torch.channels_last))
            self.weights.append(args[1].is_contiguous(memory_format=torch.channels_last))
        return func(*args, **(kwargs or {}))


def laid_out(answer: Callable, channels: int, images: Tensor, state: dict[str, Tensor]) -> dict[str, Any]:
    """A probe: what the network with these weights computes, and in which layouts."""
    model = call(answer, channels, may_change=True)
    if not isinstance(model, nn.Module):
        return {"parameters": model}
    seen: dict[str, Any] = {"parameters": {name: tuple(value.shape) for name, value in model.state_dict().items()}}
    if seen["parameters"] == {name: tuple(value.shape) for name, value in state.items()}:
        model.load_state_dict(state)
        with Layouts() as layouts:
            logits = call(model, images, may_change=True)
        if isinstance(logits, Tensor) and logits.requires_grad:
            logits.sum().backward()
            logits = logits.detach()
        cut_off = [name for name, parameter in model.named_parameters() if parameter.grad is None]
        seen |= {"logits": logits, "images": layouts.images, "weights": layouts.weights, "cut off": cut_off}
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    for _ in range(2):
        channels = 2 * rng.size(3, 5)  # not 4: two groups of two can be swapped either way
        state = {name: rng.randn(*value.shape) / 2 for name, value in ShuffleNet(channels).state_dict().items()}
        images = rng.randn(rng.size(2, 4), 3, *rng.sizes(2, 5, 9))
        judge_run(*(observe(each, laid_out, channels, images, state) for each in (solution, answer)))


def judge_run(right: dict[str, Any], seen: dict[str, Any]) -> None:
    shapes, wanted = seen["parameters"], right["parameters"]
    both = isinstance(shapes, dict)
    wrong_if(
        shapes != wanted,
        "other_parameters",
        "Your class should make a module with the parameters of the network above, so that trained weights still fit.",
        look="the layers and their names: keep all of them, and add none",
        expected=sorted(wanted.items() - shapes.items()) if both else "a module",
        yours=sorted(shapes.items() - wanted.items()) if both else shapes,
    )
    look = "the layout may change, and nothing else: in the shuffle, the same channels change places"
    same(seen["logits"], right["logits"], "The output of your network", rtol=1e-3, atol=1e-3, look=look)
    wrong_if(
        seen["cut off"],
        "cut_off",
        f"Your logits are right, but no gradient arrives at {', '.join(seen['cut off'])}: something cuts the graph.",
        look="`detach`, `.data`, `no_grad`, NumPy",
    )
    images, weights = seen["images"], seen["weights"]
    wrong_if(
        not all(weights),
        "weights",
        "The weights are not in channels_last, so PyTorch rearranges them in every call.",
        look="`self.to(memory_format=torch.channels_last)`, after the layers are made",
    )
    wrong_if(
        images[:1] == [False],
        "images",
        "The images are not in channels_last when the first convolution gets them, so it has to rearrange them.",
        look="`x = x.to(memory_format=torch.channels_last)` in `forward`: the call returns a new tensor",
    )
    wrong_if(
        not all(images),
        "lost",
        f"The input of convolution {[*images, False].index(False) + 1} is not in channels_last: an operation before it "
        "loses the layout.",
        look="`.contiguous(memory_format=torch.channels_last)` at the end of `shuffle`; without a memory format, the "
        "layout is the ordinary one",
    )
    same([images, weights], [[True] * 3] * 2, "The list of which images and weights are in channels_last")


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
        "`x.to(memory_format=torch.channels_last)` where the images come in.",
        "In the shuffle, the second `reshape` copies into the ordinary layout. Send its result through "
        "`.contiguous(memory_format=torch.channels_last)`.",
    ),
    judge=judge,
)
