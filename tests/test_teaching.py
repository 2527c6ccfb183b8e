"""The instructor guide docs/teaching.md says what course.toml, the checks, the decks and the commands say."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from labcheck import exercise
from tools import course, guide
from torchcourse.commands import cli
from torchcourse.errors import CourseError

GUIDE = (course.ROOT / "docs" / "teaching.md").read_text()
CHAPTERS = course.chapters()
LECTURES = [chapter for chapter in CHAPTERS if chapter.lecture_minutes]
EXERCISES = exercise.load_chapters()


def headings(number: str) -> list[str]:
    """The headings of a chapter's deck."""
    deck = next((course.ROOT / "slides").glob(f"{number}_*.md")).read_text()
    return [line.lstrip("# ").split(" {")[0] for line in deck.splitlines() if line.startswith("#")]


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [course.ROOT / "README.md", course.ROOT / "docs" / "teaching.md"], ids=lambda p: p.name
)
def test_the_tables_are_those_of_the_manifest_and_the_labs(path):
    assert guide.pages()[path] == path.read_text(), "run `make build`"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.name)
def test_exercises_named_in_the_guide_are_those_of_the_chapter(chapter):
    for cells in chapter.guide.get("trouble", []):
        for name in set(re.findall(r"`(\w+)`", " ".join(cells))) & set(EXERCISES):
            assert EXERCISES[name].chapter == chapter.name, name


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.name)
def test_messages_are_those_that_a_check_gives(chapter):
    """What is quoted under "how you see it" is in a check or in the set-up cell."""
    table = chapter.guide.get("trouble", [])
    places = (f"src/torchcourse_labs/{chapter.slug}/*.py", "src/labcheck/*.py", "tools/setup_cell.py")
    source = "".join(path.read_text() for place in places for path in sorted(course.ROOT.glob(place)))
    said = re.sub(r'"\s*\n\s*f?"', "", source).lower()  # a message may be broken over two lines,
    said = re.sub(r"\s+", " ", said)  # that of a table, too
    for cells in table:
        assert len(cells) == 3 and all(cells), cells
        for words in re.findall(r'"([^"]+)"', cells[1]):
            assert words.lower() in said or words in PYTORCH_SAYS, f"nobody says {words!r}"


PYTORCH_SAYS = ("all tensors to be on the same device",)  # not ours; chapter 03 shows it


# ---------------------------------------------------------------------------------------------------------------------


ROW = re.compile(r"^\| ([^|]*) \| ([^|]*) \| (\d+) \|$", re.M)  # from or week, what, minutes
SCHEDULES = re.findall(r"^\| (?:from|week) \| what \| minutes \|\n.*?\n\n", GUIDE, re.M | re.S)


@pytest.mark.parametrize("table", SCHEDULES, ids=range(len(SCHEDULES)))
def test_the_minutes_of_a_schedule_add_up(table):
    """Row by row, day by day, and over the table: a lecture or lab that is begun gets all its minutes."""
    left = {f"{c.number} {kind}": getattr(c, f"{kind}_minutes") for c in CHAPTERS for kind in c.published}
    planned, block, whole = Counter(), 0, 0
    for first, what, minutes in ROW.findall(table):
        if what.strip() == "total" or what.endswith("day"):
            assert int(minutes) == (whole if what.strip() == "total" else block), (first, what)
            block = 0
            continue
        parts = [part.rpartition(" ") for part in what.split(" · ")]
        assert sum(int(taken) for _, _, taken in parts) == int(minutes), what
        planned.update({name: 0 for name, _, _ in parts})
        for name, _, taken in parts:
            planned[name] += int(taken)
        block, whole = block + int(minutes), whole + int(minutes)
    for name in planned:
        assert planned[name] == left[name] if name[:1].isdigit() else name, name


def test_the_guide_has_schedules():
    assert len(SCHEDULES) >= 4


def test_a_drop_that_is_no_exercise_or_optional_is_refused():
    chapter = CHAPTERS[1]
    for name, words in (
        ("slope", "not an exercise of it"),
        ("nothing", "not an exercise of it"),
        ("patches", "stretch"),
    ):
        with pytest.raises(CourseError, match=words):
            guide.dropped(replace(chapter, guide={"drop": name, "why": "it can"}), ["patches"])


def test_lost_comments_are_named(tmp_path):
    with pytest.raises(CourseError, match="lost the two comments"):
        guide.between("no comments", "course map", iter(()), tmp_path / "README.md")


def test_named_slides_exist():
    everything = [heading for chapter in LECTURES for heading in headings(chapter.number)]
    named = re.findall(r'slide "([^"]+)"', GUIDE) + re.findall(r'lecture \d\d after "([^"]+)"', GUIDE)
    assert len(named) >= 3 and set(named) <= set(everything), set(named) - set(everything)


@pytest.mark.parametrize("chapter", LECTURES, ids=lambda c: c.name)
def test_notes_of_the_deck_fit_into_the_lecture(chapter):
    deck = (course.ROOT / "slides" / f"{chapter.name}.md").read_text()
    minutes = [float(m) for m in re.findall(r"^Notes: ([\d.]+) min", deck, re.M)]
    assert len(minutes) == len(deck.split("\n---\n")), "each slide has its minutes"
    assert 0.75 * chapter.lecture_minutes <= sum(minutes) <= chapter.lecture_minutes


# ---------------------------------------------------------------------------------------------------------------------


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (course.ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"`make ([a-z-]+)", GUIDE))
    assert {"release", "slides", "slides-pdf", "hub", "grade"} <= named
    assert named <= targets, named - targets


def test_torchcourse_commands_exist(capsys):
    named = re.findall(r"`torchcourse ([^`]+)`", GUIDE)
    assert "doctor --json" in named
    for command in named:
        words = command.split()
        with pytest.raises(SystemExit) as left:
            cli.main([*[word for word in words if word.isalpha() and word.islower() and word != "all"], "--help"])
        assert left.value.code == 0, command
        helped = capsys.readouterr().out
        assert all(word in helped for word in words if word.startswith("--")), command
