import torch
from support.answers import mutants

from torchcourse_labs.performance.find_limit import solution, step


def by_longest_lane(seconds, lanes):
    lane = max(lanes, key=lambda lane: step(seconds, [lane]))
    limit = max(lane, key=lambda name: seconds[name])
    return [limit, torch.tensor(step(seconds, lanes)) / step({**seconds, limit: 0.0}, lanes)]


def longest(seconds, lanes):
    limit = max(seconds, key=seconds.get)
    return limit, step(seconds, lanes) / step(seconds | {limit: 0}, lanes)


AFTER = "step(seconds | {limit: 0}, lanes)"
RATIO = f"step(seconds, lanes) / {AFTER}"

RIGHT = [by_longest_lane]

WRONG = {
    "form": [lambda *given: solution(*given)[::-1]],
    "added_up": mutants(solution, "step(seconds, lanes) /", "sum(seconds.values()) /"),
    "hidden": [longest],
    "another_part": [lambda *given: (given[1][-1][0], solution(*given)[1])],
    "next_lane": mutants(solution, AFTER, "(step(seconds, lanes) - seconds[limit])"),
    None: [
        *mutants(solution, RATIO, f"{AFTER} / step(seconds, lanes)", f"{RATIO} - 1"),
        lambda *given: solution(*given)[0],
        lambda *given: (solution(*given)[0], round(solution(*given)[1], 1)),
    ],
}
