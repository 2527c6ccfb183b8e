"""The `torchcourse` command: data, this machine, plans for sharded models, job scripts for clusters."""

import argparse
import sys

from torchcourse.errors import CourseError


def main(argv: list[str] | None = None) -> int:
    """Runs the command. Returns its exit status: 0 all went well, 1 something needs fixing, 2 a wrong call."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that has no ✓ or ≤ still shows the rest
    parser = argparse.ArgumentParser(prog="torchcourse", description=__doc__)
    parser.set_defaults(run=lambda arguments: parser.print_help() or 0)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    data = commands.add_parser("data", help="get data sets, list them").add_subparsers(required=True, metavar="COMMAND")
    fetch = data.add_parser("fetch", help="download data sets (on a machine with network)")
    fetch.add_argument("names", nargs="+", metavar="NAME", help="mnist, fashion_mnist, cifar10, or all")
    _add_root(fetch)
    fetch.add_argument("--force", action="store_true", help="download even what is there and whole")
    fetch.set_defaults(run=_fetch)
    listing = data.add_parser("list", help="show which data sets are where, with origin and size")
    _add_root(listing)
    listing.set_defaults(run=_list)

    doctor = commands.add_parser("doctor", help="is this machine ready for the course?")
    form = doctor.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="for programs, and for the instructor of a class")
    form.add_argument("--pool", nargs="+", metavar="FILE", help="what --json wrote, of a whole class, as one table")
    doctor.set_defaults(run=_doctor)

    plan = commands.add_parser(
        "plan",
        help="does a model fit? bytes on each rank, messages in a step, devices needed",
        description="Says what each rank of a sharded training holds and sends, by arithmetic alone (chapter 10).",
    )
    plan.add_argument("parameters", type=_count, metavar="SIZE", help="parameters of the model: 7B, 350M, 79594")
    plan.add_argument("--ranks", type=_whole, default=8, metavar="N", help="processes, one device each (default: 8)")
    plan.add_argument("--sharding", default="fsdp", metavar="KIND", help="ddp, zero1, zero2 or fsdp (default: fsdp)")
    plan.add_argument("--precision", default="mixed", help="fp32, mixed or bf16 (default: mixed)")
    plan.add_argument("--optimizer", default="adamw", help="adamw, momentum or sgd (default: adamw)")
    plan.add_argument(
        "--blocks", type=_whole, default=32, metavar="B", help="equal blocks, each sharded on its own (default: 32)"
    )
    plan.add_argument(
        "--activations", type=_gigabytes, default=0, metavar="GB", help="what each rank keeps of its batch (default: 0)"
    )
    plan.add_argument(
        "--cache",
        type=_whole,
        metavar="TOKENS",
        help="instead, what writing so many tokens needs (chapter 14)",
    )
    plan.add_argument("--width", type=_whole, default=4096, help="of the keys of a block, for --cache (default: 4096)")
    plan.set_defaults(run=_plan)

    job = commands.add_parser("job", help="write a job script for a cluster, and hand it in")
    job.add_argument("--site", default="generic", help="a profile: a name (see --sites) or a TOML file of your own")
    job.add_argument("--sites", action="store_true", help="list the profiles, and stop")
    job.add_argument("--about", action="store_true", help="what the profile is based on, and first commands; then stop")
    job.add_argument("--nodes", type=int, default=1)
    job.add_argument("--processes", type=int, help="of each node (default: one for each GPU, or one)")
    job.add_argument("--gpus", type=int, default=0, help="of each node")
    job.add_argument("--cores", type=int, help="of each process (default: its share of the node)")
    job.add_argument("--memory", type=int, metavar="GIB", help="of each node (default: the share of the GPUs or cores)")
    job.add_argument(
        "--time",
        default="1:00",
        help="hours and minutes: 2:00 (sbatch itself reads that as two minutes), or with days: 1-12:00 (default: 1:00)",
    )
    job.add_argument("--partition")
    job.add_argument("--account")
    job.add_argument("--name", help="of the job (default: that of your script)")
    job.add_argument("--array", metavar="INDICES", help="0-9: a job for each index; 0-9%%2: two at a time")
    job.add_argument("--mail", metavar="ADDRESS", help="where Slurm writes when the job has ended or failed")
    job.add_argument(
        "--again",
        type=int,
        default=0,
        metavar="SECONDS",
        help="before the limit, send SIGUSR1; requeue the job if the program exits with 75",
    )
    job.add_argument("--submit", action="store_true", help="hand it to sbatch instead of printing it")
    job.add_argument("program", nargs=argparse.REMAINDER, help="your script and its arguments, last")
    job.set_defaults(run=_job)

    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except CourseError as error:
        print(f"torchcourse: {error}", file=sys.stderr)
        return 1


def _add_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", metavar="DIR", help="folder of the data (default: TORCHCOURSE_DATA, else your cache folder)"
    )


def _fetch(arguments: argparse.Namespace) -> int:
    from torchcourse import data
    from torchcourse.data import catalog, download

    root = data.root_folder(arguments.root)
    names = list(data.NAMES) if arguments.names == ["all"] else arguments.names
    for name in names:
        catalog.spec(name)  # a misspelt name is told before anything is downloaded
    for name in names:
        print(download.fetch(name, root, force=arguments.force), flush=True)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from torchcourse import data

    root = data.root_folder(arguments.root)
    rows = data.overview(root)
    print(f"Data sets under {root}" + ("" if root.is_dir() else " (no such folder)"))
    table = [("name", "split", "images", "origin", "size", "where")]
    table += [(r["name"], r["split"], f"{r['count']:,}", r["origin"], _size(r["bytes"]), r["where"]) for r in rows]
    widths = [max(len(row[k]) for row in table) for k in range(6)]
    for row in table:
        cells = [
            cell.rjust(w) if k in (2, 4) else cell.ljust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    problems = [row["problem"] for row in rows if row["problem"]]
    for problem in problems:
        print(f"\ntorchcourse: {problem}", file=sys.stderr)
    if any(row["origin"] == "synthetic" for row in rows):
        print("\nsynthetic: a look-alike built into the course. The real data: torchcourse data fetch NAME")
    return 1 if problems else 0


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count else "-"


def _doctor(arguments: argparse.Namespace) -> int:
    from torchcourse.commands import doctor

    return doctor.pool(arguments.pool) if arguments.pool else doctor.main(json=arguments.json)


def _unit(size: float) -> tuple[str, float]:
    """The unit in which a number of bytes is easy to read."""
    return next((unit for unit in (("GB", 1e9), ("MB", 1e6)) if size >= unit[1] / 10), ("kB", 1e3))


def _count(text: str) -> float:
    """A number of parameters: "7B" is seven billion."""
    factor = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(text[-1:].upper())
    try:
        count = float(text[:-1].replace(",", "")) * factor if factor else float(text.replace(",", ""))
    except ValueError:
        count = 0.0
    if not 1 <= count < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of parameters: write 7B, 350M or 79594")
    return count


def _gigabytes(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = -1.0
    if not 0 <= size < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GB, 0 or more")
    return size


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _plan(arguments: argparse.Namespace) -> int:
    from torchcourse.lectures import sharding

    a = arguments
    if a.cache:
        weights, cache = 2 * a.parameters, 2 * 2 * a.blocks * a.width * a.cache  # a key and a value, two bytes a number
        unit, scale = _unit(weights + cache)
        print(f"{a.parameters:,.0f} parameters, {a.blocks} blocks, keys of {a.width:,} numbers, 16 bits each\n")
        print(f"{'to write':<30}{unit:>10}")
        for name, size in (("  weights", weights), (f"  cache of {a.cache:,} tokens", cache)):
            print(f"{name:<30}{size / scale:>10,.2f}")
        return 0
    choice = {"kind": a.sharding, "precision": a.precision, "blocks": a.blocks}
    holds = sharding.footprint(a.parameters, a.ranks, optimizer=a.optimizer, **choice)
    messages = sharding.sent(a.parameters, a.ranks, **choice)
    print(f"{a.parameters:,.0f} parameters, {a.optimizer}, {a.precision}, {a.sharding} over {a.ranks} ranks")
    print(f"({a.sharding}: {sharding.KINDS[a.sharding]})\n")
    activations = a.activations * 1e9
    rows = [("  " + name, getattr(holds, name)) for name in ("weights", "gradients", "optimizer")]
    rows += [("  whole, for a moment", holds.whole)] + ([("  activations", activations)] if activations else [])
    unit, scale = _unit(holds.total)
    print(f"{'each rank holds':<22}{unit:>10}")
    for name, size in (*rows, ("  at the peak", holds.total + activations)):
        print(f"{name:<22}{size / scale:>10,.2f}")
    unit, scale = _unit(sum(message.sent for message in messages))
    print(f"\n{'in each step':<22}{'messages':>10}{f'{unit} sent by a rank':>20}")
    for message in messages:
        count = f"{'≤ ' if message.at_most else ''}{message.count:,}"
        print(f"  {message.name:<20}{count:>10}{message.sent / scale:>20,.2f}")
    if not messages:
        print("  none: there is one rank")
    print("\nfewest devices, if 90% of their memory is usable")
    for size in (40, 80, 141):
        devices = sharding.fewest(a.parameters, size * 1e9, optimizer=a.optimizer, activations=activations, **choice)
        print(f"  {f'{size} GB':<20}{devices or 'no number is enough':>10}")
    if not activations:
        print("\nActivations come on top. They grow with each rank's batch, and no kind of sharding here divides them.")
    return 0


def _job(arguments: argparse.Namespace) -> int:
    import shutil
    import subprocess

    from torchcourse.cluster import job

    if arguments.sites:
        for name, title in job.sites().items():
            print(f"{name:<18}{title}")
        return 0
    if arguments.about:
        print(job.describe(arguments.site))
        return 0
    if not arguments.program:
        raise CourseError("Say which script the job runs: torchcourse job --nodes 2 train.py")
    asked = ("nodes", "processes", "gpus", "cores", "memory", "time", "partition", "account", "name")
    asked += ("array", "mail", "again")
    script = job.script(arguments.site, arguments.program, **{name: getattr(arguments, name) for name in asked})
    if not arguments.submit:
        print(script, end="")
        return 0
    if not shutil.which("sbatch"):
        raise CourseError(
            "There is no sbatch here. Run this on the cluster, or leave out --submit and copy the script."
        )
    return subprocess.run(["sbatch"], input=script, text=True).returncode


if __name__ == "__main__":
    sys.exit(main())
