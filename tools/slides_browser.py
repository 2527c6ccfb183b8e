"""Look at built decks in headless Chromium: does a slide overflow, is text too small, does a page fetch anything?"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchcourse.errors import CourseError

# Started as root (containers, CI) Chromium needs --no-sandbox; the others keep it from calling home.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ARGUMENTS += ["--disable-component-update", "--disable-sync", "--hide-scrollbars"]

PATIENCE = 150_000  # milliseconds that the browser has for one thing: the machine may be busy

# Runs in the page, for one slide.
MEASURE = Path(__file__).with_name("slides_theme").joinpath("measure.js").read_text(encoding="utf-8")


def executable() -> str | None:
    """Chromium or Chrome on this machine, None where there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


@contextmanager
def browser() -> Iterator:
    """A headless Chromium (Playwright's Browser). Raises CourseError where a part is missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise CourseError("Looking at slides needs Playwright: pip install playwright.") from None
    if (path := executable()) is None:
        raise CourseError("Looking at slides needs Chromium or Chrome on the PATH (Debian: apt install chromium).")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield chromium
        finally:
            chromium.close()


def watch(context, complaints: list[str]) -> None:
    """Add to `complaints` what the pages of a context fetch from elsewhere, do not find, or complain about."""
    outside = re.compile(r"(?!file:|data:|about:|blob:)")
    gone = "net::ERR_ABORTED"  # the tab went on to another page
    context.on("request", lambda r: complaints.append(f"it fetches {r.url}") if outside.match(r.url) else None)
    context.on("requestfailed", lambda r: complaints.append(f"no {r.url[:80]}") if r.failure != gone else None)
    context.on("console", lambda m: complaints.append(f"console: {m.text}") if m.type in ("error", "warning") else None)
    context.on("weberror", lambda e: complaints.append(f"script error: {e.error}"))


@contextmanager
def open_deck(chromium, page: Path, complaints: list[str]) -> Iterator:
    """A tab (Playwright's Page) with the deck; requests to the outside and errors are added to `complaints`."""
    with chromium.new_context(viewport={"width": 1280, "height": 720}) as context:
        context.set_default_timeout(PATIENCE)
        watch(context, complaints)
        tab = context.new_page()
        tab.goto(page.resolve().as_uri())
        tab.wait_for_function("window.Reveal && Reveal.isReady() && document.fonts.status === 'loaded'")
        yield tab


def slide_problems(chromium, page: Path) -> list[str]:
    """Overflow, small text, missing alt text, math left as TeX, requests and console errors of a deck, as sentences."""
    found: list[str] = []
    complaints: list[str] = []
    with open_deck(chromium, page, complaints) as tab:
        for index in range(tab.evaluate("Reveal.getTotalSlides()")):
            tab.evaluate(f"Reveal.slide({index})")
            found += [f"{page.name}, slide {index + 1}: {words}" for words in tab.evaluate(MEASURE)]
    return found + [f"{page.name}: {words}" for words in dict.fromkeys(complaints)]
