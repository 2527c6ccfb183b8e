from support.answers import mutants

from torchcourse.data.tokens import merge
from torchcourse_labs.language_model.merge_pairs import solution


def on_a_stack(tokens, pair, new):
    rest, merged = list(tokens)[::-1], []
    while rest:
        merged.append(rest.pop())
        if rest and (merged[-1], rest[-1]) == tuple(pair):
            merged[-1] = new
            rest.pop()
    return merged


def in_place(tokens, pair, new):
    for i in range(len(tokens)):
        if tuple(tokens[i : i + 2]) == pair:
            tokens[i : i + 2] = [new]
    return tokens


def by_places(tokens, pair, new):
    found = [i for i in range(len(tokens) - 1) if (tokens[i], tokens[i + 1]) == pair]
    return [new if i in found else token for i, token in enumerate(tokens) if i - 1 not in found or i in found]


def as_text(tokens, pair, new):
    text = " ".join(map(str, tokens)).replace(" ".join(map(str, pair)), str(new))
    return [int(word) for word in text.split()]


FOUND, STEP = "tuple(tokens[i : i + 2]) == pair", "i += 2 if found else 1"

RIGHT = [on_a_stack, merge]

WRONG = {
    "keeps_second": mutants(solution, STEP, "i += 1"),
    "last_lost": mutants(solution, "i < len(tokens)", "i < len(tokens) - 1"),
    "past_end": mutants(solution, FOUND, "(tokens[i], tokens[i + 1]) == pair"),
    "overlap": [by_places],
    "unchanged": mutants(solution, FOUND, "tokens[i : i + 2] == pair"),
    None: [
        in_place,
        as_text,
        *mutants(solution, FOUND, "set(tokens[i : i + 2]) == set(pair)"),
        *mutants(solution, "return merged", "return merged, pair"),
    ],
}
