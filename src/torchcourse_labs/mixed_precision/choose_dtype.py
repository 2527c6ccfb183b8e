"""The format to train in, chosen by measured ranges of speed and accuracy and by the memory."""

import torch

from labcheck.authoring import Exercise, Incorrect, Inputs, Spec, looks_like, wrong_if

Table = dict[torch.dtype, dict]

# The memory there is; then one or two formats: slowest and fastest run, worst and best accuracy in thousandths, memory.
# float32 has (0.95, 1.05, -3, 3, 1.0).
CASES = (
    (2.0, (0.1, 0.12, -2, 2, 0.6)),  # slower
    (2.0, (1.6, 1.8, -5, 0.5, 0.6)),  # pays: the ranges of accuracy overlap
    (2.0, (1.6, 1.8, -6, -3, 0.6)),  # they touch
    (2.0, (1.6, 1.8, -12, -5, 0.6)),  # less accurate
    (2.0, (1.6, 1.8, 5, 9, 0.6)),  # more accurate
    (2.0, (1.0, 1.4, -3, 3, 0.6)),  # the ranges of speed overlap
    (2.0, (1.05, 1.4, -3, 3, 0.6)),  # they touch
    (1.1, (1.6, 1.8, -3, 3, 1.3)),  # needs more memory than there is
    (1.3, (1.6, 1.8, -3, 3, 1.3)),  # exactly as much
    (0.6, (2.0, 2.2, -3, 3, 0.7), (1.5, 1.7, -3, 3, 0.55)),  # the faster one does not fit
    (0.8, (0.7, 0.8, -12, -5, 0.5), (0.5, 0.6, -3, 3, 0.6)),  # slower, but float32 does not fit
    (2.0, (2.2, 2.4, -30, -20, 0.6), (1.2, 1.5, -3, 3, 0.6)),  # the faster one is less accurate
    # The first one has the faster slowest run, whatever else is better.
    *[(2.0, (1.7, 1.9, -2, 1, 0.6), (1.5, 2.2, -2, 2, 0.65)), (0.8, (1.7, 2.6, -2, 4, 0.7), (1.5, 2.2, -2, 2, 0.65))]
    * 8,
)


def draw(rng: Inputs) -> list[tuple[Table, int]]:
    """The formats have random names, and the tables random orders."""
    base, needs, good, cases = rng.size(2000, 9000), 2 * rng.size(300, 900), 0.9 + rng.rand(1).item() / 20, []
    for memory, *others in CASES:
        names = [torch.float32, *((torch.float16, torch.bfloat16)[i] for i in rng.permutation(2))]
        rows, table = [(0.95, 1.05, -3, 3, 1.0), *others], {}
        for i in rng.permutation(len(rows)).tolist():
            slow, fast, worst, best, share = rows[i]
            accuracy = round(good + worst / 1000, 4), round(good + best / 1000, 4)
            speed = round(base * slow), round(base * fast)
            table[names[i]] = {"speed": speed, "accuracy": accuracy, "mib": int(needs * share)}
        cases.append((table, int(needs * memory)))
    return cases


def solution(table: Table, memory: float) -> torch.dtype:
    full = table[torch.float32]
    fits = {dtype: row for dtype, row in table.items() if row["mib"] <= memory}
    pays = [
        dtype
        for dtype, row in fits.items()
        if dtype != torch.float32
        and row["accuracy"][1] >= full["accuracy"][0]
        and (row["speed"][0] > full["speed"][1] or torch.float32 not in fits)
    ]
    return max(pays, key=lambda dtype: table[dtype]["speed"][0], default=torch.float32)


def explain(yours: torch.dtype, expected: torch.dtype, table: Table, memory: float) -> None:
    if yours not in table:
        return
    facts = {"look": f"{table}, memory {memory}", "expected": expected, "yours": yours}
    full = table[torch.float32]
    wrong_if(
        table[yours]["mib"] > memory or table[yours]["accuracy"][1] < full["accuracy"][0],
        "ruled_out",
        f"You chose {yours}, which is ruled out: it needs more memory than there is, or its range of accuracy lies "
        "entirely below that of float32.",
        **facts,
    )
    wrong_if(
        full["mib"] <= memory and table[yours]["speed"][0] <= full["speed"][1] and yours != torch.float32,
        "not_faster",
        f"You chose {yours}. Its speed does not lie entirely above that of float32, and float32 fits.",
        **facts,
    )
    problem = (
        f"You chose {yours}, but {expected} may replace float32, and its slowest run is the fastest of those that may. "
        "(Exactly as much memory as there is fits; a range that overlaps or touches another one is not below it.)"
    )
    raise Incorrect(problem, **facts)


exercise = Exercise(
    title="Does it pay off here?",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="The machine decides, not a rule of thumb: measure, and switch only where the ranges don't overlap.",
    hints=(
        "First cross out what doesn't fit, and what is less accurate than float32. Then compare what is left: of two "
        "ranges (a, b) and (c, d), the second lies entirely above the first when c > b.",
        "`pays = [d for d in table if fits(d) and not worse(d) and (table[d]['speed'][0] > table[torch.float32]"
        "['speed'][1] or not fits(torch.float32))]`; float32 itself only if that list is empty.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        explain=explain,
        look="the four rules; return a key of the table",
        says=[
            looks_like(
                "none",
                "You return None if no other format may replace torch.float32: return torch.float32 then.",
                lambda table, memory: {torch.float32: None}.get(best := solution(table, memory), best),
            )
        ],
    ),
    lends=solution,
)
