"""The course on a GPU machine: say what is there, execute, test, measure.

    python -m tools.gpu                                   everything
    python -m tools.gpu run tests ddp                     some parts, see PART below
    python -m tools.gpu look                              only say what is here and what is missing
    python -m tools.gpu --minutes 4                       a time limit for each part
    python -m tools.gpu --within 9                        a time limit for everything together
    python -m tools.gpu --wheels FOLDER --data FOLDER     what traveled along: packages, data
    python -m tools.gpu pack-data FOLDER                  where the data are: pack them in parts that can travel
    python -m tools.gpu --on cpu --quick                  try the whole way on a processor; its numbers mean nothing

It needs a CUDA device, PyTorch, and the packages that it names if they are missing; no network. Measurements go to the
package, src/torchcourse/measurements, one file for each part and device; everything else goes to build/gpu. After each
part build/gpu/results.tar.gz holds all of it: `tar xzf` it in the clone from which you came. A part that was measured
today at the same commit is not measured again unless you name it. One that was cut off continues where it was.
`--again` starts everything over.

Exit status: 0 fine, 1 something failed, 2 no device or a package missing, 3 cut off by a time limit.
"""

import argparse
import datetime
import importlib
import json
import math
import os
import signal
import sys
import tarfile
import time
from dataclasses import asdict
from pathlib import Path

from tools.course import ROOT
from tools.gpu import carry, machine, parts
from tools.gpu.parts import MEASURED, PARTS, Outcome

OUT = ROOT / "build" / "gpu"
FINE = ("passed", "measured")


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{' '.join(PARTS)} (default: all), look, pack-data")
    parser.add_argument("--minutes", type=float, help="time limit for each part")
    parser.add_argument("--within", type=float, metavar="MINUTES", help="time limit for everything together")
    parser.add_argument("--chapters", nargs="*", default=[], help='of the part "run", for example 03 07')
    parser.add_argument(
        "--wheels", type=Path, help=f"folder of wheels to use (default: {machine.WHEELS} if it is there)"
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets, or of the parts that pack-data made")
    parser.add_argument("--again", action="store_true", help="also what was done today")
    parser.add_argument("--on", choices=("cuda", "cpu"), default="cuda", help="kind of device (cpu: with --quick only)")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; numbers mean nothing")
    options = parser.parse_args(arguments)
    options.named = bool(options.parts)
    # From now on: installing wheels and unpacking data take their time, too.
    options.end = math.inf if options.within is None else time.monotonic() + 60 * options.within
    if options.parts[:1] == ["pack-data"]:
        if len(options.parts) != 2:
            parser.error("pack-data takes one folder: python -m tools.gpu pack-data build/data-parts")
        return options
    if unknown := [name for name in options.parts if name not in (*PARTS, "look")]:
        parser.error(f"there is no part {unknown[0]}; the parts are: {', '.join(PARTS)}")
    if options.on == "cpu" and not options.quick:
        parser.error("on a processor this command only tries the way (--quick); `make bench` is what measures there")
    options.parts = options.parts or list(PARTS)
    return options


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = options_of(arguments)
    try:
        if options.parts[0] == "pack-data":
            return pack_data(Path(options.parts[1]))
        environment = prepare(options)
    except carry.CarryError as error:
        print(error, file=sys.stderr)
        return 2
    findings = machine.look(options.on)
    print(*findings, sep="\n", flush=True)
    if options.on != "cpu" and machine.kind_of_device() != options.on:
        print(f"\n{machine.no_device(options.on)}", file=sys.stderr)
        return 2
    if broken := [finding.name for finding in findings if finding.ok is False]:
        print(f"\nFix first: {', '.join(broken)}.", file=sys.stderr)
        return 2
    if options.parts == ["look"]:
        return 0
    return work(options, environment)


def pack_data(folder: Path) -> int:
    """The parts of the data sets, for the way."""
    sys.path.insert(0, str(ROOT / "src"))
    from torchcourse.place import root_folder

    print("Packing takes some minutes: it is done well, so that little has to travel.", flush=True)
    made = carry.pack(root_folder(), folder)
    for path in made:
        print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB")
    print(f"Bring them and {carry.SUM} along, all in one folder, then: python -m tools.gpu --data THAT_FOLDER")
    return 0


def prepare(options: argparse.Namespace) -> dict[str, str]:
    """Bring wheels and data into reach, of this process and of those that it starts; returns their environment."""
    OUT.mkdir(parents=True, exist_ok=True)
    wheels, site = options.wheels or ROOT / machine.WHEELS, None
    missing = machine.lacking(machine.NEEDED | machine.HELPFUL | machine.POWER)
    if options.wheels or (missing and wheels.is_dir()):
        site = OUT / "site"
        count = carry.install(wheels, site)
        print(f"{count} packages from {wheels}, for this command alone")
    environment = carry.paths(ROOT, site)
    if not options.data:  # else every process would look for a network before it takes synthetic images
        environment["TORCHCOURSE_OFFLINE"] = os.environ.get("TORCHCOURSE_OFFLINE", "1")
    if options.on == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if options.data:
        environment["TORCHCOURSE_DATA"] = str(carry.unpack(options.data.resolve(), OUT / "data"))
    os.environ.update(environment)
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    importlib.invalidate_caches()
    return environment


def work(options: argparse.Namespace, environment: dict[str, str]) -> int:
    """All parts, one after the other, then the table."""
    folder = OUT / "quick" if options.quick else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    state = OUT / ("report-quick.json" if options.quick else "report.json")
    about = here(options.on)
    earlier = done_before(state, about)
    outcomes: list[Outcome] = []
    interrupted = False
    for part in [name for name in PARTS if name in options.parts]:
        known = earlier.get(part)
        if part in MEASURED and known and known.status in FINE and not (options.again or options.named):
            outcomes.append(known)
            print(f"\n{part}: done before, {known.seconds:.0f} s; --again repeats it", flush=True)
            continue
        print(f"\n--- {part} ---", flush=True)
        if part == "run" and options.again:
            (OUT / "run" / "done.json").unlink(missing_ok=True)
        minutes = parts.share(options.minutes, options.end - time.monotonic())
        if minutes is not None and minutes <= 0:
            outcomes.append(Outcome(part, "cut off", 0.0, "no time was left; run again to go on"))
            continue
        command = parts.command(part, ROOT, OUT, minutes, options.quick, options.chapters, folder, options.again)
        try:
            outcomes.append(parts.perform(part, command, environment, minutes, ROOT, OUT))
        except KeyboardInterrupt:
            interrupted = True
            break
        earlier[part] = outcomes[-1]
        kept = {name: asdict(outcome) for name, outcome in earlier.items()}
        state.write_text(json.dumps({"about": about, "parts": kept}, indent=1) + "\n")
        archive(folder)  # after each part: the machine may be gone before the last
    print("\n" + table(outcomes, about))
    print(f"All results: {archive(folder).relative_to(ROOT)}")
    if interrupted:
        return 130
    states = {outcome.status for outcome in outcomes}
    return 1 if "failed" in states else parts.CUT if "cut off" in states else 0


def here(kind: str) -> dict[str, str]:
    """What results depend on."""
    import torch

    from tools.bench import rows
    from torchcourse import device

    return {
        "device": device.describe("cpu" if kind == "cpu" else device.best()),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
        "commit": rows.commit(),
    }


def done_before(state: Path, about: dict[str, str]) -> dict[str, Outcome]:
    """Outcomes of an earlier run on the same device, PyTorch, day and commit."""
    if not state.exists():
        return {}
    content = json.loads(state.read_text())
    return {name: Outcome(**one) for name, one in content["parts"].items()} if content["about"] == about else {}


def table(outcomes: list[Outcome], about: dict[str, str]) -> str:
    """What passed, failed, was measured, and how long it took."""
    lines = [f"{about['device']}, PyTorch {about['torch']}, {about['date']}"]
    lines += [f"{'part':<12} {'result':<10} {'seconds':>8}  note", "-" * 60]
    lines += [f"{o.part:<12} {o.status:<10} {o.seconds:>8.0f}  {o.note}".rstrip() for o in outcomes]
    lines.append(f"{'':<12} {'':<10} {sum(o.seconds for o in outcomes):>8.0f}  in all")
    return "\n".join(lines)


def archive(folder: Path | None) -> Path:
    """Everything that should come back from a machine that will be gone, packed from the root of the clone."""
    path = OUT / "results.tar.gz"
    wanted = [*OUT.glob("report*.json"), *OUT.glob("tests.xml"), *OUT.glob("run/*.json"), *OUT.glob("run/*.html")]
    wanted += [*OUT.glob("run/*/*.ipynb"), *OUT.glob("run/*/*.html"), *(ROOT / "build" / "bench").glob("rows-*.jsonl")]
    wanted += (folder or ROOT / "src" / "torchcourse" / "measurements").glob("*-*.json")
    new = path.with_suffix(".new")
    with tarfile.open(new, "w:gz") as pack:
        for file in sorted(wanted):
            pack.add(file, file.relative_to(ROOT))
    new.replace(path)  # whole or not at all: a full one of an earlier part is better than half of this one
    return path


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
