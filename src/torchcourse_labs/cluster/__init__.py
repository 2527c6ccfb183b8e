"""The exercises of chapter 11: job scripts, run with commands that only pretend, and what one reads on a cluster."""

import itertools
import math
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from labcheck import ranks
from labcheck.answer import attempted, call
from labcheck.inputs import Inputs
from labcheck.show import show
from labcheck.verdict import AnswerRaised
from torchcourse_labs import _pretend as pretend
from torchcourse_labs._spec import Mistake, Raised, Spec, changed, chapter, says  # noqa: F401 - for the tables

EXERCISES = ()  # declared below

exercise = chapter("11_cluster")


def _differ(key: str, yours: dict, expected: dict) -> bool:
    return yours[key] != expected[key]


def _no_script(script: Callable) -> list[Mistake]:
    """The mistakes of an answer that is no job script at all."""
    return [
        Mistake(
            "Your function returned {yours[instead]}; it should return the text of the script.",
            lambda *request: print(script(*request)),
            lambda *request: script(*request).splitlines(),
            look="`return` and the quotes",
            when=lambda yours, *_: "instead" in yours,
        ),
        Mistake(
            "sbatch refuses the script: {yours[refused]}",
            lambda *request: "\n" + script(*request),
            lambda *request: script(*request).partition("\n")[2],
            lambda *request: script(*request).replace("\n", "\r\n"),
            look="the very first characters: `#!/bin/bash` right behind the opening quotes",
            when=lambda yours, *_: "refused" in yours,
        ),
    ]


# ---------------------------------------- why it failed

# message -> (letter of the first thing to do, why another one is not, what the message says)
FAILURES = {
    "kernel image": (
        "H",
        {"N": "A newer PyTorch may be what dropped this GPU, so the newest one has no code for it either."},
        "PyTorch runs, and it has no compiled code for this kind of GPU: the line above says which ones it knows.",
    ),
    "oom-kill": (
        "C",
        {
            "L": "A smaller batch saves memory of the GPU. It is the node's own memory that ran out, and a batch is a "
            "small part of that.",
            "F": "/dev/shm is not what ran out: the whole job used more memory than it asked for.",
        },
        "Slurm ended the job because it used more of the node's memory than it asked for.",
    ),
    "quota": (
        "K",
        {"E": "Checkpoints are results; the path in the message says that a cache fills your home."},
        "Your home has no room left, and the path says what fills it.",
    ),
    "modules": (
        "A",
        {"N": "PyTorch is not the problem: it is the C++ library below it that is too old."},
        "Loading the second module exchanged the compiler of the first, and a library of the old one is in use.",
    ),
    "other torch": (
        "M",
        {
            "H": "The node has its GPU and the driver is there, but this PyTorch was built for no GPU at all (+cpu).",
            "N": "It is the newest one already. It came from PyPI along with another package, in place of the site's.",
        },
        "The version and the path say which PyTorch this is: not the one of the module.",
    ),
    "collective timeout": (
        "B",
        {
            "G": "A longer timeout lets all ranks wait longer for one that never comes.",
            "J": "The network carried some 41,000 messages before this one.",
            "D": "No rank met another with a different collective: this one waited for a rank that never came.",
        },
        "Rank 3 waited ten minutes in an all-reduce that some other rank never entered.",
    ),
    "mismatch": (
        "D",
        {
            "I": "A barrier is one more collective, and the ranks still disagree about the next one.",
            "B": "All ranks came; they called different collectives.",
            "G": "No rank timed out: the ranks met, and wanted different things.",
        },
        "Two ranks came to different lines of your program at the same time.",
    ),
    "time limit": (
        "P",
        {"O": "The longest limit makes you wait longest, and the next training is longer still."},
        "Slurm ended the job at its limit, and what had not been saved is gone.",
    ),
    "bus error": (
        "F",
        {
            "C": "The job's memory is not what ran out: the message speaks of shared memory, which is /dev/shm.",
            "L": "A smaller batch helps a little, for today; the place that is too small stays too small.",
        },
        "Loader workers hand over their batches in shared memory, which is a small disk of its own.",
    ),
    "address in use": (
        "Q",
        {"R": "The other process may well be a job of someone else, and tomorrow there is another one."},
        "Another process on this node has taken the port already.",
    ),
}


def _first_things(**changes: Any) -> Callable:
    """An answer with other letters for some messages; names with "_" in place of the blank."""
    others = {name.replace("_", " ").replace("oom kill", "oom-kill"): letter for name, letter in changes.items()}
    return lambda: {name: right for name, (right, *_) in FAILURES.items()} | others


def _one_cure(answer: Callable, name: str) -> Any:
    given = answer()
    if not isinstance(given, dict):
        return {"instead": given}
    letter = given.get(name)
    return letter.strip().upper() if isinstance(letter, str) and len(letter.strip()) == 1 else letter


LETTERS = "ABCDEFGHIJKLMNOPQR"

exercise(
    "why_failed",
    title="Last words",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Read the first line that is not yours, and ask which resource it names: memory of the node or of the "
    "GPU, a disk, a port, time, or another rank.",
    hints=(
        "First find out who speaks: Slurm (slurmstepd), the operating system (Errno), a library, or PyTorch.",
        "Then what ran out, or who was missing. Node memory, GPU memory and /dev/shm are three different things; a "
        "rank that never came and a rank that did something else are two.",
        "Of two cures that might help, take the one that removes the cause: more time, more memory, a newer version "
        "or a barrier often only move it.",
    ),
    spec=Spec(
        takes_value=True,
        draw=lambda new: [(name,) for name in FAILURES],
        solution=lambda: {name: right for name, (right, *_) in FAILURES.items()},
        measure=_one_cure,
        by_case=True,
        mistakes=[
            """
            = [right for right, *_ in FAILURES.values()]
                Your answer is not a dictionary, but {yours[instead]}.
                look: `first_thing`, the dictionary with its ten keys
                when: "instead" in yours
            = {"quota": "K"}
            _first_things(quota=None)
                There is no letter for "{name}".
                when: yours is None or yours is ...
            _first_things(quota="S")
            _first_things(quota="move the cache")
            _first_things(time_limit=5)
                "{name}": {yours!r} is none of the letters. Write one letter of the second table, such as "A".
                when: yours not in [*LETTERS]
            """,
            *(
                Mistake(
                    f'"{name}": {letter} is not what to do first. {why}',
                    _first_things(**{name.replace(" ", "_").replace("-", "_"): letter}),
                    when=lambda yours, expected, case, name=name, letter=letter: (case, yours) == (name, letter),
                )
                for name, (_, second_best, _) in FAILURES.items()
                for letter, why in second_best.items()
            ),
            *(
                Mistake(
                    f'"{name}": {{yours}} is not what to do first. {what}',
                    _first_things(
                        **{
                            name.replace(" ", "_").replace("-", "_"): next(
                                letter for letter in reversed(LETTERS) if letter != right and letter not in second_best
                            )
                        }
                    ),
                    when=lambda yours, expected, case, name=name: case == name,
                )
                for name, (right, second_best, what) in FAILURES.items()
            ),
        ],
        also_right=[lambda: {name: f" {right.lower()}" for name, (right, *_) in FAILURES.items()}],
    ),
)


# ---------------------------------------- settings of an array


def _settings(index, axes, finished):
    every = list(itertools.product(*axes.values()))
    settings = dict(zip(axes, every[index], strict=True))
    return None if settings in finished else settings


NO_MORE = "an IndexError"


def _grid(ask: Any, axes: dict, grown: dict, finished: list) -> dict:
    """The measure of `settings_of`: all indices, an index too many, the same ones after the first axis has grown."""
    count = math.prod(map(len, axes.values()))
    nothing_done = []
    for i in range(count):
        nothing_done.append(result := ask(i, axes, []))
        if not isinstance(result, dict) or {*result} != {*axes}:
            return {"instead": result, "names": ", ".join(axes)}
    try:
        beyond = ask(count, axes, [])
    except AnswerRaised as raised:
        beyond = type(raised.error).__name__
    with_done, later = [], []
    for i in range(count):
        try:
            with_done.append(ask(i, axes, finished))
        except AnswerRaised as raised:
            if type(raised.error).__name__ != "IndexError":
                raise
            with_done.append(NO_MORE)  # the list without the finished ones is too short
        later.append(ask(i, grown, []))
    again = [[ask(i, axes, []) for i in range(count)] for _ in range(2)]
    given = [tuple(result[name] for name in axes) for result in nothing_done]
    wanted = [*itertools.product(*axes.values())]
    return {
        "missing": [each for each in wanted if each not in given],
        "twice": [each for i, each in enumerate(given) if each in given[:i]],
        "foreign": [each for each in given if each not in wanted],
        "beyond": beyond,
        "from 1": given[1:] == wanted[:-1] and given[1:],
        "no answers": [
            b for b in with_done if not (b is None or b is NO_MORE or (isinstance(b, dict) and {*b} == {*axes}))
        ],
        "raised for": [a for a, b in zip(nothing_done, with_done, strict=True) if b is NO_MORE],
        "unstable": any(each != nothing_done for each in again),
        "moved": [i for i in range(count) if later[i] != nothing_done[i]],
        "indices that ran a finished setting": [i for i in range(count) if with_done[i] in finished],
        "shifted": any(b is not None and b != a for a, b in zip(nothing_done, with_done, strict=True)),
        "The settings": all(each in given for each in wanted) and len({*given}) == len(given) == len(wanted),
        "An index too large raises IndexError": beyond == "IndexError",
        "Numbers that changed when the first list grew": sum(a != b for a, b in zip(nothing_done, later, strict=True)),
        "Finished settings are skipped": [
            "none" if b is None else "same" if a == b else "other" for a, b in zip(nothing_done, with_done, strict=True)
        ],
    }


def _shuffled(index, axes, finished):
    every = [*itertools.product(*axes.values())]
    random.shuffle(every)
    settings = dict(zip(axes, every[index], strict=True))
    return None if settings in finished else settings


def _drawn(index, axes, finished):
    settings = {name: random.choice(values) for name, values in axes.items()}
    return None if settings in finished else settings


def _first_fastest(index, axes, finished):
    settings, count = {}, math.prod(map(len, axes.values()))
    if index >= count:
        raise IndexError(index)
    for name, values in axes.items():
        index, place = divmod(index, len(values))
        settings[name] = values[place]
    return None if settings in finished else settings


def _mixed_radix(index, axes, finished):
    settings = {}
    for name, values in reversed(axes.items()):
        index, place = divmod(index, len(values))
        settings[name] = values[place]
    if index:
        raise IndexError("no such run")
    return None if settings in finished else settings


def _zipped(index, axes, finished):
    settings = {name: values[index % len(values)] for name, values in axes.items()}
    return None if settings in finished else settings


def _one_list(index, axes, finished):
    settings = {name: values[index] for name, values in axes.items()}
    return None if settings in finished else settings


def _next_open(index, axes, finished):
    every = [dict(zip(axes, each, strict=True)) for each in itertools.product(*axes.values())]
    still_open = [settings for settings in every if settings not in finished]
    if index >= len(every):
        raise IndexError(index)
    return still_open[index] if index < len(still_open) else None


def _next_open_or_error(index, axes, finished):
    every = [dict(zip(axes, each, strict=True)) for each in itertools.product(*axes.values())]
    return [settings for settings in every if settings not in finished][index]


def _sweeps(new: Inputs) -> list[tuple]:
    cases = []
    for names, sizes in ((("lr", "seed"), (2, 4)), (("width", "lr", "seed"), (2, 3, 2)), (("seed",), (4,))):
        values = {
            "lr": [0.1, 0.01, 0.003, 1.0],
            "seed": new.sizes(5, 0, 90),
            "width": [8 * n for n in new.sizes(4, 1, 9)],
        }
        axes = {name: values[name][:size] for name, size in zip(names, sizes, strict=True)}
        grown = axes | {names[0]: values[names[0]][: sizes[0] + 1]}
        every = [dict(zip(axes, each, strict=True)) for each in itertools.product(*axes.values())]
        done = sorted(new.sizes(2, 0, len(every) - 2))
        reordered = dict(reversed(every[done[1]].items()))  # another run may have written its names in another order
        cases.append((axes, grown, [every[done[0]], reordered]))
    return cases


exercise(
    "settings_of",
    title="One number, one run",
    minutes=6,
    difficulty=1,
    points=1,
    takeaway="`itertools.product` numbers all combinations, the last list fastest: what a number means changes neither "
    "when runs finish nor when the first list grows, so the same array can be handed in again.",
    hints=(
        "`itertools.product(*axes.values())` goes through all combinations, always in the same order.",
        "Make a list of it and take element `index`; `dict(zip(axes, values))` puts the names back. A list raises "
        "IndexError by itself.",
        "At the end: `return None if settings in finished else settings`. Don't remove the finished ones from the "
        "list before you count.",
    ),
    spec=Spec(
        draw=_sweeps,
        solution=_settings,
        measure=_grid,
        by_case=True,
        mistakes="""
            = [*itertools.product(*axes.values())][index]
            = dict(list(_settings(index, axes, []).items())[1:])
                Your result is {yours[instead]}: a dictionary with a value for each of the names {yours[names]} is asked
                for. Another array has other names.
                look: `dict(zip(axes, values))`
                when: "instead" in yours
            _one_list
                The number runs out although there are settings left: it counts all combinations, not one list.
                when: says(yours, "index out of range")
            _drawn, _shuffled
                The same number gave other settings on another call: with an array, each job draws for itself, so some
                settings come twice and some never.
                look: `random`: the order must be the same in every process
                when: yours["unstable"]
            _zipped
                Some settings come twice and others never, for example {yours[missing][0]}: all lists advance together.
                look: `itertools.product` instead of `zip`
                when: yours["missing"]
            None if → False if || "finished" if || {} if
                For a finished setting you return {yours[no answers][0]}. Return None.
                when: yours["no answers"]
            None if → [][0] if
                For a finished setting your function raises IndexError. Return None: that error is for an array that is
                too long.
                when: yours["raised for"] and all(each in finished for each in yours["raised for"])
            every[index] → every[index - 1]
                Numbers begin at 0: the number 1 gets the first combination, and 0 another one.
                look: no `index - 1`
                when: yours["from 1"]
            _next_open, _next_open_or_error
                The number counts only what is not finished. While the array runs, more settings finish, so a job that
                starts later gets another setting for the same number, and some are never run.
                look: choose first, from all settings; then look whether this one is finished
                when: yours["shifted"]
            every[index] → every[index % len(every)] || every[min(index, len(every) - 1)]
                The first number too many starts a setting a second time; it should raise IndexError.
                look: `%`, or a loop that never checks the end
                when: isinstance(yours["beyond"], dict)
            = _settings(index, axes, finished) if index < math.prod(map(len, axes.values())) else None
                A number too large gave {yours[beyond]}; it should raise IndexError, so that an array that is too long
                fails and does not look finished.
                when: yours["beyond"] != "IndexError"
            settings in finished → str(settings) in map(str, finished)
            settings in finished → [*settings.values()] in [[*each.values()] for each in finished]
                A finished setting runs again because its names are in another order than yours.
                look: compare the dictionaries themselves: two are equal in any order
                when: 0 < len(yours["indices that ran a finished setting"]) < len(finished)
            None if settings in finished else settings → settings
                A setting that is finished comes again: return None for it.
                look: `finished` holds settings, as dictionaries, and no numbers: make the setting first, then look
                    whether it is in there
                when: yours["indices that ran a finished setting"]
            _first_fastest
                When the first list grew by one value, {yours[Numbers that changed when the first list grew]} old
                numbers got other settings: the last list has to change fastest, the first one slowest.
                look: the order of the loops, or of `divmod`
                when: yours["moved"]
        """,
        also_right=[_mixed_radix],
    ),
)


# ---------------------------------------- who am I


def _who(env):
    hosts = []
    for name, inner in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?", env["SLURM_JOB_NODELIST"]):
        if not inner:
            hosts.append(name)
            continue
        for part in inner.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                hosts.append(f"{name}{number:0{len(first)}}")
    tasks = []
    for part in env["SLURM_TASKS_PER_NODE"].split(","):
        count, _, times = part.rstrip(")").partition("(x")
        tasks += [int(count)] * int(times or 1)
    node, local = int(env["SLURM_NODEID"]), int(env["SLURM_LOCALID"])
    rank = sum(tasks[:node]) + local
    return {"rank": rank, "local_rank": local, "world_size": sum(tasks), "head": hosts[0], "host": hosts[node]}


def _compressed(tasks: list[int]) -> str:
    """[2, 2, 2, 1] as Slurm writes it: "2(x3),1"."""
    runs = [(count, len([*same])) for count, same in itertools.groupby(tasks)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def _environment(nodes: str, tasks: list[int], node: int, local: int) -> tuple:
    here = {"SLURM_NODEID": str(node), "SLURM_LOCALID": str(local)}
    return ({"SLURM_JOB_NODELIST": nodes, "SLURM_TASKS_PER_NODE": _compressed(tasks), **here},)


def _places(new: Inputs) -> list[tuple]:
    few, many = new.size(2, 4), new.size(5, 8)
    first = new.size(3, 6)
    ranges = f"node[{first:02}-{first + 2:02},9]"
    low = new.size(6, 8)
    return [
        # Uneven; leading zeros in the range and none in the single number behind it.
        _environment(ranges, [many, many, many, few], 3, few - 1),
        # From one digit to two, and a count of two digits; not the last node.
        _environment(f"n[{low}-{low + 4}]", [12, few, few, few, many], 2, 1),
        # Two kinds of machines, and the first name has no brackets.
        _environment(f"big{new.size(1, 9)},a100-[{new.size(1, 4):03},{new.size(5, 9):03}]", [many, few, few], 1, 0),
        # The last local rank of an uneven job's first node.
        _environment(f"x[{new.size(1, 9)},{new.size(11, 40)}]", [many, few], 0, many - 1),
        # More nodes of a kind than one digit can count.
        _environment(f"c[001-{new.size(11, 19):03}]", [few] * 11, 10, 1),
        # Two lists in brackets, and a node of the second.
        _environment(f"a[{low}-{low + 1}],b[1,{low + 4}]", [many, few, few, many], 3, 1),
        # One node, one task.
        _environment(f"login{new.size(1, 9)}", [1], 0, 0),
    ]


def _by_regex(env):
    def ranges(text):
        for part in text.split(","):
            ends = part.split("-")
            yield from (str(i).zfill(len(ends[0])) for i in range(int(ends[0]), int(ends[-1]) + 1))

    hosts = []
    for each in re.split(r",(?![^\[]*\])", env["SLURM_JOB_NODELIST"]):
        prefix, bracket, rest = each.partition("[")
        hosts += [prefix + number for number in ranges(rest[:-1])] if bracket else [each]
    counts = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", env["SLURM_TASKS_PER_NODE"]):
        counts.extend([int(count)] * int(times or "1"))
    starts = [0, *itertools.accumulate(counts)]
    node, local = (int(env[f"SLURM_{name}ID"]) for name in ("NODE", "LOCAL"))
    return {
        "host": hosts[node],
        "head": hosts[0],
        "world_size": starts[-1],
        "local_rank": local,
        "rank": starts[node] + local,
    }


KEYS = "rank", "local_rank", "world_size", "head", "host"


def _strings(env):
    return {key: str(value) for key, value in _who(env).items()}


def _brackets_alone(env):
    names = env["SLURM_JOB_NODELIST"]
    one = names.replace(",", ";", names.partition("[")[0].count(","))
    found = _who({**env, "SLURM_JOB_NODELIST": one})
    return {key: value.replace(";", ",") if isinstance(value, str) else value for key, value in found.items()}


def _short(env):
    return {**_who(env), "head": re.match(r"[^\[,]+", env["SLURM_JOB_NODELIST"])[0]}


exercise(
    "who_am_i",
    title="Who am I?",
    minutes=9,
    difficulty=3,
    points=3,
    takeaway="Four variables place every process of a job: nodes may have different numbers of tasks, so a rank is "
    "the sum over the nodes before, and never a product.",
    hints=(
        'Two small decoders, then sums. Write each one alone first: "2(x3),1" to [2, 2, 2, 1], and '
        '"node[03-05,9]" to a list of four names.',
        "The rank is the number of tasks on all nodes before yours, plus your local number. For the names, note how "
        'many digits the number has in the text: f"{number:0{width}}" keeps the zeros in front.',
        'There are commas between names and within brackets. `re.findall(r"([^,\\[\\]]+)(?:\\[([^\\]]*)\\])?", text)` '
        "gives pairs of a name and what is in its brackets, or nothing.",
    ),
    spec=Spec(
        draw=_places,
        solution=_who,
        by_case=True,
        mistakes=r"""
            = tuple(_who(env).values())
            = {"rank": _who(env)["rank"]}
                Your result is {yours}: a dictionary with the keys rank, local_rank, world_size, head and host is asked
                for.
                when: not isinstance(yours, Raised) and (not isinstance(yours, dict) or {*yours} != {*KEYS})
            _strings
            "local_rank": local → "local_rank": env["SLURM_LOCALID"]
                Your numbers are strings: variables of the environment always are.
                look: `int(…)` for rank, local_rank and world_size
                when: any(isinstance(yours[key], str) for key in KEYS[:3])
            sum(tasks[:node])
                    → node * tasks[node] || node * tasks[0] || node * max(tasks) || node * (sum(tasks) // len(tasks))
                The rank is not the number of the node times its number of tasks: nodes may have different numbers.
                look: the sum over the nodes before this one
            tasks[:node] → tasks[: node + 1]
                The tasks of your own node count among those before you: for SLURM_NODEID={env[SLURM_NODEID]}, only the
                nodes before it do.
            sum(tasks[:node]) + local → local
                Your rank is the number within the node: every node has a task 0, but there is one rank 0.
            sum(tasks[:node]) + local → sum(tasks[:node]) + local + 1
                Your rank counts from 1; ranks begin at 0.
            "world_size": sum(tasks)
                    → "world_size": len(tasks) || "world_size": tasks[node] || "world_size": tasks[0] * len(tasks)
                    || "world_size": tasks[0]
                The size of your world is the number of nodes or of one node's tasks; count the tasks of all nodes.
            int(times or 1) → int(times[:1] or 1) || int(times[-1:] or 1)
                You read one digit of a number in SLURM_TASKS_PER_NODE="{env[SLURM_TASKS_PER_NODE]}".
                look: `(x11)` are eleven nodes
            int(times or 1) → 1
            int(times or 1) → 1 && tasks[:node] → tasks[:1] * node
                You read the numbers in SLURM_TASKS_PER_NODE="{env[SLURM_TASKS_PER_NODE]}" without the "(x…)" behind
                them, which says how many nodes in a row have that many.
            count, _, times = part.rstrip(")").partition("(x") → count, times = part, 1
                A part of SLURM_TASKS_PER_NODE="{env[SLURM_TASKS_PER_NODE]}" is no number: 2(x3) means 2,2,2.
                when: says(yours, "invalid literal for int") and "(x" in yours.message
            [int(count)] * int(times or 1) → [int(times or 1)] * int(count)
                "2(x3)" means two tasks on each of three nodes; you read it as three on each of two.
            {number:0{len(first)}} → {number}
                The zeros in front are lost: a host called node03 is not found under the name node3.
                look: the number of digits of the first number of a range
                when: all(re.sub(r"(?<!\d)0+(?=\d)", "", str(expected[key])) == str(yours[key]) for key in KEYS)
            {number:0{len(first)}} → {number:02} || {number:03} || {number:0{len(re.split('[,-]', inner)[0])}}
                Numbers got zeros in front that the list does not have: the width is that of the first number of each
                range.
                when: any(yours[key] != expected[key] and re.sub(r"(?<!\d)0+(?=\d)", "", yours[key]) ==
                    re.sub(r"(?<!\d)0+(?=\d)", "", expected[key]) for key in ("head", "host"))
            = {**_who(env), "head": env["SLURM_JOB_NODELIST"]}
            = {**_who(env), "head": env["SLURM_JOB_NODELIST"].split(",")[0]}
            _short
                The head is called {expected[head]}, not {yours[head]}: "{env[SLURM_JOB_NODELIST]}" is a short form of
                the names, and no name itself.
                look: write out the brackets first
                when: isinstance(yours["head"], str) and yours["head"] != expected["head"] and
                    env["SLURM_JOB_NODELIST"].startswith(yours["head"]) and yours["host"] == expected["host"]
            "host": hosts[node] → "host": hosts[0]
                Your host is the first one of the list; this process runs on node number {env[SLURM_NODEID]}.
            "head": hosts[0] → "head": hosts[node]
                The head is the first host of the list, for every process; yours is the host of the process itself.
            int(last or first) + 1 → int(last or first) + (not last)
            = {**_who(env), "host": env["SLURM_JOB_NODELIST"].split(",")[int(env["SLURM_NODEID"])]}
                Your list of hosts is too short: a range includes its last number, so 03-05 are three nodes, and commas
                within brackets separate numbers.
                when: says(yours, "list index out of range")
            _brackets_alone
                Your host is {yours[host]}: a comma outside of brackets separates two entries of the list, as in
                "{env[SLURM_JOB_NODELIST]}".
                look: split the list into its entries first, then write out the brackets of each entry
                when: re.search(r",(?![^\[]*\])", f"{yours['head']} {yours['host']}")
            = {**_who(env), "head": env["SLURM_JOB_NODELIST"].split(",")[0], "host":
                    env["SLURM_JOB_NODELIST"].split(",")[-1]}
                You split the list at every comma, and some of them are within brackets.
                when: "[" in f"{yours['head']}{yours['host']}" or "]" in f"{yours['head']}{yours['host']}"
            hosts[node] → hosts[local]
                Task {env[SLURM_LOCALID]} of node number {env[SLURM_NODEID]} in "{env[SLURM_JOB_NODELIST]}" runs on
                {expected[host]}; your host is {yours[host]}.
                look: numbers of nodes begin at 0
                when: _differ("host", yours, expected)
            sum(tasks[:node]) + local → sum(tasks[:node]) + node
                With SLURM_TASKS_PER_NODE="{env[SLURM_TASKS_PER_NODE]}", task {env[SLURM_LOCALID]} of node number
                {env[SLURM_NODEID]} has rank {expected[rank]} of {expected[world_size]}; yours: {yours[rank]} of
                {yours[world_size]}.
                when: all(not _differ(key, yours, expected) for key in ("host", "head"))
        """,
        also_right=[_by_regex],
    ),
)


# ---------------------------------------- a job script

EPHEMERAL = 32_768  # from here on, Linux uses ports for outgoing connections


def _job_script(program, name, nodes, gpus, cores, minutes):
    return f"""#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={gpus * cores}
#SBATCH --time={minutes}
#SBATCH --output=%x-%j.out
set -e
export OMP_NUM_THREADS={cores}
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 12000))
srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node={gpus} --rdzv-id=$SLURM_JOB_ID \\
    --rdzv-backend=c10d --rdzv-endpoint=$head:$port {program}
"""


def _with_srun(program, name, nodes, gpus, cores, minutes):
    return f"""#!/bin/bash
#SBATCH -J {name}
#SBATCH -N {nodes} --ntasks-per-node={gpus} -c {cores}
#SBATCH --gres=gpu:{gpus}
#SBATCH --time={minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00
#SBATCH -o {name}.%j.log

set -euo pipefail
export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK"
MASTER_ADDR=$(scontrol show hostnames | sed -n 1p)
MASTER_PORT=$((10000 + ${{SLURM_JOB_ID}} % 20000))
export MASTER_ADDR MASTER_PORT
srun --cpus-per-task=$SLURM_CPUS_PER_TASK bash -c \\
    'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec python -u {program}'
"""


def _with_node_rank(program, name, nodes, gpus, cores, minutes):
    head = "head=($(scontrol show hostnames $SLURM_JOB_NODELIST))"
    return f"""#!/usr/bin/env bash
#SBATCH --job-name {name}
#SBATCH --nodes={nodes} --ntasks={nodes}
#SBATCH --gpus={nodes * gpus}
#SBATCH --cpus-per-task={gpus * cores}
#SBATCH --time={minutes // 60}:{minutes % 60:02}:00
{head}
export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / {gpus}))
export PORT=$((29500 + SLURM_JOB_ID % 1000)) HEAD=${{head[0]}}
srun -c $SLURM_CPUS_PER_TASK bash -c 'python -m torch.distributed.run --nnodes {nodes} --nproc_per_node {gpus} \\
    --node_rank $SLURM_NODEID --master_addr $HEAD --master_port $PORT {program}'
exit $?
"""


def _asked(answer: Any, request: tuple, nodelist: str, hosts: list[str], jobs: tuple[int, int]) -> dict:
    """A probe: what the script does as two jobs. The second one fails."""
    text = call(answer, *request, may_return_none=True)
    if not isinstance(text, str):
        return {"instead": show(text)}
    if refused := pretend.why_refused(text):
        return {"refused": refused}
    late = [
        line
        for line in text[text.find("\n") :].splitlines()
        if line.startswith("#SBATCH") and not pretend.options_of(text).keys() >= pretend.options_of(line).keys()
    ]
    try:
        runs = [
            pretend.run_job(text, hosts=hosts, nodelist=nodelist, job=job, status=status)
            for job, status in zip(jobs, (0, 3), strict=True)
        ]
    except ValueError as error:  # a number that is none: sbatch says "Invalid numeric value"
        return {"unreadable": str(error).rpartition(": ")[2]}
    return {"runs": runs, "late": late}


def _read(seen: dict, program: str, name: str, nodes: int, gpus: int, hosts: list[str], jobs: tuple) -> dict:
    """What came of a script, in words that can be compared."""
    first, second = seen["runs"]
    options = first["options"]
    try:
        request = {
            "The number of nodes": pretend.nodes_of(options),
            "The number of GPUs on each node": pretend.gpus_on_each(options, nodes),
            "The number of cores on each node": pretend.cores_on_each(options, nodes),
            "The time limit in minutes": pretend.minutes(options.get("time", "")),
        }
        started = [pretend.processes(run["calls"]) for run in (first, second)]
    except ValueError as error:
        return {"unreadable": str(error).rpartition(": ")[2]}
    made = started[0]
    log = options.get("output", "slurm-%j.out").replace("%x", options.get("job-name", "job.sh"))
    logs = [log.replace("%j", str(job)).replace("%A", str(job)) for job in jobs]
    worlds = {each["world"]: [] for each in made}
    for each in made:
        worlds[each["world"]].append(each)
    (ports, others) = ({each["port"] for each in some} for some in started)
    cores = [each["cores"] for each in made if each["step"]]
    # torchrun's rendezvous finds the ranks; plain processes have to be told.
    ranks = [str(each["rank"]) for each in made if each["rank"] is None and each["by"] == "srun"]
    ranks = ranks or sorted(each["rank"] for each in made if each["rank"] is not None)
    here = {None, "localhost", "127.0.0.1"} if nodes == 1 else set()
    return request | {
        "The name of the job": options.get("job-name"),
        "The log has the name of the job": log.find(name) >= 0 or "output" not in options,
        "Each job has its own log": logs[0] != logs[1],
        "The number of processes on each node": [sum(p["node"] == node for p in made) for node in range(nodes)],
        "The program": sorted({" ".join(p["program"]) for p in made}),
        "The processes in one world": sorted(len(world) for world in worlds.values()),
        "The size that each process was told": sorted({str(p["size"]) for p in made}),
        "The ranks": "each once" if ranks in ([], [*range(len(made))]) else ranks,
        "Each process has a GPU of its own": len({(p["node"], p["gpu"]) for p in made if p["gpu"]}) == len(made),
        "LOCAL_RANKs without a GPU": sum(not p["gpu"] for p in made),
        "sees its own": "gpus-per-task" in options,
        "The meeting place": sorted({hosts[0] if p["host"] in here else str(p["host"]) for p in made}),
        "Two jobs have different ports": nodes == 1 or not ports & others,
        "The port": "good"
        if all(str(p).isdigit() and 1024 <= int(p) < EPHEMERAL for p in ports if p)
        else ", ".join(sorted(ports)),
        "Threads of each process": ", ".join(sorted({str(p["threads"] or "no value") for p in made})),
        "Cores of each process": min(cores, default=0),
        "A failure is the job's failure": second["status"] not in (0, None),
        "A success is the job's success": first["status"],
        "in the script": [p for p in made if not p["step"]],
        "started": len(made),
        "by": {p["by"]: 1 for p in made},
        "alone": any(p.get("alone") for p in made),
        "tasks": pretend.tasks_on_each(options, nodes),
        "errors": first["errors"] or "(nothing)",
        "late": seen["late"],
        "backend": [c["words"] for c in first["calls"] if c["command"] == "torchrun"],
    }


def _job(ask: Any, program: str, name: str, nodes: int, gpus: int, cores: int, minutes: int, site: tuple) -> dict:
    """The measure of `job_script`."""
    nodelist, hosts, jobs = site
    request = (program, name, nodes, gpus, cores, minutes)
    seen = ask.observe(_asked, request, nodelist, hosts, jobs)
    return _read(seen, program, name, nodes, gpus, hosts, jobs) if "runs" in seen else seen


def _requests(new: Inputs) -> list[tuple]:
    first = new.size(2, 5)
    pair = f"gpu[{first:02},{first + 3:02}]", [f"gpu{first:02}", f"gpu{first + 3:02}"]
    # Job numbers of an old site and of a new one. The old one's end exposes a port above 32767: 20000 + % 20000, say.
    job, early = 10**5 * new.size(10, 90) + new.size(35_000, 39_990), new.size(3, 900)
    seed = new.size(2, 99)
    return [
        ("train.py", f"mnist{seed}", 2, 4, new.size(5, 7), 90 + new.size(1, 20), (*pair, (job, job + 1))),
        (f"big.py --seed {seed}", "sweep", 1, 2, 3, 24 * 60 + 40, (f"a{first}", [f"a{first}"], (early, early + 1))),
    ]


_job_but = partial(changed, _job_script)
_srun_but = partial(changed, _with_srun)

exercise(
    "job_script",
    title="Write the job script",
    minutes=14,
    difficulty=3,
    points=4,
    seconds=120.0,
    takeaway="One task on each node, `torchrun` as that task, a process for each GPU, a port from the job's number: "
    "four decisions, and the same script runs on one node or on forty.",
    hints=(
        "Take `two_nodes.sh` of the lecture and make an f-string of it; `{{` and `}}` are braces of bash. What does "
        "this request change in it?",
        "The task is `torchrun`: one for each node, with the cores of all its processes, "
        "`--cpus-per-task={gpus * cores}`. Each process has `OMP_NUM_THREADS={cores}`. `srun` learns about the cores "
        "from `SRUN_CPUS_PER_TASK`.",
        'The last lines: `head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)`, '
        "`port=$((20000 + SLURM_JOB_ID % 12000))`, then `srun torchrun --nnodes=$SLURM_NNODES "
        "--nproc-per-node={gpus} --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d --rdzv-endpoint=$head:$port {program}`. "
        "In Python, a backslash at the end of a line joins lines; write the command in one.",
    ),
    spec=Spec(
        draw=_requests,
        solution=_job_script,
        measure=_job,
        by_case=True,
        mistakes=[
            *_no_script(_job_script),
            r"""
            --nodes={nodes} → --nodes=$NODES
            --cpus-per-task={gpus * cores} → --cpus-per-task=$((4 * 2))
                An option has a value that is no number: {yours[unreadable]}.
                look: the #SBATCH lines: Slurm reads them, not bash, so nothing in them is expanded
                when: "unreadable" in yours
            #!/bin/bash → #!/bin/bash\nset -e
            _job_but(("#SBATCH --time={minutes}\n", ""), ("set -e\n", "set -e\n#SBATCH --time={minutes}\n"))
                Slurm does not see this line, because a command comes before it: {yours[late][0]}
                look: all #SBATCH lines go above the first command
                when: yours["late"]
            _job_but(("#SBATCH --nodes={nodes}\n", ""))
            --nodes={nodes} → --nodes={gpus}
                The number of nodes that the job asks for is {yours[The number of nodes]}, not {nodes}.
                look: `#SBATCH --nodes=…`, at the start of a line and without a blank behind the #
                when: _differ("The number of nodes", yours, expected)
            _job_but(("#SBATCH --gpus-per-node={gpus}\n", ""))
            --gpus-per-node={gpus} → --gpus={gpus} || --gpus-per-node={nodes * gpus}
                The job asks for {yours[The number of GPUs on each node]} GPUs on each node instead of {gpus}.
                look: `--gpus-per-node` counts those of one node, `--gpus` those of the whole job
                when: _differ("The number of GPUs on each node", yours, expected)
            _job_but(("#SBATCH --time={minutes}\n", ""))
            --time={minutes} → --time={minutes // 60}:{minutes % 60:02} || --time=00:{minutes} || --time={minutes * 60}
                {minutes} minutes were asked for, and Slurm reads your time limit as {yours[The time limit in minutes]}
                minutes.
                look: one number is minutes, M:SS minutes and seconds, H:MM:SS hours
                when: _differ("The time limit in minutes", yours, expected)
            srun torchrun → srun torchrum
            srun torchrun → # srun torchrun && \n    --rdzv-backend → \n#
            lambda *request: _job_script(*request).replace("srun torchrun", "if srun torchrun")
                Your script never starts the program, or ends before the program does. It said: {yours[errors]}
                when: not yours["started"]
            srun torchrun → torchrun
                `torchrun` runs in the script itself, which means on the first node only. `srun` in front starts it on
                each node.
                when: yours["in the script"] and yours["by"].get("torchrun")
            _srun_but(("srun --cpus-per-task=$SLURM_CPUS_PER_TASK bash", "bash"))
            lambda program, *rest: _job_script(program, *rest).rpartition("srun")[0] + f"python {program}\n"
                The program runs in the script itself, which means once, on the first node. `srun` in front starts it
                for every task.
                when: yours["in the script"]
            --ntasks-per-node=1 → --ntasks-per-node={gpus} && {gpus * cores} → {cores}
                {yours[started]} processes start; {nodes} nodes with {gpus} GPUs need {expected[started]}. You have
                {yours[tasks]} tasks on each node, and each of them is a `torchrun` that starts processes itself.
                look: `--ntasks-per-node=1`, or leave `torchrun` out
                when: yours["started"] > expected["started"] and yours["by"].get("torchrun") and yours["tasks"] > 1
            --nproc-per-node={gpus}  →
            --nproc-per-node={gpus} → --nproc-per-node={nodes * gpus} || --nproc-per-node={cores}
            _srun_but(("--ntasks-per-node={gpus}", "--ntasks-per-node=1"))
            srun torchrun → srun --ntasks=1 torchrun
                On the nodes start {yours[The number of processes on each node]} processes; it should be one for each
                GPU, {gpus} on each node.
                when: _differ("The number of processes on each node", yours, expected)
            _job_but((" | head -n 1", ""))
                The meeting place is all nodes, each on a line of its own: the first line ends up as its name, the
                others as arguments of the program.
                look: `| head -n 1` behind `scontrol show hostnames`
                when: any((host in words for host in site[1][1:] for words in yours["The program"]))
            {program} → {program.split()[0]} --now || train2.py
                The program is started as {yours[The program]} instead of {expected[The program]}.
                look: the end of the last line
                when: _differ("The program", yours, expected)
            {gpus * cores} → {cores}
            _job_but(("#SBATCH --cpus-per-task={gpus * cores}\n", ""))
            _srun_but(("-c {cores}", "-c {gpus * cores}"))
                The job has {yours[The number of cores on each node]} cores on each node; {gpus} processes with {cores}
                cores each need {expected[The number of cores on each node]}.
                look: `--cpus-per-task`: how many processes are in one task?
                when: _differ("The number of cores on each node", yours, expected)
            --nnodes=$SLURM_NNODES  →
            --nnodes=$SLURM_NNODES → --standalone || --nnodes=1
                Each node starts a world of its own, because the `torchrun`s do not know of each other: {yours[The
                processes in one world]} processes instead of {expected[The processes in one world]}.
                look: `--nnodes=$SLURM_NNODES`
                when: yours["alone"] and _differ("The processes in one world", yours, expected)
            """,
            Mistake(
                "The processes meet at {yours[The meeting place]}; that must be the first node, {expected[The meeting "
                "place]}, and every node has to get the same name.",
                _job_but(("$head:$port", "localhost:$port")),
                _job_but(("$head:$port", "$SLURM_JOB_NODELIST:$port")),
                _job_but(("$head:$port", "n1:$port")),
                _job_but(("head -n 1", "tail -n 1")),
                _job_but(
                    (":$port", ":$port"),
                    ("srun torchrun", "srun bash -c 'torchrun"),
                    ("$head", "$(hostname)"),
                    ('{program}\n"""', '{program}\'\n"""'),
                ),
                _srun_but(("MASTER_ADDR=$(scontrol show hostnames | sed -n 1p)", "MASTER_ADDR=127.0.0.1")),
                look='`scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1`',
                when=lambda yours, expected, *_: _differ("The meeting place", yours, expected),
            ),
            r"""
            --rdzv-backend=c10d  →
            lambda *request: _with_node_rank(*request).replace("--node_rank $SLURM_NODEID ", "")
                Every `torchrun` takes itself for node 0: without `--rdzv-backend=c10d`, each must be told its number.
                look: `--rdzv-backend=c10d` finds the numbers out by itself
                when: yours["by"].get("torchrun") and yours["The ranks"] != "each once"
            _srun_but(("RANK=$SLURM_PROCID LOCAL_RANK", "LOCAL_RANK"))
                Nothing tells the processes who they are: `srun` sets SLURM_PROCID, and your program reads RANK.
                look: `srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec python
                    …'`
                when: yours["by"].get("srun") and {*yours["The ranks"]} == {"None"}
            _srun_but(("RANK=$SLURM_PROCID LOCAL_RANK", "RANK=$SLURM_LOCALID LOCAL_RANK"))
                RANK is the number within the node, {yours[The ranks]}: every node has a task 0, but there is one rank
                0.
                look: `RANK=$SLURM_PROCID`
                when: nodes > 1 and yours["The ranks"] == sorted([*range(gpus)] * nodes)
            lambda *request: _with_srun(*request).replace("'", '"')
                RANK has to come from Slurm's variables inside the task. Your processes have the ranks
                {yours[The ranks]}.
                look: where $SLURM_PROCID is filled in. In double quotes, and in a line before `srun`, the shell of the
                    script does that, and there it is always 0; in single quotes behind `srun`, each task does
                when: yours["by"].get("srun") and {*yours["The ranks"]} == {0}
            _srun_but(("WORLD_SIZE=$SLURM_NTASKS ", ""))
                RANK and WORLD_SIZE have to come from Slurm's variables inside the task. Your processes have the ranks
                {yours[The ranks]} and sizes {yours[The size that each process was told]}.
                look: where $SLURM_PROCID is filled in. In double quotes, and in a line before `srun`, the shell of the
                    script does that, and there it is always 0; in single quotes behind `srun`, each task does
                when: yours["by"].get("srun") and (yours["The ranks"] != "each once" or _differ("The size that each
                    process was told", yours, expected))
            _srun_but(("--gres=gpu:{gpus}", "--gpus-per-task=1"))
                With `--gpus-per-task=1`, each task sees only its own GPU, as number 0. For
                {yours[LOCAL_RANKs without a GPU]} of your processes, there is no GPU with the number LOCAL_RANK: they
                end with "invalid device ordinal".
                look: with `--gpus-per-node={gpus}`, all tasks of a node see all its GPUs, and each takes number
                    LOCAL_RANK
                when: yours["sees its own"] and yours["LOCAL_RANKs without a GPU"]
            _srun_but(("LOCAL_RANK=$SLURM_LOCALID", "LOCAL_RANK=0"))
            _srun_but(("LOCAL_RANK=$SLURM_LOCALID ", ""))
            _srun_but(("LOCAL_RANK=$SLURM_LOCALID", "LOCAL_RANK=$SLURM_PROCID"))
                LOCAL_RANK is not the number of the process within its node, so several processes take the same GPU, or
                one that does not exist.
                look: `LOCAL_RANK=$SLURM_LOCALID`
                when: not yours["Each process has a GPU of its own"]
            $((20000 + SLURM_JOB_ID % 12000)) → 29500
            :$port →
                Two jobs on one node get the same port, and the second one ends with "address already in use".
                look: `$((20000 + SLURM_JOB_ID % 12000))`
                when: not yours["Two jobs have different ports"]
            $((20000 + SLURM_JOB_ID % 12000)) → $((90000 + SLURM_JOB_ID)) || p$SLURM_JOB_ID || $SLURM_JOB_ID
                    || $((20000 + SLURM_JOB_ID % 20000)) || $((10000 + SLURM_JOB_ID % 50000))
                As job {site[2][0]}, the port is {yours[The port]}. Choose a number from 1024 to 32767: Linux uses
                higher ones, up to 60999, for outgoing connections, so one of them may be taken.
                look: the remainder `%` keeps the port in range for any job: `$((20000 + SLURM_JOB_ID % 12000))`
                when: yours["The port"] != "good"
            _job_but(("export OMP_NUM_THREADS={cores}\n", ""))
            export OMP_NUM_THREADS={cores} → OMP_NUM_THREADS={cores}
            OMP_NUM_THREADS={cores} → OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK || OMP_NUM_THREADS=1
                In the processes, OMP_NUM_THREADS has {yours[Threads of each process]}; each has {cores} cores, so
                {cores} threads.
                look: `export OMP_NUM_THREADS=…`; $SLURM_CPUS_PER_TASK counts the cores of a whole task
                when: _differ("Threads of each process", yours, expected)
            _job_but(("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n", ""))
            _srun_but(("--cpus-per-task=$SLURM_CPUS_PER_TASK bash", "bash"))
                `srun` does not take the number of cores over from the #SBATCH lines, so its tasks may get one core
                only.
                look: `export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK`, or `srun --cpus-per-task=…`
                when: _differ("Cores of each process", yours, expected)
            """,
            Mistake(
                "The program failed, but the job reports success, so a job that depends on it will start.",
                _job_but(('{program}\n"""', '{program}\necho done\n"""'), ("set -e\n", "")),
                _job_but(('{program}\n"""', '{program} || true\n"""')),
                _job_but(('{program}\n"""', '{program} | tee log\n"""')),
                _job_but(('{program}\n"""', '{program} &\nwait\n"""')),
                look="what comes after `srun`: a pipe, `&` with `wait`, and later commands have a status of their own; "
                "`srun` as the last line, or `set -e` at the top, keeps that of the program",
                when=lambda yours, *_: not yours["A failure is the job's failure"],
            ),
            r"""
            %x-%j.out → %x.out
                Two runs write to the same log, and the second one overwrites the first.
                look: `%j` in `--output`
                when: not yours["Each job has its own log"]
            _job_but(("#SBATCH --job-name={name}\n", ""))
            --job-name={name} → --job-name=train
                The name of the job is {yours[The name of the job]}; it should be {name}.
                look: `--job-name`
                when: _differ("The name of the job", yours, expected)
            %x-%j.out → run-%j.out
                The name of the log does not contain the name of the job.
                look: `%x` in `--output`
                when: not yours["The log has the name of the job"]
            lambda *request: _with_node_rank(*request).replace("port $PORT", "port $((PORT + 100 * SLURM_NODEID))")
                The processes form worlds of {yours[The processes in one world]}; there should be one of {expected[The
                processes in one world]}. A world needs the same address and the same port everywhere.
                look: compute both once, in the script: what is between the single quotes runs once for each task
                when: _differ("The processes in one world", yours, expected)
            """,
        ],
        also_right=[
            _with_srun,
            _with_node_rank,
            _job_but(
                ("set -e\n", "set -e\ncd $SLURM_SUBMIT_DIR\nmodule load cuda\nnvidia-smi\n"),
                ("--gpus-per-node={gpus}", "--gres=gpu:{gpus}"),
                ("--nproc-per-node={gpus}", "--nproc-per-node=$SLURM_GPUS_ON_NODE"),
            ),
            _job_but(("--nproc-per-node={gpus}", "--nproc-per-node=gpu")),
            _job_but(
                ("--cpus-per-task={gpus * cores}", "--cpus-per-gpu={cores}"),
                ("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n", ""),
            ),
            _srun_but(("--gres=gpu:{gpus}", "--gpus-per-task=1"), ("LOCAL_RANK=$SLURM_LOCALID", "LOCAL_RANK=0")),
        ],
    ),
)


# ---------------------------------------- requeue

AGAIN = 75  # the exit status of a program that has saved and wants to be started again (chapter 09)


def _requeue(program, seconds, most):
    return f"""#!/bin/bash
#SBATCH --time=1:00:00
#SBATCH --signal=USR1@{seconds}
#SBATCH --requeue
#SBATCH --open-mode=append
status=0
srun python {program} || status=$?
if [ $status -eq 75 ] && [ ${{SLURM_RESTART_COUNT:-0}} -lt {most} ]; then
    scontrol requeue $SLURM_JOB_ID
fi
exit $status
"""


def _with_trap(program, seconds, most):
    return f"""#!/bin/bash
#SBATCH --requeue --open-mode append
#SBATCH --signal=B:USR1@{seconds}
trap 'kill -USR1 $task' USR1
python {program} &
task=$!
wait $task; wait $task
status=$?
case $status in
75) if (( ${{SLURM_RESTART_COUNT:-0}} < {most} )); then scontrol requeue "$SLURM_JOB_ID"; fi ;;
esac
exit $status
"""


def _with_if(program, seconds, most):
    return f"""#!/usr/bin/env bash
#SBATCH --signal=SIGUSR1@{seconds}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --output=%x-%j.out
count=${{SLURM_RESTART_COUNT:-0}}
srun python {program}
status=$?
[[ $status == 75 && $count -lt {most} ]] && scontrol requeue ${{SLURM_JOB_ID}}
exit $status
"""


def _nights(answer: Any, program: str, seconds: int, most: int, job: int) -> dict:
    """A probe: the script in six nights, each of which ends in another way, and one that may be restarted once."""
    texts = [call(answer, program, seconds, restarts, may_return_none=True) for restarts in (most, 1)]
    for text in texts:
        if not isinstance(text, str):
            return {"instead": show(text)}
        if refused := pretend.why_refused(text):
            return {"refused": refused}
    run, run_once = (partial(pretend.run_job, text, hosts=["n1"], nodelist="n1", job=job) for text in texts)
    try:
        return {
            "finished": run(status=0),
            "crashed": run(status=1),
            "killed": run(status=137),
            "stopped": run(signaled=True),
            "last": run(status=AGAIN, restarts=most - 1),
            "too often": run(status=AGAIN, restarts=most),
            "only one": run_once(status=AGAIN),
        }
    except ValueError as error:
        return {"refused": str(error)}


def _requeued(run: dict, job: int) -> list[str]:
    """For each `scontrol requeue`: "this job", or what it was about."""
    words = [call["words"] for call in run["calls"] if call["command"] == "scontrol" and "requeue" in call["words"]]
    return ["this job" if each[-1] == str(job) else " ".join(each) for each in words]


def _came_back(ask: Any, program: str, seconds: int, most: int, job: int) -> dict:
    """The measure of `requeue`."""
    seen = ask.observe(_nights, program, seconds, most, job)
    if "finished" not in seen:
        return seen
    options = seen["finished"]["options"]
    signal = re.fullmatch(r"(?:B:)?(?:SIG)?(\w+)(?:@(\d+))?", options.get("signal", ""))
    programs = {
        " ".join(each["words"])
        for run in seen.values()
        for each in run["calls"]
        if each["command"] in ("python", "torchrun")
    }
    stops = [call for call in seen["stopped"]["calls"] if call["command"] == "scontrol"]
    other = [" ".join(call["words"]) for call in stops if "requeue" not in call["words"]]
    return {
        "The program": sorted(programs),
        "The signal": signal and [signal[1].replace("10", "USR1"), signal[2] or "60"],
        "It may be requeued": "requeue" in options,
        "The log is continued": options.get("open-mode", "")[:1] == "a",
        "How often it starts the program": max(
            sum(c["command"] in ("python", "torchrun") for c in run["calls"]) for run in seen.values()
        ),
        "The signal reaches the program": seen["stopped"]["saved"],
        "Requeued before it had saved": any(not call["saved"] for call in stops),
        "Requeues after a stop": _requeued(seen["stopped"], job),
        "Nothing is left to do after the requeue": not _after_requeue(seen["stopped"]),
        "Requeues after success": _requeued(seen["finished"], job),
        "Requeues after a crash": _requeued(seen["crashed"], job),
        "Requeues after being killed": _requeued(seen["killed"], job),
        "Requeues with one restart left": _requeued(seen["last"], job),
        "Requeues with none left": _requeued(seen["too often"], job),
        "Requeues in the first start if one is allowed": _requeued(seen["only one"], job),
        "The status after success": seen["finished"]["status"],
        "The status after a crash": seen["crashed"]["status"],
        "The status with no restart left": seen["too often"]["status"],
        "errors": seen["finished"]["errors"] or "(nothing)",
        "said": f" Bash said: {said}" if (said := seen["stopped"]["errors"]) else "",
        "too late": _after_requeue(seen["stopped"]),
        "other words": next(iter(other), ""),
        "sbatch": any(call["command"] == "sbatch" for run in seen.values() for call in run["calls"]),
    }


def _after_requeue(run: dict) -> str:
    """The first command after `scontrol requeue` that does something."""
    ran = iter([line.lstrip("+").strip() for line in run["ran"] if line.startswith("+")])
    for line in ran:
        if line.startswith("scontrol requeue"):
            break
    idle = "exit", "echo", "printf", "return", "true", ":", "[", "[[", "test", "((", "break", "set", "sleep", "wait"
    return next((line for line in ran if "=" not in (word := line.split()[0].strip("'")) and word not in idle), "")


_requeue_but = partial(changed, _requeue)
_CONDITION = "[ $status -eq 75 ] && [ ${{SLURM_RESTART_COUNT:-0}} -lt {most} ]"
_RUN = "srun python {program} || status=$?"

exercise(
    "requeue",
    title="Come back after the limit",
    minutes=13,
    difficulty=3,
    points=4,
    seconds=180.0,
    takeaway="Slurm sends the signal, your program saves and says so with its exit status, and only then the script "
    "requeues: one status leads back into the queue, every other one ends the job.",
    hints=(
        "Four #SBATCH lines and four steps: start, keep the status, look at it, end with it. The shell forgets a "
        "status "
        "with the next command, so keep it at once in a variable.",
        "`status=0`, then `srun python … || status=$?`. The number of restarts is in SLURM_RESTART_COUNT, which does "
        "not "
        "exist in the first start: `${SLURM_RESTART_COUNT:-0}`. In an f-string, braces of bash are doubled.",
        "`if [ $status -eq 75 ] && [ ${{SLURM_RESTART_COUNT:-0}} -lt {most} ]; then scontrol requeue $SLURM_JOB_ID; "
        "fi`, "
        "and at the very end `exit $status`.",
    ),
    spec=Spec(
        draw=lambda new: [
            (f"train.py run{new.size(2, 99)}", new.size(65, 290), new.pick([10, 100]), new.size(1000, 9000))
        ],
        solution=_requeue,
        measure=_came_back,
        mistakes=[
            *_no_script(_requeue),
            r"""
            srun python → srum python || srun
                Your script never starts the program, or ends before the program does. It said: {yours[errors]}
                look: `srun python …`, and no `&` without a `wait` behind it
                when: not yours["The program"]
            python {program} → python train.py
                The program is started as {yours[The program]} instead of {expected[The program]}.
                when: _differ("The program", yours, expected)
            scontrol requeue $SLURM_JOB_ID → srun python {program}; scontrol requeue $SLURM_JOB_ID
                Your script starts the program again by itself: the time of this job is up, so what helps is the queue.
                when: _differ("How often it starts the program", yours, expected)
            _requeue_but(("#SBATCH --signal=USR1@{seconds}\n", ""))
            #!/bin/bash → #!/bin/bash\nset -u
                The script asks for no signal; Slurm would end the program at its limit without a warning.
                look: `#SBATCH --signal=USR1@…`, above the first command
                when: yours["The signal"] is None
            USR1@{seconds} → USR1 || TERM@{seconds} || USR1@120
                The signal is {yours[The signal][0]}, {yours[The signal][1]} seconds before the limit; it should be
                USR1, {seconds} seconds before.
                when: _differ("The signal", yours, expected)
            _requeue_but(("USR1@{seconds}", "B:USR1@{seconds}"), (_RUN, "trap 'scontrol requeue $SLURM_JOB_ID; exit'
                    USR1\nsrun python {program} & wait $! || " "status=$?"))
                The job is requeued before the program has saved: the requeue ends it, and the work is lost.
                look: the program has to get the signal, save, and end; then look at its status
                when: yours["Requeued before it had saved"]
            srun python → python
            USR1@{seconds} → B:USR1@{seconds}
            USR1@{seconds} → B:USR1@{seconds} && status=0 → status=0\ntrap : USR1
                The signal does not reach the program. Slurm sends it to what `srun` started, or with `B:` to the shell
                alone, which waits for its command before it does anything.
                look: `--signal=USR1@…` without `B:`, and `srun` in front of the program. With `B:`, the program runs in
                    the background (`srun … &`), a `trap` passes the signal on, and `wait` waits for the program
                when: not yours["The signal reaches the program"]
            scontrol requeue $SLURM_JOB_ID → sbatch $0 || sbatch --dependency=afterany:$SLURM_JOB_ID $0
                Your script submits another job with `sbatch`, which waits at the end of the queue and counts its
                restarts from 0. The same job should come back.
                look: `scontrol requeue`
                when: yours["sbatch"]
            scontrol requeue → scontrol resume || scontrol release
                Your script calls `scontrol {yours[other words]}`; what puts a running job back is `scontrol requeue`.
                when: yours["other words"] and not yours["Requeues after a stop"]
            -lt {most} → < {most}
                Between `[` and `]`, `<` and `>` read and write files.{yours[said]}
                look: `-lt` compares numbers
                when: "No such file" in yours["said"] and not yours["Requeues after a stop"]
            status=0 → set -e && srun python {program} || status=$? → srun python {program}; status=$?
            -eq 75 → -eq 138 || -eq 0
            scontrol requeue $SLURM_JOB_ID → echo requeue
            _requeue_but((_RUN, "srun python {program} || status=1"))
            ${{SLURM_RESTART_COUNT:-0}} → $SLURM_RESTART_COUNT
            -lt {most} → -gt {most}
            srun python {program} || status=$? → srun python {program}\necho ended\nstatus=$?
                The program stopped and saved, and the job was not requeued.{yours[said]}
                look: the status after `srun`: `set -e` ends the script there, another command (a bare `wait`, too)
                    replaces `$?`. Then the condition: `-eq 75`, `-lt {most}`, and in the first start
                    SLURM_RESTART_COUNT does not exist
                when: not yours["Requeues after a stop"]
            _requeue_but((_CONDITION, "[ ${{SLURM_RESTART_COUNT:-0}} -lt {most} ]"))
            _requeue_but((_CONDITION, "[ $status -le 75 ]"))
                A training run that is finished goes back into the queue and starts again needlessly.
                when: yours["Requeues after success"]
            -eq 75 → -ne 0 || -gt 0 || -ge 75
                A program that crashed goes back into the queue, where it crashes again, all night.
                look: only the status 75 says that it has saved
                when: yours["Requeues after a crash"] or yours["Requeues after being killed"]
            _requeue_but((" && [ ${{SLURM_RESTART_COUNT:-0}} -lt {most} ]", ""))
            -lt {most} → -le {most} || > 0
                After {most} restarts the job goes back into the queue once more, and {most} are allowed.
                look: the comparison with SLURM_RESTART_COUNT, which is {most} then. Between `[` and `]` it is `-lt`:
                    `<` and `>` read and write a file there
                when: yours["Requeues with none left"]
            -lt {most} → -lt $(({most} - 1)) || -eq 0
            _requeue_but((_CONDITION, "[[ $status == 75 && ${{SLURM_RESTART_COUNT:-0}} < {most} ]]"))
                One restart was left, and the job was not requeued: {most} are allowed, and SLURM_RESTART_COUNT says how
                many there have been.
                look: `-lt {most}`; in `[[ ]]`, `<` compares texts, in which 9 comes after 10
                when: not yours["Requeues with one restart left"]
            COUNT:-0} → COUNT:-1}
                With one restart allowed, the job is not requeued after its first start. Slurm sets SLURM_RESTART_COUNT
                from the first restart on; until then the count is 0.
                look: the default behind `:-`
                when: not yours["Requeues in the first start if one is allowed"]
            requeue $SLURM_JOB_ID → requeue || requeue 4711 || requeue $SLURM_JOB_ID; scontrol requeue $SLURM_JOB_ID
                `scontrol requeue` gets {yours[Requeues after a stop][0]} instead of the number of this job, once.
                look: $SLURM_JOB_ID
                when: _differ("Requeues after a stop", yours, expected)
            requeue $SLURM_JOB_ID → requeue $SLURM_JOB_ID; cp -r results saved
                After `scontrol requeue` comes `{yours[too late]}`, and Slurm may end the script before that.
                look: `scontrol requeue` comes last, with nothing but `exit` behind it
                when: yours["too late"]
            _requeue_but(("exit $status\n", ""))
            exit $status → exit 0
                After a crash the job ends with status {yours[The status after a crash]}, and after the last restart
                with {yours[The status with no restart left]}; both should be the program's.
                look: `status=$?` in the line after `srun` (every command, `if` and `[` too, sets `$?` anew), and `exit
                    $status` as the last line
                when: _differ("The status after a crash", yours, expected) or _differ("The status with no restart left",
                    yours, expected)
            _requeue_but(("exit $status", "[ $status -eq 0 ] && exit 1; exit $status"))
                The training succeeded, and the job ends with status {yours[The status after success]}.
                when: yours["The status after success"]
            _requeue_but(("#SBATCH --requeue\n", ""))
            --requeue → --no-requeue
                The script does not say that it may be requeued, and some sites don't allow it unless you do.
                look: `#SBATCH --requeue`
                when: not yours["It may be requeued"]
            _requeue_but(("#SBATCH --open-mode=append\n", ""))
                The second start overwrites the log of the first one.
                look: `#SBATCH --open-mode=append`
                when: not yours["The log is continued"]
            """,
        ],
        also_right=[
            _with_trap,
            _with_if,
            changed(_with_trap, ("python {program} &", "srun python {program} &")),
            changed(
                _with_trap,
                ("python {program} &", "srun --kill-on-bad-exit=0 --wait=60 python {program} &"),
                ("kill -USR1 $task", "scancel --signal=USR1 $SLURM_JOB_ID"),
            ),
        ],
    ),
)


# ---------------------------------------- one copy for each node


def _stage_once(source, folder):
    target = folder / source.name
    part = target.with_suffix(".part")
    if int(os.environ["SLURM_LOCALID"]) == 0:
        shutil.copyfile(source, part)
        os.replace(part, target)
    while not target.exists():
        time.sleep(0.02)
    return target


def _by_bytes(source, folder):
    target = os.path.join(folder, source.name)
    if os.environ.get("SLURM_LOCALID") == "0":
        with open(source, "rb") as file, open(target + "~", "wb") as copy:
            copy.write(file.read())
        os.rename(target + "~", target)
    else:
        while not os.path.isfile(target):
            pass
    return target


def _in_a_folder_within(source, folder):
    target = folder / source.name
    if os.environ["SLURM_LOCALID"] == "0":
        with tempfile.TemporaryDirectory(dir=folder) as work:
            os.replace(shutil.copy(source, work), target)
    while not target.exists():
        time.sleep(0.02)
    return target


def _by_shell(source, folder):
    target = folder / source.name
    if os.environ["SLURM_LOCALID"] == "0":
        subprocess.run(f"cp {source} {target}.part && mv {target}.part {target}", shell=True, check=True)
    while not target.exists():
        time.sleep(0.02)
    return target


TASKS = 3  # on the first node, so that no remainder of SLURM_PROCID is 0 once on each node
WAIT = 0.4  # seconds that the network disk takes to open a file, and the node's to rename one
LATE = 3.0  # seconds that the last task of a node waits for the copy before it begins at all
PATIENCE = 6  # seconds after which a task counts as waiting forever
NAP = 1.0  # seconds that a task sleeps at most; where one does, the disks take longer, so that sleeping is not enough


class _StillWaiting(BaseException):
    pass


def _in_words(path: str, source: str, folder: str) -> str:
    """A path in words that are the same in every run: temporary folders have random names."""
    path = os.path.abspath(path)
    places = {
        source: "the source",
        folder: "the node's folder",
        os.path.dirname(source): "the folder of the source",
        os.path.dirname(folder): "the disk of another node",
        os.path.realpath("."): "the current folder",
        os.path.realpath(tempfile.gettempdir()): "the system's temporary folder",
    }
    place = next((place for place in places if f"{path}{os.sep}".startswith(f"{place}{os.sep}")), None)
    return places[place] if place else "another folder"


def _in_one_go(words: Any, source: str, target: str) -> bool:
    """Tell whether a command, or one of several in a shell's line, copies the source to its final name."""
    text = words if isinstance(words, str) else words[-1] if "-c" in words else shlex.join(map(os.fsdecode, words))
    commands = [each.split() for each in re.split(r"&&|\|\||[;\n]", text.replace("'", "").replace('"', ""))]
    ends = (target, os.path.dirname(target))
    return any(source in each and each[-1].rstrip("/") in ends for each in commands)


def _on_task(answer: Callable, source: str, nodes: list[str], length: int) -> dict:
    """One of four tasks, three on one node and one on the other, in a process of its own: what it did with files."""
    rank = int(os.environ["RANK"])
    node, local = divmod(rank, TASKS)
    os.environ |= {"SLURM_PROCID": str(rank), "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local)}
    os.environ |= {"SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "3,1", "TMPDIR": nodes[node]}
    target = os.path.join(nodes[node], os.path.basename(source))
    napped = Path(source).parent.parent / "napped"
    sleep = time.sleep
    seen = {"node": node, "reads": 0, "in place": False, "hung": False, "from": ""}

    def nap(seconds: float) -> None:
        if seconds >= NAP:
            napped.touch()
        sleep(min(seconds, NAP))

    def take_time() -> None:
        sleep(WAIT + (NAP if napped.exists() else 0))

    def watch(event: str, args: tuple) -> None:
        if event == "open" and isinstance(args[0], str | os.PathLike):
            path = os.fspath(args[0])
            writes = (args[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            if path == source and not writes:
                seen["reads"] += 1
                take_time()
            seen["in place"] |= path == target and bool(writes)
        elif event == "os.rename" and os.path.abspath(os.fsdecode(args[1])) == target:
            folder = os.path.dirname(os.path.abspath(os.fsdecode(args[0])))
            below = f"{folder}{os.sep}".startswith(f"{nodes[node]}{os.sep}")  # on the same disk
            seen["from"] = "" if below else _in_words(folder, source, nodes[node])
            take_time()
        elif event == "subprocess.Popen":
            words = str(args[1])
            if source in words:
                seen["reads"] += 1
                seen["in place"] |= _in_one_go(args[1], source, target)
                sleep(WAIT)  # until another task has begun its nap
                take_time()

    def ring(*_: Any) -> None:
        raise _StillWaiting

    comes_late = time.monotonic() + (LATE if local == TASKS - 1 else 0)
    while time.monotonic() < comes_late and not os.path.isfile(target):
        sleep(0.02)
    sys.addaudithook(watch)
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, 0.5)
    world, dist.GroupMember.WORLD = dist.GroupMember.WORLD, None  # the tasks of the exercise have no process group
    time.sleep = nap
    try:
        result = answer(Path(source), Path(nodes[node]))
        signal.setitimer(signal.ITIMER_REAL, 0)
        whole = os.path.isfile(target) and os.path.getsize(target) == length
        same = isinstance(result, str | os.PathLike) and os.path.normpath(result) == target
        size = os.path.getsize(target) if os.path.isfile(target) else 0
        returned = _in_words(result, source, nodes[node]) if isinstance(result, str | os.PathLike) else show(result)
        seen |= {"whole": whole, "size": size, "result": same, "returned": returned}
    except _StillWaiting:
        seen["hung"] = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        dist.GroupMember.WORLD, time.sleep = world, sleep
    return seen


def _four_tasks(answer: Any, name: str, size: int) -> dict:
    """A probe: four tasks on two nodes. A node's disk is a folder."""
    attempted(answer)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as here:
        here = os.path.realpath(here)
        nodes = [os.path.join(here, node) for node in ("n1", "n2")]
        for folder in (*nodes, os.path.join(here, "network")):
            os.mkdir(folder)
        source = os.path.join(here, "network", name)
        Path(source).write_bytes(bytes(range(256)) * size)
        outcome = ranks.run(_on_task, answer, source, nodes, 256 * size, world_size=4, timeout=30)
        ranks.judge(outcome)
        left = sorted({file for folder in nodes for file in os.listdir(folder) if file != name})
        kept = os.path.exists(source)
    return {"tasks": outcome.values, "left": left, "kept": kept}


def _staged(ask: Any, name: str, size: int) -> dict:
    """The measure of `stage_once`."""
    seen = ask.observe(_four_tasks, name, size)
    tasks = seen["tasks"]
    waiting = [rank for rank, task in enumerate(tasks) if task["hung"]]
    return {
        "Tasks that wait forever": waiting,
        # Of this file: its size is drawn, so what was seen in another run is of no use.
        "The copy is as long as the file": any(task.get("size") == 256 * size for task in tasks),
        "Copies on each node": [sum(t["reads"] > 0 for t in tasks if t["node"] == node) for node in range(2)],
        "Tasks that return before the copy is complete": [
            rank for rank, task in enumerate(tasks) if not task["hung"] and not task["whole"]
        ],
        "The copy appears under its name when it is complete": not any(task["in place"] for task in tasks),
        "The copy is renamed within its folder": not any(task["from"] for task in tasks),
        "from": next((task["from"] for task in tasks if task["from"]), ""),
        "What is returned": sorted({t["returned"] for t in tasks if not t["hung"] and not t["result"]}),
        "What is left beside the copy": seen["left"],
        "The source is still there": seen["kept"],
    }


def _in_place(source, folder):
    if os.environ["SLURM_LOCALID"] == "0":
        subprocess.run(["cp", str(source), str(folder / source.name)], check=True)
    time.sleep(2 * WAIT)
    return folder / source.name


exercise(
    "stage_once",
    title="One copy for each node",
    minutes=10,
    difficulty=3,
    points=3,
    seconds=150.0,
    takeaway="SLURM_LOCALID 0 exists once on each node: it copies under another name and renames, and for all others "
    "the "
    "file's name alone means that it is whole.",
    hints=(
        "Every task runs this function. Which of Slurm's numbers is 0 exactly once on each node?",
        "That task copies to another name in the same folder and calls `os.replace`, which happens at once. The others "
        "wait in a loop until the final name exists, with a short `time.sleep` in it.",
        '`if os.environ["SLURM_LOCALID"] == "0":`, then `shutil.copyfile(source, part)` and '
        "`os.replace(part, target)`; for all: `while not target.exists(): time.sleep(0.02)`.",
    ),
    spec=Spec(
        draw=lambda new: [(f"digits{new.size(2, 99)}.bin", new.size(200, 900))],
        solution=_stage_once,
        measure=_staged,
        mistakes=r"""
            int(os.environ["SLURM_LOCALID"]) == 0 → int(os.environ["SLURM_PROCID"]) == 0
                Only one task of the whole job copies, and the second node, which sees only its own disk, waits for
                ever.
                look: SLURM_LOCALID, which is 0 once on each node
                when: yours["Tasks that wait forever"] == [3] and yours["Copies on each node"] == [1, 0]
            shutil.copyfile(source, part) → shutil.move(source, part)
                Your function takes the source away, and it has to stay: the other node copies it, too.
                look: `move` and `rename` of the source
                when: says(yours, "/network/") and says(yours, "No such file")
            os.replace(part, target) → os.replace(part, target); os.replace(part, target)
                Your temporary file was gone when you renamed it: an earlier line, or another task that copies on this
                node, had renamed it already.
                look: which tasks copy: SLURM_LOCALID is 0 once on each node
                when: says(yours, "/n1/", "/n2/") and says(yours, "No such file")
            int(os.environ["SLURM_LOCALID"]) == 0 → os.environ["SLURM_LOCALID"] == 0
            int(os.environ["SLURM_LOCALID"]) == 0 → int(os.environ["SLURM_PROCID"]) % 2 == 0
                    && .with_suffix(".part") → .with_suffix(f".{os.getpid()}")
            os.replace(part, target) → pass
                Tasks {yours[Tasks that wait forever]} of 4 wait forever.
                look: whether a task copies on this node, and whether its copy gets the name that the others wait for;
                    variables of the environment are strings
                when: yours["Tasks that wait forever"]
            int(os.environ["SLURM_LOCALID"]) == 0 → True && .with_suffix(".part") → .with_suffix(f".{os.getpid()}")
            int(os.environ["SLURM_LOCALID"]) == 0 → not target.exists()
                    && .with_suffix(".part") → .with_suffix(f".{os.getpid()}")
            = shutil.copy(source, folder)
                On the two nodes {yours[Copies on each node]} tasks read the source; it should be one on each: every
                read goes over the network.
                look: SLURM_LOCALID
                when: max(yours["Copies on each node"]) > 1
            int(os.environ["SLURM_LOCALID"]) == 0 → int(os.environ["SLURM_PROCID"]) == 0
                    && while not target.exists():\n        time.sleep(0.02) → pass
            shutil.copyfile(source, part) → os.symlink(source, part)
                A task of each node, or of one of them, has to read the source; yours read it {yours[Copies on each
                node]} times on the nodes.
                look: SLURM_LOCALID, which is 0 once on each node; a link is no copy, it leads to the network disk
                when: min(yours["Copies on each node"]) < 1
            target.with_suffix(".part") → target
            shutil.copyfile(source, part) → target.write_bytes(source.read_bytes()) && os.replace(part, target) → pass
            = _in_place(source, folder)
                The copy grows under its final name, so a task that looks for this name may read half a file.
                look: another name in the same folder, then `os.replace`
                when: not yours["The copy appears under its name when it is complete"]
            target.with_suffix(".part") → Path(tempfile.mkdtemp()) / "part"
                The copy is not written in the node's folder, but in {yours[from]}. That may be another disk, and
                between disks nothing can be renamed, only copied.
                look: a temporary name in the same folder
                when: yours["from"]
            folder / source.name → folder / "data.bin"
            return target → pass || return folder || return source
                Your function should return the path of the copy, `folder / source.name`. It returns {yours[What is
                returned][0]}.
                when: yours["What is returned"]
            while not target.exists():\n        time.sleep(0.02) → pass || time.sleep(4)
            while not target → if not target || while not part.exists() and not target
                Tasks {yours[Tasks that return before the copy is complete]} return before their node has the copy: they
                do not wait for it.
                look: a loop until the final name is there
                when: yours["Tasks that return before the copy is complete"]
            os.replace(part, target)
                    → shutil.copyfile(part, target.with_suffix('.2')); os.replace(target.with_suffix('.2'), target)
                Beside the copy, {yours[What is left beside the copy]} is left on the node's disk.
                look: rename the copy, rather than copy once more; its final name says that it is whole, without a
                    second file
                when: yours["What is left beside the copy"]
        """,
        also_right=[
            _by_bytes,
            _by_shell,
            _in_a_folder_within,
            changed(_stage_once, ("time.sleep(0.02)", "time.sleep(1.5)")),
        ],
    ),
)


# ---------------------------------------- the right size


def _seconds(text: str) -> float:
    days, _, clock = text.rpartition("-")
    total = 0.0
    for part in clock.split(":"):
        total = 60 * total + float(part)
    return total + 86_400 * int(days or 0)


def _right_size(text):
    header, *rows = [line.split("|") for line in text.splitlines()]
    rows = [dict(zip(header, row, strict=True)) for row in rows]
    jobs = [row for row in rows if "." not in row["JobID"] and row["State"] == "COMPLETED"]
    finished = {row["JobID"] for row in jobs}
    peaks = [
        float(row["MaxRSS"][:-1]) / {"K": 1024**2, "M": 1024, "G": 1}[row["MaxRSS"][-1]]
        for row in rows
        if row["MaxRSS"] and row["JobID"].split(".")[0] in finished
    ]
    longest = max(_seconds(row["Elapsed"]) for row in jobs)
    busiest = max(_seconds(row["TotalCPU"]) / _seconds(row["Elapsed"]) for row in jobs)
    return {
        "cores": math.ceil(busiest),
        "gib": math.ceil(1.2 * max(peaks)),
        "minutes": math.ceil(1.25 * longest / 60),
    }


def _clock(seconds: float, fraction: bool = False) -> str:
    days, rest = divmod(int(seconds), 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    if fraction and not days and seconds < 3600:
        return f"{rest // 60:02}:{rest % 60:02}.{_thousandths(seconds):03}"
    return f"{days}-{clock}" if days else clock


def _thousandths(seconds: float) -> int:
    return int(1000 * (seconds % 1))


def _table(jobs: list[tuple]) -> str:
    """What `sacct --parsable2` prints: a line for the job, one for its script, one for each `srun`."""
    lines = ["JobID|State|Elapsed|TotalCPU|MaxRSS|AllocCPUS"]
    for number, state, elapsed, cpu, batch, steps, cores in jobs:
        wall, used = _clock(elapsed), _clock(cpu, fraction=True)
        lines += [
            f"{number}|{state}|{wall}|{used}||{cores}",
            f"{number}.batch|{state}|{wall}|00:01.250|{batch}|{cores}",
        ]
        for i, (ended, time_of_step, cpu_of_step, size) in enumerate(steps):
            wall, used = _clock(time_of_step), _clock(cpu_of_step, fraction=True)
            lines.append(f"{number}.{i}|{ended}|{wall}|{used}|{size}|{cores}")
    return "\n".join(lines) + "\n"


def _histories(new: Inputs) -> list[tuple]:
    number = new.size(1000, 4000)

    def run(
        i: int, state: str, minutes: float, busy: float, gib: float, unit: str, cores: int, twice: str = ""
    ) -> tuple:
        sizes = {"K": f"{gib * 1024**2:.0f}K", "M": f"{gib * 1024:.2f}M", "G": f"{gib:.2f}G"}
        elapsed = int(60 * minutes)
        steps = [(state, elapsed, busy * elapsed, sizes[unit])]
        if twice:  # a short step that is busy and large and ends in a state of its own, then a long one
            quarter, half = elapsed // 4, busy * elapsed / 2
            small = f"{gib * 512:.2f}M"
            steps = [(twice, quarter, half, sizes[unit]), (state, elapsed - quarter, half, small)]
        job = str(number + i if i >= 0 else -10 * i * number)
        return (job, state, elapsed, busy * elapsed, f"{new.size(3000, 9000)}K", steps, cores)

    a, b, c = 1 + new.size(2, 5) + 0.3, 9.3 + new.size(0, 3), 100 + new.size(1, 50) + 0.3
    return [
        # The longest is not the busiest, the largest not the longest; two runs that did not end well, hungry and long,
        # one of them with a number that begins like another's.
        (
            _table(
                [
                    run(0, "COMPLETED", c, a, b, "M", 16),
                    run(1, "COMPLETED", 1.3 * c, a - 1, 0.7 * b, "K", 16),
                    run(2, "FAILED", 3 * c, 15.6, 4 * b, "G", 16, twice="COMPLETED"),
                    run(3, "COMPLETED", 0.7 * c, a + 2, 0.8 * b, "G", 16, twice="COMPLETED"),
                    run(-1, "TIMEOUT", 2 * c, 14.4, 2 * b, "M", 16),
                ]
            ),
        ),
        # More than a day, and nearly one.
        (
            _table(
                [
                    run(5, "COMPLETED", 1440 + 3 * c, 5.7, 1.7 * b, "K", 32),
                    run(6, "COMPLETED", 1210 + c, 2.2, b, "M", 32),
                ]
            ),
        ),
        # Nothing to round: 4 cores, 6 GiB, 100 minutes.
        (_table([run(7, "COMPLETED", 80, 4, 5, "M", 8)]),),
        # Less than a second more than 4 cores; the largest step failed, and the job went on.
        (_table([run(9, "COMPLETED", 14, 4 + 0.7 / 840, 3, "M", 8, twice="FAILED")]),),
        # Short: minutes and seconds, less than a GiB, hardly a core.
        (_table([run(8, "COMPLETED", 9.5, 0.4, 0.52, "M", 8)]),),
    ]


def _by_columns(text):
    table = [line.split("|") for line in text.strip().split("\n")][1:]
    done = {row[0] for row in table if row[1] == "COMPLETED"}
    good = [row for row in table if row[0].partition(".")[0] in done]

    def gib(size):
        return float(size[:-1]) * 2.0 ** (10 * "KMG".index(size[-1]) - 20)

    whole = [row for row in good if row[0].isdigit()]
    return {
        "minutes": math.ceil(max(_seconds(row[2]) for row in whole) * 1.25 / 60),
        "cores": max(math.ceil(_seconds(row[3]) / _seconds(row[2])) for row in whole),
        "gib": math.ceil(max(gib(row[4]) for row in good if row[4]) * 1.2),
    }


exercise(
    "right_size",
    title="Stretch: ask for what you use",
    minutes=12,
    difficulty=3,
    points=2,
    takeaway="Three sums from `sacct` say what to ask for next time: processor time over wall time, the largest peak "
    "with a fifth more, the longest run with a quarter more.",
    hints=(
        'Make a dictionary of each line with the names of the first one: `dict(zip(header, line.split("|")))`. Jobs '
        'are the lines without "." in JobID; MaxRSS is in the lines of the steps.',
        "A time is D-HH:MM:SS, HH:MM:SS or MM:SS.fff. Cut off the days, then go through the parts from the left: "
        "total = 60 * total + part.",
        "Cores in use on average are TotalCPU / Elapsed. Take the largest of the completed jobs, then `math.ceil`.",
    ),
    spec=Spec(
        draw=_histories,
        solution=_right_size,
        look="each rule on its own: the busiest, the largest and the longest job may be three different ones. Sizes "
        "are compared as numbers of one unit, not as text",
        mistakes=r"""
            = tuple(_right_size(text).values())
            = {"cores": 3}
                A dictionary with the keys cores, gib and minutes is asked for, not {yours}.
                when: not isinstance(yours, Raised) and (not isinstance(yours, dict) or {*yours} != {"cores", "gib",
                    "minutes"})
            = {**_right_size(text), "cores": int(text.splitlines()[1].split("|")[-1])}
                The number of cores is what the jobs had, not what they used.
                look: TotalCPU over Elapsed
            row["TotalCPU"]) / _seconds(row["Elapsed"]) → row["Elapsed"]) / _seconds(row["TotalCPU"])
                You divided wall time by processor time; it is the other way around.
            row["TotalCPU"]) / _seconds(row["Elapsed"])
                    → row["Elapsed"]) * int(row["AllocCPUS"]) / 60 || row["Elapsed"]) * int(row["AllocCPUS"]) / 3600
                You multiplied wall time by the number of cores: that is what was reserved.
            "COMPLETED" → row["State"]
            == "COMPLETED" → != "CANCELLED" || != "FAILED"
                A job that did not complete counts in your sums: it says what one mistake used.
            "." not in row["JobID"] and →
                Steps count as jobs in your cores: a step may be short and busy. The line of the job has the whole.
                look: a dot in JobID
            row["JobID"].split(".")[0] in finished → row["State"].startswith("COMP") || row["MaxRSS"]
                You count the memory of a job that failed. None of its steps should count, not even one that is
                COMPLETED.
                look: the JobID in front of the dot, and the state of that job
            max(_seconds(row["Elapsed"]) for row in jobs) → _seconds(max(row["Elapsed"] for row in jobs))
                You compared times as texts, and "22:10:00" is after "1-05:00:00" there.
            1.2 * max(peaks) → max(peaks)
                Your memory is the peak itself, without the fifth more: the next run ends a little above it.
            1.25 * longest → longest
                Your minutes are those of the longest run, without the quarter more: a slower node does not finish.
            max(peaks) → peaks[-1] || peaks[0] || sum(peaks)
                Your memory is that of the first or the last step, or a sum; what counts is the largest step.
            math.ceil(1.2 * max(peaks)) → math.ceil(1.2 * math.ceil(max(peaks)))
            math.ceil(1.25 * longest / 60) → math.ceil(1.25 * math.ceil(longest / 60))
                You rounded up twice. Add the fifth and the quarter first, then round up once.
            longest / 60 → longest || longest / 3600
                Your minutes are seconds or hours.
            "cores": math.ceil(busiest) → "cores": 1 + round(busiest)
                To round and to add one is too much above a half.
                look: `math.ceil`
            math.ceil(busiest) → int(busiest) + 1 || math.floor(busiest + 1)
            math.ceil(1.2 * max(peaks)) → int(1.2 * max(peaks)) + 1
            math.ceil(1.25 * longest / 60) → int(1.25 * longest / 60) + 1
            math.ceil(busiest) → int(busiest) + 1 && math.ceil(1.2 * max(peaks)) → int(1.2 * max(peaks)) + 1
                    && math.ceil(1.25 * longest / 60) → int(1.25 * longest / 60) + 1
                A whole number is rounded up already. Yours gets one more: 4 cores in use become 5.
                look: `math.ceil`, and not `int(…) + 1`
            1.2 * max(peaks) → 1.2 * sum(peaks) / len(peaks) || 1.2 * 2 * sum(peaks) / len(peaks)
            longest = max( → longest = 1 / len(jobs) * sum(
            busiest = max( → busiest = 1 / len(jobs) * sum(
            max(_seconds(row["TotalCPU"]) / _seconds(row["Elapsed"]) for row in jobs)
                    → sum(_seconds(row["TotalCPU"]) for row in jobs) / sum(_seconds(row["Elapsed"]) for row in jobs)
                You took a mean over the runs, and some of them used more than that: {expected} is right,
                and you have {yours}.
                look: the largest of all jobs, for each of the three numbers
            "cores": math.ceil → "cores": math.floor || "cores": round
            "gib": math.ceil → "gib": int
            "minutes": math.ceil → "minutes": int
            math.ceil(busiest → round(busiest && math.ceil(1.2 * → round(1.2 * && math.ceil(1.25 → round(1.25
            math.ceil(busiest → int(busiest && math.ceil(1.2 * → int(1.2 * && math.ceil(1.25 → int(1.25
                You rounded down or to the nearest number; round up, or the job gets a little too little.
            {"K": 1024**2, "M": 1024, "G": 1} → {"K": 1024**2, "M": 1024**2, "G": 1024**2}
            {"K": 1024**2, "M": 1024, "G": 1} → {"K": 10**6, "M": 10**3, "G": 1} && 1.2 * → 1.2 * 1.3 *
            {"K": 1024**2, "M": 1024, "G": 1}
                    → {"K": 1024, "M": 1, "G": 1 / 1024} || {"K": 1000**2, "M": 1000, "G": 1}
                    || {"K": 1024**2, "M": 1, "G": 1}
                MaxRSS has a unit in its last letter: K, M or G, and 1024 of one are one of the next.
            if row["MaxRSS"] and → if "." not in row["JobID"] and
                    && float(row["MaxRSS"][:-1]) → float(row["MaxRSS"][:-1] or 0)
                    && [row["MaxRSS"][-1]] → [row["MaxRSS"][-1:] or "G"]
                Your memory is 0: in the line of a job itself, MaxRSS is empty. The memory is in the lines of its steps.
                look: the lines with a dot in JobID
            = _right_size(re.sub(r"\d+-(?=\d\d:)", "", text))
                Days are lost: 1-02:30:00 is a day more than 02:30:00.
            = _right_size(re.sub(r":\d\d(\.\d+)?(?=\|)", ":00", text))
                The seconds are lost.
            = _right_size(re.sub(r"\|(\d\d:\d\d)(\.\d+)?(?=\|)", r"|\1:00", text))
                09:30 and 01:30.500 are minutes and seconds; you read them as hours and minutes.
                look: the parts from the right: seconds, minutes, hours
                when: yours["cores"] > 15 * expected["cores"]
            = _right_size(text) and float("1-02")
                A time may begin with days: 1-02:03:04 is one day, and 02:03:04.
                look: what is before the dash, if there is one
                when: isinstance(yours, Raised) and re.search(r"'\d+-\d", yours.message)
            = float(text.splitlines()[1].split("|")[2])
            = _right_size(text) and float("12345K")
                `float` or `int` met a time or a size in one piece: take it apart first.
                when: says(yours, "could not convert string to float", "invalid literal for int")
        """,
        also_right=[_by_columns],
    ),
)
