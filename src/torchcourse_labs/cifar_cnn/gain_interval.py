"""The mean gain of several seeds with its interval, and whether it is real."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcheck.authoring import Exercise, Incorrect, Inputs, call, near, same, wrong_if


def draw(rng: Inputs) -> list[tuple]:
    """The luck of a seed is the same before and after. Gains are drawn as multiples of the half width."""
    before, cases = rng.ints(30, 50, (4,)) / 64, []  # numbers with few binary digits: differences of theirs are exact
    for n, gain in ((rng.size(5, 8), 1.8), (rng.size(5, 8), 0.6), (rng.size(5, 8), -2.5), (2, 1.5)):
        t, noise = round(3.1 + rng.rand(1).item(), 3), rng.randn(n)  # far from √n and from 1.96
        noise, scores = 0.004 * (noise - noise.mean()) / noise.std(), 0.7 + 0.02 * rng.randn(n)
        cases.append((scores, scores + gain * t * 0.004 / n**0.5 + noise, t))
    all_gain = before[:1] + torch.zeros(5), before[:1] + torch.tensor([1, 1, 1, 1, 9]) / 256, 3.5
    return [*cases, (before, before + 1 / 64, 3.182), (before, before.clone(), 3.182), all_gain]


def solution(before: Tensor, after: Tensor, t: float) -> tuple[float, float, bool]:
    gains = after - before
    half = t * gains.std() / len(gains) ** 0.5
    return gains.mean().item(), half.item(), bool(gains.mean() > half)


def judge(answer: Any, rng: Inputs) -> None:
    for before, after, t in draw(rng):
        gain, half, real = solution(before, after, t)
        result = call(answer, before, after, t)
        if not isinstance(result, tuple | list) or len(result) != 3:
            raise Incorrect("Your function should return three things.", "(gain, half, real)", result)
        tolerances = {"dtype": False, "rtol": 1e-3, "atol": 1e-6}
        look = "the mean of `after - before`, with its sign; return it and the half width, not the interval's two ends"
        same(result[0], gain, "The mean gain", look=look, **tolerances)
        wrong, root = not near(result[1], half, 1e-3, 1e-6), len(before) ** 0.5
        spreads = before.std(), after.std(), (before.var() + after.var()).sqrt()
        wrong_if(
            wrong and any(near(result[1], t * spread.item() / root, 1e-3) for spread in spreads),
            "spread_of_scores",
            "s is the standard deviation of the gains, one gain for each seed. You took the spread of `before` and "
            "`after` themselves.",
            look="`gains = after - before`, then `gains.std()`",
        )
        wrong_if(
            wrong and any(near(result[1], other, 1e-3) for other in (half * root, half / root)),
            "no_root_n",
            "The mean of n seeds is √n times as certain as one of them: divide by √n, exactly once.",
            look="t · s / √n; `n ** 1 / 2` is half of n",
        )
        look = "t · s / √n, with the t that you are given and the standard deviation s of the gains (n − 1)"
        same(result[1], half, f"The half width for {len(before)} seeds and t = {t}", look=look, **tolerances)
        kinds = bool | int | np.bool_
        plain = isinstance(result[2], kinds) or (isinstance(result[2], Tensor) and result[2].numel() == 1)
        wrong_if(
            not plain or bool(result[2]) != real,
            "verdict",
            "Gain and half width are right, but not the third result: True if the whole interval, here "
            f"{gain - half:.4f} to {gain + half:.4f}, lies above zero, and False otherwise.",
            look="the lower end: `gain - half > 0`",
            expected=real,
            yours=result[2],
        )


exercise = Exercise(
    title="Is the gain real?",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="With the same seeds before and after, the luck of a seed cancels out, so you can detect smaller gains.",
    hints=(
        "Each seed gives one gain, after minus before. The interval is their mean ± t · s / √n: n is how many there "
        "are, and s their standard deviation (n − 1 in the denominator, which is what `std` does).",
        "`gains = after - before`, `half = t * gains.std() / len(gains) ** 0.5`, real if `gains.mean() - half > 0`.",
    ),
    judge=judge,
    lends=solution,
)
