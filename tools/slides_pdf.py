"""Slides as PDF: each deck twice, for a projector without a browser and for the hands of the speaker.

    python -m tools.slides_pdf             every deck, into build/slides, with the pages of `python -m tools.slides`
    python -m tools.slides_pdf 01          one deck (number or full name)

NN_slug.pdf has a page of 1280 x 720 for each slide, with everything on it that key presses would bring.
NN_slug-notes.pdf has an A4 page for each slide: the slide, then its minutes, when it begins, and its notes.
Text stays text, headings are bookmarks, figures keep their alt text. The index page leads to both.
"""

import argparse
import html
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pypdf import PdfWriter

from tools import course, slides, slides_browser
from tools.course import ROOT
from tools.slides import Deck, Renderer
from tools.slides_theme import THEME, SlidesError

FIT_NOTES = (THEME / "fit_notes.js").read_text(encoding="utf-8")
# Kind of PDF, which is a class in sheets.css -> size of its page.
SIZES = {"slides": {"width": "1280px", "height": "720px"}, "handout": {"width": "210mm", "height": "297mm"}}


def build_sheets(deck: Deck, packages: Path) -> str:
    """The page that is printed, once as slides and once as handout."""
    renderer = Renderer(deck)
    printed = "\n".join(sheet(renderer, deck, number) for number in range(1, len(deck.slides) + 1))
    values = {
        "title": html.escape(f"{deck.number} {deck.title}"),
        "styles": slides.styles(packages, renderer.has_math, THEME / "theme.css", THEME / "sheets.css"),
        "sheets": printed,
        "scripts": slides.script(*slides.math_scripts(packages, renderer.has_math)),
    }
    return slides.fill("print.html", values)


def sheet(renderer: Renderer, deck: Deck, number: int) -> str:
    """One slide with what the handout adds: its place in the lecture, and its notes."""
    slide, lecture = deck.slides[number - 1], deck.chapter.lecture_minutes
    begin, share = 100 * deck.begin(slide) / lecture, 100 * (slide.minutes or 0) / lecture
    words = (course.manifest()["title"], f"{deck.number} {deck.chapter.title} · {lecture} min lecture")
    header = "".join(f"<span>{html.escape(word)}</span>" for word in words)
    pace = f'<span style="margin-left: {begin:.2f}%; width: {share:.2f}%"></span>'
    return (
        f'<section class="sheet"><header>{header}</header><div class="frame">{renderer.picture(slide)}</div>'
        f'<div class="speech"><div class="pace">{pace}</div>'
        f'<p class="clock">{renderer.clock(slide)}</p><div class="notes">{renderer.notes(slide)}</div></div></section>'
    )


@contextmanager
def sheets(deck: Deck, packages: Path, chromium) -> Iterator:
    """A tab (Playwright's Page) with the sheets of a deck, as they are printed."""
    with tempfile.TemporaryDirectory() as work:
        page = Path(work) / "sheets.html"
        page.write_text(build_sheets(deck, packages), encoding="utf-8")
        tab = chromium.new_page()
        try:
            tab.emulate_media(media="print")
            tab.goto(page.as_uri())
            tab.evaluate("async () => { await document.fonts.ready }")
            yield tab
        finally:
            tab.close()


def lay_out(tab, deck: Deck, kind: str) -> None:
    """Make the sheets those of one kind of PDF. Raises SlidesError where notes do not fit on their page."""
    tab.evaluate("kind => { document.body.className = `reveal ${kind}` }", kind)
    if kind == "handout" and (long := tab.evaluate(FIT_NOTES)):
        raise deck.error(long[0], "its notes do not fit on a page of the handout. Shorten them.")


def print_deck(deck: Deck, packages: Path, chromium, out: Path) -> list[Path]:
    """Write both PDFs of a deck; returns their paths. Raises SlidesError where notes do not fit on their page."""
    paths = list(slides.pdfs(deck, out))
    with sheets(deck, packages, chromium) as tab:
        for path, (kind, size) in zip(paths, SIZES.items(), strict=True):
            lay_out(tab, deck, kind)
            tab.pdf(path=path, **size, print_background=True, tagged=True)
            describe(path, deck, kind)
    return paths


def describe(path: Path, deck: Deck, kind: str) -> None:
    """Title, author, subject and bookmarks of a PDF. Chromium's own bookmarks lose the space where a line ends."""
    writer = PdfWriter(path, incremental=True)  # added at the end; what Chromium wrote stays as it is
    title = f"{deck.number} {deck.chapter.title}" + (" (with notes)" if kind == "handout" else "")
    author = course.manifest()["title"]
    writer.add_metadata({"/Title": title, "/Author": author, "/Subject": deck.chapter.promise})
    for index, heading in enumerate(headings(deck)):
        writer.add_outline_item(title=heading, page_number=index)
    writer.write(path)


def headings(deck: Deck) -> list[str]:
    """The headings of all slides as plain text."""
    markdown = Renderer(deck).md
    return [html.unescape(re.sub(r"<.*?>", "", markdown.renderInline(slide.title))) for slide in deck.slides]


def build(names: Sequence[str] = (), out: Path = ROOT / "build" / "slides", folder: Path = slides.SLIDES) -> list[Path]:
    """Build decks (all of them, or those named) as pages and as PDFs, and the index page; returns the PDFs.

    names, out and folder are those of tools.slides.build. Raises SlidesError with a sentence.
    """
    slides.build(names, out, folder)
    packages = slides.fetch_packages()
    with slides_browser.browser() as chromium:
        decks = slides.find_decks(names, folder)
        paths = [path for deck in decks for path in print_deck(deck, packages, chromium, out)]
    slides.write_index(out, folder)
    return paths


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.slides_pdf", description="Write the slide decks as PDF.")
    parser.add_argument(
        "chapters", nargs="*", metavar="CHAPTER", help="number or name, as 01 or 01_tensors (default: all)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "slides", help="folder of the PDFs (build/slides)")
    arguments = parser.parse_args(argv)
    try:
        paths = build(arguments.chapters, arguments.out)
    except SlidesError as error:
        print(error, file=sys.stderr)
        return 1
    for path in paths:
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
