"""The bytes that rank 0 keeps in training, for each stage of sharding."""

import math
from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, call, wrong_if

FROM = {"weights": 3, "gradients": 2, "optimizer": 1}  # the stage from which each is divided
Shape = tuple[int, ...]


def solution(
    shapes: list[Shape], ranks: int, stage: int, optimizer: str, precision: str, activations: int
) -> dict[str, int]:
    whole = sum(math.prod(shape) for shape in shapes)
    shard = sum(math.ceil(shape[0] / ranks) * math.prod(shape[1:]) for shape in shapes)
    size = 2 if precision == "bf16" else 4
    states = {"adamw": 2, "momentum": 1, "sgd": 0}[optimizer]
    return {
        "weights": size * (shard if stage >= 3 else whole),
        "gradients": size * (shard if stage >= 2 else whole),
        "optimizer": size * states * (shard if stage >= 1 else whole),
        "activations": activations,
    }


def draw(rng: Inputs) -> list[tuple]:
    def model() -> list[Shape]:
        width, classes, kernel = rng.size(33, 60), rng.size(9, 14), rng.size(3, 6)
        return [(4 * width, width), (4 * width,), (width, 3, kernel, kernel), (classes, width), (classes,)]

    kinds = [
        *((stage, "adamw", "fp32") for stage in (0, 1, 2, 3)),
        *((stage, "adamw", "mixed") for stage in (0, 2, 3)),
        *((stage, "momentum", "bf16") for stage in (1, 3)),
        (3, "sgd", "fp32"),
        (3, "adamw", "bf16"),
    ]
    cases = [(model(), rng.size(3, 8), *kind, rng.size(10**4, 10**5)) for kind in kinds]
    # More ranks than rows, and a single rank.
    return [*cases, (model(), 64, 3, "adamw", "fp32", 10**5), (model(), 1, 3, "momentum", "mixed", 10**4)]


def judge(answer: Any, rng: Inputs) -> None:
    for case in draw(rng):
        yours, expected = call(answer, *case), solution(*case)
        wrong_if(
            not isinstance(yours, dict) or yours.keys() != expected.keys(),
            "keys",
            'Your function should return a dict with the keys "weights", "gradients", "optimizer", and "activations".',
            yours=yours,
        )
        wrong_if(
            yours["activations"] != case[-1],
            "activations",
            "`activations` are already the bytes of one rank's own images: nothing divides or multiplies them.",
            expected=case[-1],
            yours=yours["activations"],
        )
        for part in ("weights", "gradients", "optimizer"):
            judge_part(part, yours[part], expected[part], *case)


def judge_part(part: str, yours: Any, expected: int, shapes: list[Shape], ranks: int, stage: int, *kind: str) -> None:
    optimizer, precision, _ = kind
    what = f"The {part} at stage {stage}, with {ranks} ranks, {optimizer}, and {precision}"
    details = {"expected": f"{expected} bytes", "yours": f"{yours} bytes"}
    whole, shard = (solution(shapes, ranks, s, *kind)[part] for s in (0, 3))
    divided = stage >= FROM[part]
    wrong_if(
        isinstance(yours, bool) or not isinstance(yours, int),
        "whole_numbers",
        f"Bytes are whole numbers, Python ints. {what}: {yours}.",
        look="a division with `/`: what is dealt out are whole rows, so round up, with `math.ceil`",
    )
    if yours == expected:
        return
    wrong_if(
        yours == shard and not divided,
        "divided_too_early",
        f"{what}, should not be divided: stage 1 divides the optimizer state, 2 the gradients as well, 3 all three.",
        look="which of the three is divided from which stage on",
        **details,
    )
    wrong_if(
        yours == whole and divided,
        "not_divided",
        f"{what}, should be divided: stage 1 divides the optimizer state, 2 the gradients as well, 3 all three.",
        look="which of the three is divided from which stage on",
        **details,
    )
    wrong_if(
        yours in [factor * expected for factor in (0, 0.25, 0.5, 1.5, 2, 3, 8)] or expected == 0,
        "size_of_numbers",
        f"{what}: either the bytes for each number or the count of numbers for each weight is wrong.",
        look='what is kept has 4 bytes in "fp32" and in "mixed", 2 in "bf16"; AdamW keeps two numbers for each weight, '
        "SGD with momentum one, plain SGD none",
        **details,
    )
    wrong_if(
        divided and abs(yours - expected) < 0.5 * expected,
        "rows",
        f"{what}: your shard does not have the right size. Whole rows of each tensor are dealt out.",
        look="rank 0 has `math.ceil(shape[0] / ranks)` rows, each of `math.prod(shape[1:])` numbers",
        **details,
    )
    raise Incorrect(f"{what}: the number of bytes is not right.", **details)


exercise = Exercise(
    title="Does it fit?",
    minutes=10,
    difficulty=2,
    points=2,
    takeaway="Four bytes of weight bring twelve more. Sharding divides these; it never divides activations.",
    hints=(
        "Count numbers first: of all tensors as a whole, and of rank 0's rows of all tensors. Bytes come last.",
        "Rank 0 has `math.ceil(shape[0] / ranks)` rows of a tensor, and each row has `math.prod(shape[1:])` numbers. "
        "AdamW keeps two numbers for each weight, SGD with momentum one.",
        'For stage 3 with AdamW in fp32: `{"weights": 4 * shard, "gradients": 4 * shard, "optimizer": 8 * shard, '
        '"activations": activations}`. Stage 2 keeps the weights whole, stage 1 the gradients as well, stage 0 all. '
        'In "bf16", each number has two bytes instead of four; in "mixed", what is kept has four.',
    ),
    judge=judge,
)
