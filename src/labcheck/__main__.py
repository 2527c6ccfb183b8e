"""The `labcheck` command: what the checks have found until now, yours or that of a class.

    labcheck progress                          which exercises you have solved on this machine
    labcheck progress --json > mine.json       for your instructor
    labcheck progress --pool reports/*.json    the files of a class in one table
    labcheck progress --certificate mine.html --name "Ada Lovelace"    a page to print

The JSON holds the exercises, whether you have started or solved them, which known misconceptions came up, and a random
number: no name, no code, no time.
"""

import argparse
import sys
from pathlib import Path

from labcheck import certificate, reports
from torchcourse.errors import CourseError


def main(argv: list[str] | None = None) -> int:
    """Runs the command. Returns its exit status: 0 all went well, 1 some files are not counted, 2 a wrong call."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that has no × still shows the rest
    parser = argparse.ArgumentParser(
        prog="labcheck", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["progress"])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print your progress for your instructor")
    form.add_argument("--pool", nargs="+", metavar="FILE", type=Path, help="what --json wrote, as one table")
    form.add_argument("--certificate", metavar="FILE", type=Path, help="write your certificate, an HTML page")
    parser.add_argument("--name", help="yours, for the certificate")
    arguments = parser.parse_args(argv)
    if bool(arguments.certificate) != bool(arguments.name):
        parser.error('a certificate has a name: --certificate FILE --name "Your Name"')
    if arguments.certificate:
        try:
            page = certificate.page(arguments.name, reports.mine()[1])
            arguments.certificate.write_text(page, encoding="utf-8", errors="replace")
        except (CourseError, OSError) as error:
            print(f"labcheck: {error}", file=sys.stderr)
            return 1
        print(f"Open {arguments.certificate} in a browser, and print it.")
        return 0
    if not arguments.pool:
        return reports.main(json=arguments.json)
    students, trouble = reports.pooled(arguments.pool)
    print(reports.as_text(students.table()))
    for sentence in trouble:
        print(f"labcheck: {sentence}", file=sys.stderr)
    return int(bool(trouble))


if __name__ == "__main__":
    sys.exit(main())
