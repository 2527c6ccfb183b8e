"""A prediction beside its result; an empty one is a reminder, never an error."""

import torch

from torchcourse import predict


def test_a_prediction_stands_beside_the_result_and_an_empty_one_is_a_reminder(capsys):
    for empty in (..., {"w": ..., "b": 1}, (1, ...), {"a": [1, ...]}):
        predict.compare(empty, -36.0)
        first, second = capsys.readouterr().out.splitlines()
        assert "nothing yet" in first and "Ellipsis" not in first
        assert second.endswith("-36.0")
    for guess in (-18.0, {"w": -18, "b": -6}, (), torch.tensor([1.0, 2.0])):
        predict.compare(guess, "what came out")
        assert str(guess) in capsys.readouterr().out
