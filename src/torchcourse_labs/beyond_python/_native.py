"""Operators in C++ against PyTorch's stable ABI: one call of the compiler, tried in a process of their own.

    if not native.lacks():
        library = native.build(source)  # a shared library
        results = native.call(library, "lab::unpack", [(numbers, scales)])

A mistake in C++ can end the process that it happens in, so `call` never loads a library into this one.
"""

import functools
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from labcheck import ranks
from torchcourse.errors import CourseError
from torchcourse.lectures import compiling

TARGET = "0x020b000000000000"  # the library works with PyTorch 2.11 and later
SECONDS = 120.0  # for a call of the compiler or of the operator, on a busy machine


class BuildError(CourseError):
    """What the compiler says about the source: its first error, or that it is missing."""


def compiler() -> str | None:
    """The C++ compiler, `$CXX` or g++, on Linux; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++")) if platform.system() == "Linux" else None


def lacks() -> str | None:
    """What this machine lacks to build an operator and load it, as a sentence; None if it lacks nothing."""
    if not compiler():
        return "It needs Linux with the C++ compiler g++: do it on another machine."
    return compiling.noexec(tempfile.gettempdir())


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="torchcourse-native-", ignore_cleanup_errors=True)


@functools.cache
def _headers(words: tuple[str, ...], includes: str) -> tuple[Path, subprocess.Popen]:
    """PyTorch's headers in the compiler's own form, and the process that works on it.

    Reading them takes two thirds of the time of a build. The first build goes without: someone who builds once should
    not pay for this. The second one starts it in the background, and later builds use it as soon as it is done.
    """
    path = Path(tempfile.mkdtemp(dir=_folder().name)) / "headers.h"
    path.write_text(includes, encoding="utf-8")
    words += ("-x", "c++-header", str(path), "-o", f"{path}.gch")
    return path, subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@functools.cache
def build(source: str) -> Path:
    """A shared library from C++ source; the same source is compiled once. Raises BuildError."""
    found = compiler()
    if not found:
        raise BuildError("There is no C++ compiler here: install g++, or use a machine that has it.")
    path = Path(tempfile.mkdtemp(dir=_folder().name)) / "operator.cpp"
    path.write_text(source, encoding="utf-8")
    torch_folder = Path(torch.__file__).parent
    include = [f"-I{torch_folder / 'include'}", f"-I{torch_folder / 'include/torch/csrc/api/include'}"]
    link = [f"-L{torch_folder / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu"]
    words = [found, "-std=c++20", f"-DTORCH_TARGET_VERSION={TARGET}", "-fPIC", "-O0", "-w", *include]
    if build.cache_info().misses > 1:
        headers, reading = _headers(tuple(words), "\n".join(re.findall(r"^#include <torch/.*>$", source, re.MULTILINE)))
        words += ["-include", str(headers)] if reading.poll() == 0 else []
    words += ["-shared", str(path), *link, "-o", str(path.with_suffix(".so"))]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, env=os.environ | {"LC_ALL": "C"})
    except subprocess.TimeoutExpired:
        raise BuildError(f"The compiler was still working after {SECONDS:g} seconds.") from None
    if done.returncode:
        errors = re.findall(r"^(.*?): (?:fatal )?error: (.*)$", done.stderr, re.MULTILINE)
        place, message = errors[0] if errors else ("", done.stderr.strip().splitlines()[-1])
        raise BuildError(f"{place.replace(f'{path.parent}{os.sep}', '')}: {message}".lstrip(": "))
    return path.with_suffix(".so")


def call(library: Path, name: str, given: list[tuple[torch.Tensor, ...]]) -> list[Any]:
    """What the operator `name` of a library returns for each of the inputs, or what its error says, in a new process.

    If the process ends in the middle, the last result is the number of the signal, negative, and those behind it are
    missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.pt")
        (rank,) = ranks.run(_call, library, name, given, results, world_size=1, timeout=SECONDS, folder=folder)
        if rank.raised:
            raise CourseError(rank.raised.message.strip().splitlines()[-1])
        found = torch.load(results)
        ended = {"returned": [], "died": [rank.exit_code]}
        return found + ended.get(rank.status, [-signal.SIGKILL])


def _call(library: Path, name: str, given: list[tuple[torch.Tensor, ...]], results: Path) -> None:
    """What runs in the new process."""
    found: list[Any] = []
    torch.save(found, results)
    torch.ops.load_library(library)
    operator = registered(name)
    for inputs in given:
        try:
            found.append(operator(*inputs))
        except Exception as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            found.append(re.sub(r"/\S*/", "", line))  # without folders
        torch.save(found, f"{results}.part")  # memory that the operator has damaged may end the process in here
        os.replace(f"{results}.part", results)


def registered(name: str) -> torch._ops.OpOverload:
    """The operator "namespace::name" of this process. Raises AttributeError if there is none."""
    namespace, _, operator = name.partition("::")
    return getattr(getattr(torch.ops, namespace), operator).default
