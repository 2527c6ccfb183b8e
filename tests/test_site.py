"""The website: whole, without answers, readable on a phone, and nothing on it comes from elsewhere.

It is built once, by the command that people use. What was built is then checked as files and in headless Chromium.
"""

import hashlib
import html
import json
import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import nbformat
import pytest
from conftest import skip_or_fail
from docutils.core import publish_string

from tools import course, glossary, slides
from tools.course import ROOT
from tools.site import api, check, notebook, sources
from tools.slides_browser import PATIENCE

CHAPTERS = course.chapters()
PICTURES = ROOT / "build" / "screenshots"
WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    """The folder of the site, and how its build went."""
    try:
        slides.fetch_packages()
    except slides.SlidesError as error:
        skip_or_fail(str(error))
    out = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "tools.site", "--complete", "--out", str(out)]
    return out, subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(built) -> Path:
    out, done = built
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def address(site):
    """The site as it is published: over HTTP, from this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *values) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def tab(chromium):
    """A page in the browser; at the end nothing may have been fetched from outside, and no script may have failed."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    complaints = watch(context)
    yield context.new_page()
    context.close()
    assert complaints == []


def watch(context) -> list[str]:
    """A list that will hold what the context's pages fetch from outside, do not find, and complain about."""
    complaints = []
    here = re.compile(r"file:|data:|blob:|about:|http://127\.0\.0\.1:")

    def failed(request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the test went on to the next page
            complaints.append(f"{request.url}: {request.failure}")

    context.on("request", lambda r: None if here.match(r.url) else complaints.append(f"from outside: {r.url}"))
    context.on("requestfailed", failed)
    context.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    context.on("weberror", lambda e: complaints.append(str(e.error)))
    return complaints


def text_of(page: Path) -> str:
    """What a reader sees on a page, without markup."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


# ---- what was built ----


def test_builds_without_a_word(built):
    out, done = built
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Open {out}/index.html" in done.stdout
    outside = (out.with_name("site-work") / "external-links.txt").read_text().split()
    assert course.address().removesuffix(".git") in outside


def test_every_chapter_is_there(site):
    landing = (site / "index.html").read_text()
    for chapter in CHAPTERS:
        assert chapter.promise in html.unescape(landing)
        for folder in chapter.published.values():
            assert f'href="{folder}/{chapter.name}.html"' in landing
            page = (site / folder / f"{chapter.name}.html").read_text()
            assert chapter.title in html.unescape(page)
            row = re.search(r'<p class="chapter-links">(.*?)</p>', page, re.DOTALL)[1]
            others = {*chapter.published.values()} - {folder}
            assert set(re.findall(rf"\.\./(notebooks|labs)/{chapter.name}.html", row)) == others
            assert (f"../slides/{chapter.name}.html" in row) == bool(chapter.lecture_minutes)
            assert "colab.research.google.com/github/" in row
            original = (ROOT / folder / f"{chapter.name}.ipynb").read_text()
            download = (site / "files" / folder / f"{chapter.name}.ipynb").read_text()
            (package,) = re.findall(r'PACKAGE = \\"(.+?)\\"', download)
            assert download.replace(package, "") == original, "nothing else has changed"
            wheel, digest = package.split("#sha256=")
            served = site / wheel.removeprefix(sources.home())
            assert hashlib.sha256(served.read_bytes()).hexdigest() == digest
    guide = [f"docs/{path.stem}.html" for path in (ROOT / "docs").glob("*.md")]
    for page in ["404.html", ".nojekyll", "search.html", "slides/index.html", *guide]:
        assert (site / page).is_file(), page


def answers(chapter: course.Chapter) -> set[str]:
    """The lines of a chapter's solution that give away an answer and are nowhere else in what students get."""
    solution = (ROOT / "solutions" / f"{chapter.name}.md").read_text(encoding="utf-8")
    inside = "\n".join(re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", solution, re.DOTALL))
    shown = [*ROOT.glob("notebooks/*.md"), *ROOT.glob("slides/*.md"), *ROOT.glob("src/torchcourse/**/*.py")]
    shown += [*ROOT.glob("docs/*.md")]
    public = "\n".join(path.read_text(encoding="utf-8") for path in shown)
    public += "\n".join(cell.source for lab in ROOT.glob("labs/*.ipynb") for cell in nbformat.read(lab, 4).cells)
    return {line.strip() for line in inside.splitlines() if len(line.strip()) > 30 and line.strip() not in public}


def test_no_answer_is_on_the_site(site):
    everything = "\n".join(text_of(path) for path in site.rglob("*.html") if path.parent.name != "slides")
    for path in (site / "files").rglob("*.ipynb"):
        everything += "\n".join(cell["source"] for cell in nbformat.reads(path.read_text(), 4).cells)
    assert "def mean_squared_error(y_true, y_pred):" in everything  # code of a lecture is found in this way
    for chapter in CHAPTERS:
        lines = answers(chapter)
        assert lines, f"{chapter.name}: no line tells its answers from the rest"
        assert [line for line in lines if line in everything] == []
    assert not list(site.rglob("*solutions*"))


def test_cells_are_shown_as_in_jupyter(site):
    page = (site / "notebooks" / "06_ddp.html").read_text()
    folded = re.search(r"<details class=\"[^\"]*hide[^\"]*\">\s*<summary.*?</summary>.*?</details>", page, re.DOTALL)[0]
    assert "Set-up: run this cell first" in folded and "SetupStopped" in folded
    assert re.search(r'<span class="cp">%%torchrun --nproc-per-node 2</span>\s*<span class="kn">', page)
    assert "<summary>Answer</summary>" in page


def test_every_module_has_its_page(site):
    modules = [path.stem for path in (ROOT / "src" / "torchcourse").glob("[!_]*.py")]
    modules += [path.parent.name for path in (ROOT / "src" / "torchcourse").glob("*/__init__.py")]
    for name in modules:
        assert f'id="module-torchcourse.{name}"' in (site / "api" / f"{name}.html").read_text()
    page = (site / "api" / "training.html").read_text()
    assert re.search(r'href="https://github.com/[^"]+/src/torchcourse/training.py#L\d+-L\d+"', page)
    text = " ".join(text_of(site / "api" / "training.html").split())
    assert "tries the model on its first batch, in bfloat16 and in float32, and takes the faster one." in text


# ---- our own checks find what they are there for ----


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "right.html").write_text('<h1 id="here">A</h1><img src="p.png" alt="a dot"><a href="#here">x</a>')
    (tmp_path / "p.png").touch()
    (tmp_path / "site.css").write_text("a { background: url(gone.woff2) } b { background: url(data:x) }")
    (tmp_path / "wrong.html").write_text(
        '<h1>A</h1><h3>B</h3><a href="right.html#there">x</a><a href="none.html">x</a><img src="p.png">'
        '<a href="right.html#here">x</a><script src="https://cdn.example/x.js"></script><a href="https://example.org">x</a>'
    )
    pages = check.read_all(tmp_path)
    found = check.problems(tmp_path, pages)
    for words in ("gone.woff2", "right.html#there leads to a page that has no such place", "none.html leads nowhere"):
        assert any(words in sentence for sentence in found), words
    for words in (
        "p.png has no alt text",
        "loads https://cdn.example/x.js from outside",
        "level 3 follows one of level 1",
    ):
        assert any(words in sentence for sentence in found), words
    assert len(found) == 6
    assert check.outside(pages) == ["https://example.org"]


DOCSTRING = """Takes `x` and *every* `y`s; 2 * 3 | 4, a_ and **kwargs stay as they are.

    with use(x):
        go()

    done()

x: an input, `"a"` or
    "b".
y, z: two more,
and on.
Raises ValueError when there is none. Kinds:

- one, which
  goes on
- two

name    a column
other   another one
"""


def test_docstrings_become_what_they_mean():
    written = "\n".join(api.to_rst(DOCSTRING.split("\n"), {"x", "y", "z"}))
    # Sphinx's own directive for code is not known to docutils alone.
    page = publish_string(
        re.sub(r"code-block:: course-cell|code-block:: text", "code::", written),
        writer="html5",
        settings_overrides={"halt_level": 2, "output_encoding": "unicode", "syntax_highlight": "none"},
    )
    plain = " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).split())
    assert "Takes x and every ys; 2 * 3 | 4, a_ and **kwargs stay as they are." in plain
    assert "<em>every</em>" in page and page.count("<li>") == 2
    assert "with use(x):\n    go()\n\ndone()" in page
    assert len(re.findall(r"<dt>", page)) == 2 and "y, z two more, and on." in plain
    assert "</dl>\n<p>Raises ValueError" in page
    assert "name    a column\nother   another one" in page
    assert "code-block:: course-cell" in written and "code-block:: text" in written


def test_a_docstring_that_cannot_be_read_is_named(caplog):
    with pytest.raises(ValueError, match="backtick"):
        api.to_rst(["Calls `f(x)."])

    def broken():
        """Calls `f(x)."""

    broken.__module__ = "torchcourse.some"
    lines = [broken.__doc__]
    warnings = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api.logger, "warning", lambda text, *values: warnings.append(text % values))
        api.process_docstring(None, "function", "torchcourse.some.broken", broken, None, lines)
    assert warnings and "torchcourse.some.broken" in warnings[0]


def test_links_of_the_guide_lead_to_the_repository(tmp_path):
    for folder in ("docs", "src", "labs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "course.toml").write_text('[repository]\naddress = "https://github.com/a/b"\n')
    (tmp_path / "labs" / "01.ipynb").touch()
    page = tmp_path / "docs" / "x.md"
    text = "[a](../labs/01.ipynb) [b](../course.toml#x) [c](../src) [d](none.md) [e](#here) [f](https://x.org)"
    assert sources.outward(text, page, {"labs/01.ipynb"}, tmp_path).split(" ") == [
        "[a](../labs/01.ipynb)",
        f"[b]({api.address_of('course.toml', tmp_path)}#x)",
        f"[c]({api.address_of('src', tmp_path)})",
        "[d](none.md)",
        "[e](#here)",
        "[f](https://x.org)",
    ]


def test_a_page_leaves_the_notebook_as_it_is():
    source = ROOT / "labs" / f"{CHAPTERS[0].name}.ipynb"
    original = nbformat.read(source, 4)
    original.cells[1].outputs = [nbformat.v4.new_output("stream", name="stderr", text="noise")]
    before = json.dumps(original)
    page = notebook.page(original, CHAPTERS[0], "lab", has_slides=False)
    assert json.dumps(original) == before
    assert page.cells[1].outputs == [] and "hide-input" in page.cells[1].metadata.tags
    assert "Slides" not in page.cells[0].source and "No Python here" not in page.cells[0].source


def test_without_npm_the_site_says_what_it_lacks(monkeypatch):
    def no_npm():
        raise slides.SlidesError("npm is not installed.")

    monkeypatch.setattr(slides, "fetch_packages", no_npm)
    gathered = sources.gather()
    assert gathered.missing == [
        "The site goes without slides, and formulas stay as they are written. npm is not installed."
    ]
    assert gathered.missing[0] in gathered.pages["slides/index.md"].decode()
    assert not [path for path in gathered.extra if path.startswith("slides/")]
    assert f"slides/{CHAPTERS[0].name}.html" not in gathered.pages["index.md"].decode()


def test_a_second_build_writes_only_what_changed(tmp_path):
    sources.write({"a/x": b"1", "b": b"2"}, tmp_path)
    before = (tmp_path / "b").stat().st_mtime_ns
    assert sources.write({"a/x": b"3", "b": b"2"}, tmp_path) is False
    assert (tmp_path / "b").stat().st_mtime_ns == before and (tmp_path / "a" / "x").read_bytes() == b"3"
    assert sources.write({"b": b"2"}, tmp_path) is True
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["b"]


# ---- in the browser ----


def pages(site: Path) -> list[Path]:
    """Every page but the decks, which tests/test_slides.py looks at."""
    decks = {site / "slides" / f"{chapter.name}.html" for chapter in CHAPTERS}
    return [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts and path not in decks]


def test_no_page_is_wider_than_a_phone(site, chromium):
    wide = []
    # Scripts change no width, and cost half of the time.
    context = chromium.new_context(viewport={"width": WIDTHS["phone"], "height": 844}, java_script_enabled=False)
    complaints, tab = watch(context), context.new_page()
    for page in pages(site):
        tab.goto(page.as_uri())
        if (found := tab.evaluate("document.documentElement.scrollWidth")) > WIDTHS["phone"]:
            wide.append(f"{page.relative_to(site)}: {found} px")
    context.close()
    assert wide + [complaint for complaint in complaints if complaint.startswith("from outside")] == []


def test_code_is_read_without_scrolling_sideways(site, tab):
    for width in WIDTHS.values():
        tab.set_viewport_size({"width": width, "height": 900})
        tab.goto((site / "notebooks" / "03_cpu_to_gpu.html").as_uri())
        code = tab.locator(".cell_input pre")
        assert code.count() > 40
        assert not code.evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)")


# The contrast of each piece of text with the nearest ground behind it, as WCAG counts it; a picture is no such ground.
CONTRAST = """() => {
  const channels = color => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = e => { for (; e; e = e.parentElement) {
    const style = getComputedStyle(e), c = channels(style.backgroundColor);
    if (style.backgroundImage !== "none") return null;
    if (c.length < 4 || c[3] > 0.99) return c; } return [255, 255, 255]; };
  const found = {};
  for (const e of document.querySelectorAll(".bd-article *, .bd-header *, .bd-sidebar *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    const behind = own && e.checkVisibility({opacityProperty: true, visibilityProperty: true}) && ground(e);
    if (!behind) continue;
    const [a, b] = [light(channels(getComputedStyle(e).color)), light(behind)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found[`${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 30)}`] = ratio.toFixed(2);
  }
  return found; }"""


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_can_be_read(mode, site, tab):
    tab.add_init_script(f"localStorage.setItem('mode', '{mode}'); localStorage.setItem('theme', '{mode}')")
    for page in ("index", "notebooks/00_getting_started", "notebooks/06_ddp", "api/trace", "slides/index"):
        tab.goto((site / f"{page}.html").as_uri())
        assert tab.evaluate("document.documentElement.dataset.theme") == mode
        assert tab.evaluate(CONTRAST) == {}, page


def test_formulas_search_and_menu_work(address, tab):
    tab.goto(f"{address}/notebooks/00_getting_started.html")
    assert tab.locator(".math .katex").count() == tab.locator(".math").count() > 3
    tab.goto(f"{address}/search.html?q=autograd")
    tab.locator("#search-results li p.context").first.wait_for()  # a result with its words around
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.goto(f"{address}/notebooks/01_tensors.html")
    tab.locator(".bd-header .primary-toggle").click()
    last = [chapter for chapter in CHAPTERS if "lecture" in chapter.kinds][-1]
    tab.get_by_role("link", name=f"{last.number} · {last.title}", exact=True).first.click()
    tab.wait_for_url(f"**/{last.name}.html")


def test_search_finds_every_term_of_the_glossary(address, tab):
    """One page for all of them: the search runs in the browser, with the words as the index has them."""
    tab.goto(f"{address}/search.html?q=autograd")
    tab.locator("#search-results li a").first.wait_for()
    names = sorted({re.sub(r"[^\w -]", "", term.name) for term in glossary.terms()})
    found = tab.evaluate(
        "names => names.filter(name => Search._performSearch(...Search._parseQuery(name)).length > 0)", names
    )
    assert found == names, set(names) - set(found)


def test_search_finds_names_from_a_double_click_too(site, tab):
    """Without a server a browser lets no page read another one: the results come without the words around them."""
    tab.add_init_script("window.fetch = () => new Promise(() => {})")
    tab.goto((site / "search.html").as_uri() + "?q=evaluate")
    tab.locator("#search-results li a", has_text="evaluate").first.wait_for()


def test_pictures_to_look_at(site, tab):
    """build/screenshots/site-*.png: a person looks at them; here only that they are taken."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    looks = {"landing": "index", "lecture": "notebooks/00_getting_started", "lab": "labs/03_cpu_to_gpu"}
    looks |= {"api": "api/training", "slides": "slides/index"}
    for mode, names in {"light": list(looks), "dark": ["landing", "lecture"]}.items():
        tab.add_init_script(f"localStorage.setItem('mode', '{mode}'); localStorage.setItem('theme', '{mode}')")
        for name in names:
            tab.goto((site / f"{looks[name]}.html").as_uri())
            for device, width in WIDTHS.items():
                path = PICTURES / f"site-{name}-{device}-{mode}.png"
                path.unlink(missing_ok=True)
                tab.set_viewport_size({"width": width, "height": 2000})
                tab.screenshot(path=path, animations="disabled")
                assert path.stat().st_size > 10_000
                assert tab.evaluate("document.documentElement.scrollWidth") <= width
