import torch
from support.answers import mutants

from torchcourse_labs.checkpointing.save_interval import solution


def by_search(save, between, restart):
    times = torch.linspace(1, between, 2_000_000, dtype=torch.float64)
    shares = save / times + (times / 2 + restart) / between
    return [times[shares.argmin()], shares.min()]


RIGHT = [by_search, lambda c, m, r: ((2 * c * m) ** 0.5, (2 * c / m) ** 0.5 + r / m)]

WRONG = {
    "no_factor_of_two": mutants(solution, "2 * save", "save"),
    "restart_in_interval": mutants(solution, "2 * save * between", "2 * (save + restart) * between"),
    "all_of_an_interval": mutants(solution, "interval / 2", "interval"),
    None: [
        *mutants(solution, "math.sqrt(2 * save * between)", "2 * save * between"),
        *mutants(solution, "(interval / 2 + restart)", "interval / 2"),
        *mutants(solution, "save / interval + ", "", "1 / interval + "),
        *mutants(solution, ") / between", ")"),
        lambda save, between, restart: solution(save, between, restart)[::-1],
        lambda save, between, restart: (solution(save, between, restart)[0], "2%"),
    ],
}
