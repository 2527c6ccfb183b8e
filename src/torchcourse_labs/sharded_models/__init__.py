"""The exercises of chapter 10: models in pieces.

Two of them are sums. One is judged in a world that does not exist (`planning`): which collectives a step makes, and
what is sharded, is true there, and values are not. The others run on two real ranks, as those of chapter 06 do.
"""

import copy
import math
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from labcheck import probes
from labcheck.answer import call
from labcheck.collectives import Ledger
from labcheck.inputs import Inputs
from labcheck.show import show
from torchcourse import models
from torchcourse.cluster import planning
from torchcourse.lectures import sharding
from torchcourse_labs import _pairs as pairs
from torchcourse_labs._spec import Mistake, Spec, changed, chapter, measure, says  # noqa: F401 - for the tables

SECONDS = 120.0  # for a whole check: the first one of a session starts the server from which processes are forked

CHAPTER = "10_sharded_models"
EXERCISES = ("memory_of", "shard_model", "sharded_linear", "clip_sharded", "tp_plan")

exercise = chapter("10_sharded_models")
Shape = tuple[int, ...]


# ---------------------------------------------------------------------------------------------------------------------


def _memory_of(shapes, ranks, stage, optimizer, precision, activations):
    whole = sum(math.prod(shape) for shape in shapes)
    parts = [math.ceil(shape[0] / ranks) * math.prod(shape[1:]) for shape in shapes]
    shard = sum(parts)
    size = 2 if precision == "bf16" else 4
    states = {"adamw": 2, "momentum": 1, "sgd": 0}[optimizer]
    return {
        "weights": size * (shard if stage >= 3 else whole),
        "gradients": size * (shard if stage >= 2 else whole),
        "optimizer": size * states * (shard if stage >= 1 else whole),
        "activations": activations,
    }


PARTS = ("weights", "gradients", "optimizer", "activations")


def _bytes(ask: Any, shapes: Any, ranks: Any, stage: Any, optimizer: Any, precision: Any, activations: Any) -> dict:
    """The measure of `memory_of`: each part under a name of its own."""
    result = ask(shapes, ranks, stage, optimizer, precision, activations)
    if not isinstance(result, dict) or {*result} != {*PARTS}:
        return {"instead": result}
    if odd := [name for name in PARTS if isinstance(result[name], bool) or not isinstance(result[name], int)]:
        return {"odd": result[odd[0]], "part": odd[0]}
    return {f"The number of bytes of {name}": result[name] for name in PARTS}


def _trainings(new: Inputs) -> list[tuple]:
    def model() -> list[Shape]:
        width, classes, kernel = new.size(33, 60), new.size(9, 14), new.size(3, 6)
        return [(4 * width, width), (4 * width,), (width, 3, kernel, kernel), (classes, width), (classes,)]

    kinds = [
        *((stage, "adamw", "fp32") for stage in (0, 1, 2, 3)),
        *((stage, "adamw", "mixed") for stage in (0, 2, 3)),
        *((stage, "momentum", "bf16") for stage in (1, 3)),
        (3, "sgd", "fp32"),
        (3, "adamw", "bf16"),
    ]
    cases = [(model(), new.size(3, 8), *kind, new.size(10**4, 10**5)) for kind in kinds]
    # More ranks than rows, and a single rank.
    return [*cases, (model(), 64, 3, "adamw", "fp32", 10**5), (model(), 1, 3, "momentum", "mixed", 10**4)]


_memory_but = partial(changed, _memory_of)


_ROWS = "math.ceil(shape[0] / ranks) * math.prod(shape[1:])"

exercise(
    "memory_of",
    title="Does it fit?",
    minutes=10,
    difficulty=2,
    points=2,
    takeaway="Four bytes of weight bring twelve more. Sharding divides these; it never divides activations.",
    hints=(
        "Count numbers first: of all tensors as a whole, and of rank 0's rows of all tensors. Bytes come last.",
        "Rank 0 has `math.ceil(shape[0] / ranks)` rows of a tensor, and each row has `math.prod(shape[1:])` numbers. "
        "AdamW keeps two numbers for each weight, SGD with momentum one.",
        'For stage 3 with AdamW in fp32: `{"weights": 4 * shard, "gradients": 4 * shard, "optimizer": 8 * shard, '
        '"activations": activations}`. Stage 2 keeps the weights whole, stage 1 the gradients as well, stage 0 all. '
        'In "bf16", each number has two bytes instead of four; in "mixed", what is kept has four.',
    ),
    spec=Spec(
        draw=_trainings,
        solution=_memory_of,
        measure=_bytes,
        rtol=0,
        atol=0.1,
        mistakes="""
            lambda *given: sum(_memory_of(*given).values())
            lambda *given: tuple(_memory_of(*given).values())
            lambda *given: None if given else 0
                Your function should return a dict with the keys "weights", "gradients", "optimizer", and "activations";
                it returned {yours[instead]}.
                when: "instead" in yours
            "activations": activations → "activations": activations / ranks
                Activations come from the rank's own images: no stage divides them by the number of ranks.
                when: yours["part"] == "activations" and math.isclose(yours["odd"], activations / ranks)
            math.ceil(shape[0] / ranks) * math.prod(shape[1:]) → math.prod(shape) / ranks
            lambda *given: {name: value / 1 for name, value in _memory_of(*given).items()}
                Bytes are whole numbers, Python ints. For {yours[part]} you have {yours[odd]}.
                look: a division with `/`: what is dealt out are whole rows, so round up, with `math.ceil`
                when: "odd" in yours
            "activations": activations
                    → "activations": activations // ranks || "activations": math.ceil(activations / ranks)
                    || "activations": activations // (ranks if stage >= 3 else 1)
                Activations come from the rank's own images: no stage divides them by the number of ranks.
            "activations": activations → "activations": size * activations
                    || "activations": activations // (1 if precision == "fp32" else 2)
                `activations` is a number of bytes already, in each precision.
            math.ceil(shape[0] / ranks) → shape[0] // ranks
            math.ceil(shape[0] / ranks) * math.prod(shape[1:]) → math.prod(shape) // ranks
            math.ceil(shape[0] / ranks) → round(shape[0] / ranks)
                Your shards are too small where a tensor's rows cannot be shared out equally: rank 0 gets the larger
                part.
                look: rows are dealt out as `chunk` does it: rank 0 has `math.ceil(rows / ranks)`
            math.ceil(shape[0] / ranks) * math.prod(shape[1:]) → math.ceil(math.prod(shape) / ranks)
            sum(parts) → math.ceil(sum(map(math.prod, shapes)) / ranks) || sum(map(math.prod, shapes)) // ranks
                You divide the count of all numbers; what is dealt out are whole rows of each tensor.
                look: rows first, `math.ceil(shape[0] / ranks)`, then the numbers in them
            math.ceil(shape[0] / ranks) * math.prod(shape[1:]) → math.prod(shape[:-1]) * -(-shape[-1] // ranks)
                You deal out the last axis of each tensor. `fully_shard` deals out the first one, the rows.
            math.prod(shape[1:]) → shape[-1] || shape[1] || (shape[1] if len(shape) > 1 else 1)
                A tensor has more axes than two, or only one: its numbers are the product of all sizes.
                look: `math.prod(shape[1:])`, which is 1 for a shape with one axis
            "adamw": 2, "momentum": 1, "sgd": 0 → "adamw": 3, "momentum": 2, "sgd": 1
                The gradient does not count among the optimizer's numbers: AdamW keeps two for each weight, momentum
                one, plain SGD none.
            "adamw": 2 → "adamw": 1 || "adamw": 3
                AdamW keeps two numbers for each weight, the running means of the gradient and of its square.
            "momentum": 1 → "momentum": 2 || "momentum": 0
            "sgd": 0 → "sgd": 1 || "sgd": 2
            "momentum": 1, "sgd": 0 → "momentum": 2, "sgd": 1
                SGD with momentum keeps one number for each weight, plain SGD none.
            "weights": size → "weights": (4 if precision == "fp32" else 2)
                With "mixed", the weights that are kept have four bytes: the copies in bf16 are made for computing and
                are gone afterwards.
            precision == "bf16" → precision != "fp32"
            == "bf16" → != "fp32" && "optimizer": size → "optimizer": (2 if precision == "bf16" else 4)
            "gradients": size → "gradients": (4 if precision == "fp32" else 2)
                With "mixed", weights, gradients, and the optimizer's state are all kept in fp32: only the products are
                computed in bf16.
            "weights": size → "weights": (6 if precision == "mixed" else size)
            2 if precision → 6 if precision == "mixed" else 2 if precision
                With "mixed", only what is kept counts here: weights of four bytes, without the copies in bf16.
            "optimizer": size → "optimizer": 4
                With "bf16", the optimizer's state is in bf16 as well: its tensors are made like the weights.
            "adamw": 2 → "adamw": 3 if precision == "mixed" else 2
                With "mixed", the weights that are kept are those in fp32 already: the optimizer has no copy of them.
            2 if precision → 1 if precision && else 4 → else 1
            lambda *given: {name: value if name == "activations" else value // (2 if given[4] == "bf16" else 4) for
                    name, value in _memory_of(*given).items()}
                These are numbers, not bytes: a number in fp32 has four bytes, in bf16 two.
            2 if precision → 16 if precision && else 4 → else 32
                These are bits: a number in fp32 has four bytes, in bf16 two.
            2 if precision → 4 if precision
                Every number has four bytes in your sum, also with "bf16".
            stage >= 3 → stage > 1 - 1 && stage >= 2 → stage > 2 - 1 && stage >= 1 → stage > 3 - 1
            stage >= 3 → stage > 2 - 1 && stage >= 2 → stage > 3 - 1 && stage >= 1 → stage > 1 - 1
            stage >= 3 → stage > 3 - 1 && stage >= 2 → stage > 1 - 1 && stage >= 1 → stage > 2 - 1
            stage >= 3 → stage > 2 - 1 && stage >= 2 → stage > 1 - 1 && stage >= 1 → stage > 3 - 1
            stage >= 3 → stage > 1 - 1 && stage >= 2 → stage > 3 - 1 && stage >= 1 → stage > 2 - 1
                Stage 1 divides the optimizer's state, stage 2 the gradients as well, stage 3 the weights as well. Yours
                begins with another part.
            stage >= 3 → stage > 2 - 1 && stage >= 2 → stage > 1 - 1 && stage >= 1 → stage > 0 - 1
            stage >= 3 → stage > 2 - 1 && stage >= 2 → stage > 1 - 1 && stage >= 1 → stage > 1 - 1
            stage >= 3 → stage > 2 - 1 && stage >= 2 → stage > 2 - 1 && stage >= 1 → stage > 1 - 1
            stage >= 3 → stage > 3 - 1 && stage >= 2 → stage > 1 - 1 && stage >= 1 → stage > 1 - 1
            stage >= 3 → stage > 3 - 1 && stage >= 2 → stage > 2 - 1 && stage >= 1 → stage > 0 - 1
            stage >= 3 → stage > 1 - 1 && stage >= 2 → stage > 1 - 1 && stage >= 1 → stage > 1 - 1
            stage >= 3 → stage > 0 - 1 && stage >= 2 → stage > 0 - 1 && stage >= 1 → stage > 0 - 1
                Something is divided too early: stage 0 divides nothing, 1 the optimizer's state, 2 the gradients as
                well, 3 the weights as well.
            stage >= 3 → stage > 4 - 1 && stage >= 2 → stage > 3 - 1 && stage >= 1 → stage > 2 - 1
            stage >= 3 → stage > 4 - 1 && stage >= 2 → stage > 2 - 1 && stage >= 1 → stage > 1 - 1
            stage >= 3 → stage > 3 - 1 && stage >= 2 → stage > 3 - 1 && stage >= 1 → stage > 1 - 1
            stage >= 3 → stage > 3 - 1 && stage >= 2 → stage > 2 - 1 && stage >= 1 → stage > 2 - 1
            stage >= 3 → stage > 3 - 1 && stage >= 2 → stage > 3 - 1 && stage >= 1 → stage > 3 - 1
            stage >= 3 → stage > 3 - 1 && stage >= 2 → stage > 4 - 1 && stage >= 1 → stage > 1 - 1
                Something is divided too late or not at all: stage 1 divides the optimizer's state, 2 the gradients as
                well, 3 all three.
            stage >= 2 → stage == 2 && stage >= 1 → stage == 1
            stage >= 2 → stage == 2
            stage >= 1 → stage == 1 || 1 <= stage < 3 || stage in (1, 3)
                Something that one stage divides is whole again in a later one: each stage divides what the one before
                it does, too.
            math.ceil(shape[0] / ranks) * math.prod(shape[1:]) → math.prod(shape)
                Nothing is divided in any stage: every rank holds all.
        """,
        also_right=[
            lambda shapes, ranks, stage, optimizer, precision, activations: (
                {
                    name: sum(
                        torch.empty(
                            shape, device="meta", dtype=torch.bfloat16 if precision == "bf16" else torch.float32
                        )
                        .chunk(ranks if stage >= first else 1)[0]
                        .nbytes
                        * times
                        for shape in shapes
                    )
                    for name, first, times in (
                        ("weights", 3, 1),
                        ("gradients", 2, 1),
                        ("optimizer", 1, {"adamw": 2, "momentum": 1}.get(optimizer, 0)),
                    )
                }
                | {"activations": activations}
            ),
            _memory_but((_ROWS, "-(-shape[0] // ranks) * math.prod(shape) // shape[0]")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _bubble(stages, microbatches, forward, backward):
    steps = microbatches + stages - 1
    return {
        "seconds": steps * (forward + backward),
        "idle": (stages - 1) / steps,
        "GPipe": [microbatches] * stages,
        "1F1B": [min(microbatches, stages - stage) for stage in range(stages)],
    }


def _played(stages: int, microbatches: int, forward: float, backward: float) -> dict:
    jobs = {name: sharding.pipeline(stages, microbatches, name, forward, backward) for name in ("GPipe", "1F1B")}
    kept = {name: sharding.held(played) for name, played in jobs.items()}
    return {"seconds": max(job.end for job in jobs["1F1B"]), "idle": sharding.idle_share(jobs["1F1B"]), **kept}


PIPELINE = {
    "seconds": "The time of a step",
    "idle": "The share of waiting",
    "GPipe": "What the stages keep with GPipe",
    "1F1B": "What the stages keep with 1F1B",
}


def _of_pipeline(ask: Any, stages: Any, microbatches: Any, forward: Any, backward: Any) -> dict:
    """The measure of `bubble`."""
    result = ask(stages, microbatches, forward, backward)
    if not isinstance(result, dict) or {*result} != {*PIPELINE}:
        return {"instead": result}
    return {
        PIPELINE[name]: float(value) if isinstance(value, int | float) else list(value) if _is_row(value) else value
        for name, value in result.items()
    }


def _is_row(value: Any) -> bool:
    return isinstance(value, tuple | range)


def _pipelines(new: Inputs) -> list[tuple]:
    p, m = new.sizes(2, 3, 7)
    few, many = sorted(new.sizes(2, 2, 9))
    return [
        (p, m, 1.0, 2.0),
        (few, many + 4, 0.25, new.size(3, 8) / 8),
        (many, few, new.size(5, 9) / 4, 3.0),
        (new.size(2, 5), 1, 1.0, 1.0),  # one microbatch: one stage works at a time
        (1, new.size(2, 5), 0.5, 1.0),  # one stage: it never waits
        (4, 4, 1.0, 2.0),
    ]


_bubble_but = partial(changed, _bubble)

exercise(
    "bubble",
    title="The bubble",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="More microbatches make the bubble smaller, and only 1F1B can afford them: it keeps p of them at most.",
    hints=(
        "Draw 3 stages and 4 microbatches on squared paper, forward passes only. How long is a row, and how many of "
        "its places are empty? The backward passes make the same picture in a mirror.",
        "Both schedules take (m + p − 1) places, each as long as one forward and one backward pass. Each stage works "
        "in m of them. For what is kept, follow one stage: how many forward passes come before its first backward one?",
        "`steps = microbatches + stages - 1`, `steps * (forward + backward)`, `(stages - 1) / steps`. GPipe keeps all "
        "microbatches on each stage; 1F1B `min(microbatches, stages - stage)`: the last stage goes back at once.",
    ),
    spec=Spec(
        draw=_pipelines,
        solution=_bubble,
        measure=_of_pipeline,
        mistakes="""
            lambda *given: tuple(_bubble(*given).values())
            lambda *given: None if given else 0
            lambda *given: {**_bubble(*given), "stages": given[0]}
                Your function should return a dict with the keys "seconds", "idle", "GPipe", and "1F1B"; it returned
                {yours[instead]}.
                when: "instead" in yours
            [microbatches] * stages → microbatches
            [min(microbatches, stages - stage) for stage in range(stages)] → stages
            [microbatches] * stages → microbatches
                    && [min(microbatches, stages - stage) for stage in range(stages)] → min(stages, microbatches)
                What is kept is a list of ints, one for each stage, the first stage first.
                when: not all(isinstance(yours[PIPELINE[name]], list) for name in ("GPipe", "1F1B"))
            (stages - 1) / steps → (microbatches - 1) / steps
            = _bubble(microbatches, stages, forward, backward)
                Stages and microbatches have changed places: in the bubble, p − 1 of the m + p − 1 places are empty.
            (stages - 1) / steps → (stages - 1) / microbatches
                You divide the empty places of a stage by those in which it works; the share of waiting is of all.
                look: m + p − 1 places in all
            (stages - 1) / steps → microbatches / steps
                This is the share in which a stage works. The rest is the bubble.
            (stages - 1) / steps → 100 * (stages - 1) / steps || round(100 * (stages - 1) / steps)
                A share is a number from 0 to 1; yours is a percentage.
                when: abs(yours[PIPELINE["idle"]] - 100 * expected[PIPELINE["idle"]]) <= 0.5
            (stages - 1) / steps → 2 * (stages - 1) / steps
            (stages - 1) / steps
                    → (stages - 1) * forward / (steps * (forward + backward))
                    || (stages - 1) * backward / (steps * (forward + backward))
                A stage waits for p − 1 of m + p − 1 places, forward and backward alike, so the share of the whole step
                is the same.
            (stages - 1) / steps → (stages - 1) * (forward + backward)
                This is the time that a stage waits; what is asked for is its share of the whole step.
            microbatches + stages - 1 → microbatches + stages
            microbatches + stages - 1 → microbatches + stages && (stages - 1) / → stages /
            microbatches + stages - 1 → microbatches + stages - 2 && / steps → / max(steps, 1)
            microbatches + stages - 1 → max(microbatches, stages) + stages - 1
                A place is missing or too many: the last stage starts p − 1 places after the first one.
                look: count the places for 1 microbatch on 2 stages: 2 forward, 2 backward
            steps * (forward + backward)
                    → microbatches * (forward + backward) || steps * forward + microbatches * backward
                    || microbatches * forward + steps * backward
            steps * (forward + backward) → microbatches * (forward + backward) && (stages - 1) / steps → 0 * steps
            steps * (forward + backward) → steps * forward + microbatches * backward && (stages - 1) / steps
                    → 1 - microbatches * (forward + backward) / (steps * forward + microbatches * backward)
            steps * (forward + backward) → microbatches * forward + steps * backward && (stages - 1) / steps
                    → 1 - microbatches * (forward + backward) / (microbatches * forward + steps * backward)
                The pipeline fills and drains twice, once forward and once backward: (m + p − 1) forward passes and as
                many backward passes, one after the other.
            (forward + backward) → 2 * forward
                Your backward pass takes as long as the forward pass: `backward` is a time of its own.
            (forward + backward) → forward || backward || max(forward, backward)
                A place takes as long as a forward pass and a backward pass together.
            steps * (forward + backward) → stages * microbatches * (forward + backward)
                All stages work at the same time: the time of a step is not the sum over stages.
                look: that is one process that does all the work
            (forward + backward) → (forward + backward) / microbatches || (forward + backward) / stages
                `forward` and `backward` are the times of one microbatch on one stage: no need to divide them.
            [microbatches] * stages
                    → [min(stages, microbatches)] * stages || [min(microbatches, stages - s) for s in range(stages)]
                    || [stages] * stages || [1] * stages
                GPipe does all forward passes first: before the first backward pass, each stage keeps all {microbatches}
                microbatches.
            [microbatches] * stages → [stages] * microbatches || [microbatches] * microbatches
                The lists have a number for each stage, not for each microbatch.
            stages - stage) → stages)
            min(microbatches, stages - stage) → stages || microbatches || 1
                With 1F1B a stage keeps fewer, the later it comes: the last one goes back at once and keeps 1.
            min(microbatches, stages - stage) → stages - stage
                Your 1F1B keeps more microbatches than there are: with {microbatches} of them, no stage keeps more.
            stages - stage) → stages - stage - 1) || stages - stage + 1)
                Your 1F1B is off by one: the last stage keeps 1 microbatch, the one before it 2.
            stages - stage) → stage + 1)
            min(microbatches, stages - stage) → stage + 1
                The stages are in the wrong order: with 1F1B, the first one keeps most.
        """,
        also_right=[
            _played,
            _bubble_but(("[min(", "tuple(min("), ("range(stages)]", "range(stages))")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    """Tokens int64 [B, T] -> logits [B, T, tokens]: the last layer has the weight of the first one."""

    def __init__(self, depth: int, tokens: int = 32, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth))
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


OLDER = "FullyShardedDataParallel is called"


def _in_groups(answer: Callable, depth: int, tied: bool, lr: float) -> dict:
    """A probe: the answer shards a model in a world of eight ranks, then comes a step."""
    older = mock.patch.object(FullyShardedDataParallel, "__init__", side_effect=RuntimeError(OLDER))
    with planning.fake_world(8) as mesh, torch.random.fork_rng(devices=[]), older:  # it would ask for a GPU
        model = Tied(depth) if tied else models.Patches(width=16, depth=depth, heads=2)
        optimizer = call(answer, model, mesh, lr, may_change=True, may_return_none=True)
        if not isinstance(optimizer, torch.optim.Optimizer):
            return {"instead": show(optimizer)}
        known = {id(p) for group in optimizer.param_groups for p in group["params"]}
        current = {id(p) for p in model.parameters()}
        names = dict(model.named_parameters())
        groups = [name or "the model" for name, module in model.named_modules() if isinstance(module, FSDPModule)]
        rates = sorted({group["lr"] for group in optimizer.param_groups})
        seen = {
            "The weights that are whole": [n for n, p in names.items() if not isinstance(p, DTensor)],
            "The groups": sorted(groups),
            "The weights that the optimizer does not have": [n for n, p in names.items() if id(p) not in known],
            "stale": bool(known - current),
            "The optimizer": f"{type(optimizer).__name__}, learning rate {', '.join(f'{rate:g}' for rate in rates)}",
        }
        inputs = torch.zeros(2, 3, dtype=torch.int64) if tied else torch.zeros(2, 1, 28, 28)
        dtypes: set[str] = set()
        for layer in model.modules():
            if isinstance(getattr(layer, "weight", None), Tensor):
                layer.register_forward_pre_hook(lambda layer, _: dtypes.add(str(layer.weight.dtype)[6:]))
        with planning.messages() as sent:
            try:
                model(inputs).sum().backward()
            except Exception as error:  # whatever a model that is wrongly sharded raises
                seen |= {"The messages of a step": "an error", "error": str(error)}
            else:
                counts = " and ".join(f"{count} {name}s" for name, count in sorted(sent.counts.items()))
                seen |= {"The messages of a step": counts or "none", "error": ""}
        return seen | {"The dtypes of the weights in a step": sorted(dtypes)}


def _groups(ask: Any, depth: int, tied: bool, lr: float) -> dict:
    """The measure of `shard_model`."""
    return ask.observe(_in_groups, depth, tied, lr)


def _shard_model(model, mesh, lr):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return torch.optim.AdamW(model.parameters(), lr=lr)


_shard_but = partial(changed, _shard_model)
_BLOCKS = "for block in model.blocks:\n        fully_shard(block, mesh=mesh)\n"
_ROOT = "    fully_shard(model, mesh=mesh)\n"
_ADAM = "return torch.optim.AdamW(model.parameters(), lr=lr)"
_NOW = "optimizer = torch.optim.AdamW(model.parameters(), lr=lr)"


def _all_gathers(messages: str) -> int:
    return int(messages.partition(" all-gathers")[0])


def _groups_used(messages: str) -> int:
    return int(messages.split()[-2])  # of "9 all-gathers and 5 reduce-scatters"


def _has_groups(*names: str) -> Callable:
    """A `when`: these are the groups, besides perhaps the blocks."""
    return lambda yours, *_: yours["The groups"] == sorted(names)


exercise(
    "shard_model",
    title="Shard a model by blocks",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Blocks first, the model last, the optimizer after both: each block is whole only while it computes.",
    hints=(
        "Three things in this order: the blocks, what is left, the optimizer.",
        "`fully_shard(module, mesh=mesh)` works in place. Called on the model, it takes all parameters that no call "
        "before it has taken.",
        "`for block in model.blocks: fully_shard(block, mesh=mesh)`, then `fully_shard(model, mesh=mesh)`, then "
        "`torch.optim.AdamW(model.parameters(), lr=lr)`.",
    ),
    spec=Spec(
        draw=lambda new: [
            (new.size(2, 4), True, new.pick([1e-2, 2e-3])),  # first: a case in which two layers share a weight
            (new.size(2, 4), False, new.pick([1e-3, 3e-4])),
        ],
        solution=_shard_model,
        measure=_groups,
        by_case=True,
        mistakes=r"""
            torch.optim.AdamW(model.parameters(), lr=lr) → model
            return torch.optim.AdamW(model.parameters(), lr=lr)
                    → optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
                    || optimizer = torch.optim.AdamW(model.parameters(), lr=lr)\n    return model, optimizer
                Your function should return the optimizer; it returned {yours[instead]}.
                when: "instead" in yours
            fully_shard(block, mesh=mesh)
                    → fully_shard(block, mesh=mesh,
                    mp_policy=torch.distributed.fsdp.MixedPrecisionPolicy(torch.bfloat16))
            fully_shard(model, mesh=mesh)
                    → fully_shard(model, mesh=mesh,
                    mp_policy=torch.distributed.fsdp.MixedPrecisionPolicy(torch.bfloat16))
                In a step, weights are {yours[The dtypes of the weights in a step]}: all options of `fully_shard` but
                the mesh keep their defaults.
                look: `mp_policy`
                when: {*yours["The dtypes of the weights in a step"]} - {"float32"}
            _shard_but((_BLOCKS, "pass\n"), (_ROOT, f"{_ROOT}    {_BLOCKS}"))
                You shard the model before its blocks: the first call takes all parameters, and none are left for the
                blocks.
                look: the inner modules first, the model last
                when: says(yours, "Invariant encountered") or (yours["error"] and yours["The groups"] == expected["The
                    groups"])
            fully_shard(model, mesh=mesh)
                    → for layer in (model.embed, model.head): fully_shard(layer, mesh=mesh)\n    fully_shard(model,
                    mesh=mesh)
                Two calls of `fully_shard` take the same weight: that of the first layer is also that of the last one.
                Leave both layers to the last call, the one on the model.
                look: one call for each whole block, `model.blocks[i]`, and one for the model
                when: "shared" in yours["error"]
            for block in model.blocks:\n        fully_shard(block, mesh=mesh) → pass
                    && fully_shard(model, mesh=mesh) → pass
            for block in model.blocks:\n        fully_shard(block, mesh=mesh)
                    → import copy; model = copy.deepcopy(model)\n    for block in
                    model.blocks:\n        fully_shard(block, mesh=mesh)
                Nothing is sharded: `fully_shard` works in place, on the very model that comes in.
                when: _has_groups()
            for block in model.blocks:\n        fully_shard(block, mesh=mesh) → pass
                The whole model is one group: it is gathered at once and whole from the first layer to the last, so
                little is saved.
                look: one call for each block, before that on the model
                when: _has_groups("the model")
            for block in model.blocks:\n        fully_shard(block, mesh=mesh) → fully_shard(model.blocks, mesh=mesh)
                `model.blocks` is only a list of blocks, without a `forward` of its own, and the blocks should not be
                one group.
                look: one call for each block
                when: says(yours, "containers that do not implement forward")
            fully_shard(model, mesh=mesh) → FullyShardedDataParallel(model)
                `FullyShardedDataParallel` is the older interface, which wraps a model. Here you shard it in place.
                look: `fully_shard(module, mesh=mesh)`
                when: says(yours, OLDER)
            fully_shard(model, mesh=mesh) → pass
                What lies outside of the blocks is not sharded: {yours[The weights that are whole]}. Each rank keeps it
                whole, and its gradients are not averaged.
                look: a last call, on the model itself
                when: yours["The weights that are whole"]
            _shard_but((_BLOCKS, f"{_NOW}\n    {_BLOCKS}"), (_ADAM, "return optimizer"))
            _shard_but((_ROOT, f"    {_NOW}\n{_ROOT}"), (_ADAM, "return optimizer"))
                The optimizer has the old weights: `fully_shard` replaces them by DTensors, which no step changes then.
                look: make the optimizer after all calls of `fully_shard`
                when: yours["stale"]
            (model.parameters() → (model.blocks.parameters()
                The optimizer does not have all weights. Some are missing: {yours[The weights that the optimizer does
                not have]}.
                look: `model.parameters()`
                when: yours["The weights that the optimizer does not have"]
            for block in model.blocks:\n        fully_shard(block, mesh=mesh)
                    → fully_shard(list(model.blocks), mesh=mesh) || fully_shard(model.blocks[0], mesh=mesh)
                    || fully_shard(list(model.blocks[:2]), mesh=mesh)\n    for block in
                    model.blocks[2:]:\n        fully_shard(block, mesh=mesh)
            in model.blocks → in model.blocks[1:]
                There are too few groups: a step sends {yours[The messages of a step]}, and {expected[The messages of a
                step]} are right. What shares a group is gathered at once.
                look: one call for each block, with this block alone
                when: _groups_used(yours["The messages of a step"]) < _groups_used(expected["The messages of a step"])
            for block in model.blocks:\n        fully_shard(block, mesh=mesh)
                    → [fully_shard(m, mesh=mesh) for m in model.modules() if isinstance(m, nn.Linear) and m.bias is not
                    None]
                    || for block in model.blocks:\n        fully_shard(block, mesh=mesh)\n    fully_shard([model.embed,
                    model.head], mesh=mesh)
                There are too many groups: {yours[The groups]}. Each is a message of its own; one for each block and one
                for the rest are enough.
                when: not {*expected["The groups"]} >= {*yours["The groups"]} and not yours["error"]
            fully_shard(block, mesh=mesh) → fully_shard(block, mesh=mesh, reshard_after_forward=False)
                The groups are right, but a step sends {yours[The messages of a step]}, and {expected[The messages of a
                step]} are right: your blocks stay whole until the backward pass.
                look: `reshard_after_forward` keeps its default
                when: _all_gathers(yours["The messages of a step"]) < _all_gathers(expected["The messages of a step"])
            fully_shard(model, mesh=mesh) → fully_shard(model, mesh=mesh, reshard_after_forward=True)
                The groups are right, but a step sends {yours[The messages of a step]}, and {expected[The messages of a
                step]} are right: the last group is freed and gathered again at once.
                look: `reshard_after_forward` keeps its default: after its forward pass the root is needed right away
                when: _all_gathers(yours["The messages of a step"]) == _all_gathers(expected["The messages of a step"])
                    + 1
            , lr=lr →
            AdamW → SGD
                The optimizer should be {expected[The optimizer]}; yours is {yours[The optimizer]}.
                when: yours["The optimizer"] != expected["The optimizer"]
        """,
        also_right=[
            _shard_but(("in model.blocks", "in reversed(list(model.blocks))")),
            _shard_but((_ADAM, 'return torch.optim.AdamW([{"params": [p]} for p in model.parameters()], lr)')),
            _shard_but((_ROOT, "    model = fully_shard(model, mesh=mesh)\n")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


class _Living(TorchDispatchMode):
    """The memory of tensors that operations in the block have made. There before: views of these are no new memory."""

    def __init__(self, *there: Tensor) -> None:
        super().__init__()
        self.there = {tensor.untyped_storage()._cdata for tensor in there}
        self.made: list[tuple[StorageWeakRef, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and not tensor.is_meta:
                storage = tensor.untyped_storage()
                if storage._cdata not in self.there:
                    self.made.append((StorageWeakRef(storage), storage.nbytes()))
        return result

    def bytes(self) -> int:
        """How much of it still exists."""
        return sum({one.cdata: size for one, size in self.made if not one.expired()}.values())

    def settled(self, few: float) -> int:
        """The same, as soon as it is few, or after a second: a finished message may hold its tensor for a moment."""
        for _ in range(100):
            if self.bytes() <= few:
                break
            time.sleep(0.01)
        return self.bytes()


def _linear_on_rank(answer: Any, weights: list[Tensor], images: list[Tensor]) -> dict:
    """Two layers in a row, each of them sharded, on this rank's images."""
    if not (isinstance(answer, type) and issubclass(answer, torch.autograd.Function)):
        return {"no class": True}
    rank, world = dist.get_rank(), dist.get_world_size()
    shards = [weight.chunk(world)[rank].clone().requires_grad_() for weight in weights]
    x = images[rank].clone().requires_grad_()
    whole = min(weight.nbytes for weight in weights)
    with _Living(x, *shards) as living:
        hidden = answer.apply(x, shards[0])
        if not isinstance(hidden, Tensor):
            return {"instead": show(hidden)}
        seen = {"The shape of the output": tuple(hidden.shape)}
        if hidden.shape != (len(x), len(weights[0])):
            return seen
        y = answer.apply(hidden.tanh(), shards[1])
    calls = Ledger.current.calls
    seen |= {
        "The output": y.detach().clone(),
        "forward": [one["what"] for one in calls],
        "kept": living.settled(0.4 * whole),
    }
    begun = len(calls)
    y.square().mean().backward()
    names = {"the images": x, "the first shard": shards[0], "the second shard": shards[1]}
    seen |= {f"The gradient of {name}": None if one.grad is None else one.grad.clone() for name, one in names.items()}
    seen["nothing"] = ", ".join(name for name, one in names.items() if one.grad is None)
    held = [one.grad.untyped_storage().nbytes() for one in shards if one.grad is not None]
    return seen | {
        "backward": [one["what"] for one in calls[begun:]],
        "whole": whole,
        "The whole weight is kept": "yes" if seen["kept"] > 0.4 * whole else "no",
        "The whole gradient is kept": "yes" if held and max(held) > max(one.nbytes for one in shards) else "no",
        "The collectives": sorted(one["what"] for one in calls),
    }


class _ShardedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard):
        ctx.save_for_backward(x, shard)
        weight = shard.new_empty(dist.get_world_size() * shard.shape[0], shard.shape[1])
        dist.all_gather_into_tensor(weight, shard)
        return x @ weight.T

    @staticmethod
    def backward(ctx, gradient_y):
        x, shard = ctx.saved_tensors
        weight = shard.new_empty(dist.get_world_size() * shard.shape[0], shard.shape[1])
        dist.all_gather_into_tensor(weight, shard)
        gradient_x = gradient_y @ weight
        gradient_shard = torch.empty_like(shard)
        dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x)
        return gradient_x, gradient_shard / dist.get_world_size()


_linear_but = partial(changed, _ShardedLinear)
_SCATTER = "dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x)"
_MEAN = "gradient_shard / dist.get_world_size()"
_AGAIN = (
    "        x, shard = ctx.saved_tensors\n"
    "        weight = shard.new_empty(dist.get_world_size() * shard.shape[0], shard.shape[1])\n"
    "        dist.all_gather_into_tensor(weight, shard)\n"
)
_SHARDS = ("The gradient of the first shard", "The gradient of the second shard")


def _times(factor: float, name: str = _SHARDS[1]) -> Callable:
    """A `when`: the second shard's gradient, or the one of that name, is `factor` times the right one."""
    return lambda yours, expected, *_: all(
        pairs.close(mine, factor * right)
        for mine, right in zip(pairs.on_both(yours, name), pairs.on_both(expected, name), strict=True)
    )


_images_times = partial(_times, name="The gradient of the images")


def _two_layers(new: Inputs) -> list[tuple]:
    a, b, c = (2 * size for size in new.sizes(3, 18, 26))
    weights = [new.randn(b, a) / a**0.5, new.randn(c, b) / b**0.5]
    return [(weights, [new.randn(3, a) for _ in range(2)])]


def _other_is_missing(yours: dict, expected: dict, weights: list, images: list) -> bool:
    """Each rank has the gradient of its own images only, divided or not."""
    layers = [weight.clone().requires_grad_() for weight in weights]
    for rank, x in enumerate(images):
        loss = ((x @ layers[0].T).tanh() @ layers[1].T).square().mean()
        own = torch.autograd.grad(loss, layers[1])[0].chunk(2)[rank]
        if not any(pairs.close(yours[f"{_SHARDS[1]} on rank {rank}"], own / by) for by in (1, 2)):
            return False
    return True


def _outputs_are_gathered(yours: dict, expected: dict, weights: list, images: list) -> bool:
    """Each rank has multiplied its own images by its own shard, and the products stand side by side."""
    hidden = torch.cat([x @ part.T for x, part in zip(images, weights[0].chunk(2), strict=True)], dim=1)
    return all(pairs.close(output, hidden.tanh() @ weights[1].T) for output in pairs.on_both(yours, "The output"))


def _shape_is_wrong(yours: dict, expected: dict, *_: Any) -> bool:
    return pairs.on_both(yours, "The shape of the output") != pairs.on_both(expected, "The shape of the output")


exercise(
    "sharded_linear",
    seconds=SECONDS,
    title="A layer that no rank has",
    minutes=15,
    difficulty=4,
    points=4,
    takeaway="Gather, use, forget; gather again, scatter the gradients: three messages instead of DDP's two, and no "
    "rank keeps a whole weight.",
    hints=(
        "Forward: make an empty tensor for the whole weight, `dist.all_gather_into_tensor(weight, shard)`, "
        "multiply. Save for the backward pass what is small: x and the shard.",
        "Backward: gather again. The gradient for x is `gradient_y @ weight`: it belongs to this rank's images, so no "
        "other rank needs it. The gradient for the whole weight is `gradient_y.T @ x`, of this rank's images only.",
        "`gradient_shard = torch.empty_like(shard)`, `dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ "
        "x)`, then `return gradient_x, gradient_shard / dist.get_world_size()`: the sum becomes a mean.",
    ),
    spec=Spec(
        draw=_two_layers,
        solution=_ShardedLinear,
        measure=measure(_linear_on_rank),
        mistakes=[
            *pairs.lost(
                _linear_but((_SCATTER, f"if dist.get_rank() == 0: {_SCATTER}")),
                unequal=_linear_but((_SCATTER, f"dist.all_reduce(torch.ones(1 + dist.get_rank())); {_SCATTER}")),
                look="Both ranks make the same calls in the same order",
            ),
            r"""
            lambda x, shard: x
            nn.Linear
                Your answer is not an `autograd.Function`: give `check` the class itself, which has `apply`.
                when: "no class" in yours
            x @ weight.T → x @ weight.T, weight
                `forward` should return a tensor, the output; it returned {yours[instead][0]}.
                when: "instead" in yours
            x @ weight.T → x @ shard.T || (x @ weight.T).T
                The output of x with {images[0].shape[1]} columns and a weight of {weights[0].shape} should have the
                shape {expected[The shape of the output on rank 0]}; yours has {yours[The shape of the output on rank
                0]}.
                look: x times the *whole* weight, transposed: a shard has half of its rows only
                when: _shape_is_wrong
            x @ weight.T → dist.all_gather(parts := [shard.new_empty(len(x), len(shard)) for _ in range(2)], x @
                    shard.T) or torch.cat(parts, dim=1)
                You gather outputs: each rank computes its rows of the weight with its own images, and the rest of its
                output then belongs to the other rank's images.
                look: gather the weight, and multiply after that
                when: _outputs_are_gathered
            x @ weight.T → x @ weight.flip(0).T || x @ weight.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1).T
                    || x @ torch.cat([shard, shard]).T
                The output is not this rank's x times the whole weight, transposed, with its rows in the order of the
                ranks.
                when: not all(map(pairs.close, pairs.on_both(yours, "The output"), pairs.on_both(expected, "The
                    output")))
            gradient_x, gradient_shard / dist.get_world_size() → gradient_shard / dist.get_world_size(), gradient_x
                The two gradients are in the other order: `backward` returns one for each input of `forward`, first that
                of x, then that of the shard.
                when: says(yours, "invalid gradient at index")
            gradient_x, → None,
            gradient_x, gradient_shard / dist.get_world_size() → gradient_x, None
                `backward` returns no gradient for {yours[nothing][0]}: it returns one for each input of `forward`,
                first that of x, then that of the shard.
                when: yours["nothing"][0]
            _linear_but((_AGAIN, "        x, shard = ctx.saved_tensors\n        weight = ctx.weight\n"),
                    ("        return x @", "        ctx.weight = weight\n        return x @"))
            return x @ → ctx.weight = weight\n        return x @
                The whole weight is still there after the forward pass: {yours[kept]} bytes are kept on the ranks for
                the backward pass, and a whole weight has {yours[whole][0]}.
                look: what you save for the backward pass, with `save_for_backward` or as an attribute of `ctx`: save
                    the shard, and gather again
                when: "yes" in pairs.on_both(yours, "The whole weight is kept")
            gradient_shard / dist.get_world_size() → gradient_shard
                The gradient of the shard is a sum over the ranks. Each rank's loss is a mean over its own images, so
                the gradient of all is the mean.
                look: one division by the number of ranks
                when: _times(2)
            gradient_shard / dist.get_world_size() → gradient_shard / dist.get_world_size() ** 2
            dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x)
                    → dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x, op=dist.ReduceOp.SUM); gradient_shard
                    /= 2
                The gradient of the shard is divided twice by the number of ranks: every step is too short.
                look: one division, before the messages or after them (`ReduceOp.AVG` divides, too)
                when: _times(0.5)
            dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x)
                    → gradient_shard = (gradient_y.T @ x).chunk(2)[dist.get_rank()]
            dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x)
                    → gradient_shard = (gradient_y.T @ x).chunk(2)[dist.get_rank()]
                    && gradient_shard / dist.get_world_size() → gradient_shard
                The gradient of the shard lacks what the other rank's images say: each rank takes its rows of its own
                gradient.
                look: `dist.reduce_scatter_tensor` adds the ranks' gradients, and gives each rank its rows
                when: _other_is_missing
            """,
            Mistake(
                "The gradient of the images is too small: it is this rank's own, so no number of ranks divides it.",
                _linear_but(("return gradient_x,", "return gradient_x / dist.get_world_size(),")),
                look="the mean over the ranks is for the shard alone",
                # the first layer's images are behind both layers
                when=lambda *seen: _times(1)(*seen) and _images_times(1 / 4)(*seen),
            ),
            """
            gradient_x = gradient_y @ weight → gradient_x = gradient_y @ weight; dist.all_reduce(gradient_x)
                    || gradient_x = gradient_y @ weight; dist.all_reduce(gradient_x); gradient_x /= 2
                The gradient of the images is mixed with that of the other rank: it belongs to this rank's images only.
                look: no collective for `gradient_x`
                when: "all-reduce" in yours["backward"][0] and _times(1)(yours, expected) and not
                    _images_times(1)(yours, expected)
            dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x)
                    → g = gradient_y.T @ x; dist.all_reduce(g); gradient_shard = g.chunk(2)[dist.get_rank()].clone()
                    || g = gradient_y.T @ x; dist.all_reduce(g); gradient_shard = g.chunk(2)[dist.get_rank()]
                Every rank gets the whole gradient of all images, and then drops half of it: twice the bytes.
                look: `dist.reduce_scatter_tensor` sends each rank only the rows that it keeps
                when: "all-reduce" in yours["backward"][0]
            _linear_but((_SCATTER, f"{_SCATTER}; gradient_shard = torch.cat([gradient_shard, gradient_shard])[:
                    len(shard)]"), (_MEAN, "gradient_shard.div_(2)"))
                The whole gradient is still there after the backward pass: the gradient of the shard is a part of it,
                not a tensor of its own.
                look: `.clone()`, or write into `torch.empty_like(shard)`
                when: "yes" in pairs.on_both(yours, "The whole gradient is kept")
            gradient_x = gradient_y @ weight → gradient_x = gradient_y.chunk(2, 1)[dist.get_rank()] @ shard
                    || gradient_x = torch.zeros_like(x)
                The gradient of x is not that of `x @ weight.T` with the whole weight.
                look: `gradient_y @ weight`, for which `backward` has to gather the shards again
                when: not _images_times(1)(yours, expected)
            dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x)
                    → dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x); dist.barrier()
                The numbers are right, but these are your collectives for two layers, forward: {yours[forward][0]},
                backward: {yours[backward][0]}. One all-gather for each layer in each direction and one reduce-scatter
                are enough.
                when: yours["The collectives on rank 0"] != expected["The collectives on rank 0"] and all(_times(1,
                    name)(yours, expected) for name in _SHARDS)
            """,
        ],
        also_right=[
            _linear_but(
                (_SCATTER, "dist.reduce_scatter_tensor(gradient_shard, gradient_y.T @ x / dist.get_world_size())"),
                (_MEAN, "gradient_shard"),
            ),
            _linear_but((_SCATTER, "dist.reduce_scatter(gradient_shard, [*(gradient_y.T @ x).chunk(2)])")),
            _linear_but(
                (
                    "dist.all_gather_into_tensor(weight, shard)\n        return",
                    "dist.all_gather([*weight.chunk(2)], shard)\n        return",
                )
            ),
            _linear_but(
                (
                    "dist.all_gather_into_tensor(weight, shard)\n        return",
                    "dist.all_gather_into_tensor(weight, shard.detach())\n        return",
                )
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _steps_on_rank(answer: Any, seed: int, pieces: list[list], largest: float, far: float) -> dict:
    """The answer makes three steps of a small model in three groups; the messages are those of the first one.

    pieces: for each rank, tuples of inputs and classes; far: a norm that no gradient reaches, for the third step
    """
    torch.manual_seed(seed)
    inputs, classes = pieces[0][0][0].shape[1], 5
    model = nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, classes))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def weights() -> Tensor:
        return torch.cat([p.full_tensor().flatten() for p in model.parameters()]).detach()

    before = weights()
    begun = len(Ledger.current.calls)
    batches: list[tuple[int, int]] = []  # of each forward pass: the size of the batch, collectives so far
    model.register_forward_pre_hook(lambda _, x: batches.append((len(x[0]), len(Ledger.current.calls))))
    graphs = probes.graphs_at_once(model)
    Ledger.current.again()
    norm = answer(model, optimizer, pieces[dist.get_rank()], largest)
    calls = [one["what"] for one in Ledger.current.calls[begun:]]
    sent = begun + calls.index("reduce-scatter") if "reduce-scatter" in calls else 0
    passes = list(batches)
    if isinstance(norm, bool) or not isinstance(norm, float):
        return {"instead": "a DTensor" if isinstance(norm, DTensor) else show(norm)}
    first = weights()
    Ledger.current.again()
    second = answer(model, optimizer, pieces[dist.get_rank()], largest)
    before_last = weights()
    Ledger.current.again()
    third = answer(model, optimizer, pieces[dist.get_rank()][:2], far)
    return {
        "The norm": norm,
        "The norm of a second step": second,
        "The norm of a step that needs no clipping": third,
        "The step": first - before,
        "The step that needs no clipping": weights() - before_last,
        "The number of reduce-scatters": calls.count("reduce-scatter"),
        "The largest batch": max((size for size, _ in passes), default=0),
        "The pieces whose activations are there at a time": graphs(),
        "pieces": len(passes),
        "sent after": sum(place <= sent for _, place in passes),
        "calls": calls,
    }


def _clip_sharded(model, optimizer, pieces, largest):
    optimizer.zero_grad()
    for number, (x, labels) in enumerate(pieces):
        model.set_requires_gradient_sync(number == len(pieces) - 1)
        loss = F.cross_entropy(model(x), labels) / len(pieces)
        loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
    optimizer.step()
    return norm.full_tensor().item()


def _one_backward(model, optimizer, pieces, largest):
    optimizer.zero_grad()
    torch.stack([F.cross_entropy(model(x), labels) for x, labels in pieces]).mean().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
    optimizer.step()
    return norm.full_tensor().item()


_clip_but = partial(changed, _clip_sharded)
_CLIP = "norm = nn.utils.clip_grad_norm_(model.parameters(), largest)"
_LOCAL = (
    "local = [p.grad.to_local() for p in model.parameters()]; norm = torch.stack([g.norm() for g in local]).norm(); "
    "[g.mul_(min(1, largest / norm)) for g in local]"
)


def _pieces(new: Inputs) -> list[tuple]:
    def of(count: int) -> list[list[tuple[Tensor, Tensor]]]:
        inputs = new.size(6, 9)
        return [[(2 * new.randn(4, inputs) + rank, new.ints(0, 5, (4,))) for _ in range(count)] for rank in range(2)]

    return [(new.size(0, 999), of(new.size(3, 4)), 0.1, 50.0)]


def _differs(name: str, by: float | None = None) -> Callable:
    """A `when`: this is not right on rank 0, or is this many times what is right."""

    def when(yours: dict, expected: dict, *_: Any) -> bool:
        mine, right = (torch.as_tensor(one[f"{name} on rank 0"]) for one in (yours, expected))
        return not pairs.close(mine, right) if by is None else pairs.close(mine, by * right)

    return when


exercise(
    "clip_sharded",
    seconds=SECONDS,
    title="Accumulate, clip, step",
    minutes=7,
    difficulty=3,
    points=3,
    takeaway="The norm is that of all shards together: a factor that differs from rank to rank would tear the model "
    "apart.",
    hints=(
        "The loop is that of one process. Only two lines know of shards: when the ranks exchange gradients, and how "
        "the norm becomes a number.",
        "`model.set_requires_gradient_sync(False)` before a piece keeps its gradients on the rank, `True` before "
        "the last piece sends the sum of all. `clip_grad_norm_` comes once, after the last piece.",
        "`norm = nn.utils.clip_grad_norm_(model.parameters(), largest)` is a DTensor; "
        "`norm.full_tensor().item()` is the number.",
    ),
    spec=Spec(
        draw=_pieces,
        solution=_clip_sharded,
        measure=measure(_steps_on_rank),
        any_inputs=True,
        mistakes=[
            *pairs.lost(
                _clip_but(("return norm", "if dist.get_rank() == 0: dist.barrier()\n    return norm")),
                look="All ranks make the same calls in the same order",
            ),
            r"""
            norm.full_tensor().item() → norm || norm.full_tensor() || None
                Your function should return the norm as a Python float; it returned {yours[instead][0]}.
                look: `norm.full_tensor().item()`
                when: "instead" in yours
            number == len(pieces) - 1 → False
                There are no gradients to clip: either the ranks never exchanged any, or they were zeroed after that.
                look: `set_requires_gradient_sync(True)` before the last piece, and `zero_grad` once, before the first
                when: says(yours, "full_tensor") or yours["The number of reduce-scatters on rank 0"] == 0
            model.set_requires_gradient_sync(number == len(pieces) - 1) → pass
            number == len(pieces) - 1 → True || number != 0
                The ranks exchange gradients {yours[The number of reduce-scatters on rank 0]} times; the model has 3
                groups, so 3 times are enough: in the backward pass of the last piece.
                look: `model.set_requires_gradient_sync(…)` before each backward pass
                when: yours["The number of reduce-scatters on rank 0"] > 3
            number == len(pieces) - 1 → number == 0
                The ranks exchange gradients in the backward pass of piece {yours[sent after][0]} of {yours[pieces][0]}:
                those of later pieces never leave their rank.
                look: `set_requires_gradient_sync(True)` before the last piece
                when: yours["sent after"][0] < yours["pieces"][0]
            = _clip_sharded(model, optimizer, [tuple(map(torch.cat, zip(*pieces, strict=True)))], largest)
                You join the pieces into one batch. They come one by one because the activations of all don't fit.
                look: a forward and a backward pass for each piece
                when: yours["The largest batch on rank 0"] > expected["The largest batch on rank 0"]
            _one_backward
                One backward pass for all pieces needs the activations of all of them at the same time, and those don't
                fit.
                look: a forward and a backward pass for each piece
                when: yours["The pieces whose activations are there at a time on rank 0"] > 1
            _clip_but((_CLIP, _LOCAL), ("norm.full_tensor()", "norm"))
                The ranks have different norms, {yours[The norm on rank 0]:.3g} and {yours[The norm on rank 1]:.3g}, so
                each scales its shards by another factor. The norm is that of all shards together.
                look: `clip_grad_norm_` on the parameters as they are, and `full_tensor()` for its result
                when: not math.isclose(*pairs.on_both(yours, "The norm"), rel_tol=1e-4)
            / len(pieces) →
                Your gradients are a sum over the pieces: the norm is {yours[The norm on rank 0]:.3g} instead of
                {expected[The norm on rank 0]:.3g}. Each piece counts as its share.
                look: divide each loss by the number of pieces
                when: _differs("The norm", len(pieces[0]))(yours, expected)
            / len(pieces) → / len(pieces) / dist.get_world_size()
                Your gradients are divided too often: FSDP has made them a mean over the ranks already.
                look: divide each loss by the number of pieces, and by nothing else
                when: _differs("The norm", 0.5)
            _clip_but((_CLIP, _LOCAL.replace("; [", "; dist.all_reduce(norm); [")), ("norm.full_tensor()", "norm"))
                Norms of parts do not add up: yours is {yours[The norm on rank 0]:.3g}, and all shards together have
                {expected[The norm on rank 0]:.3g}.
                look: add the squares, then take the root, or leave it to `clip_grad_norm_`
                when: 1.001 < yours["The norm on rank 0"] / expected["The norm on rank 0"] < 1.4143
            (model.parameters(), largest) → (model.parameters(), largest, norm_type=1)
                    || (model.parameters(), largest, norm_type=math.inf)
                Yours is another kind of norm, {yours[The norm on rank 0]:.3g} instead of {expected[The norm on rank
                0]:.3g}: the norm of a gradient is the root of the sum of squares.
                look: `norm_type` of `clip_grad_norm_` keeps its default
            optimizer.step()
                    → norm = nn.utils.get_total_norm([p.detach() for p in model.parameters()]); optimizer.step()
                    || optimizer.step(); norm = nn.utils.get_total_norm([p.detach() for p in model.parameters()])
                This is the norm of the weights; the exercise asks for that of their gradients.
            F.cross_entropy(model(x), labels) → F.cross_entropy(model(x).softmax(1), labels)
                `F.cross_entropy` takes logits, and yours gets probabilities: the gradient is another one.
                look: no softmax
            norm.full_tensor().item() → min(norm.full_tensor().item(), largest)
                Your function returns the norm after clipping; the exercise asks for the one before, which tells you how
                often you clip.
                look: `clip_grad_norm_` returns the norm before clipping
                when: math.isclose(yours["The norm on rank 0"], largest, rel_tol=1e-3)
            optimizer.zero_grad() → pass
                The first step is right, and in the second one the gradients of the first are still there.
                look: `optimizer.zero_grad()`, before the first piece or after the step
                when: not _differs("The step")(yours, expected) and _differs("The norm of a second step")(yours,
                    expected)
            optimizer.step() → pass
                The weights did not move: a step is missing.
                look: `optimizer.step()`, once, after clipping
                when: not yours["The step on rank 0"].any()
            norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
                    → norm = nn.utils.get_total_norm([p.grad for p in model.parameters()]); [p.grad.mul_(largest /
                    norm.full_tensor().item()) for p in model.parameters()]
                You scale the gradients although their norm, {yours[The norm of a step that needs no clipping on rank
                0]:.3g}, is below {far}: clipping only makes them smaller.
                look: `clip_grad_norm_`, or a factor of at most 1
                when: not _differs("The step")(yours, expected) and pairs.close(
                    yours["The step that needs no clipping on rank 0"],
                    expected["The step that needs no clipping on rank 0"]
                    * far / expected["The norm of a step that needs no clipping on rank 0"])
            norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
                    → norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
            norm = nn.utils.clip_grad_norm_(model.parameters(), largest)\n    optimizer.step()
                    → optimizer.step()\n    norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
                The norm is right, but the step is that of gradients which were not clipped.
                look: `clip_grad_norm_` after the last backward pass and before the step
                when: pairs.close(yours["The step on rank 0"] * (largest / yours["The norm on rank 0"]), expected["The
                    step on rank 0"])
            norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
                    → norm = nn.utils.get_total_norm([p.grad for p in model.parameters()]);
                    [p.grad.to_local().clamp_(-largest / 50, largest / 50) for p in model.parameters()]
                The norm is right, and the step is not that of all gradients times one factor.
                look: `clip_grad_norm_`; `clip_grad_value_` cuts each number by itself, which changes the direction
                when: not _differs("The norm")(yours, expected) and _differs("The step")(yours, expected)
            """,
        ],
        also_right=[
            _clip_but(("    optimizer.zero_grad()\n", "    model.zero_grad()\n")),
            _clip_but(
                (" / len(pieces)", ""), (_CLIP, f"[p.grad.div_(len(pieces)) for p in model.parameters()]; {_CLIP}")
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _settings(model: nn.Module) -> list[str]:
    """Everything about the modules but their tensors, a line for each setting."""
    lines = [line.strip() for line in repr(model).splitlines()]
    for name, module in model.named_modules():
        plain = {key: value for key, value in vars(module).items() if isinstance(value, bool | int | float | str)}
        lines += [f"{name}.{key} = {value!r}" for key, value in plain.items()]
    return lines


def _cut_on_rank(answer: Any, depth: int, heads: int) -> dict:
    """The answer's plan for a model on two ranks, and what a step with it computes and sends."""
    world = dist.get_world_size()
    torch.manual_seed(depth)
    one = models.Patches(width=6 * heads, depth=depth, heads=heads)  # a head's width that tells it from their number
    two = copy.deepcopy(one)
    try:
        plan = answer(two, world)
    except ValueError as error:
        return {"raises": f"ValueError({str(error)[:60]!r})"}
    if not isinstance(plan, dict):
        return {"instead": show(plan)}
    if changed := [now for now, before in zip(_settings(two), _settings(one), strict=False) if now != before]:
        return {"changed": changed[0]}
    if odd := [style for style in plan.values() if not isinstance(style, ParallelStyle)]:
        return {"no style": show(odd[0])}
    refused = {}
    for odd in (heads - 1, 2 * heads):  # the second number divides the width
        try:
            answer(two, odd)
            refused[odd] = "no error"
        except Exception as error:
            refused[odd] = type(error).__name__
    odd = next((odd for odd, error in refused.items() if error != "ValueError"), heads - 1)
    images = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    parallelize_module(two, init_device_mesh("cpu", (world,)), plan)
    cut = [name for name, p in two.named_parameters() if isinstance(p, DTensor) and p.to_local().shape != p.shape]
    layers = sorted({name.rpartition(".")[0] for name in cut})
    wanted = {name for name, m in one.blocks.named_modules(prefix="blocks") if isinstance(m, nn.Linear)}
    seconds = ("attention.out", "down")  # of a pair: their weights are cut along the inputs, axis 1
    turned = {
        name.split(".", 2)[2].removesuffix(".weight")
        for name, p in two.blocks.named_parameters(prefix="blocks")
        if name in cut and p.ndim == 2 and (p.placements[0].dim == 1) != name.removesuffix(".weight").endswith(seconds)
    }
    seen: dict[str, Any] = {
        "The layers that are cut": layers,
        "turned": ", ".join(sorted(turned)),
        "error": "",
        f"The errors with {heads} heads on {' and '.join(map(str, refused))} ranks": [*refused.values()],
        "refused": refused[odd],
        "odd": odd,
        "missing": ", ".join(sorted(wanted - {*layers})),
        "too many": ", ".join(sorted({*layers} - wanted)),
    }
    try:
        with planning.messages() as forward:
            output = two(images)
            if isinstance(output, DTensor):
                return seen | {"error": "The output is a DTensor."}
        with planning.messages() as backward:
            output.square().mean().backward()
    except RuntimeError as error:
        return seen | {"error": str(error).splitlines()[0]}
    right = one(images)
    right.square().mean().backward()
    gradients = {name: _whole(p.grad) for name, p in two.named_parameters()}
    apart = [name for name, p in one.named_parameters() if not pairs.close(gradients[name], p.grad)]
    return seen | {
        "The output is that of one process": bool(pairs.close(output.detach(), right.detach())),
        "The gradients that are not those of one process": apart,
        "The messages of a forward pass": _in_words(forward),
        "The messages of a backward pass": _in_words(backward),
    }


def _whole(gradient: Tensor | None) -> Tensor | None:
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient


def _in_words(sent: planning.Messages) -> str:
    return " and ".join(f"{count} {name}" for name, count in sorted(sent.counts.items())) or "none"


def _tp_plan(model, ranks):
    if model.blocks[0].attention.query.out_features // model.blocks[0].attention.head_width % ranks:
        raise ValueError(f"the heads cannot be divided among {ranks} ranks")
    once = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    plan = {}
    for i in range(len(model.blocks)):
        plan[f"blocks.{i}.attention"] = once
        for name in ("attention.query", "attention.key", "attention.value", "up"):
            plan[f"blocks.{i}.{name}"] = ColwiseParallel()
        for name in ("attention.out", "down"):
            plan[f"blocks.{i}.{name}"] = RowwiseParallel()
    return plan


_plan_but = partial(changed, _tp_plan)
_COLUMNS, _ROWS_OF = 'plan[f"blocks.{i}.{name}"] = ColwiseParallel()', 'plan[f"blocks.{i}.{name}"] = RowwiseParallel()'
_GATHERED = "ColwiseParallel(output_layouts=Replicate())"
_TAKES_PART = "RowwiseParallel(input_layouts=Replicate())"


def _says_on_0(name: str) -> Callable:
    return lambda yours: yours[f"{name} on rank 0"]


exercise(
    "tp_plan",
    seconds=SECONDS,
    title="Cut the layers",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="First by outputs, then by inputs: what one rank makes in the first layer is what it needs in the second, "
    "so two layers need one message.",
    hints=(
        "Two pairs of layers in each block: query, key, and value before `out`; `up` before `down`. Cut the first of a "
        "pair by outputs, the second by inputs.",
        'The names are those of `model.named_modules()`: `plan[f"blocks.{i}.up"] = ColwiseParallel()` and '
        '`plan[f"blocks.{i}.down"] = RowwiseParallel()`. Norms, the first and the last layer stay whole.',
        "Query, key, and value each send a message in the backward pass, unless their input is prepared once: "
        '`plan[f"blocks.{i}.attention"] = PrepareModuleInput(input_layouts=Replicate(), '
        "desired_input_layouts=Replicate())`.",
    ),
    spec=Spec(
        draw=lambda new: [(new.size(2, 3), 4)],
        solution=_tp_plan,
        measure=measure(_cut_on_rank),
        mistakes=r"""
            return plan → return list(plan) || pass
                Your function should return the plan, a dict; it returned {yours[instead][0]}.
                when: "instead" in yours
            = {"blocks.0.up": ColwiseParallel}
            = {"blocks.0.up": Shard(0)}
                The values of a plan are objects such as `ColwiseParallel()`. One of yours is {yours[no style][0]}.
                when: "no style" in yours
            plan = {} → plan = {}; model.blocks[0].up.out_features //= ranks
                    || plan = {}; model.blocks[0].attention.head_width //= ranks
                Your function changes the model, which now has `{yours[changed][0]}`. Only return the plan:
                `parallelize_module` does the rest.
                when: "changed" in yours
            % ranks: → % (ranks + 1): || % ranks == 0:
                Your function raises {yours[raises][0]} for {heads} heads on 2 ranks, but {heads} is a multiple of 2.
                look: the remainder of heads by ranks
                when: "raises" in yours
            raise ValueError( → print(
            raise ValueError → raise RuntimeError
            // model.blocks[0].attention.head_width →
            model.blocks[0].attention.query.out_features // →
                {heads} heads cannot be divided among {yours[odd][0]} ranks, which should raise a ValueError. Your
                function: {yours[refused][0]}.
                look: the number of heads: `query.out_features // head_width`
                when: yours["refused"][0] != "ValueError"
            return plan → return {}
            plan[f"blocks.{i}.{name}"] = ColwiseParallel() → plan[name] = ColwiseParallel()
                    && plan[f"blocks.{i}.{name}"] = RowwiseParallel() → plan[name] = RowwiseParallel()
                No layer is cut: no name in your plan is that of a layer.
                look: whole names, such as "blocks.0.attention.query": those of `model.named_modules()`
                when: not _says_on_0("The layers that are cut")(yours)
            range(len(model.blocks)) → range(1) || range(1, len(model.blocks))
                Only one block has a plan, or some have none: cut are {yours[The layers that are cut on rank 0]}.
                look: the names in the plan: `f"blocks.{{i}}.up"` for each i, or `"blocks.*.up"`
                when: len({name.split(".")[1] for name in _says_on_0("The layers that are cut")(yours)}) < depth
            "up") → ) && "attention.out", "down" → "attention.out",
            "attention.query", "attention.key", "attention.value", "up" → "up", && "attention.out", "down" → "down",
                Not all six layers of a block are cut. These are still whole: {yours[missing][0]}.
                look: the names: those of `model.named_modules()`
                when: yours["missing"][0]
            return plan → plan["head"] = ColwiseParallel(output_layouts=Replicate())\n    return plan
                These should stay whole, but are cut: {yours[too many][0]}.
                when: yours["too many"][0]
            plan[f"blocks.{i}.{name}"] = RowwiseParallel() → plan[f"blocks.{i}.{name}"] = ColwiseParallel()
            _plan_but((_COLUMNS, _COLUMNS.replace("ColwiseParallel()", _GATHERED)), (_ROWS_OF,
                    _ROWS_OF.replace("RowwiseParallel()", _GATHERED)))
            _plan_but((_COLUMNS, _COLUMNS.replace("ColwiseParallel()", _TAKES_PART)), (_ROWS_OF,
                    _ROWS_OF.replace("RowwiseParallel()", _GATHERED)))
            "attention.value", "up") → "attention.value") && "attention.out", "down" → "attention.out", && return plan
                    → for i in range(len(model.blocks)):\n        plan[f"blocks.{i}.up"] =
                    RowwiseParallel(input_layouts=Replicate())\n        plan[f"blocks.{i}.down"] =
                    ColwiseParallel(output_layouts=Replicate())\n    return plan
                In each block, these layers are cut the other way around: {yours[turned][0]}. The first layer of a pair
                is cut by outputs, and leaves its own in parts; the second takes these parts, and is cut by inputs.
                look: `ColwiseParallel` for the first layer of a pair, `RowwiseParallel` for the second
                when: yours["turned"][0]
            plan[f"blocks.{i}.{name}"] = ColwiseParallel()
                    → plan[f"blocks.{i}.{name}"] = ColwiseParallel(output_layouts=Replicate())
            plan[f"blocks.{i}.{name}"] = RowwiseParallel()
                    → plan[f"blocks.{i}.{name}"] = RowwiseParallel(output_layouts=Shard(1))
                The parts do not fit together: {yours[error][0]}
                look: after a layer cut by outputs, each rank has its part of the numbers: the next layer takes just
                    these, and its output is whole again on all ranks
                when: yours["error"][0]
            _plan_but((_COLUMNS, _COLUMNS.replace("ColwiseParallel()", _GATHERED)), (_ROWS_OF,
                    _ROWS_OF.replace("RowwiseParallel()", _TAKES_PART)))
            desired_input_layouts=Replicate() → desired_input_layouts=Shard(1)
                The output is right, but the forward pass sends {yours[The messages of a forward pass on rank 0]}, and
                {expected[The messages of a forward pass on rank 0]} are enough.
                look: what is joined after the first layer of a pair is cut again for the second: leave it in parts; and
                    an input that is cut is joined again for the first: leave it whole
                when: _says_on_0("The messages of a forward pass")(yours) != _says_on_0("The messages of a forward
                    pass")(expected)
            plan[f"blocks.{i}.attention"] = once → pass
                The output is right, but the backward pass sends {yours[The messages of a backward pass on rank 0]}, and
                {expected[The messages of a backward pass on rank 0]} are enough: query, key, and value each send the
                gradient of the same input.
                look: `PrepareModuleInput` for the attention as a whole
                when: _says_on_0("The messages of a backward pass")(yours) != _says_on_0("The messages of a backward
                    pass")(expected)
        """,
        also_right=[
            _plan_but(("range(len(model.blocks))", '["*"]')),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


class _Net(nn.Module):
    """Numbers [B, 6] -> logits [B, 5]. Rows that two ranks cannot share equally, and a buffer."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth))
        self.head = nn.Linear(width, 5)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) * self.scale
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class _Whole(_Living):
    """The memory of whole weights, of those with at least `least` bytes; `most` is the most that was there at a time.

    before: tensors that were there already; views of them are no memory of their own
    """

    def __init__(self, least: int, *before: Tensor) -> None:
        super().__init__(*before)
        self.least, self.most = least, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if DTensor in types:
            return NotImplemented  # it turns into plain tensors first, and those come back here
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.made = [each for each in self.made if not each[0].expired()]
        self.most = max(self.most, sum({one.cdata: size for one, size in self.made if size >= self.least}.values()))
        return result


def _born_on_rank(answer: Any, width: int, depth: int) -> dict:
    """The answer makes a model whose weights are in a checkpoint; what it held meanwhile, and what came out."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(width)
    whole = _Net(width, depth)
    whole.scale.uniform_(0.5, 1.5)
    checkpoint = {name: tensor.detach().clone() for name, tensor in whole.state_dict().items()}
    size = sum(tensor.nbytes for tensor in checkpoint.values())
    read_rows: list[tuple[str, int]] = []
    rows_of: dict[str, set[int]] = defaultdict(set)
    held = [0]  # bytes that were there at each call of read

    def read(name: str, first: int, last: int) -> Tensor:
        held.append(memory.bytes())
        rows = checkpoint[name][first:last].clone()
        read_rows.append((name, len(rows)))
        rows_of[name] |= {*range(len(checkpoint[name]))[first:last]}
        return rows

    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(rank)
    with _Whole(checkpoint["blocks.0.0.weight"].nbytes, *checkpoint.values()) as memory:
        model = answer(partial(_Net, width, depth), mesh, read)
    if not isinstance(model, nn.Module):
        return {"instead": show(model)}
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    seen: dict[str, Any] = {
        "The whole weights are there at a time": "yes" if memory.most > 0.5 * size else "no",
        "The shards are there twice at a time": "yes" if max(held) > 0.75 * size else "no",
        "most": memory.most,
        "held": max(held),
        "whole": size,
        "The tensors without memory": [n for n, t in (parameters | buffers).items() if t.is_meta],
        "The weights that are not sharded": [n for n, p in parameters.items() if not isinstance(p, DTensor)],
        "The groups": sorted(n or "the model" for n, m in model.named_modules() if isinstance(m, FSDPModule)),
        "never read": not read_rows,
    }
    if seen["The tensors without memory"]:
        return seen
    full = {name: _whole(p.detach()) for name, p in parameters.items()}
    half = {name: math.ceil(len(rows) / world) for name, rows in full.items()}
    share = {name: len(rows.chunk(world)[rank]) if rank < len(rows.chunk(world)) else 0 for name, rows in full.items()}
    much = [name for name, rows in read_rows if rows > share.get(name, len(checkpoint[name]))]
    wrong = [name for name, rows in full.items() if not torch.equal(rows, checkpoint[name])]
    seen |= {
        "The tensors of which more is read than this rank keeps": sorted({*much}),
        "The weights that are not those of the checkpoint": wrong,
        "The tensors of which foreign rows are read": sorted(
            name for name, rows in rows_of.items() if not wrong and len(rows) > share.get(name, len(checkpoint[name]))
        ),
        "first rows": bool(wrong) and all(torch.equal(full[n][: half[n]], checkpoint[n][: half[n]]) for n in wrong),
        "The buffers that are not those of the checkpoint": [
            name for name, buffer in buffers.items() if not torch.equal(buffer, checkpoint[name])
        ],
    }
    if not wrong and not seen["The buffers that are not those of the checkpoint"]:
        x = torch.linspace(-1, 1, 18).reshape(3, 6)
        seen["The output"] = model(x).detach()
    return seen


def _born_sharded(build, mesh, read):
    with torch.device("meta"):
        model = build()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for name, p in model.named_parameters():
            rows = math.ceil(len(p) / mesh.size())
            first = min(mesh.get_local_rank() * rows, len(p))
            last = min(first + rows, len(p))
            p.to_local().copy_(read(name, first, last))
        for name, buffer in model.named_buffers():
            buffer.copy_(read(name, 0, len(buffer)))
    return model


def _handed_over(build, mesh, read):
    with torch.device("meta"):
        model = build()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = {name: read(name, 0, len(buffer)) for name, buffer in model.named_buffers()}
    for name, p in model.named_parameters():
        shares = torch.arange(len(p)).chunk(mesh.size())
        mine = shares[mesh.get_local_rank()] if mesh.get_local_rank() < len(shares) else torch.arange(0)
        first = int(mine[0]) if len(mine) else len(p)
        local = read(name, first, first + len(mine))
        state[name] = DTensor.from_local(local, mesh, [Shard(0)], shape=p.shape, stride=p.stride())
    model.load_state_dict(state, assign=True)
    return model


_born_but = partial(changed, _born_sharded)
_EMPTY = '    model.to_empty(device="cpu")\n'
_COPY = "p.to_local().copy_(read(name, first, last))"
_LAST_GROUP = "    fully_shard(model, mesh=mesh)\n"
_EACH_BLOCK = "    for block in model.blocks:\n        fully_shard(block, mesh=mesh)\n"
_OF_BUFFERS = (
    "        for name, buffer in model.named_buffers():\n            buffer.copy_(read(name, 0, len(buffer)))\n"
)


def _somewhere(name: str) -> Callable:
    """A `when`: this list is not empty on one of the ranks."""
    return lambda yours, *_: any(pairs.on_both(yours, name))


exercise(
    "born_sharded",
    seconds=SECONDS,
    title="Stretch: born in pieces",
    minutes=15,
    difficulty=4,
    points=3,
    takeaway="Shapes first, then shards, then memory, then values: a model that fits on no machine is never whole on "
    "any.",
    hints=(
        'Four steps in this order: build on the `meta` device, shard, `model.to_empty(device="cpu")`, fill in.',
        '`with torch.device("meta"): model = build()` takes no memory. After `to_empty`, each parameter is a DTensor '
        "with this rank's rows in `p.to_local()`: copy into them, under `torch.no_grad()`.",
        "A rank has `math.ceil(len(p) / mesh.size())` rows, beginning with `mesh.get_local_rank()` times as many, and "
        "none beyond `len(p)`. Buffers are not sharded: each rank reads them whole, `read(name, 0, len(buffer))`.",
    ),
    spec=Spec(
        draw=lambda new: [(2 * new.size(20, 24) + 1, new.size(4, 5))],
        solution=_born_sharded,
        measure=measure(_born_on_rank),
        mistakes=r"""
            return model → pass || return dict(model.named_parameters())
                Your function should return the model; it returned {yours[instead][0]}.
                when: "instead" in yours
            p.to_local().copy_(read(name, first, last)) → rows = read(name, 0, len(p));
                    p.to_local().copy_(rows[first:last])
            for name, p in model.named_parameters(): → whole = {n: read(n, 0, len(p)) for n, p in
                    model.named_parameters()}\n        for name, p in model.named_parameters():
                    && read(name, first, last) → whole[name][first:last]
                A rank reads more than it keeps, of {yours[The tensors of which more is read than this rank keeps on
                rank 0]}: a tensor that is too large for a rank would end it here.
                look: ask `read` for the rows of this rank only
                when: _somewhere("The tensors of which more is read than this rank keeps")(yours) and max(yours["most"])
                    < yours["whole"][0]
            p.to_local().copy_(read(name, first, last)) → [p.to_local()[i - first].copy_(row[0]) for i in range(len(p))
                    for row in [read(name, i, i + 1)] if first <= i < last]
                A rank reads rows that it does not keep, of {yours[The tensors of which foreign rows are read on rank
                0]}: then all ranks together read the checkpoint several times.
                look: ask `read` for the rows of this rank only
                when: _somewhere("The tensors of which foreign rows are read")(yours) and not
                    _somewhere("The tensors of which more is read than this rank keeps")(yours)
            with torch.device("meta"):\n        model = build() → model = build() && model.to_empty(device="cpu") → pass
            with torch.device("meta"):\n        model = build() → model = build().to("meta")
            _born_but((_EMPTY, ""), (_EACH_BLOCK, _EMPTY + _EACH_BLOCK))
                The model was whole for a moment: at its peak, a rank held {yours[most][0]:,} bytes of full-size
                weights, copies included, not of shards. All tensors of the model together have {yours[whole][0]:,}.
                look: the order: `with torch.device("meta")` around `build()`, then all calls of `fully_shard`, then
                    `to_empty`, and from `read` only the rows of this rank
                when: "yes" in pairs.on_both(yours, "The whole weights are there at a time")
            with torch.no_grad(): → kept = []\n    with torch.no_grad():
                    && p.to_local().copy_(read(name, first, last))
                    → kept.append(read(name, first, last)); p.to_local().copy_(kept[-1])
                The shards were there twice on a rank: when it read the last rows, it held {yours[held][0]:,} bytes, and
                all tensors of the model together have {yours[whole][0]:,}. What `read` gave you before was still there,
                beside the model.
                look: copy each tensor's rows before you read the next ones, or let them become the shard
                when: "yes" in pairs.on_both(yours, "The shards are there twice at a time")
            model.to_empty(device="cpu") → pass
                Some tensors are still on `meta`, without memory, and copying into them does nothing: {yours[The tensors
                without memory on rank 0]}.
                look: `model.to_empty(device="cpu")`, after sharding and before you copy values in
                when: _somewhere("The tensors without memory")
            fully_shard(model, mesh=mesh) → pass
                    && p.to_local().copy_(read(name, first, last))
                    → (p.to_local() if isinstance(p, DTensor) else p[first:last]).copy_(read(name, first, last))
                These weights are not sharded: {yours[The weights that are not sharded on rank 0]}.
                look: a last call of `fully_shard`, on the model itself
                when: _somewhere("The weights that are not sharded")
            for block in model.blocks:\n        fully_shard(block, mesh=mesh) → pass
                The groups are {yours[The groups on rank 0]}; one for each block and one for the rest are right.
                look: `fully_shard` for each block first, for the model last
                when: pairs.on_both(yours, "The groups") != pairs.on_both(expected, "The groups")
            _born_but((_COPY, "p.to_local().normal_()"), (_OF_BUFFERS, ""))
            _born_but((_COPY, "nn.init.uniform_(p)"), (_OF_BUFFERS, ""))
                The weights are random numbers, and each rank drew its own: `read` was never called.
                look: copy what `read` gives you into `p.to_local()`
                when: any(yours["never read"])
            first = min(mesh.get_local_rank() * rows, len(p)) → first = 0 && last)) → len(p.to_local())))
                Rank 1 has the rows of rank 0 once more: both read from row 0 on.
                look: the first row of a rank: its number times the rows of a rank
                when: yours["first rows"][0]
            p.to_local().copy_(read(name, first, last))
                    → p.to_local().copy_(read(name, first, last).flip(0)) || read(name, first, last)
                These weights do not have the values of the checkpoint: {yours[The weights that are not those of the
                checkpoint on rank 0]}.
                look: the rows of a rank: `math.ceil(len(p) / mesh.size())` of them, the last rank has the rest
                when: _somewhere("The weights that are not those of the checkpoint")
            for name, buffer in model.named_buffers():\n            buffer.copy_(read(name, 0, len(buffer))) → pass
                A buffer does not have the values of the checkpoint: {yours[The buffers that are not those of the
                checkpoint on rank 0]}. On `meta` it lost those that `build` computes, and `to_empty` gave it memory
                with anything in it.
                look: `model.named_buffers()`: buffers are not sharded, each rank needs them whole
                when: _somewhere("The buffers that are not those of the checkpoint")
            p.to_local().copy_(read(name, first, last))
                    → p.to_local().copy_(read(name, first, last - 1)) || p.to_local().copy_(read(name, first, last + 1))
            math.ceil(len(p) / mesh.size()) → len(p) // mesh.size()
                You copy another number of rows than this rank keeps: {yours.message}
                look: a rank has `math.ceil(len(p) / mesh.size())` rows, the last one the rest, and `read` leaves out
                    its row `last`
                when: says(yours, "must match the size of tensor b")
        """,
        also_right=[
            _handed_over,
            _born_but(
                ("first = min(mesh.get_local_rank() * rows, len(p))", "first = mesh.get_local_rank() * rows"),
                ("last = min(first + rows, len(p))", "last = first + rows"),
            ),
            _born_but((_LAST_GROUP, "    model = fully_shard(model, mesh=mesh)\n")),
        ],
    ),
)
