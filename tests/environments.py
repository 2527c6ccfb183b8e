"""Environments as they are met elsewhere: fewer packages than here, a different folder, a small machine, no network."""

import ast
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from conftest import need, skip_or_fail, why_not
from filelock import FileLock
from packaging.requirements import Requirement

from tools.course import ROOT

LEAST = ("torch", "torchvision", "matplotlib", "ipykernel", "pip")  # what the set-up cell counts on, and the installer
ALSO_NEEDED = ("safetensors", "cloudpickle")  # not required by those above: the set-up cell installs them
SMALL = 64 * 2**20  # bytes: /dev/shm of a container by default


@functools.cache
def closure(names: tuple[str, ...]) -> frozenset[str]:
    """The distributions of these names, and all that they require on this machine."""
    found, todo = set(), [(name, "") for name in names]
    while todo:
        name, extra = todo.pop()
        if (name, extra) not in found:
            found.add((name, extra))
            for wanted in map(Requirement, metadata.requires(name) or []):
                if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                    todo += [(wanted.name, wish) for wish in ("", *wanted.extras)]
    return frozenset(name for name, _ in found)


def imported(source: str) -> set[str]:
    """The top modules that Python code imports anywhere, except optional ones, which are in a `try`."""
    tree = ast.parse(source)
    optional = {id(node) for attempt in ast.walk(tree) if isinstance(attempt, ast.Try) for node in ast.walk(attempt)}
    modules = set()
    for node in ast.walk(tree):
        if id(node) in optional:
            continue
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(node.module.partition(".")[0])
    return modules


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


def colab(folder: Path) -> Path:
    """A virtual environment with what Colab has (tests/colab.txt); returns its Python.

    The packages are installed once for each list, into build/, with Colab's Python where it can be had, else with ours.
    """
    listed = Path(__file__).parent / "colab.txt"
    kept = ROOT / "build" / f"colab-{hashlib.sha256(listed.read_bytes()).hexdigest()[:8]}"
    kept.parent.mkdir(exist_ok=True)
    with FileLock(f"{kept}.lock"):  # tests that run at the same time share it
        if not (kept / "complete").exists():
            version = re.search(r"# Python (3\.\d+)", listed.read_text())[1]
            pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python")
            shutil.rmtree(kept, ignore_errors=True)  # also half of one, which uv would not take for an environment
            any(_uv("venv", "--python", each, kept) == "" for each in (*pyenv, version, sys.executable))
            if error := _uv("pip", "install", "--python", kept / "bin" / "python", "-r", listed):
                skip_or_fail(f"Colab's packages could not be installed: {error}")
            (kept / "complete").touch()
    subprocess.run([kept / "bin" / "python", "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "colab.pth").write_text(f"{next(kept.glob('lib/python*/site-packages'))}\n")
    pretend_colab(folder / "bin" / "python")
    return folder / "bin" / "python"


def _uv(*words: str | Path) -> str:
    """Run uv; returns what went wrong."""
    done = subprocess.run([sys.executable, "-m", "uv", "--quiet", *words], capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else ""


def pretend_colab(python: Path) -> None:
    """Give an environment the package by which Colab is known."""
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    (site / "google" / "colab").mkdir(parents=True)
    (site / "google" / "colab" / "__init__.py").touch()


def small_machine(folder: Path) -> list[str]:
    """The beginning of a command that runs on two cores, with a small /dev/shm, without network, name service, Slurm.

    Not even the machine's own name leads anywhere: whatever looks it up, as gloo does unless it is told better, fails.
    folder: for a file that the sandbox needs. Where there is no bubblewrap, the list is empty: then the command runs on
    the machine as it is. In CI there is one.
    """
    if os.environ.get("CI") == "true":
        need("bubblewrap")
    elif why_not("bubblewrap"):
        return []
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    command = ["taskset", "--cpu-list", cores, "bwrap", "--dev-bind", "/", "/", "--die-with-parent"]
    command += ["--size", str(SMALL), "--tmpfs", "/dev/shm"]
    command += ["--unshare-net", "--unshare-uts", "--hostname", "colab", "--ro-bind", str(hosts), "/etc/hosts"]
    slurm = shutil.which("slurmctld", path="/usr/sbin:/usr/bin")
    return [*command, "--ro-bind", "/dev/null", os.path.realpath(slurm)] if slurm else command
