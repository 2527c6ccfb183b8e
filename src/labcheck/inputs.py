"""The inputs of a check: random, fresh for each check, and repeatable by their seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Inputs:
    """Fresh random inputs for one check, from a generator of its own: the global random state stays as it is."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def size(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def sizes(self, count: int, low: int, high: int) -> list[int]:
        """`count` different integers from low to high: no two axes can be mixed up without being noticed."""
        return [low + int(i) for i in torch.randperm(high - low + 1, generator=self.generator)[:count]]

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of the choices."""
        return choices[self.size(0, len(choices) - 1)]

    def rand(self, *shape: int) -> torch.Tensor:
        """float32 tensor, uniform from 0 to 1."""
        return torch.rand(*shape, generator=self.generator)

    def randn(self, *shape: int) -> torch.Tensor:
        """float32 tensor, normally distributed."""
        return torch.randn(*shape, generator=self.generator)

    def ints(self, low: int, high: int, shape: Sequence[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Integer tensor, from low up to high - 1."""
        return torch.randint(low, high, tuple(shape), generator=self.generator, dtype=dtype)

    def images(self, n: int, channels: int, height: int, width: int) -> torch.Tensor:
        """uint8 tensor [N, C, H, W], values 0 to 255; 0 and 255 occur."""
        pixels = self.ints(0, 256, (n, channels, height, width), torch.uint8)
        pixels.view(-1)[0], pixels.view(-1)[-1] = 0, 255
        return pixels

    def permutation(self, n: int) -> torch.Tensor:
        """int64 tensor [n]: 0 to n - 1 in random order."""
        return torch.randperm(n, generator=self.generator)
