"""The slides: what a deck must be, and that the builder and its checks notice what they are there for.

A deck is read (slides, notes, minutes, alt text), its code is run, and its page is opened in headless Chromium. npm and
Chromium are needed for the last; where one is missing the test is skipped with a sentence, and with CI=true it fails.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tools import course, slides, slides_browser, slides_code

DECKS = sorted(path.stem for path in slides.SLIDES.glob("[0-9][0-9]_*.md"))
# The smallest PNG that a browser shows: one white pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8ffff3f0005fe02fe0def46b80000000049454e44ae426082"
)


def unavailable(error: Exception):
    """A part of the tool chain is missing: fine on somebody's laptop, not in CI."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(error))


@pytest.fixture(scope="module")
def packages() -> Path:
    try:
        return slides.fetch_packages()
    except slides.SlidesError as error:
        unavailable(error)


@pytest.fixture(scope="module")
def pages(packages, tmp_path_factory) -> Path:
    """The folder with all pages, built once."""
    folder = tmp_path_factory.mktemp("slides")
    slides.build(out=folder)
    return folder


@pytest.fixture(scope="module")
def chromium():
    try:
        with slides_browser.browser() as opened:
            yield opened
    except slides.SlidesError as error:
        unavailable(error)


def write_deck(folder: Path, *bodies: str, notes: str = "Notes: 1 min. Say it.") -> slides.Deck:
    """A deck of chapter 01 with the given slides behind a title slide."""
    parts = ["# Tensors\n\nA sentence.", *bodies]
    path = folder / "01_tensors.md"
    path.write_text("\n\n---\n\n".join(f"{part}\n\n{notes}" for part in parts), encoding="utf-8")
    return slides.read_deck(path)


def write_page(folder: Path, packages: Path, *bodies: str) -> Path:
    page = folder / "deck.html"
    page.write_text(slides.build_deck(write_deck(folder, *bodies), packages), encoding="utf-8")
    return page


# ---- the decks of the course ----


def test_every_chapter_has_a_deck():
    assert [chapter.name for chapter in course.chapters()] == DECKS


@pytest.mark.parametrize("name", DECKS)
def test_outline(name):
    [deck] = slides.find_decks([name])
    assert slides.outline_problems(deck) == []


@pytest.mark.parametrize("name", DECKS)
def test_code_runs_and_prints_what_the_slides_show(name):
    [deck] = slides.find_decks([name])
    assert slides_code.problems(deck) == []


@pytest.mark.parametrize("name", DECKS)
def test_page_in_the_browser(name, pages, chromium):
    assert slides_browser.slide_problems(chromium, pages / f"{name}.html") == []


@pytest.mark.parametrize("name", DECKS)
def test_speaker_view_shows_the_notes(name, pages, chromium):
    [deck] = slides.find_decks([name])
    complaints = []
    with slides_browser.open_deck(chromium, pages / f"{name}.html", complaints) as tab:
        tab.evaluate("Reveal.slide(1)")
        with tab.context.expect_page() as opened:
            tab.keyboard.press("s")
        notes = opened.value.locator(".speaker-controls-notes .value")
        first_words = " ".join(deck.slides[1].notes.split()[:4])
        notes.filter(has_text=first_words).wait_for(timeout=20_000)
    assert complaints == []


def test_index_leads_to_every_deck(pages, chromium):
    tab = chromium.new_page()
    tab.goto((pages / "index.html").as_uri())
    assert tab.locator("ol a").evaluate_all("links => links.map(a => a.getAttribute('href'))") == [
        f"{name}.html" for name in DECKS
    ]
    text = tab.locator("ol").inner_text()
    for chapter in (deck.chapter for deck in slides.find_decks()):
        assert chapter.title in text and f"{chapter.lecture_minutes} min lecture" in text
    tab.close()


# ---- the builder says what is wrong with a deck, and where ----


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "## A\n\n![A plot](figures/01_tensors-none.png)",
            ["slide 2", "01_tensors-none.png is missing", "tools.build"],
        ),
        ("## A\n\n![](figures/01_tensors-dot.png)", ["slide 2", "alt text"]),
        ("## A {.huge}", ["slide 2", "huge", "question"]),
        ("No heading", ["slide 2", "0 headings"]),
        ("## A\n\n## B", ["slide 2", "2 headings"]),
        ("## A\n\n::: trap\nNever closed.", ["slide 2", "::: trap"]),
        ("## A\n\n::: danger\nX\n:::", ["unknown box", "trap"]),
        ("## A\n\n::: columns 1 2\nOnly one.\n:::", ["1 columns"]),
        ("## A\n\n```pyhton\nx\n```", ["pyhton", "python"]),
        ("## A\n\n```python skip\nx = 1\n```", ["option skip"]),
    ],
)
def test_a_broken_slide_is_named(tmp_path, body, words):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "01_tensors-dot.png").write_bytes(PIXEL)
    with pytest.raises(slides.SlidesError) as caught:
        deck = write_deck(tmp_path, body)
        renderer = slides.Renderer(deck)
        for slide in deck.slides:
            renderer.section(slide)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("## A\n\n```output\n1\n```", "directly below"),
        ("## A\n\n```python\n1\n```\n\nBut\n\n```output\n1\n```", "directly below"),
        ("## A\n\n```python\n1\n```\n```text\n1\n```", "write ```output"),
        ("## A\n\n```python\n1\n", "never closed"),
        ("## A\n\n- item\n\n  ```python\n  1\n  ```", "indented"),
    ],
)
def test_a_misplaced_block_is_named(tmp_path, body, word):
    with pytest.raises(slides.SlidesError, match=word):
        write_deck(tmp_path, body)


def test_a_deck_without_a_chapter_is_refused(tmp_path):
    path = tmp_path / "77_nothing.md"
    path.write_text("# Nothing\n\nNotes: 1 min. X\n")
    with pytest.raises(slides.SlidesError, match=r"77_nothing\.md has no chapter"):
        slides.read_deck(path)


def test_notes_and_minutes_are_asked_for(tmp_path):
    with pytest.raises(slides.SlidesError, match=r"slide 1: it has no speaker notes"):
        write_deck(tmp_path, "## A", notes="")
    short = write_deck(tmp_path, "## A", notes="Notes: Say it.")
    found = "\n".join(slides.outline_problems(short))
    assert "has 2 slides" in found and "slide 2: start the notes with the minutes" in found and "add up to 0" in found


def test_separators_inside_code_and_boxes_do_not_split(tmp_path):
    deck = write_deck(tmp_path, "## A\n\n```text\n---\nNotes: not these\n. . .\n:::\n## not a heading\n```\n\nEnd.")
    assert len(deck.slides) == 2
    html = slides.Renderer(deck).section(deck.slides[1])
    assert "Notes: not these" in html and "fragment" not in html and "<p>End.</p>" in html


# ---- code on slides ----


def test_code_that_does_what_its_slide_says(tmp_path):
    deck = write_deck(
        tmp_path,
        '## A\n\n```python hidden\nx = [1, 2]\n```\n\n```python\nprint("a")\nx\n```\n```output\na\n[1, 2]\n```',
        "## B\n\n```python raises=TypeError\nprint(2)\nx + 1\n```\n\n. . .\n\n```output\n2\nTypeError: can ...\n```",
        "## C\n\n```python\nid(x)\n```\n```output\n...\n```\n\n```python\nx.append(3)\n```",
    )
    assert slides_code.problems(deck) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("```python\n1 + 1\n```\n```output\n3\n```", ["slide 2", "1 + 1", "shows\n3", "printed\n2"]),
        ("```python\n1 + 1\n```\n```output\n2...3\n```", ["slide 2"]),
        ("```python\n1 / 0\n```", ["slide 2", "expected no exception", "ZeroDivisionError"]),
        ("```python raises=TypeError\n1 / 0\n```", ["expected TypeError", "gave ZeroDivisionError"]),
        ("```python raises=TypeError\n1\n```", ["expected TypeError", "gave none"]),
        ("```python\nif:\n```", ["SyntaxError"]),
        ('```python\nimport warnings\nwarnings.warn("old")\n```', ["warns", "old"]),
        ("```python\nimport os\nos._exit(3)\n```", ["status 3"]),
    ],
)
def test_code_that_does_not(tmp_path, body, words):
    found = slides_code.problems(write_deck(tmp_path, f"## A\n\n{body}"))
    assert len(found) == 1
    for word in words:
        assert word in found[0]


def test_code_leaves_nothing_behind(tmp_path):
    deck = write_deck(tmp_path, '## A\n\n```python\nopen("left.txt", "w").close()\n```')
    assert slides_code.problems(deck) == []
    assert not Path("left.txt").exists() and not (slides.ROOT / "left.txt").exists()


# ---- the browser's checks can fail ----

LONG = "\n".join(f"line{i} = {i}" for i in range(30))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"## A\n\n```python\n{LONG}\n```", "too high"),
        (f"## A\n\n```python\nx = '{'wide ' * 30}'\n```", "too wide"),
        ("## A\n\n" + "\n\n".join(f"Paragraph {i}." for i in range(20)), "into the footer"),
        ("## A\n\nFirst.\n\n. . .\n\n" + "\n\n".join(f"Paragraph {i}." for i in range(20)), "into the footer"),
        ('## A\n\n<p style="font-size: 14px">tiny</p>', "smaller than 20 px"),
        ("## A\n\n$\\notacommand{x}$", "math is not rendered"),
        ('## A\n\n<p><img src="http://127.0.0.1:9/far.png" alt="far"></p>', "it fetches http://127.0.0.1:9/far.png"),
        ("## A\n\n<p>x</p><script>console.error('broken')</script>", "console: broken"),
        ("## A\n\n" + "Much text. " * 110 + "\n\n![A dot](figures/dot.png)", "a figure is only"),
    ],
)
def test_a_bad_page_is_noticed(tmp_path, packages, chromium, body, words):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "dot.png").write_bytes(PIXEL)
    found = slides_browser.slide_problems(chromium, write_page(tmp_path, packages, body))
    assert words in "\n".join(found)


def test_a_good_page_has_no_problems(tmp_path, packages, chromium):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "dot.png").write_bytes(PIXEL)
    page = write_page(
        tmp_path,
        packages,
        "## Why? {.question}\n\nA question with $x^2$.\n\n. . .\n\n::: answer\nBecause.\n:::",
        '## Both\n\n::: columns 3 2\n```python mark=1\nx = 1\n```\n|||\n![A dot](figures/dot.png "Caption")\n:::',
    )
    assert slides_browser.slide_problems(chromium, page) == []
    with slides_browser.open_deck(chromium, page, []) as tab:
        assert tab.locator(".katex").count() == 1
        assert tab.locator("figure img").get_attribute("alt") == "A dot"
        assert tab.locator(".fragment .answer").count() == 1


# ---- npm ----


def test_npm_runs_only_once(packages, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("npm was started again"))
    assert slides.fetch_packages() == packages


def test_a_missing_npm_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(slides.SlidesError, match="npm is not installed"):
        slides.fetch_packages(tmp_path / "build")


def test_an_npm_that_fails_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\nmkdir node_modules\necho 'npm error code ENOTFOUND' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(slides.SlidesError, match=r"code ENOTFOUND.*Check the network"):
        slides.fetch_packages(tmp_path / "build")
    assert list((tmp_path / "build" / "npm").iterdir()) == []
