"""What a person should look at: signs in a student's code that it works on the grader and not on the exercise.

A note costs no points. It is a search for words in the syntax tree, so it can be evaded, and it can be wrong: a person
reads the cell and decides. What cannot be parsed is noted, too.

Parsing foreign text can take hours and all memory, so it happens in a process of its own with limits on both.
"""

import ast
import json
import re
import resource
import subprocess
import sys
import warnings
from collections.abc import Iterator

from tools.course import ROOT

SECONDS, MIB = 20, 1500  # of a notebook; one without tricks takes half a second
UNFINISHED = "could not be reviewed: parsing it takes too long or too much memory"
UNPARSED = "holds a cell that is not Python"

PUBLIC = {"board", "check", "evaluate", "hint", "lend", "progress"}  # what students import from labcheck
PRIVATE = re.compile(r"\blabcheck\.(?!(board|check|evaluate|hint|lend|progress)\b)|\btorchcourse_labs\b|\bEXERCISES\b")
SIGNS = {
    "looks into running code": "_getframe currentframe _current_frames gc inspect settrace setprofile sys.monitoring",
    "looks into frames": "f_back f_locals f_globals f_builtins tb_frame tb_next gi_frame __traceback__ walk_tb",
    "works on Python's modules": "sys.modules importlib __import__ __main__ builtins __builtins__ ctypes cffi globals",
    "replaces parts of objects": "setattr delattr __setattr__ __dict__ vars __code__ __globals__ __closure__",
    "replaces parts of functions": "__defaults__ __kwdefaults__ __wrapped__ __getattribute__ __bases__ __subclasses__",
    "says itself what it equals": "__eq__ __ne__ __bool__ __array__ __array_ufunc__ __instancecheck__ mock",
    "changes what PyTorch's functions do": "TorchFunctionMode TorchDispatchMode __torch_function__ __torch_dispatch__",
    "changes PyTorch's hooks": "_forward_hooks _forward_pre_hooks _backward_hooks overrides",
    "works in another thread or process": "threading _thread Thread Timer concurrent multiprocessing asyncio",
    "starts or ends processes": "_exit kill fork system getoutput popen subprocess atexit execv FunctionType",
    "deletes files or uses the network": "rmtree unlink rmdir socket urllib requests http",
    "changes IPython": "showtraceback _showtraceback excepthook ast_transformers",
}
NOTES = {word: f"{note}: {word}" for note, words in SIGNS.items() for word in words.split()}
CALLED = {"eval", "exec", "compile"}  # only as names on their own: `model.eval()` is something else
BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller"}
# IPython's magics. The first kind holds Python code, which is reviewed; the second does what Python does not show.
MEASURING = re.compile(
    r"^([ \t]*)%%?(?:time|timeit|prun|capture|writefile[ \t]+\S+\.py)\b[ \t]*(?:-\w+[ \t\d]*)*", re.M
)
HIDDEN = {"system", "sx", "sc", "!", "bash", "sh", "script", "cmd", "perl", "ruby", "run", "load", "macro", "edit"}


def review(sources: list[str], exempt: list[str], seconds: int = SECONDS) -> list[str]:
    """Notes on a student's cells.

    exempt: cells whose own signs are ignored: those of the course's solution
    seconds: of processor time
    """
    words = [sys.executable, "-m", "tools.grade.review", str(seconds)]
    cells = json.dumps([sources, exempt]).encode()
    try:  # Ctrl-C is for us: the session is a new one
        limits = {"timeout": 10 * seconds, "start_new_session": True}
        return json.loads(subprocess.run(words, input=cells, capture_output=True, cwd=ROOT, **limits).stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return [UNFINISHED]


def main() -> None:
    """The process with limits: from cells to notes, both as JSON."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1])))
    resource.setrlimit(resource.RLIMIT_AS, (MIB * 2**20, MIB * 2**20))
    warnings.simplefilter("ignore")  # of a student's odd escapes in strings
    print(json.dumps(signs(*json.load(sys.stdin))))


def signs(sources: list[str], exempt: list[str]) -> list[str]:
    """The notes on cells, each once. Takes as long as it takes."""
    modules = {"sys", "os"}  # the set-up cell imports them
    usual = {note for source in exempt for note in _of_cell(source, modules)}
    found = dict.fromkeys(note for source in sources for note in _of_cell(source, modules))
    return [note for note in found if note not in usual]


def _of_cell(source: str, modules: set[str]) -> Iterator[str]:
    """The notes on one cell. Names that it imports are added to `modules`."""
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        tree = ast.parse(TransformerManager().transform_cell(MEASURING.sub(r"\1", source)))
    except (Exception, MemoryError):  # IPython may stumble over anything that is not Python
        yield UNPARSED
        return
    if "get_ipython" in source:  # and not what IPython itself has made of a magic
        yield "changes IPython: get_ipython"
    for node in ast.walk(tree):
        yield from _of(node, modules)


def _of(node: ast.AST, modules: set[str]) -> Iterator[str]:
    """The notes on one node of a syntax tree."""
    words: set[str] = set()
    match node:
        case ast.Import(names) | ast.ImportFrom(names=names):
            above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            modules |= {alias.asname or alias.name.partition(".")[0] for alias in names}
            for path in (above + alias.name for alias in names):
                words |= {path, *path.split(".")}
                if PRIVATE.search(path):
                    yield f"imports the inside of the checks: {path}"
        case ast.Attribute(attr=attr, ctx=context):
            path = ast.unparse(node)
            words = {attr, path}
            if not isinstance(context, ast.Load) and attr.startswith("__") and attr.endswith("__"):
                yield f"replaces parts of objects: {attr}"
            elif not isinstance(context, ast.Load) and path.partition(".")[0] in modules and ".backends." not in path:
                yield f"replaces {path[:80]}"
        case ast.Name(name, context):
            words = {name}
            if name in CALLED:
                yield f"runs text as code: {name}"
            if name in PUBLIC and isinstance(context, ast.Store):
                yield f"redefines {name}"
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            words = {name}
            if name in PUBLIC:
                yield f"redefines {name}"
        case ast.Call(function, [first, *others]):
            name = ast.unparse(function).rpartition(".")[2]
            if name in BY_NAME and not isinstance(others[0] if others else first, ast.Constant):
                yield "computes the names of attributes"
            if name in ("run_line_magic", "run_cell_magic") and first.value in HIDDEN:
                yield f"runs a shell command or another file: {first.value}"
        case ast.Constant(str(text)):
            words = {*text.split(".")} if text.startswith(("_", "f_", "tb_", "gi_")) else set()
            if PRIVATE.search(text) or "solutions/" in text or "/proc/" in text:
                yield "names files of the grader"
    yield from (NOTES[word] for word in sorted(words & NOTES.keys()))


def solution(chapter: str) -> list[str]:
    """The code of a chapter's own solution, as far as it is in a student's hands: no set-up cell, no check."""
    cells = json.loads((ROOT / "solutions" / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    ours = {cell["id"] for cell in cells if cell["id"] == "setup" or cell["metadata"].get("nbgrader", {}).get("grade")}
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code" and cell["id"] not in ours]


if __name__ == "__main__":
    main()
