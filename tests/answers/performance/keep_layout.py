import torch
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.performance.keep_layout import LastNet

LAST = torch.channels_last


class ShufflesPixels(LastNet):
    """No copy to the other layout and back: the channels of a pixel lie next to each other, and are swapped there."""

    def shuffle(self, x):
        pixels = x.permute(0, 2, 3, 1)
        return pixels.unflatten(3, (2, -1)).transpose(3, 4).flatten(3).permute(0, 3, 1, 2)


class ShufflesByPyTorch(LastNet):
    def __init__(self, channels):
        super().__init__(channels)
        self.mix = nn.ChannelShuffle(2)
        self.conv1.register_forward_pre_hook(lambda layer, given: given[0].to(memory_format=LAST))

    def shuffle(self, x):
        return self.mix(x).to(memory_format=LAST)


CONTIGUOUS = ".contiguous(memory_format=torch.channels_last)"

RIGHT = [ShufflesPixels, ShufflesByPyTorch]

WRONG = {
    "other_parameters": [
        *mutants(LastNet, "self.to(", "self.extra = nn.Linear(channels, 10); self.to("),
        lambda channels: LastNet(channels).forward,
    ],
    "weights": mutants(LastNet, "self.to(memory_format=torch.channels_last)", "pass"),
    "inputs": [
        *mutants(LastNet, f"forward(x{CONTIGUOUS})", "forward(x)"),
        *mutants(LastNet, f"shuffle(x){CONTIGUOUS}", "shuffle(x).contiguous()"),
    ],
    None: [
        *mutants(LastNet, "super().shuffle(x)", "x"),
        *mutants(LastNet, "shuffle(x)", "shuffle(x.detach())"),
        mutant(ShufflesPixels, ("(2, -1)", "(-1, 2)")),
    ],
}
