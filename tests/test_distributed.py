"""`distributed.setup()`: who am I, what is missing, what contradicts itself; Slurm's lists of hosts; teardown."""

import contextlib
import random
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from labcheck import ranks
from torchcourse import distributed
from torchcourse.errors import CourseError

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "4711",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "6",
    "SLURM_JOB_NODELIST": "node[03-05,9],login",
}


def test_slurm_variables():
    world = distributed._from_slurm(SLURM)
    assert (world.rank, world.size, world.local_rank) == (5, 6, 1)
    host, port = world.address
    assert host == "node03" and 1024 < port < 32768, "above, Linux hands ports out itself"
    assert distributed._from_slurm(SLURM | {"SLURM_PROCID": "0"}).address == (host, port), "all tasks find one port"
    assert distributed._from_slurm(SLURM | {"SLURM_JOB_ID": "4712"}).address != (host, port)
    chosen = SLURM | {"MASTER_ADDR": "elsewhere", "MASTER_PORT": "1234"}
    assert distributed._from_slurm(chosen).address == ("elsewhere", 1234)
    for hosts, first in (
        ("node03", "node03"),
        ("node[7,9-12],login", "node7"),
        ("a-1,b-2", "a-1"),
        ("rack2-node[001-100]-ib", "rack2-node001-ib"),
        ("n1.cluster.org,n2.cluster.org", "n1.cluster.org"),
    ):
        assert distributed._first_host(hosts) == first


# What Slurm 22.05 sets for three tasks. Who waits for others where there are none waits for half an hour.
STARTED = {
    "salloc": ({}, None),
    "batch script or OnDemand": ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}, None),
    "interactive step": ({"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}, (0, 1, None)),
    "srun": ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3"}, (0, 3, "n1")),
    "srun of fewer tasks": ({"SLURM_STEP_ID": "1", "SLURM_STEP_NUM_TASKS": "2"}, (0, 2, "n1")),
    "no count of the step": ({"SLURM_STEPID": "0"}, (0, 3, "n1")),
}


@pytest.mark.parametrize("started", STARTED)
def test_who_is_a_task_of_slurm(started):
    sets, world = STARTED[started]
    if "SLURM_STEP_ID" in sets or "SLURM_STEPID" in sets:
        sets = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": "n1"} | sets
    found = distributed._from_slurm({"SLURM_NTASKS": "3"} | sets)
    assert (found and (found.rank, found.size, found.address and found.address[0])) == world


def test_contradictions_are_said():
    for change, words in (
        ({"RANK": "4"}, "RANK is 4, but WORLD_SIZE is 4"),
        ({"MASTER_ADDR": "", "MASTER_PORT": ""}, "MASTER_ADDR and MASTER_PORT not"),
    ):
        with pytest.raises(CourseError, match=words):
            distributed._from_torchrun(TORCHRUN | change)


def test_one_process_of_its_own_must_be_asked_for(monkeypatch):
    for name in (*TORCHRUN, *SLURM, "SLURM_STEPID"):  # no launcher has started us
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_ADDR", "node1")  # job scripts export it for every process: it means nothing alone
    with pytest.raises(CourseError, match="torchrun"):
        distributed.setup()
    with pytest.raises(KeyError), distributed.setup(alone=True) as me:
        assert (me.rank, me.world_size, me.is_main) == (0, 1, True)
        ones = torch.ones(2, device=me.device)
        dist.all_reduce(ones)
        assert ones.tolist() == [1, 1]
        with pytest.raises(CourseError, match="already"):
            distributed.setup(alone=True)
        raise KeyError
    assert not dist.is_initialized()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the names of threads from /proc")
def test_importing_it_is_cheap_and_no_thread_outlives_the_group():
    """Every notebook imports it, so it loads nothing but what PyTorch has loaded anyway; a thread that still holds a
    tensor when Python ends would abort the process.
    """
    code = """
import os, sys, torch, torch.distributed as dist
before = set(sys.modules)
from torchcourse import distributed
distributed.register()
print(*sorted(set(sys.modules) - before))

def threads():
    return [open(f"/proc/self/task/{number}/comm").read().strip() for number in os.listdir("/proc/self/task")]

with distributed.setup("gloo", alone=True):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # the first one imports much
    dist.all_reduce(torch.ones(1))
    print(any("gloo" in name for name in threads()))
print(any("gloo" in name for name in threads()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    new, *gloo = done.stdout.splitlines()
    needed = ["distributed", "distributed.network", "errors", "place", "record"]
    assert new.split() == ["torchcourse", *(f"torchcourse.{name}" for name in needed)]
    assert gloo == ["True", "False"], done.stdout + done.stderr


def from_variables(port):
    import os

    dist.destroy_process_group()
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    with distributed.setup(backend="gloo") as me:
        total = torch.tensor([1.0 + me.rank])
        dist.all_reduce(total)
    return total.item(), me.is_main, dist.is_initialized()


def test_two_processes_meet():
    # Below the ports that the system gives to those who ask for any: no program takes it by chance in between.
    for port in random.sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("localhost", port)):
            break
    assert ranks.run(from_variables, port).values == [(3.0, True, False), (3.0, False, False)]


# CUDA_VISIBLE_DEVICES of the tasks of a node, in the order of SLURM_LOCALID, as Slurm 22.05 sets it. Where a site hides
# the other GPUs of the node (ConstrainDevices), each task counts those that it sees from 0.
ASKED = {
    "--gres=gpu:2, --gpus-per-node=2 or --gpus=2": (["0,1", "0,1"], ["0", "1"], "nccl"),
    "--gpus-per-task=1 or --gpu-bind=single:1": (["0", "1"], ["0", "1"], "nccl"),
    "--gpus-per-task=2": (["0,1", "2,3"], ["0", "3"], "nccl"),
    "--gres=gpu:2, four tasks": (["0,1"] * 4, ["0", "1", "0", "1"], "gloo"),
    "no GPU": (["", ""], ["", ""], "gloo"),
}


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("asked", ASKED)
def test_each_way_to_ask_for_gpus(monkeypatch, asked, nodes):
    """Each rank takes a GPU that it sees, and they use nccl exactly if no two of them take the same one."""
    visible, expected, backend = ASKED[asked]
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    found = []
    for node in range(nodes):
        for local_rank, shown in enumerate(visible):
            gpus = [f"GPU {gpu} of node {node}" for gpu in filter(None, shown.split(","))]
            kind = SimpleNamespace(type="cuda") if gpus else None
            monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available, kind=kind: kind)
            monkeypatch.setattr(torch.accelerator, "device_count", lambda gpus=gpus: len(gpus))
            properties = lambda device, gpus=gpus: SimpleNamespace(uuid=gpus[device.index])  # noqa: E731
            monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
            found.append(distributed._identity(distributed._device(local_rank)))
    assert found == [f"GPU {gpu} of node {node}" if gpu else "" for node in range(nodes) for gpu in expected]
    chosen, remark = distributed._backend(found)
    assert chosen == backend
    shared = len(set(expected)) < len(expected) and "" not in expected
    assert (remark or "").startswith(f"{len(found)} ranks share {len(set(found))} GPU") == shared
    assert distributed._backend(["a", ""]) == ("gloo", None), "one node without a GPU: all ranks choose alike"
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: SimpleNamespace(type="mps"))
    assert str(distributed._device(0)) == "cpu", "other accelerators have no collectives"
