"""Open every page of the built site and follow every link: what is wrong comes back as sentences."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

OUTSIDE = re.compile(r"(https?:)?//")
NO_ADDRESS = re.compile(r"(data|mailto|javascript):")
LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
CSS_ADDRESS = re.compile(r"""url\(\s*["']?(?!data:|#)([^"')]+)""")


@dataclass
class Page:
    """What a page holds of interest."""

    places: set[str] = field(default_factory=set)  # ids that a link may end with
    links: list[str] = field(default_factory=list)  # where a reader may go
    loads: list[str] = field(default_factory=list)  # what the browser fetches by itself
    headings: list[int] = field(default_factory=list)
    without_alt: list[str] = field(default_factory=list)


class Reader(HTMLParser):
    """Reads one page."""

    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        page, given = self.page, dict(attributes)
        page.places |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag in ("a", "area") and given.get("href"):
            page.links.append(given["href"])
        elif tag == "link" and given.get("href"):
            # The canonical address is for search engines; no page fetches it.
            (page.links if "canonical" in (given.get("rel") or "") else page.loads).append(given["href"])
        elif tag in LOADED and given.get(LOADED[tag]):
            page.loads.append(given[LOADED[tag]])
        if tag == "img" and not has_words(given) and "logo__image" not in (given.get("class") or ""):
            page.without_alt.append((given.get("src") or "")[:80])
        if re.fullmatch("h[1-6]", tag):
            page.headings.append(int(tag[1]))


def has_words(image: dict[str, str | None]) -> bool:
    """Does a picture have alt text? Where there is none, Sphinx writes the name of the file."""
    alt = (image.get("alt") or "").strip()
    return bool(alt) and not alt.endswith((".png", ".svg", ".jpg"))


def read(path: Path) -> Page:
    """One page."""
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page


def read_all(site: Path) -> dict[Path, Page]:
    """Every page of the site; what lies in _static are pieces of the theme."""
    return {path: read(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}


def problems(site: Path, pages: dict[Path, Page]) -> list[str]:
    """Broken links and anchors, fetches from outside, pictures without alt text, headings that skip a level."""
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: {sentence}" for sentence in page_problems(site, path, page, pages)]
    for path in sorted(site.rglob("*.css")):
        for address in CSS_ADDRESS.findall(path.read_text(encoding="utf-8")):
            if OUTSIDE.match(address) or not (path.parent / urldefrag(address)[0].split("?")[0]).exists():
                found.append(f"{path.relative_to(site)}: it loads {address}, which is not on the site.")
    return found


def page_problems(site: Path, path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    """What is wrong with one page."""
    for address in dict.fromkeys(page.loads):
        if OUTSIDE.match(address):
            yield f"it loads {address} from outside."
    for address in dict.fromkeys([*page.links, *page.loads]):
        if OUTSIDE.match(address) or NO_ADDRESS.match(address):
            continue
        file, place = urldefrag(address)
        file = unquote(file.split("?")[0])
        target = site / file.lstrip("/") if file.startswith("/") else path.parent / file if file else path
        target = target.resolve()
        if target.is_dir():
            target /= "index.html"
        if not target.is_file():
            yield f"the link {address} leads nowhere."
        elif place and target in pages and unquote(place) not in pages[target].places:
            yield f"the link {address} leads to a page that has no such place."
    for source in page.without_alt:
        yield f"the picture {source} has no alt text."
    for before, heading in zip(page.headings, page.headings[1:], strict=False):
        if heading > before + 1:
            yield f"a heading of level {heading} follows one of level {before}."


def outside(pages: dict[Path, Page]) -> list[str]:
    """Every address outside the site that a page links to."""
    return sorted({link for page in pages.values() for link in page.links if OUTSIDE.match(link)})
