"""The slides: what a deck must be, and that the builder and its checks notice what they are there for.

A deck is read (slides, notes, minutes), its code is run, its page is opened in headless Chromium, and its PDFs are
read. npm and Chromium are needed for the last two; where one is missing the test is skipped with a sentence, and with
CI=true it fails. Pictures to look at are left in build/screenshots.
"""

import html
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import nbformat
import pytest
from conftest import skip_or_fail
from pypdf import PdfReader

from tools import build, course, slides, slides_browser, slides_code, slides_pdf

SCREENSHOTS = course.ROOT / "build" / "screenshots"
DECKS = sorted(path.stem for path in slides.SLIDES.glob("[0-9][0-9]_*.md"))
# The smallest PNG that a browser shows: one white pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8ffff3f0005fe02fe0def46b80000000049454e44ae426082"
)


def picture(tab, name: str, **options) -> None:
    """Leave a picture for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=SCREENSHOTS / f"slides-{name}.png", **options)


def plain(text: str) -> str:
    """Letters and digits only: what is left when a PDF breaks lines and joins letters."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text)).lower()


@pytest.fixture(scope="module")
def packages() -> Path:
    try:
        return slides.fetch_packages()
    except slides.SlidesError as error:
        skip_or_fail(str(error))


@pytest.fixture(scope="module")
def pages(packages, tmp_path_factory) -> Path:
    """The folder with all pages, built once."""
    folder = tmp_path_factory.mktemp("slides")
    slides.build(out=folder)
    return folder


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


def test_every_chapter_with_a_lecture_has_a_deck():
    assert [chapter.name for chapter in course.chapters() if chapter.lecture_minutes] == DECKS


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
def test_figures_are_what_the_notebook_of_the_chapter_shows(name):
    notebook = nbformat.read(course.ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    made = {f"{name}-{key}.png": png for key, png in build.figures(notebook).items()}
    for path in (slides.SLIDES / "figures").glob(f"{name}-*"):
        assert made.get(path.name) == path.read_bytes(), f"{path.name}: run `python -m tools.build {name}`"


def test_every_figure_is_on_a_slide():
    text = "".join(deck.path.read_text(encoding="utf-8") for deck in slides.find_decks())
    files = [path for kind in ("figures", "drawings") for path in (slides.SLIDES / kind).iterdir()]
    assert [path.name for path in files if f"({path.parent.name}/{path.name}" not in text] == []


# ---- PDF ----


@pytest.mark.parametrize("name", DECKS)
def test_notes_fit_on_the_pages_of_the_handout(name, packages, chromium):
    """Sheets have the size of a page, and nothing else on them can be too long."""
    [deck] = slides.find_decks([name])
    with slides_pdf.sheets(deck, packages, chromium) as tab:
        slides_pdf.lay_out(tab, deck, "handout")
        assert tab.locator(".sheet").count() == len(deck.slides)


@pytest.mark.parametrize("name", DECKS[:: len(DECKS) // 2])
def test_both_pdfs_have_a_page_for_each_slide(name, pages, packages, chromium):
    [deck] = slides.find_decks([name])
    renderer = slides.Renderer(deck)
    alone, with_notes = slides_pdf.print_deck(deck, packages, chromium, pages)
    for path, size in (alone, (960, 540)), (with_notes, (595, 842)):
        assert path.stat().st_size < 3e6
        reader = PdfReader(path)
        assert len(reader.pages) == len(deck.slides)
        for page, slide, heading in zip(reader.pages, deck.slides, slides_pdf.headings(deck), strict=True):
            assert (page.mediabox.width, page.mediabox.height) == pytest.approx(size, abs=1)
            text = plain(page.extract_text())
            assert plain(heading) in text, f"page {slide.number} of {path.name} lacks its heading"
            if path == with_notes:
                notes = html.unescape(re.sub("<.*?>", "", renderer.notes(slide)))
                assert plain(notes) in text, f"page {slide.number} of {path.name} lacks notes"
                assert plain(renderer.clock(slide).replace("b>", "")) in text


@pytest.fixture(scope="module")
def small_pdfs(tmp_path_factory, packages, chromium) -> list[PdfReader]:
    """Both PDFs of a deck of three slides: one with code, a pause and a figure; one with long notes."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "figures").mkdir()
    (folder / "figures" / "dot.png").write_bytes(PIXEL)
    seen = "## A `dot` & $x$\n\nSeen.\n\n. . .\n\nAfter a key.\n\n![One white dot, enlarged](figures/dot.png)"
    notes = ("2 min. Hello.", "1.5 min. It is white.", f"5 min. {'Say it slowly, then wait. ' * 100}The end.")
    parts = zip(("# Tensors", seen, "## Long"), notes, strict=True)
    path = folder / "01_tensors.md"
    path.write_text("\n\n---\n\n".join(f"{part}\n\nNotes: {words}" for part, words in parts), encoding="utf-8")
    return [PdfReader(pdf) for pdf in slides_pdf.print_deck(slides.read_deck(path), packages, chromium, folder)]


def test_a_pdf_is_more_than_pictures_of_slides(small_pdfs):
    alone, with_notes = small_pdfs
    for reader in small_pdfs:
        assert reader.metadata.title.startswith("01 Tensors")
        assert reader.metadata.author == course.manifest()["title"]
        bookmarks = [(mark.title, reader.get_destination_page_number(mark)) for mark in reader.outline]
        assert bookmarks == [("Tensors", 0), ("A dot & x", 1), ("Long", 2)]
        objects = [reader.get_object(i) for i in range(1, reader.trailer["/Size"])]
        assert "One white dot, enlarged" in [o.get("/Alt") for o in objects if isinstance(o, dict)]
        assert "After a key." in reader.pages[1].extract_text()
        assert "all keys" not in reader.pages[0].extract_text()
    assert "Hello." not in alone.pages[0].extract_text()
    assert "1.5 min" in (text := with_notes.pages[1].extract_text()) and "0:02 to 0:03:30" in text


def test_the_handout_uses_its_page_and_cuts_no_notes_off(small_pdfs):
    # Chromium shrinks a page on which something is too wide: its text would begin left of the margin of 17 mm.
    starts = []
    page = small_pdfs[1].pages[2]
    text = page.extract_text(visitor_text=lambda _, cm, tm, *font: starts.append(cm[0] * tm[4] + cm[4]))
    first = next(start for start in starts if start > 0)
    assert first == pytest.approx(17 / 25.4 * 72, abs=2)
    assert plain(text).count("sayitslowlythenwait") == 100 and "The end." in text


def test_notes_that_fit_on_no_page_are_refused(tmp_path, packages, chromium):
    deck = write_deck(tmp_path, "## A", notes=f"Notes: 1 min. {'Say it slowly. ' * 1000}")
    with pytest.raises(slides.SlidesError, match=r"slide 1: its notes do not fit.*Shorten"):
        slides_pdf.print_deck(deck, packages, chromium, tmp_path)


def test_the_command_writes_both_pdfs_and_the_index_leads_to_them(tmp_path, packages, chromium):
    command = [sys.executable, "-m", "tools.slides_pdf", DECKS[0], "--out", str(tmp_path)]
    printed = subprocess.run(command, cwd=course.ROOT, capture_output=True, text=True, check=True).stdout
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    for name in (f"{DECKS[0]}.pdf", f"{DECKS[0]}-notes.pdf"):
        assert (tmp_path / name).is_file() and name in printed and f'href="{name}"' in index


def test_the_command_names_an_unknown_deck(tmp_path, packages, capsys):
    assert slides_pdf.main(["77", "--out", str(tmp_path)]) == 1
    assert "There is no deck 77" in capsys.readouterr().err


# ---- index page ----


def test_index_leads_to_every_deck(pages, chromium):
    slides.write_index(pages)
    tab = chromium.new_page(viewport={"width": 390, "height": 844})
    tab.goto((pages / "index.html").as_uri())
    assert tab.locator("a.deck").evaluate_all("links => links.map(a => a.getAttribute('href'))") == [
        f"{name}.html" for name in DECKS
    ]
    text = tab.locator("ol").inner_text()
    for chapter in (deck.chapter for deck in slides.find_decks()):
        assert chapter.title in text and f"{chapter.lecture_minutes} min lecture" in text
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than a phone"
    picture(tab, "index-phone", full_page=True)
    tab.set_viewport_size({"width": 1280, "height": 900})
    picture(tab, "index", full_page=True)
    tab.close()


def test_index_names_pdfs_that_are_there_and_not_outdated(tmp_path):
    deck = write_deck(tmp_path, "## A")
    page, [alone, with_notes] = tmp_path / "01_tensors.html", slides.pdfs(deck, tmp_path)
    assert ".pdf" not in slides.build_index([deck], tmp_path)
    for number, path in enumerate((alone, page, with_notes)):
        path.touch()
        os.utime(path, (1000 + number, 1000 + number))
    index = slides.build_index([deck], tmp_path)
    assert '"01_tensors-notes.pdf"' in index and '"01_tensors.pdf"' not in index
    os.utime(alone, (2000, 2000))
    assert '"01_tensors.pdf"' in slides.build_index([deck], tmp_path)


def test_a_page_that_says_the_same_keeps_its_time(tmp_path):
    path = tmp_path / "page.html"
    slides.write_if_changed(path, "same")
    os.utime(path, (1000, 1000))
    slides.write_if_changed(path, "same")
    assert path.stat().st_mtime == 1000
    slides.write_if_changed(path, "other")
    assert path.read_text() == "other" and path.stat().st_mtime > 1000


# ---- in the hall: speaker view, keys, search ----


def test_speaker_view_shows_notes_and_time(pages, chromium):
    [deck] = slides.find_decks(DECKS[1:2])
    slide = deck.slides[5]
    complaints = []
    with slides_browser.open_deck(chromium, pages / f"{deck.name}.html", complaints) as tab:
        tab.evaluate("Reveal.slide(5)")
        with tab.context.expect_page() as opened:
            tab.keyboard.press("s")
        speaker = opened.value
        notes = speaker.locator(".speaker-controls-notes .value")
        first_words = re.sub(r"^\S+ min\W*", "", slide.notes).split("`")[0].split("\n")[0][:30]
        notes.filter(has_text=first_words).wait_for()
        end = deck.begin(slide) + slide.minutes
        assert f"{slides.hours(deck.begin(slide))} to {slides.hours(end)}" in notes.inner_text()
        # The planned time: how long until the end of this slide, counted from the start of the lecture.
        pace = speaker.locator(".pacing")
        pace.wait_for(state="visible")
        hours, minutes, seconds = map(int, re.findall(r"\d+", pace.inner_text()))
        assert 0 < 60 * hours + minutes + seconds / 60 <= end
        speaker.set_viewport_size({"width": 1280, "height": 720})
        picture(speaker, "speaker")
    assert complaints == []


def test_every_slide_tells_the_speaker_view_its_minutes():
    for deck in slides.find_decks():
        renderer = slides.Renderer(deck)
        for slide in deck.slides:
            assert f'<section data-timing="{60 * slide.minutes:.0f}">' in renderer.section(slide)


@pytest.fixture(scope="module")
def hall(tmp_path_factory, packages, chromium):
    """A tab with a small deck, without network."""
    folder = tmp_path_factory.mktemp("hall")
    page = write_page(folder, packages, "## One\n\nNothing here.", "## Two\n\nA xylophone.", "## Three\n\nThe end.")
    complaints = []
    with slides_browser.open_deck(chromium, page, complaints) as tab:
        tab.context.set_offline(True)
        tab.reload()
        tab.wait_for_function("window.Reveal && Reveal.isReady()")
        yield tab
    assert complaints == []


@pytest.mark.parametrize("key", ["191", "219"], ids=["American keyboard", "German keyboard"])
def test_question_mark_shows_the_keys(hall, key):
    hall.evaluate(
        "code => document.dispatchEvent(new KeyboardEvent('keydown',"
        " { key: '?', keyCode: code, shiftKey: true, bubbles: true }))",
        int(key),
    )
    shown = hall.locator(".r-overlay-help")
    for words in ("Search", "Speaker notes view", "Slide overview", "Fullscreen", "Magnify", "Next slide"):
        assert words in shown.inner_text()
    content = hall.locator(".r-overlay-content")
    assert content.evaluate("box => box.scrollHeight <= box.clientHeight"), "the keys do not fit on one screen"
    picture(hall, "keys")
    hall.keyboard.press("Escape")
    assert hall.locator(".r-overlay-help").count() == 0


def test_title_slide_names_the_keys(hall):
    hall.evaluate("Reveal.slide(0)")
    foot = hall.locator("section.present footer").inner_text()
    assert re.search(r"s\s+speaker view", foot) and re.search(r"\?\s+all keys", foot)


def test_search_goes_to_the_slide_with_the_word(hall):
    hall.evaluate("Reveal.slide(0)")
    hall.keyboard.press("Control+Shift+F")
    hall.keyboard.type("xylophone")
    hall.keyboard.press("Enter")
    hall.wait_for_function("Reveal.getIndices().h === 2")
    picture(hall, "search")
    hall.keyboard.press("Control+Shift+F")
    hall.locator(".searchinput").blur()


def test_overview_shows_several_slides(hall):
    hall.keyboard.press("o")
    hall.wait_for_function("Reveal.isOverview()")
    hall.wait_for_function("document.getAnimations().length === 0")  # the slides fly to their places
    picture(hall, "overview")
    hall.keyboard.press("o")
    hall.wait_for_function("!Reveal.isOverview()")


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
DRAWING = """<figure><svg class="drawing" role="img" aria-label="Words on a dark ground" viewBox="0 0 1152 300">
<rect class="navy" width="1152" height="300"/><text y="99">Words</text></svg></figure>"""
BAD = [
    (f"## A\n\n```python\n{LONG}\n```", "too high"),
    (f"## A\n\n```python\nx = '{'wide ' * 30}'\n```", "too wide"),
    ("## A\n\n" + "\n\n".join(f"Paragraph {i}." for i in range(20)), "into the footer"),
    ("## A\n\nFirst.\n\n. . .\n\n" + "\n\n".join(f"Paragraph {i}." for i in range(20)), "into the footer"),
    ('## A\n\n<p style="font-size: 14px">tiny</p>', "smaller than 20 px"),
    ('## A\n\n<pre style="font-size: 23px">x = 1</pre>', "code of only 23.0 px, it needs 24"),
    ('## A {.dense}\n\n<pre style="font-size: 21px">x = 1</pre>', "code of only 21.0 px, it needs 22"),
    ('## A\n\nCall <code style="font-size: 21px">f(x)</code>.', "code of only 21.0 px, it needs 22"),
    ('## A\n\n<p style="color: #999">pale</p>', "contrast of only 2.85"),
    ('## A\n\nFirst.\n\n. . .\n\n<p style="color: #999">pale</p>', "contrast of only 2.85"),
    ('## A\n\n<p style="opacity: 0.5">half there</p>', "contrast of only"),
    ('## A\n\n<div style="background: #0b3a5b"><p>dark on dark</p></div>', "contrast of only"),
    ('## A\n\n<pre><code>x = <span style="color: #f77">1</span></code></pre>', "contrast of only"),
    (f"## A\n\n{DRAWING}", "contrast of only"),
    ('## A\n\n<p style="background: linear-gradient(red, blue)">colorful</p>', "cannot be told"),
    ("## A\n\n$\\notacommand{x}$", "math is not rendered"),
    ('## A\n\n<p><img src="http://127.0.0.1:9/far.png" alt="far"></p>', "it fetches http://127.0.0.1:9/far.png"),
    ("## A\n\n<p>x</p><script>console.error('broken')</script>", "console: broken"),
    ("## A\n\n" + "Much text. " * 110 + "\n\n![A dot](figures/dot.png)", "a figure is only"),
    ("## A\n\n![A dot](figures/dot.png)", 'fewer than four words: "A dot"'),
    (
        '## A\n\n![The loss falls quickly](figures/dot.png "The loss falls, quickly.")',
        "only repeats caption or heading",
    ),
    ("## The loss falls quickly\n\n![The loss falls quickly](figures/dot.png)", "only repeats caption or heading"),
]


@pytest.fixture(scope="module")
def bad_page(tmp_path_factory, packages, chromium) -> list[str]:
    """What is found in a deck with all of these slides."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "figures").mkdir()
    (folder / "figures" / "dot.png").write_bytes(PIXEL)
    return slides_browser.slide_problems(chromium, write_page(folder, packages, *(body for body, _ in BAD)))


@pytest.mark.parametrize("index", range(len(BAD)), ids=[words for _, words in BAD])
def test_a_bad_slide_is_noticed(index, bad_page):
    words = BAD[index][1]
    where = "deck.html:" if words.startswith(("it fetches", "console")) else f"deck.html, slide {index + 2}:"
    assert [line for line in bad_page if line.startswith(where) and words in line]


def test_a_good_page_has_no_problems(tmp_path, packages, chromium):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "dot.png").write_bytes(PIXEL)
    page = write_page(
        tmp_path,
        packages,
        "## Why? {.question}\n\nA question with $x^2$.\n\n. . .\n\n::: answer\nBecause.\n:::",
        "## Both\n\n::: columns 3 2\n```python mark=1\nx = 1\n```\n|||\n![A white dot, small](figures/dot.png)\n:::",
    )
    assert slides_browser.slide_problems(chromium, page) == []
    with slides_browser.open_deck(chromium, page, []) as tab:
        assert tab.locator(".katex").count() == 1
        assert tab.locator("figure img").get_attribute("alt") == "A white dot, small"
        assert tab.locator(".fragment .answer").count() == 1


def test_without_chromium_the_command_says_what_to_install(packages, tmp_path):
    for name in ("node", "npm"):
        if path := shutil.which(name):
            (tmp_path / name).symlink_to(path)
    command = [sys.executable, "-m", "tools.slides", "--look", str(tmp_path / "look"), "--out", str(tmp_path), "00"]
    environment = os.environ | {"PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=course.ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "apt install chromium" in done.stderr and "Traceback" not in done.stderr


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
