import numpy as np
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


def by_numpy(seconds, watts, images, longest):
    joules = np.diff(seconds.numpy()) * (watts.numpy()[1:] + watts.numpy()[:-1]) / 2
    return joules.sum() / 3600 / images * 1000, joules[np.diff(seconds) > longest].sum() / joules.sum()


ENERGY, SHARE = "joules.sum().item()", "joules[gaps > longest].sum() / joules.sum()"

RIGHT = [by_loop, by_trapezoid, by_numpy]

WRONG = {
    "form": [lambda *given: solution(*given)[::-1], lambda *given: (*solution(*given), 0)],
    "evenly_spaced": mutants(solution, ENERGY, "watts.mean() * gaps.sum()", "watts.sum().item()"),
    "steps": mutants(solution, "(watts[1:] + watts[:-1]) / 2", "watts[1:]", "watts[:-1]"),
    "long_gaps_left_out": mutants(solution, ENERGY, "joules[gaps <= longest].sum().item()"),
    "unit": [
        *mutants(solution, "/ 3600 /", "/ 60 /", "/ 3.6e6 /", "/ 1000 /"),
        *mutants(solution, "/ images * 1000", ""),
        *mutants(solution, "watts[:-1]) / 2", "watts[:-1])"),
    ],
    "share_of_time": mutants(
        solution, SHARE, "gaps[gaps > longest].sum() / gaps.sum()", "(gaps > longest).float().mean()"
    ),
    "measured_share": mutants(solution, "gaps > longest", "gaps <= longest"),
    None: [
        *mutants(solution, "seconds.diff()", "seconds.float().diff()"),
        *mutants(solution, "gaps > longest", "gaps >= longest", "gaps > 60 * longest"),
        *mutants(solution, SHARE, "joules[gaps > longest].sum()", f"100 * {SHARE}"),
        lambda *given: solution(*given)[0],
        lambda *given: torch.tensor(solution(*given)),
        lambda *given: ("0.1", None),
    ],
}
