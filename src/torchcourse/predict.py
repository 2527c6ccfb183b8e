"""Predictions: say what you expect before you run a cell, then see your guess beside the result."""

from typing import Any


def compare(prediction: Any, result: Any) -> None:
    """Print a prediction beside the result, or a friendly reminder where it is still `...`.

    prediction: what you expect; `...`, or a dict, list or tuple with `...` in it, means that you have not guessed yet.
    result: what came out. Printed as it is.
    """
    guess = "nothing yet (replace the ... and run this cell again)" if is_open(prediction) else prediction
    print("you predicted:", guess)
    print("the result is:", result)


def is_open(answer: Any) -> bool:
    """Whether any part of an answer or a prediction is still `...`."""
    if isinstance(answer, dict):
        return any(map(is_open, answer.values()))
    if isinstance(answer, (list, tuple)):
        return any(map(is_open, answer))
    return answer is ...
