import itertools
import math
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


def one_loop_for_each_list(index, axes, finished):
    every = [{}]
    for name, values in axes.items():
        every = [{**settings, name: value} for settings in every for value in values]
    if index not in range(len(every)):
        raise IndexError(index)
    return every[index] if all(every[index] != each for each in finished) else None


def first_fastest(index, axes, finished):
    if index >= math.prod(map(len, axes.values())):
        raise IndexError(index)
    settings = {}
    for name, values in axes.items():
        index, place = divmod(index, len(values))
        settings[name] = values[place]
    return None if settings in finished else settings


def next_open(index, axes, finished):
    every = [dict(zip(axes, each, strict=True)) for each in itertools.product(*axes.values())]
    return [settings for settings in every if settings not in finished][index]


def shuffled(index, axes, finished):
    every = [*itertools.product(*axes.values())]
    random.shuffle(every)
    return dict(zip(axes, every[index], strict=True))


RIGHT = [mixed_radix, one_loop_for_each_list]

WRONG = {
    "other_names": [
        lambda index, axes, finished: [*itertools.product(*axes.values())][index],
        lambda index, axes, finished: {"lr": 0.1, "seed": 1},
        lambda index, axes, finished: print(axes),
    ],
    "random": [shuffled, lambda index, axes, finished: {name: random.choice(axes[name]) for name in axes}],
    "from_one": mutants(solution, "every[index]", "every[index - 1]"),
    "together": [
        lambda index, axes, finished: {name: axes[name][index % len(axes[name])] for name in axes},
        lambda index, axes, finished: {name: values[index] for name, values in axes.items()},
    ],
    "first_fastest": [first_fastest],
    "too_large": [
        *mutants(solution, "every[index]", "every[index % len(every)]", "every[min(index, len(every) - 1)]"),
        mutant(solution, ("    settings =", "    if index >= len(every): return None\n    settings =")),
    ],
    "counts_open": [next_open],
    "runs_again": [
        *mutants(solution, "None if settings in finished else settings", "settings"),
        *mutants(solution, "settings in finished", "str(settings) in map(str, finished)", "index in finished"),
    ],
    None: [
        lambda index, axes, finished: {name: values[:1] for name, values in axes.items()},
        *mutants(solution, "None if", "False if", "'finished' if", "{} if", "[][0] if", "1 / 0 if"),
        *mutants(solution, "every[index]", "every[::-1][index]"),
    ],
}
