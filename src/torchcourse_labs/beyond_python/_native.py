"""Operators in C++ against PyTorch's stable ABI: one call of the compiler, and calls in processes of their own.

A mistake in C++ can end the process that it happens in, so `invoke` never loads a library into this one.
"""

import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labcheck import ranks
from torchcourse.errors import CourseError
from torchcourse.lectures import compiling

TARGET = "0x020b000000000000"  # the library works with PyTorch 2.11 and later


def compiler() -> str | None:
    """The C++ compiler, `$CXX` or g++, on Linux; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++")) if platform.system() == "Linux" else None


def lacks() -> str | None:
    """What this machine lacks to build an operator and load it, as a sentence; None if it lacks nothing."""
    if not compiler():
        return "It needs Linux with the C++ compiler g++: do it on another machine."
    return compiling.noexec(tempfile.gettempdir()) or compiling.own_runtime(compiler())


def build(source: str, folder: str) -> Path:
    """A shared library in this folder. Raises CourseError with the first error of the compiler."""
    path = Path(folder, "operator.cpp")
    path.write_text(source, encoding="utf-8")
    home = Path(torch.__file__).parent
    words = [compiler(), "-std=c++20", "-fPIC", "-O0", "-w", f"-DTORCH_TARGET_VERSION={TARGET}"]
    words += [f"-I{home / 'include'}", f"-I{home / 'include/torch/csrc/api/include'}", f"-L{home / 'lib'}"]
    words += ["-shared", str(path), "-Wl,--no-as-needed", "-ltorch_cpu", "-o", str(path.with_suffix(".so"))]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"})
    if done.returncode:
        errors = re.findall(r"^(.*?: )(?:fatal )?error: (.*)$", done.stderr, re.MULTILINE)
        place, message = errors[0] if errors else ("", done.stderr.strip().splitlines()[-1])
        raise CourseError(f"{place}{message}".replace(f"{folder}{os.sep}", ""))
    return path.with_suffix(".so")


def invoke(library: Path, given: list[tuple[Tensor, ...]]) -> list[Any]:
    """What the operator lab::unpack returns for each of the inputs, or what its error says.

    If a process ends in the middle, or takes too long, the last result is None, and those behind it are missing.
    """
    found: list[Any] = []
    for inputs in given:
        (rank,) = ranks.run(loaded_and_called, library, inputs, world_size=1, timeout=20)
        line = ((rank.raised.message.strip() or rank.raised.type) if rank.raised else "").partition("\n")[0]
        found.append(rank.value if rank.status == "returned" else re.sub(r"/\S*/", "", line) or None)
        if found[-1] is None:
            break
    return found


def loaded_and_called(library: Path, inputs: tuple[Tensor, ...]) -> Any:
    """What runs in the new process."""
    from torch import ops  # here: functions with `torch.ops` in them cannot be sent to another process

    ops.load_library(library)
    return ops.lab.unpack(*inputs)
