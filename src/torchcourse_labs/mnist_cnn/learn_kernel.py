"""The weights of an unknown convolution, found by gradient descent from what goes in and what comes out."""

import torch
import torch.nn.functional as F
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, near, wrong_if


def draw(rng: Inputs) -> list[tuple]:
    """Several channels on both sides; then one of each, and a kernel that isn't square."""
    cases = []
    for b, c, o, h, w in ((rng.size(15, 20), 2, 3, 3, 3), (rng.size(21, 30), 1, 1, 2, 3)):
        images = rng.randn(b, c, rng.size(7, 9), rng.size(10, 12))
        cases.append((images, F.conv2d(images, rng.randn(o, c, h, w), rng.randn(o)), (h, w)))
    return cases


def solution(images: Tensor, outputs: Tensor, kernel_size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Where descent ends: outputs = windows · weights + bias is a linear system, and its solution is exact."""
    windows = F.unfold(images, kernel_size).transpose(1, 2).flatten(0, 1)  # [places, C · h · w]
    wanted = outputs.flatten(2).transpose(1, 2).flatten(0, 1)  # [places, O]
    found = torch.linalg.lstsq(F.pad(windows, (0, 1), value=1), wanted).solution.T
    return found[:, :-1].reshape(-1, images.shape[1], *kernel_size), found[:, -1]


def explain(yours: tuple, expected: tuple, images: Tensor, outputs: Tensor, kernel_size: tuple[int, int]) -> None:
    weight, bias = yours
    if [getattr(part, "shape", None) for part in yours] != [part.shape for part in expected]:
        return
    wrong_if(
        near(bias, torch.zeros_like(bias)),
        "no_bias",
        "The weights alone don't explain the outputs: each output channel also adds a number, its bias.",
        look="`nn.Conv2d` has a bias unless you say `bias=False`; the optimizer needs both parameters",
    )
    flipped = near(weight.flip(2, 3), expected[0], 0, 0.02)
    wrong_if(flipped, "flipped", "Your kernels are turned around: a convolution of PyTorch applies them as they are.")
    loss = F.mse_loss(F.conv2d(images, weight, bias), outputs).item()
    wrong_if(
        not loss <= 0.5 * outputs.var(),  # nan, too
        "not_learned",
        f"With the weights that you return, the mean of the squared errors is {loss:.2g}, and it can be zero.",
        look="zero_grad, backward and step in each round; a few hundred rounds; a `return` inside the loop; the loss; "
        "the optimizer of *this* layer; the learning rate",
    )
    wrong_if(
        not near(weight, expected[0], 0, 0.02) or not near(bias, expected[1], 0, 0.02),
        "too_early",
        f"On the way, but not there: the mean of your squared errors is {loss:.2g}, and it can be zero.",
        look="more steps, a larger learning rate, momentum, or Adam; `zero_grad` in each round; no weight decay",
    )


exercise = Exercise(
    seconds=30.0,  # the first optimizer of a process takes seconds, and a training does
    title="Learn a kernel",
    minutes=8,
    difficulty=2,
    points=3,
    takeaway="Nobody has to write kernels: what goes in and what comes out determine them, and descent finds them.",
    hints=(
        "Make an `nn.Conv2d` with the channels of `images` and `outputs`, and train it as in chapter 02.",
        "The loss is `F.mse_loss(layer(images), outputs)`. With Adam at 0.05, a few hundred steps are enough.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        explain=explain,
        rtol=0,
        atol=0.02,
        look="`return layer.weight.detach(), layer.bias.detach()`, in this order",
    ),
)
