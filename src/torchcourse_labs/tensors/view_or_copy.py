"""Which expressions share memory with x, and which have to copy: predictions, not code."""

import operator
from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, observe, wrong_if

solution = {
    "x[1:3]": "view",
    "x[[1, 2]]": "copy",
    "x.T": "view",
    "x[x > 10]": "copy",
    "x.reshape(24)": "view",
    "x.T.reshape(24)": "copy",
    "x.T.stride()": (1, 6),
    "x[:, ::2].stride()": (6, 2),
}


def written(predictions: Any) -> Any:
    """A probe: the predictions, written as in the solution where that is clear. Strides may be a list or NumPy's."""
    known = isinstance(predictions, dict)
    return {key: plain(value) for key, value in predictions.items()} if known else predictions


def plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip().lower()
    try:
        return tuple(operator.index(stride) for stride in value)
    except TypeError:
        return value


def judge(answer: Any, rng: Inputs) -> None:
    said = observe(answer, written)
    if not isinstance(said, dict):
        raise Incorrect("Your answer is not a dictionary.", yours=said, look="`predictions`, with its eight keys")
    for name, truth in solution.items():
        if name not in said:
            raise Incorrect(f'The prediction for "{name}" is missing.', look="the keys: leave them as they were")
        strides = isinstance(said[name], tuple) and len(said[name]) == 2
        if not strides if isinstance(truth, tuple) else said[name] not in ("view", "copy"):
            form = "a pair without quotes, as in (6, 1)" if isinstance(truth, tuple) else '"view" or "copy"'
            raise Incorrect(f'The prediction for "{name}" has another form.', form, repr(said[name]))
    wrong = [name for name, truth in solution.items() if said[name] != truth]
    name = wrong[0] if wrong else None
    details = {
        "look": "the pictures of memory in the lecture",
        "yours": f"{said.get(name)!r} for `{name}`; {len(solution) - len(wrong)} of {len(solution)} are right",
    }
    wrong_if(
        name in ("x[1:3]", "x.T"),
        "view",
        f"`{name}` only needs another start or other strides: it is a view, and writing into it writes into x.",
        **details,
    )
    wrong_if(
        name in ("x[[1, 2]]", "x[x > 10]"),
        "picked",
        f"`{name}` may pick any rows or elements, which no stride can describe. It copies.",
        **details,
    )
    wrong_if(
        name == "x.reshape(24)",
        "reshape",
        "x lies in memory in reading order, so `x.reshape(24)` needs no copy here: it is a view.",
        **details,
    )
    wrong_if(
        name == "x.T.reshape(24)",
        "reshape_of_transpose",
        "Read row by row, `x.T` jumps through memory in a way that no single stride describes: `x.T.reshape(24)` "
        "copies.",
        **details,
    )
    wrong_if(
        name,
        "strides",
        "x has strides (6, 1). Transposed, the two swap; with `::2` for the columns, a step to the right skips a box.",
        **details,
    )


exercise = Exercise(
    title="View or copy?",
    minutes=5,
    difficulty=2,
    points=2,
    takeaway="Whatever a start, a shape and strides can describe is a view; for everything else, PyTorch has to copy.",
    hints=(
        "A start and a fixed step for each axis describe slices and `.T`, but not lists and masks. And `reshape`?",
        "`x` has shape (4, 6) and strides (6, 1). `.T` swaps them; `::2` doubles the one of its axis.",
    ),
    judge=judge,
)
