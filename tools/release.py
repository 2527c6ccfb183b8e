"""The tree that students get: lectures, labs, the package and its wheel; nothing that only authors need.

Lectures and labs are those that `make build` makes, whatever has been typed into them since (build.handed_out).

    python -m tools.release [CHAPTER ...]    release/ is rebuilt; of some chapters, it is a slice (tools/slices.py)

The solution notebooks are not in it. The checks in the package are, with the reference code that they compare answers
with: a checker that runs on a student's machine cannot hide it. Grades come from `make grade`, on your machine.

A notebook that leaves this tree, on Colab for example, installs the package from its wheel. Its set-up cell names the
address where the tree is published, and the hash of the wheel: pip refuses any other file at that address.
"""

import copy
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nbformat import NotebookNode

from tools import build, guide, slices
from tools.course import ROOT, Chapter, chapters, manifest, select, students

TROUBLE = "docs/troubleshooting.md"
FILES = ("Dockerfile", "LICENSE", "LICENSE-TEXT", "constraints.txt", "course.toml", "environment.yml", "pyproject.toml")
FILES += ("apptainer.def", TROUBLE)
AGENTS = Path(__file__).with_name("students_agents.md")  # becomes AGENTS.md, which AI assistants read
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")
UNRELEASED = 'PACKAGE = ""'  # this line of tools/setup_cell.py is filled in


def release(folder: Path, root: Path = ROOT, chosen: Sequence[Chapter] = ()) -> list[Path]:
    """Write the students' tree into `folder`; returns the files written, relative to it. chosen: chapters, if not all.

    Raises SystemExit where it would replace a folder that it did not make itself.
    """
    mark = folder / ".made-by-make-release"
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise SystemExit(
            f"{folder} is not empty and was not made by `make release`: choose another folder or move it away."
        )
    books = notebooks(root, chosen)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mark.touch()
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy2(root / name, folder / name)
    shutil.copytree(root / "src", folder / "src", ignore=IGNORED)
    (folder / "README.md").write_text(readme(root, chosen), encoding="utf-8")
    if 0 < len(chosen) < len(chapters(root)):
        (folder / slices.PAGE).write_text(slices.before(chosen, books, root), encoding="utf-8")
    shutil.copy2(AGENTS, folder / "AGENTS.md")
    package = published(build_wheel(folder, root), root)
    for name, notebook in books.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(build.as_bytes(released(notebook, package)))
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def notebooks(root: Path = ROOT, chosen: Sequence[Chapter] = ()) -> dict[str, NotebookNode]:
    """The notebooks that students get, by path. Raises SystemExit as build.handed_out does."""
    books = {
        f"{folder}/{chapter.name}.ipynb": build.handed_out(chapter, kind, root)
        for chapter in chosen or chapters(root)
        for kind, folder in chapter.published.items()
    }
    for path, book in books.items():
        for cell in (cell for cell in book.cells if cell.cell_type == "markdown"):
            cell.source = slices.outward(cell.source, path.partition("/")[0], books.keys(), root)
    return books


def readme(root: Path = ROOT, chosen: Sequence[Chapter] = ()) -> str:
    """What students read first: the words are in tools/students.md, the course map comes from course.toml."""
    here = chosen or chapters(root)
    others = [f"[{c.number} · {c.title}]({slices.online(c.first, root)})" for c in chapters(root) if c not in here]
    return (Path(__file__).with_name("students.md").read_text(encoding="utf-8")).format(
        title=manifest(root)["title"],
        before=f"[what you need of other chapters]({slices.PAGE}), then " if others else "",
        first=here[0].first,
        colab=guide.on_colab(here[0].first, root) or students(root),
        map="\n".join(guide.course_map(here)),
        others=f"\nThe other chapters are online: {', '.join(others)}.\n" if others else "",
    )


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


def released(notebook: NotebookNode, package: str) -> NotebookNode:
    """A copy of the notebook with `package`, an address with a hash, in its set-up cell; nothing else changes."""
    notebook = copy.deepcopy(notebook)
    for cell in filter(build.is_setup, notebook.cells):
        cell.source = cell.source.replace(f"{UNRELEASED}\n", f'PACKAGE = "{package}"\n')
    return notebook


def unreleased(setup: str) -> str:
    """The code of a set-up cell as the authors' notebooks have it: without the address that a release put in."""
    return re.sub(r'^PACKAGE = ".*"$', UNRELEASED, setup, flags=re.MULTILINE)


if __name__ == "__main__":
    target = ROOT / "release"
    written = release(target, chosen=select(sys.argv[1:]))
    print(
        f"{len(written)} files for students in {target}/; its README.md says how to begin. The solution notebooks are "
        "not among them, but the checks hold reference code: see docs/release.md, which also says how to publish. "
        "To do a lab yourself, run `make lab`: what you write in this folder is handed out with it."
    )
