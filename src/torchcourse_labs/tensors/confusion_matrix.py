"""How many images of each class were taken for each class: counting with indices that occur many times."""

from typing import Any

import torch
from torch import Tensor

from labcheck import probes
from labcheck.authoring import Exercise, Inputs, Spec, looks_like, observe, raises_like, wrong_if


def draw(rng: Inputs) -> list[tuple]:
    """100 images, one, and many of the same classes, so that a loop shows; then more classes, all in use."""
    labels, predicted, classes = images(rng, rng.size(4, 7), 1800)
    parts = [(labels[:part], predicted[:part], classes) for part in (100, 1, len(labels))]
    return [*parts, images(rng, rng.size(12, 15), 400, unused=0)]


def images(rng: Inputs, classes: int, n: int, unused: int = 1) -> tuple[Tensor, Tensor, int]:
    """Labels and predictions. A last class that never occurs still has its row and column in the matrix."""
    labels = rng.ints(0, classes - unused, (n,))
    labels[::3] = 0  # one cell counts far beyond what uint8 can hold
    return labels, torch.where(rng.rand(n) < 0.6, labels, rng.ints(0, classes - unused, (n,))), classes


def solution(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    return torch.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)


def afterward(answer: Any, few: tuple, one: tuple, many: tuple, *others: tuple) -> None:
    wrong_if(
        # a loop over classes or cells is another matter
        observe(answer, probes.steps, *many) > observe(answer, probes.steps, *few) + 700,
        "loop",
        "Your counts are right, but your code takes more steps the more images there are: there is a loop.",
        look="`for`: index with all labels at once",
    )


exercise = Exercise(
    title="Which digits get confused?",
    minutes=10,
    difficulty=3,
    points=4,
    takeaway="With repeated indices `m[i, j] += 1` counts once: accumulate with index_put_ or bincount.",
    hints=(
        "Two index tensors address one cell for each image, and the same cell comes up many times. Either use "
        "`index_put_(..., accumulate=True)`, or give each pair (label, predicted) a number and count.",
        "`torch.bincount(labels * classes + predicted, minlength=...)`, then bring the counts into shape.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        dtype=False,
        look="an image counts in row `label`, column `predicted`, and all counts add up to the number of images",
        afterward=afterward,
        says=[
            looks_like(
                "counted_once",
                "Each cell was counted once, however many images fall into it.",
                lambda *given: solution(*given).clamp(max=1),
                look="with an index that occurs several times, `matrix[labels, predicted] += 1` adds 1 only once",
            ),
            looks_like(
                "in_a_copy",
                "Nothing was counted: `matrix[labels]` makes a copy, and your counts went there.",
                lambda *given: solution(*given) * 0,
                look="both indices in one pair of brackets",
            ),
            looks_like(
                "swapped",
                "Rows and columns are swapped: the true class goes down, the predicted one across.",
                lambda labels, predicted, classes: solution(predicted, labels, classes),
            ),
            raises_like(
                "minlength",
                "There are more or fewer counts than cells. `bincount` stops at the largest number that occurs, unless "
                "`minlength` asks for more.",
                "is invalid for input of size",
                look="`minlength=`: one count for each of classes × classes cells",
            ),
            looks_like(
                "last_class",
                "The last class is missing: no image here belongs to it, but it still needs its row and column.",
                lambda *given: solution(*given)[:-1, :-1],
                lambda labels, predicted, _: solution(labels, predicted, int(labels.max()) + 1),
                look="`classes`: sizes and `minlength` come from there, not from the largest label that occurs",
            ),
        ],
    ),
)
