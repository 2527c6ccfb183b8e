import torch
from support.answers import mutants

from torchcourse_labs.performance.find_limit import solution, step


def by_longest_lane(seconds, lanes):
    lane = max(lanes, key=lambda lane: step(seconds, [lane]))
    limit = max(lane, key=lambda name: seconds[name])
    return [limit, torch.tensor(step(seconds, lanes)) / step({**seconds, limit: 0.0}, lanes)]


def by_restoring(seconds, lanes):
    now, times = step(seconds, lanes), {}
    for name in seconds:
        before, seconds[name] = seconds[name], 0.0
        times[name], seconds[name] = step(seconds, lanes), before
    best = min(times.values())
    return next(name for name in times if times[name] == best), now / best


def longest(seconds, lanes):
    limit = max(seconds, key=seconds.get)
    return limit, step(seconds, lanes) / step(seconds | {limit: 0}, lanes)


def all_in_one_lane(seconds, lanes):
    total, limit = sum(seconds.values()), max(seconds, key=seconds.get)
    return limit, total / (total - seconds[limit])


AFTER = "step(seconds | {limit: 0}, lanes)"
RATIO = f"step(seconds, lanes) / {AFTER}"

RIGHT = [by_longest_lane, by_restoring]

WRONG = {
    "form": [
        lambda *given: solution(*given)[::-1],
        lambda seconds, lanes: (max(lanes, key=lambda lane: step(seconds, [lane])), solution(seconds, lanes)[1]),
    ],
    "added_up": [all_in_one_lane, *mutants(solution, "step(seconds, lanes) /", "sum(seconds.values()) /")],
    "hidden": [longest],
    "another_part": [lambda *given: (given[1][-1][0], solution(*given)[1])],
    "next_lane": mutants(solution, AFTER, "(step(seconds, lanes) - seconds[limit])"),
    "another_measure": mutants(solution, RATIO, f"{AFTER} / step(seconds, lanes)", f"{RATIO} - 1"),
    None: [
        lambda *given: solution(*given)[0],
        lambda *given: (solution(*given)[0], round(solution(*given)[1], 1)),
        lambda *given: (solution(*given)[0], str(solution(*given)[1])),
    ],
}
