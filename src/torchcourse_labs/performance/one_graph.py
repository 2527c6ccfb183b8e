"""Rewrite a function without graph breaks: tensors decide, and the gradients stay the same."""

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import AnswerRaised, Exercise, Inputs, call, near, observe, same, wrong_if
from labcheck.probes import SLOW_START
from torchcourse.lectures import compiling


def draw(rng: Inputs) -> tuple[dict[str, Tensor], Tensor]:
    """Batches of one shape, and the gain."""
    shape = rng.size(2, 4), 3, *rng.sizes(2, 3, 6)
    positive = rng.rand(*shape) * 100 + 60
    mixed = rng.rand(*shape) * 180 - 60
    mixed[1] = positive[1]  # one image of positive values
    positive[0, 0, 0, 0] = positive.max() * 1e-5
    mixed.view(-1)[1:3] = torch.tensor([0.0, -200.0 - rng.size(0, 50)])
    batches = {
        "a batch of positive values": positive,
        "a batch with negative values": mixed,
        "a batch whose smallest value is 0": mixed.clamp(min=0),
    }
    return batches, rng.rand(3, 1, 1) + 0.5


def solution(x: Tensor, gain: Tensor) -> Tensor:
    x = x / x.abs().max().detach()
    bright = x.min() > 0
    root = torch.where(bright, x, 1.0).sqrt()
    return torch.where(bright, root, x) * gain


def with_gradients(function: Callable, batches: list[Tensor], gain: Tensor) -> list[tuple]:
    """A probe: for each batch the result, the gradient of x, and the gradient of gain."""
    found = []
    for images in batches:
        x, factor = images.clone().requires_grad_(), gain.clone().requires_grad_()
        result, gradients = call(function, x, factor, may_change=True), (None, None)
        if isinstance(result, Tensor) and result.requires_grad:
            with torch.enable_grad():  # the answer may have left it off
                weighted = (result * torch.linspace(0.5, 2, result.numel()).view(result.shape)).sum()
            gradients, result = torch.autograd.grad(weighted, (x, factor), allow_unused=True), result.detach()
        found.append((result, *gradients))
    return found


def captured(answer: Callable, batches: list[Tensor], gain: Tensor) -> dict[str, Any]:
    """A probe: what the answer computes as it is and compiled, how many graphs, and where the code is cut first."""

    def through(*inputs: Any) -> Any:  # so that `@torch.compiler.disable` on the answer itself counts
        return answer(*inputs)

    compiled = None
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        eager = with_gradients(answer, batches, gain)
        with compiling.counting() as backend:
            try:
                compiled = with_gradients(torch.compile(through, backend=backend), batches, gain)
            except AnswerRaised as raised:
                if not isinstance(raised.error, torch._dynamo.exc.TorchDynamoException):
                    raise
            places, graphs = backend.breaks, len(backend.graphs)
        cut = bool(places) or compiled is None or graphs == 0
        first = compiling.first_break(through, batches[0], gain) if cut else None
    places += [(first.file, first.number, first.line)] if first else []
    lines = [line for file, _, line in places if line and file != captured.__code__.co_filename]
    reason = first.reason if first else None
    return {"eager": eager, "compiled": compiled, "graphs": graphs, "cut": cut, "reason": reason, "lines": lines}


def judge(answer: Any, rng: Inputs) -> None:
    batches, gain = draw(rng)
    inputs = [*batches.values()], gain
    right = with_gradients(solution, *inputs)
    through_scale = with_gradients(lambda x, gain: solution(x / x.abs().max(), gain), *inputs)
    seen = observe(answer, captured, *inputs)
    for way, said in ("eager", ""), ("compiled", ", compiled"):
        if way == "eager" or not seen["cut"]:  # code in several graphs has its own sentence
            for what, x, *results in zip(batches, inputs[0], seen[way], right, through_scale, strict=True):
                judge_batch(what + said, x, gain, *results)
    wrong_if(
        seen["cut"],
        "cut",
        f"Your function is right, but not in one graph: it ends at `{(*seen['lines'], 'your function')[0]}`.",
        look="leave a print out; keep a number as a tensor, with `.detach()` instead of `.item()` or `float()`; let "
        "`torch.where` pick instead of `if`, `and`, or `not`, which ask a tensor in Python",
        yours=f"PyTorch says: {seen['reason'] or 'a Python number is asked for'}",
    )
    same(seen["graphs"], 1, "The number of graphs for batches of one shape")


def judge_batch(what: str, x: Tensor, gain: Tensor, yours: tuple, right: tuple, through_scale: tuple) -> None:
    (result, *gradients), scaled = yours, x / x.abs().max()
    wrong_if(
        x.min() < 0 and near(result, torch.where(x > 0, scaled.abs().sqrt(), scaled) * gain),
        "one_by_one",
        "You decide for each value; the original decides once for the whole batch.",
    )
    look = "what `expose_in_pieces` does: the largest absolute value of all, whether all are > 0, times `gain`"
    same(result, right[0], f"The result for {what}", look=look)
    wrong_if(
        any(isinstance(each, Tensor) and each.isnan().any() for each in gradients),
        "nan",
        "Your results are right, but the gradient has nan in it. `torch.where` computes both branches, and in backward "
        "the one that isn't picked gets a gradient of 0: 0 times inf is nan.",
        look="what goes into the root where its result is not used",
    )
    wrong_if(
        near(gradients[0], through_scale[1]) and not near(gradients[0], right[1]),
        "through_scale",
        "Your results are right, but the gradient also flows through the largest value. In the original, `.item()` "
        "made it a number, a constant for backward.",
        look="`.detach()` does for a tensor what `.item()` did for the gradient",
    )
    look = "both branches in backward, and what `.item()` did: only the largest value is a constant"
    for name, gradient, expected in zip(("x", "gain"), gradients, right[1:], strict=True):
        same(gradient, expected, f"The gradient of `{name}` for {what}", look=look)


exercise = Exercise(
    title="One graph",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="In one graph, tensors decide inside of operations, and both branches have to be safe in backward.",
    hints=(
        "`x.abs().max().detach()` is the number as a tensor. `torch.where(condition, a, b)` computes both a and b, and "
        "picks; backward goes through both, and 0 times inf is nan.",
        "Make the input of the root safe before you take it: `torch.where(bright, x, 1.0).sqrt()`. Then pick with a "
        "second `torch.where`.",
    ),
    judge=judge,
    seconds=SLOW_START,
)
