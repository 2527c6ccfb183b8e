"""Slides: one Markdown file per chapter becomes one HTML file that opens by double click, without any network.

    python -m tools.slides                       every deck, and an index page, into build/slides
    python -m tools.slides 01                    one deck (number or name)
    pytest tests/test_slides.py -k 01            run its code, and look for overflow in Chromium
    python -m tools.slides_pdf                   the same decks as PDF, without and with notes

reveal.js and KaTeX come from npm at build time (slides_theme/package.json), are kept in build/npm, and are written into
each page together with the figures: a deck is a single file that can be carried on a stick.

docs/slides.md says how a deck is written. What cannot be read is named with its slide.
"""

import base64
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from mdit_py_plugins.container import container_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from tools import course, npm
from tools.course import ROOT, Chapter
from torchcourse.errors import CourseError

SLIDES = ROOT / "slides"
OUT = ROOT / "build" / "slides"
THEME = Path(__file__).with_name("slides_theme")
LANGUAGES = ("python", "bash", "text", "output")
CLASSES = ("question", "dense")
BOXES = {"trap": "Trap", "note": "Note", "answer": "Answer"}
SEPARATORS = (". . .", "|||")  # before a pause, between columns: each a paragraph of its own
# On the foot of the title slide. reveal.js shows all of its keys at `?`.
KEYS = {"f": "full screen", "s": "speaker view", "o": "overview", "ctrl shift f": "search", "?": "all keys"}


# -------------------------------------------------------------------------------------------------------------- reading


@dataclass
class Code:
    """One fenced block of Python, with what it should print or raise."""

    source: str
    slide: int
    raises: str | None = None
    output: str | None = None


@dataclass
class Slide:
    """One slide."""

    deck: "Deck"
    number: int
    title: str
    level: int
    classes: list[str]
    body: list[SyntaxTreeNode]
    notes: str  # Markdown, without the minutes
    begin: float  # minute of the lecture, if all slides before it took what their notes say
    minutes: float

    def error(self, sentence: str) -> CourseError:
        return self.deck.error(self.number, sentence)


@dataclass
class Deck:
    """One deck: slides/NN_slug.md, and its chapter in course.toml."""

    path: Path
    chapter: Chapter
    slides: list[Slide] = field(default_factory=list)
    code: list[Code] = field(default_factory=list)  # every Python block, from top to bottom

    @property
    def minutes(self) -> float:
        return sum(slide.minutes for slide in self.slides)

    def error(self, slide: int, sentence: str) -> CourseError:
        """An error that says where."""
        return CourseError(f"slides/{self.path.name}, slide {slide}: {sentence}")


def mark(node: SyntaxTreeNode) -> str:
    """What a paragraph says; of other blocks, their kind."""
    return node.children[0].content if node.type == "paragraph" else node.type


def split(nodes: Sequence[SyntaxTreeNode], separator: str) -> list[list[SyntaxTreeNode]]:
    """The blocks between those that are a separator."""
    parts: list[list[SyntaxTreeNode]] = [[]]
    for node in nodes:
        if mark(node) == separator:
            parts.append([])
        else:
            parts[-1].append(node)
    return parts


def read_deck(chapter: Chapter, folder: Path = SLIDES) -> Deck:
    """Read slides/NN_slug.md. Raises CourseError with the slide's number where the format is broken."""
    deck = Deck(folder / f"{chapter.name}.md", chapter)
    text = deck.path.read_text(encoding="utf-8")
    for nodes in split(SyntaxTreeNode(MARKDOWN.parse(text)).children, "hr"):
        deck.slides.append(read_slide(deck, nodes, text.splitlines()))
        deck.code += python_blocks(deck.slides[-1])
    return deck


def read_slide(deck: Deck, nodes: list[SyntaxTreeNode], lines: list[str]) -> Slide:
    """Take one slide apart: heading with classes, body, notes with minutes."""
    number = len(deck.slides) + 1
    at = next((i for i, node in enumerate(nodes) if mark(node).startswith("Notes:")), len(nodes))
    notes = "\n".join(lines[nodes[at].map[0] : nodes[-1].map[1]]) if at < len(nodes) else ""
    minutes = re.match(r"Notes: (\d+(?:\.\d+)?) min\b[.:,]?\s*", notes)
    if not minutes:
        raise deck.error(number, "it does not end with `Notes: 2 min. What to say.`, or a block in it is never closed.")
    body = [node for node in nodes[:at] if node.tag not in ("h1", "h2")]
    headings = [node for node in nodes[:at] if node.tag in ("h1", "h2")]
    if len(headings) != 1:
        raise deck.error(number, f"it has {len(headings)} headings; a slide has exactly one, `## Heading`.")
    title, given = re.fullmatch(r"(.*?)(?: *\{([^}]*)\})?", headings[0].children[0].content).groups()
    classes = [name.lstrip(".") for name in (given or "").split()]
    if unknown := set(classes) - set(CLASSES):
        raise deck.error(number, f"unknown heading class {', '.join(sorted(unknown))}; there are {', '.join(CLASSES)}.")
    level = int(headings[0].tag[1])
    if number == 1 and level == 2:
        raise deck.error(1, "the first slide carries the title: start it with `# Title`.")
    return Slide(deck, number, title, level, classes, body, notes[minutes.end() :], deck.minutes, float(minutes[1]))


def fence_options(slide: Slide, info: str) -> tuple[str, dict[str, str]]:
    """'python raises=TypeError hidden' -> ('python', {'raises': 'TypeError', 'hidden': ''})."""
    language, *rest = info.split() or ["text"]
    options = dict(option.partition("=")[::2] for option in rest)
    known = ("raises", "hidden", "mark") if language == "python" else ()
    if language not in LANGUAGES or not options.keys() <= set(known):
        raise slide.error(
            f"nobody knows how to read ```{info}; there are {', '.join(LANGUAGES)}, and for python {known}."
        )
    return language, options


def python_blocks(slide: Slide) -> list[Code]:
    """The Python blocks of a slide, each with the output directly below it, perhaps after a pause."""
    blocks: list[Code] = []
    before = ""  # the language of the fence before; any text in between resets it
    for node in (node for block in slide.body for node in block.walk()):
        if node.type == "paragraph" and mark(node) not in SEPARATORS:
            before = ""
            if stray := [line for line in mark(node).splitlines() if line in SEPARATORS or line.startswith(":::")]:
                raise slide.error(f"{stray[0]} lacks an empty line around it, or is no box ({', '.join(BOXES)}).")
        if node.type != "fence":
            continue
        language, options = fence_options(slide, node.info)
        if language == "python":
            blocks.append(Code(node.content, slide.number, options.get("raises")))
        elif language == "output" and before == "python":
            blocks[-1].output = node.content
        elif language == "output":
            raise slide.error("an ```output block must be directly below its ```python block.")
        elif language == "text" and before == "python":
            raise slide.error("a ```text block below ```python is not compared: write ```output.")
        before = language
    return blocks


# ------------------------------------------------------------------------------------------------------------ rendering


def flow(slide: Slide, nodes: Sequence[SyntaxTreeNode]) -> str:
    """Blocks as HTML. What follows a pause is a fragment, which reveal.js shows at the next key."""
    first, *later = ("".join(block(slide, node) for node in part) for part in split(nodes, ". . ."))
    return first + "".join(f'<div class="fragment">{part}</div>' for part in later)


def block(slide: Slide, node: SyntaxTreeNode) -> str:
    """One block as HTML. A paragraph that is one image becomes a figure."""
    if node.type.startswith("container"):
        return box(slide, node)
    if mark(node) == "{{chapters}}":
        return chapters()
    tokens = node.to_tokens()
    if node.type == "paragraph" and [child.type for child in node.children[0].children] == ["image"]:
        tokens[0].tag = tokens[-1].tag = "figure"
    return MARKDOWN.renderer.render(tokens, MARKDOWN.options, {"slide": slide})


def box(slide: Slide, node: SyntaxTreeNode) -> str:
    """Columns, or a colored box."""
    kind, *rest = node.info.split()
    if kind != "columns":
        word = escape(" ".join(rest) or BOXES[kind])
        return f'<div class="box {kind}"><p class="word">{word}</p>{flow(slide, node.children)}</div>'
    parts = split(node.children, "|||")
    shares = rest or ["1"] * len(parts)
    if len(shares) != len(parts):
        raise slide.error(f"::::{node.info} has {len(parts)} columns (separated by |||): give a width each.")
    cells = "".join(f'<div class="column">{flow(slide, part)}</div>' for part in parts)
    widths = " ".join(f"minmax(0, {share}fr)" for share in shares)
    return f'<div class="columns" style="grid-template-columns: {widths}">{cells}</div>'


def chapters() -> str:
    """The chapters of the course with their minutes."""
    items = (
        f"<li><b>{chapter.number}</b> <span>{escape(chapter.title)}</span> <span>{chapter.minutes} min</span></li>"
        for chapter in course.chapters()
    )
    return f'<ol class="chapters">{"".join(items)}</ol>'


def fence(token: Token, slide: Slide) -> str:
    """A fenced block as HTML."""
    language, options = fence_options(slide, token.info)
    if "hidden" in options:
        return ""
    if language == "output":
        return f'<pre class="output">{escape(token.content.rstrip())}</pre>\n'
    formatter = HtmlFormatter(nowrap=True, hl_lines=options.get("mark", "").split(","))
    code = highlight(token.content, get_lexer_by_name(language), formatter).rstrip("\n")
    return f'<pre class="code {language}"><code>{code}</code></pre>\n'


def image(token: Token, slide: Slide) -> str:
    """A picture with its caption, both written into the page."""
    source, alt = token.attrs["src"], token.content.strip()
    if not alt:
        raise slide.error(f"the image {source} has no alt text: ![what it shows]({source}).")
    path = slide.deck.path.parent / source
    if not path.is_file():
        raise slide.error(
            f"the figure slides/{source} is missing. Figures come out of the notebook: give plots.show(...) the "
            f"name and run `python -m tools.build {slide.deck.chapter.name}`."
        )
    if path.suffix == ".svg":
        drawing = f'<svg class="drawing" role="img" aria-label="{escape(alt)}"'
        picture = path.read_text(encoding="utf-8").strip().replace("<svg", drawing, 1)
    else:
        data = base64.b64encode(path.read_bytes()).decode()
        picture = f'<img alt="{escape(alt)}" src="data:image/{path.suffix[1:]};base64,{data}">'
    caption = token.attrs.get("title")
    return picture + (f"<figcaption>{MARKDOWN.renderInline(caption)}</figcaption>" if caption else "")


def math(tex: str, options: dict) -> str:
    return f'<span class="math {"display" if options["display_mode"] else "inline"}">{escape(tex)}</span>'


MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
MARKDOWN.use(dollarmath_plugin, allow_digits=False, double_inline=True, allow_labels=False, renderer=math)
for name in ("columns", *BOXES):
    MARKDOWN.use(container_plugin, name)
MARKDOWN.add_render_rule("fence", lambda _, tokens, i, options, env: fence(tokens[i], env["slide"]))
MARKDOWN.add_render_rule("image", lambda _, tokens, i, options, env: image(tokens[i], env["slide"]))


def section(slide: Slide) -> str:
    """The <section> of one slide. reveal.js counts down its data-timing in the speaker view."""
    deck, chapter = slide.deck, slide.deck.chapter
    body, notes = flow(slide, slide.body), MARKDOWN.render(slide.notes, {"slide": slide})
    if slide.number == 1:
        minutes = f"{chapter.lecture_minutes} min lecture, {chapter.lab_minutes} min lab"
        body += f'<p class="facts">{escape(course.manifest()["title"])}<br>Chapter {chapter.number} · {minutes}</p>'
        footer = "".join(f"<span><kbd>{key}</kbd> {what}</span>" for key, what in KEYS.items())
    else:
        footer = f"<span>{chapter.number} · {MARKDOWN.renderInline(deck.slides[0].title)}</span>"
        footer += f"<span>{slide.number} / {len(deck.slides)}</span>"
    kind = ["title" if slide.number == 1 else "part" if slide.level == 1 else "plain", *slide.classes]
    return (
        f'<section data-timing="{round(60 * slide.minutes)}"><div class="slide {" ".join(kind)}">'
        f"<h{slide.level}>{MARKDOWN.renderInline(slide.title)}</h{slide.level}>"
        f'<div class="body">{body}</div><footer>{footer}</footer></div>'
        f'<aside class="notes"><p class="clock">{clock(slide)}</p>{notes}</aside></section>'
    )


def clock(slide: Slide) -> str:
    """How long a slide takes, and from when to when in the lecture."""
    return f"<b>{slide.minutes:g} min</b> · {hours(slide.begin)} to {hours(slide.begin + slide.minutes)}"


def hours(minutes: float) -> str:
    """72.5 -> '1:12:30': hours and minutes of the lecture, with seconds where there are some."""
    seconds = round(60 * minutes)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}" + (f":{seconds % 60:02}" if seconds % 60 else "")


# ------------------------------------------------------------------------------------------------------------- building


def fetch_packages(build: Path = ROOT / "build") -> Path:
    """The folder node_modules of what slides and site are made of. Raises CourseError where npm cannot bring it."""
    return npm.fetch(THEME / "package.json", "reveal.js, KaTeX and MathJax", build)


def katex_css(katex: Path) -> str:
    """KaTeX's style sheet with its fonts inside, as a single file can fetch nothing."""

    def inline(match: re.Match) -> str:
        data = base64.b64encode((katex / "fonts" / match[1]).read_bytes()).decode()
        return f'src:url(data:font/woff2;base64,{data}) format("woff2")'

    css = (katex / "katex.min.css").read_text(encoding="utf-8")
    return re.sub(r'src:url\(fonts/([^)]+\.woff2)\) format\("woff2"\)[^;}]*', inline, css)


def fill(template: str, **values: str) -> str:
    """The template with {{name}} replaced, each exactly as given."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], (THEME / template).read_text(encoding="utf-8"))


def page(template: str, deck: Deck, packages: Path, styles: Sequence[Path], scripts: Sequence[Path]) -> str:
    """A page of all slides, with its style sheets and scripts, and with those for math only where there is some."""
    sections = "\n".join(map(section, deck.slides))
    sheets = [path.read_text(encoding="utf-8") for path in styles]
    if 'class="math ' in sections:
        katex = packages / "katex" / "dist"
        sheets, scripts = [katex_css(katex), *sheets], [*scripts, katex / "katex.min.js", THEME / "math.js"]
    # `</script` inside a script would end it, so it is escaped.
    texts = [path.read_text(encoding="utf-8").replace("</script", "<\\/script") for path in scripts]
    return fill(
        template,
        title=escape(f"{deck.chapter.number} {deck.slides[0].title}"),
        styles="\n".join(f"<style>{sheet}</style>" for sheet in sheets),
        sections=sections,
        scripts="\n".join(f"<script>{text}</script>" for text in texts),
    )


def build_deck(deck: Deck, packages: Path) -> str:
    """The whole page of a deck."""
    reveal = packages / "reveal.js" / "dist"
    scripts = [reveal / "reveal.js", *(reveal / "plugin" / f"{name}.js" for name in ("notes", "search", "zoom"))]
    return page("deck.html", deck, packages, [reveal / "reveal.css", THEME / "theme.css"], scripts)


def build_index(decks: Sequence[Deck], pdfs: dict[str, str]) -> str:
    """The page that lists the decks. pdfs: name of a file -> its name on the page."""
    rows = []
    for deck in decks:
        chapter, name = deck.chapter, deck.chapter.name
        facts = f"{len(deck.slides)} slides · {chapter.lecture_minutes} min lecture · {chapter.lab_minutes} min lab"
        papers = (f'<a href="{file}">{words}</a>' for file, words in pdfs.items() if file.startswith(name))
        rows.append(
            f'<li><span class="number">{chapter.number}</span><div>'
            f'<a class="deck" href="{name}.html">{escape(chapter.title)}</a><p>{escape(chapter.promise)}</p>'
            f'<p class="facts"><span>{facts}</span>{"".join(papers)}</p></div></li>'
        )
    return fill("index.html", title=escape(course.manifest()["title"]), rows="\n".join(rows))


def find_decks(names: Sequence[str] = ()) -> list[Deck]:
    """All decks, or those of the chapters with these numbers or names."""
    return [read_deck(chapter) for chapter in course.select(list(names)) if chapter.lecture_minutes]


def build(names: Sequence[str] = (), out: Path = OUT) -> list[Path]:
    """Build decks (all, or those with these numbers or names) and the index page; returns the pages of the decks."""
    packages = fetch_packages()
    out.mkdir(parents=True, exist_ok=True)
    pages = {out / f"{deck.chapter.name}.html": build_deck(deck, packages) for deck in find_decks(names)}
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    (out / "index.html").write_text(build_index(find_decks(), {}), encoding="utf-8")
    return list(pages)


if __name__ == "__main__":
    try:
        build(sys.argv[1:])
    except CourseError as error:
        sys.exit(str(error))
    print(f"Open {OUT / 'index.html'}")
