"""What several processes bring: DistributedDataParallel beside one plain process, on this machine. Topic "ddp":

    {"device": "cpu (2 threads)", "devices": 1, "cores": 2,
     "network": "CifarNet (32, 64, 128)", "parameters": 289000, "gradient_mib": 1.1,
     "worlds": [{"processes": 2, "backend": "gloo", "shared": false,    shared: several processes on one GPU
                 "start_s": 4.1,                      from the launch until rank 0 has made its first step
                 "rows": [{"way": "plain", "processes": 1, "threads": 1, "batch": 64,
                           "images_per_s": {"median", "low", "high"}, "step_ms": 21.5, "repeats": 5}, ...]}, ...]}

`batch` is that of one process; `images_per_s` counts those of all processes; `threads` are those of each. The ways:

    plain         the ordinary loop. With "processes": 1 the others of the world wait meanwhile; with "processes": N
                  each works for itself: what the machine gives when nothing is exchanged
    ddp           DistributedDataParallel; over one process it shows what the wrapper alone costs
    per tensor    by hand: after backward, one all-reduce for each parameter
    flat          by hand: after backward, all gradients in one all-reduce

On a CPU there is one more plain row, all threads in one process: the fair comparison for two processes. All rows of a
world take turns in the same processes. A world that failed has "error", a sentence, instead of "start_s" and "rows".

Worlds: on a CPU two processes with gloo, one thread each; with several GPUs one process for each, nccl; with one GPU
one process with nccl, and two that share it with gloo.
"""

import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tools.bench.rows import Rows, last_words
from tools.bench.speed import short, spread
from tools.bench.training import Load, Say, train_step
from torchcourse import device as devices
from torchcourse.distributed import loopback

PATIENCE = 240  # seconds for one world; a rank that waits for one that died would wait forever


@dataclass(frozen=True)
class World:
    """Some processes that train together."""

    processes: int
    backend: str
    device: str  # of rank 0: "cpu" or "cuda"
    shared: bool = False  # all on one GPU
    threads: int = 1  # of each process
    all_threads: int = 1  # of this machine

    def place(self, rank: int) -> torch.device:
        """The device of a rank."""
        index = 0 if self.shared else rank
        return torch.device("cpu") if self.device == "cpu" else torch.device(self.device, index)


@dataclass(frozen=True)
class Row:
    """What is timed: a way of training, by the first so many processes, with so many threads and images each."""

    way: str
    processes: int
    threads: int
    batch: int


def worlds(kind: str, devices: int, threads: int) -> list[World]:
    """The worlds for a machine with so many devices of a kind and so many threads."""
    if kind == "cpu":
        return [World(2, "gloo", "cpu", threads=1, all_threads=threads)]
    each = max(1, threads // max(2, devices))
    if devices > 1:
        return [World(devices, "nccl", kind, threads=each, all_threads=each)]
    return [
        World(1, "nccl", kind, threads=each, all_threads=each),
        World(2, "gloo", kind, shared=True, threads=each, all_threads=each),
    ]


def rows_of(world: World, batches: list[int]) -> list[Row]:
    """What takes turns in a world."""
    found = []
    for batch in batches:
        found += [Row("plain", 1, world.threads, batch), Row("ddp", 1, world.threads, batch)]
        if world.all_threads > world.threads:
            found.append(Row("plain", 1, world.all_threads, batch))
        if world.processes > 1:
            ways = ("plain", "ddp", "per tensor", "flat")
            found += [Row(way, world.processes, world.threads, batch) for way in ways]
    return found


def load_for(kind: str, quick: bool) -> tuple[Load, list[int]]:
    """The network, and the batch sizes of one process."""
    if quick:
        return Load((8, 8, 8), 2, 4, 16), [4]
    return (Load((32, 64, 128), 2, 64), [64, 256]) if kind == "cpu" else (Load((64, 256, 256), 1, 512), [64, 512])


def measure(rows: Rows, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """Every world in turn. Each is a launch of its own, and a row."""
    device = devices.best()
    count = 1 if device.type == "cpu" else torch.accelerator.device_count()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = torch.get_num_threads() if device.type == "cpu" else cores
    found = []
    for world in worlds(device.type, count, threads):
        name = f"{world.processes} × {world.backend}{', shared' if world.shared else ''}"
        result = rows(name, "float32", launch, world, quick, rows.patience(PATIENCE))
        found.append({"processes": world.processes, "backend": world.backend, "shared": world.shared} | result)
        say(f"ddp: {name}: " + (result.get("error") or f"first step after {result['start_s']:.1f} s"))
        for row in result.get("rows", []):
            what = f"{row['way']}, {row['processes']} × batch {row['batch']}, {row['threads']} threads"
            say(f"ddp: {name}: {what}: {row['images_per_s']['median']:,.0f} images/s")
    load, _ = load_for(device.type, quick)
    parameters = list(load.network().parameters())
    return {
        "device": devices.describe(device),
        "devices": count,
        "cores": cores,
        "network": f"CifarNet {load.widths}",
        "parameters": sum(p.numel() for p in parameters),
        "gradient_mib": short(sum(4 * p.numel() for p in parameters if p.requires_grad) / 2**20),
        "worlds": found,
    }


# ---------------------------------------------------------------------------------------------------------------------
# One world: its processes are started here, and end here, whatever happens


def launch(world: World, quick: bool, patience: float = PATIENCE) -> dict[str, Any]:
    """What rank 0 measured, or {"error": sentence}. Leaves no process behind."""
    variables = {"OMP_NUM_THREADS": str(world.threads)}
    if world.backend == "gloo":
        variables["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME") or loopback()
    end = time.monotonic() + patience
    with tempfile.TemporaryDirectory() as folder:
        with mock.patch.dict(os.environ, variables):
            ranks = mp.start_processes(
                work, (world, quick, time.time(), folder), world.processes, join=False, start_method="spawn"
            )
        try:
            while not ranks.join(timeout=max(0.0, end - time.monotonic()), grace_period=5):
                if time.monotonic() >= end:
                    return {"error": f"The processes were not done after {patience:.0f} s."}
        except mp.ProcessRaisedException as problem:
            return {"error": f"Rank {problem.error_index} failed: {last_words(problem.msg)}"}
        except mp.ProcessExitedException as problem:
            return {"error": f"Rank {problem.error_index} ended with exit status {problem.exit_code}."}
        finally:
            for process in ranks.processes:
                process.kill()
                process.join()
        return json.loads(Path(folder, "result.json").read_text())


def work(rank: int, world: World, quick: bool, begin: float, folder: str) -> None:
    """What each process does: all rows in turns; rank 0 writes down what came out."""
    device = world.place(rank)
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index)
    torch.set_num_threads(world.threads)
    store = dist.FileStore(f"{folder}/store", world.processes)
    options = {"device_id": device} if world.backend == "nccl" else {}
    dist.init_process_group(world.backend, store=store, rank=rank, world_size=world.processes, **options)
    try:
        alone = dist.new_group([0])  # every rank has to take part in making it
        load, batches = load_for(device.type, quick)
        repeats, least = (1, 0.001) if quick else (5, 0.5)
        contestants: dict[Row, Contestant | None] = {}
        started = 0.0
        for row in rows_of(world, batches):
            if rank < row.processes:
                contestants[row] = Contestant(row, load, device, alone if row.processes == 1 else None)
            else:
                contestants[row] = None  # takes part in nothing but the barriers
            if rank == 0 and not started:
                contestants[row].steps(1)
                started = time.time() - begin
        talk = device if world.backend == "nccl" else torch.device("cpu")  # where messages between ranks are
        calls = {row: share(count(one, least) if one else 1, talk) for row, one in contestants.items()}
        speeds: dict[Row, list[float]] = {row: [] for row in contestants}
        for _ in range(repeats):
            for row, one in contestants.items():
                dist.barrier()
                seconds = slowest(one.steps(calls[row]) if one else 0.0, talk)
                speeds[row].append(row.processes * row.batch * calls[row] / seconds)
        if rank == 0:
            table = [
                asdict(row)
                | {
                    "images_per_s": spread(some),
                    "step_ms": short(1e3 * row.processes * row.batch / statistics.median(some)),
                    "repeats": repeats,
                }
                for row, some in speeds.items()
            ]
            Path(folder, "result.json").write_text(json.dumps({"start_s": short(started), "rows": table}))
        dist.barrier()
    finally:
        dist.destroy_process_group()


class Contestant:
    """One row in one process: a network of its own, its batch, and how its gradients meet those of the others."""

    def __init__(self, row: Row, load: Load, device: torch.device, group: dist.ProcessGroup | None):
        torch.manual_seed(0)
        self.row, self.device, self.group = row, device, group
        self.model: nn.Module = load.network().to(device)
        self.images, self.labels = load.images(device, row.batch)
        self.images = self.images.to(memory_format=torch.channels_last)
        self.threads = torch.get_num_threads()
        if row.way == "ddp":
            places = None if device.type == "cpu" else [device.index]
            self.model = DistributedDataParallel(self.model, device_ids=places, process_group=group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        average = {"per tensor": each_tensor, "flat": all_at_once}.get(row.way)
        if average:  # after backward, before the step: where the optimizer's hook sits
            self.optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: average(self.gradients()))

    def gradients(self) -> list[Tensor]:
        """Those of all parameters that have one."""
        return [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]

    def steps(self, number: int) -> float:
        """Seconds of so many training steps."""
        torch.set_num_threads(self.row.threads)
        synchronize(self.device)
        start = time.perf_counter()
        for _ in range(number):
            train_step(self.model, self.optimizer, self.images, self.labels)
        synchronize(self.device)
        seconds = time.perf_counter() - start
        torch.set_num_threads(self.threads)
        return seconds


def each_tensor(gradients: list[Tensor]) -> None:
    """Average gradients over all processes, one message for each."""
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


def all_at_once(gradients: list[Tensor]) -> None:
    """Average gradients over all processes in one message."""
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def count(one: Contestant, least: float) -> int:
    """How many steps take about `least` seconds, after a few to warm up."""
    one.steps(3)
    return max(1, round(least / (one.steps(3) / 3)))


def share(number: int, device: torch.device) -> int:
    """Rank 0's number, sent to all ranks: all have to make the same number of steps, or the last ones hang."""
    told = torch.tensor([number], device=device)
    dist.broadcast(told, 0)
    return int(told.item())


def slowest(seconds: float, device: torch.device) -> float:
    """The longest of the times that the processes took."""
    longest = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.item()


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
