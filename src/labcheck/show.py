"""How outcomes look: HTML in Jupyter, plain text elsewhere."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Any

import torch

from torchcourse.place import in_notebook
from torchcourse.record import MIME

# outcome -> (sign, color). The sign and the word say the same as the color. White text is readable on each of them, in
# every notebook theme.
LOOKS = {
    "correct": ("✓", "#008562"),
    "not attempted": ("○", "#6B6B6B"),
    "not checked": ("○", "#6B6B6B"),
    "incorrect": ("✗", "#C05200"),
    "error": ("!", "#B5338A"),
    "unknown": ("?", "#6B6B6B"),
    "hint": ("→", "#0072B2"),
}


@dataclass(frozen=True)
class Result:
    """What a check found. `outcome` is correct, not attempted, incorrect, error, not checked, or unknown."""

    name: str
    outcome: str
    message: str
    expected: str | None = None
    yours: str | None = None
    look: str | None = None
    footer: str | None = None
    misconception: str | None = None  # its key in `Exercise.sentences`, if the answer shows a known one
    judge_failed: Exception | None = None  # the check itself stumbled over a strange answer; tests forbid it

    @property
    def correct(self) -> bool:
        return self.outcome == "correct"

    @property
    def looks(self) -> tuple[str, str]:
        """Its sign and its color. "hint 1 of 3" looks like any other hint."""
        return LOOKS["hint" if self.outcome.startswith("hint") else self.outcome]

    def lines(self) -> list[tuple[str, str]]:
        """The details, as (label, text)."""
        pairs = [("expected", self.expected), ("yours", self.yours), ("look at", self.look), ("", self.footer)]
        return [(label, text) for label, text in pairs if text]

    @property
    def text(self) -> str:
        head = f"{self.looks[0]} {self.name}: {self.outcome}. {self.message}"
        return "\n".join([head, *(f"    {label + ': ' if label else ''}{text}" for label, text in self.lines())])

    @property
    def html(self) -> str:
        sign, color = self.looks
        details = "".join(
            f'<div style="margin-top:2px">{f"<i>{label}</i>: " if label else ""}{_inline(text)}</div>'
            for label, text in self.lines()
        )
        return (
            f'<div style="border-left:5px solid {color};padding:6px 12px;line-height:1.45">'
            f"{_badge(color, f'{sign} {html.escape(self.outcome)}')} "
            f"<code>{html.escape(self.name)}</code><div>{_inline(self.message)}</div>{details}</div>"
        )


def _badge(color: str, words: str) -> str:
    """White text on a color."""
    return f'<b style="background:{color};color:#ffffff;padding:1px 7px;border-radius:3px">{words}</b>'


def _inline(text: str) -> str:
    """Escaped text in which `code` between backticks is set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


class Foreign:
    """Stands for an object that stayed in another process: all that came across is what `show` says about it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def show(value: Any) -> str:
    """A short description of a value: enough to see what it is, short enough to read."""
    if isinstance(value, Foreign):
        return value.text
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        shape = f"shape {tuple(value.shape)}" if value.dim() <= 64 else f"{value.dim()} dimensions"
        kind = f"{'an' if dtype[0] in 'aeio' else 'a'} {dtype} tensor of {shape}"
        readable = value.layout == torch.strided and not value.is_meta and value.dim() <= 64  # more would crash Python
        return kind if value.numel() > 6 or not readable else f"{kind}: {value.detach().cpu().tolist()}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, torch.nn.Module):
        return f"a model ({type(value).__name__})"
    if callable(value):
        return f"the function {getattr(value, '__name__', type(value).__name__)}"
    if isinstance(value, list | tuple) and any(isinstance(part, torch.nn.Module | Foreign) for part in value):
        value = type(value)([Foreign(show(part)) if isinstance(part, torch.nn.Module) else part for part in value])
    try:
        text = repr(value)
    except Exception:
        text = "(cannot be shown)"
    text = text if len(text) <= 80 else text[:77] + "..."
    simple = (int, float, bool, str, bytes, list, tuple, dict, torch.dtype, torch.device, type(None))
    return text if isinstance(value, simple) else f"{text} ({type(value).__name__})"


def _display(html_text: str, text: str, **for_the_runner: Any) -> None:
    if in_notebook():
        from IPython.display import display

        told = {MIME: for_the_runner} if for_the_runner else {}
        display({"text/html": html_text, "text/plain": text, **told}, raw=True)
    else:
        print(text)


def show_result(result: Result) -> None:
    """Show a result under the cell, or print it."""
    if result.outcome.startswith("hint"):
        _display(result.html, result.text)
    else:
        _display(result.html, result.text, outcomes={result.name: result.outcome})


def render_progress(rows: list[tuple[str, str, str, int]], points: int, of: int) -> None:
    """Show the table of exercises: name, title, outcome, attempts; and the points."""
    done = sum(outcome == "correct" for _, _, outcome, _ in rows)
    head = f"{done} of {len(rows)} exercises correct, {points} of {of} points"
    text = [head]
    cells = []
    for name, title, outcome, attempts in rows:
        sign, color = LOOKS[outcome]
        tries = f"{attempts} {'try' if attempts == 1 else 'tries'}" if attempts else ""
        text.append(f"  {sign} {name:<24} {outcome:<14} {tries}".rstrip())
        cells.append(
            f'<tr><td>{_badge(color, sign)}</td><td style="text-align:left">{html.escape(title)}</td>'
            f'<td style="text-align:left"><code>{html.escape(name)}</code></td>'
            f'<td style="text-align:left">{outcome}</td><td>{tries}</td></tr>'
        )
    _display(f"<b>{head}</b><table>{''.join(cells)}</table>", "\n".join(text))
