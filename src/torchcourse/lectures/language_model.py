"""Pictures of chapter 14: where attention looks, what a training gained, what sampling leaves."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import torch
from matplotlib.ticker import FuncFormatter
from torch import Tensor, nn

from torchcourse.data import Tokenizer
from torchcourse.models.gpt import rotate
from torchcourse.plots import COLORS


def weights(block: nn.Module, x: Tensor) -> Tensor:
    """Attention weights of a block of `models.GPT`, x [B, T, width] -> [B, heads, T, T]; each row adds to 1."""
    attention = block.attention
    query, key, _ = attention.qkv(block.norm1(x)).unflatten(-1, (3, attention.heads, -1)).permute(2, 0, 3, 1, 4)
    scores = rotate(query) @ rotate(key).mT / query.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1)


def heads(weights: Tensor, tokens: list[str]) -> None:
    """A map for each head: weights [heads, T, T]; rows collect, columns are looked at."""
    labels = [token.replace("\n", "↵").replace(" ", "␣") for token in tokens]
    _, axes = plt.subplots(1, len(weights), figsize=(11.5, 3.9), sharey=True)
    for number, (ax, head) in enumerate(zip(axes, weights, strict=True), start=1):
        ax.imshow(head, cmap="Blues", vmin=0, vmax=1)
        ax.set(title=f"head {number}", xlabel="key: the token it looks at")
        ax.set_xticks(range(len(labels)), labels, rotation=90, fontsize=9, family="monospace")
        ax.grid(False)
    axes[0].set_yticks(range(len(labels)), labels, fontsize=9, family="monospace")
    axes[0].set_ylabel("query: the token that looks")


def curve(losses: Tensor, step: int, baselines: Mapping[str, float], held_out: float) -> None:
    """Training loss in bits per byte over tokens seen, `step` in each step; a line for each baseline."""
    _, ax = plt.subplots(figsize=(7.5, 4))
    window = 20
    smooth = losses.unfold(0, window, 1).mean(1)
    seen = step * (torch.arange(len(smooth)) + window)
    ax.plot(seen, smooth, label="training, mean of 20 steps")
    ax.plot(step * len(losses), held_out, "s", color=COLORS[1], clip_on=False, label="held-out chapters, at the end")
    for name, value in baselines.items():
        ax.axhline(value, color="#777777", linewidth=1, linestyle=":")
        ax.annotate(
            f"{name} (held out)",
            (seen[-1] * 0.99, value),
            (0, 3),
            textcoords="offset points",
            ha="right",
            color="#555555",
        )
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set(xlabel="tokens seen", ylabel="bits per byte", ylim=(min(1.5, smooth.min()), 4.2))
    ax.legend(loc=(0.45, 0.45))


def overfitting(steps: Sequence[int], known: Sequence[float], unknown: Sequence[float], uniform: float) -> None:
    """Bits per byte of what was learned, and of what was not, after so many steps."""
    _, ax = plt.subplots()
    ax.plot(steps, known, marker="o", label="the three pages")
    ax.plot(steps, unknown, marker="s", label="chapter 12")
    ax.axhline(uniform, color="#777777", linewidth=1, linestyle=":")
    ax.annotate("uniform guess", (steps[-1], uniform), (0, 3), textcoords="offset points", ha="right")
    ax.set(xlabel="steps of training", ylabel="bits per byte", ylim=(0, None))
    ax.legend(loc="center right")


def knobs(settings: Mapping[str, Tensor], tokenizer: Tokenizer, count: int = 12) -> None:
    """Bars of the likeliest next tokens, a panel for each setting: its probabilities [vocabulary]."""
    top = next(iter(settings.values())).topk(count).indices
    labels = [repr(tokenizer.decode([token]))[1:-1].replace(" ", "␣") for token in top]
    _, axes = plt.subplots(1, len(settings), figsize=(11.5, 3.4), sharey=True, sharex=True)
    for ax, (name, probabilities), color in zip(axes, settings.items(), COLORS, strict=False):
        ax.barh(range(count), probabilities[top], color=color)
        others = (probabilities > 0).sum().item()
        ax.set_title(name)
        ax.set_xlabel(f"probability\n({others:,} tokens possible)")
    axes[0].set_yticks(range(count), labels, family="monospace", fontsize=10)
    axes[0].invert_yaxis()
