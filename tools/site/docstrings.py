"""The docstrings of `torchcourse` for Sphinx.

They are written for people who read the source: plain English, `code` in single backticks, examples indented by four,
and a line `name: what it means` for an argument. Sphinx reads reStructuredText. What it cannot read, it names.
"""

import ast
import contextlib
import inspect
import re
import textwrap

from sphinx.application import Sphinx

EXAMPLE = re.compile(r"(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+")
ARGUMENT = re.compile(r"(\w+(?:, \w+)*): +(?=\S)")


def to_rst(text: str, names: set[str] = frozenset()) -> str:
    """A docstring as reStructuredText. A line `name: words` describes an argument (or a field) if it is in `names`."""
    written, inside = [], False  # inside: among arguments
    for line in EXAMPLE.sub(example, re.sub(r"`([^`]+)`", r"``\1``", text)).split("\n"):
        argument = ARGUMENT.match(line)
        if argument and names.issuperset(argument[1].split(", ")):
            written += [] if inside else ["", ".. rst-class:: arguments", ""]
            written += [re.sub(r"(\w+)", r"``\1``", argument[1]), f"    {line[argument.end() :]}"]
            inside = True
        elif inside and line and not (line[0].isupper() and written[-1].endswith((".", ":", "?", "!"))):
            written.append(f"    {line.strip()}")  # the argument goes on
        else:
            written += ["", line] if inside else [line]
            inside = False
    return "\n".join(written)


def example(match: re.Match) -> str:
    """Python, in cells perhaps with a magic, or text: a call with its meaning beside it, commands."""
    language = "text"
    with contextlib.suppress(SyntaxError):
        ast.parse(re.sub(r"^%%.*", "", textwrap.dedent(match[0])))
        language = "course-cell"
    return f".. code-block:: {language}\n\n{match[0]}\n"


def fields(cls: type) -> list[str]:
    """The fields of a class that have a comment behind them, as lines `name: comment`."""
    return [": ".join(found) for found in re.findall(r"(?m)^    ([a-z]\w*): .*?  # (.+)", inspect.getsource(cls))]


def process_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Autodoc's event: translate a docstring in place."""
    if not (name if what == "module" else getattr(obj, "__module__", None) or name).startswith("torchcourse"):
        return  # imported from elsewhere: not shown, only looked at
    text, names = "\n".join([*lines, ""]), {"returns", "yields"}
    if isinstance(obj, type):
        text += "\n".join([*fields(obj), ""])
        names |= set(re.findall(r"(?m)^([a-z]\w*): ", text))
    if callable(obj):
        with contextlib.suppress(TypeError, ValueError):
            names |= set(inspect.signature(obj).parameters)
    lines[:] = to_rst(text, names).split("\n")


def skip(app: Sphinx, what: str, name: str, obj: object, skipped: bool, options: object) -> bool | None:
    """Autodoc's event: the fields of a named tuple are described with the class, not each as "alias for field 0"."""
    return True if (inspect.getdoc(obj) or "").startswith("Alias for field number") else None
