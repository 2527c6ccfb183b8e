"""A notebook as a page: the same cells, with what only a website needs put around them."""

import copy
import re

from nbformat import NotebookNode

from tools import guide
from tools.course import Chapter

COLAB_ROW = re.compile(r"^\| \*\*No Python here\?\*\* \|.*\n?", re.MULTILINE)
CELL_TITLE = re.compile(r"#\s*@title (.+)")


def page(notebook: NotebookNode, chapter: Chapter, kind: str) -> NotebookNode:
    """The notebook as Sphinx reads it. kind: "lecture" or "lab". The one that is given stays as it is."""
    notebook = copy.deepcopy(notebook)
    notebook.metadata.language_info = {"name": "python", "pygments_lexer": "course-cell"}
    first = notebook.cells[0]
    title, _, rest = first.source.partition("\n")
    first.source = f"{title}\n\n{links(chapter, kind)}\n{COLAB_ROW.sub('', rest)}"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            fold(cell)
            # Where myst-nb looks for the alt text of the cell's pictures.
            alt = [output.metadata.get("image/png", {}).get("alt") for output in cell.outputs if "metadata" in output]
            cell.metadata.setdefault("mystnb", {})["image"] = {"alt": " ".join(filter(None, alt))}
    if kind == "lecture":
        # The lab is below its lecture in the course map, and comes next when pages are turned.
        toctree = f"```{{toctree}}\n:hidden:\n/labs/{chapter.name}\n```"
        notebook.cells.append(NotebookNode(cell_type="markdown", id="site-lab", metadata={}, source=toctree))
    return notebook


def links(chapter: Chapter, kind: str) -> str:
    """The row of links below the title: the other half of the chapter, slides, Colab, the file itself."""
    folder, other = ("notebooks", "labs") if kind == "lecture" else ("labs", "notebooks")
    row = []
    if len(chapter.published) > 1:
        row.append(f"[{'Lab' if kind == 'lecture' else 'Lecture'}](/{other}/{chapter.name}.ipynb)")
    if chapter.lecture_minutes:
        row.append(f'<a href="../slides/{chapter.name}.html">Slides</a>')
    if address := guide.on_colab(f"{folder}/{chapter.name}.ipynb"):
        row.append(f"[Open in Colab]({address})")
    row.append(f'<a href="../files/{folder}/{chapter.name}.ipynb" download>Download the notebook</a>')
    return "{.chapter-links}\n" + "\n".join(row) + "\n"


def fold(cell: NotebookNode) -> None:
    """What JupyterLab and Colab show folded is folded here too: code under its `# @title`, results of predictions."""
    hidden = cell.metadata.get("jupyter", {})
    if hidden.get("outputs_hidden"):
        cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-output"]
        cell.metadata["mystnb"] = {"code_prompt_show": "Show the result", "code_prompt_hide": "Hide the result"}
    if not hidden.get("source_hidden"):
        return
    title = CELL_TITLE.match(cell.source)
    name = title[1].strip() if title else "Code"
    cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-input"]
    cell.metadata["mystnb"] = {"code_prompt_show": name, "code_prompt_hide": name}
