import numpy as np
import torch
from support.answers import mutants

from torchcourse_labs.language_model.shift_targets import solution


def by_lists(tokens, length):
    numbers, inputs, targets = tokens.tolist(), [], []
    for start in range(0, len(numbers) - length, length):
        inputs.append(numbers[start : start + length])
        targets.append(numbers[start + 1 : start + length + 1])
    return torch.tensor(inputs), torch.tensor(targets)


def by_index(tokens, length):
    places = torch.arange((len(tokens) - 1) // length)[:, None] * length + torch.arange(length)
    return [tokens[places], tokens[places + 1]]


USED = "(len(tokens) - 1) // length * length"

RIGHT = [by_lists, by_index]

WRONG = {
    "not_shifted": mutants(solution, "tokens[1 : used + 1]", "tokens[:used]"),
    "does_not_fit": [*mutants(solution, USED, "len(tokens) // length * length", "len(tokens)")],
    "row_less": mutants(solution, USED, "(len(tokens) - length) // length * length"),
    None: [
        lambda tokens, length: tuple(rows.int() for rows in solution(tokens, length)),
        lambda tokens, length: torch.stack(solution(tokens, length)),
        lambda tokens, length: [rows.tolist() for rows in solution(tokens, length)],
        lambda tokens, length: tuple(rows.numpy() for rows in solution(tokens, length)),
        lambda tokens, length: (solution(tokens, length)[0], solution(tokens, length)[1][:, -1]),
        lambda tokens, length: tuple(part for part in np.array(solution(tokens, length))),
        lambda tokens, length: tuple(rows.flip(0) for rows in solution(tokens, length)),
    ],
}
