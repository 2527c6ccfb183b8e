"""What fewer bits bring: matrix products and training in fp32, TF32, fp16 and bf16; channels_last; torch.compile.

Everything runs on `device.best()`, warm and synchronized, with the data on the device already. Topic "precision":

    {"device": "cuda (NVIDIA H100 80GB HBM3)",
     "modes": ["fp32", "tf32", "fp16", "bf16"],        those that were measured here, in this order
     "skipped": {"tf32": "sentence", ...},             the others, and why not
     "matmul": {"size": [256, ...],                    two square matrices of that size, the inputs in the mode's dtype
                "fp32": {"gflops": [...], "gflops_range": [[low, high], ...]}, "tf32": ..., ...},
     "error": {"size": 1024, "fp32": 3e-7, ...},       of such a product of float32 inputs, against float64:
                                                       |C - exact| / |exact|, the inputs' own rounding included
     "training": {"network": "CifarNet (64, 256, 256)", "batch": 512, "parameters": 1900000, "mflop": 1600.0,
                  "rows": [{"mode": "bf16", "channels_last": true,
                            "images_per_s": {"median", "low", "high"},
                            "peak_mib": 812.5 or null,         most memory of the device held at a time; null on a CPU
                            "repeats": 5, "rejected": 0, "foreign": 0.02, "disturbed": false}, ...]},
     "compile": {"bf16": {"cold_s": 41.0, "warm_s": 9.1,       the first step: nothing compiled yet; compiled by an
                                                               earlier process and found in its cache
                          "eager_first_s": 0.4,                the first step without torch.compile
                          "images_per_s": {"median", ...}, "eager_images_per_s": {...}}, "fp32": ...}}

`mflop` is of one image in a training step. Where the time ran out, a list holds null, and a row of `rows` or an entry
of `compile` is missing; one that failed has "error", a sentence, instead of numbers.

The modes: fp32 and tf32 compute in float32, with all its bits or with TF32 inside products and convolutions
(`torch.backends.*.fp32_precision`); fp16 and bf16 train under autocast with float32 weights, fp16 with a gradient
scaler. `compile` is measured with channels_last, in processes of its own.
A training step is forward, loss, backward and a step of SGD with momentum.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tools.bench.journal import Journal
from tools.bench.peak import HOPELESS, probe
from tools.bench.quiet import last_words, median_range, short
from tools.bench.rates import per_second
from tools.course import ROOT
from torchcourse import device as devices
from torchcourse import models, timing

Say = Callable[[str], None]

MODES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
COMPILED = ("fp32", "bf16")
PATIENCE = 300  # seconds for a process that compiles


@dataclass(frozen=True)
class Load:
    """What is trained: a CifarNet of these widths, on batches of random images [batch, 3, side, side]."""

    widths: tuple[int, int, int]
    stride: int
    batch: int
    side: int = 32

    def network(self) -> nn.Module:
        return models.CifarNet(self.widths, self.stride, residual=False)


def load_for(device: torch.device, quick: bool) -> Load:
    """The recipe's large network for a GPU, the small one for a CPU."""
    if quick:
        return Load((8, 8, 8), 2, 4, 16)
    return Load((32, 64, 128), 2, 128) if device.type == "cpu" else Load((64, 256, 256), 1, 512)


def measure(quick: bool = False, say: Say = print, journal: Journal | None = None) -> dict[str, Any]:
    """All modes of the best device, taking turns."""
    device, journal = devices.best(), journal or Journal()
    load = load_for(device, quick)
    modes, skipped = journal.once("modes", lambda: usable(device)) or ([], {})
    for mode, why in skipped.items():
        say(f"precision: {mode} left out: {why}")
    sizes = [32, 64] if quick else [256, 512, 1024, 2048] + ([] if device.type == "cpu" else [4096, 8192])
    repeats, least = (1, 0.001) if quick else (5, 0.3)
    rows = [{"mode": mode, "channels_last": last} for mode in modes for last in (False, True)]
    contestants: dict[str, Callable[[], Any]] = {
        f"matmul {mode} {size}": lambda mode=mode, size=size: product(mode, size, device, least)
        for size in sizes
        for mode in modes
    } | {name(row): lambda row=row: training(load, row["mode"], row["channels_last"], device, least) for row in rows}
    turns = journal.turns(contestants, repeats, extra=0 if quick else None, say=lambda line: say(f"precision: {line}"))

    products: dict[str, Any] = {"size": sizes}
    for mode in modes:
        ranges = [range_of(turns[f"matmul {mode} {size}"].results(repeats)) for size in sizes]
        products[mode] = {
            "gflops": [found and found["median"] for found in ranges],
            "gflops_range": [found and [found["low"], found["high"]] for found in ranges],
        }
    for row in rows:
        turn = turns[name(row)]
        results = turn.results(repeats)
        if turn.error:
            row["error"] = turn.error
        elif results:
            peaks = [peak for _, peak in results if peak is not None]
            row["images_per_s"] = median_range([speed for speed, _ in results])
            row |= {"peak_mib": max(peaks, default=None)} | turn.summary(repeats)
    size = 64 if quick else 1024
    errors = {mode: journal.once(f"error {mode}", lambda mode=mode: error(mode, size, device)) for mode in modes}
    compiled = {}
    for mode in modes:
        if mode in COMPILED:
            found = journal.once(f"compile {mode}", lambda mode=mode: compiling(mode, quick, say))
            compiled |= {mode: found} if found else {}
    return {
        "device": devices.describe(device),
        "modes": modes,
        "skipped": skipped,
        "matmul": products,
        "error": {"size": size} | errors,
        "training": about(load, device) | {"rows": [row for row in rows if len(row) > 2]},
        "compile": compiled,
    }


def name(row: dict[str, Any]) -> str:
    """A row's name in the journal and in lines of progress."""
    return f"training {row['mode']}{', channels_last' if row['channels_last'] else ''}"


def range_of(values: list[float]) -> dict[str, float] | None:
    """median, low and high; None where there is no value."""
    return median_range(values) if values else None


def about(load: Load, device: torch.device) -> dict[str, Any]:
    """What is trained, in words and numbers."""
    model = load.network().to(device)
    with FlopCounterMode(display=False) as counted:
        step(model, torch.optim.SGD(model.parameters()), *batch_of(load, device, 4), "fp32", None)
    return {
        "network": f"CifarNet {load.widths}",
        "batch": load.batch,
        "parameters": sum(p.numel() for p in model.parameters()),
        "mflop": short(counted.get_total_flops() / 4e6),
    }


def usable(device: torch.device) -> tuple[list[str], dict[str, str]]:
    """The modes that are worth measuring on a device, and for each of the others a sentence."""
    skipped = {}
    if device.type == "cpu":
        skipped["tf32"] = "TF32 is a format of GPUs."
        for mode in ("fp16", "bf16"):
            if probe(MODES[mode]) < HOPELESS * probe(torch.float32):
                skipped[mode] = f"This processor has no instructions for {mode} and works it out step by step."
    elif device.type == "cuda" and torch.version.cuda:
        if torch.cuda.get_device_capability(device) < (8, 0):
            skipped["tf32"] = "TF32 came with Ampere GPUs; this one is older."
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            skipped["bf16"] = "This GPU has no instructions for bf16."
    else:
        skipped["tf32"] = "TF32 is a format of NVIDIA GPUs."
    return [mode for mode in MODES if mode not in skipped], skipped


@contextlib.contextmanager
def float32_bits(mode: str, device: torch.device) -> Iterator[None]:
    """All bits of float32 in products and convolutions, or with mode "tf32" those of TF32; afterwards as before.

    Only CUDA has the choice. The modes of 16 bits leave PyTorch's defaults alone.
    """
    places = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)
    before = [place.fp32_precision for place in places]
    if device.type == "cuda" and mode in ("fp32", "tf32"):
        for place in places:
            place.fp32_precision = "tf32" if mode == "tf32" else "ieee"
    try:
        yield
    finally:
        if device.type == "cuda":
            for place, value in zip(places, before, strict=True):
                place.fp32_precision = value


def product(mode: str, size: int, device: torch.device, least: float) -> float:
    """GFLOP/s of the product of two square matrices: 2 n³ operations. Random numbers: zeros would cost less power."""
    a, b = (torch.randn(size, size, device=device).to(MODES[mode]) for _ in range(2))
    out = torch.empty_like(a)
    with float32_bits(mode, device):
        return per_second(lambda: torch.mm(a, b, out=out), 2 * size**3 / 1e9, least, repeats=1)["median"]


def error(mode: str, size: int, device: torch.device) -> float:
    """Of the product of two random matrices, relative to its own size; exact is float64 on the float32 inputs."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=generator) for _ in range(2))
    with float32_bits(mode, device):
        found = (a.to(device, MODES[mode]) @ b.to(device, MODES[mode])).cpu().double()
    exact = a.double() @ b.double()
    return short(((found - exact).norm() / exact.norm()).item())


def training(
    load: Load, mode: str, channels_last: bool, device: torch.device, least: float
) -> tuple[float, float | None]:
    """(images per second in training, MiB of the device's memory at the peak or None on a CPU), of a new network."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = load.network().to(device, memory_format=layout)
    images, labels = batch_of(load, device)
    images = images.to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type) if mode == "fp16" else None
    if device.type != "cpu":
        torch.accelerator.empty_cache()
        torch.accelerator.reset_peak_memory_stats()
    with float32_bits(mode, device):
        speed = per_second(lambda: step(model, optimizer, images, labels, mode, scaler), load.batch, least, repeats=1)[
            "median"
        ]
    peak = None if device.type == "cpu" else short(torch.accelerator.max_memory_allocated() / 2**20)
    return speed, peak


def batch_of(load: Load, device: torch.device, count: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images [count, 3, side, side] and labels; speed does not depend on what is in them."""
    count, generator = count or load.batch, torch.Generator().manual_seed(0)
    images = torch.randn(count, 3, load.side, load.side, generator=generator)
    return images.to(device), torch.randint(10, (count,), generator=generator).to(device)


def step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: torch.Tensor,
    labels: torch.Tensor,
    mode: str,
    scaler: torch.amp.GradScaler | None,
) -> None:
    """One step of training in a mode. Without a scaler nothing in it waits for the device."""
    with torch.autocast(images.device.type, MODES[mode], enabled=mode in ("fp16", "bf16")):
        loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    if scaler:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()


# ---------------------------------------------------------------------------------------------------------------------
# torch.compile, in processes of its own: what one process compiled stays in its memory


def compiling(mode: str, quick: bool, say: Say) -> dict[str, Any]:
    """Two processes, one after the other, with the same cache, which is empty for the first."""
    found = []
    with tempfile.TemporaryDirectory() as cache:
        folders = {"TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "TRITON_CACHE_DIR": f"{cache}/triton"}
        for _ in range(2):
            command = [sys.executable, "-m", "tools.bench.precision", mode, *(["--quick"] if quick else [])]
            environment = os.environ | folders
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT, env=environment
                )
            except subprocess.TimeoutExpired:
                return {"error": f"torch.compile took more than {PATIENCE} s."}
            if done.returncode:
                why = last_words(done.stderr)
                say(f"precision: torch.compile in {mode} failed: {why}")
                return {"error": why}
            found.append(json.loads(done.stdout.splitlines()[-1]))
    cold, warm = found
    result = {"cold_s": cold["compiled_first_s"], "warm_s": warm["compiled_first_s"]}
    say(f"precision: torch.compile in {mode}: first step {result['cold_s']:.1f} s, then {result['warm_s']:.1f} s")
    rates = {"images_per_s": warm["compiled"], "eager_images_per_s": warm["eager"]}
    return result | {"eager_first_s": warm["eager_first_s"]} | rates


def compiled_beside_eager(mode: str, quick: bool) -> dict[str, Any]:
    """First step and speed of the same training, as it is and compiled, taking turns. Runs in a process of its own."""
    device = devices.best()
    load = load_for(device, quick)
    least, repeats = (0.001, 1) if quick else (0.3, 5)
    images, labels = batch_of(load, device)
    images = images.to(memory_format=torch.channels_last)
    steps = {}
    for way in ("eager", "compiled"):
        model = load.network().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        if way == "compiled":  # a quick run goes the way without a compiler of C++
            model = torch.compile(model, backend="aot_eager" if quick else "inductor")
        steps[way] = lambda model=model, optimizer=optimizer: step(model, optimizer, images, labels, mode, None)
    result: dict[str, Any] = {}
    step(load.network().to(device), torch.optim.SGD([torch.zeros(1)]), images, labels, mode, None)  # wakes the device
    for way, function in steps.items():
        result[f"{way}_first_s"] = short(per_call(function))
    speeds: dict[str, list[float]] = {way: [] for way in steps}
    for _ in range(repeats):
        for way, function in steps.items():
            speeds[way].append(per_second(function, load.batch, least, repeats=1)["median"])
    return result | {way: median_range(some) for way, some in speeds.items()}


def per_call(function: Callable[[], object]) -> float:
    """Seconds of one call, with nothing before it to warm up."""
    return timing.seconds(function, repeats=1, warmup=0).median


if __name__ == "__main__":
    print(json.dumps(compiled_beside_eager(sys.argv[1], "--quick" in sys.argv)))
