"""The ledger of collectives: what it sees, and what it says when ranks disagree."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from labcheck import ranks
from labcheck.collectives import Ledger, details, sentence

LEFT = {"what": "left", "number": 3}
WAITS = {"what": "all-reduce", "shapes": [[3, 4]], "dtypes": ["float32"], "number": 3, "line": 7, "source": "send(x)"}


def test_a_mismatch_says_who_waits_for_whom():
    assert sentence([WAITS, LEFT]).startswith("Rank 0 waits for rank 1 in an all-reduce of shape (3, 4)")
    assert "rank 0 has stopped with an error" in sentence([{"what": "raised", "number": 3}, WAITS])
    other = {"what": "barrier", "shapes": [], "dtypes": [], "number": 3}
    assert "rank 0 in an all-reduce of shape (3, 4) and rank 1 in a barrier: a deadlock" in sentence([WAITS, other])
    longer = WAITS | {"shapes": [[5]], "dtypes": ["int64"]}
    assert "rank 0 brings shape (3, 4), rank 1 brings shape (5,), int64" in sentence([WAITS, longer])
    text = details([WAITS, LEFT])
    assert "collective 3 is an all-reduce of shape (3, 4) (line 7: `send(x)`)" in text
    assert "rank 1: left after 2 collectives" in text


def test_sees_collectives_of_every_kind_but_no_messages_between_two():
    def everything():
        rank, x = dist.get_rank(), torch.ones(3)
        replica = DistributedDataParallel(nn.Linear(3, 2))
        made = len(Ledger.current.calls)
        replica(torch.randn(4, 3)).sum().backward()
        dist.broadcast(x, 0)
        dist.barrier()
        dist.all_gather_object([None, None], rank)
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        alone = dist.new_group([0])  # a group of one: no other rank has to take part
        if rank == 0:
            dist.all_reduce(x, group=alone)
        return [(call["what"], call["shapes"]) for call in Ledger.current.calls[made:]]

    for seen in ranks.run(everything).values:
        assert seen[0] == ("all-reduce", [[8]])  # in the backward pass, one bucket: 6 weights, 2 biases
        words = [word for word, _ in seen[1:]]
        assert words[:2] == ["broadcast", "barrier"]
        assert set(words[2:]) <= {"all-gather", "all-reduce"} and "all-gather" in words


def test_every_rank_learns_of_a_mismatch_at_once():
    def differ():
        dist.all_reduce(torch.ones(3, dtype=torch.int64 if dist.get_rank() else torch.float32))

    outcome = ranks.run(differ)
    assert [rank.status for rank in outcome] == ["waiting"] * 2
    assert "different tensors" in outcome.sentence() and "int64" in outcome.sentence()


def test_sees_collectives_inside_an_operation_on_dtensors():
    def product():
        mesh = DeviceMesh("cpu", range(2))
        a, b = (distribute_tensor(torch.ones(4, 4), mesh, [Shard(dim)]) for dim in range(2))
        if dist.get_rank() == 0:
            a @ b

    outcome = ranks.run(product, timeout=300)  # noticed long before the limit
    assert [rank.status for rank in outcome] == ["waiting", "returned"]
    assert "Rank 0 waits for rank 1 in an all-gather of shape (4, 2)" in outcome.sentence()
    assert "`a @ b`" in outcome.details()
