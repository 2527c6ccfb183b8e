from support.answers import mutant, mutants
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from torchcourse_labs.sharded_models.tp_plan import solution

PLAN, RETURNED, NOT_HEADS = "plan = {}", "return plan", "if heads % ranks"
COLUMNS = 'plan[f"blocks.{i}.{name}"] = ColwiseParallel()'
GATHERED = "ColwiseParallel(output_layouts=Replicate())"
ONCE = 'plan[f"blocks.{i}.attention"] = once'


def turned(model, ranks):
    styles = {ColwiseParallel: RowwiseParallel, RowwiseParallel: ColwiseParallel}
    return {
        name: styles.get(type(style), lambda style=style: style)() for name, style in solution(model, ranks).items()
    }


def with_patterns(model, ranks):
    plan = {name.replace("blocks.0", "blocks.*"): each for name, each in solution(model, ranks).items()}
    return {name: each for name, each in plan.items() if "*" in name}


RIGHT = [
    with_patterns,
    mutant(solution, (NOT_HEADS, "if heads / ranks != heads // ranks")),
    mutant(solution, ("range(len(model.blocks))", "reversed(range(len(model.blocks)))")),
]

WRONG = {
    "heads": [
        *mutants(solution, "raise ValueError(", "print("),
        *mutants(solution, " // attention.head_width", ""),
    ],
    "other_way_around": [turned],
    "input_not_prepared": mutants(solution, ONCE, "pass"),
    None: [
        *mutants(solution, RETURNED, "return list(plan)", f'plan["head"] = {GATHERED}\n    {RETURNED}'),
        *mutants(solution, PLAN, f"{PLAN}; attention.head_width //= ranks"),
        *mutants(solution, "range(len(model.blocks))", "range(1)"),
        *mutants(solution, COLUMNS, COLUMNS.replace("ColwiseParallel()", GATHERED)),
    ],
}
