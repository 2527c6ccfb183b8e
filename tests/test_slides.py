"""The slides: what a deck must be, and that the builder and its checks notice what they are there for.

A deck is read (slides, notes, minutes), its code is run, its page is opened in headless Chromium, and its PDFs are
read. npm and Chromium are needed for the last two; where one is missing the test is skipped with a sentence, and with
CI=true it fails.
"""

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import nbformat
import pytest
from conftest import skip_or_fail
from pypdf import PdfReader

from tools import build, course, slides, slides_browser, slides_code, slides_pdf
from torchcourse.errors import CourseError

DECKS = sorted(path.stem for path in slides.SLIDES.glob("[0-9][0-9]_*.md"))
# The smallest PNG that a browser shows: one white pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8ffff3f0005fe02fe0def46b80000000049454e44ae426082"
)


@contextmanager
def open_deck(chromium, page: Path, complaints: list[str]) -> Iterator:
    """A tab (Playwright's Page) with the deck; requests to the outside and errors are added to `complaints`."""
    with chromium.new_context(viewport={"width": 1280, "height": 720}) as context:
        context.set_default_timeout(slides_browser.PATIENCE)
        slides_browser.watch(context, complaints)
        tab = context.new_page()
        tab.goto(page.resolve().as_uri())
        tab.wait_for_function("window.Reveal && Reveal.isReady() && document.fonts.status === 'loaded'")
        yield tab


def slide_problems(chromium, page: Path) -> list[str]:
    """Overflow, small text, missing alt text, math left as TeX, requests and console errors of a deck, as sentences."""
    measure = (course.ROOT / "tools" / "slides_theme" / "measure.js").read_text(encoding="utf-8")  # for one slide
    found: list[str] = []
    complaints: list[str] = []
    with open_deck(chromium, page, complaints) as tab:
        for index in range(tab.evaluate("Reveal.getTotalSlides()")):
            tab.evaluate(f"Reveal.slide({index})")
            found += [f"{page.name}, slide {index + 1}: {words}" for words in tab.evaluate(measure)]
    return found + [f"{page.name}: {words}" for words in dict.fromkeys(complaints)]


def plain(text: str) -> str:
    """Letters and digits only: what is left when a PDF breaks lines and joins letters."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text)).lower()


@pytest.fixture(scope="module")
def packages() -> Path:
    try:
        return slides.fetch_packages()
    except CourseError as error:
        skip_or_fail(str(error))


@pytest.fixture(scope="module")
def pages(packages, tmp_path_factory) -> Path:
    """The folder with all pages, built once."""
    folder = tmp_path_factory.mktemp("slides")
    slides.build(out=folder)
    return folder


def write_deck(folder: Path, *bodies: str, notes: str = "Notes: 1 min. Say it.") -> slides.Deck:
    """A deck of chapter 01 with the given slides behind a title slide."""
    text = "\n\n---\n\n".join(f"{part}\n\n{notes}" for part in ("# Tensors\n\nA sentence.", *bodies))
    (folder / "01_tensors.md").write_text(text, encoding="utf-8")
    return slides.read_deck(course.chapters()[1], folder)


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
    assert 12 <= len(deck.slides) <= 25
    # The rest is for questions, and for the cells that are run in between: ten minutes of 75.
    assert 0.75 * deck.chapter.lecture_minutes <= deck.minutes <= 0.88 * deck.chapter.lecture_minutes


@pytest.mark.parametrize("name", DECKS)
def test_code_runs_and_prints_what_the_slides_show(name):
    [deck] = slides.find_decks([name])
    assert slides_code.problems(deck) == []


@pytest.mark.parametrize("name", DECKS)
def test_page_in_the_browser(name, pages, chromium):
    assert slide_problems(chromium, pages / f"{name}.html") == []


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
        assert tab.locator("section").count() == len(deck.slides)


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
    deck = slides.read_deck(course.chapters()[1], folder)
    return [PdfReader(pdf) for pdf in slides_pdf.print_deck(deck, packages, chromium, folder)]


def test_a_pdf_is_more_than_pictures_of_slides(small_pdfs):
    alone, with_notes = small_pdfs
    for reader, size in (alone, (960, 540)), (with_notes, (595, 842)):
        assert reader.metadata.title == "01 Tensors"
        assert [page.mediabox[2:] for page in reader.pages] == [pytest.approx(size, abs=1)] * 3
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
    assert min(start for start in starts if start > 0) == pytest.approx(17 / 25.4 * 72, abs=2)
    assert plain(text).count("sayitslowlythenwait") == 100 and "The end." in text


def test_notes_that_fit_on_no_page_are_refused(tmp_path, packages, chromium):
    deck = write_deck(tmp_path, "## A", notes=f"Notes: 1 min. {'Say it slowly. ' * 1000}")
    with pytest.raises(CourseError, match=r"slide 1: its notes do not fit.*Shorten"):
        slides_pdf.print_deck(deck, packages, chromium, tmp_path)


# ---- index page ----


def test_index_leads_to_every_deck(pages, chromium):
    tab = chromium.new_page(viewport={"width": 390, "height": 844})
    tab.goto((pages / "index.html").as_uri())
    links = tab.locator("a.deck").evaluate_all("links => links.map(a => a.getAttribute('href'))")
    assert links == [f"{name}.html" for name in DECKS]
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than a phone"
    tab.close()


def test_pdfs_are_written_beside_the_pages_and_the_index_leads_to_them(tmp_path, packages, chromium, monkeypatch):
    monkeypatch.setattr(slides_browser, "browser", lambda: nullcontext(chromium))
    monkeypatch.setattr(slides, "find_decks", lambda names=(): [write_deck(tmp_path, "## A")])
    slides_pdf.build([], tmp_path)
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    for name in ("01_tensors.html", "01_tensors.pdf", "01_tensors-notes.pdf"):
        assert (tmp_path / name).is_file() and f'href="{name}"' in index
    slides.build([], tmp_path)
    assert ".pdf" not in (tmp_path / "index.html").read_text(encoding="utf-8"), "these are older than the pages"


# ---- in the hall: speaker view, keys, search ----


def test_speaker_view_shows_notes_and_time(pages, chromium):
    [deck] = slides.find_decks(DECKS[1:2])
    slide = deck.slides[5]
    complaints = []
    with open_deck(chromium, pages / f"{deck.chapter.name}.html", complaints) as tab:
        tab.evaluate("Reveal.slide(5)")
        with tab.context.expect_page() as opened:
            tab.keyboard.press("s")
        speaker = opened.value
        notes = speaker.locator(".speaker-controls-notes .value")
        first_words = slide.notes.split("`")[0].split("\n")[0][:30]
        notes.filter(has_text=first_words).wait_for()
        end = slide.begin + slide.minutes
        assert f"{slides.hours(slide.begin)} to {slides.hours(end)}" in notes.inner_text()
    assert complaints == []


def test_question_mark_shows_the_keys_on_a_german_keyboard(pages, chromium):
    with open_deck(chromium, pages / f"{DECKS[0]}.html", []) as tab:
        key = "{ key: '?', keyCode: 219, shiftKey: true, bubbles: true }"
        tab.evaluate(f"document.dispatchEvent(new KeyboardEvent('keydown', {key}))")
        assert "Magnify" in tab.locator(".r-overlay-help").inner_text()
        content = tab.locator(".r-overlay-content")
        assert content.evaluate("box => box.scrollHeight <= box.clientHeight"), "the keys do not fit on one screen"


# ---- the builder says what is wrong with a deck, and where ----


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("![A plot](figures/01_tensors-none.png)", "01_tensors-none.png is missing.*tools.build"),
        ("![](figures/01_tensors-dot.png)", "alt text"),
        ("## B", "2 headings"),
        ("::: trap\nNever closed.", "never closed"),
        ("::: danger\nX\n:::", "::: danger.*trap"),
        (":::: columns 1 2\nOnly one.\n::::", "1 columns"),
        ("First.\n. . .\nSecond.", r"\. \. \. lacks an empty line"),
        ("```pyhton\nx\n```", "pyhton.*python"),
        ("```python skip\nx = 1\n```", "python skip.*hidden"),
        ("```output\n1\n```", "directly below"),
        ("```python\n1\n```\n\nBut\n\n```output\n1\n```", "directly below"),
        ("```python\n1\n```\n```text\n1\n```", "write ```output"),
    ],
)
def test_a_broken_slide_is_named(tmp_path, body, words):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "01_tensors-dot.png").write_bytes(PIXEL)
    with pytest.raises(CourseError, match=f"slide 2.*{words}"):
        slides.section(write_deck(tmp_path, f"## A\n\n{body}").slides[1])


def test_notes_and_minutes_are_asked_for(tmp_path):
    for notes in ("", "Notes: Say it."):
        with pytest.raises(CourseError, match=r"slide 1: it does not end with `Notes: 2 min"):
            write_deck(tmp_path, "## A", notes=notes)


def test_separators_inside_code_and_boxes_do_not_split(tmp_path):
    deck = write_deck(tmp_path, "## A\n\n```text\n---\nNotes: not these\n. . .\n\n:::\n## not a heading\n```\n\nEnd.")
    assert len(deck.slides) == 2
    section = slides.section(deck.slides[1])
    assert "Notes: not these" in section and "fragment" not in section and "<p>End.</p>" in section


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
        ("```python\nimport os\nos._exit(3)\n```", ["ended Python"]),
    ],
)
def test_code_that_does_not(tmp_path, body, words):
    found = slides_code.problems(write_deck(tmp_path, f"## A\n\n{body}"))
    assert len(found) == 1
    for word in words:
        assert word in found[0]


# ---- the browser's checks can fail ----

LONG = "\n".join(f"line{i} = {i}" for i in range(30))
BAD = [
    (f"## A\n\n```python\n{LONG}\n```", "too high"),
    ("## A\n\nFirst.\n\n. . .\n\n" + "\n\n".join(f"Paragraph {i}." for i in range(20)), "into the footer"),
    ('## A\n\n<p style="font-size: 14px">tiny</p>', "smaller than 20 px"),
    ('## A\n\n<pre style="font-size: 23px">x = 1</pre>', "code of only 23.0 px, it needs 24"),
    ('## A\n\nCall <code style="font-size: 21px">f(x)</code>.', "code of only 21.0 px, it needs 22"),
    ('## A\n\nFirst.\n\n. . .\n\n<p style="color: #999">pale</p>', "contrast of only 2.85"),
    ("## A\n\n$\\notacommand{x}$", "math is not rendered"),
    ('## A\n\n<p><img src="http://127.0.0.1:9/far.png" alt="far"></p>', "it fetches http://127.0.0.1:9/far.png"),
    ("## A\n\n<p>x</p><script>console.error('broken')</script>", "console: broken"),
    ("## A\n\n" + "Much text. " * 110 + "\n\n![A dot](figures/dot.png)", "a figure is only"),
    ("## A\n\n![A dot](figures/dot.png)", 'fewer than four words: "A dot"'),
    ('## A\n\n![The loss falls quickly](figures/dot.png "The loss falls, quickly.")', "only repeats caption"),
]


@pytest.fixture(scope="module")
def bad_page(tmp_path_factory, packages, chromium) -> list[str]:
    """What is found in a deck with all of these slides."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "figures").mkdir()
    (folder / "figures" / "dot.png").write_bytes(PIXEL)
    return slide_problems(chromium, write_page(folder, packages, *(body for body, _ in BAD)))


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
        "## Both\n\n:::: columns 3 2\n```python mark=1\nx\n```\n\n|||\n\n![A white dot, small](figures/dot.png)\n::::",
    )
    assert slide_problems(chromium, page) == []
    with open_deck(chromium, page, []) as tab:
        assert tab.locator(".katex").count() == 1
        assert tab.locator("figure img").get_attribute("alt") == "A white dot, small"
        assert tab.locator(".fragment .answer").count() == 1


def test_without_chromium_a_sentence_says_what_to_install(tmp_path, packages, monkeypatch):
    monkeypatch.setattr(slides_browser, "executable", lambda: None)
    with pytest.raises(CourseError, match="apt install chromium"):
        slides_pdf.build(["12"], tmp_path)
