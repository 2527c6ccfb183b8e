"""Register an operator: what it computes, a fake, and a gradient."""

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from labcheck.authoring import Exercise, Incorrect, Inputs, attempted, call, near, observe, same, wrong_if
from torchcourse_labs.beyond_python._shared import SECONDS, attempt, first_line, quietly

Row = tuple[Tensor, int, Tensor]  # x, width, and the gradient that comes back to the operator's result


def sliding_mean(array: np.ndarray, width: int) -> np.ndarray:
    """The function that the lab gives."""
    return np.lib.stride_tricks.sliding_window_view(array, width, axis=1).mean(axis=2)


def solution(name: str) -> None:
    @torch.library.custom_op(name, mutates_args=())
    def moving_mean(x: torch.Tensor, width: int) -> torch.Tensor:
        return torch.from_numpy(sliding_mean(x.numpy(), width)).contiguous()

    @moving_mean.register_fake
    def _(x, width):
        return x.new_empty(x.shape[0], x.shape[1] - width + 1)

    def remember(ctx, inputs, output):
        ctx.width = inputs[1]

    def backward(ctx, gradient):
        around = F.pad(gradient, (ctx.width - 1, ctx.width - 1))
        return around.unfold(1, ctx.width, 1).mean(dim=2), None

    moving_mean.register_autograd(backward, setup_context=remember)


def draw(rng: Inputs) -> list[Row]:
    """Both dtypes, a width of 1 and one of the whole row, a transposed tensor, and a gradient that shows its way."""
    rows, columns = rng.sizes(2, 5, 9)
    x = rng.randn(rows, columns)
    pairs = (x.double(), rng.size(2, 4)), (rng.randn(columns, rows).T, 3), (x, 1), (x, columns)
    rows = [(x, width, rng.randn(len(x), x.shape[1] - width + 1).to(x.dtype)) for x, width in pairs]
    return [*rows, (rng.randn(1, 5), 3, torch.tensor([[3.0, 0, 0]]))]


def registered(name: str) -> Any:
    """The operator lab::NAME; apart, as functions with both `torch` and `ops` in them cannot be sent to a process."""
    from torch import ops

    return getattr(ops.lab, name).default


def tried(answer: Callable, rows: list[Row]) -> dict[str, Any]:
    """A probe: what the operator returns and promises, its gradients, and what opcheck finds. Errors are strings."""
    attempted(answer)
    name = f"moving_mean_{uuid.uuid4().hex[:12]}"
    with quietly():
        call(answer, f"lab::{name}", may_return_none=True)
        operator = attempt(registered, name)
        if isinstance(operator, str):
            look = "the first argument of `custom_op`: the name that your function gets"
            raise Incorrect("There is no operator of that name after your function has run.", look=look)

        def promise(x: Tensor, width: int, back: Tensor) -> tuple:
            result = operator(x.to("meta"), width)
            return tuple(result.shape), result.dtype

        def gradient(x: Tensor, width: int, back: Tensor) -> Tensor:
            x = x.clone().requires_grad_()
            result = operator(x, width)
            operator(x, 1)  # another call, before this one goes backward: what a call saves belongs to it
            return torch.autograd.grad(result, x, back.clone())[0]

        def objections(x: Tensor, width: int, back: Tensor) -> str:
            verdicts = torch.library.opcheck(operator, (x.clone().requires_grad_(), width), raise_exception=False)
            return next((first_line(f"{test}: {said}") for test, said in verdicts.items() if said != "SUCCESS"), "")

        return {
            "results": [attempt(lambda x, width, _: operator(x.clone(), width=width), *row) for row in rows],
            "promises": [attempt(promise, *row) for row in rows],
            "gradients": [attempt(gradient, *row) for row in rows],
            "opcheck": [attempt(objections, *row) for row in rows[:2]],
        }


def judge(answer: Any, rng: Inputs) -> None:
    rows = draw(rng)
    seen = observe(answer, tried, rows)
    for (x, width, _), result, promise in zip(rows, seen["results"], seen["promises"], strict=True):
        expected, what = x.unfold(1, width, 1).mean(2), f"for {x.dtype}, rows of {x.shape[1]} and a width of {width}"
        if isinstance(result, str):
            look = "its arguments, (Tensor x, int width), and what it returns: a new tensor"
            raise Incorrect(f"Your operator raises an error {what}.", yours=result, look=look)
        same(result, expected, f"The result {what}")
        if x.dtype == torch.float64 and not near(result, expected, 1e-9, 1e-9):
            look = "`.float()`, `np.float32`: NumPy computes in the dtype that it gets"
            raise Incorrect("For a float64 x, your results have only the precision of float32.", look=look)
        wrong_if(
            isinstance(promise, str),
            "no_fake",
            "Your operator computes, but it has no fake that works: export and compile ask what shape and dtype come "
            "out, and their tensors hold no values.",
            look="`register_fake`, `x.new_empty(...)`",
            yours=promise,
        )
        look = "`x.new_empty(...)`: the shape of the result, and the dtype of x"
        same(promise, (tuple(expected.shape), x.dtype), f"What your fake promises {what}", look=look)
    judge_gradients(rows, seen["gradients"])
    if objection := next(filter(None, seen["opcheck"]), ""):
        look = "a contiguous result, as in the fake; `backward`: PyTorch's functions, and `gradient` stays as it is"
        raise Incorrect("Your results and gradients are right, but opcheck objects.", yours=objection, look=look)


def judge_gradients(rows: list[Row], gradients: list) -> None:
    error = next((gradient for gradient in gradients if isinstance(gradient, str)), "")
    wrong_if(
        "no autograd formula" in error or "does not require grad" in error,
        "no_gradient",
        "Your operator has no gradient: a model with it cannot be trained.",
        look="`register_autograd`",
    )
    wrong_if(
        "incorrect number of gradients" in error or "different than None at position" in error,
        "none_for_width",
        "`backward` returns one value for each input, in their order: the gradient for x, then None for the width.",
    )
    if error:
        look = "`backward`, and `setup_context=` of `register_autograd`, which keeps what `backward` needs in `ctx`"
        raise Incorrect("Your operator computes its result, but not its gradient.", yours=error, look=look)
    look = "each x is in up to `width` windows; each of them sends its gradient back, divided by `width`"
    same(gradients[-1].tolist(), [[1.0] * 3 + [0.0] * 2], "What width 3 makes of the gradient [[3, 0, 0]]", look=look)
    for (_, width, back), gradient in zip(rows, gradients, strict=True):
        expected = F.pad(back, (width - 1, width - 1)).unfold(1, width, 1).mean(2)
        same(gradient, expected, f"The gradient for a width of {width}", look=look)


exercise = Exercise(
    title="An operator of your own",
    minutes=14,
    difficulty=4,
    points=4,
    takeaway="An operator is three things: what it computes, what comes out without computing it, and its gradient.",
    hints=(
        "The lecture's `snap` has the same three parts. But here the result is smaller than x, and `backward` needs "
        "the second input: `setup_context(ctx, inputs, output)` puts the width into `ctx.width`.",
        "The fake: `x.new_empty(rows, columns)` keeps the dtype. The gradient of x is the mean over `width` "
        "neighboring gradients, with zeros beyond both ends: `F.pad(gradient, (width - 1, width - 1))"
        ".unfold(1, width, 1).mean(dim=2)`. Return None for the width.",
    ),
    judge=judge,
    seconds=SECONDS,
)
