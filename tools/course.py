"""The manifest course.toml, the requirements of pyproject.toml, and the plan of the package, as objects."""

import functools
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"lecture": "notebooks", "solution": "solutions"}  # kind of notebook -> folder of its sources

# The layers of `torchcourse`, and in each its modules in reading order. A module imports only from its own layer and
# those below: tests/test_package.py sees to that, and the reference on the website follows the same order.
LAYERS = {
    "The machine": "errors importing device place timing trace simgpu",
    "Data, networks and figures": "data augment models optim record predict plots measurements memory",
    "Training": "training recipes distributed checkpoint preload",
    "Single chapters, the cluster, commands": "lab lectures cluster commands",
}


@dataclass(frozen=True)
class Chapter:
    """One `[[chapter]]` table of course.toml."""

    number: str
    slug: str
    title: str
    promise: str
    lab_minutes: int
    needs: str
    goals: list[str]
    lecture_minutes: int = 0  # 0: a lab without a lecture, and so without a deck
    alone_minutes: int = 0  # of the lecture, read alone
    budget: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    ranges: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Number and slug, the name of the chapter's files in every folder: 01_tensors."""
        return f"{self.number}_{self.slug}"

    @property
    def kinds(self) -> dict[str, str]:
        """Those of its notebooks that are executed: kind -> folder, as in KINDS."""
        return {kind: folder for kind, folder in KINDS.items() if kind != "lecture" or self.lecture_minutes}

    @property
    def published(self) -> dict[str, str]:
        """Those of its notebooks that students get: kind -> folder."""
        return {"lecture": "notebooks", "lab": "labs"} if self.lecture_minutes else {"lab": "labs"}

    @property
    def first(self) -> str:
        """The path of the notebook that students open first."""
        return f"{next(iter(self.published.values()))}/{self.name}.ipynb"

    @property
    def minutes(self) -> str:
        """Those of lecture and lab, for tables: "75 + 45", or "360" where there is only a lab."""
        return f"{self.lecture_minutes} + {self.lab_minutes}" if self.lecture_minutes else str(self.lab_minutes)


def manifest(root: Path = ROOT) -> dict:
    """course.toml as it is. Do not change what you get: others get the same."""
    return parsed((root / "course.toml").read_text())


@functools.cache
def parsed(manifest: str) -> dict:
    """The tables of a text in TOML."""
    return tomllib.loads(manifest)


def chapters(root: Path = ROOT) -> list[Chapter]:
    """All chapters, in order."""
    return [Chapter(**table) for table in manifest(root)["chapter"]]


def select(words: list[str], root: Path = ROOT) -> list[Chapter]:
    """The chapters that `words` name by number, slug or both ("01", "tensors", "01_tensors"); all if there are none.

    Raises SystemExit with a sentence for an unknown one.
    """
    every = chapters(root)
    for word in words:
        if not any(word in (c.number, c.slug, c.name) for c in every):
            raise SystemExit(f"There is no chapter {word}. The chapters are: {', '.join(c.name for c in every)}.")
    return [c for c in every if not words or {c.number, c.slug, c.name} & set(words)]


def address(root: Path = ROOT) -> str:
    """Where this repository is published."""
    return manifest(root)["repository"]["address"]


def students(root: Path = ROOT) -> str:
    """Where the students' tree is published, a repository of its own: `make release` writes the tree."""
    return manifest(root)["repository"]["students"].rstrip("/").removesuffix(".git")


def home(root: Path = ROOT) -> str:
    """Where GitHub Pages will show the site: https://owner.github.io/repository/. Elsewhere "/"."""
    parts = urlsplit(address(root).removesuffix(".git"))
    owner, _, name = parts.path.strip("/").partition("/")
    return f"https://{owner}.github.io/{name}/" if parts.netloc == "github.com" and name else "/"
