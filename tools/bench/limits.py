"""What limits a training, and what each change gives (chapter 08), on a device. Topic "limits":

    {"device": "cuda (NVIDIA H100 80GB HBM3)",
     "network": "Patches, 8 blocks of width 256", "batch": 128, "parameters": 4300000,
     "compile": {"eager fp32": {"first_s": 0.4, "images_per_s": {"median", "low", "high"}},
                 "compiled fp32": ..., "graphs fp32": ..., "eager bf16": ..., ...},     graphs: with CUDA graphs
     "attention": {"length": 2048, "written out": {"ms": {...}, "peak_mib": 812.5 or null}, "math": ..., "flash": ...,
                   "efficient": ..., "cudnn": ..., "flex": ...},                        forward and backward
     "checkpoint": {"none": {"images_per_s": {...}, "peak_mib": ...}, "each block": ..., "one piece": ...},
     "loading": {"cores": 16, "photos": 2048,
                 "rows": [{"workers": 4, "batch": 128, "images_per_s": 9000.0, "waiting": 0.4}, ...]},
                                        waiting: share of the time in which the training waits for a batch
     "energy": {"watts": 610.0, "seconds": 5.0, "images": 90000, "wh_per_million_images": 9.4}}

What a device or a package does not have is {"error": sentence}. channels_last with mixed precision is in the topic
"precision". Everything but `loading` uses images that are on the device already.
"""

import functools
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from tools.bench.rows import Rows, last_words
from tools.bench.speed import clock, per_second, short
from tools.bench.training import Say, random_images
from torchcourse import device as devices
from torchcourse import models

KERNELS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
WAYS = {"eager": None, "compiled": {}, "graphs": {"mode": "reduce-overhead"}}


def network(quick: bool) -> nn.Module:
    """A Patches with eight equal blocks; a tiny one for a quick run."""
    width, depth = (16, 2) if quick else (256, 8)
    return models.Patches(side=4, width=width, depth=depth, heads=8, channels=3, size=32)


def measure(rows: Rows, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """Everything on the best device."""
    device, batch = devices.best(), 8 if quick else 128
    least, repeats = (0.001, 1) if quick else (0.3, 5)

    def row(name: str, dtype: str, function: Callable[..., Any], *arguments: Any) -> Any:
        value = rows(name, dtype, attempt, function, *arguments)
        say(f"limits: {name} {dtype}: {value}")
        return value

    # What wakes the device and the compiler is no part of a first step: these two are thrown away.
    attempt(training, "eager", "fp32", device, batch, quick, 0.001, 1)
    attempt(lambda: torch.compile(lambda x: x + 1)(torch.ones(8, device=device)))
    compiling = {
        f"{way} {kind}": row(f"training {way}", kind, training, way, kind, device, batch, quick, least, repeats)
        for kind in (("fp32",) if quick else ("fp32", "bf16"))
        for way in WAYS
        if way != "graphs" or device.type == "cuda" or quick
    }
    length = 64 if quick else 2048
    flex = () if quick and device.type == "cuda" else ("flex",)  # it compiles for a minute
    attentions = {
        name: row(f"attention {name}", "bf16", attention, name, length, device, least, repeats)
        for name in ("written out", *KERNELS, *flex)
    }
    pieces = {
        name: row(f"checkpoint {name}", "fp32", checkpointing, name, device, batch, quick, least, repeats)
        for name in ("none", "each block", "one piece")
    }
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    photos = 16 if quick else 2048  # at most: two batches for each of 16 workers; few workers take fewer, they are slow
    workers = [0, 1] if quick else [count for count in (0, 1, 2, 4, 8, 16) if count <= cores]
    loads = [
        {"workers": count, "batch": size} | row(f"loading {count} workers, batch {size}", "fp32", loading, *what)
        for size in ([8] if quick else [16, 64])
        for count in workers
        for what in [(count, size, min(photos, 256 * max(1, count)), device, quick)]
    ]
    return {
        "device": devices.describe(device),
        "network": f"Patches, {len(network(quick).blocks)} blocks of width {network(quick).embed.out_features}",
        "batch": batch,
        "parameters": sum(parameter.numel() for parameter in network(quick).parameters()),
        "compile": compiling,
        "attention": {"length": length} | attentions,
        "checkpoint": pieces,
        "loading": {"cores": cores, "photos": photos, "rows": loads},
        # Batches with which the GPU does not wait for Python.
        "energy": row("energy", "bf16", energy, device, batch if quick else 16 * batch, quick),
    }


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns; {"error": sentence} where the device or a package cannot do it.

    What one row compiled must not help the next, neither from memory nor from a cache on the disk.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        caches = {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
        try:
            with mock.patch.dict(os.environ, caches):
                return function(*arguments)
        except Exception as problem:  # of any kind: NVML, Triton and cuDNN have their own
            return {"error": last_words(f"{type(problem).__name__}: {problem}")}
        finally:
            torch.compiler.reset()


def stepper(
    model: nn.Module, run: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, kind: str
) -> Callable[[], None]:
    """One training step of a model that is called as `run`; nothing in it waits for the device."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        with torch.autocast(images.device.type, torch.bfloat16) if kind == "bf16" else nullcontext():
            loss = F.cross_entropy(run(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def training(
    way: str, kind: str, device: torch.device, batch: int, quick: bool, least: float, repeats: int
) -> dict[str, Any]:
    """First step and speed of the same training: eager, compiled, compiled with CUDA graphs."""
    model = network(quick).to(device)
    images, labels = random_images(batch, (3, 32, 32), device)
    run: Callable[[Tensor], Tensor] = model
    if WAYS[way] is not None:  # a quick run does without a compiler
        run = torch.compile(model, **({"backend": "aot_eager"} if quick else WAYS[way]))
    step = stepper(model, run, images, labels, kind)
    first = short(clock(step)[0])
    return {"first_s": first, "images_per_s": per_second(step, batch, least, repeats)}


def attention(name: str, length: int, device: torch.device, least: float, repeats: int) -> dict[str, Any]:
    """Milliseconds and peak memory of one attention, forward and backward, in bf16."""
    query, key, value = (
        torch.randn(4, 8, length, 64, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
    )

    def written_out() -> Tensor:
        return (query @ key.transpose(-2, -1) / 8).softmax(-1) @ value

    if name == "flex":
        from torch.nn.attention.flex_attention import flex_attention

        if device.type == "cpu":
            raise NotImplementedError("flex_attention has no backward pass on a CPU.")
        compiled = torch.compile(flex_attention)
        function, kernel = (lambda: compiled(query, key, value)), nullcontext()
    elif name == "written out":
        function, kernel = written_out, nullcontext()
    else:
        function = lambda: F.scaled_dot_product_attention(query, key, value)  # noqa: E731
        kernel = sdpa_kernel(KERNELS[name])
    with kernel:
        both = lambda: function().sum().backward()  # noqa: E731
        both()
        clear_peak(device)
        both()
        found = peak(device)
        speed = per_second(both, 1.0, least, repeats)
    ms = {"median": 1e3 / speed["median"], "low": 1e3 / speed["high"], "high": 1e3 / speed["low"]}
    return {"ms": {what: short(value) for what, value in ms.items()}, "peak_mib": found}


def checkpointing(
    name: str, device: torch.device, batch: int, quick: bool, least: float, repeats: int
) -> dict[str, Any]:
    """Speed and peak memory of a training that keeps all activations, those between blocks, or hardly any."""
    model = network(quick).to(device)
    images, labels = random_images(4 * batch, (3, 32, 32), device)
    if name == "each block":
        model.blocks = Checkpointed(*model.blocks)
    elif name == "one piece":
        model.blocks = Checkpointed(model.blocks)
    step = stepper(model, model, images, labels, "fp32")
    step()
    clear_peak(device)
    step()
    found = peak(device)
    return {"images_per_s": per_second(step, 4 * batch, least, repeats), "peak_mib": found}


class Checkpointed(nn.Sequential):
    """Layers in a row, of which only the inputs are kept for the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def clear_peak(device: torch.device) -> None:
    """Forget the highest memory use so far."""
    if device.type != "cpu":
        torch.accelerator.empty_cache()
        torch.accelerator.reset_peak_memory_stats()


def peak(device: torch.device) -> float | None:
    """MiB of the device's memory at the highest point; None on a CPU, which does not count."""
    return None if device.type == "cpu" else short(torch.accelerator.max_memory_allocated() / 2**20)


@functools.cache
def jpegs(count: int, side: int = 512) -> list[bytes]:
    """Files of smooth random pictures, as large as photos and as cheap to decode."""
    from PIL import Image

    generator, files = torch.Generator().manual_seed(0), []
    for _ in range(count):
        small = torch.randint(256, (24, 24, 3), generator=generator, dtype=torch.uint8)
        file = io.BytesIO()
        Image.fromarray(small.numpy()).resize((side, side)).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


class Photos(Dataset):
    """JPEG files in memory, each decoded and made small when it is asked for."""

    def __init__(self, files: list[bytes]):
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        import numpy as np
        from PIL import Image

        photo = Image.open(io.BytesIO(self.files[index])).convert("RGB").resize((32, 32))
        return torch.from_numpy(np.array(photo)).permute(2, 0, 1).float() / 255


def loading(workers: int, size: int, photos: int, device: torch.device, quick: bool) -> dict[str, float]:
    """Images per second of a training on photos, and the share of its time that it waits for batches."""
    on_gpu = device.type != "cpu"
    batches = DataLoader(
        Photos(jpegs(photos)), size, num_workers=workers, persistent_workers=workers > 0, pin_memory=on_gpu
    )
    model = network(quick).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    labels = torch.zeros(size, dtype=torch.int64, device=device)

    def waits() -> Iterator[float]:
        """Train for an epoch; seconds spent waiting for each batch."""
        source = iter(batches)
        while True:
            start = time.perf_counter()
            images = next(source, None)
            yield time.perf_counter() - start
            if images is None:
                return
            images = images.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
                loss = F.cross_entropy(model(images), labels[: len(images)])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if on_gpu:
                torch.accelerator.synchronize()  # so that waiting for the device doesn't count as waiting for data

    list(waits())  # starts the workers
    seconds, waiting = clock(lambda: sum(waits()))
    return {"images_per_s": short(photos / seconds), "waiting": short(waiting / seconds)}


def energy(device: torch.device, batch: int, quick: bool) -> dict[str, float]:
    """Power of a training, sampled, and what a million images cost."""
    if device.type != "cuda":
        raise NotImplementedError("Only a CUDA device tells its power here.")
    model = network(quick).to(device)
    images, labels = random_images(batch, (3, 32, 32), device)
    step, seen = stepper(model, model, images, labels, "bf16"), 0

    def twenty() -> None:
        for _ in range(20):
            step()
        torch.accelerator.synchronize()

    twenty()
    warm = time.perf_counter() + (0 if quick else 2)
    while time.perf_counter() < warm:  # what NVML tells is a mean over the last second or so
        twenty()
    moments, watts = [], []
    start = time.perf_counter()
    while not moments or moments[-1] < (0.2 if quick else 5.0):
        twenty()
        seen += 20 * batch
        watts.append(torch.cuda.power_draw(device) / 1000)  # milliwatts
        moments.append(time.perf_counter() - start)
    joules = torch.trapezoid(torch.tensor(watts), torch.tensor(moments)).item() + watts[0] * moments[0]
    return {
        "watts": short(joules / moments[-1]),
        "seconds": short(moments[-1]),
        "images": seen,
        "wh_per_million_images": short(joules / 3600 / seen * 1e6),
    }
