"""What checks with two ranks share: how the ranks lose each other, and what both have seen."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torchcourse_labs._spec import Mistake


def lost(*deadlocks: Any, look: str, unequal: Any = None, resume: tuple = ()) -> list[Mistake]:
    """The mistakes of ranks that lose each other. They come first: nothing else was measured then.

    unequal: an answer that brings tensors of different sizes to a collective; needed where answers are classes
    resume: what follows the function in answers that are tuples
    """

    def waits(*args: Any) -> None:
        if dist.get_rank():
            dist.barrier()

    def brings_more(*args: Any) -> None:
        dist.all_reduce(torch.ones(1 + dist.get_rank()))

    def made(wrong: Callable) -> Any:
        return (wrong, *resume) if resume else wrong

    look = f"{look}{'' if look.endswith('?') else '.'} {{yours[lines]}}"
    return [
        Mistake(
            "{yours[deadlock]}: a deadlock.",
            *([] if unequal else [made(waits)]),
            *deadlocks,
            look=look,
            when=lambda yours, *_: "deadlock" in yours,
        ),
        Mistake(
            "The ranks meet in one collective with different tensors: {yours[tensors]}.",
            unequal or made(brings_more),
            look=look,
            when=lambda yours, *_: "tensors" in yours,
        ),
    ]


def on_both(yours: dict, name: str) -> list:
    """What was seen under a name on rank 0, and on rank 1."""
    return [yours[f"{name} on rank {rank}"] for rank in range(2)]


def close(a: Any, b: Any) -> bool:
    """Tell whether two tensors are the same up to rounding."""
    both = isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape
    return both and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-6, equal_nan=True)
