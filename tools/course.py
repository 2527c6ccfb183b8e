"""The manifest course.toml, the requirements of pyproject.toml, and the plan of the package, as objects."""

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"lecture": "notebooks", "solution": "solutions"}  # kind of notebook -> folder of its masters

# The floors of the package, and on each its modules in reading order. A module imports only from its own floor and
# those below: tests/test_package.py sees to that, and the reference on the website follows the same order.
FLOORS = {
    "Ground floor: the machine": "errors device place timing trace simgpu",
    "First floor: data, networks and pictures": (
        "data augment models optim record plots diagrams graphs convolutions floats timeline measurements"
    ),
    "Second floor: training": "training recipes distributed",
    "Third floor: what talks to you": "checks doctor cli",
}


@dataclass(frozen=True)
class Chapter:
    """One `[[chapter]]` table of course.toml."""

    number: str
    slug: str
    title: str
    promise: str
    lecture_minutes: int
    lab_minutes: int
    needs: str
    goals: list[str]
    budget: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    ranges: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Number and slug, the name of the chapter's files in every folder: 01_tensors."""
        return f"{self.number}_{self.slug}"


def manifest(root: Path = ROOT) -> dict:
    """course.toml as it stands."""
    return tomllib.loads((root / "course.toml").read_text())


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
    """Where the course is published: the environment variable TORCHCOURSE_ADDRESS (tests, forks), else course.toml."""
    return os.environ.get("TORCHCOURSE_ADDRESS") or manifest(root)["repository"]["address"]
