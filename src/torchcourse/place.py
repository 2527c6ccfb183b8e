"""Detect a notebook, Colab and JupyterHub; advise how to enable a GPU."""

import importlib.util
import os
import sys


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code and shows rich output: JupyterLab, Colab, papermill.

    Never imports IPython: a kernel has done so. IPython in a terminal has no kernel.
    """
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def gpu_advice() -> str | None:
    """How to switch on a GPU that takes only a few clicks and is off; None everywhere else."""
    import torch

    from torchcourse import device

    if device.best().type != "cpu":
        return None
    if on_colab():
        clicks = "Runtime > Change runtime type > choose a GPU > Save, then run this notebook from its first cell."
    elif on_a_hub() and torch.version.cuda:  # a hub without GPUs may have a build for the CPU only
        clicks = "File > Hub Control Panel > Stop My Server, then start a server with a GPU, if the list offers one."
    else:
        return None
    return f"No GPU is switched on, and the course goes on without. To have one: {clicks}"


def on_colab() -> bool:
    """Whether this is Google Colab, which brings a package of its own."""
    try:
        return importlib.util.find_spec("google.colab") is not None
    except ModuleNotFoundError:  # no package google at all
        return False


def on_a_hub() -> bool:
    """Whether this is the server of a JupyterHub, which tells it who it is by variables."""
    return any(name.startswith("JUPYTERHUB_") for name in os.environ)
