"""A trace as a picture: what the CPU, the bus and the GPU would do when. A model, not a measurement."""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from torchcourse.plots import COLORS
from torchcourse.trace import KERNEL, TO_DEVICE, TO_HOST, Cost, Trace

ROWS = {"CPU": 2, "copies": 1, "GPU": 0}
# What a bar says -> its color and its pattern, so that it can be told apart in grey too.
LOOKS = {
    "queues work": (COLORS[5], ""),
    "waits": ("#DDDDDD", "////"),
    "copy to the device": (COLORS[4], ""),
    "copy to the host": (COLORS[1], "...."),
    "kernel": (COLORS[0], ""),
}
MEANING = {TO_DEVICE: "copy to the device", TO_HOST: "copy to the host", KERNEL: "kernel"}


def draw(t: Trace, cost: Cost | None = None, title: str = "", until: float | None = None) -> Figure:
    """Draw one row each for the CPU, the copies and the GPU over time.

    t: what `with trace() as t:` recorded. cost: the model of the GPU; None means `Cost()`.
    title: what was traced. until: end of the time axis in seconds; give two pictures the same one to compare them.
    """
    spans = t.schedule(cost)
    total = t.seconds(cost)
    end = max(until or total, 1e-9)
    scale, unit = _unit(end)
    figure, ax = plt.subplots(figsize=(7, 2.9))
    edge = 0.5 if len(spans) < 200 else 0  # thin gaps between bars, where there is room for them
    for meaning, (color, pattern) in LOOKS.items():
        for row, height in ROWS.items():
            bars = [
                (span.start * scale, (span.end - span.start) * scale)
                for span in spans
                if span.row == row and _meaning(row, span.kind) == meaning
            ]
            if bars:
                ax.broken_barh(bars, (height - 0.36, 0.72), facecolor=color, hatch=pattern, edgecolor="white", lw=edge)
    ax.set_yticks(list(ROWS.values()), list(ROWS))
    ax.set_ylim(-0.5, 2.5)
    ax.set_xlim(0, end * 1.02 * scale)
    ax.set_xlabel(f"time ({unit})")
    ax.grid(axis="y", visible=False)
    busy = sum(span.end - span.start for span in spans if span.row == "GPU") / total if total else 0.0
    took = f"{total * _unit(total)[0]:.3g} {_unit(total)[1]}, GPU computes {busy:.0%} of it"
    ax.set_title(f"{title + ': ' if title else ''}{took} (a model, not a measurement)", fontsize=10)
    used = {_meaning(span.row, span.kind) for span in spans}
    handles = [Patch(facecolor=c, hatch=h, edgecolor="white", label=m) for m, (c, h) in LOOKS.items() if m in used]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9)
    return figure


def _unit(seconds: float) -> tuple[float, str]:
    return (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")


def _meaning(row: str, kind: str) -> str:
    if row == "CPU":
        return "waits" if kind == "wait" else "queues work"
    return MEANING[kind]
