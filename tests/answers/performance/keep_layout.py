import torch
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.performance.keep_layout import LastNet, ShuffleNet

LAST = torch.channels_last


class ShufflesPixels(LastNet):
    """No copy to the other layout and back: the channels of a pixel lie next to each other, and are swapped there."""

    def shuffle(self, x):
        pixels = x.permute(0, 2, 3, 1)
        return pixels.unflatten(3, (2, -1)).transpose(3, 4).flatten(3).permute(0, 3, 1, 2)


class ShufflesByPyTorch(ShuffleNet):
    def __init__(self, channels):
        super().__init__(channels)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                layer.weight.data = layer.weight.data.to(memory_format=LAST)
        self.mix = nn.ChannelShuffle(2)
        self.conv1.register_forward_pre_hook(lambda layer, given: given[0].to(memory_format=LAST))

    def shuffle(self, x):
        return self.mix(x).to(memory_format=LAST)


class IndexesChannels(LastNet):
    def shuffle(self, x):
        return x[:, torch.arange(x.shape[1]).view(2, -1).T.flatten()].contiguous(memory_format=LAST)


class Permutes(ShuffleNet):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1))


class SettlesFirst(LastNet):
    """The weights get their layout before the layers are there."""

    def __init__(self, channels):
        nn.Module.__init__(self)
        self.to(memory_format=LAST)
        ShuffleNet.__init__(self, channels)


class SecondHead(LastNet):
    def __init__(self, channels):
        super().__init__(channels)
        self.extra = nn.Linear(channels, 10)


CONTIGUOUS = ".contiguous(memory_format=torch.channels_last)"

RIGHT = [ShufflesPixels, ShufflesByPyTorch, IndexesChannels]

WRONG = {
    "other_parameters": [
        SecondHead,
        lambda channels: ShuffleNet(2 * channels),
        lambda channels: LastNet(channels).forward,
    ],
    "cut_off": mutants(LastNet, "shuffle(x)", "shuffle(x.detach())"),
    "weights": [ShuffleNet, SettlesFirst, *mutants(LastNet, "self.to(memory_format=torch.channels_last)", "pass")],
    "images": mutants(LastNet, f"forward(x{CONTIGUOUS})", "forward(x)"),
    "lost": mutants(LastNet, f"shuffle(x){CONTIGUOUS}", "shuffle(x)", "shuffle(x).contiguous()"),
    None: [
        Permutes,
        *mutants(LastNet, "super().shuffle(x)", "x", "super().shuffle(x).flip(1)", "super().shuffle(x)[:, :, :, 1:]"),
        *mutants(
            LastNet, f"forward(x{CONTIGUOUS})", f"forward(x{CONTIGUOUS}).softmax(1)", f"forward(x{CONTIGUOUS}).tolist()"
        ),
        mutant(ShufflesPixels, ("(2, -1)", "(-1, 2)")),
    ],
}
