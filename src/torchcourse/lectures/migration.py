"""Chapter 03: a script that is changed and run again, and a device whose memory is made scarce."""

import difflib
import html
import runpy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from torchcourse import simgpu, trace


@dataclass
class Run:
    """What a script computed, and what moved while it ran."""

    losses: list[float]
    accuracy: float
    seconds: float
    trace: trace.Trace


def run(script: Path, like: Run | None = None) -> Run:
    """Run a script that leaves `losses` and `accuracy` behind. like: the run to compare the losses with."""
    with simgpu.trace() as t:
        start = time.perf_counter()
        names = runpy.run_path(str(script))
        seconds = time.perf_counter() - start
    done = Run(names["losses"], names["accuracy"], seconds, t)
    differ = f", largest difference of a loss {np.abs(np.subtract(done.losses, like.losses)).max():g}" if like else ""
    print(f"{script.name}: accuracy {done.accuracy:.1%} after {seconds:.2f} s{differ}")
    return done


def change(script: Path, name: str, *edits: tuple[str, str]) -> Path:
    """Write a script beside this one with some places changed, each found exactly once; show the difference."""
    from IPython.display import display  # here: the package is imported without Jupyter, too

    before = after = script.read_text()
    for old, new in edits:
        assert after.count(old) == 1, old
        after = after.replace(old, new)
    (script.parent / name).write_text(after)
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm=""))[3:]
    lines = ["  ⋮" if line.startswith("@@") else line for line in lines]
    paint = {"+": "background:#dff3ec;color:#222", "-": "background:#fdeadb;color:#222"}
    rows = (f'<div style="{paint.get(line[:1], "")}">{html.escape(line) or " "}</div>' for line in lines)
    page = f'<pre style="line-height:1.35;font-family:monospace">{"".join(rows)}</pre>'
    display({"text/html": page, "text/plain": "\n".join(lines)}, raw=True)
    return script.parent / name


def allocated(gpu: torch.device) -> int:
    """Bytes that tensors take on the device."""
    return torch.mps.current_allocated_memory() if gpu.type == "mps" else torch.accelerator.memory_allocated()


def leave_room(gpu: torch.device, room: int | None) -> None:
    """Let tensors take only `room` more bytes of the device than they do now; None: all there is."""
    if gpu.type == "simgpu":
        simgpu.set_memory_limit(None if room is None else allocated(gpu) + room)
    elif gpu.type == "cuda":
        torch.cuda.empty_cache()  # give back what PyTorch keeps for later, so that the limit counts from here
        _, whole = torch.cuda.mem_get_info(gpu)
        limit = whole if room is None else torch.cuda.memory_reserved() + room  # of whole blocks, used or not
        torch.cuda.set_per_process_memory_fraction(limit / whole)


def stopwatch(action: Callable[[], object], cost: trace.Cost) -> tuple[float, float]:
    """Seconds of an action without waiting for the device, and with it: measured, or on the practice GPU modeled."""
    if torch.accelerator.current_accelerator(check_available=True).type == "simgpu":
        with simgpu.trace() as t:
            action()
        return max(span.end for span in t.schedule(cost) if span.row == "CPU"), t.seconds(cost)
    seconds = []
    for wait in (True, False, True):  # the first one warms up
        torch.accelerator.synchronize()
        start = time.perf_counter()
        action()
        if wait:
            torch.accelerator.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds[1], seconds[2]
