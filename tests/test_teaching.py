"""The instructor guide docs/teaching.md says what course.toml, the checks, the decks and the commands say."""

import re
from collections import Counter
from datetime import datetime, timedelta

import pytest

from tools import course
from torchcourse import cli
from torchcourse.checks import engine

GUIDE = (course.ROOT / "docs" / "teaching.md").read_text()
CHAPTERS = course.chapters()
EXERCISES = engine.load_chapters()
SCHEDULES = ("Half a day", "Two days", "A term")
WORDS, WORDS_PER_CHAPTER = 1100, 110  # two to three printed pages


def section(heading: str) -> str:
    """The text below a heading, up to the next one of its level or above."""
    level, _, rest = re.search(rf"^(#+) ({heading})\n(.*)", GUIDE, re.M | re.S).groups()
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.M)[0]


def rows(text: str) -> list[list[str]]:
    """The rows of all tables in a text, without their heads."""
    lines = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in text.splitlines() if line.startswith("|")]
    rules = [i for i, cells in enumerate(lines) if cells[0].startswith("|:") or cells[0].startswith(":-")]
    return [cells for i, cells in enumerate(lines) if i not in rules and i + 1 not in rules]


def parts(cell: str) -> list[tuple[str, int]]:
    """ "00 lecture 20 · break 15" as [("00 lecture", 20), ("break", 15)]."""
    return [(name, int(minutes)) for name, minutes in (part.rsplit(" ", 1) for part in cell.split(" · "))]


def about(chapter: course.Chapter, kind: int) -> list[list[str]]:
    """The rows of a chapter in the first (0, exercises) or second (1, mistakes) table of chapters."""
    table = re.split(r"^\| chapter \|", section("Chapter by chapter"), flags=re.M)[1 + kind]
    found, current = [], None
    for cells in rows("| chapter |" + table):
        current = cells[0][:2] or current  # an empty first cell goes on with the chapter above
        found += [cells] if current == chapter.number else []
    assert found, (
        f"docs/teaching.md: chapter {chapter.name} of course.toml is missing in a table of `Chapter by chapter`."
    )
    return found


def headings(number: str) -> list[str]:
    """The headings of a chapter's deck."""
    deck = next((course.ROOT / "slides").glob(f"{number}_*.md")).read_text()
    return [line.lstrip("# ").split(" {")[0] for line in deck.splitlines() if line.startswith("#")]


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.name)
def test_chapter_has_its_very_minutes(chapter):
    (row,) = about(chapter, 0)
    assert row[0] == f"{chapter.number} {chapter.title}"
    assert row[1] == f"{chapter.lecture_minutes} + {chapter.lab_minutes}"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.name)
def test_exercises_are_those_of_the_chapter(chapter):
    (row,) = about(chapter, 0)
    dropped, difficulty, minutes = re.match(r"`(\w+)` \(difficulty (\d), (\d+) min\): ", row[2]).groups()
    assert EXERCISES[dropped].chapter == chapter.name
    assert (EXERCISES[dropped].difficulty, EXERCISES[dropped].minutes) == (int(difficulty), int(minutes))
    assert "Stretch" not in EXERCISES[dropped].title, "what nobody has to do cannot be dropped first"
    quick = re.findall(r"`(\w+)`", row[3])
    lab = (course.ROOT / "solutions" / f"{chapter.name}.md").read_text()
    stretch = re.findall(r"\{\{exercise: (\w+)\}\}", lab[re.search("^## .*Stretch", lab, re.M).start() :])
    assert quick == stretch
    assert re.search(r"^## Catch up|\*\*Catch-up", lab, re.M) and row[4]
    # Whatever else is named like an exercise is one, of this chapter.
    for cells in about(chapter, 1):
        for name in set(re.findall(r"`(\w+)`", " ".join(cells))) & set(EXERCISES):
            assert EXERCISES[name].chapter == chapter.name, name


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.name)
def test_messages_are_those_that_a_check_gives(chapter):
    """What is quoted under "how you see it" stands in a check, in the truth table or in the set-up cell."""
    table = about(chapter, 1)
    source = "".join(
        (course.ROOT / place).read_text()
        for place in (
            f"src/torchcourse/checks/{chapter.slug}.py",
            f"tests/answers/{chapter.name}.py",
            "src/torchcourse/checks/collectives.py",
            "tools/setup_cell.py",
        )
    )
    said = re.sub(r'"\s*\n\s*f?"', "", source).lower()  # a message may be broken over two lines
    for cells in table:
        assert len(cells) == 4 and all(cells[1:]), cells
        for words in re.findall(r'"([^"]+)"', cells[2]):
            assert words.lower() in said or words in PYTORCH_SAYS, f"nobody says {words!r}"


PYTORCH_SAYS = ("all tensors to be on the same device",)  # not ours; chapter 03 shows it


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_adds_up(name):
    clock, block = None, 0
    for first, what, minutes in rows(section(name)):
        if not first:  # a sum of all rows above it
            assert int(minutes) == block, f"{what}: the rows above make {block}"
            clock, block = None, 0
            continue
        assert int(minutes) == sum(m for _, m in parts(what)), what
        block += int(minutes)
        if ":" in first:
            start = datetime.strptime(first, "%H:%M")
            assert clock in (None, start), f"{first}: the row above ends at {clock:%H:%M}"
            clock = start + timedelta(minutes=int(minutes))
        else:
            assert int(minutes) == 90 * len(first.split(", ")), f"week {first} has 90 minutes"
    assert block == 0, "the last row is the sum"


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_gives_each_chapter_what_it_needs(name):
    given, order = Counter(), []
    for first, what, _ in rows(section(name)):
        for part, minutes in parts(what) if first else []:
            given[part] += minutes
            order += [part] if part[0].isdigit() and part not in order[-1:] else []
    needed = {f"{c.number} {kind}": getattr(c, f"{kind}_minutes") for c in CHAPTERS for kind in ("lecture", "lab")}
    assert order == [part for part in needed if part in given], "lecture before lab, chapter before chapter"
    assert {part: given[part] for part in order} == {part: needed[part] for part in order}
    left_out = section(name).partition("Left out: ")[2]
    missing = [part for part in needed if part not in given and part[:2] not in left_out]
    assert not missing, f"docs/teaching.md, {name}: {', '.join(missing)} is neither in it nor among what is left out."


def test_named_slides_exist():
    everything = [heading for chapter in CHAPTERS for heading in headings(chapter.number)]
    named = re.findall(r'slide "([^"]+)"', GUIDE) + re.findall(r'lecture \d\d after "([^"]+)"', GUIDE)
    assert len(named) >= 3 and set(named) <= set(everything), set(named) - set(everything)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.name)
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


def test_it_is_short():
    chapters = section("Chapter by chapter")
    words = len(re.findall(r"\w+", chapters)), len(re.findall(r"\w+", GUIDE.replace(chapters, "")))
    assert words[0] <= WORDS_PER_CHAPTER * len(CHAPTERS), f"{words[0]} words in `Chapter by chapter`"
    assert 500 <= words[1] <= WORDS, f"{words[1]} words outside of it"
