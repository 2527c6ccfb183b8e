"""The energy of a training run from unevenly spaced samples of its power."""

from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, near, same, wrong_if


def draw(rng: Inputs) -> list[tuple]:
    """Unequal gaps, three of them long; then none, in seconds since 1970; then only two samples."""
    cases = []
    for count, long, start in ((rng.size(12, 20), 3, 50), (rng.size(8, 12), 0, 1_700_000_000), (2, 0, 50)):
        gaps = (rng.rand(count - 1).double() * 96).ceil() / 64 + 0.125  # exact in binary
        where = rng.permutation(count - 1)
        gaps[where[:long]] += 4
        gaps[where[-1]] = 2.0  # not longer than `longest`
        seconds = start + torch.cat([torch.zeros(1, dtype=torch.float64), gaps.cumsum(0)])
        cases.append((seconds, 80 + 300 * rng.rand(count).double(), rng.size(2000, 40_000), 2.0))
    return cases


def solution(seconds: Tensor, watts: Tensor, images: int, longest: float) -> tuple[float, float]:
    gaps = seconds.diff()
    joules = gaps * (watts[1:] + watts[:-1]) / 2
    return joules.sum().item() / 3600 / images * 1000, (joules[gaps > longest].sum() / joules.sum()).item()


def explain(yours: Any, expected: Any, seconds: Tensor, watts: Tensor, images: int, longest: float) -> None:
    wrong_if(
        len(yours) != 2 or (near(yours[0], expected[1]) and near(yours[1], expected[0])),
        "form",
        "Return two values: first the energy, then the unmeasured share.",
        expected=expected,
        yours=yours,
    )
    gaps, share = seconds.diff(), expected[1]
    joules, long = gaps * (watts[1:] + watts[:-1]) / 2, gaps > longest
    time = gaps[long].sum() / gaps.sum()

    def energy_is(*joules: Tensor) -> bool:
        return not near(yours[0], expected[0]) and any(near(yours[0], j.item() / 3.6 / images, atol=0) for j in joules)

    wrong_if(
        energy_is(watts.mean() * gaps.sum(), watts.sum(), torch.trapezoid(watts), torch.trapezoid(watts) * gaps.mean()),
        "evenly_spaced",
        "Your energy treats the samples as evenly spaced. They are not: the power in a long gap counts for longer.",
    )
    wrong_if(
        energy_is((gaps * watts[1:]).sum(), (gaps * watts[:-1]).sum()),
        "steps",
        "You keep the power constant between two samples. It follows a straight line from one to the other, so take "
        "the mean of both.",
    )
    wrong_if(
        energy_is(joules[~long].sum(), (joules / gaps * gaps.clamp(max=longest)).sum()),
        "long_gaps_left_out",
        "Your energy leaves out the long gaps, or a part of them. The machine kept running in them: count all of it.",
    )
    units = (60.0**i * 10.0**j * each for i in range(-2, 3) for j in range(-6, 7) for each in (1, 2, images))
    wrong_if(
        energy_is(*(joules.sum() * unit for unit in units)),
        "unit",
        "Your energy is right up to a factor. Watts times seconds are joules, 3600 joules are one watt-hour, the "
        "result is for a thousand images, and the mean of two samples is half of their sum.",
        expected=expected[0],
        yours=yours[0],
    )
    look = "all power, idle or not, times duration, gap by gap; float64; images, not rounded to whole thousands"
    same(yours[0], expected[0], "The energy", dtype=False, look=look)
    wrong_if(
        not near(yours[1], share) and any(near(yours[1], each.item()) for each in (time, long.double().mean())),
        "share_of_time",
        "Your unmeasured share is a share of the time, or of the number of gaps. It should be a share of the energy.",
        expected=share,
        yours=yours[1],
    )
    look = "energy in gaps longer than `longest`, divided by all energy; a gap of exactly `longest` is measured"
    same(yours[1], share, "The unmeasured share", dtype=False, look=look)


exercise = Exercise(
    title="What a thousand images cost",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Energy is the area under the power: each sample counts for as long as it lasts.",
    hints=(
        "`seconds.diff()` has the gaps, `(watts[1:] + watts[:-1]) / 2` the mean power in each. Watts times seconds are "
        "joules, and 3600 joules are a watt-hour.",
        "`joules[gaps > longest].sum() / joules.sum()` is the share that was not measured.",
    ),
    judge=Spec(draw=draw, solution=solution, explain=explain, dtype=False),
)
