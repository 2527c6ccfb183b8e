"""Images of your own: a folder with a subfolder for each class, as torchvision's ImageFolder reads it."""

import os
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from torchcourse.data.catalog import check_split
from torchcourse.data.imageset import ImageSet
from torchcourse.errors import CourseError

FEWEST = 20  # images in a class


def from_folder(path: str | os.PathLike, split: str, size: int = 64) -> ImageSet:
    """Color images from a folder. split: "train", or "test" for a fifth of each class, always the same one."""
    check_split(split)
    folder, draw = Path(path).absolute(), torch.Generator().manual_seed(0)
    if not folder.is_dir():
        raise CourseError(f"There is no folder {folder}.")
    places = sorted(each for each in folder.iterdir() if each.is_dir() and each.name[0] != ".")
    if len(places) < 2:
        raise CourseError(f"{folder} needs a subfolder for each class, at least two; it has {len(places)}.")
    images, labels, test, skipped = [], [], [], []
    for label, place in enumerate(places):
        for file in sorted(each for each in place.rglob("*") if each.is_file()):
            try:
                images.append(_square(file, size))
            except Exception:  # what a file that is no image raises depends on what is in it
                skipped.append(file)
        if (count := len(images) - len(labels)) < FEWEST:
            raise CourseError(f"{place} has {count} images; a class needs at least {FEWEST}.")
        labels += [label] * count
        test += (torch.randperm(count, generator=draw) < count // 5).tolist()
    if skipped:
        warnings.warn(f"{folder}: skipped {len(skipped)} files that are no images ({skipped[0]}, ...)", stacklevel=2)
    rows = (torch.tensor(test) == (split == "test")).nonzero().flatten()
    rows = rows[torch.randperm(len(rows), generator=draw)]  # not class by class
    pixels = torch.from_numpy(np.stack(images)[rows]).permute(0, 3, 1, 2).contiguous()
    return ImageSet(pixels, torch.tensor(labels)[rows], tuple(each.name for each in places), str(path))


def _square(file: Path, size: int) -> np.ndarray:
    """The largest square in the middle of an image, resized: uint8 [size, size, 3]."""
    with Image.open(file) as image:
        image.draft("RGB", (size, size))  # a large JPEG: decode a half, a quarter or an eighth of its pixels
        upright = ImageOps.exif_transpose(image)  # a phone stores how it was held
        return np.asarray(ImageOps.fit(upright.convert("RGB"), (size, size)))
