# @title Set-up: run this cell first
# Finds the package of the course or installs it. An installed PyTorch is never touched.
import importlib
import importlib.util
import os
import site
import subprocess
import sys
from pathlib import Path

# Address and hash of the released package: pip refuses any other file. `make release` fills this in.
PACKAGE = ""


class SetupStopped(Exception):
    """Its sentence is all that a reader needs: shown without a traceback."""

    def _render_traceback_(self):
        return [str(self)]


def missing(*packages):
    importlib.invalidate_caches()
    specs = {package: importlib.util.find_spec(package) for package in packages}
    return [name for name, spec in specs.items() if not (spec and spec.origin)]  # a mere folder has no origin


def course_around(folder):
    """The sources of the copy of the course around a folder: its root has course.toml. All belong to one person."""
    for up in (folder, *folder.parents):
        if (up / "course.toml").is_file():
            package = up / "src" / "torchcourse"
            parts = (up, up / "course.toml", up / "src", package, package / "__init__.py")
            # A link counts for the one who made it: others may have theirs lead to any file of yours.
            ours = parts[-1].is_file() and {part.lstat().st_uid for part in parts} == {folder.lstat().st_uid}
            return [str(up / "src")] if ours else []
    return []


def install(*packages, options=()):
    if missing("pip"):  # an environment of uv
        raise SetupStopped(
            f"Missing here: {', '.join(packages)}. This environment has no pip. In a terminal, run `uv pip install "
            f"--python {sys.executable} {' '.join([*options, *packages])}`, then this cell again."
        )
    command = [sys.executable, "-m", "pip", "install", "--quiet", *options, *packages]
    # Where PIP_USER is set, pip refuses to work in a virtual environment.
    env = os.environ | ({} if sys.prefix == sys.base_prefix else {"PIP_USER": "0"})
    pip = subprocess.run(command, capture_output=True, text=True, env=env)
    if site.ENABLE_USER_SITE and site.getusersitepackages() not in sys.path:
        sys.path.append(site.getusersitepackages())  # pip goes there where it may not write elsewhere
    if "DO NOT MATCH THE HASHES" in pip.stderr:
        raise SetupStopped(
            f"The file at {packages[0].partition('#')[0]} is not the one that this notebook was released with, so "
            "it was not installed. Download the notebook again from {students}, or ask your instructor."
        )
    if pip.returncode:
        lines = [line.strip() for line in pip.stderr.splitlines() if line.strip()] or ["nothing"]
        reason = next((line for line in lines if line.startswith(("ERROR", "fatal"))), lines[-1])
        raise SetupStopped(
            f"Missing here: {', '.join(packages)}. It could not be installed: is this machine offline? With a network, "
            f"run `pip install {' '.join([*options, *packages])}`, then this cell again. pip said: {reason}"
        )


if missing("torch"):
    raise SetupStopped("PyTorch is missing. Run `pip install torch torchvision`, then restart the kernel.")
if missing("torchcourse"):
    sys.path += course_around(Path.cwd().resolve())
if missing("torchcourse"):
    source = os.environ.get("TORCHCOURSE_SOURCE", PACKAGE)
    if not source:
        raise SetupStopped(
            "This notebook needs the copy of the course that it came from: only released notebooks install the package "
            "themselves. Put it back there, or get the released one from {students}."
        )
    install(source, options=["--no-deps"])
if needed := missing("matplotlib", "numpy", "safetensors", "cloudpickle", "psutil"):
    install(*needed)

import torchcourse

torchcourse.setup("{chapter}")
