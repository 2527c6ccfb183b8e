"""The tables that list chapters, in README.md and docs/teaching.md: `make build` writes them, docs/claims.md,
docs/glossary.md and the version and address in CITATION.cff.

They come from course.toml, the exercises and the labs.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import torchcourse
from labcheck.exercise import load_chapters
from tools import claims, course, glossary
from tools.course import ROOT, Chapter
from torchcourse.errors import CourseError


def pages(root: Path = ROOT) -> dict[Path, str]:
    """The pages with their tables as course.toml, the labs and the lectures have them now."""
    chapters = course.chapters(root)
    readme, teaching = root / "README.md", root / "docs" / "teaching.md"
    guide = teaching.read_text(encoding="utf-8")
    guide = between(guide, "exercises", exercise_table(chapters, root), teaching)
    guide = between(guide, "trouble", trouble_table(chapters), teaching)
    front = between(readme.read_text(encoding="utf-8"), "badges", badges(chapters, root), readme)
    return {
        readme: between(front, "course map", course_map(chapters), readme),
        teaching: guide,
        root / claims.PAGE: claims.page(root),
        root / glossary.PAGE: glossary.page(root),
        root / "CITATION.cff": citation(root),
    }


def between(text: str, mark: str, lines: Iterator[str], path: Path) -> str:
    """The text with these lines between the two comments of a name. Raises CourseError where one is missing."""
    start, end = (re.search(f"<!-- {words}.*-->\n", text) for words in (mark, f"end of the {mark}"))
    if not (start and end):
        raise CourseError(f"{path.name} has lost the two comments between which the {mark} belongs.")
    return text[: start.end()] + "\n" + "\n".join(lines) + "\n\n" + text[end.start() :]


def citation(root: Path) -> str:
    """CITATION.cff with the version of the package and the address of the repository."""
    text = (root / "CITATION.cff").read_text(encoding="utf-8")
    text = re.sub(r"^version: \S+", f"version: {torchcourse.__version__}", text, flags=re.MULTILINE)
    return re.sub(r"^repository-code: .*", f"repository-code: {course.address(root)}", text, flags=re.MULTILINE)


def on_colab(path: str, root: Path = ROOT) -> str:
    """Where Colab opens a notebook of the release; empty if the students' tree is not on GitHub, where Colab looks."""
    host, _, repository = course.students(root).partition("https://github.com/")
    version = torchcourse.__version__
    return f"https://colab.research.google.com/github/{repository}/blob/v{version}/{path}" if not host else ""


def badges(chapters: list[Chapter], root: Path) -> Iterator[str]:
    """The state of the tests, and the places where the course opens without an installation."""
    here = course.address(root)
    name, lab = here.removeprefix("https://github.com/"), f"labs/{chapters[0].name}.ipynb"
    lecture = f"notebooks/{chapters[0].name}.ipynb"
    shown = [
        ("Tests on CPU", f"{here}/actions/workflows/cpu.yml/badge.svg", f"{here}/actions/workflows/cpu.yml"),
        (
            "Open the first lab in Colab",
            "https://colab.research.google.com/assets/colab-badge.svg",
            on_colab(lab, root),
        ),
        (
            "Open the course in Binder",
            "https://mybinder.org/badge_logo.svg",
            f"https://mybinder.org/v2/gh/{name}/HEAD?urlpath=lab/tree/{lecture}",
        ),
        (
            "Open the course in Codespaces",
            "https://github.com/codespaces/badge.svg",
            f"https://codespaces.new/{name}",
        ),
    ]
    yield from (f"[![{title}]({image})]({link})" for title, image, link in shown)


def course_map(chapters: list[Chapter]) -> Iterator[str]:
    """Chapters with links, minutes and what each promises."""
    yield from ("| | chapter | minutes | what you get |", "|:---|:---|:---|:---|")
    for chapter in chapters:
        lab = f"(labs/{chapter.name}.ipynb)"
        links = f"[{chapter.title}](notebooks/{chapter.name}.ipynb) · [lab]{lab}"
        links = links if chapter.lecture_minutes else f"[{chapter.title}]{lab}"
        yield f"| {chapter.number} | {links} | {chapter.minutes} | {chapter.promise} |"


def exercise_table(chapters: list[Chapter], root: Path = ROOT) -> Iterator[str]:
    """Minutes, the exercise to drop first, the stretch tasks, and what the catch-up cells lend."""
    yield "| chapter | lecture + lab | drop first, and why | for fast students | what the catch-up cell provides |"
    yield "|:---|:---|:---|:---|:---|"
    for chapter in chapters:
        lab = (root / "solutions" / f"{chapter.name}.md").read_text(encoding="utf-8")
        section = re.search(r"^## [^\n]*Stretch.*?(?=^## |\Z)", lab, re.MULTILINE | re.DOTALL)
        stretch = re.findall(r"\{\{\s*exercise:\s*(\w+)\s*\}\}", section[0]) if section else []
        cells = [
            f"{chapter.number} {chapter.title}",
            chapter.minutes,
            dropped(chapter, stretch),
            ", ".join(f"`{name}`" for name in stretch) or "–",
            chapter.guide.get("late", "–"),
        ]
        yield f"| {' | '.join(cells)} |"


def dropped(chapter: Chapter, stretch: list[str]) -> str:
    """The exercise to drop first, with its difficulty, its minutes and the reason."""
    name = chapter.guide.get("drop")
    if name is None:
        return "–"
    exercise = load_chapters().get(name)
    if exercise is None or exercise.chapter != chapter.name:
        raise CourseError(
            f"course.toml, chapter {chapter.name}: `{name}`, to be dropped first, is not an exercise of it."
        )
    if name in stretch:
        raise CourseError(f"course.toml, chapter {chapter.name}: `{name}` is a stretch task, which is optional anyway.")
    return f"`{name}` (difficulty {exercise.difficulty}, {exercise.minutes} min): {chapter.guide['why']}"


def trouble_table(chapters: list[Chapter]) -> Iterator[str]:
    """What goes wrong in each chapter that says so."""
    yield from ("| chapter | what goes wrong | how you see it | what to say |", "|:---|:---|:---|:---|")
    for chapter in chapters:
        for place, row in enumerate(chapter.guide.get("trouble", [])):
            yield f"|{'' if place else f' {chapter.number}'} | {' | '.join(row)} |"
