"""What the site is made of, gathered into one folder that Sphinx reads.

Folders keep their names, so that a link from one notebook to another is as right here as it is in the repository. A
file is written only when its content changed: Sphinx then rebuilds only those pages.
"""

import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tools import course, release, slides
from tools.build import as_bytes, handed_out
from tools.course import ROOT, Chapter
from tools.site import api, notebook

THEME = Path(__file__).resolve().parent / "theme"
# The target of [text](target) and ![alt](target "title"), if it has no scheme and is not a place on the same page.
RELATIVE = re.compile(r"(?<=\]\()(?!\w+:|#|/)[^)\s#]+")


@dataclass
class Sources:
    """The files of the site, by path: what Sphinx reads, what is published as it is, style and script."""

    pages: dict[str, bytes] = field(default_factory=dict)
    extra: dict[str, bytes] = field(default_factory=dict)
    static: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)  # what the site has to do without, as sentences


def gather(root: Path = ROOT) -> Sources:
    """Everything but the docstrings, which Sphinx takes from the package itself."""
    sources = Sources()
    add_packages(sources)
    package = add_wheel(sources, root)
    chapters = [add_chapter(sources, chapter, package, root) for chapter in course.chapters(root)]
    guide = add_guide(sources, root)
    for path, text in api.pages(root / "src" / "torchcourse").items():
        sources.pages[f"api/{path}"] = text.encode()
    add_templates(sources, chapters, guide, root)
    return sources


def add_packages(sources: Sources) -> None:
    """The decks, and KaTeX for formulas: both are made of what npm fetches once."""
    try:
        packages = slides.fetch_packages()
        with tempfile.TemporaryDirectory() as folder:
            for path in slides.build(out=Path(folder)):
                sources.extra[f"slides/{path.name}"] = path.read_bytes()
    except slides.SlidesError as error:
        sources.missing.append(f"The site goes without slides, and formulas stay as they are written. {error}")
        return
    katex = packages / "katex" / "dist"
    sources.static["katex.css"] = slides.katex_css(katex).encode()
    sources.static["katex.js"] = (katex / "katex.min.js").read_bytes()


def add_wheel(sources: Sources, root: Path) -> str:
    """The wheel that downloaded notebooks install, published beside them; returns its address with its hash."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = release.build_wheel(Path(folder), root)
        sources.extra[f"files/{wheel.name}"] = wheel.read_bytes()
        pages = home(root)
        return release.published(wheel, root) if pages == "/" else release.address(wheel, f"{pages}files")


def add_chapter(sources: Sources, chapter: Chapter, package: str, root: Path) -> dict:
    """Lecture, if there is one, and lab of a chapter as pages and as files; returns what the course map says."""
    deck = f"slides/{chapter.name}.html"
    badges: dict[str, str | None] = {"lecture": None}
    for kind, folder in chapter.published.items():
        path = f"{folder}/{chapter.name}.ipynb"
        original = handed_out(chapter, kind, root)
        page = notebook.page(original, chapter, kind, has_slides=deck in sources.extra)
        sources.pages[path] = nbformat.writes(page).encode()
        sources.extra[f"files/{path}"] = as_bytes(release.released(original, package))
        badges[kind] = notebook.colab(original)
    return {"chapter": chapter, "badges": badges, "deck": deck if deck in sources.extra else None}


def add_guide(sources: Sources, root: Path) -> list[str]:
    """Every page in docs/, and how to run a hub; returns their names, the one for teachers first."""
    for path in sorted((root / "docs").iterdir()):
        if path.is_file() and path.suffix != ".md":
            sources.pages[f"docs/{path.name}"] = path.read_bytes()
    pages = sorted((root / "docs").glob("*.md"), key=lambda path: (path.stem != "teaching", path.stem))
    pages += [path for path in [root / "hub" / "README.md"] if path.exists()]
    names = [str(path.relative_to(root)) for path in pages]
    for path, name in zip(pages, names, strict=True):
        text = path.read_text(encoding="utf-8")
        sources.pages[name] = outward(text, path, {*sources.pages, *names}, root).encode()
    return [name.removesuffix(".md") for name in names]


def outward(text: str, path: Path, on_site: set[str], root: Path) -> str:
    """Links to files of the repository that are not on the site lead to the repository; the others stay."""

    def target(match: re.Match) -> str:
        file = (path.parent / match[0]).resolve()
        if not file.is_relative_to(root) or not file.exists():
            return match[0]  # Sphinx will say that it leads nowhere
        name = str(file.relative_to(root))
        return match[0] if name in on_site else api.address_of(name, root)

    return RELATIVE.sub(target, text)


def add_templates(sources: Sources, chapters: list[dict], guide: list[str], root: Path) -> None:
    """The pages that are written here: the landing page, the list of decks, and the page for wrong addresses."""
    pictures = [name for name in ("bench", "lab") if (root / "docs" / f"{name}.png").is_file()]
    sources.static |= {f"{name}.png": (root / "docs" / f"{name}.png").read_bytes() for name in pictures}
    environment = Environment(
        loader=FileSystemLoader(THEME), undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals = {
        "title": course.manifest(root)["title"],
        "repository": course.address(root).removesuffix(".git"),
        "home": home(root),
        "chapters": chapters,
        "guide": guide,
        "missing": sources.missing,
        "pictures": pictures,
    }
    sources.pages["index.md"] = environment.get_template("index.md").render().encode()
    sources.pages["slides/index.md"] = environment.get_template("slides.md").render().encode()
    sources.extra["404.html"] = environment.get_template("404.html").render().encode()


def home(root: Path = ROOT) -> str:
    """Where GitHub Pages will show the site: https://owner.github.io/repository/. Elsewhere "/"."""
    parts = urlsplit(course.address(root).removesuffix(".git"))
    owner, _, name = parts.path.strip("/").partition("/")
    return f"https://{owner}.github.io/{name}/" if parts.netloc == "github.com" and name else "/"


def write(files: dict[str, bytes], folder: Path) -> bool:
    """Make `folder` hold exactly these files, touching none that is right; returns whether one had to go."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    superfluous = [p for p in folder.rglob("*") if p.is_file() and str(p.relative_to(folder)) not in files]
    for path in superfluous:
        path.unlink()
    return bool(superfluous)


def forget(*folders: Path) -> None:
    """Remove what an earlier build left."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
