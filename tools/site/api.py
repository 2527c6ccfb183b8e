"""The reference of `torchcourse`: which modules it has, in reading order, and their docstrings for Sphinx.

The docstrings are written for people who read the source: plain English, `code` in single backticks, examples indented
by four, and a line `name: what it means` for an argument. Sphinx reads reStructuredText, where each of these is written
differently and a star or a bar is markup. `to_rst` translates.
"""

import ast
import contextlib
import inspect
import io
import os
import re
import sys
import textwrap
import tokenize
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

from tools import course
from tools.course import LAYERS, ROOT

PACKAGE = "torchcourse"

logger = logging.getLogger(__name__)


# ------------------------------------------------------------------------------------------------------------ the pages


def layers(source: Path) -> dict[str, list[str]]:
    """Title of a layer -> its modules; those that LAYERS does not know come last."""
    here = {path.stem for path in source.glob("*.py")} | {path.parent.name for path in source.glob("*/__init__.py")}
    here -= {"__init__", *(name for name in here if name.startswith("_"))}
    found = {title: [name for name in names.split() if name in here] for title, names in LAYERS.items()}
    rest = here - {name for names in found.values() for name in names}
    return found | ({"Further modules": sorted(rest)} if rest else {})


def pages(source: Path) -> dict[str, str]:
    """The pages of the reference as reStructuredText: index.rst, and one for each module right under the package."""
    written = {}
    lines = [
        "The package",
        "===========",
        "",
        f".. automodule:: {PACKAGE}",
        "   :members:",
        "   :ignore-module-all:",
        "",
    ]
    for title, modules in layers(source).items():
        lines += [title, "-" * len(title), "", ".. rst-class:: modules", ""]
        lines += [f":doc:`{name} <{name}>`\n   {escape(first_sentence(source, name))}" for name in modules]
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {name} <{name}>" for name in modules), ""]
        for name in modules:
            written[f"{name}.rst"] = module_page(source, name)
    return {"index.rst": "\n".join(lines)} | written


def module_page(source: Path, name: str) -> str:
    """One module. A package that lists no names of its own (`__all__`) is what its modules are: they follow it."""
    modules = [name]
    folder = source / name
    if folder.is_dir() and "__all__" not in (folder / "__init__.py").read_text(encoding="utf-8"):
        modules += [f"{name}.{path.stem}" for path in sorted(folder.glob("[!_]*.py"))]
    lines = []
    for module in modules:
        title = f"{PACKAGE}.{module}"
        lines += [
            title,
            ("=" if module == name else "-") * len(title),
            "",
            f".. automodule:: {title}",
            "   :members:",
            "",
        ]
    return "\n".join(lines)


def first_sentence(source: Path, name: str) -> str:
    """What a module says about itself first."""
    path = source / name / "__init__.py" if (source / name).is_dir() else source / f"{name}.py"
    words = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split()
    return re.split(r"(?<=[.?!])\s", " ".join(words))[0]


# ------------------------------------------------------------------------------------ plain English -> reStructuredText


def to_rst(lines: list[str], names: set[str] = frozenset()) -> list[str]:
    """A docstring as reStructuredText.

    lines: of the docstring, without its common indentation.
    names: arguments (or fields); `name: words` at the start of a line then describes one of them.
    Raises ValueError where it cannot be read.
    """
    written = []
    for block in blocks(lines):
        in_columns = any(re.search(r"\S {3,}\S", line) for line in block)  # commands and what they do, for example
        if in_columns or block[0].startswith("    "):
            example = textwrap.dedent("\n".join(block))
            written += [f".. code-block:: {language(example)}", "", textwrap.indent(example, "   "), ""]
        else:
            written += [*prose(block, names), ""]
    return written


def language(example: str) -> str:
    """Python (in cells it may begin with a magic), or text: a call with its meaning beside it, commands."""
    with contextlib.suppress(SyntaxError):
        ast.parse(re.sub(r"^%%.*", "", example))
        return "course-cell"
    return "text"


def blocks(lines: list[str]) -> list[list[str]]:
    """Paragraphs and examples. Empty lines divide them, except inside an example, whose lines are all indented."""
    found: list[list[str]] = []
    empty = True  # was the line before empty?
    for line in lines:
        indented = line.startswith("    ")
        if not line.strip():
            empty = True
            continue
        if found and empty and indented and found[-1][0].startswith("    "):
            found[-1] += ["", line]
        elif empty:
            found.append([line])
        else:
            found[-1].append(line)
        empty = False
    return found


def prose(block: list[str], names: set[str]) -> list[str]:
    """A paragraph, which may contain list items and arguments with their meaning."""
    written: list[str] = []
    inside, indent = "", 0  # "argument" or "item", and how far its further lines are indented
    before = ""
    for line in escape("\n".join(block)).split("\n"):
        argument = re.match(r"(\w+(?:, \w+)*): +(.+)", line)
        item = re.match(r"(?:-|\d+\.) +(?=\S)", line)
        goes_on = line.startswith(" ") or not (line[0].isupper() and before.rstrip().endswith((".", ":", "?", "!")))
        if argument and {*argument[1].split(", ")} <= {*names, "returns", "yields"}:
            if inside != "argument":
                written += ["", ".. rst-class:: arguments", ""]
            written += [", ".join(f"``{name}``" for name in argument[1].split(", ")), f"   {argument[2]}"]
            inside, indent = "argument", 3
        elif item:
            written += [*([] if inside == "item" else [""]), line]
            inside, indent = "item", len(item[0])
        elif inside and goes_on:
            written.append(" " * indent + line.strip())
        else:
            written += [*([""] if inside else []), line.strip()]
            inside = ""
        before = line
    return written


def escape(text: str) -> str:
    """Prose: `code` stays code, *stress* stays stress, everything else that looks like markup becomes plain text.

    Raises ValueError for a backtick without its partner.
    """
    written = ""
    pieces = re.split(r"`([^`]+)`", text)
    for i, piece in enumerate(pieces):
        if i % 2:
            touches_before, touches_after = written[-1:].isalnum(), pieces[i + 1][:1].isalnum()
            written += ("\\ " if touches_before else "") + f"``{piece.strip()}``" + ("\\ " if touches_after else "")
        elif "`" in piece:
            raise ValueError(f"a backtick has no partner in {piece.strip()!r}")
        else:
            piece = piece.replace("\\", "\\\\")
            piece = re.sub(r"(?<![\w*])\*(?=[^\s*])([^*]+)(?<=\S)\*(?![\w*])", "\0\\1\0", piece)
            written += re.sub(r"([*|]|_(?!\w))", r"\\\1", piece).replace("\0", "*")
    return written


# ------------------------------------------------------------------------------------------------- what Sphinx asks for


def fields(cls: type) -> list[str]:
    """The fields of a class that have a comment behind them, as lines `name: comment`."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return []
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    return [
        f"{node.target.id}: {comments[node.end_lineno]}"
        for node in ast.parse(source).body[0].body
        if isinstance(node, ast.AnnAssign) and not node.target.id.startswith("_") and node.end_lineno in comments
    ]


def process_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Autodoc's event: translate a docstring in place."""
    if not (name if what == "module" else getattr(obj, "__module__", None) or name).startswith(PACKAGE):
        return  # imported from elsewhere: not shown, only looked at
    names: set[str] = set()
    extra: list[str] = []
    if isinstance(obj, type):
        extra = fields(obj)
        names = {line.partition(":")[0] for line in extra}
    if callable(obj):
        with contextlib.suppress(TypeError, ValueError):
            names |= set(inspect.signature(obj).parameters)
    try:
        lines[:] = "\n".join(to_rst([*lines, "", *extra], names)).split("\n")
    except ValueError as error:
        logger.warning("The docstring of %s cannot be read: %s", name, error)


def skip(app: Sphinx, what: str, name: str, obj: object, skipped: bool, options: object) -> bool | None:
    """Autodoc's event: the fields of a named tuple are described with the class, not each as "alias for field 0"."""
    return True if (inspect.getdoc(obj) or "").startswith("Alias for field number") else None


def source_address(domain: str, info: dict[str, str]) -> str | None:
    """The lines of an object in the repository, for the link beside it (sphinx.ext.linkcode)."""
    thing = sys.modules.get(info["module"])
    for part in info["fullname"].split("."):
        thing = getattr(thing, part, None)
    if isinstance(thing, property):
        thing = thing.fget
    try:
        path = Path(inspect.getsourcefile(inspect.unwrap(thing)))
        lines, first = inspect.getsourcelines(inspect.unwrap(thing))
    except (OSError, TypeError):  # a constant has no lines of its own
        return None
    if not path.is_relative_to(ROOT):
        return None
    return f"{address_of(str(path.relative_to(ROOT)))}#L{first}-L{first + len(lines) - 1}"


def address_of(name: str, root: Path = ROOT) -> str:
    """A file or folder of the repository on its web page: as of this commit where that is known, else on main."""
    kind = "tree" if (root / name).is_dir() else "blob"
    repository = course.address(root).removesuffix(".git")
    return f"{repository}/{kind}/{os.environ.get('GITHUB_SHA', 'main')}/{name}"
