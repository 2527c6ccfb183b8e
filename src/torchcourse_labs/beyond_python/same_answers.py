"""Compare two versions of a model by their answers: which rows flip, and how sure the original was of them."""

from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Incorrect, Inputs, call, same, wrong_if


def solution(logits: Tensor, others: Tensor, labels: Tensor, tolerance: float) -> dict[str, Any]:
    before, after = logits.argmax(dim=1), others.argmax(dim=1)
    flipped = before != after
    largest = logits.topk(2, dim=1).values
    sure = largest[:, 0] - largest[:, 1] > tolerance
    gained = (after == labels).float().mean() - (before == labels).float().mean()
    return {
        "accuracy": gained.item(),
        "difference": ((others - logits).abs().max() / logits.abs().max()).item(),
        "flips": flipped.sum().item(),
        "same": bool(others.isfinite().all() and not (flipped & sure).any()),
    }


def draw(rng: Inputs, *margins: float) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of both versions and labels, in each row the original's answer first, then its second, and so on.

    margins: how far the original's two largest logits are apart in rows 0, 1, …, which flip; elsewhere it is 1 or more
    """
    rows, classes = rng.size(14, 19), rng.size(4, 6)
    first = 3 + rng.rand(rows, 1)
    logits = torch.cat([first, 0 * first + 1.5, first / 4, -2 - 3 * rng.rand(rows, classes - 3)], dim=1)
    logits[-1, -1] = -9.3  # the largest absolute value is negative
    others = logits + (rng.rand(rows, classes) - 0.5) * 0.01
    for row, margin in enumerate(margins):
        logits[row, 0] = 1.5 + margin
        others[row] = logits[row]
        others[row, :2] += margin * torch.tensor([-0.5, 0.6])
    labels = torch.zeros(rows, dtype=torch.int64)
    labels[-3:] = classes - 1  # wrong in both versions
    return logits, others, labels


def judge(answer: Any, rng: Inputs) -> None:
    tolerance = 0.125  # exact in binary
    unsure = logits, others, labels = draw(rng, 0.02, 0.06, 0.1, 0.07)  # the original is unsure where a row flips
    others[:4, 1] += 0.8
    others[3, 2] = 2.9  # to the third answer
    others[-1, -1] -= 2 + rng.rand(1).item()  # far apart, and no flip
    others[-2, 1:3] = others[-2, 1:3].flip(0)  # the second and the third change places: no flip either
    labels[:3] = torch.tensor([1, 1, 3])  # two gained, one wrong twice, one lost
    sure = draw(rng, 0.14, 0.02)  # of one of them, and no logit is far off
    gained = draw(rng, 0.14)
    sure[2][1] = gained[2][0] = 1  # one lost, one gained; one that was sure gained
    broken = draw(rng), draw(rng)
    broken[0][1][4, 0], broken[1][1][4, 0] = torch.nan, torch.inf
    for logits, others, labels in (unsure, sure, gained, draw(rng, tolerance), draw(rng), *broken):
        order = rng.rand(*logits.shape).argsort(dim=1)
        labels = (order == labels[:, None]).int().argmax(dim=1)
        judge_case(answer, logits.gather(1, order), others.gather(1, order), labels, tolerance)


def judge_case(answer: Any, logits: Tensor, others: Tensor, labels: Tensor, tolerance: float) -> None:
    expected, yours = solution(logits, others, labels, tolerance), call(answer, logits, others, labels, tolerance)
    if not isinstance(yours, dict) or not expected.keys() <= yours.keys():
        raise Incorrect("Your function should return a dict with four entries.", str([*expected]), yours)
    finite = bool(others.isfinite().all())
    looks = {
        "accuracy": "the share of rows whose `argmax(dim=1)` is the label: that of `others` minus that of `logits`",
        "difference": "the largest of the absolute differences, and the largest of the absolute values in `logits`",
        "flips": "every row whose answer changes, even from one wrong answer to another: `before != after`",
    }
    for name, look in looks.items() if finite else ():
        same(yours[name], expected[name], f'"{name}"', dtype=name == "flips", look=look)
    wrong_if(
        yours["same"] is True and not finite,
        "not_finite",
        "There is a nan or an infinite number in `others`, but your verdict is True. `<` and `>` don't catch a nan.",
        look="`isfinite`",
    )
    look = "a bool: False if the answer changes in a row whose two largest `logits` are more than `tolerance` apart"
    same(yours["same"], expected["same"], '"same"', look=look)


exercise = Exercise(
    title="Does it still give the same answers?",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Count the flips and look at how sure the original was: equal accuracy can hide many of them.",
    hints=(
        "Start with the two lists of answers: `logits.argmax(dim=1)` and the same for `others`. Three of the four "
        "entries need them. How sure a row is: `logits.topk(2, dim=1).values` has the two largest, in order.",
        "A nan is neither larger nor smaller than anything, so no comparison finds it: `others.isfinite().all()`.",
    ),
    judge=judge,
    lends=solution,
)
