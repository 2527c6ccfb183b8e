"""Two processes, one training run: the same steps, the same weights as one process, and one writer."""

import itertools
import tempfile
from typing import Any

from labcheck import ranks
from labcheck.authoring import Exercise, Inputs, attempted, near, observe, wrong_if
from torchcourse_labs.capstone import _training as training
from torchcourse_labs.capstone._training import BATCH, PER_EPOCH


def train_apart(answer: Any, *inputs: Any) -> dict:
    """A probe: the same training in one process and in two."""
    attempted(answer)
    with tempfile.TemporaryDirectory() as home:
        one = training.alone(answer, home, 1, *inputs, "1", exact=True)
        two = training.perform(answer, 2, home, 2, *inputs, "2", exact=True)
        if lost := ranks.lost(two):
            return lost
        ranks.judge(two)
        values = [one, *two.values]
        for value in values:
            if value["returned"] != "a model":
                return value
        rows = [[step["rows"] for step in value["steps"]] for value in values]
        weights = [value["weights"] for value in values]
        return {"returned": "a model", "rows": rows, "weights": weights, "wrote": list(two[1].wrote)}


def judge(answer: Any, rng: Inputs) -> None:
    samples, starts, how, _ = training.draw(rng)
    seen = observe(answer, train_apart, samples, starts, how)
    ranks.judge_lost(seen, "which ranks come to this line?")
    training.judge_returned(seen)
    (rows, first, second), (weights, *of_two) = seen["rows"], seen["weights"]
    training.judge_rows(rows, samples[0])
    wrong_if(
        {*itertools.chain(*first[:PER_EPOCH])} == {*itertools.chain(*second[:PER_EPOCH])},
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
        not near(*of_two, 1e-4, 1e-4),
        "apart",
        "The two processes end with different weights: each has trained a model of its own.",
        look="the call in the loop goes to the model that DDP has wrapped",
    )
    together = [sorted(a + b) for a, b in itertools.zip_longest(first, second, fillvalue=[])]
    wrong_if(
        together != [sorted(each) for each in rows],
        "other_images",
        "Together, the two processes take different images in a step than one process alone.",
        look="one order for all, set by seed and epoch",
    )
    wrong_if(
        not near(of_two[0], weights, 1e-4, 1e-4),
        "other_weights",
        "The images are the same, and still two processes end with different weights than one.",
        look="the gradient of a step is the mean over all its images; the learning rate is that of one process",
    )
    wrong_if(
        seen["wrote"],
        "two_writers",
        "Rank 1 writes files. Leave that to rank 0: with two writers, one can read what the other has half written.",
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
        "Which images does each of two processes take in a step, and which does a single process take? "
        "`DistributedSampler` deals out one order; a process takes `batch_size // dist.get_world_size()` at a time.",
        "Call `DDP(model)`, not `model`, in the loop. Only rank 0 saves; then all ranks wait at `dist.barrier()`.",
    ),
    judge=judge,
)
