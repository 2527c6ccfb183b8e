"""A prediction beside its result; an empty one is a reminder, never an error."""

import pytest
import torch

from torchcourse import predict


@pytest.mark.parametrize("empty", [..., {"w": ..., "b": 1}, [..., ...], (1, ...), {"a": [1, ...]}])
def test_an_empty_prediction_is_a_reminder_beside_the_result(empty, capsys):
    predict.compare(empty, -36.0)
    first, second = capsys.readouterr().out.splitlines()
    assert "nothing yet" in first and "Ellipsis" not in first
    assert second.endswith("-36.0")


@pytest.mark.parametrize("guess", [-18.0, "w stays 2.0", {"w": -18, "b": -6}, (), torch.tensor([1.0, 2.0])])
def test_a_prediction_stands_beside_the_result(guess, capsys):
    predict.compare(guess, "what came out")
    assert str(guess) in capsys.readouterr().out
