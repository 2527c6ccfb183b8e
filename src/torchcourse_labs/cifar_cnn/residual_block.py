"""A residual block: the sum of a branch and a shortcut."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, near, observe, wrong_if


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        nn.init.zeros_(self.norm2.weight)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return self.shortcut(x) + y


solution = ResidualBlock


def judge(answer: Any, rng: Inputs) -> None:
    few, many = rng.size(3, 5), rng.size(6, 8)
    height, width = rng.sizes(2, 4, 6)
    for inputs, outputs, stride in ((few, few, 1), (few, many, 1), (many, few, 1), (few, few, 2), (few, many, 2)):
        x = rng.randn(5, inputs, 2 * height + 1, 2 * width)
        seen = observe(answer, probes.layers, (inputs, outputs, stride), x)
        if "instead" in seen or not isinstance(seen.get("output", x), Tensor):
            what = seen.get("instead", seen.get("output"))
            raise Incorrect("Your block should be an nn.Module whose `forward` returns a tensor.", "a tensor", what)
        judge_block(seen, x, outputs, stride, f"With {inputs} → {outputs} channels and stride {stride}")


def judge_block(seen: dict, x: Tensor, outputs: int, stride: int, here: str) -> None:
    layers = seen["layers"]
    wrong_if(
        not all(own for *_, own in layers) or len({weights for *_, weights, _ in layers}) < len(layers),
        "weights",
        "Each layer of the block needs its own weights, where an optimizer finds them.",
        look="a layer that `forward` calls twice or creates, or layers in a Python list: make each an attribute",
    )
    branch = judge_branch(layers, x, stride)
    wrong_if(
        "error" in seen,
        "does_not_fit",
        f"{here}, branch and shortcut do not fit together: {seen.get('error')}.",
        look="a 1×1 convolution with the same stride as shortcut, when stride or channels change",
    )
    points = [layer for layer in layers if layer[:2] == ("conv", 1)]
    same_shape = branch.shape == x.shape
    wrong_if(
        same_shape and points,
        "shortcut_not_plain",
        "Where the shape stays the same, the shortcut is the input itself, not a convolution of it.",
        look="`nn.Identity()` where stride is 1 and the channels are equal",
    )
    every = x[:, :, ::stride, ::stride]
    points = [layer for layer in points if same(layer[4], x) or same(layer[4], every)]
    norms = [layer for layer in layers if layer[0] == "norm" and any(same(layer[4], point[5]) for point in points)]
    shortcuts = [x] if same_shape else [layer[5] for layer in (*points, *norms)]
    output = seen["output"]
    wrong_if(
        any(same(output, F.relu(branch) + shortcut) for shortcut in shortcuts),
        "relu_before_sum",
        "There is a ReLU between the last batch norm and the sum, so the branch can add but never subtract.",
        look="the ReLU may come after the sum",
    )
    wrong_if(
        not any(same(output, branch + shortcut) or same(output, F.relu(branch + shortcut)) for shortcut in shortcuts),
        "not_the_sum",
        f"{here}, your block does not return the sum of branch and shortcut, each of them once and as it is.",
        look="`return self.shortcut(x) + self.branch(x)`; the shortcut is `nn.Identity()` or a 1×1 convolution",
    )
    wrong_if(
        same_shape and not all(same(new, x.abs()) for new in seen["new"]),
        "not_the_identity",
        "A new block already changes its input: the branch does not start at zero.",
        look="`nn.init.zeros_` on the weight of the last batch norm",
    )
    wrong_if(
        not seen["slope"] > 0.1,
        "does_not_learn",
        "The branch starts at zero and stays there: none of its weights gets a gradient. Only the last batch norm "
        "starts with weight 0.",
        look="a zero in the first batch norm, or `requires_grad`",
    )


def judge_branch(layers: list[tuple], x: Tensor, stride: int) -> Tensor:
    """What comes out of the branch: the layers are found by the values that go into them."""
    values = [x]
    for kind, side, step, given, relu in (
        ("conv", 3, stride, "the input", False),
        ("norm", 0, 0, "the output of the first convolution", True),
        ("conv", 3, 1, "the ReLU of the first batch norm's output", False),
        ("norm", 0, 0, "the output of the second convolution", False),
    ):
        padded = [F.pad(value, (1,) * 4) for value in values if side]
        found = [each for each in layers if each[:2] == (kind, side) and any(same(each[4], v) for v in values + padded)]
        wrong_if(
            not found,
            "branch",
            "The branch is not conv 3×3, batch norm, ReLU, conv 3×3, batch norm: there is no "
            f"{'conv 3×3' if side else 'batch norm'} applied to {given}.",
            look="the order of the layers, the size of the kernels, and what goes into each",
            yours=", ".join(f"{each[0]} {each[1]}×{each[1]}" if each[1] else each[0] for each in layers),
        )
        _, _, strides, padding, entered, *_ = found[0]
        wrong_if(
            side and (strides != step or (padding == 0 and not any(same(entered, value) for value in padded))),
            "stride_or_padding",
            f"In the branch, the first convolution should have the stride of the block, here {stride}, the second one "
            "stride 1, and both `padding=1`, so that the edges stay.",
            expected=f"stride {step}, padding 1",
            yours=f"stride {strides}, padding {padding}",
        )
        values = [F.relu(each[5]) if relu else each[5] for each in found]
    return values[0]


def same(one: Any, other: Tensor) -> bool:
    return near(one, other, 1e-4, 1e-4)


exercise = Exercise(
    title="A residual block",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="You can stack many blocks that start as the identity: the gradient always has an open path.",
    hints=(
        "Two paths lead from the input to the sum: the branch (conv, norm, ReLU, conv, norm) and the shortcut. "
        "When can the shortcut be the input itself, and when not?",
        "The shortcut is `nn.Identity()` as long as the stride is 1 and the channels are equal; otherwise it is a"
        " 1×1 convolution with the same stride. With `nn.init.zeros_(self.norm2.weight)` the branch starts at "
        "zero.",
        "`self.branch = nn.Sequential(conv(inputs, outputs, 3, stride, padding=1), norm, ReLU, conv(outputs, outputs, "
        "3, padding=1), norm)`, and `return self.shortcut(x) + self.branch(x)`.",
    ),
    judge=judge,
    seconds=probes.SLOW_START,
)
