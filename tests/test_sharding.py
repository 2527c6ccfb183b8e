"""The sums of chapter 10 against real DTensors of a world of eight, the pipeline against its formula."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from torchcourse import CourseError, distributed, models
from torchcourse.cluster import planning
from torchcourse.commands import cli
from torchcourse.lectures import sharding

POLICIES = {
    "fp32": MixedPrecisionPolicy(),
    "mixed": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    "bf16": MixedPrecisionPolicy(),
}


class Blocks(nn.Module):
    """Blocks and nothing else: the root has no weights of its own, sizes divide by eight."""

    def __init__(self, depth=6, width=64):
        super().__init__()
        self.blocks = nn.ModuleList(models.PatchBlock(width, 8) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def local_bytes(tensors):
    return sum((t.to_local() if isinstance(t, DTensor) else t).nbytes for t in tensors)


@pytest.mark.parametrize(
    "kind, precision, ranks", [("zero2", "fp32", 8), ("zero2", "bf16", 8), ("fsdp", "mixed", 8), ("fsdp", "fp32", 1)]
)
def test_sums_agree_with_real_tensors(kind, precision, ranks):
    """One step of a real model: bytes that rank 0 holds, and its messages."""
    with planning.fake_world(ranks) as mesh:
        model = Blocks().to(torch.bfloat16 if precision == "bf16" else torch.float32)
        count = sum(p.numel() for p in model.parameters())
        for module in (*model.blocks, model):
            fully_shard(module, mesh=mesh, mp_policy=POLICIES[precision], reshard_after_forward=kind == "fsdp")
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        images = torch.randn(2, 4, 64, dtype=next(model.parameters()).dtype)
        with planning.messages() as seen:
            model(images).sum().backward()
        optimizer.step()
        parameters = list(model.parameters())
        states = [s for state in optimizer.state.values() for name, s in state.items() if name != "step"]
        held = [local_bytes(parameters), local_bytes(p.grad for p in parameters), local_bytes(states)]
    holds = sharding.footprint(count, ranks, kind, precision, blocks=6)
    assert [holds.weights, holds.gradients, holds.optimizer] == held
    if ranks == 1:
        assert holds.total == 16 * count
        return
    messages = {message.name: message for message in sharding.sent(count, ranks, kind, precision, blocks=6)}
    # The blocks hold everything here, so the root is no group of its own.
    assert {name: message.count - 1 for name, message in messages.items()} == seen.counts
    assert {name: message.bytes for name, message in messages.items()} == seen.bytes
    assert messages["all-gather"].sent == 7 / 8 * seen.bytes["all-gather"]


class Chain(Blocks):
    """Layers in a row, each with a weight that is large beside its activations."""

    def __init__(self, depth, dtype, width=256):
        nn.Module.__init__(self)
        self.blocks = nn.ModuleList(nn.Linear(width, width, bias=False, dtype=dtype) for _ in range(depth))


@pytest.mark.parametrize(
    "kind, precision, depth", [("fsdp", "fp32", 6), ("fsdp", "mixed", 1), ("fsdp", "bf16", 2), ("zero2", "mixed", 4)]
)
def test_the_planned_peak_is_that_of_a_step(kind, precision, depth, ranks=64):
    """PyTorch's own tracker follows a step: prefetched weights, gradients, and messages on their way included."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    with planning.fake_world(ranks) as mesh, planning.fake_tensors():
        model = Chain(depth, dtype)
        for module in (*model.blocks, model):
            fully_shard(module, mesh=mesh, mp_policy=POLICIES[precision], reshard_after_forward=kind == "fsdp")
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        images = torch.randn(1, 256, dtype=dtype)
        for _ in range(2):  # in the second one, the optimizer's state is there from the beginning
            with planning.memory(model, optimizer, images) as held:
                model(images).sum().backward()
                optimizer.step()
            optimizer.zero_grad()
        count = sum(p.numel() for p in model.parameters())
        block = 256 * 256 * dtype.itemsize
    planned = sharding.footprint(count, ranks, kind, precision, blocks=depth).total
    # Activations come on top, and at the peak some blocks have no sharded gradient yet.
    assert planned == pytest.approx(held.total, abs=(0.04 + depth / ranks) * block)


def test_ddp_has_no_more_messages_than_planned():
    with distributed.setup("gloo", alone=True):
        ddp = DistributedDataParallel(nn.Sequential(*(nn.Linear(1500, 1500) for _ in range(9))))
        for _ in range(2):  # the buckets are built anew after the first step
            with planning.messages() as seen:
                F.relu(ddp(torch.rand(1, 1500))).sum().backward()
    (planned,) = sharding.sent(sum(p.numel() for p in ddp.parameters()), 2, "ddp")
    sent = seen.counts["all-reduce"]
    assert planned.at_most and sent <= planned.count <= sent + 3 and seen.bytes["all-reduce"] == planned.bytes
    assert planned.sent == planned.bytes  # 2 (N - 1) / N with two ranks


def test_fewest_is_the_smallest_number_that_fits():
    def fits(ranks, size, device, kind, precision):
        return sharding.footprint(size, ranks, kind, precision).total <= 0.9 * device

    for case in itertools.product((1e9, 7e9, 70e9), (40e9, 141e9), sharding.KINDS, sharding.PRECISIONS):
        devices = sharding.fewest(*case)
        if devices is None:
            assert not any(fits(2**power, *case) for power in range(20))
        else:
            assert fits(devices, *case) and (devices == 1 or not fits(devices - 1, *case))
    assert sharding.fewest(7e9, 40e9, activations=20e9) > sharding.fewest(7e9, 40e9)
    assert sharding.fewest(7e9, 40e9, activations=36e9) is None


def test_wrong_questions_are_one_sentence():
    for wrong in ({"kind": "zero3"}, {"precision": "int8"}, {"ranks": 0}, {"parameters": 0}):
        with pytest.raises(CourseError, match=r"There is no|must be at least 1"):
            sharding.footprint(**{"parameters": 1e9, **wrong})
    with pytest.raises(CourseError, match="GPipe"):
        sharding.pipeline(2, 2, "Zigzag")


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 1), (4, 8), (5, 3)])
@pytest.mark.parametrize("schedule", ["GPipe", "1F1B"])
def test_pipeline(schedule, stages, microbatches):
    jobs = sharding.pipeline(stages, microbatches, schedule)
    assert len(jobs) == 2 * stages * microbatches
    end = {(job.kind, job.stage, job.microbatch): job.end for job in jobs}
    for job in jobs:
        before = ("F", job.stage - 1, job.microbatch) if job.kind == "F" else ("B", job.stage + 1, job.microbatch)
        assert job.start >= end.get(before, 0)
        assert job.kind == "F" or job.start >= end["F", job.stage, job.microbatch]
    for stage in range(stages):
        own = sorted((job.start, job.end) for job in jobs if job.stage == stage)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(own))
    assert sharding.idle_share(jobs) == pytest.approx((stages - 1) / (microbatches + stages - 1))
    most = [microbatches] * stages if schedule == "GPipe" else [min(microbatches, stages - s) for s in range(stages)]
    assert sharding.held(jobs) == most


def rows_of(text):
    return {line[:22].strip(): line[22:].split() for line in text.splitlines() if line.startswith("  ")}


def test_plan_prints_what_the_sums_say(capsys):
    def plan(*words):
        assert cli.main(["plan", *words]) == 0
        return capsys.readouterr().out

    rows = rows_of(plan("7B", "--ranks", "16", "--precision", "fp32", "--blocks", "40"))
    holds = sharding.footprint(7e9, 16, "fsdp", "fp32", blocks=40)
    assert float(rows["at the peak"][0]) == pytest.approx(holds.total / 1e9, abs=0.01)
    assert rows["all-gather"] == ["81", "52.50"] and rows["reduce-scatter"] == ["41", "26.25"]
    assert [rows[f"{size} GB"] for size in (40, 80, 141)] == [["4"], ["2"], ["1"]]
    for kind in sharding.KINDS:
        out = plan("79594", "--sharding", kind, "--ranks", "8", "--blocks", "4")
        assert "79,594 parameters" in out and "0.00\n" not in out.replace("whole, for a moment        0.00", "")
    assert "one rank" in plan("1B", "--ranks", "1")


def test_plan_refuses_what_is_no_number(capsys):
    for wrong in (["7X"], ["-3"], ["inf"], ["7B", "--ranks", "two"], ["7B", "--activations", "nan"]):
        with pytest.raises(SystemExit) as stop:
            cli.main(["plan", *wrong])
        assert stop.value.code == 2 and "is no" in capsys.readouterr().err
    assert cli.main(["plan", "7B", "--sharding", "zero9"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
