"""Chapter 03's instruments: a script changes where it should, and the device's memory is as scarce as was asked."""

import pytest
import torch

from torchcourse import simgpu
from torchcourse.lectures import migration


def test_a_script_is_changed_and_runs(tmp_path, capsys):
    first = tmp_path / "first.py"
    first.write_text("import torch\nlosses, accuracy = torch.arange(3.0).tolist(), 0.5\n")
    second = migration.change(first, "second.py", ("arange(3.0)", "ones(3)"))
    assert "-losses" in capsys.readouterr().out
    migration.run(second, like=migration.run(first))
    assert "second.py: accuracy 50.0%" in (out := capsys.readouterr().out) and out.endswith("difference of a loss 1\n")
    with pytest.raises(AssertionError):
        migration.change(first, "third.py", ("not there", ""))


@pytest.mark.gpu
def test_only_the_room_that_was_left_can_be_taken():
    gpu = simgpu.accelerator()
    migration.leave_room(gpu, 2**20)
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(2**20, device=gpu)
    migration.leave_room(gpu, None)
    torch.zeros(2**20, device=gpu)
