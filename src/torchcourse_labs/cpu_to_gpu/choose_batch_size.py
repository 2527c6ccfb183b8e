"""The smallest batch size that is nearly as quick as the quickest that fits into memory."""

from labcheck.authoring import Exercise, Inputs, Spec, looks_like, wrong_if

Curve = dict[int, int]  # batch size -> images per second


def draw(rng: Inputs) -> list[tuple[Curve, float, int]]:
    """Curves in any order, with round throughputs: some size often has exactly `share` times the best."""
    cases = []
    for case in range(40):
        sizes = rng.sizes(8, 3, 300)
        curve = {size: 100 * (sorted(sizes).index(size) + rng.size(2, 10)) for size in sizes}
        largest = sorted(sizes)[4] + rng.size(0, 1)
        cases.append((curve, 0.0 if case == 39 else rng.pick((0.5, 0.75)), largest))
    return [*cases, ({64: 400, 8: 300, 32: 1000}, 0.5, 64), ({rng.size(1, 63): 500}, 0.9, 64)]


def good(curve: Curve, share: float, largest: int, best: int = 0) -> list[int]:
    """The sizes that are quick enough, in the order of the curve."""
    fits = {size: rate for size, rate in curve.items() if size <= largest}
    return [size for size, rate in fits.items() if rate >= share * (best or max(fits.values()))]


def solution(curve: Curve, share: float, largest: int) -> int:
    return min(good(curve, share, largest))


def explain(yours: int, expected: int, curve: Curve, share: float, largest: int) -> None:
    best = max(rate for size, rate in curve.items() if size <= largest)
    look = f"the curve {curve}, with `largest` = {largest}"
    wrong_if(yours not in curve or yours > largest, "no_choice", f"{yours} is no batch size that fits.", look=look)
    wrong_if(
        curve[yours] < share * best,
        "too_slow",
        f"The batch size {yours} is too slow: {curve[yours]} images/s is less than {share} times {best}, the best of "
        "those that fit.",
        look=look,
        expected=expected,
    )
    wrong_if(True, "not_smallest", f"{yours} is quick enough, but a smaller one is, too.", look=look, expected=expected)


exercise = Exercise(
    title="Choose a batch size",
    minutes=5,
    difficulty=2,
    points=2,
    takeaway="Take the smallest batch that is nearly as quick as the quickest: a larger one costs memory and steps.",
    hints=(
        "First leave out what does not fit into memory. Of the sizes that reach `share` times the best throughput of "
        "the rest, you want the smallest.",
        "`fits = {size: rate for size, rate in curve.items() if size <= largest}`, "
        "then `min(size for size, rate in fits.items() if rate >= share * ...)`.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        dtype=False,
        explain=explain,
        says=[
            looks_like(
                "quickest",
                "You chose the quickest batch that fits; the exercise asks for the smallest that is nearly as quick.",
                lambda curve, share, largest: max(good(curve, 0, largest), key=curve.get),
            ),
            looks_like(
                "whole_curve",
                "You compared with the best of the whole curve. Leave out batches that do not fit.",
                lambda curve, share, largest: min(good(curve, share, largest, max(curve.values())), default=0),
                lambda curve, share, largest: min(good(curve, share, largest, max(curve.values()))),
                lambda curve, share, largest: solution(curve, share, max(curve)),
            ),
            looks_like(
                "unsorted",
                "You took the first good batch in the order of the dictionary, which may not be sorted.",
                lambda curve, share, largest: good(curve, share, largest)[0],
            ),
            looks_like(
                "strict",
                "`largest` itself still fits, and a throughput of exactly `share` times the best is enough.",
                lambda curve, share, largest: solution(curve, share, largest - 1),
                lambda curve, share, largest: solution(curve, share + 1e-6, largest),
                look="`<` or `>` where `<=` or `>=` belongs",
            ),
        ],
    ),
    lends=solution,
)
