"""The bytes that rank 0 keeps in training, for each stage of sharding."""

import math
from typing import Any

from labcheck.authoring import Exercise, Inputs, Spec, wrong_if

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
        *((stage, "adamw", precision) for stage in (0, 1, 2, 3) for precision in ("fp32", "mixed")),
        *((stage, "momentum", "bf16") for stage in (1, 3)),
        *((3, "sgd", "fp32"), (3, "adamw", "bf16")),
    ]
    cases = [(model(), rng.size(3, 8), *kind, rng.size(10**4, 10**5)) for kind in kinds]
    # More ranks than rows, and a single rank.
    return [*cases, (model(), 64, 3, "adamw", "fp32", 10**5), (model(), 1, 3, "momentum", "mixed", 10**4)]


def explain(yours: dict, expected: dict, shapes: list[Shape], ranks: int, stage: int, *kind: Any) -> None:
    part = next((part for part in expected if yours.get(part) != expected[part]), "activations")
    mine, right = yours.get(part), expected[part]
    if part == "activations" or not isinstance(mine, int):
        return
    whole, shard = (solution(shapes, ranks, each, *kind)[part] for each in (0, 3))
    what = f"The {part} at stage {stage}, with {ranks} ranks, {kind[0]}, and {kind[1]}"
    wrong_if(
        mine in (whole, shard),
        "stage",
        f"{what}, should {'' if right == shard else 'not '}be divided: stage 1 divides the optimizer state, 2 the "
        "gradients as well, 3 all three.",
        expected=f"{right} bytes",
        yours=f"{mine} bytes",
    )
    wrong_if(
        mine in [factor * right for factor in (0, 0.25, 0.5, 1.5, 2, 3, 8)] or right == 0,
        "size_of_numbers",
        f"{what}: either the bytes for each number or the count of numbers for each weight is wrong.",
        look='what is kept has 4 bytes in "fp32" and in "mixed", 2 in "bf16"; AdamW keeps two numbers for each weight, '
        "SGD with momentum one, plain SGD none",
        expected=f"{right} bytes",
        yours=f"{mine} bytes",
    )


exercise = Exercise(
    title="Does it fit?",
    minutes=10,
    difficulty=2,
    points=2,
    takeaway="Four bytes of weight bring twelve more. Sharding divides these; it never divides activations.",
    hints=(
        "Count numbers first: of all tensors as a whole, and of rank 0's rows of all tensors, `math.ceil(shape[0] / "
        "ranks)` rows of `math.prod(shape[1:])` numbers. Bytes come last.",
        'For stage 3 with AdamW in fp32: `{"weights": 4 * shard, "gradients": 4 * shard, "optimizer": 8 * shard, '
        '"activations": activations}`. Stage 2 keeps the weights whole, stage 1 the gradients as well, stage 0 all.',
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        explain=explain,
        rtol=0,
        atol=0,
        look="a tensor has `math.prod(shape)` numbers, with however many axes, and if it is divided, rank 0 has "
        "`math.ceil(shape[0] / ranks)` of its rows; activations are those of one rank's own images; bytes are ints",
    ),
)
