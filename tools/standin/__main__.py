"""Run a command where every Python process sees a CUDA device that is not there: `python -m tools.standin COMMAND`.

It builds two small libraries first (half a minute, once for each PyTorch; needs g++ and Python.h). The command has to
use the Python that runs this one, for example:

    .venv/bin/python -m tools.standin make gpu GPU_PYTHON=.venv/bin/python PARTS="look run"
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tools.course import ROOT

HERE = Path(__file__).parent
SITE = HERE / "site"


def build(root: Path = ROOT) -> Path:
    """Compile what is not compiled yet; returns the folder of the two libraries. Raises RuntimeError if it cannot."""
    import torch  # the real one: this process has no stand-in

    sources = [HERE / "hooks.cpp", HERE / "tensors.cpp"]
    tag = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + torch.__version__.encode()).hexdigest()[:12]
    folder = root / "build" / "standin" / f"{sys.implementation.cache_tag}-{tag}"
    if (folder / "built").exists():
        return folder
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None or sys.platform != "linux":
        raise RuntimeError("The stand-in is built with g++ on Linux, and there is none here.")
    folder.mkdir(parents=True, exist_ok=True)
    home = Path(torch.__file__).parent
    places = [home / "include", home / "include/torch/csrc/api/include", sysconfig.get_path("include")]
    newer = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 12)
    options = ["-O1", "-shared", "-fPIC", "-std=c++20" if newer else "-std=c++17", *(f"-I{place}" for place in places)]
    link = [f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{home / 'lib'}"]
    for source, name, more in (
        (sources[0], "hooks.so", []),
        (sources[1], "standin_tensors.so", ["-ltorch", "-ltorch_python"]),
    ):
        command = [compiler, *options, str(source), "-o", str(folder / name), *link, *more]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line] or ["no reason given"]
            raise RuntimeError(f"{source.name} cannot be compiled for PyTorch {torch.__version__}: {errors[0]}")
    (folder / "built").touch()
    return folder


def environment(folder: Path) -> dict[str, str]:
    """What a process needs in its environment to see the stand-in."""
    places = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(places), "STANDIN": str(folder)}


def main(command: list[str]) -> int:
    if not command:
        print(__doc__)
        return 2
    try:
        folder = build()
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    return subprocess.run(command, env=os.environ | environment(folder)).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
