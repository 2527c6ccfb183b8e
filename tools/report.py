"""What a run says: a table on the terminal, report.html, report.json, and an HTML page of each executed notebook.

Everything that is written here opens without network: no script, font or picture comes from elsewhere.
"""

import html
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import HTMLExporter
from nbconvert.exporters import TemplateExporter
from nbconvert.filters import Highlight2HTML

from tools.result import Number, Result

# ---------------------------------------------------------------------------------------------------------------------
# Pages


class _Page(HTMLExporter):
    """JupyterLab's look, without the scripts that it loads from elsewhere, and with the figures' alternative texts."""

    raw_template = """{%- extends 'index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_css -%}<style>
main { max-width: 62rem; margin: auto }
.celltag_setup .jp-Cell-inputWrapper { display: none }  /* long, and the same everywhere */
</style>{%- endblock -%}
{%- block data_png scoped -%}
<div class="jp-RenderedImage jp-OutputArea-output"><img src="data:image/png;base64,{{ output.data['image/png'] }}"
alt="{{ (output | get_metadata('alt', 'image/png') or '') | escape_html }}"></div>
{%- endblock -%}
"""

    def default_filters(self) -> Iterator[tuple[str, Any]]:
        """nbconvert's, without its parse of each code cell for what might harm: Pygments has made the HTML."""
        yield from super().default_filters()
        yield "highlight_code", Highlight2HTML(pygments_lexer="ipython3", parent=self)
        yield "clean_html", lambda html: html

    def from_notebook_node(self, notebook: nbformat.NotebookNode, resources: dict | None = None, **options: Any) -> Any:
        """The page. HTMLExporter's own parses it once more, which takes a second, for what a replacement does."""
        return TemplateExporter.from_notebook_node(self, notebook, self._init_resources(resources), **options)


def write_page(notebook: Path, title: str) -> Path:
    """Write an HTML page of an executed notebook beside it, and return its path. Formulas stay as TeX."""
    exporter = _Page(log=logging.getLogger("quiet"))
    exporter.log.setLevel(logging.CRITICAL)
    content = nbformat.read(notebook, as_version=4)
    content.metadata["title"] = title
    page, _ = exporter.from_notebook_node(content)
    path = notebook.with_suffix(".html")
    path.write_text(page, encoding="utf-8")
    return path


# ---------------------------------------------------------------------------------------------------------------------
# The table on the terminal

HEADS = ("chapter", "notebook", "device", "data", "seconds", "peak MiB", "KB", "result")
SECONDS = (
    "Seconds are wall-clock time or processor time, whichever is less, "
    "so what else this machine does at the same time hardly counts."
)
BUDGET = (
    "A budget is what a notebook takes on two idle cores, plus some margin. Up to three times its budget, a notebook "
    "passes: your machine is slow or busy, and nothing is wrong with your installation."
)


def _row(result: Result) -> tuple[str, ...]:
    """The cells of a result in a table, as in HEADS."""
    budget = result.budget or {}
    measured = (
        f"{value:.{1 if value < 100 else 0}f}" + (f" of {budget[unit]:g}" if budget else "")
        for value, unit in ((result.judged_seconds, "seconds"), (result.mib, "mib"))
    )
    size = f"{result.kilobytes:.0f}"
    return (result.chapter, result.kind, result.device, result.origin, *measured, size, result.status)


def _number(number: Number) -> str:
    """A recorded number in words."""
    value = "not recorded" if number.value is None else f"{number.value:.4g}"
    if number.low is None or number.low < number.high:
        place = "" if number.low is None else f" in {number.low:g} to {number.high:g}"
        return f"{number.name} {value}{place}: {number.verdict}"
    return f"{number.name}: {value}, " + ("as expected" if number.verdict == "in range" else f"not {number.low:g}")


def _details(result: Result) -> list[str]:
    """What there is to say about a result besides its row."""
    lines = [*map(_number, result.numbers), *result.notes, *(f"FAILED: {failure}" for failure in result.failures)]
    if error := result.error:
        lines += [f"  code cell {error.number} (id {error.id}):"]
        lines += [f"  | {line}" for line in error.source.splitlines()]
        lines += [f"  {line}" for line in error.traceback]
    return lines


def one_line(result: Result) -> str:
    """A result in one line: the notebook, its verdict, its seconds, and the first thing that went wrong."""
    why = f": {result.failures[0].splitlines()[0]}" if result.failures else ""
    return f"{result.chapter} {result.kind}: {result.status}, {result.seconds:.0f} s{why}"


def summary(results: list[Result]) -> str:
    """How many notebooks passed, passed over budget, and failed."""
    count = Counter(result.status for result in results)
    words = [f"{count['passed']} passed"] if count["passed"] else []
    words += [f"{count['over budget']} passed over budget"] if count["over budget"] else []
    return ", ".join([*words, f"{count['failed'] or 'none'} failed"])


def table(results: list[Result]) -> str:
    """The results as text: a row for each notebook, below it whatever there is to say about it."""
    rows = [HEADS, *map(_row, results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    text = [head, "  ".join("-" * width for width in widths)]
    for line, result in zip(lines, results, strict=True):
        text += [line, *(f"    {detail}" for detail in _details(result))]
    explained = [SECONDS, BUDGET] if any(result.status == "over budget" for result in results) else []
    return "\n".join([*text, "", *explained, summary(results)])


# ---------------------------------------------------------------------------------------------------------------------
# report.json and report.html

STYLE = """
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; max-width: 72rem; margin: 2.5rem auto; padding: 0 1.5rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .55rem .8rem; border-top: 1px solid #e3e6ea }
a { color: #0b5cad } td.passed { color: #00704f } td.over { color: #8a5a00 } td.failed { color: #b3261e }
td[colspan] { border: 0; padding-top: 0 } pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere }
"""


def _rows(result: Result) -> str:
    """The row of a notebook, and below it one with whatever there is to say about it."""
    chapter, *cells, status = map(html.escape, _row(result))
    if result.page:
        chapter = f'<a href="{html.escape(result.page)}">{chapter}</a>'
    row = "".join(f"<td>{cell}</td>" for cell in (chapter, *cells))
    row += f'<td class="{status.split()[0]}">{status}</td>'
    details = html.escape("\n".join(_details(result)))
    return f'<tr>{row}</tr><tr><td colspan="{len(HEADS)}"><pre>{details}</pre></td></tr>\n'


def write(
    results: list[Result], out: Path, title: str, device: str, interrupted: bool = False, about: Sequence[str] = ()
) -> None:
    """Write report.html and report.json to the folder `out`.

    device: what the notebooks ran on, in words. interrupted: the run was ended before its last notebook. about:
        sentences about this machine.
    """
    out.mkdir(parents=True, exist_ok=True)
    data = {"title": title, "device": device, "interrupted": interrupted}
    data["results"] = [
        asdict(result)
        | {"status": result.status, "numbers": [asdict(n) | {"verdict": n.verdict} for n in result.numbers]}
        for result in results
    ]
    (out / "report.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    first = f"{len(results)} notebooks on {device}: {summary(results)}" + (", interrupted" * interrupted)
    words = "".join(f"<p>{html.escape(line)}</p>" for line in (first, *about, f"{SECONDS} {BUDGET}"))
    title = html.escape(title)
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}: report</title><style>{STYLE}</style></head>
<body><h1>{title}</h1>{words}
<table><tr>{"".join(f"<th>{head}</th>" for head in HEADS)}</tr>
{"".join(map(_rows, results))}</table></body></html>
"""
    (out / "report.html").write_text(page, encoding="utf-8")
