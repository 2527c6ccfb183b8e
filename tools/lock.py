"""Write uv.lock, and from it the two files that pip reads. After a change of pyproject.toml, versions that fit stay.

constraints.txt has versions only, for everyone and for any build of PyTorch; requirements.lock has hashes, too, for
`make`: of all but PyTorch, whose wheels differ by index. With OPTIONS=--upgrade, `make lock` takes the newest versions.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tools.course import ROOT

# Only a CUDA build needs these, each build its own, and torch names their versions itself.
OF_PYTORCH = re.compile(r"nvidia-(?!ml-py).*|cuda-.*|triton")
HEADER = "# From uv.lock, by `make lock`: the versions that the tests have seen{}.\n"


def main(arguments: list[str]) -> None:
    """The command."""
    uv = shutil.which("uv", path=Path(sys.executable).parent) or shutil.which("uv")
    if uv is None:
        raise SystemExit("This needs uv, which is not installed: `pip install uv`, then run this again.")
    subprocess.run([uv, "lock", *arguments], cwd=ROOT, check=True)
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    left_out = [package["name"] for package in locked if OF_PYTORCH.fullmatch(package["name"])]
    command = [uv, "export", "--frozen", "--extra", "dev", "--no-emit-project", "--no-header", "--no-annotate"]
    command += [f"--no-emit-package={name}" for name in left_out]
    for name, options, more in (
        ("constraints.txt", ["--no-hashes"], ""),
        ("requirements.lock", ["--no-emit-package=torch", "--no-emit-package=torchvision"], ", but for PyTorch"),
    ):
        done = subprocess.run([*command, *options], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        (ROOT / name).write_text(HEADER.format(more) + done.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
