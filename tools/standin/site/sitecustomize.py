"""Python imports this file in every process: when torch is imported, the stand-in comes with it. See tools/standin.

A process that is told to see no GPU (`CUDA_VISIBLE_DEVICES=""`) sees none.
"""

import contextlib
import ctypes
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Iterator


class _WithStandIn(importlib.abc.Loader):
    """Load torch as usual, between what has to be there before and what can only come after."""

    def __init__(self, usual: importlib.abc.Loader):
        self.usual = usual

    def create_module(self, spec):
        return self.usual.create_module(spec)

    def exec_module(self, module) -> None:
        ctypes.CDLL(os.path.join(os.environ["STANDIN"], "hooks.so"), ctypes.RTLD_GLOBAL)
        with _quiet():  # the CUDA library reports that its hooks are registered already
            self.usual.exec_module(module)
        import standin_device

        standin_device.install()

    def __getattr__(self, name: str):
        return getattr(self.usual, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name == "torch" else None
        if spec and spec.loader:
            spec.loader = _WithStandIn(spec.loader)
        return spec


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


if os.environ.get("STANDIN") and os.environ.get("CUDA_VISIBLE_DEVICES") != "":
    sys.path.insert(1, os.environ["STANDIN"])
    sys.meta_path.insert(0, _Finder())
