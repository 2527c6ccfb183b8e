"""Compare the outputs of an executed notebook with those that it shows, in the cells that nbval would compare.

nbval executes a notebook to compare it; the runner has executed it already. Pictures are not compared.
"""

import difflib
from collections import defaultdict

from nbformat import NotebookNode

TAG = "nbval-check-output"  # of the cells whose outputs must stay the same
LONGEST = 600  # characters of a difference


def changed_outputs(executed: NotebookNode, shown: NotebookNode) -> list[str]:
    """The tagged cells whose outputs have changed: a sentence for each, with the lines that differ."""
    code_cells = ([cell for cell in notebook.cells if cell.cell_type == "code"] for notebook in (executed, shown))
    changed = []
    for number, (now, before) in enumerate(zip(*code_cells, strict=True), start=1):
        pair = [text_of(cell.outputs).splitlines() for cell in (before, now)]
        if TAG in before.metadata.get("tags", []) and pair[0] != pair[1]:
            lines = "\n".join([*difflib.unified_diff(*pair, lineterm="", n=0)][2:])
            changed.append(f"code cell {number} shows another output than the notebook: {lines[:LONGEST]}")
    return changed


def text_of(outputs: list[NotebookNode]) -> str:
    """What a cell shows as text, each stream in one piece: a kernel cuts it as it likes."""
    streams, shown = defaultdict(str), []
    for output in outputs:
        if output.output_type == "stream":
            streams[output.name] += output.text
        elif output.output_type == "error":
            shown.append(f"{output.ename}: {output.evalue}")
        else:
            shown += [text for kind, text in sorted(output.data.items()) if kind.startswith("text/")]
    return "\n".join([*(f"{name}: {text}" for name, text in sorted(streams.items())), *shown])
