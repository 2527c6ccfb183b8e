"""Measure the course beside the official example and other libraries.

    python -m tools.bench                    install, the usual parts, table (half an hour on a quiet machine)
    python -m tools.bench peak mnist         some parts: peak libraries mnist cifar throughput gains table
    python -m tools.bench precision ddp      others: bandwidth precision recipes ddp, on the best device
    python -m tools.bench install            the libraries to compare with, into build/bench-venv
    python -m tools.bench --quick            seconds: does it run? Its numbers mean nothing and go to build/bench/quick

Results go to the package's measurements: `bench-MACHINE.json` with an entry for each of peak, libraries, mnist and
cifar. The other parts measure on the best device of this machine and have files of their own, `PART-MACHINE.json`. A
part measured again replaces what it wrote before. precision, recipes and ddp keep what they have in build/bench and go
on from there when they were stopped, on the same day; `--minutes 5` stops each of them in good order.
"""

import argparse
import datetime
import importlib
import importlib.metadata
import subprocess
import sys
import time
import traceback
from pathlib import Path

from tools.bench import environment, save, table
from tools.bench.journal import Journal
from tools.course import ROOT
from torchcourse import device, measurements

PARTS = ("peak", "libraries", "mnist", "cifar", "throughput")  # in this order; each is a module with `measure`
TOPICS = ("throughput", "bandwidth", "precision", "recipes", "ddp")  # modules, too: best device, a file for each
RESTARTABLE = ("precision", "recipes", "ddp")  # their `measure` takes a journal
OTHERS = (*TOPICS[1:], "gains", "table", "install")
JOURNALS = ROOT / "build" / "bench"
QUICK = ROOT / "build" / "bench" / "quick"


def say(line: str) -> None:
    """Print a line of progress with the time of day."""
    print(f"{datetime.datetime.now():%H:%M:%S} {line}", flush=True)


def part(name: str, quick: bool, folder: Path, minutes: float | None = None) -> bool:
    """Measure one part and write it down; False if the time was over before all of it was measured."""
    start = time.perf_counter()
    module = importlib.import_module(f"tools.bench.{name}")
    journal = journal_of(name, quick, minutes) if name in RESTARTABLE else None
    results = module.measure(quick=quick, say=say, **({"journal": journal} if journal else {}))
    seconds = time.perf_counter() - start
    if name in TOPICS:
        best = device.best()
        command = f"make {'bench' if best.type == 'cpu' else 'gpu'} PARTS={name}"
        path = save.write(name, results, command, device=best, folder=folder)
    else:
        entry = {"date": datetime.date.today().isoformat(), "wall_s": round(seconds)} | results
        path = save.write("bench", earlier(folder) | {name: entry}, "make bench", folder=folder)
    cut = bool(journal and journal.cut)
    say(f"{name}: {'the time is over' if cut else 'done'} after {seconds:.0f} s, written to {path.name}")
    return not cut


def journal_of(name: str, quick: bool, minutes: float | None) -> Journal:
    """The journal of a part for this device, PyTorch and day. A quick run keeps nothing."""
    if quick:
        return Journal(minutes=minutes)
    head = {
        "device": save.hardware(device.best())["device"],
        "torch": importlib.metadata.version("torch"),
        "date": datetime.date.today().isoformat(),
    }
    return Journal(JOURNALS / f"journal-{name}.json", minutes, head)


def gains(quick: bool, folder: Path) -> None:
    """The recorded gains of chapter 05, in a process of their own: they compute in one thread."""
    little = f"--images 640 --epochs 1 --seeds 1 --output {folder / 'cifar_gains.json'}".split()
    subprocess.run([sys.executable, "-m", "tools.bench.gains", *(little if quick else [])], check=True, cwd=ROOT)


def earlier(folder: Path) -> dict:
    """The other parts recorded on this machine with this PyTorch; none where either is another."""
    here, torch = save.hardware()["device"], importlib.metadata.version("torch")
    found = [m for m in measurements.load("bench", folder) if m.hardware["device"] == here]
    return dict(found[0].results) if found and found[0].versions["torch"] == torch else {}


def main(argv: list[str] | None = None) -> int:
    """Run parts. The exit status is 1 if any failed (the others ran all the same), 3 if a time limit cut one short."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choices = (*PARTS, *OTHERS)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{' '.join(choices)} (default: install {' '.join(PARTS)} table)"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds; numbers mean nothing")
    parser.add_argument("--minutes", type=float, help="for each of precision, recipes and ddp (default: no limit)")
    parser.add_argument("--folder", type=Path, help="where results are written (default: the package's measurements)")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.parts if name not in choices]:
        parser.error(f"there is no part {unknown[0]}; the parts are: {', '.join(choices)}")
    folder = options.folder or (QUICK if options.quick else measurements.FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    failed, cut = [], []
    usual = (*PARTS, "table") if options.quick else ("install", *PARTS, "table")
    for name in options.parts or usual:
        try:
            if name == "install":
                environment.install()
            elif name == "gains":
                gains(options.quick, folder)
            elif name == "table":
                table.show(folder, picture=folder / "bench.png" if options.quick or options.folder else table.PICTURE)
            elif not part(name, options.quick, folder, options.minutes):
                cut.append(name)
        except Exception as error:  # the next part may well work, and half an hour is not to be lost
            traceback.print_exc()
            say(f"{name}: failed, {type(error).__name__}: {error}")
            failed.append(name)
    if failed:
        say(f"Failed: {', '.join(failed)}. Run them again with: make bench PARTS={' '.join(failed)!r}")
    return 1 if failed else 3 if cut else 0


if __name__ == "__main__":
    sys.exit(main())
