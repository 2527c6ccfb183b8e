"""Open every page of the built site and follow every link: what is wrong comes back as sentences."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

OUTSIDE = re.compile(r"(https?:)?//")
NO_ADDRESS = re.compile(r"(data|mailto|javascript):")
CSS_ADDRESS = re.compile(r"""url\(\s*["']?(?!data:|#)([^"')]+)""")


class Page(HTMLParser):
    """What a page holds of interest."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str | None] = set()  # ids that a link may end with
        self.links: list[str] = []  # where a reader may go
        self.loads: list[str] = []  # what the browser fetches by itself
        self.without_alt: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attributes}
        self.places |= {given.get("id"), given.get("name")}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") != "canonical":  # that address is for search engines
            self.loads.append(given["href"])
        elif "src" in given:
            self.loads.append(given["src"])
        # Where there is no alt text, Sphinx writes the name of the file. The logo has its name beside it.
        alt = given.get("alt", "").strip()
        if tag == "img" and (not alt or alt.endswith((".png", ".svg"))) and "logo__image" not in given.get("class", ""):
            self.without_alt.append(given["src"])


def problems(site: Path) -> list[str]:
    """Broken links and anchors, fetches from outside, and pictures without alt text."""
    found = []
    # What lies in _static are pieces of the theme.
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}
    for path in pages:
        found += [f"{path.relative_to(site)}: {sentence}" for sentence in page_problems(site, path, pages)]
    for path in sorted(site.rglob("*.css")):
        for address in CSS_ADDRESS.findall(path.read_text(encoding="utf-8")):
            if OUTSIDE.match(address) or not (path.parent / urldefrag(address)[0].split("?")[0]).exists():
                found.append(f"{path.relative_to(site)}: it loads {address}, which is not on the site.")
    return found


def page_problems(site: Path, path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """What is wrong with one page."""
    page = pages[path]
    yield from (f"it loads {address} from outside." for address in page.loads if OUTSIDE.match(address))
    yield from (f"the picture {source[:80]} has no alt text." for source in page.without_alt)
    for address in dict.fromkeys([*page.links, *page.loads]):
        if OUTSIDE.match(address) or NO_ADDRESS.match(address):
            continue
        file, place = urldefrag(address)
        file = unquote(file.split("?")[0])
        target = (path.parent / file if file else path).resolve()
        if not target.is_file():
            yield f"the link {address} leads nowhere."
        # From a page of source code back to a name that is documented under another module: to its page is enough.
        elif "_modules" not in path.parts and place and target in pages and unquote(place) not in pages[target].places:
            yield f"the link {address} leads to a page that has no such place."
