import itertools
import random

from support.answers import mutant, mutants

from torchcourse_labs.cluster.settings_of import solution


def mixed_radix(index, axes, finished):
    settings = {}
    for name, values in reversed(axes.items()):
        index, place = divmod(index, len(values))
        settings[name] = values[place]
    if index:
        raise IndexError("no such run")
    return None if settings in finished else settings


def next_open(index, axes, finished):
    every = [dict(zip(axes, each, strict=True)) for each in itertools.product(*axes.values())]
    return [settings for settings in every if settings not in finished][index]


RIGHT = [mixed_radix]

WRONG = {
    "counts_open": [next_open],
    None: [
        lambda index, axes, finished: solution(index, dict(reversed(axes.items())), finished),
        lambda index, axes, finished: {name: random.choice(axes[name]) for name in axes},
        lambda index, axes, finished: {name: values[index] for name, values in axes.items()},
        *mutants(solution, "every[index]", "every[index - 1]", "every[index % len(every)]", "every[::-1][index]"),
        mutant(solution, ("    settings =", "    if index >= len(every): return None\n    settings =")),
        *mutants(solution, "None if settings in finished else settings", "settings"),
        *mutants(solution, "settings in finished", "str(settings) in map(str, finished)", "index in finished"),
    ],
}
