"""Half precision, where it pays off: autocast in the training, and a choice by measurements."""

import tempfile
from typing import Any

import torch

from labcheck.authoring import Exercise, Incorrect, Inputs, attempted, call, observe, wrong_if
from torchcourse_labs.capstone._training import alone, draw, judge_returned

DTYPES = (torch.float32, torch.bfloat16)
Row = tuple[dict[str, list[float]], dict[str, float]]


def train_in_each(answer: Any, samples: tuple, starts: list, how: dict, table: list[Row]) -> dict:
    """A probe: the same training in float32 and in bfloat16, and a choice for each row of measurements."""
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise Incorrect("Give the check two functions.", "(train, choose_dtype)", answer)
    train, choose = map(attempted, answer)
    seen: dict[str, Any] = {"returned": "a model", "computed": [], "stored": []}
    with tempfile.TemporaryDirectory() as home:
        for dtype in DTYPES:
            value = alone(train, home, 1, samples, starts, how | {"dtype": dtype}, str(dtype))
            if value["returned"] != "a model":
                return value
            seen["computed"].append(sorted({step["computed"] for step in value["steps"]}))
            seen["stored"].append(sorted({value["stored"], *(step["stored"] for step in value["steps"])}))
    return seen | {"choices": [call(choose, *row, may_return_none=True) for row in table]}


def best_dtype(seconds: dict[str, list[float]], accuracy: dict[str, float]) -> torch.dtype:
    faster = max(seconds["bfloat16"]) < min(seconds["float32"])
    good = accuracy["bfloat16"] >= accuracy["float32"] - 0.005
    return torch.bfloat16 if faster and good else torch.float32


def measurements(rng: Inputs) -> list[Row]:
    """The seconds of five runs in each dtype, and the accuracies."""
    base, good = 1 + 5 * rng.rand(1).item(), 0.7 + 0.2 * rng.rand(1).item()

    def around(middle: float, width: float) -> list[float]:
        return [base * (middle + width * (each / 4 - 0.5)) for each in rng.permutation(5).tolist()]

    table = [
        # the middle of float32 and its width, those of bfloat16, and what bfloat16 loses in accuracy
        (1.0, 0.1, 0.6, 0.1, 0.001),  # clearly faster, as good
        (1.0, 0.5, 0.8, 0.5, 0.0),  # faster on average, not decided
        (1.0, 0.1, 0.6, 0.1, 0.03),  # faster, but worse
        (1.0, 0.1, 1.1, 0.5, 0.0),  # the fastest of all is bfloat16's, but it is slower
        (1.0, 0.1, 0.88, 0.1, 0.0),  # clearly faster, but not by much
        (1.0, 0.1, 0.6, 0.1, 0.0048),  # less than 0.005 lost, but more than half a percent
        (1.0, 0.5, 0.625, 0.25, 0.0),  # the slowest and the fastest are equal
    ]
    rows = [table[index % len(table)] for index in rng.permutation(2 * len(table)).tolist()]
    return [
        ({"float32": around(*row[:2]), "bfloat16": around(*row[2:4])}, {"float32": good, "bfloat16": good - row[4]})
        for row in rows
    ]


def judge(answer: Any, rng: Inputs) -> None:
    table = measurements(rng)
    seen = observe(answer, train_in_each, *draw(rng)[:3], table)
    judge_returned(seen)
    wrong_if(
        seen["stored"] != [["torch.float32"], ["torch.float32"]],
        "half_weights",
        "Your weights themselves do not stay in float32: in half precision, small steps get lost.",
        look="`torch.autocast` casts for the computation and leaves the weights in float32",
    )
    for dtype, computed in zip(DTYPES, seen["computed"], strict=True):
        wrong_if(
            computed != [str(dtype)],
            "other_dtype",
            f"With dtype={dtype}, your model computes in {', '.join(computed)}.",
            look="`torch.autocast` around the call of the model, with this dtype, and `enabled=dtype != torch.float32`",
        )
    for choice, (seconds, accuracy) in zip(seen["choices"], table, strict=True):
        if choice != best_dtype(seconds, accuracy):
            runs = [f"{name} {min(t):.3g}–{max(t):.3g} s, accuracy {accuracy[name]:.4f}" for name, t in seconds.items()]
            look = "is even the slowest run in bfloat16 faster, and is at most 0.005 of accuracy lost? Both are needed"
            raise Incorrect(f"Your choice is wrong for {'; '.join(runs)}.", best_dtype(seconds, accuracy), choice, look)


exercise = Exercise(
    title="Half precision, where it pays off",
    minutes=25,
    difficulty=2,
    points=3,
    seconds=60,
    takeaway="Whether half precision pays off depends on your machine. A gain counts if it exceeds the noise.",
    hints=(
        "A gain is clear if every measurement of one is below every measurement of the other: "
        '`max(seconds["bfloat16"]) < min(seconds["float32"])`. Then look at the accuracy.',
        'In `train`: `with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):` around model and loss.',
    ),
    judge=judge,
)
