"""All distances between two sets of points: broadcasting in two directions at once."""

from typing import Any

from torch import Tensor

from labcheck import probes
from labcheck.authoring import Exercise, Inputs, Spec, looks_like, observe, wrong_if


def draw(rng: Inputs) -> list[tuple]:
    """First as many points as others, where comparing only a[i] with b[i] runs; last the most of everything."""
    few, narrow, d = rng.size(26, 29), rng.size(3, 9), rng.size(15, 19)
    many, others = rng.randn(rng.size(55, 60), d), rng.randn(rng.size(40, 46), d)
    others[:20] = many[:20]  # the same points in both: distance 0
    return [(rng.randn(few, narrow), rng.randn(few, narrow)), (rng.randn(4, 6), rng.randn(1, 6)), (many, others)]


def solution(a: Tensor, b: Tensor) -> Tensor:
    return (a[:, None] - b[None]).square().sum(-1).sqrt()


def explain(yours: Tensor, expected: Tensor, a: Tensor, b: Tensor) -> None:
    wrong_if(
        yours.shape == expected.shape and yours.isnan().any() and expected[yours.isnan()].max() < 1e-3,
        "nan",
        "Where two points are the same, your distance is nan: rounding can make its square a little negative.",
        look="`.clamp(min=0)` before the root; or subtract first, then square",
    )


def afterward(answer: Any, *cases: tuple) -> None:
    few, _, many = (observe(answer, probes.steps, *case) for case in cases)
    wrong_if(
        many > few + 10,
        "loop",
        "Your distances are right, but your code takes more steps the more points there are: there is a loop.",
        look="`for`: let broadcasting form the pairs",
    )


exercise = Exercise(
    title="All distances at once",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="[n, 1, d] against [1, m, d] gives every pair, [n, m, d]: the broadcasting trap, used on purpose.",
    hints=(
        "[n, d] and [m, d] should become [n, m, d], and then [n, m]. `None` in an index adds an axis of size 1.",
        "`difference = a[:, None] - b[None]`; square it, sum over the last axis, take the root.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        dtype=False,
        look="one number for each pair; [1, 1] and [4, 5] are 5 apart: subtract, square, sum (`dim=-1`), take the root",
        # Near 0 the way over dot products, which torch.cdist takes too, loses half of the digits.
        rtol=1e-3,
        atol=6e-3,
        explain=explain,
        afterward=afterward,
        says=[
            looks_like(
                "one_by_one",
                "You compare a[0] with b[0], a[1] with b[1] and so on; every a should meet every b.",
                lambda a, b: (a - b).norm(dim=1),
            ),
            looks_like(
                "swapped", "Rows and columns are swapped: a goes down, b goes across.", lambda a, b: solution(b, a)
            ),
            looks_like(
                "squared",
                "These are squared distances: take the square root at the end.",
                lambda a, b: solution(a, b).square(),
            ),
            looks_like(
                "another_distance",
                "The Euclidean distance is the root of the sum of the squared differences: square, sum, take the root.",
                lambda a, b: (a[:, None] - b).abs().sum(-1),
                lambda a, b: (a[:, None] - b).sum(-1),
                lambda a, b: (a[:, None] - b).square().mean(-1).sqrt(),
            ),
        ],
    ),
    lends=solution,
)
