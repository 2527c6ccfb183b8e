"""Text sources in, notebooks out.

    python -m tools.build              build what has changed
    python -m tools.build 01 02        some chapters
    python -m tools.build --check      write nothing; say what is not as it would be built, exit status 1 if anything
    python -m tools.build --force 01   execute again even if nothing changed

From notebooks/NN_slug.md comes the lecture, from solutions/NN_slug.md the solution and, with the answers taken out, the
lab. Lectures and solutions are executed and keep their outputs; a notebook is executed again only when its code or a
module of the package that it uses has changed. Figures with a name that the deck shows also become
slides/figures/NN_slug-name.png.
"""

import argparse
import ast
import base64
import copy
import functools
import hashlib
import io
import os
import re
import sys
import time
import tokenize
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from labcheck.exercise import Exercise, load_chapter
from tools import course, guide
from tools.course import KINDS, ROOT, Chapter
from tools.run import NotebookError, origin, read
from tools.source import read as read_source
from torchcourse.cluster import login_node
from torchcourse.errors import CourseError

STUB, BEGIN, END = "# YOUR CODE HERE", "### BEGIN SOLUTION", "### END SOLUTION"
CHECK = re.compile(r"""^check\(\s*["'](\w+)["']""", re.MULTILINE)
# Begins each cell that calls a check: a kernel that has just started knows none of our names, but a traceback shows it.
RERUN = "# NameError? Run all cells above first.\n"
PREDICTION = re.compile(r"^prediction = ", re.MULTILINE)
DRAWING = re.compile(r"(!\[([^\]]+)\]\(\.\./(slides/drawings/[\w-]+\.svg)\))")
EXERCISE_LINE = re.compile(r"\{\{\s*exercise:\s*(\w+)\s*\}\}")


class BuildError(Exception):
    """An error that the author of a chapter can fix."""


# ---------------------------------------------------------------------------------------------------------------------
# From source to notebook


def edition(chapter: Chapter, kind: str, root: Path = ROOT) -> NotebookNode:
    """The notebook of a chapter without outputs. kind: "lecture", "solution" or "lab"."""
    source = root / KINDS["lecture" if kind == "lecture" else "solution"] / f"{chapter.name}.md"
    if not source.exists():
        raise BuildError(f"{source.relative_to(root)} is missing: course.toml has chapter {chapter.name}.")
    notebook = read_source(source)
    notebook.cells = [title_cell(chapter, kind, root), setup_cell(chapter, root), *notebook.cells]
    if kind == "lecture":
        fold_results(notebook, source.name)
    else:
        notebook.cells.append(next_cell(chapter, root))
        prepare_exercises(notebook, source.name, load_chapter(chapter.name))
    for cell, cell_id in zip(notebook.cells, cell_ids(notebook.cells), strict=True):
        cell["id"] = cell_id
        for whole, alt, path in DRAWING.findall(cell.source):  # a drawing travels inside the notebook, like a figure
            data = f"data:image/svg+xml;base64,{base64.b64encode((root / path).read_bytes()).decode()}"
            cell["source"] = cell.source.replace(whole, f'<p><img alt="{alt}" width="860" src="{data}"></p>')
    if kind == "lab":
        notebook = without_answers(notebook)
    notebook.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
        torchcourse={"chapter": chapter.name, "kind": kind},
    )
    if kind == "lab" and not course.manifest(root).get("colab_assistant"):
        notebook.metadata["colab"] = {"generative_ai_disabled": True}  # Colab's own key: it hides its AI features
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def title_cell(chapter: Chapter, kind: str, root: Path = ROOT) -> NotebookNode:
    """Title, promise, and the small table of time, needs and goals, all from course.toml."""
    colab = guide.on_colab(f"{chapter.published[kind]}/{chapter.name}.ipynb", root) if kind != "solution" else ""
    goals = "<br>".join(f"• {goal}" for goal in chapter.goals)
    if kind == "lecture":
        lines = [f"# {chapter.number} · {chapter.title}", "", chapter.promise, ""]
        rows = [
            ("Time", f"{chapter.minutes} minutes (lecture + lab); alone, the lecture takes {chapter.alone_minutes}"),
            ("You need", chapter.needs),
            ("Afterward, you can", goals),
        ]
    else:
        exercises = load_chapter(chapter.name).values()  # all chapters take seconds to import
        points = sum(e.points for e in exercises)
        suffix = ", with answers" if kind == "solution" else ""
        lines = [
            f"# Lab {chapter.number} · {chapter.title}{suffix}",
            "",
            'Write your answer where it says "YOUR CODE HERE", run the cell, then run the check below it. Leave the '
            "arguments as they are, unless the docstring says otherwise. "
            "A check tells you whether your answer is right or, if not, what was expected and what your answer gave. "
            'Stuck? `hint("name of the exercise")`, and again for the next hint.',
            "",
            "After restarting the kernel, first run all cells above the one that you are working on: in JupyterLab "
            "with *Run > Run All Above Selected Cell*, on Colab with *Runtime > Run before*. Open exercises are fine.",
            "",
        ]
        rows = [
            ("Time", f"{chapter.lab_minutes} minutes"),
            ("You need", f"Lecture {chapter.number}. No GPU." if chapter.lecture_minutes else chapter.needs),
            ("Exercises", f"{len(exercises)}, worth {points} points in all"),
        ]
        if not chapter.lecture_minutes:  # nothing else says it
            lines[2:2] = [chapter.promise, ""]
            rows.append(("Afterward, you can", goals))
    if colab:
        rows.append(("No Python here?", f"[Open in Colab]({colab})"))
    table = ["| | |", "|:---|:---|", *(f"| **{left}** | {right} |" for left, right in rows)]
    return nbformat.v4.new_markdown_cell("\n".join(lines + table))


def next_cell(chapter: Chapter, root: Path = ROOT) -> NotebookNode:
    """The end of a lab: where the course goes on."""
    every = course.chapters(root)
    later = every[[each.name for each in every].index(chapter.name) + 1 :]
    if not later:
        return nbformat.v4.new_markdown_cell("**This was the last lab.** You have come to the end of the course.")
    kind, path = next(iter(later[0].published)), later[0].first
    line = f"**Next:** [{kind} {later[0].number} · {later[0].title}](../{path})"
    # A relative link leads nowhere in a copy on Colab's drive.
    if colab := guide.on_colab(path, root):
        line += f" ([in Colab]({colab}))"
    return nbformat.v4.new_markdown_cell(line)


def setup_cell(chapter: Chapter, root: Path = ROOT) -> NotebookNode:
    """The first code cell, the same in every notebook but for the chapter; its source is tools/setup_cell.py."""
    code = (Path(__file__).parent / "setup_cell.py").read_text().strip()
    code = code.replace("{students}", course.students(root)).replace("{chapter}", chapter.name)
    cell = nbformat.v4.new_code_cell(code)
    # Folded in JupyterLab and on Colab: it is long, and not what you came for.
    cell.metadata = NotebookNode(tags=["setup"], jupyter={"source_hidden": True}, cellView="form")
    return cell


def cell_ids(cells: list[NotebookNode]) -> Iterator[str]:
    """An id for each cell that survives edits elsewhere: the exercise, or the heading and the place below it."""
    section, place, seen = "start", 0, set()
    for cell in cells:
        heading = re.match(r"#+ (.+)", cell.source) if cell.cell_type == "markdown" else None
        if heading:
            section, place = slugify(heading[1]), 0
        place += 1
        exercise = cell.metadata.get("nbgrader", {}).get("grade_id")
        cell_id = exercise or ("setup" if is_setup(cell) else f"{section}-{place}")
        while cell_id in seen:  # two sections of one name
            cell_id += "x"
        seen.add(cell_id)
        yield cell_id


def slugify(heading: str) -> str:
    """Lower-case words joined by hyphens, short enough for a cell id."""
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")[:48].strip("-") or "section"


def is_setup(cell: NotebookNode) -> bool:
    return "setup" in cell.metadata.get("tags", [])


def fold_results(notebook: NotebookNode, source: str) -> None:
    """Hide the outputs from each `prediction = ...` to its comparison: nobody predicts what is shown below.

    JupyterLab shows them when the cell is run or its dots are clicked. Colab and older notebooks read `collapsed`.
    """
    waiting = ""
    end = NotebookNode(source="prediction = ")  # as if another one came: the last has to be compared, too
    for cell in [*(cell for cell in notebook.cells if cell.cell_type == "code"), end]:
        if PREDICTION.search(cell.source):
            if waiting:
                raise BuildError(f"{source}: this prediction has no `predict.compare`:\n{waiting}")
            waiting = cell.source
        if waiting and not re.fullmatch("prediction = .*", cell.source):  # which has no output
            cell.metadata["collapsed"] = True
            cell.metadata.setdefault("jupyter", NotebookNode())["outputs_hidden"] = True
        if "predict.compare(" in cell.source:
            waiting = ""


def prepare_exercises(notebook: NotebookNode, source: str, exercises: dict[str, Exercise]) -> None:
    """Put nbgrader's metadata in place and fill in the exercise lines (difficulty, minutes, points).

    An exercise is a cell with a solution region and, as the next code cell, its `check("name", ...)`. More checks may
    follow: one answer then belongs to several exercises, and its cell is named after the first.
    """
    answer: NotebookNode | None = None
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = EXERCISE_LINE.sub(lambda match: exercise_line(match[1], source, exercises), cell.source)
            continue
        if cell.cell_type != "code":
            continue
        if cell.source.count(BEGIN) != cell.source.count(END):
            raise BuildError(f"{source}: a cell has {BEGIN} without {END} (or the other way round):\n{cell.source}")
        name = CHECK.search(cell.source)
        if name and BEGIN not in cell.source:
            if name[1] not in exercises:
                raise BuildError(f'{source}: check("{name[1]}") is not in EXERCISES of torchcourse_labs/*/__init__.py.')
            if answer is None:
                raise BuildError(f'{source}: the cell before check("{name[1]}") has no {BEGIN} … {END} region.')
            answer.metadata.setdefault("nbgrader", nbgrader_metadata(f"answer-{name[1]}"))
            cell.metadata["nbgrader"] = nbgrader_metadata(f"check-{name[1]}", exercises[name[1]].points)
            cell.source = RERUN + cell.source
        elif cell.source.startswith(("hint(", "progress(")):
            cell.source = RERUN + cell.source
        else:
            answer = cell if BEGIN in cell.source else None


def nbgrader_metadata(grade_id: str, points: int | None = None) -> dict:
    """Cell metadata, schema version 3, of a graded check, which has points, or of an answer."""
    graded = points is not None
    metadata = {"schema_version": 3, "grade_id": grade_id, "grade": graded, "solution": not graded, "locked": graded}
    return metadata | {"task": False} | ({"points": points} if graded else {})


def exercise_line(name: str, source: str, exercises: dict[str, Exercise]) -> str:
    """ "Difficulty ●●○○○ · about 8 minutes · 2 points" """
    if name not in exercises:
        raise BuildError(f"{source}: {{{{exercise: {name}}}}} is not in EXERCISES of torchcourse_labs/*/__init__.py.")
    exercise = exercises[name]
    dots = "●" * exercise.difficulty + "○" * (5 - exercise.difficulty)
    points = f"{exercise.points} point{'s' if exercise.points > 1 else ''}"
    return f"*Difficulty {dots} · about {exercise.minutes} minutes · {points}*"


def without_answers(notebook: NotebookNode) -> NotebookNode:
    """The lab: nbgrader's own preprocessors take out answers, hidden tests and outputs. What is left must be Python."""
    from nbgrader.preprocessors import ClearHiddenTests, ClearOutput, ClearSolutions
    from traitlets.config import Config

    config = Config()
    config.ClearSolutions.enforce_metadata = False
    config.ClearHiddenTests.enforce_metadata = False
    config.ClearSolutions.code_stub = {"python": STUB}
    config.ClearSolutions.text_stub = "*Write your answer here.*"
    lab = copy.deepcopy(notebook)
    for preprocessor in (ClearSolutions, ClearHiddenTests, ClearOutput):
        lab, _ = preprocessor(config=config).preprocess(lab, {})
    lab.metadata.pop("celltoolbar", None)
    for cell in lab.cells:
        if cell.cell_type == "code":
            code = "\n".join(line for line in cell.source.splitlines() if not line.startswith(("%", "!")))
            try:
                compile(code, "lab", "exec")
            except SyntaxError as error:
                raise BuildError(
                    f"Without its answer this cell is no longer Python ({error.msg}). "
                    f"Give the function a docstring, and a value its first line `name = ...`:\n{cell.source}"
                ) from None
    return lab


def answers_in(lab: NotebookNode, solution: NotebookNode) -> list[str]:
    """Lines of the solution's answers that are also in the lab's code. There must be none."""
    regions = re.findall(f"{BEGIN}(.*?){END}", code_of(solution), re.S)
    answers = {line.strip() for region in regions for line in region.splitlines()}
    ordinary = ("#", "import ", "from ", "def ", "super().__init__()")
    telling = {line for line in answers if len(line) >= 16 and not line.startswith(ordinary)}
    return sorted(telling & {line.strip() for line in code_of(lab).splitlines()})


def code_of(notebook: NotebookNode) -> str:
    """All code cells, one below the other."""
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


# ---------------------------------------------------------------------------------------------------------------------
# When to execute


def digest(notebook: NotebookNode, root: Path = ROOT) -> str:
    """Of the code (the set-up cell apart) and of the package's modules that it uses: decides about executing again."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code" and not is_setup(cell)]
    parts = code + [bare(path.read_text()) for path in modules_used("\n".join(filter(is_python, code)), root)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def is_python(code: str) -> bool:
    """Whether a cell is Python, and not a file in another language that it writes."""
    file = re.match(r"%%writefile +(\S+)", code)
    return file is None or file[1].endswith(".py")


def modules_used(code: str, root: Path = ROOT) -> list[Path]:
    """Files of torchcourse that the code imports, directly or through one another. The checks do not count.

    Every notebook's set-up makes `%%torchrun` known; only those that say it depend on how it works.
    """
    source = root / "src"
    unused = set() if "distributed" in code else {"distributed"}
    found: set[Path] = set()
    todo = [code]
    while todo:
        for name in imported(todo.pop()):
            path = source / name.replace(".", "/")
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            if path.exists() and path not in found and not unused & set(path.relative_to(source).parts):
                found.add(path)
                todo.append(path.read_text())
    return sorted(found)


@functools.cache
def imported(code: str) -> list[str]:
    """Dotted names of torchcourse's modules in import statements, wherever they are."""
    code = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in code.splitlines())
    names = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchcourse"):
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.startswith("torchcourse")]
    return names


@functools.cache
def bare(code: str) -> str:
    """Code without comments, docstrings and empty lines: better words are no reason to execute again.

    Cut out of the text, not printed from the syntax tree: that looks different in each version of Python.
    """
    lines = code.splitlines()
    for node in ast.walk(ast.parse(code)):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        words = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        if words and not lines[first.lineno - 1][: first.col_offset].strip():  # and they begin their line
            lines[first.lineno - 1 : first.end_lineno] = [""] * (first.end_lineno - first.lineno + 1)
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip())


# ---------------------------------------------------------------------------------------------------------------------
# Executing and writing


def execute(notebook: NotebookNode, folder: Path, timeout: int = 600) -> None:
    """Run all cells in place, in `folder`; raises BuildError with the cell and the error."""
    before = copy.deepcopy(notebook.metadata)  # the kernel writes its version there, which would differ on each machine
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--IPKernelApp.log_level=40"],  # a kernel remarks at every start that it is not encrypted
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise BuildError(re.sub(r"\x1b\[[0-9;]*m", "", str(error))) from None
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                raise BuildError(f"A cell writes to stderr (a warning?):\n{cell.source}\n---\n{output.text}")
    if origin(notebook) == "synthetic":
        raise BuildError("Notebooks are built on real data, and this is the synthetic set: set TORCHCOURSE_DATA.")
    notebook.metadata = before


def with_outputs_of(built: NotebookNode, fresh: NotebookNode) -> NotebookNode:
    """`fresh` with the outputs of `built`; both have the same code cells."""
    code = ([cell for cell in notebook.cells if cell.cell_type == "code"] for notebook in (built, fresh))
    for before, after in zip(*code, strict=True):
        after.outputs, after.execution_count = before.outputs, before.execution_count
    return fresh


def inputs(notebook: NotebookNode) -> dict:
    """Everything of a notebook except its outputs."""
    cells = [{"id": c.id, "type": c.cell_type, "source": c.source, "metadata": c.metadata} for c in notebook.cells]
    return {"cells": cells, "metadata": notebook.metadata}


def executed(notebook: NotebookNode) -> bool:
    return all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip())


def write_if_changed(path: Path, content: bytes) -> bool:
    if path.exists() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return True


def as_bytes(notebook: NotebookNode) -> bytes:
    nbformat.validate(notebook)
    return (nbformat.writes(notebook, version=4).rstrip("\n") + "\n").encode()


def figures(notebook: NotebookNode) -> dict[str, bytes]:
    """Pictures that a notebook shows with a name: name -> PNG."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    named = {output.get("metadata", {}).get("image/png", {}).get("name"): output for output in outputs}
    return {name: base64.b64decode(output.data["image/png"]) for name, output in named.items() if name}


def read_built(path: Path) -> NotebookNode | None:
    try:
        return read(path)
    except NotebookError:  # missing, or edited into something that is not a notebook: then it is built again
        return None


def build_executed(chapter: Chapter, kind: str, root: Path = ROOT, force: bool = False) -> str:
    """Build a lecture or a solution; returns what was done in a word or two."""
    path = root / KINDS[kind] / f"{chapter.name}.ipynb"
    fresh, built = edition(chapter, kind, root), read_built(path)
    fresh.metadata.torchcourse["digest"] = digest(fresh, root)
    known = built and built.metadata.get("torchcourse", {}).get("digest") == fresh.metadata.torchcourse["digest"]
    if known and not force and executed(built) and same_code(built, fresh):
        done = "text changed" if inputs(built) != inputs(fresh) else "unchanged"
        fresh = with_outputs_of(built, fresh)
    else:
        start = time.perf_counter()
        execute(fresh, path.parent)
        done = f"executed in {time.perf_counter() - start:.0f} s"
    write_if_changed(path, as_bytes(fresh))
    if kind == "lecture":
        deck = root / "slides" / f"{chapter.name}.md"
        shown = deck.read_text(encoding="utf-8") if deck.is_file() else ""
        for name, png in figures(fresh).items():
            figure = root / "slides" / "figures" / f"{chapter.name}-{name}.png"
            if f"(figures/{figure.name}" in shown:
                write_if_changed(figure, png)
    return done


def same_code(built: NotebookNode, fresh: NotebookNode) -> bool:
    """The same code cells, the set-up cell apart: then the outputs still belong to them."""
    one, other = ([c.source for c in n.cells if c.cell_type == "code" and not is_setup(c)] for n in (built, fresh))
    return one == other


def lab_of(chapter: Chapter, root: Path = ROOT) -> NotebookNode:
    """The lab. Raises BuildError where part of an answer would be left in it."""
    lab = edition(chapter, "lab", root)
    if leaked := answers_in(lab, edition(chapter, "solution", root)):
        raise BuildError(f"labs/{chapter.name}.ipynb would show parts of the answers:\n" + "\n".join(leaked))
    return lab


def build_lab(chapter: Chapter, root: Path = ROOT) -> str:
    """Build a lab; returns what was done."""
    lab = as_bytes(lab_of(chapter, root))
    return "written" if write_if_changed(root / "labs" / f"{chapter.name}.ipynb", lab) else "unchanged"


def handed_out(chapter: Chapter, kind: str, root: Path = ROOT) -> NotebookNode:
    """The lecture or lab for students, without anything typed into notebooks/ and labs/ since it was built.

    A lab is rebuilt from its source, which executes nothing. A lecture needs its outputs, so it must be as
    `make build` left it: Jupyter leaves its traces in the metadata of whatever it saves. Raises SystemExit.
    """
    try:
        if kind == "lab":
            return lab_of(chapter, root)
        path = Path(KINDS[kind]) / f"{chapter.name}.ipynb"
        fresh, built = edition(chapter, kind, root), read_built(root / path)
    except BuildError as error:
        raise SystemExit(str(error)) from None
    if built is not None:
        fresh.metadata.torchcourse["digest"] = built.metadata.get("torchcourse", {}).get("digest")
    if built is None or inputs(built) != inputs(fresh):
        raise SystemExit(
            f"{path} is not what `make build` made of {path.with_suffix('.md')}: the source has changed since, or "
            "the notebook has been edited or run. Students should get neither. If you need that work, keep a copy "
            f"elsewhere. Then run `git checkout {path}` or, if the source has changed, `make build "
            f"CHAPTERS={chapter.number}`. To work in the notebooks yourself, open a copy with `make lab`."
        )
    return built


def drift(chapter: Chapter, root: Path = ROOT) -> list[str]:
    """What in the working tree is not as the builder would make it, one sentence each."""
    fix = f"Run `make build CHAPTERS={chapter.number}`."
    problems = []
    for kind, folder in chapter.kinds.items():
        path = Path(folder) / f"{chapter.name}.ipynb"
        fresh, built = edition(chapter, kind, root), read_built(root / path)
        fresh.metadata.torchcourse["digest"] = digest(fresh, root)
        if built is None:
            problems.append(f"{path} is missing or not a notebook. {fix}")
        elif inputs(built)["cells"] != inputs(fresh)["cells"]:
            problems.append(f"{path} differs from its source {path.with_suffix('.md')}. {fix}")
        elif inputs(built) != inputs(fresh):
            problems.append(f"{path} was executed before its code or the package changed. {fix}")
        elif not executed(built):
            problems.append(f"{path} has cells that were never executed. {fix}")
    lab = Path("labs") / f"{chapter.name}.ipynb"
    if not (root / lab).exists() or (root / lab).read_bytes() != as_bytes(edition(chapter, "lab", root)):
        problems.append(f"{lab} is not what the builder makes of solutions/{chapter.name}.md. {fix}")
    return problems


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.build", description=__doc__.split("\n")[0])
    parser.add_argument("chapters", nargs="*", help="numbers, slugs or names; all when none is given")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if anything is not as built")
    parser.add_argument("--force", action="store_true", help="execute again even if nothing changed")
    options = parser.parse_args(arguments)
    os.environ[login_node.RECORD] = str(ROOT / "src" / "torchcourse" / "cluster" / "recordings")
    failed = False
    try:
        for path, text in guide.pages().items():
            if not options.check:
                print(f"{path.name}: written\n" if write_if_changed(path, text.encode()) else "", end="")
            elif not (path.is_file() and path.read_text(encoding="utf-8") == text):
                failed = True
                print(f"{path.name} is not what course.toml, the labs and the lectures say. Run `make build`.")
    except CourseError as error:
        failed = True
        print(error, file=sys.stderr, flush=True)
    for chapter in course.select(options.chapters):
        try:
            if options.check:
                problems = drift(chapter)
                failed |= bool(problems)
                print("\n".join(problems) or f"{chapter.name}: as built")
            else:
                for kind in chapter.kinds:
                    print(f"{chapter.name} {kind}: {build_executed(chapter, kind, force=options.force)}", flush=True)
                print(f"{chapter.name} lab: {build_lab(chapter)}", flush=True)
        except BuildError as error:
            failed = True
            print(f"{chapter.name}: {error}", file=sys.stderr, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
