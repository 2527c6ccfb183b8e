"""The derivative of a mean square with respect to one weight, by the chain rule."""

from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like


def draw(rng: Inputs) -> list[tuple]:
    """Gradients of both signs, several numbers of pairs, and a single pair."""
    n, m = rng.sizes(2, 4, 9)
    up, down = rng.rand(2) + 1.5
    return [(w, rng.rand(k) + 0.5, rng.randn(k) - 1) for w, k in ((up, n), (-down, m), (up / 2, 1))]


def solution(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return (2 * (w * x - y) * x).mean()


exercise = Exercise(
    title="A gradient by hand",
    minutes=4,
    difficulty=1,
    points=1,
    takeaway="This is all that `backward()` does: outer derivative times inner derivative, for every operation.",
    hints=(
        "Of one pair, outer: 2 · (w·x − y). Inner: the derivative of w·x with respect to w. Multiply, then average.",
        "`(2 * (w * x - y) * ...).mean()` with the inner derivative in place of the dots.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        look="outer derivative times inner derivative, for each pair, and then the mean",
        says=[
            looks_like(
                "no_inner_derivative",
                "The inner derivative is missing: w·x changes by x when w changes by 1.",
                lambda w, x, y: (2 * (w * x - y)).mean(),
            ),
            looks_like(
                "no_factor_2",
                "The factor 2 is missing: the derivative of a square u² is 2·u.",
                lambda w, x, y: ((w * x - y) * x).mean(),
            ),
            looks_like(
                "for_each_pair",
                "You return one number for each pair. The loss is a mean, so its derivative is a mean as well.",
                lambda w, x, y: 2 * (w * x - y) * x,
            ),
            looks_like(
                "sum",
                "You took the sum over the pairs; the loss is their mean.",
                lambda w, x, y: (2 * (w * x - y) * x).sum(),
            ),
            looks_like(
                "sign",
                "The sign is wrong: the error is prediction minus target, w·x − y, and a gradient keeps its sign.",
                lambda w, x, y: -solution(w, x, y),
                lambda w, x, y: solution(w, x, y).abs(),
            ),
            looks_like(
                "times_w",
                "You multiplied by w. That is the derivative with respect to x: w·x changes by x when w changes by 1.",
                lambda w, x, y: (2 * (w * x - y) * w).mean(),
            ),
        ],
    ),
)
