"""The tree that students get: lectures, labs, the package and its wheel; nothing that only authors need.

    python -m tools.release [FOLDER]    FOLDER is rebuilt; default release/

The solution notebooks are not in it. The checks in the package are, with the reference code that they compare answers
with: a checker that runs on a student's machine cannot hide it. Grades come from `make grade`, on your machine.

A notebook that leaves this tree, on Colab for example, installs the package from its wheel. Its set-up cell names the
address where the tree is published, and the hash of the wheel: pip refuses any other file at that address.
"""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.course import ROOT, chapters, students

FILES = ("LICENSE", "LICENSE-TEXT", "README.md", "constraints.txt", "course.toml", "environment.yml", "pyproject.toml")
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")
UNRELEASED = 'PACKAGE = ""'  # this line of tools/setup_cell.py is filled in


def release(folder: Path, root: Path = ROOT) -> list[Path]:
    """Write the students' tree into `folder`; returns the files written, relative to it.

    Raises SystemExit where it would replace a folder that it did not make itself.
    """
    mark = folder / ".made-by-make-release"
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise SystemExit(
            f"{folder} is not empty and was not made by `make release`: choose another folder or move it away."
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mark.touch()
    for name in FILES:
        shutil.copy2(root / name, folder / name)
    shutil.copytree(root / "src", folder / "src", ignore=IGNORED)
    package = published(build_wheel(folder, root), root)
    for chapter in chapters(root):
        for kind in chapter.published.values():
            name = f"{kind}/{chapter.name}.ipynb"
            (folder / kind).mkdir(exist_ok=True)
            (folder / name).write_bytes(released(root / name, package))
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def build_wheel(folder: Path, root: Path = ROOT) -> Path:
    """Build the wheel of the package into `folder`, the same bytes each time from the same sources."""
    if importlib.util.find_spec("hatchling") is None:
        raise SystemExit("The wheel of the package needs hatchling: `pip install hatchling`, then run this again.")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder.resolve())]
    fixed = os.environ | {"SOURCE_DATE_EPOCH": "1580601600"}  # hatchling's own default, whatever the variable says here
    done = subprocess.run(command, cwd=root, env=fixed, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"The wheel of the package could not be built: {done.stderr.strip()}")
    (wheel,) = folder.glob("torchcourse-*.whl")
    return wheel


def address(wheel: Path, where: str) -> str:
    """What pip installs exactly this wheel from, once it is published in the folder `where`."""
    return f"{where}/{wheel.name}#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}"


def published(wheel: Path, root: Path = ROOT) -> str:
    """Its address in the students' repository, at the tag of its version; GitHub and GitLab serve files in this way."""
    return address(wheel, f"{students(root)}/raw/v{wheel.name.split('-')[1]}")


def released(notebook: Path, package: str) -> bytes:
    """The notebook with `package`, an address with a hash, in its set-up cell; nothing else changes."""
    content = json.loads(notebook.read_bytes())
    cells = [cell["source"] for cell in content["cells"] if "setup" in cell["metadata"].get("tags", [])]
    if len(cells) != 1 or cells[0].count(f"{UNRELEASED}\n") != 1:
        raise SystemExit(f"{notebook} has another set-up cell than `make build` writes: run `make build`.")
    cells[0][cells[0].index(f"{UNRELEASED}\n")] = f'PACKAGE = "{package}"\n'
    return (json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()


def unreleased(setup: str) -> str:
    """The code of a set-up cell as the authors' notebooks have it: without the address that a release put in."""
    return re.sub(r'^PACKAGE = ".*"$', UNRELEASED, setup, flags=re.MULTILINE)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "release"
    written = release(target)
    print(
        f"{len(written)} files for students in {target}/: open {target}/labs in JupyterLab. The solution notebooks are "
        "not among them; the checks hold reference code. docs/release.md: what students can read, and how to publish."
    )
