"""Rewrite a function without graph breaks: tensors decide, and the gradients stay the same."""

import contextlib
import io
import re
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
            weights = torch.linspace(0.5, 2, result.numel()).view(result.shape)
            with torch.enable_grad():  # the answer may have left it off
                weighted = (result * weights).sum()
            gradients, result = torch.autograd.grad(weighted, (x, factor), allow_unused=True), result.detach()
        found.append((result, *gradients))
    return found


def captured(answer: Callable, batches: list[Tensor], gain: Tensor) -> dict[str, Any]:
    """A probe: what the answer computes as it is and compiled, the graphs, and where the code is cut first."""

    def through(*inputs: Any) -> Any:  # so that `@torch.compiler.disable` on the answer itself counts
        return answer(*inputs)

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        seen: dict[str, Any] = {"eager": with_gradients(answer, batches, gain), "compiled": None, "reason": ""}
        with compiling.counting() as backend:
            try:
                seen["compiled"] = with_gradients(torch.compile(through, backend=backend), batches, gain)
            except AnswerRaised as raised:
                if not isinstance(raised.error, torch._dynamo.exc.TorchDynamoException):
                    raise
            places = backend.breaks
            seen["graphs"] = len(backend.graphs)
        seen["cut"] = bool(places) or seen["compiled"] is None or seen["graphs"] == 0
        if seen["cut"]:
            first = compiling.first_break(through, batches[0], gain)
            places += [(first.file, first.number, first.line)] if first else []
            seen["reason"] = first.reason if first else ""
        ours = captured.__code__.co_filename
        seen["line"] = next((line for file, _, line in places if line and file != ours), "your function")
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    batches, gain = draw(rng)
    inputs = [*batches.values()], gain
    right = with_gradients(solution, *inputs)
    through_scale = with_gradients(lambda x, gain: solution(x / x.abs().max(), gain), *inputs)
    seen = observe(answer, captured, *inputs)
    for way, said in ("eager", ""), ("compiled", ", compiled"):
        if way == "eager" or not seen["cut"]:  # code in several graphs has its own sentences
            for what, x, *results in zip(batches, inputs[0], seen[way], right, through_scale, strict=True):
                judge_batch(what + said, x, gain, *results)
    judge_graphs(seen)


def judge_batch(what: str, x: Tensor, gain: Tensor, yours: tuple, right: tuple, through_scale: tuple) -> None:
    (result, *gradients), scaled = yours, x / x.abs().max()
    if isinstance(result, Tensor) and result.shape == x.shape:
        smallest = x.amin((1, 2, 3), keepdim=True)
        each = [torch.where(value > 0, scaled.abs().sqrt(), scaled) * gain for value in (x, smallest)]
        wrong_if(
            x.min() < 0 and any(near(result, other) for other in each),
            "one_by_one",
            "You decide for each value or each image; the original decides once for the whole batch.",
        )
        differs = ~torch.isclose(result.double(), right[0].double(), 1e-3, 1e-5)
        wrong_if(
            differs.sum() == 1 and differs[0, 0, 0, 0] and x.min() > 0,
            "floor",
            "Your root changes small positive values. Any value above 0 counts, so a floor or an eps is no way to keep "
            "the root safe.",
            look="`torch.where` before the root",
        )
    same(result, right[0], f"The result for {what}", look="what `expose_in_pieces` returns for such a batch")
    wrong_if(
        any(each is None for each in gradients),
        "cut_off",
        "No gradient arrives at `x` or `gain`: something cuts your result off from its graph.",
        look="only the largest value is a constant: `.detach()` belongs to it alone",
    )
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


def judge_graphs(seen: dict[str, Any]) -> None:
    line, reason = seen["line"], seen["reason"]

    def cut_at(words: str) -> bool:
        return bool(seen["cut"] and re.search(words, line))

    wrong_if(
        cut_at(r"\bprint\("),
        "print",
        f"Your function is right, but not in one graph. Printing is Python's work, so the graph ends at `{line}`.",
        look="leave the print out",
    )
    wrong_if(
        cut_at(r"\.(item|tolist|numpy)\(|(?<![\w.])(float|int)\(") and "compiler.disable" not in reason,
        "number",
        f"Your function is right, but not in one graph. `{line}` asks for a Python number, and the graph ends there.",
        look="keep the number as a tensor: `.detach()` instead of `.item()`",
    )
    wrong_if(
        cut_at(r"\b(if|while|and|or|not|assert)\b|(?<![\w.])bool\("),
        "branch",
        f"Your function is right, but not in one graph. At `{line}` Python has to know which way to go, and that "
        "depends on the data.",
        look="`torch.where` picks inside the graph",
    )
    wrong_if(
        seen["cut"],
        "cut",
        f"Your function is right, but not in one graph: it ends at `{line}`. PyTorch says: {reason}",
    )
    same(seen["graphs"], 1, "The number of graphs for batches of one shape")


exercise = Exercise(
    title="One graph",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="In one graph, tensors decide inside of operations, and both branches have to be safe in backward.",
    hints=(
        "Three lines leave the world of tensors: one makes a Python number, one prints it, and one lets Python decide "
        "by it. The print may go. What did `.item()` do to the gradient?",
        "`x.abs().max().detach()` is the number as a tensor. `torch.where(condition, a, b)` computes both a and b, and "
        "picks; backward goes through both, and 0 times inf is nan.",
        "Make the input of the root safe before you take it: `torch.where(bright, x, 1.0).sqrt()`. Then pick with a "
        "second `torch.where`.",
    ),
    judge=judge,
    seconds=SLOW_START,
)
