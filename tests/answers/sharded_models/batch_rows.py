import numpy as np
import torch
import torch.distributed as dist
from support.answers import mutant, mutants

from torchcourse_labs.sharded_models.batch_rows import solution

RETURNED, NOT_TENSOR, REFUSED = "range(part * rows, (part + 1) * rows)", 'name != "tensor"', "if count % parts"
BY_AXIS = 'if any(count % mesh[name].size() for name in mesh.mesh_dim_names if name != "tensor")'


def by_table(mesh, count):
    table = mesh.mesh.movedim(mesh.mesh_dim_names.index("tensor"), -1).flatten(0, -2)  # a row for each group
    rows = np.split(np.arange(count), len(table))  # a ValueError if they are uneven
    return rows[(table == dist.get_rank()).any(1).nonzero().item()]


def by_axes(mesh, count):
    rows = range(count)
    for name in {*mesh.mesh_dim_names} - {"tensor"}:
        if len(rows) % mesh[name].size():
            raise ValueError(f"{len(rows)} rows for {name}")
        rows = rows[mesh.get_local_rank(name) :: mesh[name].size()]
    return rows


def by_rank(mesh, count):
    return torch.arange(count).tensor_split(dist.get_world_size())[dist.get_rank()].tolist()


RIGHT = [by_table, by_axes, mutant(solution, (RETURNED, "range(part, count, parts)"))]
WRONG = {
    "apart": [
        lambda mesh, count: sorted(solution(mesh, count), key=lambda row: -row * mesh.get_local_rank("tensor")),
        *(by_rank, mutant(solution, (NOT_TENSOR, "name != mesh.mesh_dim_names[-1]"), (REFUSED, "if False"))),
        *mutants(solution, NOT_TENSOR, 'name == "tensor"', "True"),
    ],
    "refused": mutants(solution, REFUSED, "if count % mesh.size()", 'if count % mesh["tensor"].size()'),
    "twice": mutants(solution, NOT_TENSOR, 'name in ("data", "shards")', 'name in ("data", "copies", "shards")'),
    "uneven": [
        *mutants(solution, REFUSED, "if False", BY_AXIS),
        *mutants(solution, "ValueError(", "RuntimeError("),
        *mutants(solution, "raise ValueError", "return ValueError", "return print"),
    ],
    None: [
        *mutants(solution, RETURNED, "range(part * rows, part * rows + rows - 1)", "2 * [part * rows]"),
        *mutants(solution, "list(" + RETURNED + ")", "slice(part * rows, rows)"),
        *mutants(solution, "mesh.get_coordinate()", 'mesh["data"].get_coordinate()'),
    ],
}
