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


RIGHT = [by_loop]

WRONG = {
    "ruled_out": [
        *mutants(solution, 'row["mib"] <= memory', "True"),
        *mutants(solution, 'row["accuracy"][1] >= full["accuracy"][0]', "True"),
        *mutants(solution, "or torch.float32 not in fits", ""),
    ],
    "not_faster": mutants(solution, 'row["speed"][0] >', 'row["speed"][1] >', 'row["speed"][0] >='),
    None: [
        *mutants(solution, 'table[dtype]["speed"][0]', 'table[dtype]["speed"][1]', "0"),
        *mutants(solution, 'row["accuracy"][1] >= full', "row['accuracy'][0] >= full", "row['accuracy'][1] > full"),
        lambda table, memory: table[torch.bfloat16] and solution(table, memory),
        lambda table, memory: str(solution(table, memory)),
    ],
}
