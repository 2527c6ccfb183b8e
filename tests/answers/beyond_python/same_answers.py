from support.answers import mutants

from torchcourse_labs.beyond_python.same_answers import solution


def in_python(logits, others, labels, tolerance):
    same, flips, right = True, 0, 0
    for one, other, label in zip(logits.tolist(), others.tolist(), labels.tolist(), strict=True):
        mine, theirs = one.index(max(one)), other.index(max(other))
        first, second = sorted(one)[:-3:-1]
        right += (theirs == label) - (mine == label)
        flips += mine != theirs
        same = same and (mine == theirs or first - second <= tolerance) and all(abs(v) < 1e30 for v in other)
    difference = max(abs(a - b) for a, b in zip(logits.flatten().tolist(), others.flatten().tolist(), strict=True))
    largest = max(abs(value) for value in logits.flatten().tolist())
    return {"same": same, "flips": flips, "difference": difference / largest, "accuracy": right / len(labels)}


GAINED = "(after == labels).float().mean() - (before == labels).float().mean()"
DIFFERENCE = "((others - logits).abs().max() / logits.abs().max()).item()"
FLIPS = "flipped.sum().item()"
SAME = "not (flipped & sure).any()"

RIGHT = [
    in_python,
    *mutants(solution, "bool(others", "(others"),
    *mutants(solution, FLIPS, "flipped.sum()"),
    *mutants(solution, "others.isfinite().all()", "not (others - others).isnan().any()"),
]

WRONG = {
    "no_dict": [lambda *given: tuple(solution(*given).values()), lambda *given: {"flips": 3, "same": True}],
    "wrong_sign": mutants(solution, "gained.item()", "-gained.item()", "gained.abs().item()"),
    "flips_by_labels": [
        *mutants(solution, FLIPS, "((before == labels).sum() - (after == labels).sum()).abs()"),
        *mutants(solution, FLIPS, "(flipped & (before == labels)).sum()", "(after != labels).sum()"),
        *mutants(solution, FLIPS, "((after == labels) != (before == labels)).sum()"),
    ],
    "not_finite": mutants(solution, "others.isfinite().all()", "True", "not others.isnan().any()"),
    "too_lenient": [
        *mutants(solution, SAME, "True", "not (flipped.any() and sure[flipped].all())"),
        *mutants(solution, "> tolerance", "> tolerance * logits.abs().max()"),
    ],
    "too_strict": [
        *mutants(solution, SAME, "not flipped.any()", "not sure.any()"),
        *mutants(solution, SAME, "(others - logits).abs().max() <= tolerance", "abs(gained) <= tolerance"),
        *mutants(solution, "> tolerance", ">= tolerance", "< tolerance"),
        *mutants(solution, "logits.topk", "others.topk"),
    ],
    None: [
        *mutants(solution, GAINED, "(after == before).float().mean()"),
        *mutants(solution, DIFFERENCE, "(others - logits).abs().max().item()"),
        *mutants(solution, GAINED, f"100 * ({GAINED})", "(after == labels).float().mean()"),
        *mutants(solution, DIFFERENCE, "(others - logits).max() / logits.abs().max()"),
        *mutants(solution, DIFFERENCE, "(others - logits).abs().max() / logits.max()"),
        *mutants(solution, FLIPS, "flipped.float().mean()", "(flipped & sure).sum()", "None"),
        lambda *given: {**solution(*given), "same": "yes"},
    ],
}
