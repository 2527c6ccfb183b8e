"""Which device to compute on, what it is, and in which precision it is quick."""

import functools
import time

import torch


def best() -> torch.device:
    """The accelerator of this machine if there is one that works, else the CPU.

    `check_available=True` matters: a CUDA build of PyTorch on a machine without a GPU would otherwise answer "cuda".
    """
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def describe(device: torch.device | str | None = None) -> str:
    """One short line for people: "cuda (NVIDIA H100 80GB HBM3)" or "cpu (2 threads)".

    device: the device to describe; None means `best()`.
    """
    device = best() if device is None else torch.device(device)
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"cpu ({threads} thread{'s' if threads > 1 else ''})"
    backend = getattr(torch, device.type, None)  # torch.cuda and torch.xpu know their names, torch.mps has none to tell
    name = backend.get_device_name(device) if hasattr(backend, "get_device_name") else ""
    return f"{device.type} ({name})" if name else device.type


def fast_dtype(device: torch.device | str | None = None) -> torch.dtype:
    """torch.bfloat16 where a convolution runs clearly sooner in it, else torch.float32.

    device: the device to ask about; None means `best()`. For `fit(..., dtype=fast_dtype())`.

    Whether 16 bits pay is a question to the hardware: processors with instructions for bfloat16 take half the time,
    others work it out step by step and take many times as long. So it is measured, once per process and device.
    """
    return _fast_dtype(best() if device is None else torch.device(device))


@functools.cache
def _fast_dtype(device: torch.device) -> torch.dtype:
    try:
        return torch.bfloat16 if _convolution(device, True) < 0.8 * _convolution(device, False) else torch.float32
    except (RuntimeError, NotImplementedError):  # a device that has no bfloat16, or no autocast
        return torch.float32


def _convolution(device: torch.device, half: bool) -> float:
    """Seconds for a convolution, forward and backward: the shortest of three, after one that does not count."""
    # A GPU shows what it can do only when it is full; on some CPUs so much would take minutes in bfloat16.
    batch, channels = (256, 128) if device.type in ("cuda", "xpu", "mps") else (16, 16)
    images = torch.ones(batch, channels, 14, 14, device=device).to(memory_format=torch.channels_last)
    weight = torch.ones(channels, channels, 3, 3, device=device).to(memory_format=torch.channels_last).requires_grad_()
    times = []
    for _ in range(4):
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            torch.nn.functional.conv2d(images, weight).sum().backward()
        weight.grad.sum().item()  # reading a number waits for the device
        times.append(time.perf_counter() - start)
    return min(times[1:])
