"""Python, PyTorch, and their companions: versions that fit, packages from one place, the kernel of notebooks."""

from __future__ import annotations

import codecs
import locale
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

from torchcourse import importing
from torchcourse.commands.doctor.finding import Answer, shown
from torchcourse.place import in_notebook

OLDEST_PYTHON = (3, 11)


def python() -> Answer:
    """Is Python new enough?"""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return False, version, f"Install Python {oldest} or newer and make a new environment with it."
    return True, version, ""


def pytorch() -> Answer:
    """Can PyTorch be imported, is it new enough, and what was it compiled for?"""
    if problem := importing.problem():
        return False, *problem
    import torch

    return True, f"{torch.__version__} ({_build()})", ""


def _build() -> str:
    import torch

    if torch.version.hip:
        return f"a build for AMD GPUs, ROCm {torch.version.hip}"
    if torch.version.cuda:
        return f"a build for NVIDIA GPUs, CUDA {torch.version.cuda}"
    accelerator = torch.accelerator.current_accelerator()
    return f"a build for {accelerator.type}" if accelerator else "a build for the CPU only"


def torchvision() -> Answer:
    """Does torchvision fit torch?"""
    # Importing torchvision takes seconds, and fails in a puzzling way ("operator torchvision::nms does not exist")
    # beside a torch that it was not built for. Its own list of requirements says what it was built for.
    import torch
    from packaging.requirements import Requirement

    try:
        version = metadata.version("torchvision")
    except metadata.PackageNotFoundError:
        return False, "not installed", "Run `pip install torchvision`; pip chooses the one that fits your torch."
    for line in metadata.requires("torchvision") or []:
        need = Requirement(line)
        if need.name == "torch" and not need.specifier.contains(torch.__version__, prereleases=True):
            found = f"{version} needs torch{need.specifier}, and torch {torch.__version__} is installed"
            return False, found, "Run `pip install --upgrade torch torchvision`: both together, so that they fit."
    return True, f"{version}, fits this torch", ""


def packages() -> Answer:
    """Do the libraries come from one environment, or does another one mix itself in?"""
    if strays := importing.mixed():
        found = f"{', '.join(strays)} from {shown(next(iter(strays.values())))}, the others from the environment"
        fix = "Two installations are mixed. Set PYTHONNOUSERSITE=1 and unset PYTHONPATH, then install what is missing."
        return None, found, fix
    if os.environ.get("PYTHONPATH"):
        found = "PYTHONPATH is set: what lies there comes before what is installed"
        return None, found, "Unset PYTHONPATH, unless you know what it is for."
    return True, "all from one place", ""


def names() -> Answer:
    """Is there a file in the working folder that hides a module of the same name?"""
    if hiding := importing.hiding(Path.cwd()):
        found = f"the working folder has {', '.join(hiding)}, which Python takes for the module of that name"
        return False, found, f"Rename {'it' if len(hiding) == 1 else 'them'}, then restart the kernel."
    return True, "nothing in the working folder hides a module", ""


def text_encoding() -> Answer:
    """Are text files read as UTF-8?"""
    encoding = "utf-8" if sys.flags.utf8_mode else locale.getencoding()
    if codecs.lookup(encoding).name != "utf-8":
        fix = "Set PYTHONUTF8=1 before Python starts: text of other people is UTF-8."
        return None, f"files are read as {encoding}", fix
    return True, "UTF-8", ""


def kernel() -> Answer:
    """Do notebooks run in this environment? Packages installed elsewhere are not found there."""
    here = f"Python {sys.version_info[0]}.{sys.version_info[1]} in {shown(Path(sys.prefix))}"
    if in_notebook():
        return True, f"this notebook runs {here}", ""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        return False, "Jupyter is not installed here", "Run `pip install jupyterlab ipykernel`."
    try:
        program = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return False, "Jupyter has no kernel named python3", "Run `pip install ipykernel`."
    if os.path.isabs(program):
        # The folder of the program, not where the program leads to: the Pythons of two environments are often
        # links to one and the same file.
        if same_folder(program, sys.executable):
            return True, f"notebooks run {here}", ""
        fix = "Run `python -m ipykernel install --sys-prefix --name python3` in the environment of the course."
        return False, f"notebooks run another Python, {shown(Path(program))}, not {here}", fix
    # "python" alone: Jupyter starts the Python that it runs on itself.
    jupyter = shutil.which("jupyter")
    if jupyter and same_folder(jupyter, sys.executable):
        return True, f"notebooks run {here}", ""
    found = (
        f"the command `jupyter` belongs to {shown(Path(jupyter).parent)}" if jupyter else "no command `jupyter` found"
    )
    return None, f"{found}; this is {here}", "Activate this environment, or start with `python -m jupyterlab` in it."


def same_folder(one: str, other: str) -> bool:
    """Whether two programs lie in one folder, links in the folders' own path resolved."""
    return os.path.realpath(os.path.dirname(one)) == os.path.realpath(os.path.dirname(other))
