"""Predictions: say what you expect before you run a cell, then see whether you were right, item by item."""

import math
from typing import Any


def compare(prediction: Any, result: Any, within: float = 0.0) -> None:
    """Print whether a prediction is right, or a friendly reminder where it is still `...`.

    prediction: what you expect; `...`, or a dict, list or tuple with `...` in it, means that you have not guessed yet.
    result: what came out. A dict is compared key by key, a list or tuple place by place.
    within: how far a number may be off, as a share of the result: 0.5 accepts 50 to 150 for 100.
    """
    rows = _rows(prediction, result)
    if is_open(prediction):
        missing = [name.removeprefix(", ") for name, guess, _ in rows if is_open(guess)]
        begun = "nothing yet" if len(missing) == len(rows) else f"not yet {', '.join(missing)}"
        print(f"you predicted: {begun} (replace the ... and run this cell again)")
        print("the result is:", result)
        return
    right = [_agree(guess, value, within) for _, guess, value in rows]
    for (name, guess, value), good in zip(rows, right, strict=True):
        print(f"{'✓ right' if good else '✗ not right'}{name}: you predicted {guess}, the result is {value}")
    if len(rows) > 1:
        print(f"{sum(right)} of {len(rows)} right")


def is_open(answer: Any) -> bool:
    """Whether any part of an answer or a prediction is still `...`."""
    if isinstance(answer, dict):
        return any(map(is_open, answer.values()))
    if isinstance(answer, (list, tuple)):
        return any(map(is_open, answer))
    return answer is ...


def _rows(prediction: Any, result: Any) -> list[tuple[str, Any, Any]]:
    """(name, guess, result) for each item of two dicts with the same keys or two lists of one length; else one row."""
    if isinstance(prediction, dict) and isinstance(result, dict) and prediction.keys() == result.keys():
        return [(f", {name}", guess, result[name]) for name, guess in prediction.items()]
    if isinstance(prediction, (list, tuple)) and isinstance(result, (list, tuple)) and len(prediction) == len(result):
        return [(f", {i + 1}", guess, value) for i, (guess, value) in enumerate(zip(prediction, result, strict=True))]
    return [("", prediction, result)]


def _agree(guess: Any, value: Any, within: float) -> bool:
    if isinstance(guess, (list, tuple)) and isinstance(value, (list, tuple)):
        return len(guess) == len(value) and all(_agree(*pair, within) for pair in zip(guess, value, strict=True))
    try:
        near = abs(guess - value) <= max(within, 1e-6) * abs(value)
        return bool(near or guess == value or (math.isnan(guess) and math.isnan(value)))  # the second for infinity
    except (TypeError, ValueError, RuntimeError):  # not numbers, or several of them in one tensor
        return str(guess).strip().lower() == str(value).strip().lower()
