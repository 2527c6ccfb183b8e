"""Run the Python blocks of a deck and compare what they print with what the slides show."""

import ast
import contextlib
import io
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import warnings

from tools.course import ROOT

LIMIT = 180  # seconds for all blocks of a deck


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


def problems(deck) -> list[str]:
    """Sentences about blocks that do something else than their slide says. The code runs in a process of its own."""
    where = f"slides/{deck.path.name}, slide"
    blocks = deck.code
    if not blocks:
        return []
    given = json.dumps([[block.source, f"<slide {block.slide}>"] for block in blocks])
    # One thread: the code of a slide is small, and several test processes share the cores.
    environment = {"OMP_NUM_THREADS": "1"} | os.environ
    environment |= {"MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    with tempfile.TemporaryDirectory() as work:  # whatever a block writes goes away with the folder
        try:
            child = subprocess.run(
                [sys.executable, "-m", "tools.slides_code"],
                input=given,
                cwd=work,
                env=environment,
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            return [f"{where}s: the code took longer than {LIMIT} seconds."]
    if child.returncode:
        return [f"{where}s: Python stopped with status {child.returncode}: {child.stderr.strip()[-500:]}"]
    found = []
    for block, (printed, raised, warned) in zip(blocks, json.loads(child.stdout.splitlines()[-1]), strict=True):
        first = block.source.strip().splitlines()[0]
        here = f"{where} {block.slide}, block `{first}`"
        if raised != block.raises:
            found.append(f"{here}: expected {block.raises or 'no exception'}, it gave {raised or 'none'}.\n{printed}")
        elif block.output is not None and not matches(block.output, printed):
            found.append(f"{here}: the slide shows\n{block.output}\nbut it printed\n{printed}")
        elif raised is None and warned and block.output is None:
            found.append(f"{here}: it warns, which a slide should not: {warned}")
    return found


def child() -> None:
    """The process that `problems` starts: blocks as JSON on standard input, results as the last line that it prints."""
    namespace: dict = {"__name__": "__main__"}
    results = []
    for source, name in json.load(sys.stdin):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            printed, raised = run_block(source, name, namespace)
        results.append([printed, raised, "; ".join(str(warning.message) for warning in caught)])
    print("\n" + json.dumps(results))


if __name__ == "__main__":
    child()
