"""What `train_garments` (chapter 04) and `train_within` (chapter 05) train with: so many batches, and not one more."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchcourse.errors import CourseError

STEPS = 150  # batches of 64: no image is seen twice


class Budget:
    """Training images, batch by batch, to be gone through once: that is all the training there is.

    steps: how many batches; size: images in a batch. `len(budget)` is the number of batches.
    Yields (images [size, …], labels int64 [size]), as the data set gives them.
    """

    def __init__(self, images: Dataset, steps: int, size: int = 64, generator: torch.Generator | None = None):
        order = torch.randperm(len(images), generator=generator)[: steps * size]
        self.images, self.rows, self.used = images, order.split(size)[:steps], 0

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.used:
            raise CourseError("The budget is used up: its batches may be gone through once.")
        for rows in self.rows:
            self.used += 1
            yield self.images[rows]
