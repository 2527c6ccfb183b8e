"""Where the code runs: a notebook, Colab, a hub; where a user's files are; which of a site's settings do harm.

Imports nothing but Python's own library: the doctor needs it where PyTorch cannot be imported.
"""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

from torchcourse.errors import CourseError

# Characters that the path of the temporary folder may have. The address of a socket has room for 103 (macOS), and
# multiprocessing adds 32; with a longer path, the workers of a DataLoader wait forever.
LONGEST_TMPDIR = 70

LABS = "torchcourse_labs"  # the package with the exercises: a name only, as `labcheck` imports it
chapter: str | None = None  # of this notebook, for example "01_tensors"; `setup` sets it


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code and shows rich output: JupyterLab, Colab, papermill.

    Never imports IPython: a kernel has done so. IPython in a terminal has no kernel.
    """
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def gpu_advice() -> str | None:
    """How to switch on a GPU that takes only a few clicks and is off; None everywhere else."""
    from torchcourse import device

    if device.best().type != "cpu":
        return None
    if on_colab():
        clicks = "Runtime > Change runtime type > choose a GPU > Save, then run this notebook from its first cell."
    elif on_a_hub() and os.environ.get("TORCHCOURSE_HUB_GPUS"):  # set by a hub with a list of servers to choose from
        clicks = "File > Hub Control Panel > Stop My Server, then choose a server with a GPU and start it."
    else:
        return None
    # Two lines: JupyterLab breaks a long one in the middle of a word.
    return f"No GPU is switched on, so the course goes on without one. To get one:\n{clicks}"


def on_colab() -> bool:
    """Whether this is Google Colab, which brings a package of its own."""
    try:
        return importlib.util.find_spec("google.colab") is not None
    except ModuleNotFoundError:  # no package google at all
        return False


def on_a_hub() -> bool:
    """Whether this is the server of a JupyterHub, which tells it who it is by variables."""
    return any(name.startswith("JUPYTERHUB_") for name in os.environ)


# ---------------------------------------- a user's files


def home() -> Path:
    """The user's home folder. Raises CourseError where there is none, as in a container whose user has no name."""
    try:
        return Path.home()
    except RuntimeError:
        raise CourseError(
            "This user has no home folder. Set HOME to a folder that you may write to, then restart the kernel."
        ) from None


def named_by(variable: str) -> Path | None:
    """The path in an environment variable; None where it is not set.

    Raises CourseError for a relative one: a terminal and a notebook would take it for two different places.
    """
    chosen = os.environ.get(variable)
    if not chosen:
        return None
    path = Path(os.path.expanduser(chosen))
    if not path.is_absolute():
        raise CourseError(
            f'{variable} is "{chosen}", a relative path: it leads to a different place from each folder that a program '
            f"starts in. Set it to an absolute path, for example {path.absolute()}."
        )
    return path


def default_root() -> Path:
    """The user's cache folder for the course, where the operating system expects it."""
    variable = {"win32": "LOCALAPPDATA", "darwin": ""}.get(sys.platform, "XDG_CACHE_HOME")
    usual = {"win32": "AppData/Local", "darwin": "Library/Caches"}.get(sys.platform, ".cache")
    return Path(os.environ.get(variable) or home() / usual) / "torchcourse"


def root_folder(root: str | os.PathLike | None = None) -> Path:
    """Where data sets are looked for: the argument, else TORCHCOURSE_DATA, else the user's cache folder."""
    if root is not None:
        return Path(os.path.expanduser(root)).absolute()
    return named_by("TORCHCOURSE_DATA") or default_root()


# ---------------------------------------- settings of a site


def undo_harmful_settings() -> None:
    """Undo, before PyTorch is loaded, what suits other programs but stalls a notebook that starts processes.

    OMP_PROC_BIND binds a process to one core, and with it all its forks: workers and ranks would share that core.
    """
    os.environ["OMP_PROC_BIND"] = "false"
    if os.name == "posix" and len(tempfile.gettempdir()) > LONGEST_TMPDIR:
        os.environ["TMPDIR"], tempfile.tempdir = "/tmp", None
