import torch
from support.answers import mutants

from torchcourse_labs.performance.watt_hours import solution


def by_loop(seconds, watts, images, longest):
    total = unmeasured = 0.0
    for i in range(1, len(seconds)):
        gap = float(seconds[i] - seconds[i - 1])
        joules = gap * float(watts[i] + watts[i - 1]) / 2
        total += joules
        unmeasured += joules if gap > longest else 0
    return [total / 3.6 / images, unmeasured / total]


def by_trapezoid(seconds, watts, images, longest):
    total = torch.trapezoid(watts, seconds)
    short = torch.where(seconds.diff() > longest, 0, seconds.diff())
    return total / 3600 * (1000 / images), 1 - ((watts[1:] + watts[:-1]) / 2 * short).sum() / total


ENERGY, SHARE = "joules.sum().item()", "joules[gaps > longest].sum() / joules.sum()"

RIGHT = [by_loop, by_trapezoid]

WRONG = {
    "form": [lambda *given: solution(*given)[::-1], lambda *given: (*solution(*given), 0)],
    "evenly_spaced": mutants(solution, ENERGY, "watts.mean() * gaps.sum()", "watts.sum().item()"),
    "steps": mutants(solution, "(watts[1:] + watts[:-1]) / 2", "watts[1:]"),
    "long_gaps_left_out": mutants(solution, ENERGY, "joules[gaps <= longest].sum().item()"),
    "unit": [*mutants(solution, "/ 3600 /", "/ 60 /", "/ 3.6e9 /"), *mutants(solution, "/ images * 1000", "")],
    "share_of_time": mutants(
        solution, SHARE, "gaps[gaps > longest].sum() / gaps.sum()", "(gaps > longest).float().mean()"
    ),
    None: [
        *mutants(solution, "seconds.diff()", "seconds.float().diff()"),
        *mutants(solution, "gaps > longest", "gaps <= longest", "gaps >= longest"),
        *mutants(solution, SHARE, "joules[gaps > longest].sum()"),
    ],
}
