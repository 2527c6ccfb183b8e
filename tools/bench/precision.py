"""What fewer bits bring: matrix products and training in fp32, TF32, fp16 and bf16; channels_last; torch.compile.

Everything runs on `device.best()`, with the data on the device already. Topic "precision":

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
                            "peak_mib": 812.5 or null},        most memory of the device in use; null on a CPU
                           ...]},
     "compile": {"bf16": {"cold_s": 41.0, "warm_s": 9.1,       the first step: nothing compiled yet; compiled by an
                                                               earlier process and found in its cache
                          "eager_first_s": 0.4,                the first step without torch.compile
                          "images_per_s": {"median", ...}, "eager_images_per_s": {...}}, "fp32": ...}}

`mflop` is of one image in a training step. A row or an entry of `compile` that failed has "error", a sentence, instead
of numbers.

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
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tools.bench.peak import emulated, matmul
from tools.bench.rows import Rows, last_words
from tools.bench.speed import clock, per_second, short
from tools.bench.training import Load, Say, mflop
from tools.course import ROOT
from torchcourse import device as devices

MODES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
COMPILED = ("fp32", "bf16")
PATIENCE = 300  # seconds for a process that compiles


def load_for(device: torch.device, quick: bool) -> Load:
    """The recipe's large network for a GPU, the small one for a CPU."""
    if quick:
        return Load((8, 8, 8), 2, 4, 16)
    return Load((32, 64, 128), 2, 128) if device.type == "cpu" else Load((64, 256, 256), 1, 512)


def measure(rows: Rows, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """All modes of the best device."""
    device = devices.best()
    load, least, repeats = load_for(device, quick), 0.001 if quick else 0.3, 1 if quick else 5
    modes, skipped = rows("modes", "any", usable, device)
    for mode, why in skipped.items():
        say(f"precision: {mode} left out: {why}")
    sizes = [32, 64] if quick else [256, 512, 1024, 2048] + ([] if device.type == "cpu" else [4096, 8192])
    size = 64 if quick else 1024
    products: dict[str, Any] = {"size": sizes}
    errors, trainings, compiling = {}, [], {}
    for mode in modes:
        speeds = [rows(f"matmul {n}", mode, product, mode, n, device, least, repeats) for n in sizes]
        products[mode] = {
            "gflops": [speed["median"] for speed in speeds],
            "gflops_range": [[speed["low"], speed["high"]] for speed in speeds],
        }
        say(f"precision: products in {mode}: up to {max(products[mode]['gflops']):,.0f} GFLOP/s")
        errors[mode] = rows(f"error {size}", mode, error, mode, size, device)
        for last in (False, True):
            name = f"training{', channels_last' if last else ''}"
            found = rows(name, mode, training, load, mode, last, device, least, repeats)
            trainings.append({"mode": mode, "channels_last": last} | found)
            say(
                f"precision: {name} in {mode}: "
                + (found.get("error") or f"{found['images_per_s']['median']:,.0f} images/s")
            )
    for mode in modes:
        if mode in COMPILED:
            found = rows("compile", mode, compile_twice, mode, quick, rows)
            compiling[mode] = found
            seconds = found.get("error") or f"first step {found['cold_s']:.1f} s, then {found['warm_s']:.1f} s"
            say(f"precision: torch.compile in {mode}: {seconds}")
    model = load.network().to(device)
    about = {
        "network": f"CifarNet {load.widths}",
        "batch": load.batch,
        "parameters": sum(p.numel() for p in model.parameters()),
        "mflop": mflop(model, *load.images(device, 4)),
    }
    return {
        "device": devices.describe(device),
        "modes": modes,
        "skipped": skipped,
        "matmul": products,
        "error": {"size": size} | errors,
        "training": about | {"rows": trainings},
        "compile": compiling,
    }


def usable(device: torch.device) -> tuple[list[str], dict[str, str]]:
    """The modes that are worth measuring on a device, and for each of the others a sentence."""
    skipped = {}
    if device.type == "cpu":
        skipped["tf32"] = "TF32 is a format of GPUs."
        for mode in ("fp16", "bf16"):
            if emulated(MODES[mode], device):
                skipped[mode] = f"This processor has no instructions for {mode} and emulates it."
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


def product(mode: str, size: int, device: torch.device, least: float, repeats: int = 5) -> dict[str, float]:
    """GFLOP/s of the product of two square matrices."""
    with float32_bits(mode, device):
        return matmul(size, MODES[mode], device, least, repeats)


def error(mode: str, size: int, device: torch.device) -> float:
    """Of the product of two random matrices, relative to its own size; exact is float64 on the float32 inputs."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=generator) for _ in range(2))
    with float32_bits(mode, device):
        found = (a.to(device, MODES[mode]) @ b.to(device, MODES[mode])).cpu().double()
    exact = a.double() @ b.double()
    return short(((found - exact).norm() / exact.norm()).item())


def training(
    load: Load, mode: str, channels_last: bool, device: torch.device, least: float, repeats: int
) -> dict[str, Any]:
    """Images per second in training, and MiB of the device's memory at the peak, of a new network."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = load.network().to(device, memory_format=layout)
    images, labels = load.images(device)
    images = images.to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type) if mode == "fp16" else None
    if device.type != "cpu":
        torch.accelerator.empty_cache()
        torch.accelerator.reset_peak_memory_stats()
    with float32_bits(mode, device):
        try:
            one = lambda: step(model, optimizer, images, labels, mode, scaler)  # noqa: E731
            speed = per_second(one, load.batch, least, repeats)
        except RuntimeError as problem:  # a layer or an operation that this mode lacks: a row with an error
            return {"error": last_words(f"{type(problem).__name__}: {problem}")}
    peak = None if device.type == "cpu" else short(torch.accelerator.max_memory_allocated() / 2**20)
    return {"images_per_s": speed, "peak_mib": peak}


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


def compile_twice(mode: str, quick: bool, rows: Rows) -> dict[str, Any]:
    """Two processes, one after the other, with the same cache, which is empty for the first; or {"error": sentence}."""
    found = []
    with tempfile.TemporaryDirectory() as cache:
        folders = {"TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "TRITON_CACHE_DIR": f"{cache}/triton"}
        command = [sys.executable, "-m", "tools.bench.precision", mode, *(["--quick"] if quick else [])]
        for _ in ("cold", "warm"):
            try:
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=rows.patience(PATIENCE),
                    cwd=ROOT,
                    env=os.environ | folders,
                )
            except subprocess.TimeoutExpired as late:
                return {"error": f"torch.compile took more than {late.timeout:.0f} s."}
            if done.returncode:
                return {"error": last_words(done.stderr)}
            found.append(json.loads(done.stdout.splitlines()[-1]))
    cold, warm = found
    return {
        "cold_s": cold["compiled_first_s"],
        "warm_s": warm["compiled_first_s"],
        "eager_first_s": warm["eager_first_s"],
        "images_per_s": warm["compiled"],
        "eager_images_per_s": warm["eager"],
    }


def compiled_beside_eager(mode: str, quick: bool) -> dict[str, Any]:
    """First step and speed of the same training, as it is and compiled. Runs in a process of its own."""
    device = devices.best()
    load = load_for(device, quick)
    images, labels = load.images(device)
    images = images.to(memory_format=torch.channels_last)
    result: dict[str, Any] = {}
    with float32_bits(mode, device):
        wakes = torch.optim.SGD([torch.zeros(1)])  # the device
        step(load.network().to(device), wakes, images, labels, mode, None)
        for way in ("eager", "compiled"):
            model = load.network().to(device, memory_format=torch.channels_last)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
            if way == "compiled":  # a quick run does without a C++ compiler
                model = torch.compile(model, backend="aot_eager" if quick else "inductor")
            one = lambda model=model, optimizer=optimizer: step(model, optimizer, images, labels, mode, None)  # noqa: E731
            result[f"{way}_first_s"] = short(clock(one)[0])
            result[way] = per_second(one, load.batch, 0.001 if quick else 0.3, 1 if quick else 5)
    return result


if __name__ == "__main__":
    print(json.dumps(compiled_beside_eager(sys.argv[1], "--quick" in sys.argv)))
