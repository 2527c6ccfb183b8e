"""The roofline: what counts as an operation and as a byte, and what a machine's ceilings say."""

import pytest
import torch
from torch import nn

from torchcourse import models
from torchcourse.lectures import roofline


def test_a_measured_machine_has_ceilings_that_meet():
    machine = roofline.measure("cpu", quick=True)
    assert machine.peak > 0 and machine.cache >= machine.memory > 0
    assert machine.ceiling(machine.ridge) == pytest.approx(machine.peak)
    assert machine.ceiling(machine.ridge / 10) == pytest.approx(machine.peak / 10)
    assert machine.ceiling(machine.ridge * 10) == machine.peak


def test_a_product_counts_two_operations_for_each_pair_and_every_byte_once():
    a, b = torch.ones(8, 16), torch.ones(16, 4)
    one = roofline.work("product", torch.mm, a, b, least=0)
    assert one.flops == 2 * 8 * 16 * 4
    assert one.bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert one.seconds > 0 and one.rate == one.flops / one.seconds


def test_elementwise_work_counts_one_operation_for_each_number():
    one = roofline.work("gelu", nn.functional.gelu, torch.ones(100), least=0)
    assert (one.flops, one.bytes) == (100, 800)


def test_weights_are_read_too():
    (layer,) = roofline.layers(nn.Sequential(nn.Linear(16, 4)), torch.ones(8, 16), least=0)
    assert layer.bytes == 4 * (8 * 16 + 8 * 4 + 16 * 4 + 4)


@pytest.mark.parametrize(
    ("rate", "intensity", "limit"),
    [(0.9, 100, "arithmetic"), (0.09, 0.1, "memory"), (0.05, 100, "overhead"), (0.009, 0.1, "overhead")],
)
def test_the_limit_is_the_nearest_ceiling(rate, intensity, limit):
    machine = roofline.Machine("a device", peak=1.0, memory=1.0, cache=2.0)
    assert roofline.Work("w", flops=1.0, bytes=1 / intensity, seconds=1 / rate).limit(machine) == limit


def test_equal_layers_of_equal_blocks_are_measured_once_and_the_model_is_left_as_it_was():
    model = models.Patches(depth=3)
    found = roofline.layers(model, torch.zeros(2, 1, 28, 28), least=0)
    names = [one.name for one in found]
    assert "blocks.0.up" in names and not [name for name in names if name.startswith(("blocks.1", "blocks.2"))]
    assert not any(layer._forward_hooks for layer in model.modules())


def test_drawing_shows_every_work():
    machine = roofline.Machine("a device", peak=1e11, memory=1e10, cache=5e10)
    works = [roofline.Work("narrow", 1e6, 1e6, 1e-3), roofline.Work("wide", 1e9, 1e6, 2e-2)]
    figure = roofline.draw(machine, works)
    (ax,) = figure.axes
    points = {
        line.get_label(): (line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_marker() != "None"
    }
    assert points["narrow"] == (1.0, pytest.approx(1.0))
    assert points["wide"] == (1000.0, pytest.approx(50.0))
    assert any("arithmetic, 100 GFLOP/s" in text.get_text() for text in ax.texts)
