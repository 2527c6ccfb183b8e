import copy

from support.answers import mutant, mutants

from torchcourse_labs.sharded_models.shard_model import solution

BLOCKS = "    for block in model.blocks:\n        fully_shard(block, mesh=mesh)\n"
MODEL, EACH = "    fully_shard(model, mesh=mesh)\n", "fully_shard(block, mesh=mesh)"
OPTIMIZER = "torch.optim.AdamW(model.parameters(), lr=lr)"
BF16 = "mp_policy=torch.distributed.fsdp.MixedPrecisionPolicy(torch.bfloat16)"

RIGHT = [
    mutant(solution, ("in model.blocks", "in reversed(list(model.blocks))")),
    mutant(solution, (OPTIMIZER, 'torch.optim.AdamW([{"params": [p]} for p in model.parameters()], lr)')),
    mutant(
        solution,
        (BLOCKS, "    [fully_shard(block, mesh=mesh) for block in model.blocks]\n"),
        (MODEL, "    model = fully_shard(model, mesh=mesh)\n"),
    ),
]

WRONG = {
    "no_optimizer": mutants(solution, OPTIMIZER, "model", f"model, {OPTIMIZER}"),
    "model_first": [mutant(solution, (BLOCKS, "    pass\n"), (MODEL, MODEL + BLOCKS))],
    "shared_weight": [
        mutant(solution, (BLOCKS, f"{BLOCKS}    for block in (model.embed, model.head):\n        {EACH}\n"))
    ],
    "nothing_sharded": [
        mutant(solution, (BLOCKS, ""), (MODEL, "")),
        lambda model, mesh, lr: solution(copy.deepcopy(model), mesh, lr),
    ],
    "one_group": mutants(solution, BLOCKS, ""),
    "rest_is_whole": mutants(solution, MODEL, ""),
    "old_weights": [
        mutant(
            solution, (BLOCKS, f"    optimizer = {OPTIMIZER}\n{BLOCKS}"), (f"return {OPTIMIZER}", "return optimizer")
        )
    ],
    None: [
        *mutants(solution, BLOCKS, "    fully_shard(model.blocks, mesh=mesh)\n"),
        *mutants(solution, BLOCKS, "    fully_shard(list(model.blocks), mesh=mesh)\n"),
        *mutants(solution, "in model.blocks", "in model.blocks[1:]"),
        *mutants(solution, EACH, "fully_shard(block, mesh=mesh, reshard_after_forward=False)"),
        *mutants(solution, EACH, f"fully_shard(block, mesh=mesh, {BF16})"),
        *mutants(solution, OPTIMIZER, OPTIMIZER.replace("AdamW", "SGD"), OPTIMIZER.replace("model.", "model.blocks.")),
        *mutants(solution, ", lr=lr", ""),
    ],
}
