"""The tree that students get: lectures, labs, package. No solutions, no answers, nothing that only authors need.

python -m tools.release [FOLDER]    FOLDER is made anew; default release/
"""

import shutil
import sys
from pathlib import Path

from tools.course import ROOT, chapters

FILES = ("LICENSE", "LICENSE-TEXT", "README.md", "course.toml", "environment.yml", "pyproject.toml")
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")


def release(folder: Path, root: Path = ROOT) -> list[Path]:
    """Write the students' tree into `folder`; returns the files written, relative to it.

    Refuses with SystemExit to replace a folder that it did not make itself.
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
    for kind in ("notebooks", "labs"):
        (folder / kind).mkdir()
        for chapter in chapters(root):
            shutil.copy2(root / kind / f"{chapter.name}.ipynb", folder / kind)
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "release"
    written = release(target)
    print(f"{len(written)} files for students in {target}/: open {target}/labs in JupyterLab.")
