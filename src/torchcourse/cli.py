"""The `torchcourse` command: get data, see what is where, ask whether this machine is ready."""

import argparse
import sys

from torchcourse.errors import CourseError


def main(argv: list[str] | None = None) -> int:
    """Runs the command. Returns its exit status: 0 all went well, 1 something has to be mended, 2 a wrong call."""
    parser = argparse.ArgumentParser(prog="torchcourse", description=__doc__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

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
    if any(row["origin"] == "drawn" for row in rows):
        print("\ndrawn: a look-alike built into the course. The real data: torchcourse data fetch NAME")
    return 1 if problems else 0


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count else "-"


def _doctor(arguments: argparse.Namespace) -> int:
    from torchcourse import doctor

    return doctor.pool(arguments.pool) if arguments.pool else doctor.main(json=arguments.json)


if __name__ == "__main__":
    sys.exit(main())
