"""A virtual environment on top of the one that runs: it sees all packages of that one, and has some of its own.

For packages that are wanted by one command alone: what `make bench` compares with, and what `make gpu` brought along.
"""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path


def python(folder: Path) -> str:
    """The interpreter of the environment if it is there, else the one that runs now."""
    found = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    return str(found) if found.exists() else sys.executable


def install(folder: Path, *words: str) -> str:
    """Make the environment, or bring it up to date; returns its interpreter.

    words: what `pip install` gets. Packages that the environment below has are there already, if their version fits.
    Raises RuntimeError when pip fails.
    """
    venv.create(folder, with_pip=False)
    base = {"base": str(folder), "platbase": str(folder)}
    # One line that Python runs when the environment starts: look among the packages of the one below, too.
    below = sysconfig.get_path("purelib")
    line = f"import site; site.addsitedir({below!r})\n"
    Path(sysconfig.get_path("purelib", scheme="venv", vars=base), "below.pth").write_text(line)
    pip = [sys.executable, "-m", "pip", "--python", python(folder), "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, *words]).returncode:
        raise RuntimeError("pip could not install what this needs; see its message above.")
    return python(folder)
