"""Compare the outputs of an executed notebook with those that the notebook shows, as nbval does.

nbval executes a notebook to compare it. The runner has executed it already, so only nbval's comparison is used.
"""

import copy
import difflib
from types import SimpleNamespace

import nbval.plugin
from nbformat import NotebookNode

from tools.run import RECORD

TAG = "nbval-check-output"  # of the cells whose outputs must stay the same
# What nbval itself skips, pictures included; and what is only for the runner.
SKIPPED = ("metadata", "traceback", "prompt_number", "output_type", "name", "execution_count")
SKIPPED += ("image/png", "image/jpeg", "application/vnd.jupyter.widget-view+json", RECORD)
LONGEST = 600  # characters of a difference


def changed_outputs(executed: NotebookNode, shown: NotebookNode) -> list[str]:
    """The tagged cells whose outputs have changed: a sentence for each, with the lines that differ."""
    code_cells = ([cell for cell in notebook.cells if cell.cell_type == "code"] for notebook in (executed, shown))
    changed = []
    for number, (now, before) in enumerate(zip(*code_cells, strict=True), start=1):
        if TAG in before.metadata.get("tags", []) and (lines := _Comparison().lines(now.outputs, before.outputs)):
            changed.append(f"code cell {number} shows another output than the notebook: {lines[:LONGEST]}")
    return changed


class _Comparison:
    """What `IPyNbCell.compare_outputs` of nbval expects of its cell, a pytest item, to be."""

    compare_outputs = nbval.plugin.IPyNbCell.compare_outputs
    colors = nbval.plugin.nocolors
    parent = SimpleNamespace(skip_compare=SKIPPED)

    def lines(self, now: list[NotebookNode], before: list[NotebookNode]) -> str:
        """The lines that differ, or nothing."""
        self.comparison_traceback: list[str] = []
        coalesced = (nbval.plugin.coalesce_streams(copy.deepcopy(outputs)) for outputs in (now, before))  # in place
        same = self.compare_outputs(*coalesced)
        return "" if same else "\n".join(self.comparison_traceback)

    def sanitize(self, text: object) -> object:
        return text

    def format_output_compare(self, key: str, before: object, now: object) -> None:
        pair = (str(output).splitlines() for output in (before, now))
        self.comparison_traceback += [key, *list(difflib.unified_diff(*pair, lineterm="", n=0))[2:]]
