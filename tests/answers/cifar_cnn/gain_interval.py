import numpy as np
import torch
from support.answers import mutants

from torchcourse_labs.cifar_cnn.gain_interval import solution


def in_python(before, after, t):
    gains = [b - a for a, b in zip(before.tolist(), after.tolist(), strict=True)]
    n, mean = len(gains), sum(gains) / len(gains)
    half = t * (sum((gain - mean) ** 2 for gain in gains) / (n - 1) / n) ** 0.5
    return [mean, half, mean > half]


def in_numpy(before, after, t):
    gains = (after - before).numpy()
    half = t * gains.std(ddof=1) / np.sqrt(len(gains))
    return gains.mean(), half, gains.mean() > half


RIGHT = [in_python, in_numpy, lambda *given: tuple(map(torch.tensor, solution(*given)))]

WRONG = {
    "spread_of_scores": [
        lambda before, after, t: ((after - before).mean().item(), t * after.std().item() / len(after) ** 0.5, True)
    ],
    "no_root_n": mutants(in_python, "/ n) ** 0.5", ") ** 0.5", "/ n / n) ** 0.5"),
    "verdict": mutants(in_python, "mean > half]", "mean > 0]", "mean >= half]", "'real']"),
    None: [
        lambda *given: solution(*given)[:2],
        *mutants(in_python, "[mean, half,", "[mean - half, mean + half,"),
        *mutants(in_python, "b - a", "a - b", "abs(b - a)"),
        *mutants(in_python, "half = t", "half = 1.96"),
        *mutants(in_python, "(n - 1)", "n"),
    ],
}
