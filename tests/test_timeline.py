"""The picture of a trace says what it is, and its bars are those of the schedule."""

import matplotlib.pyplot as plt
import pytest
import torch

from torchcourse import simgpu
from torchcourse.lectures import timeline
from torchcourse.trace import Cost, Trace, trace


@pytest.mark.gpu
def test_the_picture_of_a_trace():
    gpu = simgpu.accelerator()
    with trace() as t:
        for _ in range(3):
            x = torch.ones(100, 100).to(gpu)
            (x @ x).sum().item()
    figure = timeline.draw(t, title="three products", until=0.5)
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["CPU", "copies", "GPU"]
    title = ax.get_title() + ax.get_title("left")
    assert title.startswith("three products: ") and "a model, not a measurement" in title
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["asks for work", "waits", "copy to the device", "kernel"]
    assert ax.get_xlim()[1] >= 500 and ax.get_xlabel() == "time [ms]"

    cost = Cost(launch=1e-3)
    (ax,) = timeline.draw(t, cost).axes
    ends = [path.vertices[:, 0].max() for bars in ax.collections for path in bars.get_paths()]
    assert max(ends) == pytest.approx(t.seconds(cost) * 1e3)
    assert len(ends) == len(t.schedule(cost))

    figure = timeline.draw(Trace())  # nothing happened
    assert not figure.axes[0].collections and not figure.legends
    plt.close("all")
