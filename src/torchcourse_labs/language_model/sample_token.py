"""Draw the next token: temperature, top-k, and top-p."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, call, equal, near, observe, show, wrong_if

ROWS = 6000  # equal ones, so that one call shows a distribution
SHARES = (30, 22, 16, 12, 9, 6, 3, 2), (52, 11, 10, 9, 8, 5, 3, 2)  # of the tokens, in percent: unsure and sure
HEATS = [{"temperature": heat} for heat in (0, 0.5, 2.0)]
CUTS = [{"top_k": 3}, {"top_k": 20}, {"top_p": 0.6}, {"top_p": 0.2}, {"top_p": 1.0}]
CASES = [{}, *HEATS, *CUTS, {"temperature": 0.5, "top_k": 4, "top_p": 0.75}]
NAN = "probability tensor contains", "invalid multinomial", "division by zero"


def kept(logits: Tensor, temperature: float = 1, top_k: int = 99, top_p: float = 2, crossing: bool = True) -> Tensor:
    """Logits after temperature and cuts. crossing: whether the token with which the sum reaches top_p stays"""
    ranks = logits.argsort(-1, descending=True).argsort(-1)
    logits = (logits / temperature).masked_fill(ranks >= top_k, -torch.inf)
    ordered = logits.softmax(-1).sort(descending=True).values
    most = ((ordered.cumsum(-1) < top_p).sum(-1, keepdim=True) + crossing).clamp(min=1)
    return logits.masked_fill(ranks >= most, -torch.inf)


def solution(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(-1)
    probabilities = kept(logits, temperature, top_k or 99_999, top_p or 2).softmax(-1)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)


def draws(answer: Callable, logits: Tensor, options: dict, seed: int) -> tuple[Any, bool]:
    """A probe: the tokens, and whether PyTorch's global random state is what it was."""
    state, generator = torch.get_rng_state(), torch.Generator().manual_seed(seed)
    tokens = call(partial(answer, **options, generator=generator), logits)
    return tokens, equal(state, torch.get_rng_state())


def checked(tokens: Any, logits: Tensor) -> Tensor:
    rows, classes = logits.shape
    good = isinstance(tokens, Tensor) and tokens.shape == (rows,) and tokens.dtype == torch.int64
    if not good or not tokens.numel() or not 0 <= tokens.min() <= tokens.max() < classes:
        look = (
            "`argmax(-1)` takes one in each row; `torch.multinomial` returns [B, 1]: `.squeeze(-1)`, which keeps the "
        )
        look += "axis of a batch of one"
        expected = f"an int64 tensor of shape ({rows},), from 0 to {classes - 1}"
        raise Incorrect("Your function should return a token for each row.", expected, show(tokens), look)
    return tokens.cpu()


def judge(answer: Any, rng: Inputs) -> None:
    """Even rows have one distribution, odd rows another, in which top_p keeps fewer tokens."""
    (unsure, sure), order, seed = torch.tensor(SHARES).log(), rng.permutation(8), rng.size(1, 9999)
    pair = torch.stack([unsure[order] + rng.size(-2, 4), sure[order.roll(3)] + rng.size(-2, 4)])
    checked(call(answer, pair[:1]), pair[:1])  # a batch of one, without a generator
    logits, seen = pair.repeat(ROWS, 1), []
    for options in CASES:
        try:
            seen.append(observe(answer, draws, logits, options, seed))
        except AnswerRaised as raised:
            if not any(words in str(raised) for words in NAN):
                raise
            zero = options.get("temperature") == 0
            wrong_if(zero, "zero", "With temperature=0, you divide by 0. It stands for the most likely token.")
            raise
        judge_case(checked(seen[-1][0], logits), pair, options)
    again, _ = observe(answer, draws, logits, {}, seed)
    other, look = not seen[0][1] or not near(seen[0][0], again), "`torch.multinomial(…, generator=generator)`"
    wrong_if(other, "generator", "Your tokens don't come from the generator, or not all that is random does.", look)


def judge_case(tokens: Tensor, pair: Tensor, options: dict) -> None:
    counts = torch.stack([part.bincount(minlength=8) for part in (tokens[::2], tokens[1::2])])

    def fits(logits: Tensor) -> bool:
        """Whether chance gives such counts: a chi-squared test that fails once in a hundred million times."""
        expected = ROWS * logits.double().softmax(-1)
        surprise = ((counts - expected).square() / expected.clamp(min=1e-9)).sum()
        return torch.special.gammaincc(torch.tensor(7.0).double(), surprise / 2).item() > 1e-8

    cuts, heat = {name: options[name] for name in options if name != "temperature"}, options.get("temperature", 1)
    right = kept(pair, **{**options, "temperature": heat or 0.01})
    if fits(right):
        return
    here = f"With {', '.join(f'{name}={value}' for name, value in options.items())}" if options else "By default"
    once = not options and (counts == ROWS).any(-1).all()
    wrong_if(once, "one_draw", "Equal rows all get the same token: one random number for all rows, or none.")
    many, look = (right > -torch.inf).sum(-1, keepdim=True), "`scatter` along the indices of `sort` takes it back"
    places = kept(pair, heat or 0.01, options.get("top_k", 99)).masked_fill(torch.arange(8) >= many, -torch.inf)
    wrong_if("top_p" in cuts and fits(places), "mask_order", "Your mask is in sorted order, your logits aren't.", look)
    look, ranks = "the indices that `sort` and `topk` also return, by `gather`", right.sort(descending=True).values
    wrong_if(fits(ranks), "ranks", "Your numbers are places in the sorted order, and not yet tokens.", look)
    wrong_if(
        heat and (fits(kept(pair, **cuts)) or fits(kept(pair, 1 / heat, **cuts))),
        "temperature",
        f"{here}, the logits should be divided by {heat}: below 1, likely tokens become even more likely.",
        look="divide the logits, before the softmax: a factor on all probabilities changes nothing",
    )
    occur, look = heat and fits(torch.where(right > -torch.inf, pair / heat, 0)), "`masked_fill(…, -torch.inf)`"
    wrong_if(
        occur, "removed", f"{here}, tokens that you removed still occur: a logit of 0 isn't a probability of 0.", look
    )
    wrong_if(
        "top_p" in options and fits(kept(pair, **options, crossing=False)),
        "crossing",
        f"{here}, the last token is missing: without it, the probabilities add up to less than top_p.",
        look="a token stays if those before it add up to less: `cumsum - probabilities < top_p`",
    )
    alike = "top_p" in cuts and any(fits(kept(pair, heat or 0.01, int(n))) for n in many)
    wrong_if(alike, "same_set", "Row 1 keeps as many tokens as row 0; each row has its own top-p set.")
    row = int((counts - ROWS * right.softmax(-1)).abs().amax(-1).argmax())
    shown = [", ".join(f"{share:.1%}" for share in part[row].tolist()) for part in (right.softmax(-1), counts / ROWS)]
    look = "temperature first, then top_k, then top_p, each on what the one before it left; each row on its own"
    raise Incorrect(f"{here}, tokens 0 to 7 don't occur as often as they should, in row {row}.", *shown, look)


exercise = Exercise(
    title="Draw the next token",
    minutes=18,
    difficulty=3,
    points=4,
    takeaway="A model gives a distribution; how to draw from it is your decision, and needs no training.",
    hints=(
        "Divide the logits, then set those that must not occur to -inf, and at the end take one softmax and draw with "
        "`torch.multinomial(probabilities, 1, generator=generator)`. With `topk`, the k-th largest logit is the limit.",
        "For top_p, sort the logits in descending order: `ordered, tokens = logits.sort(descending=True)`. With "
        "p = `ordered.softmax(-1)`, those with `p.cumsum(-1) - p >= top_p` go. Draw a place, then `gather` its token.",
    ),
    judge=judge,
    lends=solution,
)
