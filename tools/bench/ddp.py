"""What several processes bring: DistributedDataParallel beside one plain process, on this machine. Topic "ddp":

    {"device": "cpu (2 threads)",
     "worlds": [{"processes": 2, "backend": "gloo", "shared": false,    shared: several processes on one GPU
                 "rows": [{"way": "plain", "processes": 1, "threads": 1, "batch": 64,
                           "images_per_s": {"median", "low", "high"}}, ...]}, ...]}

`batch` is that of one process; `images_per_s` counts those of all processes; `threads` are those of each. The ways:

    plain         the ordinary loop. With "processes": 1 the others of the world wait meanwhile; with "processes": N
                  each works for itself: what the machine gives when nothing is exchanged
    ddp           DistributedDataParallel; over one process it shows what the wrapper alone costs
    per tensor    by hand: after backward, one all-reduce for each parameter
    flat          by hand: after backward, all gradients in one all-reduce

On a CPU there is one more plain row, all threads in one process: the fair comparison for two processes. All rows of a
world take turns in the same processes. A world that failed has "error", a sentence, instead of "rows". The backend is
that of `distributed.setup`: gloo on a CPU or where two processes share the only GPU, else nccl.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tools.bench.record import clock, last_words, say, spread
from tools.bench.speed import network_for, random_images, train_step
from tools.course import ROOT
from torchcourse import device as devices
from torchcourse import distributed


class Row(NamedTuple):
    """What is timed: a way of training, by the first so many processes, with so many threads and images each."""

    way: str
    processes: int
    threads: int
    batch: int


def worlds(kind: str, gpus: int) -> list[int]:
    """The numbers of processes for a machine with so many GPUs."""
    return [2] if kind == "cpu" else [gpus] if gpus > 1 else [1, 2]


def rows_of(processes: int, threads: int, all_threads: int, batches: list[int]) -> list[Row]:
    """What takes turns in a world. threads: of each process."""
    found = []
    for batch in batches:
        found += [Row("plain", 1, threads, batch), Row("ddp", 1, threads, batch)]
        if all_threads > threads:
            found.append(Row("plain", 1, all_threads, batch))
        if processes > 1:
            found += [Row(way, processes, threads, batch) for way in ("plain", "ddp", "per tensor", "flat")]
    return found


def measure(quick: bool) -> dict[str, Any]:
    """Every world in turn. Each is a launch of its own, and a row."""
    device = devices.best()
    found = []
    for processes in worlds(device.type, torch.accelerator.device_count()):
        threads = all_threads = max(1, (os.cpu_count() or 1) // max(2, processes))
        if device.type == "cpu":
            threads, all_threads = 1, torch.get_num_threads()
        batches = [4] if quick else [64, 256] if device.type == "cpu" else [64, 512]
        rows = rows_of(processes, threads, all_threads, batches)
        world = launch(processes, rows, quick)
        found.append({"processes": processes} | world)
        for row in world.get("rows", [world]):
            say(f"ddp: {row}")
    return {"device": devices.describe(device), "worlds": found}


def launch(processes: int, rows: list[Row], quick: bool, patience: float = 240) -> dict[str, Any]:
    """What rank 0 measured, or {"error": sentence}. Leaves no process behind.

    patience: in seconds; a rank that waits for one that died would wait forever.
    """
    interface = os.environ.get("GLOO_SOCKET_IFNAME") or distributed.loopback()
    variables = {"OMP_NUM_THREADS": str(rows[0].threads), "GLOO_SOCKET_IFNAME": interface}
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w+") as log:
        result = Path(folder, "result.json")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command += ["-m", "tools.bench.ddp", json.dumps(rows), json.dumps(quick), str(result)]
        torchrun = subprocess.Popen(command, cwd=ROOT, env=os.environ | variables, stdout=log, stderr=log)
        try:
            torchrun.wait(patience)
        except subprocess.TimeoutExpired:
            return {"error": f"The processes were not done after {patience:.0f} s."}
        finally:
            torchrun.terminate()  # it ends its ranks
            torchrun.wait()
        log.seek(0)
        return json.loads(result.read_text()) if torchrun.returncode == 0 else {"error": last_words(log.read())}


# ---------------------------------------------------------------------------------------------------------------------
# In each process of a world


def main(rows: list[Row], quick: bool, result: Path) -> None:
    """All rows in turns; rank 0 writes down what came out."""
    repeats, least = (1, 0.001) if quick else (5, 0.5)
    with distributed.setup() as me:
        alone = dist.new_group([0])  # every rank has to take part in making it
        talk = me.device if me.backend == "nccl" else torch.device("cpu")  # where messages between ranks are
        mine = [row for row in rows if me.rank < row.processes]
        contestants = {row: Contestant(row, me.device, quick, alone if row.processes == 1 else None) for row in mine}

        def slowest(row: Row, steps: int) -> float:
            """Seconds of so many steps of a row, on the rank that takes longest."""
            dist.barrier()
            seconds = contestants[row].seconds(steps) if row in contestants else 0.0
            longest = torch.tensor([seconds], dtype=torch.float64, device=talk)
            dist.all_reduce(longest, dist.ReduceOp.MAX)
            return longest.item()

        # The first steps warm up. All ranks make the same number of steps, or the last ones hang.
        steps = {row: max(1, round(3 * least / min(slowest(row, 3) for _ in range(2)))) for row in rows}
        speeds: dict[Row, list[float]] = {row: [] for row in rows}
        for _ in range(repeats):
            for row in rows:
                speeds[row].append(row.processes * row.batch * steps[row] / slowest(row, steps[row]))
        if me.is_main:
            shared = me.backend == "gloo" and me.device.type != "cpu"
            table = [row._asdict() | {"images_per_s": spread(some)} for row, some in speeds.items()]
            result.write_text(json.dumps({"backend": me.backend, "shared": shared, "rows": table}))


class Contestant:
    """One row in one process: a network of its own, its batch, and how its gradients meet those of the others."""

    def __init__(self, row: Row, device: torch.device, quick: bool, group: dist.ProcessGroup | None) -> None:
        torch.manual_seed(0)
        self.threads = row.threads
        self.model = network_for(device, quick)
        images, self.labels = random_images(row.batch, (3, 32, 32), device)
        self.images = images.to(memory_format=torch.channels_last)
        if row.way == "ddp":
            places = None if device.type == "cpu" else [device.index]
            self.model = DistributedDataParallel(self.model, device_ids=places, process_group=group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        average = {"per tensor": each_tensor, "flat": all_at_once}.get(row.way)
        if average:  # after backward, before the step: where the optimizer's hook sits
            gradients = lambda: [p.grad for p in self.model.parameters() if p.grad is not None]  # noqa: E731
            self.optimizer.register_step_pre_hook(lambda *_: average(gradients()))

    def seconds(self, steps: int) -> float:
        """Seconds of so many training steps."""
        torch.set_num_threads(self.threads)

        def train() -> None:
            for _ in range(steps):
                train_step(self.model, self.optimizer, self.images, self.labels)

        return clock(train)[0]


def each_tensor(gradients: list[torch.Tensor]) -> None:
    """Average gradients over all processes, one message for each."""
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


def all_at_once(gradients: list[torch.Tensor]) -> None:
    """Average gradients over all processes in one message."""
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


if __name__ == "__main__":
    main([Row(*each) for each in json.loads(sys.argv[1])], json.loads(sys.argv[2]), Path(sys.argv[3]))
