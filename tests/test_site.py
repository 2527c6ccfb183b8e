"""The website: whole, without answers, readable on a phone, and nothing on it comes from elsewhere.

It is built once, by the command that people use. What was built is then checked as files and in headless Chromium.
"""

import hashlib
import html
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from conftest import need
from docutils.core import publish_string

from tools import course
from tools.course import ROOT
from tools.site import check, docstrings, sources
from tools.slides_browser import PATIENCE, watch

CHAPTERS = course.chapters()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the site, built without a word of complaint."""
    need("npm")
    out = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "tools.site", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Open {out}/index.html" in done.stdout
    return out


@pytest.fixture
def tab(chromium):
    """A page in the browser; at the end nothing may have been fetched from outside, and no script may have failed."""
    complaints = []
    with chromium.new_context(viewport={"width": 1280, "height": 900}) as context:
        context.set_default_timeout(PATIENCE)
        watch(context, complaints)
        yield context.new_page()
    assert complaints == []


def text_of(page: Path) -> str:
    """What a reader sees on a page, without markup."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


# ---- what was built ----


def test_every_chapter_is_there(site):
    landing = (site / "index.html").read_text()
    for chapter in CHAPTERS:
        assert chapter.promise in html.unescape(landing)
        for folder in chapter.published.values():
            assert f'href="{folder}/{chapter.name}.html"' in landing
            page = (site / folder / f"{chapter.name}.html").read_text()
            assert chapter.title in html.unescape(page) and "No Python here" not in page
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


def test_portals_can_read_each_chapter(site):
    """One LearningResource for each, on its first page, with what Bioschemas' TrainingMaterial requires."""
    script = re.compile(r'<script type="application/ld\+json">(.*?)</script>', re.DOTALL)
    read = {str(page.relative_to(site)): script.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {page for page, found in read.items() if found} == {c.first.replace("ipynb", "html") for c in CHAPTERS}
    for chapter in CHAPTERS:
        page = chapter.first.replace("ipynb", "html")
        (content,) = map(json.loads, read[page])
        required = {"@context", "@type", "@id", "http://purl.org/dc/terms/conformsTo"}
        assert required | {"description", "keywords", "name"} <= {key for key, value in content.items() if value}
        assert (content["name"], content["teaches"]) == (chapter.title, chapter.goals)
        assert content["url"] == content["@id"] == sources.home() + page and content["isPartOf"]["@type"] == "Course"
        assert content["timeRequired"] == f"PT{chapter.lecture_minutes + chapter.lab_minutes}M"
    (started,) = map(json.loads, read["notebooks/00_getting_started.html"])
    assert {"tensor", "device"} <= {*started["keywords"]}


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
    assert 'href="../_modules/torchcourse/training.html#fit"' in page
    text = " ".join(text_of(site / "api" / "training.html").split())
    assert "tries the model on its first batch, in bfloat16 and in float32, and takes the faster one." in text


# ---- our own checks find what they are there for ----


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "right.html").write_text('<h1 id="here">A</h1><img src="p.png" alt="a dot"><a href="#here">x</a>')
    (tmp_path / "p.png").touch()
    (tmp_path / "site.css").write_text("a { background: url(gone.woff2) } b { background: url(data:x) }")
    (tmp_path / "wrong.html").write_text(
        '<a href="right.html#there">x</a><a href="none.html">x</a><img src="p.png"><a href="right.html#here">x</a>'
        '<script src="https://cdn.example/x.js"></script><a href="https://example.org">x</a>'
    )
    assert check.problems(tmp_path) == [
        "wrong.html: it loads https://cdn.example/x.js from outside.",
        "wrong.html: the picture p.png has no alt text.",
        "wrong.html: the link right.html#there leads to a page that has no such place.",
        "wrong.html: the link none.html leads nowhere.",
        "site.css: it loads gone.woff2, which is not on the site.",
    ]


DOCSTRING = """Takes `x` and *every* `y`.

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
"""


def test_docstrings_become_what_they_mean():
    written = docstrings.to_rst(DOCSTRING, {"x", "y", "z"})
    # Sphinx's own directive for code is not known to docutils alone.
    page = publish_string(
        re.sub(r"code-block:: course-cell|code-block:: text", "code::", written),
        writer="html5",
        settings_overrides={"halt_level": 2, "output_encoding": "unicode", "syntax_highlight": "none"},
    )
    plain = " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).split())
    assert "Takes x and every y." in plain and "<em>every</em>" in page and page.count("<li>") == 2
    assert "with use(x):\n    go()\n\ndone()" in page and "name    a column" in page
    assert len(re.findall(r"<dt>", page)) == 2 and "y, z two more, and on." in plain
    assert "</dl>\n<p>Raises ValueError" in page
    assert "code-block:: course-cell" in written and "code-block:: text" in written


def test_links_of_the_guide_lead_to_the_repository(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_SHA", raising=False)
    for folder in ("docs", "src", "labs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "course.toml").write_text('[repository]\naddress = "https://github.com/a/b"\n')
    (tmp_path / "labs" / "01.ipynb").touch()
    page = tmp_path / "docs" / "x.md"
    text = "[a](../labs/01.ipynb) [b](../course.toml#x) [c](../src) [d](none.md) [e](#here) [f](https://x.org)"
    assert sources.outward(text, page, {"labs/01.ipynb"}, tmp_path).split(" ") == [
        "[a](../labs/01.ipynb)",
        "[b](https://github.com/a/b/blob/main/course.toml#x)",
        "[c](https://github.com/a/b/tree/main/src)",
        "[d](none.md)",
        "[e](#here)",
        "[f](https://x.org)",
    ]


# ---- in the browser ----


def pages(site: Path) -> list[Path]:
    """Every page but the decks, which tests/test_slides.py looks at, and the source code."""
    decks = {site / "slides" / f"{chapter.name}.html" for chapter in CHAPTERS}
    found = [path for path in sorted(site.rglob("*.html")) if path not in decks]
    return [path for path in found if not path.relative_to(site).parts[0].startswith("_")]


def test_no_page_is_wider_than_a_phone(site, chromium):
    # Scripts change no width, and cost half of the time.
    with chromium.new_context(viewport={"width": 390, "height": 844}, java_script_enabled=False) as context:
        tab, wide = context.new_page(), []
        for page in pages(site):
            tab.goto(page.as_uri())
            if (found := tab.evaluate("document.documentElement.scrollWidth")) > 390:
                wide.append(f"{page.relative_to(site)}: {found} px")
    assert wide == []


def test_code_is_read_without_scrolling_sideways(site, tab):
    for width in (1280, 390):
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


def test_formulas_and_menu_work(site, tab):
    tab.goto((site / "notebooks" / "00_getting_started.html").as_uri())
    tab.locator("mjx-container").first.wait_for()
    assert tab.locator("mjx-container").count() == tab.locator(".math").count() > 3
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.locator(".bd-header .primary-toggle").click()
    last = [chapter for chapter in CHAPTERS if "lecture" in chapter.kinds][-1]
    tab.get_by_role("link", name=f"{last.number} · {last.title}", exact=True).first.click()
    tab.wait_for_url(f"**/{last.name}.html")


def test_search_works_from_a_double_click(site, tab):
    """Without a server a browser lets no page read another one: the results come without the words around them."""
    tab.add_init_script("window.fetch = () => new Promise(() => {})")
    for words, found in ("evaluate", "evaluate"), ("gradient descent", "The training loop"):
        tab.goto((site / "search.html").as_uri() + f"?q={words}")
        tab.locator("#search-results li a", has_text=found).first.wait_for()
