"""What a person should look at: plain signs in a student's code that it works on the grader and not on the exercise.

A note costs no points. It is a search for words in the syntax tree, so it can be evaded, and it can be wrong: a person
reads the cell and decides.
"""

import ast
import re

import nbformat

from tools.course import ROOT

PRIVATE = "torchcourse.checks"  # students need four names of it
PUBLIC = {"check", "evaluate", "hint", "progress"}
SIGNS = {
    "looks into other code while it runs": {"_getframe", "currentframe", "gc", "inspect", "f_locals", "f_globals"},
    "works on Python's modules": {"modules", "__import__", "importlib", "builtins", "__builtins__", "ctypes"},
    "replaces parts of objects": {"setattr", "__code__", "__globals__", "__closure__", "__reduce__", "__reduce_ex__"},
    "says itself what it equals": {"__eq__", "__torch_function__", "__torch_dispatch__", "mock"},
    "runs text as code": {"eval", "exec", "compile"},
    "ends or starts processes": {"_exit", "kill", "killpg", "fork", "system", "popen", "Popen", "subprocess", "atexit"},
    "deletes files": {"rmtree", "unlink", "rmdir"},
    "uses the network": {"socket", "urllib", "requests", "http"},
    "changes IPython": {"get_ipython", "showtraceback", "_showtraceback", "excepthook"},
}


def review(sources: list[str], exempt: list[str]) -> list[str]:
    """Notes on a student's cells.

    exempt: cells whose own signs count for nothing, those of the course's solution.
    """
    usual = _signs(exempt)
    return [note for note in _signs(sources) if note not in usual]


def _signs(sources: list[str]) -> list[str]:
    notes: dict[str, None] = {}  # in order, each once
    for source in sources:
        try:
            tree = ast.parse(_python(source))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # it cannot run either
        if "\n!" in f"\n{source}" or source.startswith(("%%bash", "%%sh", "%%script")):
            notes["runs a shell command"] = None
        for node in ast.walk(tree):
            for note in _of(node):
                notes[note] = None
    return list(notes)


def _of(node: ast.AST) -> list[str]:
    words = set()
    if isinstance(node, ast.Import):
        words = {part for alias in node.names for part in alias.name.split(".")}
        if any(alias.name.startswith(PRIVATE) and alias.name != PRIVATE for alias in node.names):
            return ["imports the inside of the checks"]
    elif isinstance(node, ast.ImportFrom):
        module, names = node.module or "", {alias.name for alias in node.names}
        words = {*module.split("."), *names}
        if module.startswith(PRIVATE) and (module != PRIVATE or names - PUBLIC):
            return ["imports the inside of the checks"]
        if "solutions" in words:
            return ["looks for the solutions"]
    elif isinstance(node, ast.Attribute):
        words = {node.attr}
        if node.attr in ("engine", "EXERCISES"):
            return ["imports the inside of the checks"]
    elif isinstance(node, ast.Name):
        words = {node.id}
        if isinstance(node.ctx, ast.Store) and node.id in PUBLIC:
            return [f"redefines {node.id}"]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        words = {node.name}
        if node.name in PUBLIC:
            return [f"redefines {node.name}"]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if PRIVATE + "." in node.value:
            return ["imports the inside of the checks"]
        if "solutions/" in node.value or "/proc/" in node.value:
            return ["names files of the grader"]
    return [note for note, signs in SIGNS.items() if words & signs]


def _python(source: str) -> str:
    """The source without the lines that only IPython understands."""
    return re.sub(r"^(\s*)[!%].*$", r"\1pass", source, flags=re.MULTILINE)


def solution(chapter: str) -> list[str]:
    """The answer cells of the course's own solution of a chapter."""
    notebook = nbformat.read(ROOT / "solutions" / f"{chapter}.ipynb", as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]
