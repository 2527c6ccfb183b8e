"""A small language model: tokens in, and for each of them the logits of the token that comes next.

A decoder-only transformer, as in GPT-2 (Radford and others, 2019), with three parts of newer ones: norms without a
bias, positions as rotations (Su and others, arXiv 2104.09864), and one matrix for the first and the last layer.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Cache:
    """Keys and values of the tokens that a layer has already seen, [B, heads, tokens, head width]; empty at first."""

    keys: Tensor | None = None
    values: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.keys is None else self.keys.shape[-2]

    def add(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append those of new tokens. Returns all."""
        if self.keys is not None:
            keys, values = torch.cat([self.keys, keys], -2), torch.cat([self.values, values], -2)
        self.keys, self.values = keys, values
        return keys, values


def rotate(x: Tensor, start: int = 0) -> Tensor:
    """Turn pairs of numbers by an angle that grows with the position: [..., T, head width] -> same.

    start: position of the first token. The dot product of two rotated vectors depends on how far they are apart.
    """
    half = x.shape[-1] // 2
    position = torch.arange(start, start + x.shape[-2], device=x.device)
    speed = 10_000 ** (-torch.arange(half, device=x.device) / half)  # the first pair turns by 1 per token
    angle = position[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    # (first, second) -> (first * cos - second * sin, second * cos + first * sin); rolled by half, each meets the other
    return x * torch.cat([cos, cos], -1) + x.roll(half, -1) * torch.cat([-sin, sin], -1)


class CausalAttention(nn.Module):
    """Each token collects from itself and the tokens before it: [B, T, width] -> same. width: a multiple of heads."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cache: Cache | None = None, real: Tensor | None = None) -> Tensor:
        start = len(cache) if cache else 0
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # [3, B, heads, T, head width]
        (query, key), value = rotate(qkv[:2], start), qkv[2]
        if cache is not None:
            key, value = cache.add(key, value)
        mask = None
        if start or real is not None:  # is_causal takes the first query for that of the first token
            itself = torch.ones(x.shape[1], key.shape[-2], dtype=torch.bool, device=x.device).tril(start)
            mask = itself if real is None else itself & real[:, None, None]
        collected = F.scaled_dot_product_attention(query, key, value, mask, is_causal=mask is None)
        return self.out(collected.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """Attention between tokens, then a small network for each; each adds to its input, after a norm of its own."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width, bias=False), CausalAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, cache: Cache | None = None, real: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x), cache, real)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Tokens int64 [B, T] -> logits [B, T, vocabulary].

    width: numbers per token inside. depth: blocks in a row. heads: of each attention.
    forward takes caches, one for each block: then `tokens` are only the new ones, and the caches grow. real: bool
    [B, all tokens], False for padding, which belongs on the left.
    """

    def __init__(self, vocabulary: int, width: int = 128, depth: int = 4, heads: int = 4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight  # one matrix says what a token means, going in and coming out
        for name, weight in self.named_parameters():
            if weight.ndim == 2:  # GPT-2's: each block adds two terms, so what they end with begins smaller
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * depth) ** 0.5 if last else 0.02)

    def forward(self, tokens: Tensor, caches: Sequence[Cache] | None = None, real: Tensor | None = None) -> Tensor:
        x = self.embed(tokens)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, cache, real)
        return self.head(self.norm(x))
