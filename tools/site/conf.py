"""Settings of Sphinx for the site, and the little that it needs beyond them. Started by `python -m tools.site`."""

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from docutils import nodes
from pygments.lexers import PythonLexer
from pygments.token import Comment
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.writers.html5 import HTML5Translator

from tools import course
from tools.site import api, notebook, sources

project = html_title = course.manifest()["title"]
author = "the authors of the course"
project_copyright = "the authors. Text and pictures CC BY 4.0, code BSD 3-Clause"
extensions = [
    "myst_nb",
    "sphinx_copybutton",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "sphinx.ext.githubpages",
]
nitpicky = True
# Without a network only our own names can be looked up; those of Python and PyTorch stay plain text.
nitpick_ignore_regex = [("py:.*", r"(?!torchcourse\.).*")]

# Notebooks: as they were executed, nothing is run here.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["attrs_block", "dollarmath"]
myst_heading_anchors = 4
# A cell may write a job script or C++: its text is not Python and stays plain.
suppress_warnings = ["misc.highlighting_failure"]

# The package.
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 76
add_module_names = False
linkcode_resolve = api.source_address

# Pages.
html_theme = "sphinx_book_theme"
html_baseurl = sources.home() if sources.home() != "/" else ""
html_static_path = ["theme/static"]
html_css_files = ["site.css"]
html_favicon = "theme/static/logo.svg"
html_copy_source = False
html_use_index = html_domain_indices = False  # the search knows every name
html_show_sphinx = False
html_math_renderer = "katex"
templates_path = ["theme/components"]
html_sidebars = {"index": [], "**": ["sbt-sidebar-nav.html"]}
html_theme_options = {
    "logo": {"image_light": "_static/logo.svg", "image_dark": "_static/logo.svg", "text": project, "alt_text": ""},
    "navbar_start": ["navbar-logo"],
    "navbar_center": [],
    "navbar_end": ["site-links", "theme-switcher", "navbar-icon-links"],
    "navbar_persistent": ["search-button-field"],
    "article_header_start": [],
    "article_header_end": [],
    "icon_links": [{"name": "Repository", "url": course.address().removesuffix(".git"), "icon": "fa-brands fa-github"}],
    "footer_content_items": ["copyright"],
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "toc_title": "On this page",
    "search_bar_text": "Search the course",
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}  # light or dark as the reader's system says, until the reader chooses
copybutton_exclude = ".linenos, .gp, .go"

# External links are followed only where there is a network: python -m tools.site --external
linkcheck_anchors = False
# Made from the address in course.toml: they are right once the repository is there, and they are hundreds.
linkcheck_ignore = [re.escape(course.address().removesuffix(".git")) + ".*", r"https://colab\.research\.google\.com/.*"]
linkcheck_timeout = 20
linkcheck_retries = 2


class CellLexer(PythonLexer):
    """Python as it is in cells: lines that start with % or ! are for Jupyter."""

    name = "cell"
    aliases = ("course-cell",)
    filenames = ()
    tokens = {"root": [(r"^(%%?\w|!).*\n?", Comment.Preproc), *PythonLexer.tokens["root"]]}  # noqa: RUF012


def use_work_folder(app: Sphinx, config: Config) -> None:
    """What `sources` put beside the pages: files that are published as they are, and KaTeX."""
    config.html_extra_path = [str(app.srcdir.parent / "extra")]
    config.html_static_path.append(str(app.srcdir.parent / "static"))


def describe_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Give the pictures in a notebook's outputs their alt text, which myst-nb does not read from there."""
    path = app.env.doc2path(app.env.docname)
    if path.suffix != ".ipynb":
        return
    alt = notebook.descriptions(nbformat.read(path, as_version=4))
    for image in doctree.findall(nodes.image):
        if words := alt.get(Path(image["uri"]).name):
            image["alt"] = words


def add_katex(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """KaTeX for the pages that have a formula, no script for the others."""
    if doctree and any(formulas(doctree)):
        app.add_css_file("katex.css")
        app.add_js_file("katex.js", priority=700)
        app.add_js_file(None, body=TYPESET, priority=701)


def formulas(doctree: nodes.document) -> Iterator[nodes.Node]:
    yield from doctree.findall(lambda node: isinstance(node, (nodes.math, nodes.math_block)))


TYPESET = """addEventListener("DOMContentLoaded", () => window.katex && document.querySelectorAll(".math").forEach(
  place => katex.render(place.textContent, place, {displayMode: place.tagName === "DIV", throwOnError: false})))"""


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(f'<span class="math notranslate">{self.encode(node.astext())}</span>')
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math notranslate">{self.encode(node.astext())}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_lexer("course-cell", CellLexer)
    app.add_html_math_renderer("katex", inline_renderers=(visit_math, None), block_renderers=(visit_math_block, None))
    app.connect("config-inited", use_work_folder)
    app.connect("doctree-read", describe_pictures)
    app.connect("html-page-context", add_katex)
    app.connect("autodoc-process-docstring", api.process_docstring)
    app.connect("autodoc-skip-member", api.skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
