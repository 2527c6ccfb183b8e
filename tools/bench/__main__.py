"""Measure the course beside the official example and other libraries.

    python -m tools.bench                    install, the usual parts, table (half an hour on an idle machine)
    python -m tools.bench peak mnist         some parts: peak libraries mnist cifar throughput table
    python -m tools.bench precision ddp      others: precision ddp gains checkpoints
    python -m tools.bench install            the libraries to compare with, into build/bench-venv
    python -m tools.bench --quick            seconds: does it run? Its numbers mean nothing and go to build/bench/quick

Parts run on the best device of this machine; libraries and gains on the processor. Results go to the package's
measurements: `bench-MACHINE.json` with an entry for each of peak, libraries, mnist and cifar, `PART-MACHINE.json` for
each other part. A part measured again replaces its earlier result.

Each row is kept in build/bench as soon as it is measured, so a part that was interrupted, or cut short by `--minutes`,
continues there if commit, device and PyTorch are the same; `--again` starts it over. Close other programs: they take
time from the part that is running.
"""

import argparse
import datetime
import importlib
import importlib.metadata
import sys
import time
import traceback
from pathlib import Path

import torch

from tools.bench import environment, save, table
from tools.bench.rows import OutOfTime, Rows, key
from tools.course import ROOT
from torchcourse import device, measurements

PARTS = ("peak", "libraries", "mnist", "cifar", "throughput")  # the usual ones, in this order
# Each is a module with `measure`.
MODULES = (*PARTS, "precision", "ddp", "gains", "checkpoints")
TOGETHER = ("peak", "libraries", "mnist", "cifar")  # entries of one file, bench-MACHINE.json
ON_CPU = ("libraries", "gains")
TOPICS = {"gains": "cifar_gains"}  # the others are called like the part
KEPT = ROOT / "build" / "bench"


def say(line: str) -> None:
    """Print a line of progress with the time of day."""
    print(f"{datetime.datetime.now():%H:%M:%S} {line}", flush=True)


def part(name: str, quick: bool, folder: Path, minutes: float | None = None, again: bool = False) -> bool:
    """Measure one part and write it down; False if the time limit passed before all of it was measured."""
    start = time.perf_counter()
    here = torch.device("cpu") if name in ON_CPU else device.best()
    rows = Rows(minutes=minutes) if quick else kept_rows(name, here, minutes, again)
    if rows.found:
        say(f"{name}: continuing after {rows.found} rows of {rows.date}; --again starts over")
    try:
        results = importlib.import_module(f"tools.bench.{name}").measure(rows, quick, say)
    except OutOfTime:
        say(f"{name}: the time limit has passed after {time.perf_counter() - start:.0f} s; run it again to continue")
        return False
    command = f"make {'bench' if here.type == 'cpu' else 'gpu'} PARTS={name}"
    topic = "bench" if name in TOGETHER else TOPICS.get(name, name)
    if name in TOGETHER:
        command = "make bench" if here.type == "cpu" else command
        results = earlier(folder, here) | {name: {"date": rows.date, "commit": rows.key.get("commit")} | results}
    path = save.write(topic, results, command, device=here, folder=folder, date=rows.date)
    rows.finish()
    say(f"{name}: done after {time.perf_counter() - start:.0f} s, written to {path.name}")
    return True


def kept_rows(name: str, here: torch.device, minutes: float | None, again: bool) -> Rows:
    """The rows of an interrupted run of a part on this device, if there are any."""
    machine = save.hardware(here)["device"]
    path = KEPT / f"rows-{name}-{save.slug(machine)}.jsonl"
    if again:
        path.unlink(missing_ok=True)
    return Rows(path, key(machine), minutes)


def earlier(folder: Path, here: torch.device) -> dict:
    """The other parts recorded on this device with this PyTorch; none if either is different."""
    machine, torch_version = save.hardware(here)["device"], importlib.metadata.version("torch")
    found = [m for m in measurements.load("bench", folder) if m.hardware["device"] == machine]
    return dict(found[0].results) if found and found[0].versions["torch"] == torch_version else {}


def main(argv: list[str] | None = None) -> int:
    """Run parts. The exit status is 1 if any failed (the others still run), 3 if a time limit cut one short."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choices = (*MODULES, "table", "install")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{' '.join(choices)} (default: install {' '.join(PARTS)} table)"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds; numbers mean nothing")
    parser.add_argument("--minutes", type=float, help="time limit for each part (default: none)")
    parser.add_argument("--again", action="store_true", help="start interrupted parts over")
    parser.add_argument("--folder", type=Path, help="where results are written (default: the package's measurements)")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.parts if name not in choices]:
        parser.error(f"there is no part {unknown[0]}; the parts are: {', '.join(choices)}")
    folder = options.folder or (KEPT / "quick" if options.quick else measurements.FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    failed, cut = [], []
    usual = (*PARTS, "table") if options.quick else ("install", *PARTS, "table")
    for name in options.parts or usual:
        try:
            if name == "install":
                environment.install()
            elif name == "table":
                table.show(folder, picture=folder / "bench.png" if options.quick or options.folder else table.PICTURE)
            elif not part(name, options.quick, folder, options.minutes, options.again):
                cut.append(name)
        except Exception as error:  # the other parts may well work
            traceback.print_exc()
            say(f"{name}: failed, {type(error).__name__}: {error}")
            failed.append(name)
    if failed:
        say(f"Failed: {', '.join(failed)}. Run them again with: make bench PARTS={' '.join(failed)!r}")
    return 1 if failed else 3 if cut else 0


if __name__ == "__main__":
    sys.exit(main())
