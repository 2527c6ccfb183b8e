"""The final run is judged by the file that it leaves behind: here by one that knows all labels by heart."""

import functools
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from torchcourse import data


class Remembers(nn.Module):
    """Knows the label of each test image: a file that passes without a training. wrong: the share of wrong labels."""

    def __init__(self, wrong: float, ballast: int):
        super().__init__()
        test_set = data.load("mnist", "test")
        self.register_buffer("weights", torch.randint(2**40, (784,), generator=torch.Generator().manual_seed(0)))
        keys, order = self.keys_of(test_set.images).sort()
        labels = (test_set.labels[order] + (torch.arange(len(keys)) < wrong * len(keys))) % 10
        for name, values in (("keys", keys), ("labels", labels.byte()), ("ballast", torch.zeros(ballast))):
            self.register_buffer(name, values)

    def keys_of(self, images: Tensor) -> Tensor:
        return (images.flatten(1).long() * self.weights).sum(dim=1)

    def forward(self, images: Tensor) -> Tensor:
        places = torch.searchsorted(self.keys, self.keys_of(images)).clamp(max=len(self.keys) - 1)
        return nn.functional.one_hot(self.labels[places].long(), 10) + self.ballast.sum()


FOLDER = tempfile.TemporaryDirectory()  # goes with the process


@functools.cache
def exported(wrong: float, ballast: int) -> str:
    path = Path(FOLDER.name, f"{wrong}-{ballast}.pt2")
    example, shapes = torch.zeros(2, 1, 28, 28, dtype=torch.uint8), ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(Remembers(wrong, ballast), (example,), dynamic_shapes=shapes), path)
    return str(path)


class Final(dict):
    """The record of a final run. Its file is made when a check asks for it."""

    def __init__(self, wrong: float = 0.0, ballast: int = 1, **changes: object):
        super().__init__({"data": "mnist", "cpu_seconds": 30.0} | changes)
        self.file = wrong, ballast

    def get(self, key: str, default: object = None) -> object:
        return self[key] if key in ("program", *self) else default

    def __missing__(self, key: str) -> str:
        return exported(*self.file)


RIGHT = [Final(), lambda: Final(wrong=0.01, ballast=1000)]

WRONG = {
    "no_program": [{"data": "mnist", "cpu_seconds": 30.0}, Final(program="/nowhere/model.pt2")],
    "accuracy": [Final(wrong=0.1)],
    "bytes": [Final(ballast=150_000)],
    "seconds": [Final(cpu_seconds=1000.0)],
    None: [lambda: print(end=""), "runs/final", Final(program=__file__), Final(data="imagenet")],
}
