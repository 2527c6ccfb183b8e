"""Half precision, where it pays off: autocast in the training, and a choice by measurements."""

import tempfile
from typing import Any

import torch

from labcheck import ranks
from labcheck.authoring import Exercise, Incorrect, Inputs, attempted, call, observe, wrong_if
from torchcourse_labs.capstone._training import draw, perform, settings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Row = tuple[dict[str, list[float]], dict[str, float]]


def train_in_each(answer: Any, samples: tuple, starts: list, seed: int, table: list[Row]) -> dict:
    """A probe: the same training in float32 and in bfloat16, and a choice for each row of measurements."""
    if not (isinstance(answer, tuple) and len(answer) == 2):
        return {"kind": "form"}
    train, choose = map(attempted, answer)
    seen: dict[str, Any] = {"kind": "two functions", "computed": [], "stored": []}
    with tempfile.TemporaryDirectory() as home:
        for name, dtype in DTYPES.items():
            outcome = perform(train, 1, home, 1, samples, starts, settings(seed, dtype), name)
            ranks.judge(outcome)
            value = outcome[0].value
            if value["returned"] != "a model":
                return {"kind": "no model"}
            seen["computed"].append(sorted({step["computed"] for step in value["steps"]}))
            seen["stored"].append(sorted({step["stored"] for step in value["steps"]} | {value["stored"]}))
    return seen | {"choices": [call(choose, *row, may_return_none=True) for row in table]}


def best_dtype(seconds: dict[str, list[float]], accuracy: dict[str, float]) -> torch.dtype:
    faster = max(seconds["bfloat16"]) < min(seconds["float32"])
    good = accuracy["bfloat16"] >= accuracy["float32"] - 0.005
    return torch.bfloat16 if faster and good else torch.float32


def measurements(rng: Inputs) -> list[Row]:
    base, good = 1 + 5 * rng.rand(1).item(), 0.7 + 0.2 * rng.rand(1).item()

    def around(middle: float, width: float) -> list[float]:
        return [base * (middle + width * (each / 4 - 0.5)) for each in rng.permutation(5).tolist()]

    table = [
        # the middle of float32 and its width, those of bfloat16, and what bfloat16 loses in accuracy
        (around(1.0, 0.1), around(0.6, 0.1), 0.001),  # clearly faster, as good
        (around(1.0, 0.1), around(1.7, 0.1), 0.0),  # clearly slower
        (around(1.0, 0.1), around(1.7, 0.1), 0.03),  # clearly slower, and worse
        (around(1.0, 0.5), around(0.8, 0.5), 0.0),  # faster on average, not decided
        (around(1.0, 0.1), around(0.6, 0.1), 0.03),  # faster, but worse
        (around(1.0, 0.2), around(0.7, 0.2), -0.02),  # faster and better
        (around(1.0, 0.1), around(1.1, 0.5), 0.0),  # the fastest of all is bfloat16's, but it is slower
        (sorted(around(1.0, 0.5)), sorted(around(0.9, 0.5)), 0.0),  # run by run it is faster, but they overlap
        (around(1.0, 0.1), around(0.88, 0.1), 0.0),  # clearly faster, but not by much
        (around(1.0, 0.1), around(0.6, 0.1), 0.0048),  # less than 0.005 lost, but more than half a percent
    ]
    one = around(1.0, 0.1)
    table.append((one, [min(one), *around(0.6, 0.1)], 0.0))  # the slowest and the fastest are equal
    rows = [
        ({"float32": one, "bfloat16": other}, {"float32": good, "bfloat16": good - lost}) for one, other, lost in table
    ]
    return [rows[i] for i in rng.permutation(len(rows)).tolist()]


def judge(answer: Any, rng: Inputs) -> None:
    samples, starts, seed, _ = draw(rng)
    table = measurements(rng)
    seen = observe(answer, train_in_each, samples, starts, seed, table)
    wrong_if(seen["kind"] == "form", "form", "Give the check two functions: (train, choose_dtype).")
    wrong_if(seen["kind"] == "no model", "no_model", "`train` should return the trained model.")
    wrong_if(
        seen["stored"] != [["float32"], ["float32"]],
        "half_weights",
        "Your weights themselves do not stay in float32: in half precision, small steps get lost.",
        look="`torch.autocast` casts for the computation and leaves the weights in float32",
    )
    wrong_if(
        seen["computed"][1] != ["bfloat16"],
        "not_in_half",
        "With dtype=torch.bfloat16, your model does not compute in bfloat16.",
        look="`torch.autocast` around the call of the model takes the dtype that `train` gets",
        yours=", ".join(seen["computed"][1]),
    )
    wrong_if(
        seen["computed"][0] != ["float32"],
        "always_half",
        "With dtype=torch.float32, your model computes in half precision as well.",
        look="`enabled=dtype != torch.float32`",
    )
    judge_choices(seen["choices"], table)


def judge_choices(choices: list, table: list[Row]) -> None:
    for choice in choices:
        if choice not in DTYPES.values():
            raise Incorrect("`choose_dtype` should return a dtype.", "torch.float32 or torch.bfloat16", choice)
    wrong_if(len({*choices}) == 1, "no_choice", "You always choose the same dtype, no matter what was measured.")
    for choice, (seconds, accuracy) in zip(choices, table, strict=True):
        expected = best_dtype(seconds, accuracy)
        if choice == expected:
            continue
        half, full = seconds["bfloat16"], seconds["float32"]
        lost = accuracy["float32"] - accuracy["bfloat16"]
        case = " and ".join(
            f"{min(seconds[name]):.3g} to {max(seconds[name]):.3g} s in {name} (accuracy {accuracy[name]:.4f})"
            for name in DTYPES
        )
        wrong_if(
            choice == torch.bfloat16 and min(half) < max(full) and max(half) >= min(full),
            "overlap",
            f"You choose bfloat16 where the times overlap: {case}. The next measurements may say the opposite.",
            look="the slowest run in bfloat16 against the fastest one in float32",
        )
        wrong_if(
            choice == torch.bfloat16 and lost > 0.005,
            "accuracy",
            f"You choose bfloat16 although it costs more than 0.005 of accuracy: {case}.",
            look="accuracies go from 0 to 1, so half a percentage point is 0.005",
        )
        raise Incorrect(
            f"One of your choices is wrong: the one for {case}.", expected, choice, "the rule, line by line"
        )


exercise = Exercise(
    title="Half precision, where it pays off",
    minutes=25,
    difficulty=2,
    points=3,
    seconds=60,
    takeaway="Whether half precision pays off depends on your machine. A gain counts if it exceeds the noise.",
    hints=(
        "A gain is clear if every measurement of one is below every measurement of the other.",
        '`max(seconds["bfloat16"]) < min(seconds["float32"])`, and then the accuracy.',
        'In `train`: `with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):` around model and loss.',
    ),
    judge=judge,
)
