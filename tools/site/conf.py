"""Settings of Sphinx for the site, and the little that it needs beyond them. Started by `python -m tools.site`."""

import json
import re

from pygments.lexers import PythonLexer
from pygments.token import Comment
from sphinx.application import Sphinx

from tools import course, slides
from tools.site import docstrings, metadata, sources

project = html_title = course.manifest()["title"]
project_copyright = "the authors. Text and pictures CC BY 4.0, code BSD 3-Clause"
extensions = ["myst_nb", "sphinx_copybutton"]
extensions += [f"sphinx.ext.{name}" for name in ("autodoc", "autosummary", "mathjax", "viewcode", "githubpages")]
nitpicky = True
# Without a network only our own names can be looked up; those of Python and PyTorch stay plain text.
nitpick_ignore_regex = [("py:.*", r"(?!torchcourse\.).*")]

# Notebooks: as they were executed, nothing is run here.
nb_execution_mode = "off"
nb_merge_streams = True
nb_output_stderr = "remove"
myst_enable_extensions = ["attrs_block", "dollarmath"]
myst_heading_anchors = 4
# A cell may write a job script or C++: its text is not Python and stays plain. Numbers for the runner are not shown.
suppress_warnings = ["misc.highlighting_failure", "mystnb.unknown_mime_type"]

# The package.
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autosummary_generate = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 76
add_module_names = False

# Pages.
html_theme = "pydata_sphinx_theme"
html_baseurl = sources.home() if sources.home() != "/" else ""
html_static_path = ["theme/static", *map(str, (course.ROOT / "docs").glob("*.png"))]
html_static_path.append(str(slides.fetch_packages() / "mathjax" / "es5" / "tex-svg.js"))
html_css_files = ["site.css"]
html_favicon = "theme/static/logo.svg"
html_copy_source = False
html_use_index = html_domain_indices = False  # the search knows every name
html_show_sphinx = False
mathjax_path = "tex-svg.js"
templates_path = ["theme/components"]
html_sidebars = {"index": [], "_modules/**": [], "[!_]**": ["course-nav"]}  # source code has the whole width
html_theme_options = {
    "logo": {"image_light": "_static/logo.svg", "image_dark": "_static/logo.svg", "text": project, "alt_text": ""},
    "navbar_start": ["navbar-logo"],
    "navbar_center": [],
    "navbar_end": ["site-links", "theme-switcher", "navbar-icon-links"],
    "navbar_persistent": ["search-button-field"],
    "article_header_start": [],
    "secondary_sidebar_items": ["page-toc"],
    "icon_links": [{"name": "Repository", "url": course.address().removesuffix(".git"), "icon": "fa-brands fa-github"}],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "search_bar_text": "Search the course",
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}  # light or dark as the reader's system says, until the reader chooses

# External links are followed only where there is a network: python -m tools.site --external
linkcheck_anchors = False
# Made from the address in course.toml: they are right once the repository is there, and they are hundreds.
linkcheck_ignore = [re.escape(course.address().removesuffix(".git")) + ".*", r"https://colab\.research\.google\.com/.*"]


class CellLexer(PythonLexer):
    """Python as it is in cells: lines that start with % or ! are for Jupyter."""

    name = "cell"
    aliases = ("course-cell",)
    tokens = {"root": [(r"^(%%?\w|!).*\n?", Comment.Preproc), *PythonLexer.tokens["root"]]}  # noqa: RUF012


RESOURCES = metadata.resources()


def describe(app: Sphinx, page: str, template: str, context: dict, document: object) -> None:
    """Sphinx's event: put what portals read into the head of a chapter's page."""
    if page in RESOURCES:
        text = json.dumps(RESOURCES[page], ensure_ascii=False).replace("<", r"\u003c")  # no </script> inside
        context["metatags"] += f'<script type="application/ld+json">{text}</script>'


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", describe)
    app.add_lexer("course-cell", CellLexer)
    app.connect("autodoc-process-docstring", docstrings.process_docstring)
    app.connect("autodoc-skip-member", docstrings.skip)
