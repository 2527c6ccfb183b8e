import numpy as np
import torch
from support.answers import mutants

from torchcourse_labs.training_loop.split_indices import solution

DRAWN = "torch.randperm(n, generator=torch.Generator().manual_seed(seed))"


def state_put_back(n, fraction, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        order = torch.randperm(n)
    return order.split([n - int(n * fraction), int(n * fraction)])


def drawn(order):
    def split(n, fraction, seed):
        indices, k = torch.as_tensor(order(n, seed)), int(n * fraction)
        return [indices[k:], indices[:k]]

    return split


RIGHT = [state_put_back, drawn(lambda n, seed: np.random.default_rng(seed).permutation(n))]

WRONG = {
    "not_each_once": mutants(solution, ", order[:k]", ", torch.randperm(n)[:k]", ", order[:k] // 2", ", order[:k] + 1"),
    "not_repeatable": mutants(solution, DRAWN, "torch.randperm(n)", f"{DRAWN} if seed else torch.randperm(n)"),
    "not_shuffled": mutants(solution, DRAWN, "torch.arange(n)"),
    "no_seed": mutants(solution, "manual_seed(seed)", "manual_seed(0)"),
    "global_generator": [
        drawn(lambda n, seed: torch.manual_seed(seed) and torch.randperm(n)),
        drawn(lambda n, seed: np.random.seed(seed) or np.random.permutation(n)),
    ],
    None: [
        lambda *given: solution(*given)[0],
        *mutants(solution, "order[k:], order[:k]", "order[:k], order[k:]", "order[:-k], order[-k:]"),
        *mutants(solution, "int(n * fraction)", "round(n * fraction)", "max(1, int(n * fraction))"),
        lambda *given: tuple(torch.tensor(part.tolist()) for part in solution(*given)),
    ],
}
