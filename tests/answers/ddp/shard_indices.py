import random

import torch
from support.answers import mutant, mutants

from torchcourse_labs.ddp.shard_indices import solution

DEALT = "order[rank::world_size]"
SHUFFLED = "torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))"

RIGHT = [
    mutant(solution, (DEALT, "order[length * rank // world_size : length * (rank + 1) // world_size]")),
    mutant(solution, ("seed + epoch", "hash((seed, epoch)) % 2**31")),
    lambda length, rank, world_size, epoch, seed: torch.tensor(
        random.Random(f"{seed} {epoch}").sample(range(length), length)[rank::world_size], dtype=torch.int64
    ),
]

WRONG = {
    "form": mutants(solution, DEALT, f"{DEALT}.tolist()", f"{DEALT}.int()", "order % world_size == rank"),
    "asks_group": mutants(solution, DEALT, "order[torch.distributed.get_rank() :: world_size]"),
    "not_repeatable": [
        *mutants(solution, "torch.randperm(length, ", "torch.randint(0, length, (length,), "),
        *mutants(solution, "seed + epoch", "seed + epoch + __import__('time').time_ns() % 10**9"),
        *mutants(solution, "seed + epoch", "hash(f'{seed} {epoch}')"),
    ],
    "overlap": [
        *mutants(solution, DEALT, "order", "torch.cat([order, order[: -length % world_size]])[rank::world_size]"),
        *mutants(solution, "seed + epoch", "seed + epoch + rank"),
    ],
    "lost_or_uneven": [
        *mutants(solution, DEALT, "order.chunk(world_size)[rank]", "order[rank + 1 :: world_size]"),
        *mutants(solution, "randperm(length", "randperm(length - 1"),
        mutant(solution, (DEALT, "order[rank * (length // world_size) : (rank + 1) * (length // world_size)]")),
    ],
    "not_shuffled": mutants(solution, SHUFFLED, "torch.arange(length)"),
    "same_order": mutants(solution, "seed + epoch", "seed", "seed * (epoch + 1)", "epoch"),
    "cut_first": mutants(solution, DEALT, f"torch.arange(length)[rank::world_size][{DEALT}.argsort()]"),
    None: mutants(solution, DEALT, f"order[-1:] if length <= rank else {DEALT}"),
}
