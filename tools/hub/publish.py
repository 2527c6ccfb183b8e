"""The students' tree (tools.release) as a git repository, and the nbgitpuller link that brings it to a student.

nbgitpuller commits what a student has changed and merges the new version into it, line by line where both changed a
file. A notebook is no text for that: a merge by lines mixes cells of two versions, and nothing makes it a valid file.
So the repository says `*.ipynb -merge`: git then takes a notebook from one side only, and nbgitpuller's `-X ours` makes
that the student's. A notebook that they have not touched becomes the new one; one that they have changed stays theirs,
whole. Who renames theirs and follows the link again gets the new one beside it.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from tools.course import ROOT, address

BRANCH = "main"
ATTRIBUTES = "*.ipynb -merge\n"
IGNORE = "__pycache__/\n.ipynb_checkpoints/\n"


def course_name() -> str:
    """The folder that students find in their home, named like the repository of the course: torchcourse."""
    return address().rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")


def repository(state: Path) -> Path:
    """The bare repository under the folder of the hub."""
    return state / f"{course_name()}.git"


def git(*words: str | os.PathLike) -> str:
    """Run git, whatever the user's own settings are, and return what it prints."""
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(["git", *words], env=clean | own, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"The course could not be published, git said: {done.stderr.strip()}")
    return done.stdout


def publish(state: Path, root: Path = ROOT) -> list[str]:
    """Commit the students' tree of `root` to the repository of the hub; returns what has changed.

    That is a line for each file, as `git status --porcelain` says it. Without a change there is no commit.
    """
    from tools.release import release  # here, because it imports PyTorch, which takes seconds

    bare = repository(state)
    if not bare.exists():
        git("init", "--quiet", "--bare", f"--initial-branch={BRANCH}", bare)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        release(tree, root)
        next(tree.glob(".made-by-*")).unlink()
        (tree / ".gitattributes").write_text(ATTRIBUTES)
        (tree / ".gitignore").write_text(IGNORE)
        here = (f"--git-dir={bare}", f"--work-tree={tree}")
        git(*here, "add", "--all")
        changed = git(*here, "status", "--porcelain").splitlines()
        if changed:
            who = ("-c", "user.name=The course", "-c", "user.email=course@localhost")
            git(*here, *who, "commit", "--quiet", "--message", f"{len(changed)} files of the course")
    for path in (bare, *bare.rglob("*")):  # students are other users, and the hub keeps its files to itself
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    return changed


def pull_path(state: Path, open_path: str = "README.md") -> str:
    """The link without its host: log in, get or update the user's copy of the course, open `open_path` in it."""
    name = course_name()
    where = {"repo": repository(state).as_uri(), "branch": BRANCH, "targetPath": name}
    where["urlpath"] = f"lab/tree/{name}/{open_path}"
    return f"/hub/user-redirect/git-pull?{urlencode(where)}"
