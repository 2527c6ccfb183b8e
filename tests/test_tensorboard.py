"""What lecture 08 writes for TensorBoard is there for it to show."""

import time
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from conftest import skip_or_fail
from torch import nn

from tools import build, course


def test_the_numbers_of_the_lecture_are_those_of_the_training(tmp_path, monkeypatch):
    """Its own cell writes them, here with a small network and two batches."""
    if find_spec("tensorboard") is None:
        skip_or_fail("TensorBoard is not installed.")
    cells = (cell.source for cell in build.edition(*course.select(["08"]), "lecture").cells if cell.cell_type == "code")
    (cell,) = (cell for cell in cells if "with SummaryWriter(" in cell)
    batches = [(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])) for _ in range(3)]
    names = {
        "as_found": batches,
        "in_memory": batches[:2],
        "network": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 10)),
        "adamw": lambda model: torch.optim.AdamW(model.parameters()),
        "F": F,
        "Path": Path,
        "time": time,
    }
    monkeypatch.chdir(tmp_path)
    exec(compile(cell, "the lecture's cell", "exec"), names)

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    written = EventAccumulator(str(tmp_path / "runs" / "as found"))
    written.Reload()
    assert sorted(written.Tags()["scalars"]) == ["images per second", "loss"]
    assert [event.step for event in written.Scalars("loss")] == [0, 1, 2]
    assert all(event.value > 0 for event in written.Scalars("images per second"))
    assert written.Tags()["images"] == ["first photo of the batch"]
