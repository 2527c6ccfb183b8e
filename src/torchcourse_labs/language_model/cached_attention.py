"""Attention of new tokens that computes nothing again: keys and values of earlier ones come from the cache."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, call, near, observe, raises_like, same, show, wrong_if
from torchcourse.models.gpt import CausalAttention, rotate

Cache = tuple[Tensor, Tensor] | None


def solution(attention: CausalAttention, x: Tensor, cache: Cache = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    start = cache[0].shape[-2] if cache else 0
    query, key, value = attention.qkv(x).unflatten(-1, (3, attention.heads, -1)).permute(2, 0, 3, 1, 4)
    query, key = rotate(query, start), rotate(key, start)
    if cache:
        key, value = torch.cat([cache[0], key], -2), torch.cat([cache[1], value], -2)
    seen = torch.ones(x.shape[1], key.shape[-2], dtype=torch.bool).tril(start)
    collected = F.scaled_dot_product_attention(query, key, value, seen)
    return attention.out(collected.transpose(1, 2).flatten(-2)), (key, value)


def attend(attention: nn.Module, x: Tensor, past: int, start: int, ahead: int = 0) -> Tensor:
    """The output of the tokens after the first `past`, if their positions begin at `start`, and each sees `ahead`."""
    query, key, value = attention.qkv(x).unflatten(-1, (3, attention.heads, -1)).permute(2, 0, 3, 1, 4)
    query, key = (torch.cat([rotate(y[..., :past, :]), rotate(y[..., past:, :], start)], -2) for y in (query, key))
    seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(ahead)
    collected = F.scaled_dot_product_attention(query, key, value, seen).transpose(1, 2)
    return attention.out(collected.flatten(-2))[:, past:]


def generate(answer: Callable, attention: nn.Module, pieces: Sequence[Tensor]) -> list[dict]:
    """A probe: outputs and caches piece by piece, and how many tokens went through `qkv` and `out`."""
    rows, seen, cache = Counter(), [], None
    attention.qkv.register_forward_pre_hook(lambda _, given: rows.update(qkv=sum(y[..., 0].numel() for y in given)))
    attention.out.register_forward_pre_hook(lambda _, given: rows.update(out=sum(y[..., 0].numel() for y in given)))
    for x in pieces:
        rows.clear()
        result = call(answer, attention, x, cache)
        pair = result[1] if isinstance(result, tuple | list) and len(result) == 2 else None
        if not isinstance(pair, tuple | list) or [isinstance(each, Tensor) for each in pair] != [True, True]:
            return [*seen, {"instead": show(result)}]
        output, cache = result
        seen.append({"output": output, "cache": [*cache], "rows": max(rows.values())})
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    heads, batch = rng.sizes(2, 2, 4)
    width = 4 * heads
    attention = CausalAttention(width, heads).requires_grad_(False)
    for layer in (attention.qkv, attention.out):
        layer.weight.copy_(0.5 * rng.randn(*layer.weight.shape))
    x, sizes = rng.randn(batch, 9, width), (4, 1, 1, 3)
    with raises_like("no_cache", "At the beginning, the cache is None: it holds nothing yet.", "NoneType"):
        seen = observe(answer, generate, attention, x.split(sizes, 1))
    wrong_if(
        any(piece.get("rows", 0) > batch * size for piece, size in zip(seen, sizes, strict=False)),
        "again",
        "A token goes through `qkv` or `out` twice. Each step should run these layers for its new tokens only, once.",
        look="`attention(…)` runs both for all that it gets: call `attention.qkv` and `attention.out` instead",
    )
    for past, size, piece in zip((0, 4, 5, 6), sizes, seen, strict=False):
        if "instead" in piece:
            raise Incorrect("Your function should return two things.", "(output, (keys, values))", piece["instead"])
        judge_piece(piece, attention, x[:, : past + size], past)


def judge_piece(seen: dict, attention: nn.Module, x: Tensor, past: int) -> None:
    new = x.shape[1] - past
    here = f"With {past} tokens in the cache and {new} new" if past else f"Without a cache and with {new} tokens"
    yours, right = seen["output"], attend(attention, x, past, past)
    ahead, look = new > 1 and near(yours, attend(attention, x, past, past, new)), "a [new, all] mask: `tril(past)`"
    wrong_if(ahead, "sees_ahead", f"{here}, new tokens see later ones. Each may only look back.", look)
    wrong_if(
        past and near(yours, attend(attention, x, past, past, ahead=-past)),
        "upper_left",
        f"{here}, your mask begins at the first key of all. New tokens see the whole cache.",
        look="`tril(past)`, or no mask for a single new token; `is_causal=True` counts from the first key",
    )
    alone, look = past and near(yours, attend(attention, x[:, past:], 0, 0)), "`torch.cat([…, …], -2)`: old, then new"
    wrong_if(alone, "forgets", f"{here}, the output is that of the new tokens alone.", look)
    wrong_if(
        past and any(near(yours, attend(attention, x, past, start)) for start in range(-9, 18) if start != past),
        "start",
        f"{here}, queries and keys of the new ones are rotated to the wrong positions: the first is at {past}.",
        look="`rotate(…, start)`: start is the number of tokens in the cache, before the new ones join them",
    )
    value = attention.qkv(x).unflatten(-1, (3, attention.heads, -1))[:, :, 2].transpose(1, 2)  # [B, heads, T, ...]
    order, look = past and near(seen["cache"][1], value.roll(new, -2)), "`torch.cat([cache[1], value], -2)`"
    wrong_if(
        order, "new_first", f"{here}, you put the new ones before the old ones. They come later in the text.", look
    )
    bare = yours.shape == right.shape and near(attention.out(yours), right)
    wrong_if(bare, "no_out", "What the heads have collected is joined, but `attention.out` has not been applied to it.")
    if not past and not near(yours, right):
        mixed = near(
            seen["cache"][1], attention.qkv(x).unflatten(-1, (attention.heads, 3, -1))[..., 2, :].transpose(1, 2)
        )
        wrong_if(mixed, "split", "`qkv` gives all queries, then all keys, then all values: (3, heads, -1).")
        key = attention.qkv(x).unflatten(-1, (3, attention.heads, -1))[:, :, 1]  # [B, T, heads, ...]
        turned = near(seen["cache"][0], rotate(key).transpose(1, 2))
        wrong_if(turned, "heads_turned", "Move the heads before the tokens first; you rotate by head number.")
    look = (
        "`view(B, T, heads, -1).transpose(1, 2)` makes heads, `.transpose(1, 2).flatten(-2)` joins them; queries and "
    )
    look += "keys are rotated once (those in the cache have been), values never; the mask"
    same(yours, right, f"{here}, your output", look=look)
    expected = (len(x), attention.heads, x.shape[1], x.shape[2] // attention.heads)
    look = "what you return for the next call: the old and the new, joined along the tokens"
    shapes = [tuple(each.shape) for each in seen["cache"]]
    same(shapes, [expected] * 2, f"{here}, the list of shapes of keys and values that you return", look=look)


exercise = Exercise(
    title="Compute nothing twice",
    minutes=16,
    difficulty=4,
    points=4,
    takeaway="A step of generation costs as much as one token, not as much as the text so far. You pay in memory.",
    hints=(
        "Begin with the lines of `CausalAttention.forward`. Three things change: where the rotation starts, what is "
        "joined to keys and values, and the mask: [new tokens, all tokens].",
        "`start = 0 if cache is None else cache[0].shape[-2]`. Rotate new queries and keys by it, join along axis -2, "
        "and take `torch.ones(T, S, dtype=torch.bool).tril(start)` as the mask.",
    ),
    judge=judge,
    lends=solution,
)
