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


def one_by_one(query, key, value):
    T, S = query.shape[-2], key.shape[-2]
    rows = []
    for t in range(T):
        end = S - T + t + 1
        scores = torch.einsum("...d,...sd->...s", query[..., t, :], key[..., :end, :]) / query.shape[-1] ** 0.5
        rows.append(torch.einsum("...s,...se->...e", scores.exp() / scores.exp().sum(-1, True), value[..., :end, :]))
    return torch.stack(rows, dim=-2)


MASK, SCALE = '.masked_fill(mask, float("-inf"))', "query.shape[-1] ** 0.5"

RIGHT = [written, by_torch, one_by_one]

WRONG = {
    "sees_ahead": [F.scaled_dot_product_attention, *mutants(written, MASK, "")],
    "upper_left": [
        lambda query, key, value: F.scaled_dot_product_attention(query, key, value, is_causal=True),
        lambda query, key, value: F.scaled_dot_product_attention(query, key, value, is_causal=query.shape[-2] > 1),
        *mutants(written, "diagonal=S - T + 1", "diagonal=1"),
    ],
    "not_itself": mutants(written, "diagonal=S - T + 1", "diagonal=S - T"),
    "scale": mutants(written, f" / {SCALE}", ""),
    "zero_score": mutants(written, 'float("-inf")', "0"),
    None: [
        *mutants(written, "dim=-1", "dim=-2", "dim=1"),
        *mutants(written, "triu", "tril"),
        *mutants(written, "torch.ones(T, S)", "torch.ones(T, T)"),
        *mutants(written, "key.transpose(-1, -2)", "key.T", "key.transpose(1, 2)"),
        *mutants(written, "weights @ value", "weights", "weights.mT @ value"),
        lambda query, key, value: written(query, key, value).transpose(0, -2),
    ],
}
