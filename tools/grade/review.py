"""What a person should look at: plain signs in a student's code that it works on the grader and not on the exercise.

A note costs no points. It is a search for words in the syntax tree, so it can be evaded, and it can be wrong: a person
reads the cell and decides. What cannot be parsed is noted, too.

Parsing foreign text can take hours and all memory, so it happens in a process of its own with limits on both.
"""

import ast
import json
import resource
import subprocess
import sys
import warnings
from collections.abc import Iterator

from tools.course import ROOT

SECONDS, MIB = 20, 1500  # of a notebook; one without tricks takes half a second
UNFINISHED = "could not be reviewed to its end: parsing it takes too long or too much memory"
UNPARSED = "holds a cell that is not Python"
DEEPEST = 5  # magics within magics

PRIVATE = ("labcheck", "torchcourse_labs")  # students need some names of the first
PUBLIC = {"board", "check", "evaluate", "hint", "lend", "progress"}
INSIDE = "imports the inside of the checks: "
SIGNS = {
    "looks into other code while it runs": (
        "_getframe _getframemodulename currentframe _current_frames _current_exceptions gc inspect f_back f_locals "
        "f_globals f_builtins f_code tb_frame tb_next gi_frame cr_frame ag_frame __traceback__ walk_stack walk_tb "
        "extract_stack settrace setprofile settrace_all_threads setprofile_all_threads sys.monitoring get_referrers "
        "get_objects"
    ),
    "works on Python's modules": (
        "modules __import__ importlib builtins __builtins__ __main__ __loader__ __spec__ ctypes cffi runpy pkgutil "
        "meta_path path_hooks globals _C"
    ),
    "replaces parts of objects": (
        "setattr delattr __setattr__ __delattr__ __dict__ vars __code__ __globals__ __closure__ __defaults__ "
        "__kwdefaults__ __bases__ __subclasses__ __mro__ __wrapped__ cell_contents __getattribute__ __set_name__ "
        "__init_subclass__ MonkeyPatch monkeypatch"
    ),
    "says itself what it equals": (
        "__eq__ __ne__ __bool__ __array__ __array_ufunc__ __array_function__ __instancecheck__ __subclasscheck__ "
        "__subclasshook__ __torch_function__ __torch_dispatch__ mock"
    ),
    "changes what PyTorch's functions do": (
        "TorchFunctionMode TorchDispatchMode BaseTorchFunctionMode overrides _python_dispatch _forward_hooks "
        "_forward_pre_hooks _backward_hooks _backward_pre_hooks _post_accumulate_grad_hooks"
    ),
    "works in another thread or process": (
        "threading _thread Thread Timer concurrent ThreadPoolExecutor ProcessPoolExecutor ThreadPool multiprocessing "
        "asyncio to_thread run_in_executor"
    ),
    "runs text as code": "FunctionType CodeType LambdaType",
    "ends or starts processes": (
        "_exit kill killpg fork forkpty system popen Popen subprocess atexit pty execv execve execvp posix_spawn dup2 "
        "raise_signal"
    ),
    "deletes files": "rmtree unlink rmdir",
    "uses the network": "socket urllib requests http",
    "changes IPython": "get_ipython showtraceback _showtraceback excepthook ast_transformers",
}
NOTES = {word: note for note, words in SIGNS.items() for word in words.split()}
CALLED = {"eval", "exec", "compile"}  # only as plain names: `model.eval()` and `torch.compile` are something else
WRITTEN = "__class__"  # only where it is assigned or defined: `x.__class__.__name__` is in many an honest message
BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller"}
# A check compares values, and one of these can lie about its own: str subclasses that equal everything.
VALUES = {"str", "int", "float", "complex", "bool", "bytes", "tuple", "list", "dict", "set", "frozenset"}
VALUES |= {"Tensor", "ndarray", "type"}
SETTINGS = ("torch.backends.",)  # attributes of modules that are there to be set

SHELL = {"system", "getoutput", "sx", "sc", "!", "!!", "bash", "sh", "script", "cmd", "perl", "ruby", "pypy", "alias"}
SHELL |= {"python", "python2", "python3"}
FROM_FILES = {"run", "load", "loadpy", "macro", "recall", "rerun", "edit"}
PYTHON = {"time", "timeit", "prun", "capture", "memit", "mprun", "lprun", "debug"}


def review(sources: list[str], exempt: list[str], seconds: int = SECONDS) -> list[str]:
    """Notes on a student's cells.

    exempt: cells whose own signs count for nothing, those of the course's solution.
    seconds: of processor time, after which the notes found until then have to do
    """
    said = b""
    try:
        said = subprocess.run(
            [sys.executable, "-m", "tools.grade.review", str(seconds)],
            input=json.dumps([sources, exempt]).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            timeout=10 * seconds,
            start_new_session=True,  # Ctrl-C is for us
        ).stdout
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
    except OSError:  # no memory for a process: that costs a note, and no points
        pass
    notes = [json.loads(line) for line in said.split(b"\n")[:-1]]
    return [note for note in notes if note] if notes[-1:] == [None] else [*notes, UNFINISHED]


def main() -> None:
    """The process with limits: cells come in as JSON, each note goes out as soon as it is found, null is the end."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1])))
    resource.setrlimit(resource.RLIMIT_AS, (MIB * 2**20, MIB * 2**20))
    warnings.simplefilter("ignore")  # of a student's odd escapes in strings
    for note in signs(*json.load(sys.stdin)):
        print(json.dumps(note), flush=True)
    print(json.dumps(None))


def signs(sources: list[str], exempt: list[str]) -> Iterator[str]:
    """The notes on cells, each once. Takes as long as it takes."""
    modules = {"sys", "os"}  # the set-up cell imports them
    said = {note for source in exempt for note in _of_cell(source, modules)}
    for source in sources:
        for note in _of_cell(source, modules):
            if note not in said:
                said.add(note)
                yield note


def _of_cell(source: str, modules: set[str], depth: int = 0) -> Iterator[str]:
    """The notes on one cell. Names that it imports are added to `modules`."""
    tree = _parsed(source)
    if tree is None or depth > DEEPEST:
        yield UNPARSED
        return
    ours: set[ast.AST] = set()  # what IPython's syntax became, which is no sign in itself
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (magic := _magic(node)):
            ours |= {node.func, node.func.value.func}
            yield from _of_magic(*magic, modules, depth)
        elif _walks_layers(node):  # `sys.modules` is no function
            ours.add(node.func)
        elif node not in ours:
            yield from _of(node, modules)


def _walks_layers(node: ast.AST) -> bool:
    """Tell whether this is `model.modules()`."""
    function = node.func if isinstance(node, ast.Call) and not node.args else None
    return isinstance(function, ast.Attribute) and function.attr == "modules"


def _parsed(source: str) -> ast.Module | None:
    """The syntax tree of a cell, IPython's own syntax turned into calls by IPython itself; None if there is none."""
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        return ast.parse(TransformerManager().transform_cell(source))
    except (Exception, MemoryError):  # the transformer may stumble over anything that is not Python
        return None


def _magic(node: ast.Call) -> tuple[str, list[str]] | None:
    """Name and texts of one of IPython's calls, such as `get_ipython().run_line_magic("time", "f(x)")`."""
    function = node.func
    if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call)):
        return None
    if not (isinstance(function.value.func, ast.Name) and function.value.func.id == "get_ipython"):
        return None
    texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if function.attr in ("system", "getoutput"):
        return function.attr, texts
    if function.attr in ("run_line_magic", "run_cell_magic") and len(texts) == len(node.args) >= 2:
        return texts[0], texts[1:]
    return None


def _of_magic(name: str, texts: list[str], modules: set[str], depth: int) -> Iterator[str]:
    if name in SHELL:
        yield "runs a shell command"
    elif name in FROM_FILES:
        yield "runs text as code"
    elif name in PYTHON:
        yield from _of_cell(_without_options(texts[0]), modules, depth + 1)
        for body in texts[1:]:
            yield from _of_cell(body, modules, depth + 1)
    elif name in ("writefile", "file") and texts[0].strip("\"' ").endswith(".py"):
        yield from _of_cell(texts[-1], modules, depth + 1)


def _without_options(line: str) -> str:
    """`f(x)` of "-n 10 -o f(x)"."""
    words = line.split(maxsplit=1)
    while words and words[0].startswith("-") and len(words) > 1:
        words = words[1].split(maxsplit=1)
        if len(words) > 1 and words[0].isdigit():
            words = words[1].split(maxsplit=1)
    return " ".join(words)


def _inside(text: str) -> bool:
    """Whether a dotted name, or a text with one, leads into the checks."""
    return f"{PRIVATE[0]}." in text or PRIVATE[1] in text


def _of(node: ast.AST, modules: set[str]) -> Iterator[str]:
    """The notes on one node of a syntax tree."""
    words: set[str] = set()
    if isinstance(node, ast.Import):
        words = {part for alias in node.names for part in alias.name.split(".")}
        modules |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        yield from (INSIDE + alias.name for alias in node.names if _inside(alias.name))
    elif isinstance(node, ast.ImportFrom):
        module, names = node.module or "", {alias.name for alias in node.names}
        words = {*module.split("."), *names}
        modules |= {alias.asname or alias.name for alias in node.names}
        if module.partition(".")[0] in PRIVATE:
            yield from (
                f"{INSIDE}{module}.{name}" for name in sorted(names - (PUBLIC if module == PRIVATE[0] else set()))
            )
        if "solutions" in words:
            yield "looks for the solutions"
    elif isinstance(node, ast.Attribute):
        words = {node.attr}
        root, name = _dotted(node)
        words |= {name} if name == "sys.monitoring" else set()
        if node.attr == "EXERCISES":
            yield f"{INSIDE}{node.attr}"
        if not isinstance(node.ctx, ast.Load):
            if node.attr == WRITTEN:
                yield f"replaces parts of objects: {WRITTEN}"
            if root in modules and not name.startswith(SETTINGS):
                yield f"replaces {name[:80]}"
    elif isinstance(node, ast.Name):
        words = {node.id}
        if isinstance(node.ctx, ast.Store) and node.id in PUBLIC:
            yield f"redefines {node.id}"
        if node.id in CALLED:
            yield f"runs text as code: {node.id}"
    elif isinstance(node, ast.Assign):
        if isinstance(node.value, (ast.Name, ast.Attribute)) and _dotted(node.value)[0] in modules:
            modules |= {each.id for each in node.targets if isinstance(each, ast.Name)}  # another name for it
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        words = {node.name}
        if node.name == WRITTEN:
            yield f"replaces parts of objects: {WRITTEN}"
        if node.name in PUBLIC:
            yield f"redefines {node.name}"
        for base in getattr(node, "bases", []):
            if (name := _dotted(base)[1].rpartition(".")[2]) in VALUES:
                yield f"derives a class from {name}"
    elif isinstance(node, ast.Call):
        name = _dotted(node.func)[1].rpartition(".")[2]
        if name == "type" and len(node.args) == 3:
            yield "makes a class while it runs"
        if name in BY_NAME:
            asked = node.args[1:2] if name.endswith("attr") else node.args
            texts = [each.value for each in asked if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            words = {word for text in texts for word in text.split(".")}
            if len(texts) < len(asked):
                yield "computes the names of attributes"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        words = {node.value} if node.value.startswith("_") else set()
        if _inside(node.value):
            yield f"{INSIDE}named in a text"
        if "solutions/" in node.value or "/proc/" in node.value:
            yield "names files of the grader"
    yield from (f"{NOTES[word]}: {word}" for word in sorted(words & NOTES.keys()))


def _dotted(node: ast.AST) -> tuple[str, str]:
    """("torch", "torch.Tensor.all") of such an expression; ("", "") of one that does not begin with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return "", ".".join(reversed(parts[:1]))
    return node.id, ".".join([node.id, *reversed(parts)])


def solution(chapter: str) -> list[str]:
    """The code of a chapter's own solution, as far as it is in a student's hands: no set-up cell, no check."""
    notebook = json.loads((ROOT / "solutions" / f"{chapter}.ipynb").read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code" and not _is_ours(cell)]


def _is_ours(cell: dict) -> bool:
    """Tell whether a code cell of a solution is the set-up cell or a check."""
    return cell["id"] == "setup" or cell["metadata"].get("nbgrader", {}).get("grade", False)


if __name__ == "__main__":
    main()
