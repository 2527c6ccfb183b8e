"""The mean gain of several seeds with its interval, and whether it is real."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like, near, wrong_if
from labcheck.probes import plain_number


def draw(rng: Inputs) -> list[tuple]:
    def case(n: int, t: float, gain: float) -> tuple:
        """gain: as a multiple of the half width"""
        before, noise = 0.7 + 0.02 * rng.randn(n), rng.randn(n)  # the luck of a seed is the same before and after
        noise = (noise - noise.mean()) / noise.std() * 0.004
        return before, before + gain * t * 0.004 / n**0.5 + noise, t

    t = [round(3.1 + rng.rand(1).item(), 3) for _ in range(3)]  # far from √n and from 1.96
    before = rng.ints(30, 50, (4,)) / 64  # numbers with few binary digits: differences of theirs are exact
    return [
        *(case(rng.size(5, 8), each, gain) for each, gain in zip(t, (1.8, 0.6, -2.5), strict=True)),
        (before, before + 1 / 64, 3.182),  # each seed gains the same: the interval has no width
        (before, before.clone(), 3.182),  # and none gains anything
        (before[:1] + torch.zeros(5), before[:1] + torch.tensor([1, 1, 1, 1, 9]) / 256, 3.5),  # all gain, and not real
        case(2, 12.706, 1.5),
    ]


def interval(gain: Tensor, half: Tensor) -> tuple[float, float, bool]:
    return gain.item(), half.item(), bool(gain > half)


def solution(before: Tensor, after: Tensor, t: float) -> tuple[float, float, bool]:
    gains = after - before
    return interval(gains.mean(), t * gains.std() / len(gains) ** 0.5)


def with_deviation(deviation: Tensor, before: Tensor, after: Tensor, t: float) -> tuple[float, float, bool]:
    return interval((after - before).mean(), t * deviation / len(before) ** 0.5)


class ThreeSpec(Spec):
    """Takes tensors and NumPy's numbers for numbers, and theirs of a comparison for True and False."""

    @staticmethod
    def result(function: Any, case: tuple) -> Any:
        result = Spec.result(function, case)
        if not isinstance(result, tuple | list) or len(result) != 3:
            return result
        numbers = [part if plain_number(part) is None else round(plain_number(part), 8) for part in result[:2]]
        compared = isinstance(result[2], np.bool_) or plain_number(result[2]) in (0, 1)
        return *numbers, bool(result[2]) if compared else result[2]


def explain(yours: Any, expected: tuple, before: Tensor, after: Tensor, t: float) -> None:
    gain, half, _ = expected
    wrong_if(
        len(yours) == 3 and near(list(yours[:2]), [gain, half], 1e-3, 1e-6),
        "verdict",
        f"Gain and half width are right, but not the third result: True if the whole interval, here {gain - half:.4f} "
        f"to {gain + half:.4f}, lies above zero, and False otherwise.",
        look="the lower end: `gain - half > 0`",
        yours=yours,
    )


exercise = Exercise(
    title="Is the gain real?",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="With the same seeds before and after, what a seed adds to both sides cancels out, so you can detect "
    "smaller gains.",
    hints=(
        "Each seed gives one gain, after minus before. Everything else is about those numbers.",
        "The interval is mean ± t · s / √n, where s is the standard deviation of the gains (n − 1 in the denominator, "
        "which is what `std` does) and n is how many there are.",
        "`gains = after - before`, `half = t * gains.std() / len(gains) ** 0.5`, real if `gains.mean() - half > 0`.",
    ),
    judge=ThreeSpec(
        draw=draw,
        solution=solution,
        explain=explain,
        rtol=1e-3,
        atol=1e-6,
        look="(gain, half, real): gain is the mean of `after - before`; half is t · s / √n, where s is the standard "
        "deviation of the gains",
        says=[
            looks_like(
                "spread_of_scores",
                "s is the standard deviation of the gains, one gain for each seed. You took the spread of `before` and "
                "`after` themselves.",
                lambda before, after, t: with_deviation(before.std(), before, after, t),
                lambda before, after, t: with_deviation(after.std(), before, after, t),
                lambda before, after, t: with_deviation((before.var() + after.var()).sqrt(), before, after, t),
                look="`gains = after - before`, then `gains.std()`",
            ),
            looks_like(
                "no_root_n",
                "The mean of n seeds is √n times as certain as one of them: divide by √n, exactly once.",
                lambda before, after, t: with_deviation((after - before).std() * len(before) ** 0.5, before, after, t),
                lambda before, after, t: with_deviation((after - before).std() / len(before) ** 0.5, before, after, t),
                look="t · s / √n; `n ** 1 / 2` is half of n",
            ),
            looks_like(
                "other_t",
                "You left out t, or used a fixed number. 1.96 holds for many seeds, and 2.776 for five: always "
                "use the t that you are given.",
                *(lambda before, after, t, t0=t0: solution(before, after, t0) for t0 in (1, 1.96, 2, 2.776)),
                look="t · s / √n",
            ),
        ],
    ),
    lends=solution,
)
