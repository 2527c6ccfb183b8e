"""Slides as PDF: each deck twice, for a projector without a browser and for the hands of the speaker.

    python -m tools.slides_pdf             every deck, into build/slides, with the pages of `python -m tools.slides`
    python -m tools.slides_pdf 01          one deck (number or name)

NN_slug.pdf has a page of 1280 x 720 for each slide, with everything on it that key presses would bring.
NN_slug-notes.pdf has an A4 page for each slide: the slide, then its minutes, when it begins, and its notes.
Text stays text, headings are bookmarks, figures keep their alt text. The index page leads to both.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

from pypdf import PdfWriter

from tools import slides, slides_browser
from tools.slides import MARKDOWN, OUT, THEME, Deck
from torchcourse.errors import CourseError

FIT_NOTES = (THEME / "fit_notes.js").read_text(encoding="utf-8")
# What is added to the name of a deck -> its words on the index page, the class of its pages in sheets.css, their size.
KINDS = {
    ".pdf": ("PDF", "slides", {"width": "1280px", "height": "720px"}),
    "-notes.pdf": ("PDF with notes", "handout", {"width": "210mm", "height": "297mm"}),
}


@contextmanager
def sheets(deck: Deck, packages: Path, chromium) -> Iterator:
    """A tab (Playwright's Page) with all slides of a deck and their notes, as they are printed."""
    with tempfile.TemporaryDirectory() as work, chromium.new_context() as context:
        page = Path(work) / "sheets.html"
        styles = [THEME / "theme.css", THEME / "sheets.css"]
        page.write_text(slides.page("print.html", deck, packages, styles, []), encoding="utf-8")
        tab = context.new_page()
        tab.emulate_media(media="print")
        tab.goto(page.as_uri())
        tab.evaluate("async () => { await document.fonts.ready }")
        yield tab


def lay_out(tab, deck: Deck, kind: str) -> None:
    """Make the sheets those of one kind of PDF. Raises CourseError where notes do not fit on their page."""
    tab.evaluate("kind => { document.body.className = `reveal ${kind}` }", kind)
    if kind == "handout" and (long := tab.evaluate(FIT_NOTES)):
        raise deck.error(long[0], "its notes do not fit on a page of the handout. Shorten them.")


def print_deck(deck: Deck, packages: Path, chromium, out: Path) -> list[Path]:
    """Write both PDFs of a deck; returns their paths. Raises CourseError where notes do not fit on their page."""
    paths = [out / f"{deck.chapter.name}{ending}" for ending in KINDS]
    with sheets(deck, packages, chromium) as tab:
        for path, (_, kind, size) in zip(paths, KINDS.values(), strict=True):
            lay_out(tab, deck, kind)
            tab.pdf(path=path, **size, print_background=True, tagged=True)
            add_bookmarks(path, deck)
    return paths


def add_bookmarks(path: Path, deck: Deck) -> None:
    """The headings as bookmarks. Chromium's own lose the space where a line ends."""
    writer = PdfWriter(path, incremental=True)  # added at the end; what Chromium wrote stays as it is
    for slide in deck.slides:
        heading = unescape(re.sub(r"<.*?>", "", MARKDOWN.renderInline(slide.title)))
        writer.add_outline_item(title=heading, page_number=slide.number - 1)
    writer.write(path)


def build(names: list[str], out: Path = OUT) -> None:
    """Build decks (all of them, or those named) as pages and as PDFs, and the index page. Raises CourseError."""
    slides.build(names, out)
    with slides_browser.browser() as chromium:
        for deck in slides.find_decks(names):
            print(*print_deck(deck, slides.fetch_packages(), chromium, out), sep="\n")
    decks = slides.find_decks()
    pdfs = {f"{deck.chapter.name}{ending}": words for deck in decks for ending, (words, *_) in KINDS.items()}
    index = slides.build_index(decks, {name: words for name, words in pdfs.items() if (out / name).exists()})
    (out / "index.html").write_text(index, encoding="utf-8")


if __name__ == "__main__":
    try:
        build(sys.argv[1:])
    except CourseError as error:
        sys.exit(str(error))
