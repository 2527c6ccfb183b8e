"""A notebook as a page: the same cells, with what only a website needs put around them."""

import base64
import copy
import hashlib
import re

from nbformat import NotebookNode

from tools.course import Chapter

OUR_MIME = "application/vnd.torchcourse."  # not imported from the package: that would load PyTorch for each build
COLAB = re.compile(r"\[Open in Colab\]\((\S+?)\)")
COLAB_ROW = re.compile(r"^\| \*\*No Python here\?\*\* \|.*\n?", re.MULTILINE)
CELL_TITLE = re.compile(r"#\s*@title (.+)")


def colab(notebook: NotebookNode) -> str | None:
    """The address that the notebook's own badge has, None where it has no badge."""
    found = COLAB.search(notebook.cells[0].source)
    return found and found[1]


def page(notebook: NotebookNode, chapter: Chapter, kind: str, has_slides: bool) -> NotebookNode:
    """The notebook as Sphinx reads it. kind: "lecture" or "lab". The one that is given stays as it is."""
    notebook = copy.deepcopy(notebook)
    notebook.metadata.language_info = {"name": "python", "pygments_lexer": "course-cell"}
    first = notebook.cells[0]
    title, _, rest = first.source.partition("\n")
    first.source = f"{title}\n\n{links(notebook, chapter, kind, has_slides)}\n{COLAB_ROW.sub('', rest)}"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            fold(cell)
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                for mime in [mime for mime in output.get("data", {}) if mime.startswith(OUR_MIME)]:
                    del output.data[mime]  # numbers for the runner; the text beside them says the same
    if kind == "lecture":
        # The lab is below its lecture in the course map, and comes next when pages are turned.
        toctree = f"```{{toctree}}\n:hidden:\n/labs/{chapter.name}\n```"
        notebook.cells.append(NotebookNode(cell_type="markdown", id="site-lab", metadata={}, source=toctree))
    return notebook


def links(notebook: NotebookNode, chapter: Chapter, kind: str, has_slides: bool) -> str:
    """The row of links below the title: the other half of the chapter, slides, Colab, the file itself."""
    folder, other = ("notebooks", "labs") if kind == "lecture" else ("labs", "notebooks")
    row = []
    if len(chapter.published) > 1:
        row.append(f"[{'Lab' if kind == 'lecture' else 'Lecture'}](/{other}/{chapter.name}.ipynb)")
    if has_slides:
        row.append(f'<a href="../slides/{chapter.name}.html">Slides</a>')
    if address := colab(notebook):
        row.append(f"[Open in Colab]({address})")
    row.append(f'<a href="../files/{folder}/{chapter.name}.ipynb" download>Download the notebook</a>')
    return "{.chapter-links}\n" + "\n".join(row) + "\n"


def fold(cell: NotebookNode) -> None:
    """What JupyterLab and Colab show folded is folded here too, under its `# @title`."""
    if not cell.metadata.get("jupyter", {}).get("source_hidden"):
        return
    title = CELL_TITLE.match(cell.source)
    name = title[1].strip() if title else "Code"
    cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-input"]
    cell.metadata["mystnb"] = {"code_prompt_show": name, "code_prompt_hide": name}


def descriptions(notebook: NotebookNode) -> dict[str, str]:
    """Alt text of the pictures in a notebook's outputs, by the file name that myst-nb gives them."""
    found = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                name = hashlib.sha256(base64.b64decode(output.data["image/png"])).hexdigest() + ".png"
                found[name] = output.get("metadata", {}).get("image/png", {}).get("alt", "")
    return found
