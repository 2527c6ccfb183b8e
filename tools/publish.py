"""Is everything ready to publish a version? Then prepare it, and say what is left for a person.

    python -m tools.publish --dry-run    check, and show the commands
    python -m tools.publish              check, and run them, up to those that push: nothing leaves this machine

The commands are those of docs/release.md. The checks take about ten minutes and need a network, npm, and uv.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torchcourse
from tools.course import ROOT

TESTS = [f"tests/test_{name}.py" for name in ("release", "setup_cell", "supply_chain", "ways_in")]
CHECKS = {
    "every notebook is as this commit builds it": ["tools.build", "--check"],
    "hashes, badges, and set-up cells fit; the wheel installs alone": ["pytest", "-q", "-m", "", *TESTS],
    "every link is answered": ["tools.site", "--external"],
}


def unfinished(version: str, root: Path = ROOT) -> list[str]:
    """What has to be written or committed before `version` can be published, as sentences."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True).stdout

    found = []
    (news,) = re.findall(r"\A.*?^## (.+?)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.M | re.S)
    if news != version:
        found.append(f'The first section of CHANGELOG.md is "{news}": it has to be {version}.')
    if git("status", "--porcelain"):
        found.append("Some changes are not committed, and a tag would not hold them: commit them first.")
    if git("tag", "--list", f"v{version}"):
        found.append(f"v{version} is published, and a version never changes: raise __version__, and run `make build`.")
    return found


def steps(tag: str, root: Path = ROOT) -> list[str]:
    """The commands of docs/release.md that publish a version, in their order."""
    guide = (root / "docs" / "release.md").read_text(encoding="utf-8").replace("vVERSION", tag)
    return [line.strip() for line in re.search(r"```\n +(git tag .*?)```", guide, re.DOTALL)[1].strip().splitlines()]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make publish", description="Check and prepare a version of the course.")
    parser.add_argument("--dry-run", action="store_true", help="check, and show the commands, but run none of them")
    options, version = parser.parse_args(argv), torchcourse.__version__
    problems = unfinished(version)
    for check, command in CHECKS.items():
        good = subprocess.run([sys.executable, "-m", *command], cwd=ROOT).returncode == 0
        print(f"{'ok' if good else 'NOT ok'}: {check}", flush=True)
        problems += [] if good else [f"Not true, see above: {check}. (python -m {' '.join(command)})"]
    print(f"\nVersion {version}", "is not ready:" if problems else "is ready.", *problems, sep="\n  ")
    todo = steps(f"v{version}")
    if not problems and not options.dry_run:
        subprocess.run(["bash", "-exc", "\n".join(step for step in todo if " push " not in step)], cwd=ROOT, check=True)
        todo = [step for step in todo if " push " in step]
    print("\nOnce it is ready:" if problems else "\nNow it is your turn:", *todo, sep="\n  ")
    print("  and step 5 of docs/release.md")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
