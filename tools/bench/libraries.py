"""Images per second on identical networks: the course, the plain loop, and libraries, taking turns.

    {"threads": 2,
     "versions": {"lightning": "2.6.6", ...},
     "networks": {"example": {"mflop": 43.9,               of one image in a training step
                              "rows": [{"name": "ours", "batch": 64, "workers": 0, "dtype": "float32",
                                        "images_per_s": {"median": ..., "low": ..., "high": ...},
                                        "gflops": ...,      mflop times the median
                                        "repeats": 5, "rejected": 0, "foreign": 0.02, "disturbed": false}, ...]},
                  "mlp": ..., "tutorial": ...}}

A row that failed has "error", a sentence, instead of numbers. `foreign` is the largest share of the processor that
other programs used during a repeat that counts; "disturbed": too few repeats were quiet.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from tools.bench import environment
from tools.bench.contestants import CONTESTANTS, NETWORKS, Task, image_set
from tools.bench.quiet import median_range, short, take_turns
from tools.bench.runs import images
from tools.bench.throughput import train_step
from tools.bench.worker import Worker
from torchcourse import device, models

Say = Callable[[str], None]
Row = tuple[str, Task]  # who, what


def plan(quick: bool = False) -> dict[str, list[Row]]:
    """What is measured: network -> rows. The number of images makes a repeat take a few seconds."""
    steps = 100
    example = Task("example", 64, 64 * steps)
    libraries = [(name, example) for name in CONTESTANTS if name not in ("ours", "loop")]
    mlp, tutorial = Task("mlp", 64, 40_000), Task("tutorial", 512, 40_000)
    fast = str(device.fast_dtype("cpu")).removeprefix("torch.")
    rows = {
        "example": [
            ("ours", example),
            ("ours", replace(example, batch=256, images=256 * steps // 2)),
            ("loop", example),
            *libraries,
        ],
        "mlp": [
            (name, replace(mlp, batch=batch, workers=workers))
            for batch in (64, 512)
            for name, workers in (("ours", 0), ("loop", 0), ("loop", 4))
        ],
        "tutorial": [("ours", tutorial), *(("loop", replace(tutorial, workers=workers)) for workers in (0, 1, 2, 4))],
    }
    if fast != "float32":  # where a shorter format pays, as a row of its own
        for name, some in rows.items():
            rows[name] = some + [(who, replace(task, dtype=fast)) for who, task in some if who == "ours"]
    if quick:
        rows = {"mlp": [(name, Task("mlp", 16, 160)) for name in ("ours", "loop")]}
    return rows


def measure(quick: bool = False, say: Say = print) -> dict[str, Any]:
    """All rows of all networks. Libraries that do not work here are named and left out."""
    rows, threads = plan(quick), torch.get_num_threads()
    for name in {NETWORKS[network][0] for network in rows}:
        images(name, "train", quick)  # complains here where the real data are missing
    repeats, extra = (1, 0) if quick else (5, 5)
    if not quick and not environment.python().exists():
        say(f"libraries: {environment.ADVICE}")
    names = [name for name in CONTESTANTS if any(name == who for some in rows.values() for who, _ in some)]
    workers, errors = start(names, threads, say)
    try:
        networks = {}
        for network, some in rows.items():
            say(f"libraries: network {network!r}, {len(some)} rows taking turns")
            networks[network] = {
                "mflop": short(flop(network) / 1e6),
                "rows": compare(some, workers, errors, repeats, extra, say),
            }
            for row in networks[network]["rows"]:
                if "images_per_s" in row:
                    row["gflops"] = short(row["images_per_s"]["median"] * networks[network]["mflop"] / 1e3)
        versions = {name: worker.version for name, worker in workers.items() if name not in ("ours", "loop")}
        return {"threads": threads, "versions": versions, "networks": networks}
    finally:
        for worker in workers.values():
            worker.close()


def start(names: list[str], threads: int, say: Say) -> tuple[dict[str, Worker], dict[str, str]]:
    """A process for each library, and a sentence for each that does not start."""
    workers, errors = {}, {}
    for name in names:
        try:
            workers[name] = Worker(name, environment.interpreter(), threads)
        except RuntimeError as error:
            missing = "PackageNotFoundError" in str(error) or "ModuleNotFoundError" in str(error)
            errors[name] = environment.ADVICE if missing else str(error)
            say(f"libraries: {name} is left out. {errors[name]}")
    return workers, errors


def compare(
    rows: list[Row], workers: dict[str, Worker], errors: dict[str, str], repeats: int, extra: int, say: Say
) -> list[dict[str, Any]]:
    """One dict for each row, in order, measured in turns after a short warm-up of each."""
    contestants = {}
    for who, task in rows:
        if who in workers:
            warm = replace(task, images=min(task.images, 12 * task.batch))
            try:
                workers[who].train(warm)
            except RuntimeError as error:
                say(f"libraries: {label(who, task)} failed. {error}")
                errors[label(who, task)] = str(error)
                continue
            contestants[label(who, task)] = lambda who=who, task=task: workers[who].train(task)
    turns = take_turns(contestants, repeats, extra, say=lambda line: say(f"libraries: {line}"))
    done = []
    for who, task in rows:
        row = {"name": who} | {key: asdict(task)[key] for key in ("batch", "workers", "dtype")}
        turn = turns.get(label(who, task))
        if turn and (results := turn.results(repeats)):
            done.append(row | {"images_per_s": median_range(results)} | turn.summary(repeats))
        else:
            done.append(row | {"error": turn.error if turn else errors.get(label(who, task), errors.get(who))})
    return done


def label(who: str, task: Task) -> str:
    """A row's name in progress lines."""
    workers = f", {task.workers} workers" if task.workers else ""
    return f"{who}, batch {task.batch}{workers}{'' if task.dtype == 'float32' else f', {task.dtype}'}"


def flop(network: str, batch: int = 32) -> float:
    """Floating-point operations of a training step for one image: forward and backward, counted by PyTorch."""
    name, make = NETWORKS[network]
    model = make()
    optimizer = torch.optim.SGD(model.parameters())
    pixels, labels = image_set(network, batch)[0:batch]
    with FlopCounterMode(display=False) as counted:
        train_step(model, optimizer, models.Normalize(name)(pixels), labels)
    return counted.get_total_flops() / batch
