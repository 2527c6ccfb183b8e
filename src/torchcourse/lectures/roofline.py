"""What a device can do at most, and how close parts of a model come to it.

    machine = roofline.measure()                        two seconds: products of matrices, and copies
    parts = roofline.layers(model, images)              operations, bytes and seconds of every layer
    roofline.draw(machine, parts)

A layer cannot be faster than the arithmetic of the device, and not faster than its numbers arrive from memory. Which of
the two decides depends on the layer's *intensity*: how many operations it does for each byte that it reads or writes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from torchcourse import device as devices
from torchcourse import timing
from torchcourse.plots import COLORS

CACHED = 2**18  # bytes of a copy that stays in a core's own cache
LARGE = 2**27  # bytes of a copy that doesn't fit into any cache
MARKERS = "os^Dv<>Ph*X"


@dataclass(frozen=True)
class Machine:
    """The two ceilings of a device, measured.

    peak: floating-point operations per second, in products of float32 matrices.
    memory: bytes per second, read and written, of a copy that fits into no cache.
    cache: the same of copies that stay in the cache of each core; on a GPU, where nothing is measured for it, equal to
        `memory`.
    """

    device: str
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


def measure(device: torch.device | str | None = None, quick: bool = False) -> Machine:
    """Measure the ceilings of a device.

    device: None means the best one here. quick: small sizes, for tests; the numbers mean little then.

    The best of several tries counts: a ceiling is what the device can do, and other programs only ever take from it.
    """
    place = torch.device(device) if device is not None else devices.best()
    on_gpu = place.type != "cpu"
    repeats = 2 if quick else 15  # many short tries: some of them are undisturbed
    sizes = (128,) if quick else (4096, 8192) if on_gpu else (512, 1024)
    peak = max(_multiplying(size, place, repeats) for size in sizes)
    memory = _copying(2**20 if quick else 8 * LARGE if on_gpu else LARGE, place, repeats)
    cache = memory if on_gpu else max(memory, _copying_in_caches(place, repeats))
    return Machine(devices.describe(place), peak, memory, cache)


def _multiplying(size: int, device: torch.device, repeats: int) -> float:
    """Operations per second of a product of two square matrices."""
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    product = torch.empty_like(a)
    return 2 * size**3 / timing.seconds(lambda: torch.mm(a, b, out=product), repeats, on=device).low


def _copying(size: int, device: torch.device, repeats: int) -> float:
    """Bytes per second, read and written, of copying `size` bytes."""
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    times = max(1, 2**22 // size)  # several small copies for one reading of the clock

    def copy() -> None:
        for _ in range(times):
            target.copy_(source)

    return 2 * times * size / timing.seconds(copy, repeats, on=device).low


def _copying_in_caches(device: torch.device, repeats: int) -> float:
    """The same for copies that stay in a core's cache: of one core, times the cores that PyTorch uses.

    With all threads at once, waking them would take longer than so small a copy.
    """
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return cores * _copying(CACHED, device, repeats)
    finally:
        torch.set_num_threads(cores)


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


def draw(machine: Machine, works: list[Work], title: str = "") -> Figure:
    """Ceilings as lines, works as points, both axes logarithmic."""
    figure, ax = plt.subplots(figsize=(7.6, 4.4))
    intensities = [one.intensity for one in works]
    low, high = min(intensities) / 3, max(*intensities, machine.ridge) * 4
    for speed, name, style in ((machine.memory, "memory", "-"), (machine.cache, "cache", ":")):
        if name == "cache" and machine.cache < 1.2 * machine.memory:
            continue  # one line says it
        ridge = machine.peak / speed
        start = min(low, ridge / 2)
        label = f"{name}, {speed / 1e9:,.0f} GB/s"
        ax.plot([start, ridge], [start * speed / 1e9, machine.peak / 1e9], style, color="#555555", lw=1.5, label=label)
    ax.plot([machine.peak / machine.cache, high], [machine.peak / 1e9] * 2, "-", color="#555555", linewidth=1.5)
    label = f"arithmetic, {machine.peak / 1e9:,.0f} GFLOP/s"
    ax.text(high, machine.peak / 1e9 * 1.1, label, ha="right", va="bottom", fontsize=9, color="#555555")
    for index, one in enumerate(sorted(works, key=lambda one: -one.rate)):  # the legend from top to bottom, too
        ax.plot(
            one.intensity,
            one.rate / 1e9,
            marker=MARKERS[index % len(MARKERS)],
            color=COLORS[index % len(COLORS)],
            markersize=8,
            linestyle="",
            label=one.name,
        )
    ax.set(xscale="log", yscale="log", xlim=(low, high), title=title)
    ax.set_xlabel("intensity (operations per byte)")
    ax.set_ylabel("speed (GFLOP/s)")
    rates = [one.rate / 1e9 for one in works]
    ax.set_ylim(min(rates) / 3, max(*rates, machine.peak / 1e9) * 3)
    figure.legend(loc="outside right center", fontsize=9)
    return figure
