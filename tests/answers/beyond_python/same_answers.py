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

RIGHT = [in_python]

WRONG = {
    "not_finite": mutants(solution, "others.isfinite().all()", "True", "not others.isnan().any()"),
    None: [
        *mutants(solution, "(flipped & sure)", "(flipped & sure & (after != labels))"),
        *mutants(solution, "before != after", "(logits.argsort(1) != others.argsort(1)).any(1)"),
        *mutants(solution, SAME, "True", "not flipped.any()", "(others - logits).abs().max() <= tolerance"),
        *mutants(solution, "> tolerance", ">= tolerance"),
        *mutants(solution, FLIPS, "((before == labels).sum() - (after == labels).sum()).abs()"),
        lambda *given: tuple(solution(*given).values()),
        *mutants(solution, GAINED, "(before == labels).float().mean() - (after == labels).float().mean()"),
        *mutants(solution, DIFFERENCE, "(others - logits).abs().max().item()"),
        *mutants(solution, FLIPS, "flipped.sum()", "flipped.float().mean()", "(flipped & sure).sum()"),
    ],
}
