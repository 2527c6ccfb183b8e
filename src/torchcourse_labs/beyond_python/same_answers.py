"""Compare two versions of a model by their answers: which rows flip, and how sure the original was of them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, call, near, same, wrong_if


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
    """Logits of both versions, which differ little, and labels.

    margins: how far the original's two largest logits are apart in rows 0, 1, …, which flip. In the other rows it is 1
        or more
    """
    rows, classes = rng.size(14, 19), rng.size(4, 6)
    order = torch.stack([rng.permutation(classes) for _ in range(rows)])
    first, second, third, last = (order[:, [i]] for i in (0, 1, 2, -1))
    logits = -2 - 3 * rng.rand(rows, classes)
    logits.scatter_(1, first, 3 + rng.rand(rows, 1)).scatter_(1, second, 1.5).scatter_(
        1, third, 1 + rng.rand(rows, 1) / 4
    )
    logits[-1, last[-1]] = -9.3  # the largest absolute value is negative
    others = logits + (rng.rand(rows, classes) - 0.5) * 0.01
    labels = first[:, 0].clone()
    labels[-3:] = last[-3:, 0]  # wrong in both versions
    for row, margin in enumerate(margins):
        logits[row, first[row]] = 1.5 + margin
        others[row] = logits[row]
        others[row, first[row]] -= 0.5 * margin
        others[row, second[row]] += 0.6 * margin
    return logits, others, labels


def judge(answer: Any, rng: Inputs) -> None:
    tolerance = 0.125
    logits, others, labels = draw(rng, 0.02, 0.06, 0.1, 0.07)  # the original is unsure where a row flips
    others[range(4), others[:4].argmax(dim=1)] += 0.8
    others[3, logits[3].topk(3).indices[2]] = 2.9  # to the third answer
    others[-1, labels[-1]] -= 2 + rng.rand(1).item()  # far apart, and no flip
    labels[:2], labels[2] = others[:2].argmax(dim=1), logits[2].argmin()  # two gained, one wrong twice, one lost
    judge_case(answer, logits, others, labels, tolerance)
    logits, others, labels = draw(rng, 0.1, 0.05, 0.08)  # three lost
    judge_case(answer, logits, others, labels, tolerance)
    logits, others, labels = draw(rng, 0.14, 0.02)  # sure of one of them, and no logit is far off
    labels[1] = others[1].argmax()  # one lost, one gained
    judge_case(answer, logits, others, labels, tolerance)
    judge_case(answer, *draw(rng, tolerance), tolerance)  # exact in binary
    logits, others, labels = draw(rng)
    judge_case(answer, logits, others, labels, tolerance)
    for column, value in ((logits[4].argmax(), torch.nan), (logits[4].argmax(), torch.inf), (0, -torch.inf)):
        broken = others.clone()
        broken[4, column] = value
        judge_case(answer, logits, broken, labels, tolerance)


def judge_case(answer: Any, logits: Tensor, others: Tensor, labels: Tensor, tolerance: float) -> None:
    expected, yours = solution(logits, others, labels, tolerance), call(answer, logits, others, labels, tolerance)
    wrong_if(
        not isinstance(yours, dict) or not expected.keys() <= yours.keys(),
        "no_dict",
        "Your function should return a dict with the four entries accuracy, difference, flips, and same.",
        yours=yours,
    )
    finite = bool(others.isfinite().all())
    if finite:
        judge_numbers(yours, expected, logits, others, labels)
    verdict = yours["same"]
    if isinstance(verdict, np.bool_) or (isinstance(verdict, Tensor) and verdict.numel() == 1):
        verdict = verdict.item()
    largest = logits.topk(2, dim=1).values[logits.argmax(dim=1) != others.argmax(dim=1)]
    margin = max((largest[:, 0] - largest[:, 1]).tolist(), default=0)
    wrong_if(
        verdict is True and not finite,
        "not_finite",
        "There is a nan or an infinite number in `others`, but your verdict is True. `<` and `>` don't catch a nan.",
        look="`isfinite`",
    )
    wrong_if(
        verdict is True and expected["same"] is False,
        "too_lenient",
        f"Your verdict is True, but the answer changes in a row where the original was sure: its two largest logits "
        f"are {margin:.3g} apart. The tolerance is {tolerance:g}.",
        look="each row that flips, and the two largest numbers of `logits` there, whichever the new answer is",
    )
    wrong_if(
        verdict is False and expected["same"] is True,
        "too_strict",
        f"Your verdict is False, but in the rows that flip, {len(largest)} of them, the original's two largest logits "
        f"are at most {margin:.3g} apart. The tolerance is {tolerance:g}, so either answer will do.",
        look="which rows count (those that flip), and what you compare with the tolerance",
    )
    same(verdict, expected["same"], "The verdict `same`")


def judge_numbers(yours: dict, expected: dict, logits: Tensor, others: Tensor, labels: Tensor) -> None:
    before, after = logits.argmax(dim=1), others.argmax(dim=1)
    wrong_if(
        expected["accuracy"] and near(yours["accuracy"], -expected["accuracy"]),
        "wrong_sign",
        "Your change of accuracy has the wrong sign: it is the accuracy of `others` minus that of `logits`, so it "
        "is negative for a worse version.",
    )
    same(yours["accuracy"], expected["accuracy"], "The change of accuracy", dtype=False)
    look = "the largest of the absolute differences, and the largest of the absolute values in `logits`"
    same(yours["difference"], expected["difference"], "The difference", dtype=False, look=look)
    right, still = before == labels, after == labels
    counts = (right ^ still, right & ~still, ~still, abs(right.sum() - still.sum()))
    wrong_if(
        not near(yours["flips"], expected["flips"])
        and any(near(yours["flips"], count.sum().item()) for count in counts),
        "flips_by_labels",
        "You count flips by way of the labels. A flip is any row whose answer changes, even from one wrong answer to "
        "another, and a gained answer does not make up for a lost one.",
    )
    same(yours["flips"], expected["flips"], "The number of flips", dtype=False, look="`before != after`")


exercise = Exercise(
    title="Does it still give the same answers?",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Count the flips and look at how sure the original was: equal accuracy can hide many of them.",
    hints=(
        "Start with the two lists of answers: `logits.argmax(dim=1)` and the same for `others`. Three of the four "
        "entries need them.",
        "How sure a row is: `logits.topk(2, dim=1).values` has the two largest, the larger one first. Look only at the "
        "rows that flip.",
        "A nan is neither larger nor smaller than anything, so no comparison finds it: `others.isfinite().all()`.",
    ),
    judge=judge,
    lends=solution,
)
