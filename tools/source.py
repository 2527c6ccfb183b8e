"""The text source of a notebook, read once: lab and solution have the same, and several tables come from it."""

import copy
import functools
from pathlib import Path

import jupytext
from nbformat import NotebookNode


def read(path: Path) -> NotebookNode:
    """The notebook that a text source in MyST describes, for the caller to change."""
    return copy.deepcopy(_parsed(path.read_text(encoding="utf-8")))


@functools.cache
def _parsed(text: str) -> NotebookNode:
    return jupytext.reads(text, fmt="md:myst")
