"""What a device can do at most, and how close parts of a model come to it.

    machine = roofline.Machine(peak, memory, cache)     what a device can do at most; chapter 08 measures it
    parts = roofline.layers(model, images)              operations, bytes and seconds of every layer
    roofline.draw(machine, parts)

A layer cannot be faster than the arithmetic of the device, and not faster than its numbers arrive from memory. Which of
the two decides depends on the layer's *intensity*: how many operations it does for each byte that it reads or writes.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from torchcourse import timing
from torchcourse.plots import COLORS

INK = "#555555"


@dataclass(frozen=True)
class Machine:
    """The ceilings of a device.

    peak: floating-point operations per second, in products of float32 matrices.
    memory: bytes per second, read and written, of a copy that fits into no cache.
    cache: the same of copies that stay in the cache of each core.
    """

    peak: float
    memory: float
    cache: float

    @property
    def ridge(self) -> float:
        """The intensity at which both ceilings meet: below it the memory decides, above it the arithmetic."""
        return self.peak / self.memory

    def ceiling(self, intensity: float) -> float:
        """Operations per second that work of this intensity can reach with its numbers in memory."""
        return min(self.peak, intensity * self.memory)


@dataclass(frozen=True)
class Work:
    """One piece of work: what it is, floating-point operations, bytes read and written, seconds for all of it."""

    name: str
    flops: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.flops / self.seconds

    def limit(self, machine: Machine) -> str:
        """What is in the way: "arithmetic", "memory", or "overhead", where neither ceiling is even a tenth reached."""
        if self.rate < 0.1 * machine.ceiling(self.intensity):
            return "overhead"
        return "memory" if self.intensity < machine.ridge else "arithmetic"


@torch.no_grad()
def work(name: str, function: Callable[..., Tensor], *inputs: Tensor, weights: int = 0, least: float = 0.02) -> Work:
    """Count and time one call of a function, forward only.

    weights: bytes that it reads besides its inputs. least: seconds to repeat it for; the fastest call counts.

    Operations are counted by PyTorch's own formulas for products, convolutions and attention. Where those count
    nothing, each number of the result counts as one operation. That choice hardly matters: with twice as many,
    intensity and rate both double, and the point moves along the ceiling of the memory.
    """
    with FlopCounterMode(display=False) as counter:
        result = function(*inputs)
    flops = counter.get_total_flops() or result.numel()
    touched = sum(tensor.numel() * tensor.element_size() for tensor in (*inputs, result)) + weights
    fastest, end = float("inf"), time.perf_counter() + least
    while fastest == float("inf") or time.perf_counter() < end:
        fastest = min(fastest, timing.seconds(lambda: function(*inputs), repeats=3, warmup=1, on=result.device).low)
    return Work(name, flops, touched, fastest)


def layers(model: nn.Module, *inputs: Tensor, least: float = 0.02) -> list[Work]:
    """One `Work` for every layer with parameters or a computation of its own, called as in `model(*inputs)`.

    Layers of the same kind and the same shapes are measured once; of equal blocks the first one counts.
    """
    calls: dict[tuple, tuple[str, nn.Module, tuple]] = {}

    def note(name: str, layer: nn.Module) -> Callable:
        def hook(module: nn.Module, arguments: tuple, result: Tensor) -> None:
            kind = (repr(module), *(tuple(tensor.shape) for tensor in arguments))
            calls.setdefault(kind, (name, layer, tuple(tensor.detach() for tensor in arguments)))

        return hook

    leaves = [(name, layer) for name, layer in model.named_modules() if not any(layer.children())]
    hooks = [layer.register_forward_hook(note(name, layer)) for name, layer in leaves]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    found = []
    for name, layer, arguments in calls.values():
        if isinstance(layer, (nn.Flatten, nn.Identity)):
            continue  # nothing is computed
        weights = sum(parameter.numel() * parameter.element_size() for parameter in layer.parameters())
        found.append(work(name, layer, *arguments, weights=weights, least=least))
    return found


def draw(machine: Machine, works: list[Work]) -> Figure:
    """Ceilings as lines, works as points with their names, both axes logarithmic."""
    figure, ax = plt.subplots(figsize=(7.6, 4.4))
    intensities, rates = [one.intensity for one in works], [one.rate / 1e9 for one in works]
    peak, low, high = machine.peak / 1e9, min(intensities) / 3, max(*intensities, machine.ridge) * 12
    bottom, top = min(rates) / 3, max(*rates, peak) * 3
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
    ax.set(xlabel="intensity (operations per byte)", ylabel="speed (GFLOP/s)")
    for speed, name, style in ((machine.memory, "memory", "-"), (machine.cache, "cache", ":")):
        if name == "cache" and machine.cache < 1.2 * machine.memory:
            continue  # one line says it
        slope = speed / 1e9
        ax.plot([low / 100, peak / slope, high], [slope * low / 100, peak, peak], style, color=INK, lw=1.5)
        start = max(low, bottom / slope) * 1.3
        along = {"rotation": math.degrees(math.atan(slope)), "rotation_mode": "anchor", "transform_rotates_text": True}
        ax.text(start, 1.1 * slope * start, f"{name}, {slope:,.0f} GB/s", fontsize=9, color=INK, va="bottom", **along)
    ax.text(high, peak * 1.1, f"arithmetic, {peak:,.0f} GFLOP/s", ha="right", va="bottom", fontsize=9, color=INK)
    left, height, line = 0.0, peak, {"arrowstyle": "-", "color": INK, "relpos": (0, 0.5)}
    for one in sorted(works, key=lambda one: -one.rate):
        point = one.intensity, one.rate / 1e9
        ax.plot(*point, "o", color=COLORS[0], markersize=7)
        below = height / (top / bottom) ** (1 / 20)  # a line of text below the name before
        left = max(left, point[0]) if below < point[1] else point[0]
        height = min(below, point[1])
        ax.annotate(one.name, point, (1.4 * left, height), va="center", fontsize=9, arrowprops=line)
    return figure
