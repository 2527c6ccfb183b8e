"""Several processes: `%%torchrun` starts them from a notebook cell, `setup()` tells each who it is.

    %%torchrun --nproc-per-node 2
    from torchcourse import distributed

    with distributed.setup() as me:
        print(f"rank {me.rank} of {me.world_size} on {me.device}")

`setup()` is what the first lines of every distributed script do: read the variables that the launcher has set, choose
the device and the backend, make the process group. Leaving the `with` block takes the group down again.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
import sys
import zlib
from contextlib import nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from torchcourse.distributed.network import loopback, on_loopback
from torchcourse.errors import CourseError

__all__ = ["Process", "load_ipython_extension", "loopback", "on_loopback", "printed", "register", "setup"]

printed: list[str] = []  # what the ranks of the last `%%torchrun` cell printed: "[rank 0] ...", line by line
_groups = itertools.count()  # how often this process has called setup(); all ranks call it equally often

HOW = "Start it with `torchrun --nproc-per-node 2 script.py`, in a notebook with `%%torchrun -n 2`, or with `srun`."


@dataclass(frozen=True)
class Process:
    """This process among the others. A context manager: leaving the block takes the process group down."""

    rank: int  # 0 to world_size - 1, unique
    local_rank: int  # the number on this machine: which GPU to take
    world_size: int
    device: torch.device
    backend: str  # "gloo" or "nccl"

    @property
    def is_main(self) -> bool:
        """True on rank 0: the one that prints and saves."""
        return self.rank == 0

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, where: TracebackType | None) -> None:
        if dist.is_initialized():
            if error is None:
                dist.barrier()  # who leaves early closes connections that others still read from
            dist.destroy_process_group()  # after an error without waiting: the others may never come


def setup(backend: str | None = None, alone: bool = False) -> Process:
    """Make the process group from the variables of torchrun or Slurm, and choose this process's device.

    backend: "gloo" or "nccl"; None chooses: nccl if every rank has a GPU of its own; gloo if ranks share a GPU
        (rank 0 says so) or if there is none.
    alone: True makes a group of one process where no launcher has started this one (for trying out a script).

    Raises CourseError where the variables are missing, or if there is a group already.
    """
    if dist.is_initialized():
        raise CourseError("This process has a process group already: call `setup()` once, or leave its `with` block.")
    world = _from_torchrun(os.environ) or _from_slurm(os.environ)
    if world is None:
        if not alone:
            raise CourseError(
                f"This process does not know which rank it is: RANK and WORLD_SIZE are not set. {HOW} "
                "For one process on its own: `setup(alone=True)`."
            )
        world = _World(0, 1, 0, None)
    # Its functions have the default group as a default argument. Imported later, by the first optimizer say, they would
    # keep the group beyond its end, and with it gloo's threads: one that still has a tensor when Python ends aborts.
    importlib.import_module("torch.distributed.nn.functional")
    device = _device(world.local_rank)
    if device.type == "cuda":
        torch.accelerator.set_device_index(device)
    if world.address is None:
        store = dist.HashStore()
    else:
        os.environ |= {"MASTER_ADDR": world.address[0], "MASTER_PORT": str(world.address[1])}
        store, _, _ = next(dist.rendezvous("env://", world.rank, world.size))
        # torchrun keeps the store over a restart: without names of its own, a rank finds the addresses of the dead.
        store = dist.PrefixStore(f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}.{next(_groups)}", store)
    if backend is None:
        store.set(f"gpu {world.rank}", _identity(device))
        backend, remark = _backend([store.get(f"gpu {rank}").decode() for rank in range(world.size)])
        if remark and world.rank == 0:
            print(remark, flush=True)
    options = {"device_id": device} if backend == "nccl" else {}
    with on_loopback() if world.address is None else nullcontext():
        dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, **options)
    dist.barrier()  # gloo connects in the background; afterward every rank is there
    return Process(world.rank, world.local_rank, world.size, device, backend)


# ---------------------------------------- who am I?


@dataclass(frozen=True)
class _World:
    rank: int
    size: int
    local_rank: int
    address: tuple[str, int] | None  # where rank 0 listens


def _from_torchrun(env: Any) -> _World | None:
    """What torchrun tells by variables. None if it did not start this process."""
    if not env.get("RANK"):  # a cluster's job script often exports the address alone
        return None
    names = ("WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if missing := [name for name in names if not env.get(name)]:
        raise CourseError(f"RANK is set, but {' and '.join(missing)} not: a launcher sets them all. {HOW}")
    rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
    if rank >= size:  # the others would wait for half an hour
        raise CourseError(f"RANK is {rank}, but WORLD_SIZE is {size}: ranks go from 0 to {size - 1}. {HOW}")
    return _World(rank, size, int(env["LOCAL_RANK"]), (env["MASTER_ADDR"], int(env["MASTER_PORT"])))


def _from_slurm(env: Any) -> _World | None:
    """What Slurm tells the tasks of `srun`. None in a job script itself, which is no task of anything."""
    if not (env.get("SLURM_STEP_ID") or env.get("SLURM_STEPID")) or not env.get("SLURM_PROCID"):
        return None
    # The tasks of this step. SLURM_NTASKS may be those of the whole job: in the shell that salloc opens, for example, a
    # step of one task, where a process that took it for the world size would wait half an hour for the others.
    size = int(env.get("SLURM_STEP_NUM_TASKS") or env["SLURM_NTASKS"])
    rank, local_rank = int(env["SLURM_PROCID"]), int(env["SLURM_LOCALID"])
    if size == 1:  # two notebooks of one task each must not claim the same port
        return _World(rank, size, local_rank, None)
    hosts = env.get("SLURM_STEP_NODELIST") or env["SLURM_JOB_NODELIST"]
    # Two jobs on one node must not meet on one port, and all tasks of a job must find the same one. Linux uses
    # ports from 32768 on for outgoing connections.
    job = f"{env.get('SLURM_JOB_ID')}.{env.get('SLURM_STEP_ID')}"
    port = int(env.get("MASTER_PORT") or 20_000 + zlib.crc32(job.encode()) % 12_000)
    return _World(rank, size, local_rank, (env.get("MASTER_ADDR") or _first_host(hosts), port))


def _first_host(hosts: str) -> str:
    """The first host of a Slurm list: "node[03-05,9],login" begins with node03."""
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\])?([^,\[]*)", hosts.strip())
    return match[1] + (match[2] or "") + match[3] if match else hosts


def _device(local_rank: int) -> torch.device:
    """This rank's device. Slurm may show each task all GPUs of the node, or (--gpus-per-task) only those of its own."""
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None or found.type != "cuda":  # gloo moves tensors of the CPU and of CUDA, of no other device
        return torch.device("cpu")
    return torch.device("cuda", local_rank % torch.accelerator.device_count())


def _identity(device: torch.device) -> str:
    """The GPU's UUID, "" for a CPU. An index says nothing, because each rank may see other GPUs."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""


def _backend(gpus: list[str]) -> tuple[str, str | None]:
    """The backend for ranks with these GPUs, and what a person should know about the choice.

    It depends on what all ranks have, so that all of them choose the same.
    """
    if "" in gpus or not dist.is_nccl_available():
        return "gloo", None
    if len(set(gpus)) == len(gpus):
        return "nccl", None
    share = f"{len(gpus)} ranks share {len(set(gpus))} GPU{'s' if len(set(gpus)) > 1 else ''}"
    return "gloo", f"{share}: they communicate through gloo, because nccl needs a GPU for every rank."


# ---------------------------------------- in a notebook


def register() -> None:
    """Make `%%torchrun` known to IPython. Does nothing outside of it; costs nothing before the first use."""
    ipython = sys.modules.get("IPython")  # where it runs, it is loaded; elsewhere it is not needed
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        load_ipython_extension(shell)


def load_ipython_extension(shell: Any) -> None:
    """For `%load_ext torchcourse.distributed`."""

    def torchrun(line: str, cell: str) -> None:
        """Run the cell in several processes: `%%torchrun --nproc-per-node 2 [--timeout 120] [name.py]`."""
        if os.name != "posix":
            raise CourseError("%%torchrun needs Linux or macOS: on Windows use WSL, or a hub.")
        from torchcourse.distributed import magic

        printed.clear()
        printed.extend(magic.torchrun(line, cell))

    shell.register_magic_function(torchrun, magic_kind="cell")
