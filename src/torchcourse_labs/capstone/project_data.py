"""Split a data set into images to learn from and images to choose by: disjoint, random, and the same each time."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, wrong_if
from torchcourse.data import ImageSet, files

SHAPES = {"mnist": (1, 28, 28), "fashion_mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


@dataclass
class Seen:
    """Of two splits with one seed, and one with another: what is in them."""

    form: bool
    names: list[str] = field(default_factory=list)  # the data sets that were loaded
    parts: list[dict] = field(default_factory=list)  # train and validation, three times


def numbered(name: str, which: str, n: int) -> tuple[Tensor, Tensor]:
    """Images and labels in place of a data set's: each image carries its own number, and tells the two splits apart."""
    images = torch.full((n, *SHAPES[name]), 128, dtype=torch.uint8)
    rows = torch.arange(n)
    images[:, 0, 0, 0], images[:, 0, 0, 1], images[:, 0, 0, 2] = rows % 256, rows // 256, 255 * (which == "test")
    return images, rows * 7 % 10


def contents(part: Any) -> dict:
    """The numbers of the images; whether one is a test image, and whether pixels and labels are still theirs."""
    corner = part.images[:, 0, 0, :3].long()
    rows = corner[:, 0] + 256 * corner[:, 1]
    pixels = bool((part.images[:, :, 1:] == 128).all())
    labels = part.labels.tolist() == (rows * 7 % 10).tolist()
    return {"rows": rows.tolist(), "test": bool(corner[:, 2].any()), "labels": labels, "pixels": pixels}


def split(answer: Callable, n: int, seed: int) -> dict:
    """A probe: call the answer where `data.load` gives n numbered images in place of the real ones."""
    loaded, parts = {}, []

    def find(name: str, which: str, folder: Any) -> tuple[Tensor, Tensor]:
        loaded[name] = None
        return numbered(name, which, n)

    with mock.patch.object(files, "find", find):
        for each in (seed, seed, seed + 1):
            found = call(answer, each)
            pair = isinstance(found, tuple | list) and len(found) == 2
            if not pair or not all(isinstance(part, ImageSet) for part in found):
                return {"form": False}
            parts += map(contents, found) if loaded else []
    return {"form": True, "names": [*loaded], "parts": parts}


def judge(answer: Any, rng: Inputs) -> None:
    # Many images: if each is held out with a chance of one in ten, it is rarely a tenth of them.
    for seed in (rng.size(1, 1000), 0):
        judge_split(answer, 10 * rng.size(300, 400) + rng.size(1, 9), seed)


def judge_split(answer: Any, n: int, seed: int) -> None:
    seen = Seen(**observe(answer, split, n, seed))
    wrong_if(
        not seen.form,
        "form",
        "Your function should return two image sets: (train_set, validation_set).",
        look="`subset` of an ImageSet is an ImageSet",
    )
    wrong_if(
        len(seen.names) != 1,
        "source",
        "Both sets should come from one data set that `data.load` gives, so that this check can follow its images.",
        look='`data.load(NAME, "train")`, once',
        yours=seen.names,
    )
    (train, validation, train_again, validation_again, _, other) = seen.parts
    rows, held_out = train["rows"], validation["rows"]
    if not (train["pixels"] and validation["pixels"]):
        raise Incorrect("The pixels are not those of the data set: the model scales them, not the split.")
    wrong_if(
        train["test"] or validation["test"],
        "test_images",
        "There are test images in your sets: the test score then no longer says how the model does on new images.",
        look="both sets come from the training images",
    )
    wrong_if(
        {*rows} & {*held_out},
        "overlap",
        "At least one image is in both sets: the model has already learned what you choose by.",
    )
    wrong_if(
        sorted(rows + held_out) != list(range(n)),
        "lost_or_twice",
        f"The two sets together should have each of the {n} images once.",
        look="`torch.randint` can repeat a number, `torch.randperm` does not; where does the slice end?",
        yours=f"{len(rows) + len(held_out)} images, {len({*rows, *held_out})} different ones",
    )
    wrong_if(
        len(held_out) != n // 10,
        "a_tenth",
        f"Hold out exactly a tenth of the {n} images to choose by, rounded down.",
        look="the order, (train_set, validation_set). A coin for each image gives only about a tenth",
        expected=f"{n - n // 10} and {n // 10} images",
        yours=f"{len(rows)} and {len(held_out)} images",
    )
    wrong_if(
        not (train["labels"] and validation["labels"]),
        "labels",
        "The labels no longer belong to their images.",
        look="`subset` takes images and labels together",
    )
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
    title="Images to learn from, images to choose by",
    minutes=15,
    difficulty=2,
    points=3,
    takeaway="Always choose by the validation images. The test images answer one question at the end.",
    hints=(
        "Shuffle the numbers from 0 to n - 1 and cut that order in two: the two parts have no image in common.",
        "With its own `torch.Generator().manual_seed(seed)`, the order depends on the seed and on nothing else.",
        "`images.subset(order[tenth:])`, `images.subset(order[:tenth])`.",
    ),
    judge=judge,
)
