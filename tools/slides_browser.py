"""Headless Chromium, which prints decks and looks at pages."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from torchcourse.errors import CourseError

# Started as root (containers, CI) Chromium needs --no-sandbox; the others keep it from calling home.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ARGUMENTS += ["--disable-component-update", "--disable-sync", "--hide-scrollbars"]

PATIENCE = 150_000  # milliseconds that the browser has for one thing: the machine may be busy


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
