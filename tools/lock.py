"""Write the versions that the tests have seen: constraints.txt and requirements.lock.

    make lock                         after a change of pyproject.toml; versions that still fit stay
    make lock OPTIONS=--upgrade       the newest of everything; `make test` says whether the course works with them

constraints.txt    versions only, for everyone and for any build of PyTorch
requirements.lock  the same versions with hashes, for authors and CI; all but PyTorch, whose wheels differ by index

Both hold on Linux, macOS and Windows and on every Python that the course supports. Needs uv.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tools.course import ROOT

PYTORCH = ("torch", "torchvision")
# Only a CUDA build needs these, each build its own, and torch names their versions itself.
OF_PYTORCH = re.compile(r"nvidia-(?!ml-py).*|cuda-.*|triton")
# Kept at an older version. jsonschema checks notebooks for Jupyter; from 4.25 on, its import builds 38 parsers for
# addresses that no notebook has: two seconds for each process that reads a notebook, as much as importing PyTorch. The
# bound stands here, and not in pyproject.toml, because uv would refuse the hashed lock beside it.
OLDER = ["jsonschema<4.25"]

CONSTRAINTS = """\
# The versions that the tests have seen, written by `make lock`: `pip install -c constraints.txt -e '.[lab]'`.
# No hashes: pip refuses them beside `-e`, and PyTorch's wheels for CPU and CUDA differ. What a CUDA build needs on
# top is left out: torch names those versions itself. requirements.lock has the hashes of everything else.
"""
LOCK = """\
# The versions of constraints.txt with the hash of every file, all but PyTorch. Written by `make lock`. `make` installs
# them with `pip install --no-deps --require-hashes -r requirements.lock`, then PyTorch, from the index of your choice.
"""


def packages(text: str) -> dict[str, list[tuple[str, str]]]:
    """Split what uv writes into name -> [(version and marker, its hashes)]; some names come once for each Python."""
    found: dict[str, list[tuple[str, str]]] = {}
    for block in re.findall(r"^[^\s#].*(?:\n +.*)*", text, re.MULTILINE):
        line, *hashes = re.split(r" *\\\n *", block.strip())
        found.setdefault(line.partition("==")[0], []).append((line, "".join(f" \\\n    {each}" for each in hashes)))
    return found


def compile_lock(known: str) -> str:
    """Have uv choose the versions for all platforms; those in `known` stay if they fit. Raises SystemExit."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is None:
        raise SystemExit("This needs uv, which is not installed: `pip install uv`, then run this again.")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    command = [uv, "pip", "compile", "pyproject.toml", "--extra", "dev", "--universal", "--generate-hashes"]
    command += ["--python-version", project["requires-python"].removeprefix(">=")]
    command += ["--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        out, older = Path(folder) / "lock.txt", Path(folder) / "older.txt"
        out.write_text(known)
        older.write_text("\n".join(OLDER))
        done = subprocess.run(
            [*command, "--constraint", older, "--output-file", out], cwd=ROOT, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"uv found no set of versions: {done.stderr.strip()}")
        return out.read_text()


def main(arguments: list[str]) -> None:
    """The command."""
    if set(arguments) - {"--upgrade"}:
        raise SystemExit("The only option is --upgrade: the newest versions of everything.")
    constraints, lock = ROOT / "constraints.txt", ROOT / "requirements.lock"
    known = constraints.read_text() if constraints.exists() and not arguments else ""
    chosen = {name: lines for name, lines in packages(compile_lock(known)).items() if not OF_PYTORCH.fullmatch(name)}
    constraints.write_text(CONSTRAINTS + "".join(f"{line}\n" for lines in chosen.values() for line, _ in lines))
    hashed = [line + hashes for name, lines in chosen.items() if name not in PYTORCH for line, hashes in lines]
    lock.write_text(LOCK + "".join(f"{block}\n" for block in hashed))
    print(f"{len(chosen)} packages in constraints.txt, with hashes in requirements.lock. Now run `make test`.")


if __name__ == "__main__":
    main(sys.argv[1:])
