import torch
from support.answers import mutant, mutants
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard

from torchcourse_labs.sharded_models.born_sharded import solution

META, EMPTY = '    with torch.device("meta"):\n        model = build()\n', '    model.to_empty(device="cpu")\n'
WHOLE = "    fully_shard(model, mesh=mesh)\n"
BLOCKS = "    for block in model.blocks:\n        fully_shard(block, mesh=mesh)\n"
COPIED, ROWS = "p.to_local().copy_(read(name, first, last))", "math.ceil(len(p) / mesh.size())"
BUFFER = "buffer.copy_(read(name, 0, len(buffer)))"


def assigned(build, mesh, read):
    with torch.device("meta"):
        model = build()
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh)
    state = {name: read(name, 0, len(buffer)) for name, buffer in model.named_buffers()}
    for name, p in model.named_parameters():
        mine = torch.arange(len(p)).tensor_split([-(-len(p) // 2)])[mesh.get_local_rank()].tolist()
        rows = read(name, mine[0], mine[-1] + 1)
        state[name] = DTensor.from_local(rows, mesh, [Shard(0)], shape=p.shape, stride=p.stride())
    model.load_state_dict(state, assign=True)
    return model


RIGHT = [
    assigned,
    mutant(solution, (COPIED, "p.to_local()[:] = torch.cat([read(name, i, i + 1) for i in range(first, last)])")),
]

WRONG = {
    "too_much": [
        mutant(solution, (META, "    model = build()\n"), (EMPTY, "")),
        mutant(solution, (EMPTY, ""), (BLOCKS, EMPTY + BLOCKS)),
    ],
    "foreign_rows": [
        *mutants(solution, COPIED, "p.to_local().copy_(read(name, 0, len(p))[first:last])"),
        *mutants(solution, "min(first + rows, len(p))", "first + rows"),
    ],
    "model_first": [mutant(solution, (BLOCKS, WHOLE + BLOCKS))],
    "recorded": mutants(solution, "with torch.no_grad():", "if True:"),
    "unsharded": mutants(solution, WHOLE + EMPTY, EMPTY),
    None: [
        *mutants(solution, ROWS, "len(p) // mesh.size()"),
        *mutants(solution, BUFFER, "pass"),
        *mutants(solution, EMPTY, ""),
        *mutants(solution, BLOCKS, "", "    fully_shard(list(model.blocks), mesh=mesh)\n"),
        *mutants(solution, "return model", "pass"),
    ],
}
