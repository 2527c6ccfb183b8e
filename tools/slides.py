"""Slides: one Markdown file per chapter becomes one HTML file that opens by double click, without any network.

    python -m tools.slides                       every deck, and an index page, into build/slides
    python -m tools.slides 01                    one deck (number or full name)
    python -m tools.slides --check 01            run its code, count slides and minutes, look for overflow in Chromium
    python -m tools.slides --look DIR 01         a picture of every slide in DIR: look at them
    python -m tools.slides_pdf                   the same decks as PDF, without and with notes

reveal.js and KaTeX come from npm at build time (slides_theme/package.json), are kept in build/npm, and are written into
each page together with the figures: a deck is a single file that can be carried on a stick.

HOW A DECK IS WRITTEN: slides/NN_slug.md
    # Title                       first slide: title, then one sentence. Chapter and minutes are added from course.toml
    ## Heading                    every other slide has exactly one; `# Heading` again makes a divider between parts
    ---                           between slides (alone on its line, with empty lines around)
    Notes: 3 min. What to say.    ends every slide, seen in the speaker view. Starts with the minutes (in sum at most
                                  lecture_minutes of course.toml) and names a common mistake
    . . .                         what follows appears at the next key press. A question slide has its answer after this

    ## Heading {.question}        heading classes: question (a question before its answer), big (one sentence, large),
                                  dense (text and code at the smallest size allowed, 22 px; code is 24 px otherwise)
    ::: columns 3 2               two or more columns, widths 3:2 (default equal), parts separated by a line |||
    left                          A line of code holds about 74 characters on a full slide, 35 in one of two columns
    |||
    right
    :::
    ::: trap                      colored boxes: trap (where it bites), note, answer. `::: trap Title` changes the word
    The mistake, in a sentence.   on top
    :::

    ![alt](figures/NN_slug-name.png "Caption")     from the notebook: plots.show(alt, name="name") and tools.build
    ![alt](drawings/NN_slug-name.svg "Caption")    drawn by hand; classes under "Drawings" in slides_theme/theme.css
                                  An image alone in its paragraph takes the room that is left. Alt text is required
    $x$ and $$x$$                 math (KaTeX)
    {{chapters}}                  the list of chapters from course.toml

    ```python                     shown, and executed by the tests: all blocks of a deck in order, in one namespace.
    a.shape                       As in a notebook, the value of a last line is printed
    ```
    ```output                     directly below: what the block prints, compared by the tests. `...` stands for
    torch.Size([2, 3])            anything. Write results nowhere else
    ```
    ```python raises=TypeError    must raise exactly this; what it prints ends with the line `TypeError: message`
    ```python hidden              executed, not shown (imports, seeds, data)
    ```python mark=2,4-5          lines that are set off by color
    ```bash and ```text           shown only

12 to 25 slides, one idea a slide. A slide must not overflow 1280 x 720: `--check` says which one does, and by how much.
Alt text says in four words or more what the picture shows, not what the caption says already.
"""

import argparse
import base64
import html
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from tools import course, npm, slides_browser, slides_code
from tools.course import ROOT, Chapter
from tools.slides_theme import THEME, SlidesError

SLIDES = ROOT / "slides"
LANGUAGES = ("python", "bash", "text", "output")
CLASSES = ("question", "big", "dense")
BOXES = {"trap": "Trap", "note": "Note", "answer": "Answer"}
FEWEST, MOST = 12, 25
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
    """One slide, still in Markdown."""

    number: int
    body: list[str]
    notes: str
    minutes: float | None
    title: str = ""
    level: int = 2
    classes: list[str] = field(default_factory=list)


@dataclass
class Deck:
    """One deck: slides/NN_slug.md, and its chapter in course.toml."""

    path: Path
    slides: list[Slide]
    chapter: Chapter
    code: list[Code] = field(default_factory=list)  # every Python block, from top to bottom

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def number(self) -> str:
        return self.name.split("_")[0]

    @property
    def title(self) -> str:
        return self.slides[0].title

    @property
    def minutes(self) -> float:
        """The sum of the minutes in the speaker notes."""
        return sum(slide.minutes or 0 for slide in self.slides)

    def begin(self, slide: Slide) -> float:
        """The minute of the lecture in which a slide begins, if all before it took what their notes say."""
        return sum(before.minutes or 0 for before in self.slides[: slide.number - 1])

    def error(self, slide: int, sentence: str) -> SlidesError:
        """An error that says where."""
        return SlidesError(f"slides/{self.path.name}, slide {slide}: {sentence}")


def outside_fences(lines: Sequence[str]) -> list[bool]:
    """For each line: is it outside fenced code (the fences themselves count as inside)?"""
    outside, fence = [], None
    for line in lines:
        mark = re.match(r"\s*(`{3,})", line)
        outside.append(fence is None and mark is None)
        if mark and fence is None:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = None
    return outside


def split(lines: list[str], separator: str) -> list[list[str]]:
    """The lines between separator lines, which count only outside of fenced code and of ::: boxes."""
    parts: list[list[str]] = [[]]
    depth = 0
    for line, free in zip(lines, outside_fences(lines), strict=True):
        if free and line.strip().startswith(":::"):
            depth += 1 if line.strip() != ":::" else -1
        if free and depth == 0 and line.strip() == separator:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def read_deck(path: Path) -> Deck:
    """Read slides/NN_slug.md. Raises SlidesError with the slide's number where the format is broken."""
    chapters = {chapter.name: chapter for chapter in course.chapters()}
    if path.stem not in chapters:
        raise SlidesError(f"slides/{path.name} has no chapter in course.toml. There are: {', '.join(chapters)}.")
    deck = Deck(path, [], chapters[path.stem])
    lines = [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()]
    for number, part in enumerate(split(lines, "---"), start=1):
        deck.slides.append(read_slide(deck, number, part))
        deck.code += python_blocks(deck, deck.slides[-1])
    if deck.slides[0].level != 1:
        raise deck.error(1, "the first slide carries the title: start it with `# Title`.")
    return deck


def read_slide(deck: Deck, number: int, lines: list[str]) -> Slide:
    """Take one slide apart: heading with classes, body, notes with minutes."""
    free = outside_fences(lines)
    at = next((i for i, line in enumerate(lines) if free[i] and line.startswith("Notes:")), None)
    fences = [line for line in lines if re.match(r"\s*`{3,}", line)]
    if at is None and len(fences) % 2:
        raise deck.error(number, f"the block that starts with {fences[-1]} is never closed.")
    if at is None:
        raise deck.error(number, "it has no speaker notes. End it with a line `Notes: 2 min. What to say.`")
    notes = "\n".join([lines[at].removeprefix("Notes:"), *lines[at + 1 :]]).strip()
    minutes = re.match(r"(\d+(?:\.\d+)?) min\b", notes)
    slide = Slide(number, [], notes, float(minutes[1]) if minutes else None)
    headings = [i for i in range(at) if free[i] and re.match(r"##? ", lines[i])]
    if len(headings) != 1:
        raise deck.error(number, f"it has {len(headings)} headings; a slide has exactly one, `## Heading`.")
    level, text, classes = re.fullmatch(r"(##?) +(.*?)(?: *\{([^}]*)\})?", lines[headings[0]]).groups()
    slide.level, slide.title = len(level), text
    slide.classes = [name.lstrip(".") for name in (classes or "").split()]
    if unknown := set(slide.classes) - set(CLASSES):
        raise deck.error(number, f"unknown heading class {', '.join(sorted(unknown))}; there are {', '.join(CLASSES)}.")
    slide.body = [line for i, line in enumerate(lines[:at]) if i != headings[0]]
    return slide


def fence_options(deck: Deck, slide: int, info: str) -> tuple[str, dict[str, str]]:
    """'python raises=TypeError hidden' -> ('python', {'raises': 'TypeError', 'hidden': ''})."""
    language, *rest = info.split() or ["text"]
    if language not in LANGUAGES:
        raise deck.error(slide, f"unknown kind of block ```{language}; there are {', '.join(LANGUAGES)}.")
    options = dict(option.partition("=")[::2] for option in rest)
    if unknown := set(options) - ({"raises", "hidden", "mark"} if language == "python" else set()):
        raise deck.error(slide, f"```{language} does not know the option {', '.join(sorted(unknown))}.")
    return language, options


def python_blocks(deck: Deck, slide: Slide) -> list[Code]:
    """The Python blocks of a slide, each with the output block directly below it."""
    blocks: list[Code] = []
    before = None  # what the last fence was; any other text in between resets it
    lines, i = slide.body, 0
    while i < len(lines):
        mark = re.match(r"(`{3,})(.*)", lines[i])
        if re.match(r"\s+`{3,}", lines[i]):
            raise deck.error(slide.number, f"the block {lines[i].strip()} is indented: start it in the first column.")
        if not mark:
            # An output may follow after empty lines or after a pause, not after prose.
            before = before if lines[i].strip() in ("", ". . .", "|||") else None
            i += 1
            continue
        end = next((j for j in range(i + 1, len(lines)) if lines[j] == mark[1]), None)
        if end is None:
            raise deck.error(slide.number, f"the block that starts with {lines[i]} is never closed.")
        language, options = fence_options(deck, slide.number, mark[2])
        text = "\n".join(lines[i + 1 : end])
        if language == "python":
            blocks.append(Code(text, slide.number, options.get("raises")))
        elif language == "output":
            if before != "python":
                raise deck.error(slide.number, "an ```output block must be directly below its ```python block.")
            blocks[-1].output = text
        elif language == "text" and before == "python":
            raise deck.error(slide.number, "a ```text block below ```python is not compared: write ```output.")
        before, i = language, end + 1
    return blocks


# ------------------------------------------------------------------------------------------------------------ rendering


class Renderer:
    """Markdown of one deck to HTML."""

    def __init__(self, deck: Deck):
        self.deck, self.slide = deck, deck.slides[0]
        self.has_math = False
        self.md = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
        self.md.use(dollarmath_plugin, allow_digits=False, double_inline=True, allow_labels=False, renderer=self.math)
        self.md.add_render_rule("fence", lambda _, tokens, i, *rest: self.fence(tokens[i]))
        self.md.add_render_rule("image", lambda _, tokens, i, *rest: self.image(tokens[i]))

    def text(self, lines: list[str]) -> str:
        """Markdown with pauses, boxes and columns."""
        lines = [self.chapters() if line.strip() == "{{chapters}}" else line for line in lines]
        first, *later = split(lines, ". . .")
        return self.boxes(first) + "".join(f'<div class="fragment">{self.boxes(part)}</div>' for part in later)

    def boxes(self, lines: list[str]) -> str:
        """Markdown with ::: boxes, which may contain each other."""
        out, plain, depth = [], [], 0
        inner: list[str] = []
        for line, free in zip(lines, outside_fences(lines), strict=True):
            mark = line.strip() if free and line.strip().startswith(":::") else ""
            if mark and mark != ":::":
                depth += 1
                if depth == 1:
                    out.append(self.markdown(plain))
                    opening, plain = mark.removeprefix(":::").split(), []
                    continue
            elif mark:
                depth -= 1
                if depth < 0:
                    raise self.error("there is a closing ::: without an opening one.")
                if depth == 0:
                    out.append(self.box(opening, inner))
                    inner = []
                    continue
            (inner if depth else plain).append(line)
        if depth:
            raise self.error(f"the box ::: {' '.join(opening)} is never closed with a line `:::`.")
        return "".join(out) + self.markdown(plain)

    def box(self, opening: list[str], lines: list[str]) -> str:
        kind, *rest = opening
        if kind == "columns":
            parts = split(lines, "|||")
            shares = rest or ["1"] * len(parts)
            if len(shares) != len(parts) or not all(re.fullmatch(r"[\d.]+", share) for share in shares):
                raise self.error(
                    f"::: {' '.join(opening)} has {len(parts)} columns (separated by |||): give a width each."
                )
            cells = "".join(f'<div class="column">{self.text(part)}</div>' for part in parts)
            widths = " ".join(f"minmax(0, {share}fr)" for share in shares)
            return f'<div class="columns" style="grid-template-columns: {widths}">{cells}</div>'
        if kind not in BOXES:
            raise self.error(f"unknown box ::: {kind}; there are columns, {', '.join(BOXES)}.")
        word = html.escape(" ".join(rest) or BOXES[kind])
        return f'<div class="box {kind}"><p class="word">{word}</p>{self.text(lines)}</div>'

    def markdown(self, lines: list[str]) -> str:
        """Plain Markdown. A paragraph that is one image becomes a figure."""
        tokens = self.md.parse("\n".join(lines))
        for i, token in enumerate(tokens):
            alone = token.type == "inline" and [child.type for child in token.children or []] == ["image"]
            if alone and tokens[i - 1].type == "paragraph_open":
                tokens[i - 1].tag = tokens[i + 1].tag = "figure"
        return self.md.renderer.render(tokens, self.md.options, {})

    def chapters(self) -> str:
        """The chapters of the course with their minutes, as one line of HTML."""
        items = (
            f"<li><b>{chapter.number}</b> <span>{html.escape(chapter.title)}</span> "
            f"<span>{chapter.minutes} min</span></li>"
            for chapter in course.chapters()
        )
        columns = 1 if len(course.chapters()) <= 7 else 2
        return f'<ol class="chapters" style="columns: {columns}">{"".join(items)}</ol>'

    def math(self, tex: str, options: dict) -> str:
        self.has_math = True
        kind = "display" if options.get("display_mode") else "inline"
        return f'<span class="math {kind}">{html.escape(tex)}</span>'

    def fence(self, token: Token) -> str:
        language, options = fence_options(self.deck, self.slide.number, token.info)
        if "hidden" in options:
            return ""
        if language == "output":
            return f'<pre class="output">{html.escape(token.content.rstrip())}</pre>\n'
        marked = [n for part in options.get("mark", "").split(",") if part for n in span(part)]
        formatter = HtmlFormatter(nowrap=True, hl_lines=marked)
        code = highlight(token.content, get_lexer_by_name(language), formatter).rstrip("\n")
        return f'<pre class="code {language}"><code>{code}</code></pre>\n'

    def image(self, token: Token) -> str:
        source, caption = str(token.attrs["src"]), str(token.attrs.get("title") or "")
        alt = token.content.strip()
        if not alt:
            raise self.error(f"the image {source} has no alt text: ![what it shows]({source}).")
        path = self.deck.path.parent / source
        if re.match(r"\w+:", source) or not path.is_file():
            raise self.error(
                f"the figure slides/{source} is missing. Figures come out of the notebook: give plots.show(...) the "
                f"name and run `python -m tools.build {self.deck.name}`."
            )
        words = html.escape(alt)
        if path.suffix == ".svg":
            picture = path.read_text(encoding="utf-8").strip()
            picture = picture.replace("<svg", f'<svg class="drawing" role="img" aria-label="{words}"', 1)
        else:
            data = base64.b64encode(path.read_bytes()).decode()
            kind = {".png": "png", ".jpg": "jpeg", ".webp": "webp"}[path.suffix]
            picture = f'<img alt="{words}" src="data:image/{kind};base64,{data}">'
        return picture + (f"<figcaption>{self.md.renderInline(caption)}</figcaption>" if caption else "")

    def error(self, sentence: str) -> SlidesError:
        return self.deck.error(self.slide.number, sentence)

    def picture(self, slide: Slide) -> str:
        """What the room sees of a slide."""
        self.slide = slide
        deck, chapter = self.deck, self.deck.chapter
        heading = self.md.renderInline(slide.title)
        body = self.text(slide.body)
        footer = f"<span>{deck.number} · {self.md.renderInline(deck.title)}</span>"
        footer += f"<span>{slide.number} / {len(deck.slides)}</span>"
        kind = ["title" if slide.number == 1 else "part" if slide.level == 1 else "plain", *slide.classes]
        if slide.number == 1:
            minutes = f"{chapter.lecture_minutes} min lecture, {chapter.lab_minutes} min lab"
            words = [course.manifest()["title"], f"Chapter {deck.number} · {minutes}"]
            body += f'<p class="facts">{"<br>".join(map(html.escape, words))}</p>'
            footer = "".join(f"<span><kbd>{key}</kbd> {what}</span>" for key, what in KEYS.items())
        return (
            f'<div class="slide {" ".join(kind)}"><h{slide.level}>{heading}</h{slide.level}>'
            f'<div class="body">{body}</div><footer>{footer}</footer></div>'
        )

    def notes(self, slide: Slide) -> str:
        """What the speaker says. The minutes that every note begins with are told by `clock`."""
        self.slide = slide
        return self.md.render(re.sub(r"^[\d.]+ min\b[.:,]?\s*", "", slide.notes))

    def clock(self, slide: Slide) -> str:
        """How long a slide takes, and from when to when in the lecture."""
        minutes, begin = slide.minutes or 0, self.deck.begin(slide)
        return f"<b>{minutes:g} min</b> · {hours(begin)} to {hours(begin + minutes)}"

    def section(self, slide: Slide) -> str:
        """The <section> of one slide. reveal.js counts down its data-timing in the speaker view."""
        timing = f' data-timing="{round(60 * slide.minutes)}"' if slide.minutes else ""
        notes = f'<aside class="notes"><p>{self.clock(slide)}</p>{self.notes(slide)}</aside>'
        return f"<section{timing}>{self.picture(slide)}{notes}</section>"


def hours(minutes: float) -> str:
    """72.5 -> '1:12:30': hours and minutes of the lecture, with seconds where there are some."""
    seconds = round(60 * minutes)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}" + (f":{seconds % 60:02}" if seconds % 60 else "")


def span(part: str) -> range:
    """'3' -> 3, '4-6' -> 4, 5, 6."""
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


# -------------------------------------------------------------------------------------------- what comes from elsewhere


def fetch_packages(build: Path = ROOT / "build") -> Path:
    """The folder node_modules with reveal.js and KaTeX. Raises SlidesError where npm cannot bring them."""
    try:
        return npm.fetch(THEME / "package.json", "reveal.js and KaTeX", build)
    except npm.NpmError as error:
        raise SlidesError(error) from None


def katex_css(katex: Path) -> str:
    """KaTeX's style sheet with its fonts inside, as a single file can fetch nothing."""
    css = (katex / "katex.min.css").read_text(encoding="utf-8")

    def inline(match: re.Match) -> str:
        data = base64.b64encode((katex / "fonts" / match[1]).read_bytes()).decode()
        return f'src:url(data:font/woff2;base64,{data}) format("woff2")'

    return re.sub(r'src:url\(fonts/([^)]+\.woff2)\) format\("woff2"\)[^;}]*', inline, css)


# ------------------------------------------------------------------------------------------------------------- building


def fill(template: str, values: dict[str, str]) -> str:
    """The template with {{name}} replaced, each exactly as given."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], (THEME / template).read_text(encoding="utf-8"))


def script(*paths: Path) -> str:
    """Scripts written into the page. `</script` inside a script would end it, so it is escaped."""
    texts = [path.read_text(encoding="utf-8").replace("</script", "<\\/script") for path in paths]
    return "\n".join(f"<script>{text}</script>" for text in texts)


def styles(packages: Path, has_math: bool, *sheets: Path) -> str:
    """Style sheets written into the page; those for math only where there is some."""
    texts = [sheet.read_text(encoding="utf-8") for sheet in sheets]
    if has_math:
        texts.insert(0, katex_css(packages / "katex" / "dist"))
    return "\n".join(f"<style>{text}</style>" for text in texts)


def math_scripts(packages: Path, has_math: bool) -> list[Path]:
    """What turns TeX into math when the page opens."""
    return [packages / "katex" / "dist" / "katex.min.js", THEME / "math.js"] if has_math else []


def build_deck(deck: Deck, packages: Path) -> str:
    """The whole page of a deck."""
    renderer = Renderer(deck)
    sections = "\n".join(renderer.section(slide) for slide in deck.slides)
    reveal = packages / "reveal.js" / "dist"
    plugins = [reveal / "plugin" / f"{name}.js" for name in ("notes", "search", "zoom")]
    values = {
        "title": html.escape(f"{deck.number} {deck.title}"),
        "styles": styles(packages, renderer.has_math, reveal / "reveal.css", THEME / "theme.css"),
        "sections": sections,
        "scripts": script(reveal / "reveal.js", *plugins, *math_scripts(packages, renderer.has_math)),
    }
    return fill("deck.html", values)


def build_index(decks: Sequence[Deck], out: Path) -> str:
    """The page that lists the decks, with the PDFs that lie beside them."""
    rows = []
    for deck in decks:
        chapter = deck.chapter
        facts = f"{len(deck.slides)} slides · {chapter.lecture_minutes} min lecture · {chapter.lab_minutes} min lab"
        papers = [
            f'<a href="{path.name}">{words}</a>' for path, words in pdfs(deck, out).items() if current(path, deck)
        ]
        rows.append(
            f'<li><span class="number">{deck.number}</span><div>'
            f'<a class="deck" href="{deck.name}.html">{html.escape(chapter.title)}</a>'
            f"<p>{html.escape(chapter.promise)}</p>"
            f'<p class="facts"><span>{facts}</span>{"".join(papers)}</p></div></li>'
        )
    return fill("index.html", {"title": html.escape(course.manifest()["title"]), "rows": "\n".join(rows)})


def pdfs(deck: Deck, out: Path) -> dict[Path, str]:
    """Where the PDFs of a deck lie, and what they are called on the index page."""
    return {out / f"{deck.name}.pdf": "PDF", out / f"{deck.name}-notes.pdf": "PDF with notes"}


def current(pdf: Path, deck: Deck) -> bool:
    """Is the PDF there, and not older than the page that it was made from?"""
    page = pdf.with_name(f"{deck.name}.html")
    return pdf.is_file() and page.is_file() and pdf.stat().st_mtime >= page.stat().st_mtime


def find_decks(names: Sequence[str] = (), folder: Path = SLIDES) -> list[Deck]:
    """The decks of a folder, or those named by number ("01") or name ("01_tensors"). Raises SlidesError."""
    paths = sorted(folder.glob("[0-9][0-9]_*.md"))
    chosen = [path for path in paths if not names or path.stem in names or path.stem.split("_")[0] in names]
    for name in names:
        if not any(name in (path.stem, path.stem.split("_")[0]) for path in paths):
            raise SlidesError(f"There is no deck {name}. There are: {', '.join(path.stem for path in paths)}.")
    return [read_deck(path) for path in chosen]


def build(names: Sequence[str] = (), out: Path = ROOT / "build" / "slides", folder: Path = SLIDES) -> list[Path]:
    """Build decks (all of them, or those named) and the index page; returns the pages of the decks.

    names: numbers or names of chapters; empty means all.
    out: the folder that receives the pages; files that a page no longer needs are not touched.
    Raises SlidesError with a sentence for the author.
    """
    packages = fetch_packages()
    out.mkdir(parents=True, exist_ok=True)
    pages = []
    for deck in find_decks(names, folder):
        pages.append(out / f"{deck.name}.html")
        write_if_changed(pages[-1], build_deck(deck, packages))
    write_index(out, folder)
    return pages


def write_index(out: Path, folder: Path = SLIDES) -> None:
    """Write the page that lists all decks, with the PDFs that there are now."""
    write_if_changed(out / "index.html", build_index(find_decks(folder=folder), out))


def write_if_changed(path: Path, text: str) -> None:
    """A page that says the same keeps its time: by it `current` knows an outdated PDF."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.slides", description="Build the slide decks.")
    parser.add_argument(
        "chapters", nargs="*", metavar="CHAPTER", help="number or name, as 01 or 01_tensors (default: all)"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "slides", help="folder of the pages (build/slides)"
    )
    parser.add_argument("--check", action="store_true", help="also run the code and measure every slide in Chromium")
    parser.add_argument("--look", type=Path, metavar="DIR", help="also write a picture of every slide to DIR")
    arguments = parser.parse_args(argv)
    try:
        pages = build(arguments.chapters, arguments.out)
        problems = check(arguments.chapters, pages) if arguments.check else []
        if arguments.look:
            slides_browser.take_pictures(pages, arguments.look)
    except SlidesError as error:
        print(error, file=sys.stderr)
        return 1
    for page in pages:
        print(page)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"Open {arguments.out / 'index.html'}")
    return 1 if problems else 0


def check(names: Sequence[str], pages: Sequence[Path]) -> list[str]:
    """Everything that the tests look at, as sentences: an empty list means that all is well."""
    found = []
    for deck in find_decks(names):
        found += outline_problems(deck) + slides_code.problems(deck)
    return found + slides_browser.problems(pages)


def outline_problems(deck: Deck) -> list[str]:
    """Number of slides, notes and minutes."""
    found = []
    if not FEWEST <= len(deck.slides) <= MOST:
        found.append(f"slides/{deck.path.name} has {len(deck.slides)} slides; a deck has {FEWEST} to {MOST}.")
    for slide in deck.slides:
        if slide.minutes is None:
            found.append(str(deck.error(slide.number, "start the notes with the minutes, `Notes: 2 min. ...`")))
    lecture = deck.chapter.lecture_minutes
    if not 0.6 * lecture <= deck.minutes <= lecture:
        found.append(
            f"slides/{deck.path.name}: the notes add up to {deck.minutes:g} minutes, the lecture has {lecture} in "
            f"course.toml. {0.6 * lecture:g} to {lecture} fit, as cells are run in between."
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
