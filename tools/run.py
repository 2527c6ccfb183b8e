"""Execute the course: every lecture and solution, headless, through papermill, on the best device of this machine.

    python -m tools.run                                   all of it
    python -m tools.run --chapters "01 02"                some chapters
    python -m tools.run --kinds solution                  one kind of notebook

Writes to build/: the executed notebooks, an HTML page of each, report.html and report.json. Ends with status 1 if
anything failed. What counts as a failure stands in `judge`.
"""

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from tqdm import tqdm

from tools import course, report
from tools.execute import Execution, execute

RECORD = "application/vnd.torchcourse.record+json"
LARGEST = 400_000  # bytes of an executed notebook: GitHub shows it, a diff of it can be read
FAILS_AT = 3  # times the budget. Between one and three times: passes, and the report says "over budget"
KILLED_AT = 5  # times the budget: the notebook hangs, or may as well
KILLED_AFTER = 600  # seconds, where there is no budget
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
BANNER = "DRAWN IMAGES, NOT"  # see torchcourse.data.banner
OUTCOME = re.compile(r"^\S (\w+): (correct|not attempted|incorrect|error|unknown)\.")  # see torchcourse.checks.show


@dataclass
class Number:
    """A number that a notebook recorded, or should have recorded, and its range."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> str:
        """in range, out of range, missing, or no range."""
        if self.value is None:
            return "missing"
        if self.low is None or self.high is None:
            return "no range"
        return "in range" if self.low <= self.value <= self.high else "out of range"  # NaN is out of range


@dataclass
class CellError:
    """The cell at which a notebook stopped, and why. Texts are free of ANSI colors."""

    number: int  # counted over code cells, from 1
    id: str
    source: str
    name: str
    message: str
    traceback: list[str] = field(default_factory=list)


@dataclass
class Result:
    """One row of the report."""

    chapter: str
    kind: str  # lecture or solution
    device: str  # cpu, cuda, mps, ...
    origin: str = "real"  # of the data: real or drawn
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    mib: float = 0.0
    kilobytes: float = 0.0
    budget: dict[str, float] | None = None  # seconds and mib
    numbers: list[Number] = field(default_factory=list)
    error: CellError | None = None
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    page: str | None = None  # relative to the report

    @property
    def key(self) -> str:
        """How budgets and ranges of course.toml are keyed."""
        return f"{self.device}.{self.origin}"

    @property
    def status(self) -> str:
        """failed, over budget, or passed."""
        if self.failures:
            return "failed"
        return "over budget" if any(note.startswith("over budget") for note in self.notes) else "passed"


# ---------------------------------------------------------------------------------------------------------------------
# Reading an executed notebook


def _outputs(notebook: NotebookNode):
    """(number of the code cell, cell, output) for each output."""
    code_cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code_cells, start=1):
        for output in cell.outputs:
            yield number, cell, output


def recorded(notebook: NotebookNode) -> dict[str, float]:
    """The numbers that the notebook gave to `record`, by name."""
    numbers = {}
    for _, _, output in _outputs(notebook):
        numbers.update(output.get("data", {}).get(RECORD, {}))
    return numbers


def origin(notebook: NotebookNode) -> str:
    """Where the notebook's data came from: "drawn" if `data.load` showed its banner, else "real".

    The executed notebook itself is asked, not the machine: it knows which sets it loaded. One that loads none is real.
    """
    texts = (output.get("data", {}).get("text/plain", "") for _, _, output in _outputs(notebook))
    return "drawn" if any(BANNER in text for text in texts) else "real"


def outcomes(notebook: NotebookNode) -> dict[str, str]:
    """What the checks said, by exercise; the last word counts."""
    texts = (output.get("data", {}).get("text/plain", "") for _, _, output in _outputs(notebook))
    return dict(match.groups() for match in map(OUTCOME.match, texts) if match)


def complaints(notebook: NotebookNode) -> list[str]:
    """Warnings and everything else that cells wrote to stderr, each with its cell."""
    return [
        f"code cell {number} wrote to stderr: {ANSI.sub('', output.text).strip()[:600]}"
        for number, _, output in _outputs(notebook)
        if output.output_type == "stream" and output.name == "stderr"
    ]


def first_error(notebook: NotebookNode, run: Execution) -> CellError | None:
    """The cell that raised, or at which the kernel was lost."""
    for number, cell, output in _outputs(notebook):
        if output.output_type == "error":
            lines = ANSI.sub("", "\n".join(output.traceback)).splitlines()
            return CellError(
                number, cell.get("id", ""), cell.source, output.ename, ANSI.sub("", output.evalue), lines[-12:]
            )
    if run.died is None or run.cell is None:
        return None
    cell = notebook.cells[run.cell]
    number = sum(other.cell_type == "code" for other in notebook.cells[: run.cell + 1])
    name, _, message = run.died.partition(": ")
    return CellError(number, cell.get("id", ""), cell.source, name, message, run.log.strip().splitlines()[-12:])


# ---------------------------------------------------------------------------------------------------------------------
# Judging


def judge(
    result: Result,
    budget: Mapping[str, Mapping[str, float]],
    ranges: Mapping[str, Mapping[str, list[float]]],
    values: Mapping[str, float],
    busy: bool = False,
) -> None:
    """Compare a result with its budget and ranges; adds to its failures, notes and numbers.

    budget: key ("cpu.real") -> seconds and mib. ranges: name of a number -> key -> [low, high].
    values: the numbers that were recorded.
    busy: the machine does other things at the same time, as under pytest-xdist. Wall time then says how much else
        there was to do, so processor time is judged instead. Budgets are wall times on two cores, and a notebook
        that keeps both busy needs twice its wall time of processor time: still below the three times that fail.
    """
    result.budget = dict(budget[result.key]) if result.key in budget else None
    if result.budget is None:
        result.notes.append(f"time and memory not measured on {result.key}: no budget to compare with")
    else:
        seconds = min(result.seconds, result.cpu_seconds) if busy else result.seconds
        for value, unit, limit in (
            (seconds, "s", result.budget["seconds"]),
            (result.mib, "MiB", result.budget["mib"]),
        ):
            what = f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"
            if value > FAILS_AT * limit:
                result.failures.append(f"took {what}, more than {FAILS_AT} times its budget of {limit:g} {unit}")
            elif value > limit:
                result.notes.append(f"over budget: took {what} of {limit:g} {unit}")

    if result.kilobytes * 1000 > LARGEST:
        result.failures.append(
            f"the executed notebook has {result.kilobytes:.0f} KB, more than {LARGEST // 1000} KB: "
            "show fewer or smaller figures, print less"
        )
    for name, value in values.items():
        low, high = ranges.get(name, {}).get(result.key, (None, None))
        number = Number(name, value, low, high)
        result.numbers.append(number)
        if number.verdict == "out of range":
            result.failures.append(f"{name} is {value:.4g}, outside its range of {low:g} to {high:g}")
        elif number.verdict == "no range" and name in ranges:
            result.notes.append(f"{name} not measured on {result.key}: no range to compare with")
    for name in ranges:
        if name in values or result.key not in ranges[name]:
            continue  # a number may be asked for on some devices only
        result.numbers.append(Number(name, None, *ranges[name][result.key]))
        if not result.error:  # else it stopped before, and that is said already
            result.failures.append(f"{name} has a range in course.toml but was not recorded")


def time_limit(budget: Mapping[str, Mapping[str, float]], device: str, busy: bool = False) -> float:
    """Seconds after which a notebook is killed. Never so few that a slow start of the kernel looks like a hang."""
    seconds = [limit["seconds"] for key, limit in budget.items() if key.split(".")[0] == device]
    limit = max(60.0, KILLED_AT * max(seconds)) if seconds else KILLED_AFTER
    return 2 * limit if busy else limit


def run_notebook(
    source: Path,
    executed: Path,
    chapter: str,
    kind: str,
    device: str,
    budget: Mapping[str, Mapping[str, float]] | None = None,
    ranges: Mapping[str, Mapping[str, list[float]]] | None = None,
    timeout: float | None = None,
    busy: bool = False,
    on_cell: Callable[[], None] = lambda: None,
    python: Sequence[str] = (sys.executable,),
) -> Result:
    """Execute a notebook and judge it. The notebook with its outputs is written to `executed`.

    budget, ranges, busy: as for `judge`. timeout: seconds; None asks `time_limit`. python: as for `execute`.
    Raises nothing but KeyboardInterrupt: whatever goes wrong stands in the result.
    """
    budget, ranges = budget or {}, ranges or {}
    result = Result(chapter, kind, device)
    if not source.exists():
        result.failures.append(f"{source.parent.name}/{source.name} does not exist: run `make build`")
        return result
    executed.unlink(missing_ok=True)
    timeout = time_limit(budget, device, busy) if timeout is None else timeout
    run = execute(source.resolve(), executed.resolve(), timeout, on_cell, python)
    result.seconds, result.cpu_seconds, result.mib = run.seconds, run.cpu_seconds, run.mib
    if not executed.exists():
        result.failures.append(f"could not be executed: {run.died}")
        return result

    notebook = nbformat.read(executed, as_version=4)
    result.kilobytes = executed.stat().st_size / 1000
    result.origin = origin(notebook)
    result.error = first_error(notebook, run)
    if run.timed_out:
        result.failures.append(f"killed after {run.seconds:.0f} s: a notebook of this budget may take {timeout:.0f} s")
    if result.error:
        message = result.error.message.splitlines()[:1] or [""]
        result.failures.append(f"stopped at code cell {result.error.number}: {result.error.name}: {message[0]}")
    elif run.died:
        result.failures.append(f"could not be executed: {run.died}")
    result.failures += complaints(notebook)
    if kind == "solution":
        result.failures += [
            f"the check of {name} says: {outcome}"
            for name, outcome in outcomes(notebook).items()
            if outcome != "correct"
        ]
    judge(result, budget, ranges, recorded(notebook), busy)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# The whole course


def best_device() -> tuple[str, str]:
    """The kind of the device that the notebooks will use ("cpu"), and what it is in words.

    This also imports what notebooks import. The first import after an installation compiles files and lets matplotlib
    look for fonts, which takes long and writes to stderr: better here than in the first notebook.
    """
    import matplotlib.font_manager  # noqa: F401
    import torch
    import torchvision  # noqa: F401

    from torchcourse import device

    best = device.best()
    if best.type == "simgpu":  # the practice GPU may be on in this process; a notebook has a process of its own
        best = torch.device("cpu")
    return best.type, device.describe(best)


def run_course(chapters: list[course.Chapter], kinds: list[str], out: Path, root: Path = course.ROOT) -> list[Result]:
    """Execute the notebooks one after the other, with a progress bar, and write the report."""
    device, description = best_device()
    jobs = [
        (chapter, kind, root / course.KINDS[kind] / f"{chapter.name}.ipynb") for chapter in chapters for kind in kinds
    ]
    cells = [_count_code_cells(source) for _, _, source in jobs]
    print(f"{len(jobs)} notebooks on {description}")
    results: list[Result] = []
    interrupted = False
    layout = "{desc:<30} {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} cells, {elapsed}"
    look = {"bar_format": layout, "leave": False, "mininterval": 0.2, "dynamic_ncols": True}
    with tqdm(total=sum(cells), disable=None, **look) as bar:  # None: a bar in a terminal, nothing in a log
        try:
            for (chapter, kind, source), count in zip(jobs, cells, strict=True):
                done = bar.n
                bar.set_description_str(f"{chapter.name} {kind}")
                executed = out / course.KINDS[kind] / source.name
                result = run_notebook(
                    source,
                    executed,
                    chapter.name,
                    kind,
                    device,
                    chapter.budget.get(kind),
                    chapter.ranges.get(kind),
                    on_cell=bar.update,
                )
                if executed.exists():
                    page = report.write_page(executed, f"{chapter.number} {chapter.title} · {kind}")
                    result.page = page.relative_to(out).as_posix()
                results.append(result)
                bar.update(done + count - bar.n)  # cells after an error are not executed
        except KeyboardInterrupt:
            interrupted = True
    report.write(results, out, course.manifest(root)["title"], description, interrupted)
    if interrupted:
        raise KeyboardInterrupt
    return results


def _count_code_cells(notebook: Path) -> int:
    if not notebook.exists():
        return 0
    return sum(cell["cell_type"] == "code" for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"])


def main(arguments: list[str] | None = None, root: Path = course.ROOT) -> int:
    """The command. Returns the exit status: 0, 1 if a notebook failed, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tools.run", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--chapters", nargs="*", default=[], help='numbers or names, for example "01 02"; all if left out'
    )
    parser.add_argument("--kinds", nargs="+", choices=course.KINDS, default=list(course.KINDS))
    parser.add_argument("--out", type=Path, default=root / "build", help="folder to write to (build)")
    options = parser.parse_args(arguments)
    chapters = course.select(" ".join(options.chapters).replace(",", " ").split(), root)
    out = options.out.resolve()
    try:
        results = run_course(chapters, options.kinds, out, root)
    except KeyboardInterrupt:
        print("Interrupted. No kernel is left running; what was done stands in the report.", file=sys.stderr)
        return 130
    print(report.table(results))
    print(f"report: {os.path.relpath(out / 'report.html')}")
    return int(any(result.status == "failed" for result in results))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a job that is cancelled ends as cleanly as a Ctrl-C
    sys.exit(main())
