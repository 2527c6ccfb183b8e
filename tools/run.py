"""Execute the course: every lecture and solution, headless, through papermill, on the best device of this machine.

    python -m tools.run                                   all of it
    python -m tools.run --chapters "01 02"                some chapters
    python -m tools.run --kinds solution                  one kind of notebook

Writes to build/: the executed notebooks, an HTML page of each, report.html and report.json. Ends with status 1 if
anything failed. What counts as a failure is in `run_notebook` and `check_ranges`.
"""

import argparse
import functools
import itertools
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import nbformat
import psutil
from nbformat import NotebookNode

from tools import course, report
from tools.compare_outputs import changed_outputs
from tools.execute import Execution, execute
from tools.result import CellError, Number, Result
from torchcourse.record import MIME

LARGEST = 500_000  # bytes of an executed notebook: GitHub shows it, a diff of it can be read
FAILS_AT = 3  # times the budget. Between one and three times: passes, and the report says "over budget"
KILLED_AT = 5  # times the budget: the notebook works without end, or may as well
KILLED_AFTER = 600  # seconds, where there is no budget
WAITS = 1800  # seconds of wall-clock time: even on a busy machine, the notebook waits for what never comes
OURS = 0.084  # seconds of processor time that a round of `slower` takes on the machine that set the budgets
CROWDED = 90  # percent of the machine that other programs use
MEASURES = re.compile(r"\b(timing|perf_counter)\b")  # in the code of a notebook whose seconds mean something
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


# ---------------------------------------------------------------------------------------------------------------------
# Reading an executed notebook


class NotebookError(Exception):
    """A file that cannot be used as a notebook. The message is a sentence: which file, what is wrong, what to do."""


def read(path: Path) -> NotebookNode:
    """The notebook in a file. Raises NotebookError if there is none: cut short, empty, edited into something else."""
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(notebook)
        return notebook
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    except Exception as error:  # nbformat meets JSON of other shapes with nearly any exception
        problem = f"is not a notebook ({type(error).__name__}: {str(error).strip().partition(chr(10))[0]})"
    raise NotebookError(f"{path.parent.name}/{path.name} {problem}. Run `make build`.")


def _outputs(notebook: NotebookNode):
    """(number of the code cell, cell, output) for each output."""
    code_cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code_cells, start=1):
        for output in cell.outputs:
            yield number, cell, output


def _told(notebook: NotebookNode, what: str) -> list:
    """What the notebook's package told the runner, in order: "numbers", "outcomes" or "origin"."""
    messages = (output.get("data", {}).get(MIME, {}) for _, _, output in _outputs(notebook))
    return [message[what] for message in messages if what in message]


def recorded(notebook: NotebookNode) -> dict[str, float]:
    """The numbers that the notebook gave to `record`, by name."""
    return {name: value for numbers in _told(notebook, "numbers") for name, value in numbers.items()}


def origin(notebook: NotebookNode) -> str:
    """Where the notebook's data came from: "synthetic" if `data.load` showed its banner, else "real".

    The executed notebook itself is asked, not the machine: it knows which sets it loaded. One that loads none is real.
    """
    return "synthetic" if _told(notebook, "origin") else "real"


def outcomes(notebook: NotebookNode) -> dict[str, str]:
    """What the checks said, by exercise; the last word counts."""
    return {name: outcome for outcomes in _told(notebook, "outcomes") for name, outcome in outcomes.items()}


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


def check_ranges(
    result: Result,
    budget: Mapping[str, Mapping[str, float]],
    ranges: Mapping[str, Mapping[str, list[float]]],
    values: Mapping[str, float],
) -> None:
    """Compare a result with its budget and ranges; adds to its failures, notes and numbers.

    budget: key ("cpu.real") -> seconds and mib. ranges: name of a number -> key -> [low, high].
    values: the numbers that were recorded.
    """
    result.budget = dict(budget[result.key]) if result.key in budget else None
    if result.budget is None:
        result.notes.append(f"time and memory not measured on {result.key}: no budget to compare with")
    else:
        for value, unit, limit in (
            (result.judged_seconds, "s", result.budget["seconds"]),
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
            place = f"not the expected {low:g}" if low == high else f"outside its range of {low:g} to {high:g}"
            result.failures.append(f"{name} is {value:.4g}, {place}")
        elif number.verdict == "no range" and name in ranges:
            result.notes.append(f"{name} not measured on {result.key}: no range to compare with")
    for name in ranges:
        if name in values or result.key not in ranges[name]:
            continue  # a number may be asked for on some devices only
        result.numbers.append(Number(name, None, *ranges[name][result.key]))
        if not result.error:  # else it stopped before, and that is said already
            result.failures.append(f"{name} has a range in course.toml but was not recorded")


def time_limit(budget: Mapping[str, Mapping[str, float]], device: str) -> float:
    """Seconds of work after which a notebook is killed. Never so few that a slow start looks like a hang."""
    seconds = [limit["seconds"] for key, limit in budget.items() if key.split(".")[0] == device]
    return max(60.0, KILLED_AT * max(seconds)) if seconds else KILLED_AFTER


def run_notebook(
    source: Path,
    executed: Path,
    chapter: str,
    kind: str,
    device: str,
    budget: Mapping[str, Mapping[str, float]] | None = None,
    ranges: Mapping[str, Mapping[str, list[float]]] | None = None,
    timeout: float = WAITS,
    **options: Any,
) -> Result:
    """Execute a notebook and judge it. The notebook with its outputs is written to `executed`.

    budget, ranges: as for `check_ranges`. timeout, options: as for `execute`.
    Raises nothing but KeyboardInterrupt: whatever goes wrong is in the result.
    """
    budget, ranges = budget or {}, ranges or {}
    result = Result(chapter, kind, device)
    executed.unlink(missing_ok=True)
    try:
        shown = read(source)
    except NotebookError as error:
        result.failures.append(str(error))
        return result
    work = time_limit(budget, device)
    run = execute(source.resolve(), executed.resolve(), timeout, work, **options)
    result.seconds, result.cpu_seconds, result.mib = run.seconds, run.cpu_seconds, run.mib
    if not executed.exists():
        result.failures.append(f"could not be executed: {run.died}")
        return result

    notebook = nbformat.read(executed, as_version=4)
    result.kilobytes = executed.stat().st_size / 1000
    result.origin = origin(notebook)
    result.error = first_error(notebook, run)
    if run.timed_out:
        result.failures.append(
            f"killed after {run.seconds:.0f} s, in which it got {run.cpu_seconds:.0f} s of processor time: "
            + (
                f"a notebook with this budget may take {work:.0f} s"
                if result.judged_seconds > work
                else "it waits for something that never comes, or other programs leave it too little processor time"
            )
        )
    if result.error:
        message = result.error.message.splitlines()[:1] or [""]
        result.failures.append(f"stopped at code cell {result.error.number}: {result.error.name}: {message[0]}")
    elif run.died:
        result.failures.append(f"could not be executed: {run.died}")
    elif result.key == "cpu.real":  # that is where the outputs in our notebooks come from
        result.failures += changed_outputs(notebook, shown)
    result.failures += complaints(notebook)
    if kind == "solution":
        for name, outcome in outcomes(notebook).items():
            if outcome == "not checked":
                result.notes.append(f"left out: the check of {name} needs something that this machine lacks")
            elif outcome != "correct":
                result.failures.append(f"the check of {name} says: {outcome}")
    check_ranges(result, budget, ranges, recorded(notebook))
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


@functools.cache
def slower() -> float:
    """How many times as long a core takes as one of the machine that set the budgets; 1 if it is faster.

    Measured on what notebooks do most, convolutions and Python, on one thread. The processor time of the fastest of
    several rounds counts: other programs hardly matter.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    images = torch.ones(32, 3, 32, 32)
    filters = torch.ones(32, 3, 3, 3, requires_grad=True), torch.ones(32, 32, 3, 3, requires_grad=True)
    rounds = []
    for _ in range(10):
        start = time.process_time()
        for _ in range(3):
            found = images
            for each in filters:
                found = torch.nn.functional.conv2d(found, each).relu()
            found.mean().backward()
        sum(number * number for number in range(100_000))
        rounds.append(time.process_time() - start)
    torch.set_num_threads(threads)
    return max(1.0, min(rounds) / OURS)


@functools.cache
def crowded() -> bool:
    """Whether other programs keep this machine busy, before our own do. What yields to them would starve."""
    return psutil.cpu_percent(1) > CROWDED


def about(device: str) -> list[str]:
    """What the report says about this machine: how fast it is, and what cells leave out here, a sentence each."""
    # Not at the top: they import PyTorch, which the login node of a cluster does without.
    from torchcourse.cluster import practice
    from torchcourse.lectures import compiling

    sentences = []
    if device == "cpu" and slower() > 1.1:
        sentences.append(
            f"A core of this machine takes {slower():.1f} times as long as one on the machine that set the "
            "budgets, so each budget in seconds is multiplied by that."
        )
    if crowded():
        sentences.append("Other programs keep this machine busy: the run takes longer, and measured times mean little.")
    return sentences + [f"Left out: {lacks}" for lacks in (compiling.missing(), practice.why_not()) if lacks]


def perform(
    chapter: course.Chapter, kind: str, device: str, out: Path, root: Path = course.ROOT, **options: Any
) -> Result:
    """Execute and judge one notebook of a chapter; what comes of it, and its page, go to a folder of `out`.

    options: as for `execute`.
    """
    source = root / course.KINDS[kind] / f"{chapter.name}.ipynb"
    executed = out / course.KINDS[kind] / source.name
    budget, ranges = chapter.budget.get(kind, {}), chapter.ranges.get(kind)
    if device == "cpu":
        budget = {key: limit | {"seconds": round(slower() * limit["seconds"])} for key, limit in budget.items()}
    result = run_notebook(source, executed, chapter.name, kind, device, budget, ranges, **options)
    if executed.exists():
        page = report.write_page(executed, f"{chapter.number} {chapter.title} · {kind}")
        result.page = page.relative_to(out).as_posix()
    return result


def run_course(chapters: list[course.Chapter], kinds: list[str], out: Path, root: Path = course.ROOT) -> list[Result]:
    """Execute the notebooks and write the report.

    Lectures that measure time come one after the other. On a processor, everything else takes what they leave of it,
    two notebooks at a time: a lecture of ours keeps one of two cores busy most of the time, and each notebook waits now
    and then. A GPU cannot tell what may wait; there, all lectures come one after the other, and solutions follow.

    Each notebook gets a line when it starts, and one when it has ended.
    """
    device, description = best_device()
    jobs = [(chapter, kind) for chapter in chapters for kind in kinds if kind in chapter.kinds]
    notes = about(device)
    print(f"{len(jobs)} notebooks on {description}", *notes, sep="\n", flush=True)
    results: dict[int, Result] = {}
    started = itertools.count(1)
    interrupted = threading.Event()

    def run_each(waiting: Iterable[int], yields: bool) -> None:
        for job in waiting:
            if interrupted.is_set():
                return
            chapter, kind = jobs[job]
            number = f"[{next(started)}/{len(jobs)}]"
            print(f"{number} {chapter.name} {kind} ...\n", end="", flush=True)  # at once, beside other threads
            gently = yields and not measured.done()
            results[job] = perform(chapter, kind, device, out, root, interrupted=interrupted, gently=gently)
            print(f"{number} {report.one_line(results[job])}\n", end="", flush=True)

    def measures(job: int) -> bool:
        chapter, kind = jobs[job]
        path = root / course.KINDS[kind] / f"{chapter.name}.ipynb"
        return kind == "lecture" and (device != "cpu" or any(map(MEASURES.search, code_cells(path))))

    alone = list(filter(measures, range(len(jobs))))
    others = sorted({*range(len(jobs))} - {*alone}, key=lambda job: _longest(*jobs[job]))
    # The longest first: none of them is left for the end. One iterator for all lanes: no job is taken twice.
    waiting = reversed(others)
    with ThreadPoolExecutor(3 if device == "cpu" else 2) as pool:
        try:
            measured = pool.submit(run_each, alone, False)
            if device != "cpu":
                measured.result()
            lanes = [pool.submit(run_each, waiting, not crowded()) for _ in range(3)]
            for lane in as_completed([measured, *lanes]):
                lane.result()
        except KeyboardInterrupt:
            interrupted.set()  # ends the kernels
    ended = [results[job] for job in sorted(results)]
    report.write(ended, out, course.manifest(root)["title"], description, interrupted.is_set(), notes)
    if interrupted.is_set():
        raise KeyboardInterrupt
    return ended


def _longest(chapter: course.Chapter, kind: str) -> float:
    """The largest budget of a notebook, in seconds."""
    return max((limit["seconds"] for limit in chapter.budget.get(kind, {}).values()), default=0.0)


def code_cells(path: Path) -> list[str]:
    """The code of a notebook, cell by cell; none where the file is no notebook."""
    try:
        return [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    except NotebookError:
        return []


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
        print("Interrupted. No kernel is left running. The report has what was finished.", file=sys.stderr)
        return 130
    print(report.table(results))
    print(f"report: {os.path.relpath(out / 'report.html')}")
    return int(any(result.status == "failed" for result in results))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a job that is cancelled ends as cleanly as a Ctrl-C
    sys.exit(main())
