"""A small model to export, and reading the file of an exported program."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Small(nn.Module):
    """Bytes [B, 1, 6, 6] -> logits [B, 10]; dropout and batch norm tell train mode from eval mode."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__()
        self.norm, self.drop, self.out = nn.BatchNorm2d(1), nn.Dropout(0.3), nn.Linear(36, 10)
        with torch.no_grad():
            self.out.weight.copy_(weights)
            self.out.bias.zero_()
            self.norm.running_mean.fill_(0.3)

    def forward(self, images: Tensor) -> Tensor:
        return self.out(self.drop(self.norm(images.float() / 255).flatten(1)))


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """What PyTorch says about exports, and in fifty lines about files of another kind, is not shown."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def program(path: Any) -> nn.Module:
    """The exported program in a file."""
    with silent():
        return torch.export.load(path).module()
