"""Run the Python blocks of a deck and compare what they print with what the slides show."""

import ast
import contextlib
import io
import linecache
import multiprocessing
import os
import re
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import torch

from tools.course import ROOT

# A deck's process is forked from one that has imported PyTorch, and what every optimizer imports: five seconds less.
PROCESSES = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
PROCESSES.set_forkserver_preload(["torch", "torch._dynamo"])


def matches(shown: str, printed: str) -> bool:
    """Does the output on the slide fit what was printed? `...` stands for anything; space at line ends is ignored."""

    def tidy(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())

    pattern = ".*?".join(re.escape(part) for part in tidy(shown).split("..."))
    return re.fullmatch(pattern, tidy(printed), flags=re.DOTALL) is not None


def run_block(source: str, name: str, namespace: dict) -> tuple[str, str | None]:
    """Run one block as a notebook cell would: (what it printed, name of the exception or None)."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    printed = io.StringIO()
    raised = None
    with contextlib.redirect_stdout(printed):
        try:
            tree = ast.parse(source, name)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, name, "exec"), namespace)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
                if value is not None:
                    print(repr(value))
        except Exception as error:
            raised = type(error).__name__
            print(f"{raised}: {error}")
    return printed.getvalue(), raised


def run_blocks(given: list[tuple[str, str]]) -> list[tuple[str, str | None, list[str]]]:
    """All blocks of a deck in a folder of their own: (what each printed, what it raised, its warnings)."""
    os.environ |= {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    torch.set_num_threads(1)  # the code of a slide is small, and several test processes share the cores
    namespace: dict = {"__name__": "__main__"}
    found = []
    with tempfile.TemporaryDirectory() as work, contextlib.chdir(work):
        for source, name in given:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("default")
                printed, raised = run_block(source, name, namespace)
            found.append((printed, raised, [str(warning.message) for warning in caught]))
    return found


def problems(deck) -> list[str]:
    """Sentences about blocks that do something else than their slide says. The code runs in a process of its own."""
    with ProcessPoolExecutor(1, PROCESSES) as pool:
        try:
            results = pool.submit(run_blocks, [(code.source, f"<slide {code.slide}>") for code in deck.code]).result()
        except BrokenProcessPool:
            return [f"slides/{deck.path.name}: the code of a slide has ended Python."]
    found = []
    for block, (printed, raised, warned) in zip(deck.code, results, strict=True):
        here = f"slides/{deck.path.name}, slide {block.slide}, block `{block.source.splitlines()[0]}`"
        if raised != block.raises:
            found.append(f"{here}: expected {block.raises or 'no exception'}, it gave {raised or 'none'}.\n{printed}")
        elif block.output is not None and not matches(block.output, printed):
            found.append(f"{here}: the slide shows\n{block.output}but it printed\n{printed}")
        elif raised is None and warned and block.output is None:
            found.append(f"{here}: it warns, which a slide should not: {'; '.join(warned)}")
    return found
