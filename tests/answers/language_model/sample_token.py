import torch
from support.answers import mutant, mutants


def by_sorting(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(dim=1)
    ordered, tokens = (logits / temperature).sort(dim=-1, descending=True)
    if top_k is not None:
        ordered[:, top_k:] = -torch.inf
    p = ordered.softmax(-1)
    if top_p is not None:
        p[p.cumsum(-1) - p >= top_p] = 0
    places = torch.multinomial(p, 1, generator=generator)
    return tokens.gather(-1, places)[:, 0]


def by_limits(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.max(-1).indices
    logits = logits / temperature
    if top_k is not None:
        least = logits.topk(min(top_k, logits.size(-1))).values[:, -1:]
        logits = torch.where(logits < least, -torch.inf, logits)
    if top_p is not None:
        p, order = torch.softmax(logits, -1).sort(descending=True)
        remove = p.cumsum(-1) > top_p
        remove[:, 1:] = remove[:, :-1].clone()
        remove[:, 0] = False
        logits = logits.masked_fill(torch.zeros_like(remove).scatter(1, order, remove), float("-inf"))
    return torch.multinomial(logits.softmax(-1), num_samples=1, generator=generator).squeeze(1)


DRAW, DIVIDED = "torch.multinomial(p, 1, generator=generator)", "(logits / temperature)"
TOP_P, TOP_K = "p.cumsum(-1) - p >= top_p", "ordered[:, top_k:] = -torch.inf"
GREEDY = "    if temperature == 0:\n        return logits.argmax(dim=1)\n"

RIGHT = [by_sorting, by_limits]

WRONG = {
    "generator": mutants(by_sorting, ", generator=generator)", ")"),
    "ranks": mutants(by_sorting, "tokens.gather(-1, places)", "places"),
    "temperature": [*mutants(by_sorting, DIVIDED, "logits", "(logits * temperature)")],
    "removed": [mutant(by_limits, ("least, -torch.inf", "least, 0.0"))],
    "crossing": [
        mutant(by_limits, ("remove[:, 1:] = remove[:, :-1].clone()", "pass")),
        *mutants(by_sorting, TOP_P, "p.cumsum(-1) > top_p"),
    ],
    "one_draw": [
        lambda logits, temperature=1.0, top_k=None, top_p=None, generator=None: logits.argmax(-1),
        *mutants(by_sorting, DRAW, "torch.multinomial(p[:1], 1, generator=generator).expand(len(p), 1)"),
        *mutants(by_sorting, DRAW, "(p.cumsum(-1) < torch.rand(1, generator=generator)).sum(-1, keepdim=True)"),
    ],
    "mask_order": mutants(by_limits, "torch.zeros_like(remove).scatter(1, order, remove)", "remove"),
    "same_set": [
        *mutants(by_sorting, TOP_P, f"({TOP_P}).all(0).expand_as(p)", f"({TOP_P}).any(0).expand_as(p)"),
        *mutants(by_sorting, TOP_P, f"({TOP_P})[:1].expand_as(p)"),
    ],
    "zero": mutants(by_sorting, GREEDY, ""),
    None: [
        *mutants(by_sorting, TOP_P, "p < p[:1].masked_fill(p.cumsum(-1) - p >= top_p, 1).amin(-1, True) - 1e-6"),
        *mutants(by_limits, "min(top_k, logits.size(-1))", "top_k"),
        *mutants(
            by_sorting, TOP_K, "ordered[:, : -top_k] = -torch.inf", "ordered[:, top_k + 1 :] = -torch.inf", "pass"
        ),
        *mutants(by_sorting, "[:, 0]", "", ".squeeze()", "[0]", ".tolist()"),
        *mutants(by_sorting, "logits.argmax(dim=1)", "logits.argmax()", "logits.argmin(dim=1)"),
    ],
}
