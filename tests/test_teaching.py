"""The instructor guide docs/teaching.md says what course.toml, the checks, the decks and the commands say."""

import re
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


PLAN = [replace(CHAPTERS[0], number=n, lecture_minutes=60, lab_minutes=30) for n in ("00", "01", "02")]


def test_a_schedule_adds_up_and_names_what_it_leaves_out():
    table = guide.schedule("9:00: 00 lecture, break 15; 00 lab | 9:00: 01 lecture", PLAN)
    assert table.splitlines()[2:] == [
        "| 9:00 | 00 lecture 60 · break 15 | 75 |",
        "| 10:15 | 00 lab 30 | 30 |",
        "| | first day | 105 |",
        "| 9:00 | 01 lecture 60 | 60 |",
        "| | second day | 60 |",
        "",
        "Left out: 01 lab and 02.",
    ]
    table = guide.schedule(
        "weeks of 90: 00 lecture, 00 lab; 01 lecture 45, rest 45; 01 lecture, 01 lab, rest 135", PLAN
    )
    assert table.splitlines()[-4:] == [
        "| 3, 4 | 01 lecture 15 · 01 lab 30 · rest 135 | 180 |",
        "| | total | 360 |",
        "",
        "Left out: 02.",
    ]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("9:00: 00 lab, 00 lecture", "the order should be: 00 lecture, 00 lab"),
        ("9:00: 00 lecture 45", "15 minutes of `00 lecture` are missing"),
        ("9:00: 00 lecture 75", "only 60 minutes"),
        ("9:00: 07 lecture 60", "neither a lecture or lab"),
        ("9:00: break", "nor a pause with minutes"),
        ("weeks of 90: 00 lecture", "makes 60 minutes; a week has 90"),
    ],
)
def test_a_plan_that_does_not_work_is_refused(plan, words):
    with pytest.raises(CourseError, match=words):
        guide.schedule(plan, PLAN)


def test_a_lab_without_a_lecture_is_planned_and_left_out_as_a_whole():
    plan = [*PLAN[:2], replace(PLAN[2], lecture_minutes=0)]
    assert guide.schedule("9:00: 00 lecture", plan).endswith("Left out: 00 lab, 01 and 02.")
    assert "| 9:00 | 02 lab 30 | 30 |" in guide.schedule("9:00: 02 lab", plan)
    with pytest.raises(CourseError, match="neither a lecture or lab"):
        guide.schedule("9:00: 02 lecture", plan)


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
