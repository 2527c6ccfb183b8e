"""Environments as they are met elsewhere: fewer packages than here, a different folder, a small machine, no network."""

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from conftest import skip_or_fail
from packaging.requirements import Requirement

from tools import release

COLAB = ("torch", "torchvision", "matplotlib", "ipykernel", "pip")  # what the course counts on, and the installer
ALSO_NEEDED = ("safetensors", "cloudpickle")  # not required by those above: the set-up cell installs them
SMALL = 64 * 2**20  # bytes: /dev/shm of a container by default


@functools.cache
def closure(names: tuple[str, ...]) -> frozenset[str]:
    """The distributions of these names, and all that they require on this machine."""
    found, todo = set(), [(name, "") for name in names]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for line in metadata.requires(name) or []:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                todo += [(need.name, wish) for wish in ("", *need.extras)]
    return frozenset(name for name, _ in found)


def new_environment(folder: Path, names: tuple[str, ...]) -> Path:
    """A virtual environment that sees these distributions and what they require, nothing else; returns its Python.

    They are linked from a folder outside of it, so that pip there can see but never touch them.
    """
    libraries, links = Path(sysconfig.get_path("purelib")), folder / "libraries"
    links.mkdir(parents=True)
    for top in {file.parts[0] for name in closure(names) for file in metadata.files(name) or []}:
        if top not in ("..", "__pycache__") and not top.endswith(".pth"):
            (links / top).symlink_to(libraries / top)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(f"{links}\n")
    return folder / "venv" / "bin" / "python"


def pretend_colab(python: Path) -> None:
    """Give an environment of `new_environment` the package by which Colab is known."""
    package = python.parents[2] / "libraries" / "google" / "colab"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()


def course_wheel(folder: Path) -> Path:
    """The package as the set-up cell would fetch it, built from this tree."""
    return release.build_wheel(folder)


def wheels(names: Iterable[str], folder: Path) -> None:
    """Wheels of installed distributions, packed again: what a package index would serve."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        installed = metadata.distribution(name)
        tag = next(line for line in installed.read_text("WHEEL").splitlines() if line.startswith("Tag: "))[5:]
        with zipfile.ZipFile(folder / f"{name}-{installed.version}-{tag}.whl", "w") as wheel:
            for file in installed.files:
                if file.parts[0] != ".." and "__pycache__" not in file.parts:
                    wheel.write(file.locate(), file.as_posix())


def small_machine(folder: Path) -> list[str]:
    """The beginning of a command that runs on two cores, with a small /dev/shm, without network and name service.

    Not even the machine's own name leads anywhere: whatever looks it up, as gloo does unless it is told better, fails.
    folder: for a file that the sandbox needs. Where bubblewrap does not work, the list is empty: then the command runs
    on the machine as it is. In CI it must work.
    """
    if not shutil.which("bwrap"):
        return _without_sandbox("bubblewrap is not installed")
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    command = ["taskset", "--cpu-list", cores, "bwrap", "--dev-bind", "/", "/", "--die-with-parent"]
    command += ["--size", str(SMALL), "--tmpfs", "/dev/shm"]
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    command += ["--unshare-net", "--unshare-uts", "--hostname", "colab", "--ro-bind", str(hosts), "/etc/hosts"]
    trial = subprocess.run([*command, "true"], capture_output=True, text=True)
    return _without_sandbox(f"bubblewrap does not work here: {trial.stderr}") if trial.returncode else command


def _without_sandbox(reason: str) -> list[str]:
    if os.environ.get("CI") == "true":
        skip_or_fail(reason)
    return []
