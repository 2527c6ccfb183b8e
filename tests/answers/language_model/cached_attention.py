import torch
from support.answers import mutants

from torchcourse.models.gpt import Cache, rotate
from torchcourse_labs.language_model.cached_attention import solution


def by_the_class(attention, x, cache=None):
    kept = Cache()
    if cache is not None:
        kept.keys, kept.values = cache
    return attention(x, kept), (kept.keys, kept.values)


def by_hand(attention, x, cache=None):
    B, T, width = x.shape
    q, k, v = (part.reshape(B, T, attention.heads, -1).transpose(1, 2) for part in attention.qkv(x).chunk(3, dim=-1))
    past = 0
    if cache is not None:
        past = cache[0].size(2)
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    scores = rotate(q, past) @ rotate(k).mT / q.size(-1) ** 0.5  # the cache holds keys as they were before
    mask = torch.arange(past + T) > torch.arange(past, past + T)[:, None]
    weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
    return [attention.out((weights @ v).transpose(1, 2).reshape(B, T, width)), [k, v]]


def all_inputs(attention, x, cache=None):
    """Keeps inputs, and computes everything again."""
    x_all = x if cache is None else torch.cat([cache[0], x], 1)
    return attention(x_all)[:, -x.shape[1] :], (x_all, x_all)


ROTATED, CAUSAL = "rotate(query, start), rotate(key, start)", "F.scaled_dot_product_attention(query, key, value, seen)"
JOINED = "key, value = torch.cat([cache[0], key], -2), torch.cat([cache[1], value], -2)"
START = "start = cache[0].shape[-2] if cache else 0"

RIGHT = [by_the_class, by_hand]

WRONG = {
    "no_cache": mutants(solution, START, "keys, values = cache; start = keys.shape[-2]", "start = cache[0].shape[-2]"),
    "again": [all_inputs, lambda attention, x, cache: (attention(x), solution(attention, x, cache)[1])],
    "sees_ahead": mutants(solution, CAUSAL, "F.scaled_dot_product_attention(query, key, value)"),
    "upper_left": mutants(solution, CAUSAL, "F.scaled_dot_product_attention(query, key, value, is_causal=True)"),
    "forgets": mutants(solution, JOINED, "pass"),
    "start": [
        *mutants(solution, ROTATED, "rotate(query), rotate(key)"),
        *mutants(solution, ROTATED, "rotate(query, start + x.shape[1]), rotate(key, start + x.shape[1])"),
    ],
    "split": mutants(
        solution, "(3, attention.heads, -1)).permute(2, 0, 3", "(attention.heads, 3, -1)).permute(3, 0, 2"
    ),
    "new_first": mutants(
        solution, JOINED, "key, value = torch.cat([key, cache[0]], -2), torch.cat([value, cache[1]], -2)"
    ),
    "no_out": mutants(
        solution, "attention.out(collected.transpose(1, 2).flatten(-2))", "collected.transpose(1, 2).flatten(-2)"
    ),
    "heads_turned": mutants(
        solution, ROTATED, "(rotate(y.transpose(1, 2), start).transpose(1, 2) for y in (query, key))"
    ),
    None: [
        *mutants(by_hand, "return [", "k = rotate(k); return ["),
        *mutants(solution, ROTATED, "query, key", "rotate(query, start), key"),
        *mutants(solution, ".transpose(1, 2)", ""),
        *mutants(solution, "(key, value)\n", "(key[..., -4:, :], value[..., -4:, :])\n"),
        *mutants(solution, ", (key, value)\n", "\n"),
    ],
}
