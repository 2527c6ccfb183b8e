"""The picture of a trace says what it is, and its bars are those of the schedule."""

import matplotlib.pyplot as plt
import pytest
import torch

from torchcourse import simgpu
from torchcourse.lectures import timeline
from torchcourse.trace import Cost, Trace, trace


@pytest.mark.gpu
def test_the_bars_of_a_trace_follow_the_cost():
    gpu, cost = simgpu.accelerator(), Cost(launch=1e-3)
    with trace() as t:
        x = torch.ones(100, 100).to(gpu)
        (x @ x).sum().item()
    (ax,) = timeline.draw(t, cost, until=0.5).axes
    assert "a model, not a measurement" in ax.get_title() + ax.get_title("left")
    assert ax.get_xlim()[1] >= 500 and ax.get_xlabel() == "time (ms)"
    ends = [path.vertices[:, 0].max() for bars in ax.collections for path in bars.get_paths()]
    assert max(ends) == pytest.approx(t.seconds(cost) * 1e3)
    assert len(ends) == len(t.schedule(cost))
    assert not timeline.draw(Trace()).axes[0].collections, "nothing happened"
    plt.close("all")
