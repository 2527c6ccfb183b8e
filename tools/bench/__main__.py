"""Measure the course's recipes, beside the official example, and what the lectures show of speed.

    python -m tools.bench                    the usual parts, table (twenty minutes on an idle machine)
    python -m tools.bench peak mnist         some parts: peak mnist cifar throughput table
    python -m tools.bench precision ddp      others: precision ddp gains checkpoints gpt gpt_parts
    python -m tools.bench --quick            seconds: does it run? Its numbers mean nothing and go to build/bench

Parts run on the best device of this machine, gains on the processor. Results go to the package's measurements:
`bench-MACHINE.json` with an entry for each of peak, mnist and cifar, `PART-MACHINE.json` for each other part. A part
measured again replaces its earlier result. Close other programs: they take time from the part that is running.
"""

import argparse
import datetime
import importlib.metadata
import sys
import traceback
from pathlib import Path

import torch

from tools.bench import checkpoints, ddp, gains, gpt, recipes, speed, table
from tools.bench.record import hardware, say, write
from tools.course import ROOT
from torchcourse import device, measurements

USUAL = ("peak", "mnist", "cifar", "throughput")
PARTS = {
    "peak": speed.peak,
    "mnist": recipes.mnist,
    "cifar": recipes.cifar,
    "throughput": speed.throughput,
    "precision": speed.precision,
    "ddp": ddp.measure,
    "gains": gains.measure,
    "checkpoints": checkpoints.measure,
    "gpt": gpt.measure,
    "gpt_parts": gpt.parts,
}
TOGETHER = ("peak", "mnist", "cifar")  # entries of one file, bench-MACHINE.json


def measure(name: str, quick: bool, folder: Path) -> None:
    """Measure one part and write it down."""
    here = torch.device("cpu") if name == "gains" else device.best()
    results = PARTS[name](quick)
    command, topic = f"make {'bench' if here.type == 'cpu' else 'gpu'} PARTS={name}", name
    if name in TOGETHER:
        command = "make bench" if here.type == "cpu" else command
        topic, results = "bench", others(folder, here) | {name: {"date": f"{datetime.date.today()}"} | results}
    path = write("cifar_gains" if name == "gains" else topic, results, command, here, folder)
    say(f"{name}: done, written to {path.name}")


def others(folder: Path, here: torch.device) -> dict:
    """The parts recorded on this device with this PyTorch; none if either is different."""
    about = hardware(here)["device"], importlib.metadata.version("torch")
    found = [
        m.results for m in measurements.load("bench", folder) if (m.hardware["device"], m.versions["torch"]) == about
    ]
    return found[0] if found else {}


def main(argv: list[str] | None = None) -> int:
    """Run parts. The exit status is 1 if any failed; the others still run."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choices = (*PARTS, "table")
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(choices))
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds; numbers mean nothing")
    parser.add_argument("--folder", type=Path, help="where results are written (default: the package's measurements)")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.parts if name not in choices]:
        parser.error(f"there is no part {unknown[0]}; the parts are: {', '.join(choices)}")
    folder = options.folder or (ROOT / "build" / "bench" if options.quick else measurements.FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in options.parts or (*USUAL, "table"):
        try:
            if name == "table":
                table.show(folder, table.PICTURE if folder == measurements.FOLDER else folder / "bench.png")
            else:
                measure(name, options.quick, folder)
        except Exception:  # the other parts may well work
            traceback.print_exc()
            failed.append(name)
    if failed:
        print(f"Failed: {', '.join(failed)}. Run them again with: make bench PARTS={' '.join(failed)!r}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
