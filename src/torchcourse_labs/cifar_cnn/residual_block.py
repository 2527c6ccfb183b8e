"""A residual block: the sum of a branch and a shortcut."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, call, near, observe, wrong_if


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        nn.init.zeros_(self.norm2.weight)
        fits = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if fits else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return self.shortcut(x) + self.norm2(self.conv2(y))


solution = ResidualBlock


def watched(answer: Callable, arguments: tuple, x: Tensor) -> dict[str, Any]:
    """A probe: what a new block makes of |x|; and with other weights, what each convolution and batch norm did."""
    block = call(answer, *arguments)
    if not isinstance(block, nn.Module):
        return {"instead": block}
    layers: list[dict] = []

    def see(layer: nn.Module, given: Tensor, output: Tensor) -> Tensor:
        kind = f"conv {layer.kernel_size[0]}×{layer.kernel_size[1]}" if isinstance(layer, nn.Conv2d) else "norm"
        own = layer in block.modules() and id(layer) not in (each["id"] for each in layers)
        values = {"given": given.detach().clone(), "output": output.detach().clone()}
        layers.append({"kind": kind, "id": id(layer), "own": own, **values})
        return output

    def watch(kind: type) -> Any:  # no hook: `self.conv1.forward(x)` is right, too
        forward = kind.forward
        return mock.patch.object(kind, "forward", lambda layer, input: see(layer, input, forward(layer, input)))

    zero = [id(m) for m in block.modules() if isinstance(m, nn.BatchNorm2d) and m.affine and not m.weight.any()]
    try:
        with watch(nn.Conv2d), watch(nn.BatchNorm2d):
            new = [call(block.train(mode), x.abs()) for mode in (True, False)]
        output = call(block.train(), x)
        if isinstance(output, Tensor) and output.requires_grad:
            output.square().sum().backward()
    except AnswerRaised as raised:
        if "must match" not in str(raised):
            raise
        return {"sizes": [f"{x['kind']}: {tuple(x['output'].shape[1:])}" for x in layers if x["kind"] != "norm"]}
    except RuntimeError as error:
        raise AnswerRaised(RuntimeError(f"in backward(), as after `x += y` for `x + y`: {error}")) from error
    layers.clear()
    slopes = [p.grad.abs().max() for n, p in block.named_parameters() if p.grad is not None and "bias" not in n]
    with torch.no_grad():
        for value in (*block.parameters(), *block.buffers()):
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) + 0.1).mul_(torch.randn_like(value).sign() if value.dim() > 1 else 1)
    with watch(nn.Conv2d), watch(nn.BatchNorm2d):
        output = call(block.eval(), x)
    return {"new": new, "zero": zero, "slope": float(max(slopes, default=0)), "layers": layers, "output": output}


def judge(answer: Any, rng: Inputs) -> None:
    few, many = rng.size(3, 5), rng.size(6, 8)
    height, width = rng.sizes(2, 4, 6)
    for inputs, outputs, stride in ((few, few, 1), (few, many, 1), (few, few, 2), (many, few, 2)):
        x = rng.randn(5, inputs, 2 * height + 1, 2 * width)
        here = f"With {inputs} → {outputs} channels and stride {stride}"
        seen = observe(answer, watched, (inputs, outputs, stride), x)
        every = x[:, :, ::stride, ::stride]
        wrong_if(
            "sizes" in seen,
            "does_not_fit",
            f"{here}, branch and shortcut do not fit together.",
            look="the stride belongs to the first 3×3 convolution and to the shortcut, `padding=1` to each 3×3 "
            "convolution and to no 1×1; the shortcut is a 1×1 convolution wherever stride or channels change",
            expected=f"{(outputs, *every.shape[2:])} from the branch and from the shortcut",
            yours=", ".join(seen.get("sizes", [])),
        )
        if "instead" in seen or not isinstance(seen["output"], Tensor):
            what = seen.get("instead", seen.get("output"))
            raise Incorrect("Your block should be an nn.Module whose `forward` returns a tensor.", "a tensor", what)
        judge_block(seen, x, every, outputs, here)


def judge_block(seen: dict, x: Tensor, every: Tensor, outputs: int, here: str) -> None:
    """every: the pixels of x that a 1×1 convolution with the stride of the block looks at"""
    output, branch, shortcut = seen["output"], [], []
    if not all(layer["own"] for layer in seen["layers"]):
        look = "a layer that `forward` calls twice or creates, or layers in a Python list: make each an attribute"
        raise Incorrect("Each layer of the block needs its own weights, where an optimizer finds them.", look=look)
    for layer in seen["layers"]:
        sources = {"conv 1×1": [x, every], "norm": shortcut}.get(layer["kind"], [])
        if any(near(layer["given"], source) for source in sources):
            shortcut.append(layer["output"])
        else:
            branch.append(layer)
    kinds, right = [layer["kind"] for layer in branch], ["conv 3×3", "norm"] * 2
    if kinds != right:
        look = "the order of the layers, and the size of the kernels; only the shortcut has a 1×1 convolution"
        raise Incorrect("The branch needs these layers, in this order.", ", ".join(right), ", ".join(kinds), look)
    outputs_of = [layer["output"] for layer in branch]
    sources = {
        "the input of the block": x,
        "what the first convolution returns": outputs_of[0],
        "the ReLU of what the first batch norm returns": F.relu(outputs_of[1]),
        "what the second convolution returns": outputs_of[2],
    }
    for layer, (source, value) in zip(branch, sources.items(), strict=True):
        wrong_if(
            not near(layer["given"], value) and not near(layer["given"], F.pad(value, (1,) * 4)),
            "branch",
            f"The branch is conv 3×3, norm, ReLU, conv 3×3, norm: no {layer['kind']} is applied to {source}.",
        )
    sizes = [tuple(output.shape[2:]) for output in outputs_of]
    if sizes != [tuple(every.shape[2:])] * 4:
        look = "the stride belongs to the first convolution, and `padding=1` to both"
        raise Incorrect(f"{here}, a layer of the branch has the wrong size.", tuple(every.shape[2:]), sizes, look)
    same_shape = x.shape == every.shape and x.shape[1] == outputs
    sums = [outputs_of[3] + value for value in ([x] if same_shape else shortcut)]
    wrong_if(
        same_shape and any(near(output, outputs_of[3] + value) for value in shortcut),
        "always_conv",
        f"{here}, nothing changes the shape, so the shortcut is the input itself. Yours has a convolution.",
        look="`nn.Identity()`, unless stride or channels change: decide it in `__init__`",
    )
    wrong_if(
        not any(near(output, total) or near(output, F.relu(total)) for total in sums),
        "not_the_sum",
        f"{here}, your block does not return the sum of branch and shortcut, each of them once and as it is.",
        look="`self.shortcut(x) + self.branch(x)`, ReLU only after it; shortcut: `nn.Identity()` or a 1×1 convolution",
    )
    wrong_if(
        seen["slope"] < 0.1
        or (same_shape and not all(near(new, x.abs()) for new in seen["new"]))
        or (same_shape and branch[3]["id"] not in seen["zero"]),
        "start",
        "A new block should be the identity, and still learn: only the last batch norm starts with weight 0.",
        look="`nn.init.zeros_` on the weight of the last batch norm, no other zeros, and no `requires_grad_(False)`",
    )


exercise = Exercise(
    title="A residual block",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="You can stack many blocks that start as the identity: the gradient always has an open path.",
    hints=(
        "Two paths lead from the input to the sum: the branch (conv, norm, ReLU, conv, norm) and the shortcut. It is "
        "`nn.Identity()` where stride is 1 and the channels are equal, else a 1×1 convolution with the same stride.",
        "`self.shortcut(x) + self.branch(x)`, with `nn.init.zeros_` on the weight of the last batch norm.",
    ),
    judge=judge,
    seconds=probes.SLOW_START,
)
