from support.answers import mutant, mutants
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from torchcourse_labs.sharded_models.tp_plan import solution

PLAN, RETURNED, NOT_HEADS = "plan = {}", "return plan", "if heads % ranks"
COLUMNS = 'plan[f"blocks.{i}.{name}"] = ColwiseParallel()'
ROWS = 'plan[f"blocks.{i}.{name}"] = RowwiseParallel()'
GATHERED, TAKES_ALL = "ColwiseParallel(output_layouts=Replicate())", "RowwiseParallel(input_layouts=Replicate())"
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
    "no_dict": mutants(solution, RETURNED, "return list(plan)", "pass"),
    "model_changed": [
        mutant(solution, (PLAN, f"{PLAN}; attention.head_width //= ranks")),
        mutant(solution, (PLAN, f"{PLAN}; model.blocks[0].up.out_features //= ranks")),
    ],
    "heads": [
        *mutants(solution, "raise ValueError(", "print(", "raise RuntimeError("),
        *mutants(solution, " // attention.head_width", ""),
    ],
    "still_whole": [
        *mutants(solution, RETURNED, "return {}"),
        mutant(solution, (COLUMNS, "plan[name] = ColwiseParallel()"), (ROWS, "plan[name] = RowwiseParallel()")),
        *mutants(solution, "range(len(model.blocks))", "range(1)"),
        *mutants(solution, '"attention.value", "up"', '"attention.value"'),
    ],
    "other_way_around": [
        turned,
        mutant(
            solution,
            (COLUMNS, COLUMNS.replace("ColwiseParallel()", GATHERED)),
            (ROWS, ROWS.replace("RowwiseParallel()", GATHERED)),
        ),
    ],
    "parts_do_not_fit": mutants(solution, COLUMNS, COLUMNS.replace("ColwiseParallel()", GATHERED)),
    "input_not_prepared": mutants(solution, ONCE, "pass"),
    None: [
        lambda model, ranks: {"blocks.0.up": ColwiseParallel},
        *mutants(solution, NOT_HEADS, "if heads % ranks == 0"),
        *mutants(solution, RETURNED, f'plan["head"] = {GATHERED}\n    {RETURNED}'),
        mutant(
            solution,
            (COLUMNS, COLUMNS.replace("ColwiseParallel()", GATHERED)),
            (ROWS, ROWS.replace("RowwiseParallel()", TAKES_ALL)),
        ),
    ],
}
