"""Attention of the last tokens to themselves and to all before them."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like, near, raises_like, wrong_if


def solution(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attend(query, key, value)


def attend(query: Tensor, key: Tensor, value: Tensor, ahead: int = 0, scale: float | None = None) -> Tensor:
    """The solution; or one that sees `ahead` keys beyond its own position, or divides the scores by `scale`."""
    scores = query @ key.mT / (scale or query.shape[-1] ** 0.5)
    seen = torch.ones_like(scores, dtype=torch.bool).tril(key.shape[-2] - query.shape[-2] + ahead)
    return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value


def draw(rng: Inputs) -> list[tuple]:
    """As many queries as keys; fewer, with one leading axis, and with none; the last query; a single token."""
    few, many, width, values = rng.sizes(4, 3, 9)
    few, many = sorted((few, many))
    shapes = ((2, 3), many, many), ((4,), few, many), ((), many - 1, many), ((3, 2), 1, many), ((2,), 1, 1)
    return [
        (2 * rng.randn(*axes, t, width), rng.randn(*axes, s, width), rng.randn(*axes, s, values))
        for axes, t, s in shapes
    ]


def softened(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """A mask of 0 and 1 times the scores."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    return scores.tril(key.shape[-2] - query.shape[-2]).softmax(-1) @ value


def given(query: Tensor, key: Tensor, value: Tensor, mask: Callable) -> Tensor:
    """PyTorch's function with a mask of another kind: `mask` of the number of queries, and of that of keys."""
    return F.scaled_dot_product_attention(query, key, value, mask(query.shape[-2], key.shape[-2]))


def masked_late(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
    return weights.tril(key.shape[-2] - query.shape[-2]) @ value


def explain(yours: Tensor, _: Tensor, query: Tensor, key: Tensor, value: Tensor) -> None:
    wrong_if(
        yours.isnan().any(),
        "nan",
        "Your result has nan: 0 times infinity is nan, and so is the softmax of a row that is -inf everywhere.",
        look="`masked_fill(…, -torch.inf)`, which multiplies nothing",
    )
    wrong_if(
        near(yours, attend(query, key, value, ahead=99)),
        "sees_ahead",
        f"With {query.shape[-2]} queries and {key.shape[-2]} keys, your queries see later positions, too.",
        look="the scores of later keys: -inf before the softmax",
    )
    wrong_if(
        near(yours, attend(query, key, value, query.shape[-2] - key.shape[-2])),
        "upper_left",
        "With fewer queries than keys, your mask starts at the first key. The queries are those of the last "
        "T positions, so the last of them sees all keys.",
        look="`tril(S - T)`; `is_causal=True` of PyTorch takes the first T positions",
    )


exercise = Exercise(
    title="Look back, never ahead",
    minutes=13,
    difficulty=3,
    points=3,
    takeaway="The mask is the only thing that makes it causal. With fewer queries than keys, align it at the end: "
    "`is_causal=True` aligns it at the beginning.",
    hints=(
        "Scores `query @ key.mT / sqrt(D)` are [..., T, S]. Query t is that of position S - T + t: it sees the keys up "
        "to that position. Set all other scores to -inf before the softmax.",
        "`torch.ones(T, S, dtype=torch.bool).tril(S - T)` is True where a query may look. "
        "`F.scaled_dot_product_attention(query, key, value, attn_mask=…)` takes it as it is.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        explain=explain,
        look="scores `query @ key.mT` divided by the square root of D; -inf wherever query t, at position S - T + t, "
        "would see a later key; softmax over the keys, the last axis; then `@ value`",
        says=[
            looks_like(
                "one_off",
                "Your mask is one position off: query t sees the keys up to its own position, S - T + t, and that one.",
                partial(attend, ahead=-1),
                partial(attend, ahead=1),
            ),
            looks_like(
                "inverted",
                "Your mask is the wrong way round: in a bool `attn_mask`, True means *may see*.",
                partial(given, mask=lambda t, s: torch.ones(t, s, dtype=torch.bool).triu(s - t + 1)),
            ),
            looks_like(
                "added",
                "Your mask of 0 and 1 is a float tensor, so it is added to the scores, and hides nothing.",
                partial(given, mask=lambda t, s: torch.ones(t, s).tril(s - t)),
            ),
            looks_like(
                "scale",
                "Divide the scores by the square root of D once. `F.scaled_dot_product_attention` does so by itself.",
                partial(attend, scale=1.0),
                lambda query, key, value: attend(query, key, value, scale=query.shape[-1]),
                lambda query, key, value: attend(query, key, value, scale=value.shape[-1] ** 0.5),
                lambda query, key, value: attend(query, key, value, scale=key.shape[-2] ** 0.5),
                lambda query, key, value: attend(query, key, value, scale=query.shape[-1] ** -0.5),
                look="`query.shape[-1] ** 0.5`",
            ),
            looks_like(
                "zero_score",
                "You set the scores of later keys to 0, but the softmax makes e⁰ = 1 of a zero: these keys still "
                "count.",
                softened,
                look="`masked_fill(…, -torch.inf)`",
            ),
            looks_like(
                "masked_late",
                "The mask comes after the softmax, so the weights that are left no longer add up to 1.",
                masked_late,
                look="-inf in the scores, before the softmax",
            ),
            raises_like(
                "axes",
                "The number of leading axes varies: count from the end, and transpose by `key.mT`.",
                *("values to unpack", "non-singleton dimension 1", "Dimension out of range"),
            ),
        ],
    ),
    lends=solution,
)
