"""Execute the lectures and solutions on the best device, and go on tomorrow where the time ran out today.

    python -m tools.gpu.course --minutes 8

Judged as by `python -m tools.run`: budgets and ranges of the device's kind, where course.toml has any. Notebooks that
measure time come first, one after the other; where there are many cores, the others follow, several at a time. One that
passed is not executed again until it, the device or PyTorch changes. Ends with status 1 if a notebook failed, 124 if
some are left to do.
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

CUT = 124  # exit status: the time was over
# Seconds for a notebook without a budget on this device: one that hangs must not take all the time.
LONGEST = 240.0
SHORTEST = 20.0  # seconds: with less than that left, no kernel is started
LANES = max(1, min(4, (os.cpu_count() or 1) // 4))  # so many notebooks that measure nothing run at a time

Job = tuple[course.Chapter, str, Path, str]  # chapter, kind, path, digest


def remaining(chapters: list[course.Chapter], done: dict[str, dict[str, Any]], about: str, root: Path) -> list[Job]:
    """Notebooks still to execute. about: device and PyTorch in words."""
    found = []
    for chapter in chapters:
        for kind, folder in chapter.kinds.items():
            path = root / folder / f"{chapter.name}.ipynb"
            digest = hashlib.sha256(path.read_bytes() + about.encode()).hexdigest()
            earlier = done.get(f"{chapter.name} {kind}", {})
            if earlier.get("digest") != digest or earlier.get("status") == "failed":
                found.append((chapter, kind, path, digest))
    return found


def main(arguments: list[str] | None = None, root: Path = course.ROOT) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu.course", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no notebook after so many minutes")
    parser.add_argument("--chapters", nargs="*", default=[])
    options = parser.parse_args(arguments)
    out = root / "build" / "gpu" / "run"
    out.mkdir(parents=True, exist_ok=True)
    state = out / "done.json"
    chapters = course.select(options.chapters, root)
    device, words = run.best_device()
    done = json.loads(state.read_text()) if state.exists() else {}
    todo = remaining(chapters, done, f"{words} {torch.__version__}", root)
    print(f"{len(todo)} notebooks left to execute on {words}", flush=True)
    end = time.monotonic() + 60 * options.minutes
    results: list[run.Result] = []
    interrupted, writing = threading.Event(), threading.Lock()

    def execute(job: Job) -> None:
        """Execute and judge a notebook, and write down what came of it; nothing where there is no time left."""
        chapter, kind, _, digest = job
        left, longest = end - time.monotonic(), LONGEST
        if any(key.startswith(f"{device}.") for key in chapter.budget.get(kind, {})):
            longest = run.time_limit(chapter.budget[kind], device)
        if left < SHORTEST or interrupted.is_set():
            return
        print(f"{chapter.name} {kind} ...", flush=True)
        result = run.perform(chapter, kind, device, out, root, timeout=min(left, longest), interrupted=interrupted)
        killed = any(failure.startswith("killed after") for failure in result.failures)
        if interrupted.is_set() or (killed and left < longest):
            return  # the end of the part came, not the notebook's own: it is left for the next run
        with writing:
            results.append(result)
            done[f"{chapter.name} {kind}"] = {"status": result.status, "digest": digest, "result": asdict(result)}
            state.write_text(json.dumps(done, indent=1))
            print(report.one_line(result), flush=True)

    alone = [job for job in todo if any(map(run.MEASURES.search, run.code_cells(job[2])))]
    with ThreadPoolExecutor(LANES) as pool:
        try:
            for job in alone:
                execute(job)
            list(pool.map(execute, (job for job in todo if job not in alone)))
        except KeyboardInterrupt:
            interrupted.set()  # ends the kernels
    left = len(todo) - len(results)
    if results:
        print(report.table(results))
        report.write(results, out, course.manifest(root)["title"], words, interrupted=left > 0)
    return 1 if any(result.status == "failed" for result in results) else CUT if left else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
