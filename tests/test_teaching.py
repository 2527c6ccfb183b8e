"""The instructor guide docs/teaching.md says what course.toml, the checks, the decks and the commands say."""

import re
from collections import Counter

import pytest

from labcheck import exercise
from tools import course, guide, slides
from torchcourse.commands import cli

GUIDE = (course.ROOT / "docs" / "teaching.md").read_text()
CHAPTERS = course.chapters()
EXERCISES = exercise.load_chapters()


def test_what_is_built_into_pages_is_up_to_date():
    old = [path.name for path, text in guide.pages().items() if path.read_text(encoding="utf-8") != text]
    assert old == [], "run `make build`"


def rows(head: str) -> list[list[str]]:
    """The rows of the table in the guide whose head starts in this way, as cells."""
    table = GUIDE[GUIDE.index(f"| {head} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table]


def test_the_table_of_exercises_is_that_of_the_labs():
    for name, minutes, drop, stretch, _ in rows("chapter | lecture + lab"):
        [chapter] = [chapter for chapter in CHAPTERS if f"{chapter.number} {chapter.title}" == name]
        lab = (course.ROOT / "solutions" / f"{chapter.name}.md").read_text()
        optional = lab[lab.index("Stretch") :] if stretch != "–" else ""
        assert minutes == chapter.minutes
        assert all(f"exercise: {word}}}" in optional for word in re.findall(r"`(\w+)`", stretch)), stretch
        dropped = EXERCISES[re.match(r"`(\w+)`", drop)[1]]
        assert dropped.chapter == chapter.name and dropped.name not in stretch
        assert f"(difficulty {dropped.difficulty}, {dropped.minutes} min): " in drop


def test_what_goes_wrong_is_quoted_from_a_check():
    """What is quoted under "how you see it" is in a check of the chapter or in the set-up cell; so is each exercise."""
    number = ""
    for first, what, seen, answer in rows("chapter | what goes wrong"):
        number = first or number
        [chapter] = [chapter for chapter in CHAPTERS if chapter.number == number]
        for name in set(re.findall(r"`(\w+)`", what + seen + answer)) & set(EXERCISES):
            assert EXERCISES[name].chapter == chapter.name, name
        places = (f"src/torchcourse_labs/{chapter.slug}/*.py", "src/labcheck/*.py", "tools/setup_cell.py")
        source = "".join(path.read_text() for place in places for path in sorted(course.ROOT.glob(place)))
        said = re.sub(r'"\s*\n\s*f?"', "", source).lower()  # a message may be broken over two lines,
        said = re.sub(r"\s+", " ", said)  # that of a table, too
        for words in re.findall(r'"([^"]+)"', seen):
            assert words.lower() in said or words in PYTORCH_SAYS, f"nobody says {words!r}"


PYTORCH_SAYS = ("all tensors to be on the same device",)  # not ours; chapter 03 shows it


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


def test_named_slides_exist():
    everything = [slide.title for deck in slides.find_decks() for slide in deck.slides]
    named = re.findall(r'slide "([^"]+)"', GUIDE) + re.findall(r'lecture \d\d after "([^"]+)"', GUIDE)
    assert len(named) >= 3 and set(named) <= set(everything), set(named) - set(everything)


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
