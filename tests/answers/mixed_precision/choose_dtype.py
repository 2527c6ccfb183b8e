import torch
from support.answers import mutants

from torchcourse_labs.mixed_precision.choose_dtype import solution


def by_loop(table, memory):
    chosen, full = torch.float32, table[torch.float32]
    for dtype, row in table.items():
        if dtype is torch.float32 or row["mib"] > memory or row["accuracy"][1] < full["accuracy"][0]:
            continue
        if full["mib"] <= memory and row["speed"][0] <= full["speed"][1]:
            continue
        if chosen is torch.float32 or row["speed"][0] > table[chosen]["speed"][0]:
            chosen = dtype
    return chosen


def by_sorting(table, memory):
    base = table.pop(torch.float32)
    enough = 0 if base["mib"] > memory else base["speed"][1]
    rows = [(row["speed"][0], str(dtype)) for dtype, row in table.items() if row["mib"] <= memory]
    rows = [(slow, name) for slow, name in rows if slow > enough]
    named = {str(dtype): (dtype, row) for dtype, row in table.items()}
    rows = [(slow, name) for slow, name in rows if named[name][1]["accuracy"][1] >= base["accuracy"][0]]
    return named[max(rows)[1]][0] if rows else torch.float32


RIGHT = [by_loop, lambda table, memory: by_sorting({**table}, memory)]

WRONG = {
    "ruled_out": [
        *mutants(solution, 'row["mib"] <= memory', "True", 'row["mib"] <= 1.2 * memory'),
        *mutants(solution, 'row["accuracy"][1] >= full["accuracy"][0]', "True"),
        *mutants(solution, "or torch.float32 not in fits", ""),
    ],
    "not_faster": [
        *mutants(solution, 'full["speed"][1]', 'full["speed"][0]'),
        *mutants(solution, 'row["speed"][0] >', 'row["speed"][1] >', 'row["speed"][0] >='),
    ],
    "stays": [
        lambda table, memory: torch.float32,
        *mutants(solution, 'row["accuracy"][1] >= full', "row['accuracy'][0] >= full", "row['accuracy'][1] > full"),
        *mutants(solution, "<= memory", "< memory"),
    ],
    "other_is_faster": [
        *mutants(solution, 'table[dtype]["speed"][0]', 'table[dtype]["speed"][1]', '-table[dtype]["mib"]', "0"),
        *mutants(solution, 'table[dtype]["speed"][0]', 'sum(table[dtype]["speed"])', '-table[dtype]["speed"][0]'),
    ],
    None: [
        lambda table, memory: table[torch.bfloat16] and solution(table, memory),
        lambda table, memory: torch.bfloat16,
        lambda table, memory: str(solution(table, memory)),
        lambda table, memory: [solution(table, memory)],
        lambda table, memory: table.pop(torch.float32),
    ],
}
