"""What torch.compile captures, counted without a compiler; and what this machine lacks for compiling.

    with compiling.counting() as backend:
        compiled = torch.compile(function, backend=backend)
        compiled(x)
        print(len(backend.graphs), backend.recompilations)

`torch.compile` works in two steps: Dynamo reads the Python code and captures graphs of tensor operations, and a backend
turns each graph into fast code. The default backend, Inductor, calls a C++ or Triton compiler and takes seconds. The
backend here keeps each graph and runs it as it is, operation by operation: nothing gets faster, but capturing takes
milliseconds, needs no compiler, and can be counted.
"""

import contextlib
import functools
import importlib
import linecache
import logging
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchcourse import device


def missing() -> str | None:
    """What `torch.compile` needs for fast code and this machine lacks: a sentence that says what to install, or None.

    Inductor calls the C++ compiler that `$CXX` names, or the usual one of the system. What it compiles includes
    Python.h, which many systems package apart from Python. Asks for the files only. Beside an NVIDIA GPU, Inductor also
    asks Triton's driver what the GPU is, even for code that runs on the CPU, so this asks it too.
    """
    compiler = os.environ.get("CXX") or {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    lacks = {}  # in words -> the package of Debian and Ubuntu
    if not shutil.which(compiler):
        lacks[f"the C++ compiler {compiler}"] = "g++"
    folders = [Path(sysconfig.get_path("include"))]
    if sys.platform == "darwin":  # Apple's own Python names a folder that may not exist
        folders.append(Path(sysconfig.get_path("stdlib")).parent.parent / "Headers")
    if not any((folder / "Python.h").is_file() for folder in folders):
        lacks["Python's header file Python.h"] = "python{}.{}-dev".format(*sys.version_info)
    if not lacks:
        return noexec(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir()) or _triton_lacks()
    return (
        f"This machine lacks {' and '.join(lacks)}, which torch.compile needs. "
        f"On Debian or Ubuntu, install what is missing with `sudo apt install {' '.join(lacks.values())}`."
    )


def noexec(folder: str | os.PathLike) -> str | None:
    """Why compiled code can't be loaded from a folder (its disk is mounted `noexec`), as a sentence; None if it can."""
    place = next(each for each in (Path(folder).absolute(), *Path(folder).absolute().parents) if each.exists())
    if sys.platform != "linux" or not os.statvfs(place).f_flag & os.ST_NOEXEC:
        return None
    return (
        f"No compiled code can be loaded from {folder}, because its disk is mounted with the option noexec. Set TMPDIR "
        "to a folder on another disk before Jupyter starts."
    )


@functools.cache
def own_runtime(compiler: str) -> str | None:
    """Why a library that this compiler builds may crash the process that loads it, as a sentence; None if it won't.

    PyTorch uses the libstdc++.so of the system. Some compilers put a copy of libstdc++ into each library instead: an
    error that is raised in one of the two copies and caught in the other ends the process.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "say.cpp"), Path(folder, "say.so")
        source.write_text("#include <iostream>\nvoid say() { std::cout << 1; }\n")
        done = subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], capture_output=True)
        if done.returncode or b"libstdc++.so" in library.read_bytes():
            return None
    return (
        f"The C++ compiler {compiler} links libstdc++ statically: what it compiles can crash this process. Set CXX to "
        "another one before Jupyter starts."
    )


def _triton_lacks() -> str | None:
    """Why Triton can't tell what this machine's NVIDIA GPU is, as a sentence; None if it can, or if there is no GPU."""
    if device.best().type != "cuda" or torch.version.cuda is None:
        return None
    try:
        driver = importlib.import_module("triton.runtime").driver  # a part of PyTorch for CUDA
        driver.active.get_current_target()
    except Exception as error:  # it builds a small library: anything from a missing file to a compiler's failure
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"Triton, which torch.compile needs beside an NVIDIA GPU, does not work on this machine: {reason}"
    return None


class CountingBackend:
    """A backend for `torch.compile` that keeps the graphs it gets. Use it inside `counting()`.

    graphs: one for each call of the backend, in order; `len(graphs)` says how often something was compiled. Code in one
        piece gives one graph. A graph break cuts it into pieces, each with a graph of its own (if it has operations).
    recompilations: how many of the graphs belong to code that had a graph before, but not one for inputs like these.
    """

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []
        self.recompilations = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        # PyTorch numbers compilations: 2/0 is the first one of the third piece of code, 2/1 the second one.
        number = torch._guards.CompileContext.current_compile_id()
        self.graphs.append(graph)
        self.recompilations += number is not None and bool(number.frame_compile_id)
        return graph.forward

    @property
    def reasons(self) -> list[str]:
        """Why code was compiled again, in PyTorch's own words: "tensor 'x' size mismatch at index 0 ...", say."""
        again = [found.recompile_reason for found in torch._dynamo.utils.get_compilation_metrics()]
        # What follows are a second reason and a comment with the place in the code.
        return [reason.partition(": ")[2].split("\n")[0].split("  #")[0].strip() for reason in again if reason]

    @property
    def breaks(self) -> list[tuple[str, int, str]]:
        """Where code was cut: file, number and text of the line, innermost function first; each place once."""
        pieces = [(found.co_filename, found.co_name or "") for found in torch._dynamo.utils.get_compilation_metrics()]
        # What follows a break becomes a function whose name says in which line the break was.
        after = [(file, int(name.rpartition("_at_")[2])) for file, name in pieces if "_resume_in_" in name]
        places = dict.fromkeys((file, number, linecache.getline(file, number).strip()) for file, number in after)
        return [*places]

    def __repr__(self) -> str:
        return f"{len(self.graphs)} graphs, {self.recompilations} of them recompilations"


@contextlib.contextmanager
def counting(quiet: bool = True) -> Iterator[CountingBackend]:
    """A fresh backend; `torch.compile` forgets before and after the block what it has compiled, everywhere.

    Without that, a function that was compiled before comes from the cache and isn't counted, and `fullgraph=True` on
    the same function and backend says nothing about graph breaks.
    quiet: without PyTorch's log messages about graph breaks and about reaching the limit of recompilations.
    """
    log = logging.getLogger("torch._dynamo")
    level = log.level
    torch.compiler.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    try:
        # `.item()` is a graph break by default, and `capture_scalar_outputs` would hide that.
        with torch.compiler.set_stance("default"), torch._dynamo.config.patch(capture_scalar_outputs=False):
            if quiet:
                log.setLevel(logging.ERROR)
            yield CountingBackend()
    finally:
        log.setLevel(level)
        torch.compiler.reset()


@dataclass(frozen=True)
class Break:
    """Where and why Dynamo could not go on in the same graph.

    reason: PyTorch's own words, their first line. file, number, line: where in the code, and the line of source there.
    """

    reason: str
    file: str
    number: int
    line: str


def first_break(function: Callable, *args: Any, **kwargs: Any) -> Break | None:
    """The first graph break of a call, or None if everything fits into one graph. Calls the function once.

    What PyTorch calls `fullgraph=True`: an error instead of a graph break. One thing is different there: `.item()`
    becomes a part of the graph, where it still waits for the device; without `fullgraph` it is a graph break.
    """
    with counting() as backend:
        try:
            torch.compile(function, backend=backend, fullgraph=True)(*args, **kwargs)
        except torch._dynamo.exc.TorchDynamoException as error:  # Unsupported, or an error inside Dynamo
            reason, _, stack = str(error).partition("\nfrom user code:\n")
            frames = re.findall(r'File "(.*)", line (\d+), in .*\n +(.*)', stack)
            file, number, line = frames[-1] if frames else ("", 0, "")
            return Break(reason.strip().splitlines()[0], file, int(number), line.strip())
    return None
