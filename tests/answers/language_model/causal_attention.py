import torch
import torch.nn.functional as F
from support.answers import mutants


def written(query, key, value):
    T, S = query.shape[-2], key.shape[-2]
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    mask = torch.triu(torch.ones(T, S), diagonal=S - T + 1).bool()
    weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
    return weights @ value


def by_torch(query, key, value):
    mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril(key.shape[-2] - query.shape[-2])
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


MASK, SCALE = '.masked_fill(mask, float("-inf"))', "query.shape[-1] ** 0.5"

RIGHT = [written, by_torch]

WRONG = {
    "sees_ahead": [F.scaled_dot_product_attention, *mutants(written, MASK, "")],
    "upper_left": [
        lambda query, key, value: F.scaled_dot_product_attention(query, key, value, is_causal=True),
        lambda query, key, value: F.scaled_dot_product_attention(query, key, value, is_causal=query.shape[-2] > 1),
        *mutants(written, "diagonal=S - T + 1", "diagonal=1"),
    ],
    "one_off": mutants(written, "diagonal=S - T + 1", "diagonal=S - T", "diagonal=S - T + 2"),
    "inverted": mutants(
        by_torch, ".tril(key.shape[-2] - query.shape[-2])", ".triu(key.shape[-2] - query.shape[-2] + 1)"
    ),
    "added": mutants(by_torch, ", dtype=torch.bool", ""),
    "axes": [
        *mutants(written, "T, S = query.shape[-2], key.shape[-2]", "_, _, T, _ = query.shape; S = key.shape[2]"),
        *mutants(written, "key.transpose(-1, -2)", "key.T", "key.transpose(1, 2)"),
    ],
    "scale": mutants(written, f" / {SCALE}", "", f" / {SCALE} / {SCALE}"),
    "nan": [
        *mutants(written, MASK, ' + (1 - ~mask * 1.0) * float("-inf")'),
        *mutants(written, "triu", "tril"),
        *mutants(written, "dim=-1", "dim=1"),
    ],
    "zero_score": mutants(written, 'float("-inf")', "0"),
    None: [
        *mutants(written, "dim=-1", "dim=-2"),
        *mutants(written, "torch.ones(T, S)", "torch.ones(T, T)"),
        *mutants(written, "weights @ value", "weights", "weights.mT @ value"),
        lambda query, key, value: written(query, key, value).transpose(0, -2),
    ],
}
