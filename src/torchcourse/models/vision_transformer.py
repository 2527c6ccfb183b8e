"""A small vision transformer: an image is a short sentence of patches, and attention lets them look at each other.

After Dosovitskiy and others, "An image is worth 16x16 words", arXiv 2010.11929, without the class token: the mean of
all patches goes to the last layer.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Every patch collects from all patches what it asks for: [B, P, width] -> [B, P, width].

    heads: how many questions each patch asks at once; width must be a multiple of it.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.head_width = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        # [B, P, width] -> [B, heads, P, head_width]: each head compares patches on its own
        layers = (self.query, self.key, self.value)
        query, key, value = (layer(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2) for layer in layers)
        # softmax(query @ key.T / sqrt(head_width)) @ value
        collected = F.scaled_dot_product_attention(query, key, value)
        return self.out(collected.transpose(1, 2).flatten(-2))


class PatchBlock(nn.Module):
    """One of the equal blocks: attention between patches, then a small network for each patch. [B, P, width] -> same.

    Both parts add to what comes in (residual connections), and each normalizes its own input.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Patches(nn.Module):
    """Normalized images [B, channels, size, size] -> logits [B, classes], by attention between square patches.

    side: of a patch in pixels, a divisor of size; P = (size / side)² patches.
    width: numbers per patch inside the network. depth: equal blocks in a row. heads: of each attention.
    """

    def __init__(
        self,
        side: int = 7,
        width: int = 48,
        depth: int = 4,
        heads: int = 4,
        channels: int = 1,
        size: int = 28,
        classes: int = 10,
    ):
        super().__init__()
        self.side = side
        self.embed = nn.Linear(channels * side * side, width)
        self.position = nn.Parameter(0.02 * torch.randn((size // side) ** 2, width))  # attention knows no order
        self.blocks = nn.Sequential(*(PatchBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        # Lab 01's `patches`, each flattened: [B, C, H, W] -> [B, C, rows, side, columns, side] -> [B, P, C·side·side]
        split = images.unflatten(3, (-1, self.side)).unflatten(2, (-1, self.side))
        patches = split.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        x = self.blocks(self.embed(patches) + self.position)
        return self.head(self.norm(x.mean(dim=1)))
