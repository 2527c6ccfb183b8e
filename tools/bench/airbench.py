"""CIFAR-10 on a GPU, side by side: the recipe's "gpu" setting, and airbench's script for 94 % as its author ships it.

    {"ours": {"settings": {"epochs": 8, ...}, "dtype": "bfloat16", "epochs": 8, "cold": 9.1,
              "seconds": {"median", "low", "high"}, "accuracy": {"mean", "low", "high"}, "reached": 3,
              "images_per_s": ..., "runs": [[seconds, accuracy], ...], "repeats": 5},
     "airbench": {"commit": "...", and the same without settings and dtype}}

Seconds are those of training, whitening included, and of the one look at the test set, averaged over changed images, as
the script counts them; without imports, reading the data, and what is done once in a process. "cold" is the first
training of a process by the clock on the wall, with all that: kernels are chosen, and airbench compiles its network.
"reached" counts the runs with 94 % or more. images_per_s: of training, in the median of seconds.

The two take turns, each in a process of its own that stays, so both are warm and neither changes the other's settings.
Airbench is not a part of the course. Bring it along:

    git clone https://github.com/KellerJordan/cifar10-airbench build/airbench
"""

import contextlib
import importlib.util
import io
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tools.bench.rows import OutOfTime, Rows, last_words
from tools.bench.speed import short
from tools.bench.training import Say, fastest, real_images, summary, told
from tools.course import ROOT
from torchcourse import data, training
from torchcourse import device as devices
from torchcourse.errors import CourseError
from torchcourse.recipes import cifar as recipe

FOLDER = ROOT / "build" / "airbench"
SCRIPT = "airbench94_muon.py"
GOAL = 0.94
RUNS = 5
PATIENCE = 600  # seconds for one training; the script compiles for a minute or more
Train = Callable[[int], dict[str, Any]]  # seed -> seconds, accuracy, epochs


def measure(rows: Rows, quick: bool = False, say: Say = print, folder: Path = FOLDER) -> dict[str, Any]:
    """Both, run by run in turns."""
    if not (folder / SCRIPT).exists():
        raise CourseError(
            f"There is no {SCRIPT} in {folder}. Bring airbench along: "
            "git clone https://github.com/KellerJordan/cifar10-airbench build/airbench"
        )
    real_images("cifar10", "train", quick)  # complains here where the real data are missing
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "airbench": []}
    cold, setting = {}, "15 s" if quick else "gpu"
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        both = {
            "ours": stack.enter_context(Contestant(rows, ours, setting, quick)),
            "airbench": stack.enter_context(Contestant(rows, airbench, folder, Path(place), quick)),
        }
        for name, one in both.items():
            cold[name] = rows(f"{name}, cold", "any", one.first)
            say(f"airbench: {name}, the first in its process: {cold[name]['wall']:.1f} s on the wall")
        for seed in range(1, 1 + (1 if quick else RUNS)):
            for name, one in both.items():
                runs[name].append(rows(f"{name}, seed {seed}", "any", one.train, seed))
                say(f"airbench: {name}, seed {seed}: {told(runs[name][-1])}")
    about = {
        "ours": {"settings": asdict(recipe.SETTINGS[setting]), "dtype": cold["ours"]["dtype"]},
        "airbench": {"commit": commit(folder)},
    }
    for name, some in runs.items():
        about[name] |= {"epochs": some[0]["epochs"], "cold": cold[name]["wall"]} | summary(some, GOAL)
        about[name]["images_per_s"] = short(some[0]["epochs"] * 50_000 / about[name]["seconds"]["median"])
    return about


class Contestant:
    """A process that trains whenever it is asked to. Leaving the `with` block ends it.

    prepare(*arguments) is called there first; it returns the function that trains once. rows: know how long to wait.
    """

    def __init__(self, rows: Rows, prepare: Callable[..., Train], *arguments: Any):
        context = multiprocessing.get_context("spawn")  # a fork could not use CUDA
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there, prepare, arguments), daemon=True)
        self.rows = rows
        self.answer: dict[str, Any] | None = None  # of the first training

    def __enter__(self) -> "Contestant":
        self.process.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.join()

    def first(self) -> dict[str, Any]:
        """The first training in the process; asked for again, the same answer."""
        self.answer = self.answer or self._ask(0)
        return self.answer

    def train(self, seed: int) -> dict[str, Any]:
        """One training in a process that has trained before."""
        self.first()
        return self._ask(seed)

    def _ask(self, seed: int) -> dict[str, Any]:
        self.pipe.send(seed)
        if not self.pipe.poll(self.rows.patience(PATIENCE)):
            if self.rows.over:
                raise OutOfTime
            raise RuntimeError(f"it did not end in {PATIENCE} s")
        answer = self.pipe.recv()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def serve(pipe: Connection, prepare: Callable[..., Train], arguments: tuple) -> None:
    """The life of a contestant's process: "wall" is added to each answer, in seconds."""
    start, train = time.perf_counter(), None  # the preparation belongs to the first training
    while True:
        seed = pipe.recv()
        try:
            start, train = (time.perf_counter(), train) if train else (start, prepare(*arguments))
            pipe.send(train(seed) | {"wall": short(time.perf_counter() - start)})
        except Exception as error:  # the parent says it; a process that died would only be silent
            pipe.send({"error": last_words(f"{type(error).__name__}: {error}")})


def ours(setting: str, quick: bool) -> Train:
    """The recipe, and one look at the test set."""
    device, how = devices.best(), recipe.SETTINGS[setting]
    images, test = (sets(split, quick).to(device) for split in ("train", "test"))
    name = fastest(recipe.network(how, images).to(device), images, how.batch_size)
    dtype = getattr(torch, name)

    def train(seed: int) -> dict[str, Any]:
        start = time.perf_counter()
        run = recipe.train(how, seed, images=images, device=device, dtype=dtype)
        accuracy = training.evaluate(run.model, data.loader(test, 2000), dtype=dtype).accuracy
        seconds = short(time.perf_counter() - start)  # the accuracy is a number: the device has nothing left to do
        return {"seconds": seconds, "accuracy": accuracy, "epochs": how.epochs, "dtype": name}

    return train


def airbench(folder: Path, place: Path, quick: bool) -> Train:
    """The script as it is. place: an empty folder, for the data in the form in which the script looks for them."""
    (place / "cifar10").mkdir()
    for split in ("train", "test"):
        found = sets(split, quick)
        content = {"images": found.images.permute(0, 2, 3, 1).contiguous(), "labels": found.labels}
        torch.save(content | {"classes": list(found.classes)}, place / "cifar10" / f"{split}.pt")
    os.chdir(place)
    script = load(folder / SCRIPT)
    network = script.CifarNet().cuda().to(memory_format=torch.channels_last)  # as in the script's last block
    network.compile(mode="max-autotune")

    def train(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            accuracy = script.main(seed, network)
        seconds, epochs = told_by(said.getvalue())
        return {"seconds": short(seconds), "accuracy": accuracy, "epochs": epochs}

    return train


def sets(split: str, quick: bool) -> data.ImageSet:
    """CIFAR-10, or the first 2,000 images of it."""
    found = real_images("cifar10", split, quick)
    return found.subset(slice(2000)) if quick else found


def load(path: Path) -> ModuleType:
    """A script as a module, without its `if __name__ == "__main__"` block. It reads its own text from sys.argv[0]."""
    sys.argv = [str(path)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def told_by(table: str) -> tuple[float, int]:
    """Seconds and epochs of a training, from the rows that the script prints: one for each epoch, then one more."""
    rows = [line.split("|") for line in table.splitlines() if "|" in line]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    return float(cells[-1][-1]), len(cells) - 1


def commit(folder: Path) -> str:
    """Of the clone, as short as git prints it; "unknown" where only its files were brought along."""
    head = folder / ".git" / "HEAD"
    with contextlib.suppress(OSError):
        name = head.read_text().strip()
        if name.startswith("ref: "):
            name = (folder / ".git" / name.removeprefix("ref: ")).read_text().strip()
        return name[:12]
    return "unknown"
