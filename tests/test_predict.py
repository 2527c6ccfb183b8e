"""A prediction is compared item by item; an empty one is a reminder, never an error."""

import pytest
import torch

from torchcourse import predict


def test_an_empty_prediction_is_a_reminder(capsys):
    for empty in (..., {"w": ..., "b": 1}, (1, ...), {"a": [1, ...]}):
        predict.compare(empty, -36.0)
        first, second = capsys.readouterr().out.splitlines()
        assert "nothing yet" in first and "Ellipsis" not in first
        assert second.endswith("-36.0")


def test_one_that_is_begun_says_what_is_open(capsys):
    predict.compare({"w": ..., "b": 1, "c": ...}, {"w": 2, "b": 1, "c": 3})
    first, second = capsys.readouterr().out.splitlines()
    assert first == "you predicted: not yet w, c (replace the ... and run this cell again)" and "'b': 1" in second


@pytest.mark.parametrize(
    ("guess", "result", "within", "right"),
    [
        (6, 6.0, 0, [True]),
        (256, 258, 0, [False]),
        (80, 100, 0.25, [True]),
        (140, 100, 0.3, [False]),
        (float("inf"), float("inf"), 0, [True]),
        (float("nan"), float("nan"), 0, [True]),
        (torch.tensor(2.0), 2.0, 0, [True]),
        (torch.tensor([1.0, 2.0]), "what came out", 0, [False]),
        (torch.tensor([1.0, 2.0]), 3.0, 0, [False]),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]), 0, [True]),
        ("View", "view", 0, [True]),
        (None, "None", 0, [True]),
        ({"w": -18, "b": True}, {"b": True, "w": 18}, 0, [False, True]),
        ({"w": -18}, {"b": 1}, 0, [False]),
        ((8, 7, 6), [8, 7, 5], 0, [True, True, False]),
        ({"GPU 0": [0, 1]}, {"GPU 0": (0, 1)}, 0, [True]),
        ([1, 2], [1, 2, 3], 0, [False]),
        ((), 3, 0, [False]),
    ],
)
def test_a_prediction_is_compared_item_by_item(capsys, guess, result, within, right):
    predict.compare(guess, result, within)
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith("✓") for line in lines[: len(right)]] == right
    assert lines[len(right) :] == ([f"{sum(right)} of {len(right)} right"] if len(right) > 1 else [])
