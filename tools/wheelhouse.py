"""Collect the packages that a GPU machine without network needs beside PyTorch, as wheels: `make wheelhouse`.

    python -m tools.wheelhouse --python 3.12 --machine x86_64       for this Python on Linux, on this kind of processor

Wanted is what running, testing and measuring the course needs (`make gpu`); not what only a person at a screen needs
(JupyterLab), and never PyTorch. `make gpu` finds the wheels in build/wheelhouse and installs those that the machine
lacks, for itself alone.
"""

import argparse
import shutil
import subprocess
import sys
import tomllib

from packaging.requirements import Requirement

from tools.course import ROOT

FOLDER = ROOT / "build" / "wheelhouse"
NOT_WANTED = {"torch", "torchvision", "jupyterlab", "ipywidgets"}
ON_TOP = ["pytest>=8.2", "pytest-timeout>=2.4", "nvidia-ml-py>=12"]  # for the tests, and for the power of a GPU


def wanted() -> list[str]:
    """What running the course needs, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["lab"]]
    return [line for line in lines if Requirement(line).name not in NOT_WANTED] + ON_TOP


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.wheelhouse", description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default="3.12", help="the machine's Python (%(default)s)")
    parser.add_argument("--machine", default="x86_64", help="its processor, x86_64 or aarch64 (%(default)s)")
    options = parser.parse_args(arguments)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    (FOLDER / "requirements.txt").write_text("\n".join(wanted()) + "\n")
    command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--only-binary=:all:"]
    # Some packages want a later 3.11 than the first one, which is what pip takes "3.11" for.
    command += ["--python-version", f"{options.python}.9", "--dest", str(FOLDER), "-c", str(ROOT / "constraints.txt")]
    # pip takes a platform by the letter, so all older ones that will do are named as well.
    for name in [*(f"manylinux_2_{minor}" for minor in range(28, 16, -1)), "manylinux2014"]:
        command += ["--platform", f"{name}_{options.machine}"]
    if status := subprocess.run([*command, "-r", str(FOLDER / "requirements.txt")]).returncode:
        return status
    wheels = list(FOLDER.glob("*.whl"))
    size = sum(path.stat().st_size for path in wheels) / 2**20
    print(f"{len(wheels)} wheels, {size:.0f} MiB, in {FOLDER.relative_to(ROOT)}: bring this folder along.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
