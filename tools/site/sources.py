"""What the site is made of, gathered into one folder that Sphinx reads.

Folders keep their names, so that a link from one notebook to another is as right here as it is in the repository.
"""

import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tools import course, guide, release
from tools.build import as_bytes, handed_out
from tools.course import LAYERS, ROOT, Chapter, home
from tools.site import notebook

THEME = Path(__file__).resolve().parent / "theme"
# The target of [text](target) and ![alt](target "title"), if it has no scheme and is not a place on the same page.
RELATIVE = re.compile(r"(?<=\]\()(?!\w+:|#|/)[^)\s#]+")


@dataclass
class Sources:
    """The files of the site, by path: what Sphinx reads, and what is published as it is."""

    pages: dict[str, bytes] = field(default_factory=dict)
    extra: dict[str, bytes] = field(default_factory=dict)


def gather(root: Path = ROOT) -> Sources:
    """Everything but the decks, and the docstrings, which Sphinx takes from the package itself."""
    sources = Sources()
    package = add_wheel(sources, root)
    chapters = [add_chapter(sources, chapter, package, root) for chapter in course.chapters(root)]
    add_templates(sources, chapters, add_guide(sources, root), root)
    return sources


def add_wheel(sources: Sources, root: Path) -> str:
    """The wheel that downloaded notebooks install, published beside them; returns its address with its hash."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = release.build_wheel(Path(folder), root)
        sources.extra[f"files/{wheel.name}"] = wheel.read_bytes()
        pages = home(root)
        return release.published(wheel, root) if pages == "/" else release.address(wheel, f"{pages}files")


def add_chapter(sources: Sources, chapter: Chapter, package: str, root: Path) -> dict:
    """Lecture, if there is one, and lab of a chapter as pages and as files; returns what the course map says."""
    badges = {"lecture": ""}
    for kind, folder in chapter.published.items():
        path = f"{folder}/{chapter.name}.ipynb"
        original = handed_out(chapter, kind, root)
        sources.pages[path] = nbformat.writes(notebook.page(original, chapter, kind)).encode()
        sources.extra[f"files/{path}"] = as_bytes(release.released(original, package))
        badges[kind] = guide.on_colab(path, root)
    return {"chapter": chapter, "badges": badges}


def add_guide(sources: Sources, root: Path) -> list[str]:
    """Every page in docs/, and how to run a hub; returns their names, the one for teachers first."""
    for path in (root / "docs").glob("*.png"):
        sources.pages[f"docs/{path.name}"] = path.read_bytes()
    pages = sorted((root / "docs").glob("*.md"), key=lambda path: (path.stem != "teaching", path.stem))
    names = {str(path.relative_to(root)): path for path in [*pages, root / "hub" / "README.md"]}
    for name, path in names.items():
        text = path.read_text(encoding="utf-8")
        sources.pages[name] = outward(text, path, {*sources.pages, *names}, root).encode()
    return [name.removesuffix(".md") for name in names]


def outward(text: str, path: Path, on_site: set[str], root: Path) -> str:
    """Links to files of the repository that are not on the site lead to the repository; the others stay."""
    kinds = f"{course.address(root).removesuffix('.git')}/{{}}/{os.environ.get('GITHUB_SHA', 'main')}"

    def target(match: re.Match) -> str:
        file = (path.parent / match[0]).resolve()
        if not file.is_relative_to(root) or not file.exists():
            return match[0]  # Sphinx will say that it leads nowhere
        name = str(file.relative_to(root))
        return match[0] if name in on_site else f"{kinds.format('tree' if file.is_dir() else 'blob')}/{name}"

    return RELATIVE.sub(target, text)


def add_templates(sources: Sources, chapters: list[dict], guide: list[str], root: Path) -> None:
    """The pages that are written here: landing page, list of decks, page for wrong addresses, reference."""
    environment = Environment(
        loader=FileSystemLoader(THEME), undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals = {
        "title": course.manifest(root)["title"],
        "repository": course.address(root).removesuffix(".git"),
        "home": home(root),
        "chapters": chapters,
        "guide": guide,
        "layers": LAYERS,
    }
    sources.extra["404.html"] = environment.get_template("404.html").render().encode()
    for template, name in {"index.md": "index.md", "slides.md": "slides/index.md", "api.rst": "api/index.rst"}.items():
        sources.pages[name] = environment.get_template(template).render().encode()
    for name in " ".join(LAYERS.values()).split():
        folder = root / "src" / "torchcourse" / name
        # A package that lists no names of its own (`__all__`) is what its modules are: they follow it.
        whole = folder.is_dir() and "__all__" not in (folder / "__init__.py").read_text(encoding="utf-8")
        modules = [name, *(f"{name}.{path.stem}" for path in sorted(folder.glob("[!_]*.py")) if whole)]
        sources.pages[f"api/{name}.rst"] = environment.get_template("module.rst").render(modules=modules).encode()
