"""The tables that list chapters, in README.md and docs/teaching.md: `make build` writes them, docs/claims.md,
docs/glossary.md and the version and address in CITATION.cff.

They come from course.toml, the exercises and the labs. A schedule is planned by hand, in the comment above its table:

    <!-- schedule 9:00: 00 lecture, 00 lab, break 15; 02 lecture | 9:00: 02 lab -->
    <!-- schedule weeks of 90: 00 lecture, 00 lab; 01 lecture 45, questions 45 -->

`;` ends a row, `|` a day. A lecture or lab without minutes takes those of course.toml, or what is left of them.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
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
    guide = re.sub(
        r"(<!-- schedule (.*?) -->\n).*?(<!-- end of the schedule -->)",
        lambda match: f"{match[1]}\n{schedule(' '.join(match[2].split()), chapters)}\n\n{match[3]}",
        guide,
        flags=re.DOTALL,
    )
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


# ---------------------------------------------------------------------------------------------------------------------
# Schedules


def schedule(plan: str, chapters: list[Chapter]) -> str:
    """The table of a plan, and a sentence that names what it leaves out. Raises CourseError where it can't be."""
    left = {f"{c.number} {kind}": getattr(c, f"{kind}_minutes") for c in chapters for kind in c.published}
    planned: list[str] = []
    lines, total = [], 0
    weeks = re.match(r"weeks of (\d+): ", plan)
    days = [plan[weeks.end() :]] if weeks else plan.split(" | ")
    for number, day in enumerate(days, start=1):
        clock = None if weeks else datetime.strptime(day.split(": ")[0], "%H:%M")
        block, week = 0, 1
        for row in (day if weeks else day.split(": ", 1)[1]).split("; "):
            parts = [minutes_of(part, left, planned) for part in row.split(", ")]
            minutes = sum(taken for _, taken in parts)
            if weeks:
                count, rest = divmod(minutes, int(weeks[1]))
                if rest or not count:
                    raise CourseError(f"docs/teaching.md: `{row}` makes {minutes} minutes; a week has {weeks[1]}.")
                first = ", ".join(str(week + i) for i in range(count))
                week += count
            else:
                first = f"{clock:%H:%M}".lstrip("0")
                clock += timedelta(minutes=minutes)
            lines.append(f"| {first} | {' · '.join(f'{name} {taken}' for name, taken in parts)} | {minutes} |")
            block += minutes
        total += block
        if len(days) > 1:
            lines.append(f"| | {('first', 'second', 'third')[number - 1]} day | {block} |")
    if len(days) == 1:
        lines.append(f"| | total | {total} |")
    halves = [part for part in dict.fromkeys(planned) if left[part]]
    if halves:
        raise CourseError(
            f"docs/teaching.md: {left[halves[0]]} minutes of `{halves[0]}` are missing in `{plan[:40]} …`."
        )
    if planned != (order := [part for part in left if part in planned for _ in range(planned.count(part))]):
        raise CourseError(
            f"docs/teaching.md: in `{plan[:40]} …` the order should be: {', '.join(dict.fromkeys(order))}."
        )
    head = [f"| {'week' if weeks else 'from'} | what | minutes |", "|:---|:---|---:|"]
    return "\n".join([*head, *lines, "", left_out(left, planned)])


def minutes_of(part: str, left: dict[str, int], planned: list[str]) -> tuple[str, int]:
    """A part of a row and its minutes, which are taken from what is `left` of its lecture or lab."""
    name, _, given = part.rpartition(" ")
    if not given.isdigit():
        name, given = part, ""
    if name in left:
        taken = int(given or left[name])
        if taken > left[name]:
            raise CourseError(f"docs/teaching.md: {part} is planned, but only {left[name]} minutes of it are left.")
        left[name] -= taken
        planned.append(name)
        return name, taken
    if re.match(r"\d\d ", part) or not given:
        raise CourseError(
            f"docs/teaching.md: `{part}` is neither a lecture or lab of course.toml nor a pause with minutes."
        )
    return name, int(given)


def left_out(left: dict[str, int], planned: list[str]) -> str:
    """A sentence: chapters that are not in a plan at all by number, others by their part."""
    parts, missing = (Counter(name[:2] for name in names) for names in (left, [n for n in left if n not in planned]))
    names = [name for name in left if name not in planned and missing[name[:2]] < parts[name[:2]]]
    names += [number for number, count in missing.items() if count == parts[number]]
    if not names:
        return "All chapters are in it."
    names.sort()
    return f"Left out: {', '.join(names[:-1])}{' and ' if len(names) > 1 else ''}{names[-1]}."
