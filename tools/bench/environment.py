"""The libraries to compare with, in a virtual environment of their own: build/bench-venv.

The course does not need them, and they bring a hundred packages. The environment also sees everything installed for the
course (PyTorch is not downloaded again); the rest is the extra `bench` of pyproject.toml.
"""

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

from tools.course import ROOT
from torchcourse.errors import CourseError

FOLDER = ROOT / "build" / "bench-venv"
ADVICE = "The libraries to compare with are not installed: run `make bench`, or `python -m tools.bench install`."


def python(folder: Path = FOLDER) -> Path:
    """The environment's interpreter, whether it is there or not."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def requirements(root: Path = ROOT) -> list[str]:
    """The extra `bench`: the libraries to compare with."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]["bench"]


def install(folder: Path = FOLDER) -> None:
    """Make the environment, or bring it up to date. Raises CourseError when pip fails."""
    if not python(folder).exists():
        venv.create(folder, with_pip=True)
    paths = {"base": str(folder), "platbase": str(folder)}
    site_packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=paths))
    # One line that Python runs when the environment starts: look among the course's packages, too.
    course = sysconfig.get_path("purelib")
    (site_packages / "course.pth").write_text(f"import site; site.addsitedir({course!r})\n")
    pip = [str(python(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    print(f"Installing the libraries to compare with into {folder}: a few minutes the first time.", flush=True)
    if subprocess.run([*pip, *requirements()]).returncode:
        raise CourseError("pip could not install the libraries to compare with; see its message above.")


def interpreter(folder: Path = FOLDER) -> str:
    """The environment's Python if there is one, else the Python that runs now."""
    return str(python(folder)) if python(folder).exists() else sys.executable
