"""Traces that `torch.profiler` exports: read, summed and drawn.

    with torch.profiler.profile() as profile:
        step()
    profile.export_chrome_trace("trace.json")
    spans = tracefile.read("trace.json")
    tracefile.self_seconds(spans)           # where the time went, by name
    tracefile.draw(spans)                   # the picture that https://ui.perfetto.dev draws, in small

The file is JSON in the format of Chrome's own traces: a list of events, each with a name, a start and a duration in
microseconds, and the thread or GPU stream in which it ran.
"""

import contextlib
import gzip
import json
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from torchcourse.plots import COLORS

# Categories of events in the file, as PyTorch names them.
YOURS = "user_annotation"  # what you named with record_function, and the profiler's own steps
OPERATIONS = "cpu_op"
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")  # what ran on a GPU
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")


class Span(NamedTuple):
    """A stretch of time in one row of a trace; seconds count from the first event of the file."""

    name: str
    category: str  # "user_annotation", "cpu_op", "kernel", "python_function", ...
    row: tuple[int | str, int | str]  # process and thread, or device and stream
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


def read(path: str | Path) -> list[Span]:
    """All events of a trace that have a duration, in order of their start; the file may be packed (.gz)."""
    path = Path(path)
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        content = json.load(file)
    events = content["traceEvents"] if isinstance(content, dict) else content
    whole = [event for event in events if event.get("ph") == "X" and event.get("cat") != "Trace"]
    first = min((event["ts"] for event in whole), default=0)
    spans = [
        Span(
            event["name"],
            event.get("cat", ""),
            (event.get("pid", 0), event.get("tid", 0)),
            (event["ts"] - first) / 1e6,
            (event["ts"] - first + event.get("dur", 0)) / 1e6,
        )
        for event in whole
    ]
    return sorted(spans, key=lambda span: (span.start, -span.end))


def self_seconds(spans: Iterable[Span]) -> dict[str, float]:
    """Seconds by name, largest first: the time in each span that is in no other span inside it, row by row."""
    rows: dict[tuple, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        rows[span.row].append(span)
    totals: dict[str, float] = defaultdict(float)
    for row in rows.values():
        inside: list[Span] = []  # the open spans, outermost first
        for span in row:
            while inside and inside[-1].end <= span.start:
                inside.pop()
            totals[span.name] += span.seconds
            if inside:
                totals[inside[-1].name] -= min(span.end, inside[-1].end) - span.start
            inside.append(span)
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def draw(spans: list[Span]) -> Figure:
    """Your own ranges above, operations below (and the GPU's kernels, if there are any), over time.

    An operation has the color of the range in which it starts. Kernels are grey: they run later than they are launched.
    """
    yours = [s for s in spans if s.category == YOURS and not s.name.startswith("ProfilerStep")]
    yours = _outermost(yours)  # PyTorch names stretches inside yours: fetching a batch, the step of an optimizer
    operations = _outermost([s for s in spans if s.category == OPERATIONS])
    kernels = [s for s in spans if s.category in KERNELS]
    rows = {"your ranges": yours, "operations": operations} | ({"GPU kernels": kernels} if kernels else {})
    begin = min((s.start for s in yours), default=0.0)
    end = max((s.end for row in rows.values() for s in row), default=1e-3)
    looks = dict(zip(dict.fromkeys(s.name for s in yours), zip(COLORS, HATCHES, strict=False), strict=False))
    figure, ax = plt.subplots(figsize=(7.6, 1.0 + 0.75 * len(rows)))
    for place, content in enumerate(reversed(rows.values())):
        inside: dict[str | None, list[tuple[float, float]]] = defaultdict(list)
        for span in content:
            owner = next((r.name for r in yours if r.start <= span.start < r.end), None)
            if span.end >= begin:
                bar = (1e3 * (span.start - begin), 1e3 * max(span.seconds, 1e-6))
                inside[owner if owner in looks and content is not kernels else None].append(bar)
        for name, bars in inside.items():
            color, hatch = looks[name] if name else ("#BBBBBB", "")
            label = name if content is yours else None
            ax.broken_barh(bars, (place - 0.36, 0.72), facecolor=color, hatch=hatch, ec="white", lw=0, label=label)
    if looks:
        figure.legend(loc="outside upper center", ncols=len(looks), fontsize=9)
    ax.set_yticks(range(len(rows)), list(reversed(rows)))
    ax.set(xlabel="time (ms)", xlim=(0, 1e3 * (end - begin)), ylim=(-0.5, len(rows) - 0.5))
    ax.grid(axis="y", visible=False)
    return figure


def _outermost(spans: list[Span]) -> list[Span]:
    """The spans that are inside no other one of their row."""
    until: dict[tuple, float] = {}
    found = []
    for span in spans:
        if span.start >= until.get(span.row, -1.0):
            found.append(span)
            until[span.row] = span.end
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the profiler's own noise out of a notebook: what its C++ code writes to stderr, and one warning.

    On a machine without a GPU, PyTorch's CUDA builds report on stderr that they found none, in words that look like an
    error. And PyTorch 2.11 warns in every profile that a new cycle drops the events of the last one, even where there
    is only one cycle; later versions warn from the second cycle on. Other messages of Python's are not touched.
    """
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning: Profiler clears events", UserWarning)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
