"""What lecture 08 writes for TensorBoard is there for it to show."""

from importlib.util import find_spec
from pathlib import Path

from conftest import skip_or_fail

from tools import build, course


def test_the_numbers_of_the_lecture_are_those_of_the_training(tmp_path, monkeypatch):
    """Its own cell writes them, here with epochs that take no time."""
    if find_spec("tensorboard") is None:
        skip_or_fail("TensorBoard is not installed.")
    cells = (cell.source for cell in build.edition(*course.select(["08"]), "lecture").cells if cell.cell_type == "code")
    (cell,) = (cell for cell in cells if "with SummaryWriter(" in cell)
    names = {
        "as_found": 0.5,
        "in_memory": 0.25,
        "epoch": lambda source, model, optimizer: ({"load": source}, source),
        "photos": range(8),
        "model": None,
        "optimizer": None,
        "Path": Path,
    }
    monkeypatch.chdir(tmp_path)
    exec(compile(cell, "the lecture's cell", "exec"), names)

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    written = EventAccumulator(str(tmp_path / "runs" / "as found"))
    written.Reload()
    assert sorted(written.Tags()["scalars"]) == ["images per second", "loss"]
    assert [(event.step, event.value) for event in written.Scalars("loss")] == [(0, 0.5), (1, 0.5)]
    assert [event.value for event in written.Scalars("images per second")] == [16, 16]
