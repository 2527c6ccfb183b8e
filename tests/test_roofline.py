"""The roofline: what counts as an operation and as a byte, and what a machine's ceilings say."""

import pytest
import torch
from torch import nn

from torchcourse import models
from torchcourse.lectures import roofline


def test_the_ceilings_of_a_machine_meet():
    machine = roofline.Machine(peak=200e9, memory=30e9, cache=200e9)
    assert machine.ceiling(machine.ridge) == pytest.approx(machine.peak)
    assert machine.ceiling(machine.ridge / 10) == pytest.approx(machine.peak / 10)
    assert machine.ceiling(machine.ridge * 10) == machine.peak


def test_what_counts_as_an_operation_and_as_a_byte():
    a, b = torch.ones(8, 16), torch.ones(16, 4)
    product = roofline.work("product", torch.mm, a, b, least=0)
    assert product.flops == 2 * 8 * 16 * 4
    assert product.bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert product.seconds > 0 and product.rate == product.flops / product.seconds
    elementwise = roofline.work("gelu", nn.functional.gelu, torch.ones(100), least=0)
    assert (elementwise.flops, elementwise.bytes) == (100, 800)
    (layer,) = roofline.layers(nn.Sequential(nn.Linear(16, 4)), a, least=0)
    assert layer.bytes == 4 * (8 * 16 + 8 * 4 + 16 * 4 + 4), "weights are read too"


def test_the_limit_is_the_nearest_ceiling():
    machine = roofline.Machine(peak=1.0, memory=1.0, cache=2.0)
    cases = [(0.9, 100, "arithmetic"), (0.09, 0.1, "memory"), (0.05, 100, "overhead"), (0.009, 0.1, "overhead")]
    for rate, intensity, limit in cases:
        assert roofline.Work("w", flops=1.0, bytes=1 / intensity, seconds=1 / rate).limit(machine) == limit


def test_equal_layers_of_equal_blocks_are_measured_once_and_the_model_is_left_as_it_was():
    model = models.Patches(depth=3)
    found = roofline.layers(model, torch.zeros(2, 1, 28, 28), least=0)
    names = [one.name for one in found]
    assert "blocks.0.up" in names and not [name for name in names if name.startswith(("blocks.1", "blocks.2"))]
    assert not any(layer._forward_hooks for layer in model.modules())
