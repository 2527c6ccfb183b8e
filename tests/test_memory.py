"""Bytes of tensors that exist at the same time."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torchcourse.memory import LiveBytes


def test_bytes_count_while_a_tensor_exists():
    with LiveBytes() as live:
        a = torch.zeros(1000)
        assert live.now == 4000
        b = a.view(10, 100)  # the same memory
        c = b + 1
        assert live.now == 8000
        del a, b
        assert live.now == 4000
        del c
    assert (live.now, live.peak) == (0, 8000)


def test_what_forward_keeps_for_backward_counts_and_a_checkpoint_keeps_less():
    def peak(run):
        torch.manual_seed(0)
        blocks, x = [nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.GELU()) for _ in range(6)], torch.randn(100, 8)
        with LiveBytes() as live:
            for block in blocks:
                x = run(block, x)
            x.sum().backward()
        return live.peak

    plain = peak(lambda block, x: block(x))
    assert plain > 6 * 3 * 3200
    assert peak(lambda block, x: checkpoint(block, x, use_reentrant=False)) < 0.7 * plain
