"""The rows of a batch that a rank of a mesh trains on: those of a tensor-parallel group all take the same ones."""

from itertools import combinations
from operator import index
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from labcheck.answer import raised_by_hand
from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, call, observe, same, show, wrong_if
from torchcourse.cluster import planning


def solution(mesh: DeviceMesh, count: int) -> list[int]:
    part, parts = 0, 1
    for name, size, place in zip(mesh.mesh_dim_names, mesh.shape, mesh.get_coordinate(), strict=True):
        if name != "tensor":
            part, parts = part * size + place, parts * size
    if count % parts:
        raise ValueError(f"{count} rows cannot be divided evenly among {parts} groups of ranks")
    rows = count // parts
    return list(range(part * rows, (part + 1) * rows))


def on_each_rank(answer: Any, names: tuple[str, ...], shape: tuple[int, ...], count: int, even: bool) -> list:
    """A probe: the rows that the answer returns as each rank of a fake world, or, as a text, what it does instead."""
    seen: list = []
    for rank in range(torch.Size(shape).numel()):
        with planning.fake_world(*shape, names=names, rank=rank) as mesh:
            try:
                rows = call(answer, mesh, count, may_change=True, may_return_none=True)
                seen.append([index(row) for row in rows] if hasattr(rows, "__len__") else show(rows))
            except AnswerRaised as raised:
                if even and not (isinstance(raised.error, ValueError) and raised_by_hand(raised.error)):
                    raise
                seen.append(f"{type(raised.error).__name__} is raised: {raised.error}")
            except TypeError:  # no numbers in it
                seen.append(show(rows))
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    data, tensor = rng.pick([(3, 2), (4, 2), (2, 3), (4, 3), (3, 4)])
    odd = next(count for count in range(5 + tensor, 99) if count % data and count % tensor == 0)
    flat, hybrid, each = ("data", "tensor"), ("copies", "shards", "tensor"), rng.pick([5, 7])
    judge_mesh(answer, flat, (data, tensor), 2 * data * tensor)
    judge_mesh(answer, flat[::-1], (tensor, data), each * data)  # the number of all ranks doesn't divide it
    judge_mesh(answer, hybrid, (2, 2, 3), each * 4)
    judge_mesh(answer, ("racks", "tensor", "nodes"), (3, 2, 2), each * 6)  # by any name
    judge_mesh(answer, flat, (data, tensor), odd, even=False)
    judge_mesh(answer, hybrid, (2, 2, 3), 18, even=False)  # each axis divides it, but not both of them


def judge_mesh(answer: Any, names: tuple[str, ...], shape: tuple[int, ...], count: int, even: bool = True) -> None:
    seen = observe(answer, on_each_rank, names, shape, count, even)
    where = f"On a mesh of {' × '.join(map(str, shape))} ranks ({', '.join(names)})"
    refusing = [str(one).startswith("ValueError is raised") for one in seen]
    if not even:
        wrong_if(
            not all(refusing),
            "uneven",
            f"{where}, the groups cannot take equally many of {count} rows, and the mean of unequal groups' means is "
            "not the mean of the batch.",
            look="the remainder of the number of rows by the number of groups, before anything is divided",
            expected="a ValueError on every rank",
            yours=seen[refusing.index(False)] if False in refusing else None,
        )
        return
    groups = torch.arange(len(seen)).view(shape).movedim(names.index("tensor"), -1).flatten(0, -2).tolist()
    wrong_if(
        any(refusing),
        "refused",
        f"{where}, the groups can take equally many of {count} rows, but your function refuses them.",
        look=f"the number of tensor-parallel groups, here {len(groups)}: the product of all sizes but that of `tensor`",
        yours=seen[refusing.index(True)] if True in refusing else None,
    )
    for one in seen:
        if isinstance(one, str):
            raise Incorrect("Your function should return the numbers of the rows.", "a list of ints", one)
    pairs = [pair for group in groups for pair in combinations(group, 2) if seen[pair[0]] != seen[pair[1]]]
    a, b = pairs[0] if pairs else (0, 0)
    order = " in the same order" * (sorted(seen[a]) == sorted(seen[b]))
    wrong_if(
        pairs,
        "apart",
        f"{where}, ranks {a} and {b} are in one tensor-parallel group, but do not take the same rows{order}: they "
        "would add up parts of different images, without any error.",
        look=None if order else "the coordinates along all axes but `tensor`, by the names of the axes; not the rank",
        yours=f"{show(seen[a])} and {show(seen[b])}",
    )
    firsts = [group[0] for group in groups]
    pairs = [pair for pair in combinations(firsts, 2) if {*seen[pair[0]]} & {*seen[pair[1]]}]
    a, b = pairs[0] if pairs else (0, 0)
    wrong_if(
        pairs,
        "twice",
        f"{where}, ranks {a} and {b} are in different tensor-parallel groups, but share some rows.",
        look="every axis but `tensor` divides the batch, not only one; return all rows, not the first and the end",
        yours=f"{show(seen[a])} and {show(seen[b])}",
    )
    taken, look = sorted(row for first in firsts for row in seen[first]), "each row from 0 to count - 1, once"
    same(taken, [*range(count)], f"{where}, the list of all groups' rows", look=look)
    lengths = [len(seen[first]) for first in firsts]
    same(lengths, [count // len(groups)] * len(groups), f"{where}, the list of how many rows each group takes,")


exercise = Exercise(
    title="Which rows are yours?",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="The mesh decides, not the rank. `DistributedSampler` asks only for the rank, so tell it: `num_replicas` "
    "is the number of groups, `rank` the number of this one.",
    hints=(
        "Number the tensor-parallel groups: a rank's group follows from its coordinates along all axes but `tensor`. "
        "`mesh.mesh_dim_names`, `mesh.shape`, and `mesh.get_coordinate()` belong together, axis by axis.",
        'From `part, parts = 0, 1`, for each axis but "tensor": `part, parts = part * size + place, parts * size`. '
        "Then the remainder `count % parts`, and `rows = count // parts` rows from `part * rows` on.",
    ),
    judge=judge,
)
