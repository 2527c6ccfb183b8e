"""The picture of a trace says what it is, and its bars are those of the schedule."""

import matplotlib.pyplot as plt
import pytest
import torch

from torchcourse import simgpu
from torchcourse.lectures import timeline
from torchcourse.trace import Cost, Trace, trace

pytestmark = pytest.mark.gpu


@pytest.fixture
def recorded() -> Trace:
    gpu = simgpu.accelerator()
    with trace() as t:
        for _ in range(3):
            x = torch.ones(100, 100).to(gpu)
            (x @ x).sum().item()
    yield t
    plt.close("all")


def test_rows_units_and_label(recorded):
    figure = timeline.draw(recorded, title="three products")
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["CPU", "copies", "GPU"]
    assert ax.get_xlabel() == "time [µs]"
    assert ax.get_title("left").startswith("three products: ") or ax.get_title().startswith("three products: ")
    assert "a model, not a measurement" in ax.get_title() + ax.get_title("left")
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["asks for work", "waits", "copy to the device", "kernel"]


def test_bars_follow_the_cost(recorded):
    cost = Cost(launch=1e-3)
    figure = timeline.draw(recorded, cost)
    (ax,) = figure.axes
    assert ax.get_xlabel() == "time [ms]"
    ends = [path.vertices[:, 0].max() for bars in ax.collections for path in bars.get_paths()]
    assert max(ends) == pytest.approx(recorded.seconds(cost) * 1e3)
    assert len(ends) == len(recorded.schedule(cost))


def test_two_pictures_on_one_scale(recorded):
    (ax,) = timeline.draw(recorded, until=0.5).axes
    assert ax.get_xlim()[1] >= 500


def test_an_empty_trace():
    figure = timeline.draw(Trace())
    assert not figure.axes[0].collections and not figure.legends
    plt.close(figure)


def test_many_events(recorded):
    t = Trace(recorded.events * 500)
    timeline.draw(t).canvas.draw()
