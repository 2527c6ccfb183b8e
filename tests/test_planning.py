"""Planning without processes and without memory: it agrees with real tensors, and says what is missing."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from torchcourse import CourseError, distributed, models
from torchcourse.cluster import planning


@pytest.mark.parametrize("name", planning.NAMES)
def test_a_private_name_of_pytorch_is_there_or_missed_in_one_sentence(name, monkeypatch):
    assert isinstance(planning.private(name), type)
    monkeypatch.setitem(planning.NAMES, name, "torch.no_such_module")
    with pytest.raises(CourseError, match=f"has no torch.no_such_module.{name}"):
        planning.private(name)


def sharded(mesh):
    model = models.Patches(width=64, heads=8)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def a_step(model):
    model(torch.randn(2, 1, 28, 28)).sum().backward()


def test_worlds_one_after_another_and_in_two_dimensions():
    with planning.fake_world(8) as mesh:
        assert (dist.get_rank(), dist.get_world_size(), mesh.size()) == (0, 8, 8)
        weight = sharded(mesh).blocks[0].up.weight
        assert isinstance(weight, DTensor) and tuple(weight.shape) == (128, 64)
        assert tuple(weight.to_local().shape) == (16, 64)
    with pytest.raises(ZeroDivisionError), planning.fake_world(2):
        with pytest.raises(CourseError, match="process group already"), planning.fake_world(4):
            pass
        raise ZeroDivisionError
    with planning.fake_world(2, 4, names=("data", "model")) as mesh:
        assert mesh["model"].size() == 4 and mesh["data"].size() == 2
    assert not dist.is_initialized()


@pytest.mark.filterwarnings("error")
def test_messages_of_fully_shard_with_their_bytes():
    with planning.fake_world(8) as mesh:
        model = sharded(mesh)
        with planning.messages() as seen:
            a_step(model)
        groups = [list(block.parameters()) for block in model.blocks]
        root = [p for name, p in model.named_parameters() if not name.startswith("blocks")]
        local = [sum(p.to_local().numel() for p in group) for group in (*groups, root)]
        with planning.messages() as four:
            for piece in range(4):
                model.set_requires_gradient_sync(piece == 3)
                a_step(model)
    assert seen.counts == {"all-gather": 9, "reduce-scatter": 5}
    assert seen.bytes["reduce-scatter"] == 8 * 4 * sum(local)  # padded: rank 0 has the most
    assert seen.bytes["all-gather"] == 8 * 4 * (2 * sum(local[:-1]) + local[-1])  # the root is gathered once
    assert "9 all-gather" in str(seen)
    assert four.counts == {"all-gather": 36, "reduce-scatter": 5}


@pytest.mark.filterwarnings("ignore")  # about CommDebugMode's own hooks
def test_messages_are_those_that_pytorch_counts():
    with planning.fake_world(8) as mesh:
        model = models.Patches(width=64, heads=8)
        for block in model.blocks:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        with planning.messages() as ours:
            a_step(model)
        with CommDebugMode() as theirs:
            a_step(model)
    assert sum(ours.counts.values()) == theirs.get_total_counts() > 0
    assert sorted(ours.counts.values()) == sorted(theirs.get_comm_counts().values())


def test_messages_of_ddp_in_a_real_group():
    with distributed.setup("gloo", alone=True):
        ddp = DistributedDataParallel(nn.Linear(8, 8))
        with planning.messages() as seen:
            ddp(torch.randn(2, 8)).sum().backward()
        with planning.messages() as none:
            torch.ones(2) + 1
    assert seen.counts["all-reduce"] == 1 and seen.bytes["all-reduce"] == 4 * 72
    assert not none.counts and str(none) == "no messages"


def peak(shard=False, checkpointed=False):
    with planning.fake_world(8) as mesh, planning.fake_tensors():
        model = models.Patches(width=64, heads=8)
        for block in model.blocks:
            if checkpointed:
                block.forward = lambda x, forward=block.forward: checkpoint(forward, x, use_reentrant=False)
            if shard:
                fully_shard(block, mesh=mesh)
        if shard:
            fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        images = torch.randn(256, 1, 28, 28)
        with planning.memory(model, optimizer, images) as held:
            model(images).sum().backward()
            optimizer.step()
        local = sum((p.to_local() if shard else p).nbytes for p in model.parameters())
    return held, local


def test_the_peak_of_a_step_without_memory():
    plain, weights = peak()
    assert plain.peak["weights"] == weights and plain.peak["activations"] > 10 * weights
    assert plain.total == sum(plain.peak.values())
    saved, _ = peak(checkpointed=True)
    assert saved.total < plain.total / 2
    shards, local = peak(shard=True)
    assert local < weights / 7
    assert local < shards.peak["weights"] < weights  # shards, and what is whole at that moment
