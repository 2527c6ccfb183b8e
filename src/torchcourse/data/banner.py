"""The banner over everything that runs on synthetic data, so that its numbers are not mistaken for real ones."""

import html
import os
import sys
import textwrap
from pathlib import Path

from torchcourse.data.catalog import fetch_command, spec
from torchcourse.place import in_notebook
from torchcourse.record import MIME

TOLD = "TORCHCOURSE_TOLD"  # names of data sets: what a process has told, those that it starts need not tell again
_shown: set[str] = set()


def show(name: str, reason: str, root: Path) -> None:
    """Says once per process and data set that the images are synthetic, why, and how to get the real ones.

    HTML in Jupyter, a frame of text on the error stream elsewhere (one rank's only, where several run). A notebook
    always shows it, whatever the server that started it has told: its readers, and `make run`, look for it there.
    """
    if name in _shown or os.environ.get("RANK", "0") != "0":
        return
    _shown.add(name)
    told = os.environ.get(TOLD, "").split()
    os.environ[TOLD] = " ".join(dict.fromkeys([*told, name]))
    if name in told and not in_notebook():
        return
    title = spec(name).title
    head = f"SYNTHETIC IMAGES, NOT {title.upper()}"
    body = (
        f"No {title} was found in {root} ({reason}). You are working on a look-alike that is built into the course. "
        "Everything runs, but accuracies are not those of the real data."
    )
    todo = "To get the real data, run this in a terminal (on a machine with network), then restart here:"
    command = fetch_command(name, root)
    text = _framed([f"!!  {head}", *textwrap.wrap(body, 92), todo, f"    {command}"])
    if not in_notebook():
        print(text, file=sys.stderr, flush=True)
        return
    from IPython.display import display

    page = (
        '<div role="alert" style="border:3px solid #d55e00;border-left-width:14px;border-radius:4px;padding:.6em 1em;'
        'margin:.4em 0;background:#fff4e5;color:#222;font-size:14px;line-height:1.5">'
        f'<div style="font-weight:700;font-size:18px;color:#8a3b00">{html.escape(head)}</div>'
        f"<div>{html.escape(body)}</div><div>{html.escape(todo)}</div>"
        '<pre style="margin:.3em 0 0;padding:.3em .6em;background:#fff;color:#222;white-space:pre-wrap">'
        f"{html.escape(command)}</pre></div>"
    )
    display({"text/html": page, "text/plain": text, MIME: {"origin": "synthetic"}}, raw=True)


def _framed(lines: list[str]) -> str:
    width = max(map(len, lines))
    rule = "#" * (width + 4)
    return "\n".join([rule, *(f"# {line:<{width}} #" for line in lines), rule])
