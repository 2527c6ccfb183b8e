"""Two processes, one training run: the same steps, the same weights as one process, and one writer."""

import itertools
import tempfile
from typing import Any

import torch
from torch import Tensor

from labcheck import ranks
from labcheck.authoring import Exercise, Inputs, attempted, observe, wrong_if
from torchcourse_labs.capstone._training import BATCH, PER_EPOCH, draw, each_image_once, perform, settings


def train_apart(answer: Any, samples: tuple, starts: list, seed: int) -> dict:
    """A probe: the same training in one process and in two."""
    attempted(answer)
    with tempfile.TemporaryDirectory() as home:
        inputs = samples, starts, settings(seed)
        one, two = (perform(answer, size, home, size, *inputs, f"{size}", double=True) for size in (1, 2))
        ranks.judge(one)
        if lost := ranks.lost(two):
            return lost
        ranks.judge(two)
        values = [one[0].value, *two.values]
        for value in values:
            if value["returned"] != "a model":
                return value
        rows = [[step["rows"] for step in value["steps"]] for value in values]
        weights = [value["weights"] for value in values]
        return {"returned": "a model", "rows": rows, "weights": weights, "wrote": list(two[1].wrote)}


def near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-4, atol=1e-4)


def judge(answer: Any, rng: Inputs) -> None:
    samples, starts, seed, _ = draw(rng)
    seen = observe(answer, train_apart, samples, starts, seed)
    ranks.judge_lost(seen, "which ranks come to this line?")
    wrong_if(
        seen["returned"] != "a model",
        "returned",
        f"Your function should return the trained model; it returned an object of type {seen['returned']}.",
    )
    alone, first, second = seen["rows"]
    wrong_if(
        not each_image_once(alone, samples[0]),
        "once",
        "One process alone should take each image once in an epoch, in batches of batch_size.",
    )
    same_images = {*itertools.chain(*first[:PER_EPOCH])} == {*itertools.chain(*second[:PER_EPOCH])}
    wrong_if(
        same_images,
        "same_images",
        "Both processes take the same images, so the second one repeats the work of the first.",
        look="`DistributedSampler(train_set, seed=seed)` knows the rank",
    )
    wrong_if(
        first and len(first[0]) == BATCH,
        "whole_batches",
        "Each of the two processes takes batch_size images in a step. batch_size is what they take together.",
        look="`batch_size // dist.get_world_size()`",
    )
    wrong_if(
        not near(*seen["weights"][1:]),
        "apart",
        "The two processes end with different weights: each has trained a model of its own.",
        look="the call in the loop goes to the model that DDP has wrapped",
    )
    together = [sorted(a + b) for a, b in itertools.zip_longest(first, second, fillvalue=[])]
    wrong_if(
        together != [sorted(rows) for rows in alone],
        "other_images",
        "Together, the two processes take different images in a step than one process alone.",
        look="one order for all, set by seed and epoch",
    )
    wrong_if(
        not near(*seen["weights"][:2]),
        "other_weights",
        "The images are the same, and still two processes end with different weights than one.",
        look="the gradient of a step is the mean over all its images; the learning rate is that of one process",
    )
    wrong_if(
        seen["wrote"],
        "two_writers",
        "Rank 1 writes files. Leave that to rank 0: with two writers, one can read what the other has only half "
        "written.",
        look="`if dist.get_rank() == 0:`",
    )


exercise = Exercise(
    title="Two processes, one training run",
    minutes=30,
    difficulty=4,
    points=4,
    seconds=60,
    takeaway="Same global batches, averaged gradients, one writer: then two processes are one, up to rounding.",
    hints=(
        "Which images does each of two processes take in a step, and which does a single process take?",
        "`DistributedSampler` deals out one order; a process takes `batch_size // dist.get_world_size()` at a time.",
        "Call `DDP(model)`, not `model`, in the loop. Only rank 0 saves; then all ranks wait at `dist.barrier()`.",
    ),
    judge=judge,
)
