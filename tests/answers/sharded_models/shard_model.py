import copy

from support.answers import mutant, mutants

from torchcourse_labs.sharded_models.shard_model import solution

BLOCKS = "    for block in model.blocks:\n        fully_shard(block, mesh=mesh)\n"
MODEL, EACH = "    fully_shard(model, mesh=mesh)\n", "fully_shard(block, mesh=mesh)"
OPTIMIZER = "torch.optim.AdamW(model.parameters(), lr=lr)"

RIGHT = [
    mutant(solution, ("in model.blocks", "in reversed(list(model.blocks))")),
    mutant(solution, (OPTIMIZER, 'torch.optim.AdamW([{"params": [p]} for p in model.parameters()], lr)')),
]

WRONG = {
    "model_first": [mutant(solution, (BLOCKS, "    pass\n"), (MODEL, MODEL + BLOCKS))],
    "shared_weight": [
        mutant(solution, (BLOCKS, f"{BLOCKS}    for block in (model.embed, model.head):\n        {EACH}\n"))
    ],
    "one_group": mutants(solution, BLOCKS, ""),
    None: [
        mutant(
            solution, (BLOCKS, f"    optimizer = {OPTIMIZER}\n{BLOCKS}"), (f"return {OPTIMIZER}", "return optimizer")
        ),
        lambda model, mesh, lr: solution(copy.deepcopy(model), mesh, lr),
        *mutants(solution, MODEL, ""),
        *mutants(solution, BLOCKS, "    fully_shard(list(model.blocks), mesh=mesh)\n"),
        *mutants(solution, EACH, "fully_shard(block, mesh=mesh, reshard_after_forward=False)"),
        *mutants(solution, OPTIMIZER, "model", OPTIMIZER.replace("AdamW", "SGD")),
    ],
}
