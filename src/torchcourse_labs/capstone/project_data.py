"""Split a data set into training and validation images: disjoint, random, and the same each time."""

import itertools
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, same, wrong_if
from torchcourse.data import ImageSet, files

SHAPES = {"mnist": (1, 28, 28), "fashion_mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


def contents(part: ImageSet) -> dict[str, Any]:
    """The numbers of the images; whether one is a test image, and whether pixels and labels are still theirs."""
    corner = part.images[:, 0, 0, :3].long()
    rows = corner[:, 0] + 256 * corner[:, 1]
    own = bool((part.images[:, :, 1:] == 128).all()) and part.labels.tolist() == (rows * 7 % 10).tolist()
    return {"rows": rows.tolist(), "test": bool(corner[:, 2].any()), "own": own}


def split(answer: Callable, n: int, seed: int) -> dict[str, Any]:
    """A probe: two splits with one seed and one with another, where `data.load` gives n numbered images."""
    loaded, parts = {}, []

    def find(name: str, which: str, folder: Any) -> tuple[Tensor, Tensor]:
        loaded[name] = None
        images, rows = torch.full((n, *SHAPES[name]), 128, dtype=torch.uint8), torch.arange(n)
        for place, value in enumerate((rows % 256, rows // 256, 255 * (which == "test"))):
            images[:, 0, 0, place] = value
        return images, rows * 7 % 10

    with mock.patch.object(files, "find", find):
        for each in (seed, seed, seed + 1):
            found = call(answer, each)
            if not isinstance(found, tuple | list) or [isinstance(part, ImageSet) for part in found] != [True, True]:
                raise Incorrect("Your function should return two image sets: (train_set, validation_set).")
            parts += map(contents, found) if loaded else []
    if len(loaded) != 1:
        raise Incorrect('Both sets should come from one of the three data sets: `data.load(NAME, "train")`.')
    return {"parts": parts}


def judge(answer: Any, rng: Inputs) -> None:
    for seed in (rng.size(1, 1000), 0):  # many images, of which a coin for each rarely holds out exactly a tenth
        judge_split(answer, 10 * rng.size(300, 400) + rng.size(1, 9), seed)


def judge_split(answer: Any, n: int, seed: int) -> None:
    seen = observe(answer, split, n, seed)
    train, validation, train_again, validation_again, _, other = seen["parts"]
    rows, held_out = train["rows"], validation["rows"]
    if not (train["own"] and validation["own"]):
        raise Incorrect("Pixels or labels are no longer those of their images.", look="`subset` takes both, unchanged")
    wrong_if(
        train["test"] or validation["test"],
        "test_images",
        "There are test images in your sets: the test score then no longer says how the model does on new images.",
        look="both sets come from the training images",
    )
    wrong_if(
        sorted(rows + held_out) != list(range(n)),
        "each_once",
        f"Together, the two sets should have each of the {n} images once: a learned one says nothing about new ones.",
        look="`torch.randint` can repeat a number, `torch.randperm` does not; where does the slice end?",
        yours=f"{len(rows)} and {len(held_out)} images, {len({*rows, *held_out})} different ones",
    )
    look = "the order, (train_set, validation_set); a tenth, rounded down. A coin for each image gives about a tenth"
    same([len(rows), len(held_out)], [n - n // 10, n // 10], f"The split of {n} images", look=look)
    wrong_if(
        {*rows} != {*train_again["rows"]} or {*held_out} != {*validation_again["rows"]},
        "not_repeatable",
        f"The same seed ({seed}) gives a different split: a resumed run would learn from its own validation images.",
        look="a separate generator, with the seed; 0 is a seed, too",
    )
    places = sorted(held_out)
    wrong_if(
        places == sorted(other["rows"]) or len({b - a for a, b in itertools.pairwise(places)}) <= 2,
        "not_random",
        "A different seed gives the same split, or your validation images follow a pattern: draw them at random.",
        look="`torch.randperm`, with a generator that has the seed",
    )


exercise = Exercise(
    title="Training images and validation images",
    minutes=15,
    difficulty=2,
    points=3,
    takeaway="Always choose by the validation images. The test images answer one question at the end.",
    hints=(
        "Shuffle the numbers from 0 to n - 1 and cut that order in two: the two parts have no image in common.",
        "With its own `torch.Generator().manual_seed(seed)`, the order depends on the seed alone. Then "
        "`images.subset(order[tenth:])` and `images.subset(order[:tenth])`.",
    ),
    judge=judge,
)
