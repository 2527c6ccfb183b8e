"""Execute the lectures and solutions on the best device, and go on tomorrow where the time ran out today.

    python -m tools.gpu.course --out build/gpu/run --minutes 8

Judged as by `python -m tools.run`: budgets and ranges of the device's kind, where course.toml has any. Notebooks that
measure time come first, one after the other; where there are many cores, the others follow, several at a time. One that
passed is not executed again until it, the device or PyTorch changes. Ends with status 1 if a notebook failed, 3 if some
are left to do.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tools import course, report, run

CUT = 3  # exit status: the time was over
# Seconds for a notebook without a budget on this device, or as long as on a CPU if that is longer: one that hangs must
# not take all the time.
LONGEST = 240.0
SHORTEST = 20.0  # seconds: with less than that left, no kernel is started
CORES = 4  # for each of several notebooks at a time

Job = tuple[course.Chapter, str, Path, str]  # chapter, kind, path, digest


def remaining(chapters: list[course.Chapter], done: dict[str, dict[str, Any]], about: str, root: Path) -> list[Job]:
    """Notebooks still to execute. about: device and PyTorch in words."""
    found = []
    for chapter in chapters:
        for kind, folder in chapter.kinds.items():
            path = root / folder / f"{chapter.name}.ipynb"
            content = path.read_bytes() if path.exists() else b""
            digest = hashlib.sha256(content + about.encode()).hexdigest()
            earlier = done.get(f"{chapter.name} {kind}", {})
            if earlier.get("digest") != digest or earlier.get("status") == "failed":
                found.append((chapter, kind, path, digest))
    return found


def measures(job: Job) -> bool:
    """Whether the notebook measures seconds, so that nothing else should run beside it."""
    _, _, path, _ = job
    return any(map(run.MEASURES.search, run.code_cells(path)))


def budgets(rows: list[dict[str, Any]]) -> list[str]:
    """Lines for course.toml, for notebooks that have no budget on this device: twice of what they took.

    Ranges are not proposed: what a number may be is not to be learned from one run.
    """
    lines = []
    for row in rows:
        if row["budget"] is None and row["status"] != "failed":
            seconds, mib = 5 * round(2 * row["seconds"] / 5 + 0.5), 500 * round(2 * row["mib"] / 500 + 0.5)
            key = f"{row['device']}.{row['origin']}"
            lines.append(f'{row["chapter"]} {row["kind"]}: "{key}" = {{ seconds = {seconds}, mib = {mib} }}')
    return lines


def time_limit(budget: dict[str, dict[str, float]], device: str, left: float) -> float | None:
    """Seconds after which a notebook is stopped and counts as failed, or None if it is too late to begin one.

    left: seconds until the end of the part.
    """
    if left < SHORTEST:
        return None
    kinds = {key.split(".")[0] for key in budget}
    if device in kinds:
        return min(left, run.time_limit(budget, device))
    return min(left, max(LONGEST, run.time_limit(budget, "cpu") if "cpu" in kinds else 0.0))


def lanes() -> int:
    """How many notebooks that measure nothing may run at a time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(4, cores // CORES))


def main(arguments: list[str] | None = None, root: Path = course.ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu.course", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=root / "build" / "gpu" / "run")
    parser.add_argument("--minutes", type=float, help="begin no notebook after so many minutes")
    parser.add_argument("--chapters", nargs="*", default=[])
    options = parser.parse_args(arguments)
    out, state = options.out.resolve(), options.out.resolve() / "done.json"
    chapters = course.select(" ".join(options.chapters).split(), root)
    device, words = run.best_device()
    done = json.loads(state.read_text()) if state.exists() else {}
    todo = remaining(chapters, done, f"{words} {torch.__version__}", root)
    total = sum(len(chapter.kinds) for chapter in chapters)
    print(f"{total} notebooks on {words}" + (f", {total - len(todo)} of them done" * (len(todo) < total)), flush=True)
    end = time.monotonic() + 60 * options.minutes if options.minutes is not None else float("inf")
    results: list[run.Result] = []
    out.mkdir(parents=True, exist_ok=True)
    interrupted, writing = threading.Event(), threading.Lock()

    def execute(job: Job) -> None:
        """Execute and judge a notebook, and write down what came of it; nothing where there is no time left."""
        chapter, kind, _, digest = job
        budget = chapter.budget.get(kind) or {}
        timeout = time_limit(budget, device, end - time.monotonic())
        if timeout is None or interrupted.is_set():
            return
        print(f"{chapter.name} {kind} ...", flush=True)
        result = run.perform(chapter, kind, device, out, root, timeout=timeout, interrupted=interrupted)
        late = any(failure.startswith("killed after") for failure in result.failures)
        if late and timeout < time_limit(budget, device, float("inf")):
            print(f"{chapter.name} {kind}: cut off after {result.seconds:.0f} s", flush=True)
            return  # the end of the part came, not the notebook's own: it is left for the next run
        if interrupted.is_set():
            return
        with writing:
            results.append(result)
            done[f"{chapter.name} {kind}"] = asdict(result) | {"status": result.status, "digest": digest}
            state.write_text(json.dumps(done, indent=1))
            print(report.one_line(result), flush=True)

    with ThreadPoolExecutor(lanes()) as pool:
        try:
            for job in filter(measures, todo):
                execute(job)
            list(pool.map(execute, (job for job in todo if not measures(job))))
        except KeyboardInterrupt:
            interrupted.set()  # ends the kernels
    left = len(todo) - len(results)
    if interrupted.is_set():
        print(f"stopped, {left} notebooks left", flush=True)
    if results:
        print(report.table(results))
        report.write(results, out, course.manifest(root)["title"], words, interrupted=left > 0)
    if lines := budgets([asdict(result) | {"status": result.status} for result in results]):
        print("No budget in course.toml; twice of what it took is:", *lines, sep="\n  ")
    return 1 if any(result.status == "failed" for result in results) else CUT if left else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
