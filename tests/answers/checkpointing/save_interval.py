import math

import torch
from support.answers import mutant, mutants

from torchcourse_labs.checkpointing.save_interval import solution


def by_search(save, between, restart):
    def share(t):
        return save / t + (t / 2 + restart) / between

    low, high = save / 100, between * 100
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if share(a) < share(b) else (a, high)
    return [low, share(low)]


RIGHT = [
    by_search,
    lambda c, m, r: ((2 * c * m) ** 0.5, (2 * c / m) ** 0.5 + r / m),
    lambda save, between, restart: tuple(torch.tensor(solution(save, between, restart))),
]

WRONG = {
    "no_factor_of_two": mutants(solution, "2 * save", "save"),
    "restart_in_interval": mutants(solution, "2 * save * between", "2 * (save + restart) * between"),
    "no_root": mutants(solution, "math.sqrt(2 * save * between)", "2 * save * between"),
    "all_of_an_interval": mutants(solution, "interval / 2", "interval"),
    "no_restart": mutants(solution, "(interval / 2 + restart)", "interval / 2"),
    "not_a_share": [
        *mutants(solution, ") / between", ")"),
        mutant(solution, ("save / interval", "100 * save / interval"), (") / between", ") / between * 100")),
    ],
    None: [
        *mutants(solution, "save / interval + ", ""),
        *mutants(solution, "return interval", "return interval / 60"),
        lambda save, between, restart: solution(save, between, restart)[0],
        lambda save, between, restart: solution(save, between, restart)[::-1],
        lambda save, between, restart: (math.nan, "2%"),
        lambda save, between, restart: (solution(save, between, restart)[0], "2%"),
        lambda save, between, restart: (solution(save, between, restart)[0], torch.ones(3)),
    ],
}
