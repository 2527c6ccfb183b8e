"""What a run says: a table on the terminal, report.html, report.json, and an HTML page of each executed notebook.

Everything that is written here opens without network: no script, font or picture comes from elsewhere.
"""

import base64
import html
import io
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import pass_context
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import math_to_image
from nbconvert import HTMLExporter
from nbconvert.exporters import TemplateExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from tools.result import Number, Result

# ---------------------------------------------------------------------------------------------------------------------
# Pages


class _Renderer(IPythonRenderer):
    """Markdown with formulas as pictures: JupyterLab's MathJax is a script from the network."""

    def inline_math(self, body: str) -> str:
        return _formula(body, size=11)

    def block_math(self, body: str) -> str:
        large = body.replace(r"\frac", r"\dfrac")
        return f'<p style="text-align:center">{_formula(large, size=13)}</p>'


def _formula(tex: str, size: int) -> str:
    """A formula as an SVG picture drawn by matplotlib, on the line of the text; as code where matplotlib does not
    know the TeX. size: of the font in points."""
    tex = " ".join(tex.split())
    svg = io.BytesIO()
    try:
        depth = math_to_image(f"${tex}$", svg, prop=FontProperties(size=size), format="svg", dpi=72)
    except (ValueError, RuntimeError):
        return f"<code>{html.escape(tex)}</code>"
    data = base64.b64encode(svg.getvalue()).decode()
    style = f"vertical-align:{-depth:.1f}pt;max-width:100%"
    return f'<img alt="{html.escape(tex)}" style="{style}" src="data:image/svg+xml;base64,{data}">'


# Cells and outputs that the keyboard should reach: they may need scrolling.
FOCUSABLE = re.compile(r'<div class="(?:jp-Cell-inputWrapper|(?:[^">]* )?jp-OutputArea-output)(?: [^">]*)?"')


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
        resources = self._init_resources(resources)
        page, resources = TemplateExporter.from_notebook_node(self, notebook, resources, **options)
        return FOCUSABLE.sub(r'\g<0> tabindex="0"', page), resources

    @pass_context
    def markdown2html(self, context: dict, source: str) -> str:
        attachments = context.get("cell", {}).get("attachments", {})
        path = context.get("resources", {}).get("metadata", {}).get("path", "")
        renderer = _Renderer(escape=False, attachments=attachments, path=path, anchor_link_text="")
        return MarkdownWithMath(renderer=renderer).render(source)


def write_page(notebook: Path, title: str) -> Path:
    """Write an HTML page of an executed notebook beside it, and return its path."""
    exporter = _Page(log=logging.getLogger("quiet"))
    exporter.log.setLevel(logging.CRITICAL)
    content = nbformat.read(notebook, as_version=4)
    content.metadata["title"] = title
    page, _ = exporter.from_notebook_node(content, resources={"metadata": {"path": str(notebook.parent)}})
    # A picture from elsewhere (a badge) becomes its words.
    remote = re.compile(r"""<img\b[^>]*\bsrc=["']https?://[^>]*>""")
    alt = re.compile(r"""\balt=(["'])(.*?)\1""")
    page = remote.sub(lambda tag: "".join(words for _, words in alt.findall(tag[0])), page)
    path = notebook.with_suffix(".html")
    path.write_text(page, encoding="utf-8")
    return path


# ---------------------------------------------------------------------------------------------------------------------
# The table on the terminal


def _of(value: float, limit: float | None) -> str:
    """A measured value and its budget."""
    return (
        f"{value:.1f} of {limit:g}"
        if limit and value < 100
        else f"{value:.0f} of {limit:g}"
        if limit
        else f"{value:.0f}"
    )


def _number(number: Number) -> str:
    """A recorded number in words."""
    value = "not recorded" if number.value is None else f"{number.value:.4g}"
    if number.low is None or number.low < number.high:
        place = "" if number.low is None else f" in {number.low:g} to {number.high:g}"
        return f"{number.name} {value}{place}: {number.verdict}"
    return f"{number.name}: {value}, " + ("as expected" if number.verdict == "in range" else f"not {number.low:g}")


def one_line(result: Result) -> str:
    """A result in one line: the notebook, its verdict, its seconds, and the first thing that went wrong."""
    why = f": {result.failures[0].splitlines()[0]}" if result.failures else ""
    return f"{result.chapter} {result.kind}: {result.status}, {result.seconds:.0f} s{why}"


SECONDS = (
    "Seconds are wall-clock time or processor time, whichever is less, "
    "so what else this machine does at the same time hardly counts."
)
BUDGET = (
    "A budget is what a notebook takes on two idle cores, plus some margin. Up to three times its budget, a notebook "
    "passes: your machine is slow or busy, and nothing is wrong with your installation."
)


def summary(results: list[Result]) -> str:
    """How many notebooks passed, passed over budget, and failed."""
    count = Counter(result.status for result in results)
    words = [f"{count['passed']} passed"] if count["passed"] else []
    words += [f"{count['over budget']} passed over budget"] if count["over budget"] else []
    return ", ".join([*words, f"{count['failed'] or 'none'} failed"])


def table(results: list[Result]) -> str:
    """The results as text: a row for each notebook, below it whatever there is to say about it."""
    rows = [("chapter", "notebook", "device", "data", "seconds", "peak MiB", "result")]
    rows += [
        (
            r.chapter,
            r.kind,
            r.device,
            r.origin,
            _of(r.judged_seconds, (r.budget or {}).get("seconds")),
            _of(r.mib, (r.budget or {}).get("mib")),
            r.status,
        )
        for r in results
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    text = lines[:2]
    for line, r in zip(lines[2:], results, strict=True):
        text.append(line)
        text += [f"    {_number(number)}" for number in r.numbers]
        text += [f"    {note}" for note in r.notes]
        text += [f"    FAILED: {failure}" for failure in r.failures]
        if r.error:
            text += [f"      | {code}" for code in r.error.source.splitlines()]
            text += [f"      {code}" for code in r.error.traceback]
    explained = [SECONDS, BUDGET] if any(r.status == "over budget" for r in results) else []
    return "\n".join([*text, "", *explained, summary(results)])


# ---------------------------------------------------------------------------------------------------------------------
# report.json and report.html

STYLE = """
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; background: #f5f6f8; margin: 0 }
main { max-width: 72rem; margin: 2.5rem auto; padding: 0 1.5rem }
h1 { font-size: 1.6rem; margin: 0 } header p { margin: .2rem 0 1.5rem; color: #555f6d }
table { border-collapse: collapse; width: 100%; background: #fff; box-shadow: 0 1px 3px #0002 }
th, td { text-align: left; vertical-align: top; padding: .55rem .8rem; border-bottom: 1px solid #e3e6ea }
th { font-size: .8rem; color: #555f6d; font-weight: 600 }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap } td.n small { display: block }
small { color: #66707e } a { color: #0b5cad }
.s { font-weight: 600; white-space: nowrap }
.passed { color: #00704f } .over { color: #8a5a00 } .failed { color: #b3261e }
ul { margin: 0; padding: 0; list-style: none }
tr.detail td { padding-top: 0 } tr.with-detail td { border-bottom: 0 }
.failure { color: #b3261e; overflow-wrap: anywhere } .note { color: #8a5a00 }
pre { background: #f5f6f8; border-left: 4px solid #b3261e; padding: .6rem .9rem; overflow-x: auto; font-size: .85rem }
pre.trace { border-color: #c9ced6 }
@media (max-width: 48rem) {  /* a phone: each notebook is a block, each value a line with its name */
  main { padding: 0 .5rem } thead { display: none } table, tbody, tr, td { display: block; border: 0 }
  td, td.n { text-align: left; padding: .1rem .8rem; border: 0; overflow-wrap: anywhere; white-space: normal }
  tr { padding: .5rem 0; border-bottom: 1px solid #e3e6ea } tr.with-detail { border: 0 } td.n small { display: inline }
  td[data-head]::before { content: attr(data-head) ": "; color: #555f6d }
}
"""
SIGNS = {"passed": "✓ passed", "over budget": "△ passed over budget", "failed": "✗ failed"}
HEADS = ("notebook", "device", "data", "seconds", "peak MiB", "KB", "recorded numbers", "result")


def as_json(results: list[Result]) -> list[dict]:
    """Results as plain data, with their verdicts."""
    return [
        asdict(result)
        | {"status": result.status, "numbers": [asdict(n) | {"verdict": n.verdict} for n in result.numbers]}
        for result in results
    ]


def _rows(result: Result) -> str:
    """The row of a notebook, and below it one with failures and notes if there are any."""
    text = html.escape
    budget = result.budget or {}
    name = text(f"{result.chapter} · {result.kind}")
    numbers = "".join(
        f'<li class="{"failure" if n.verdict in ("out of range", "missing") else ""}">{text(_number(n))}</li>'
        for n in result.numbers
    )
    details = "".join(f'<div class="failure">{text(failure)}</div>' for failure in result.failures)
    details += "".join(f'<div class="note">{text(note)}</div>' for note in result.notes)
    if error := result.error:
        details += (
            f"<p>Code cell {error.number} <small>(id {text(error.id)})</small> ended with {text(error.name)}:</p>"
            f"<pre>{text(error.source)}</pre><pre class='trace'>{text(chr(10).join(error.traceback))}</pre>"
        )
    cells = [
        ("", f"<a href={json.dumps(text(result.page))}>{name}</a>" if result.page else name),
        ("", text(result.device)),
        ("", text(result.origin)),
        *(
            ("n", f"{value:.{digits}f} <small>{f'of {budget[unit]:g}' if budget else 'no budget'}</small>")
            for value, unit, digits in ((result.judged_seconds, "seconds", 1), (result.mib, "mib", 0))
        ),
        ("n", f"{result.kilobytes:.0f}"),
        ("", f"<ul>{numbers}</ul>"),
        (f"s {result.status.split()[0]}", SIGNS[result.status]),
    ]
    row = "".join(
        f'<td class="{look}" data-head="{head}">{cell}</td>' for head, (look, cell) in zip(HEADS, cells, strict=True)
    )
    row = f"<tr{' class=with-detail' if details else ''}>{row}</tr>"
    return row + (f'<tr class="detail"><td colspan="8">{details}</td></tr>' if details else "")


def write(
    results: list[Result], out: Path, title: str, device: str, interrupted: bool = False, about: Sequence[str] = ()
) -> None:
    """Write report.html and report.json to the folder `out`.

    device: what the notebooks ran on, in words. interrupted: the run was ended before its last notebook. about:
        sentences about this machine.
    """
    out.mkdir(parents=True, exist_ok=True)
    data = {"title": title, "device": device, "interrupted": interrupted, "results": as_json(results)}
    (out / "report.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    first = f"{len(results)} notebooks on {device}: {summary(results)}" + (", interrupted" * interrupted)
    words = "".join(f"<p>{html.escape(line)}</p>" for line in (first, *about, f"{SECONDS} {BUDGET}"))
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}: report</title><style>{STYLE}</style></head>
<body><main><header><h1>{html.escape(title)}</h1>{words}</header>
<table><thead><tr>{"".join(f"<th>{head}</th>" for head in HEADS)}</tr></thead>
<tbody>{"".join(map(_rows, results))}</tbody></table></main></body></html>
"""
    (out / "report.html").write_text(page, encoding="utf-8")
