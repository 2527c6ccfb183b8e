"""What `make build` writes into pages that people keep: the badges and the course map of README.md, docs/claims.md,
docs/glossary.md, the version and address in CITATION.cff, and .zenodo.json, which Zenodo reads in its place.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

import torchcourse
from tools import claims, course, glossary
from tools.course import ROOT, Chapter
from torchcourse.errors import CourseError

BADGES = """\
[![Tests on CPU]({here}/actions/workflows/cpu.yml/badge.svg)]({here}/actions/workflows/cpu.yml)
[![Open the first lab in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab})
[![Open the course in Binder](https://mybinder.org/badge_logo.svg)]({binder})
[![Open the course in Codespaces](https://github.com/codespaces/badge.svg)](https://codespaces.new/{name})"""


def pages(root: Path = ROOT) -> dict[Path, str]:
    """The pages as course.toml and the lectures have them now."""
    readme, citation = root / "README.md", root / "CITATION.cff"
    front = between(readme.read_text(encoding="utf-8"), "badges", badges(root))
    cited = re.sub(r"(?m)^version: \S+", f"version: {torchcourse.__version__}", citation.read_text(encoding="utf-8"))
    cited = re.sub(r"(?m)^repository-code: .*", f"repository-code: {course.address(root)}", cited)
    return {
        readme: between(front, "course map", "\n".join(course_map(course.chapters(root)))),
        root / claims.PAGE: claims.page(root),
        root / glossary.PAGE: glossary.page(root),
        citation: cited,
        root / ".zenodo.json": json.dumps(zenodo(yaml.safe_load(cited)), indent=2) + "\n",
    }


def zenodo(citation: dict) -> dict:
    """CITATION.cff as Zenodo's own form has it. From that file alone Zenodo would make software of the course."""
    people = [
        {
            "name": person.get("name") or f"{person['family-names']}, {person['given-names']}",
            **{key: person[key].rpartition("orcid.org/")[2] for key in ("orcid", "affiliation") if key in person},
        }
        for person in citation["authors"]
    ]
    same = {key: citation[key] for key in ("title", "version", "keywords")}
    return same | {
        "upload_type": "lesson",
        "description": citation["abstract"],
        "creators": people,
        "access_right": "open",
        "language": "eng",
        "license": "cc-by-4.0",
        "notes": "Text and figures are under CC BY 4.0, the code under the BSD 3-Clause License.",
    }


def between(text: str, mark: str, new: str) -> str:
    """README.md with this between the two comments of a name. Raises CourseError where one is missing."""
    start, end = (re.search(f"<!-- {words}.*-->\n", text) for words in (mark, f"end of the {mark}"))
    if not (start and end):
        raise CourseError(f"README.md has lost the two comments between which the {mark} belongs.")
    return f"{text[: start.end()]}\n{new}\n\n{text[end.start() :]}"


def on_colab(path: str, root: Path = ROOT) -> str:
    """Where Colab opens a notebook of the release; empty if the students' tree is not on GitHub, where Colab looks."""
    host, _, repository = course.students(root).partition("https://github.com/")
    version = torchcourse.__version__
    return f"https://colab.research.google.com/github/{repository}/blob/v{version}/{path}" if not host else ""


def badges(root: Path) -> str:
    """The state of the tests, and the places where the course opens without an installation."""
    first, here = course.chapters(root)[0].name, course.address(root)
    name = here.removeprefix("https://github.com/")
    binder = f"https://mybinder.org/v2/gh/{name}/HEAD?urlpath=lab/tree/notebooks/{first}.ipynb"
    return BADGES.format(here=here, name=name, colab=on_colab(f"labs/{first}.ipynb", root), binder=binder)


def course_map(chapters: list[Chapter]) -> Iterator[str]:
    """Chapters with links, minutes and what each promises."""
    yield from ("| | chapter | minutes | what you get |", "|:---|:---|:---|:---|")
    for chapter in chapters:
        lab = f"(labs/{chapter.name}.ipynb)"
        links = f"[{chapter.title}](notebooks/{chapter.name}.ipynb) · [lab]{lab}"
        links = links if chapter.lecture_minutes else f"[{chapter.title}]{lab}"
        yield f"| {chapter.number} | {links} | {chapter.minutes} | {chapter.promise} |"
