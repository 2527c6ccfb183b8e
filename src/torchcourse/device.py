"""Which device to compute on, what it is, and in which precision it is fast."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator

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
    """torch.bfloat16 where a convolution runs clearly faster in it, else torch.float32.

    device: the device to ask about; None means `best()`.

    Whether 16 bits pay is a question for the hardware: processors with instructions for bfloat16 take half the time,
    others work it out step by step and take many times as long. So it is measured, once per process and device. A large
    GPU gains in a large model and loses in a small one: if you have the model, ask with `fit(..., dtype="fast")`.
    """
    return _fast_dtype(best() if device is None else torch.device(device))


@functools.cache
def _fast_dtype(device: torch.device) -> torch.dtype:
    try:
        return faster_dtype(_convolution(device), device)
    except (RuntimeError, NotImplementedError):  # not even float32 runs there
        return torch.float32


def faster_dtype(loss: Callable[[], torch.Tensor], device: torch.device) -> torch.dtype:
    """torch.bfloat16 if `loss()` and its backward run clearly faster under autocast to it, else torch.float32.

    loss: computes a scalar loss on `device`; called a dozen times, or more if it is quick. Its random numbers are drawn
        as usual.
    """
    full, half = (functools.partial(_seconds, loss, device, dtype) for dtype in (torch.float32, torch.bfloat16))
    full()  # the first pass chooses kernels and fills caches
    try:
        half()
        once = full()
        if half() > 2 * once:  # there are no instructions for it: seen well enough
            return torch.float32
        count = max(1, round(LONG_ENOUGH / once))
        # In turns: what slows the machine down for a moment slows both. The shortest time is the least disturbed one.
        times = [(full(count), half(count)) for _ in range(5)]
    except (RuntimeError, NotImplementedError):  # a device that has no bfloat16, or no autocast
        return torch.float32
    full_time, half_time = map(min, zip(*times, strict=True))
    return torch.bfloat16 if half_time < 0.8 * full_time else torch.float32


LONG_ENOUGH = 0.02  # seconds between two synchronizations: below that, one measures the synchronization


def _seconds(loss: Callable[[], torch.Tensor], device: torch.device, dtype: torch.dtype, count: int = 1) -> float:
    """Seconds of one pass, forward and backward: the mean of `count` passes."""
    start = time.perf_counter()
    for _ in range(count):
        with torch.autocast(device.type, dtype, enabled=dtype == torch.bfloat16):
            value = loss()
        value.backward()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return (time.perf_counter() - start) / count


def _convolution(device: torch.device) -> Callable[[], torch.Tensor]:
    """A convolution whose pass takes 5 ms or more in float32, so that not the launch of its kernels is measured."""
    # A GPU shows what it can do only when it is full; on some CPUs as many channels would take minutes in bfloat16.
    channels, most = (32, 512) if device.type == "cpu" else (256, 4096)
    weight = torch.ones(channels, channels, 3, 3, device=device).to(memory_format=torch.channels_last).requires_grad_()
    batch = 16
    while True:
        images = torch.ones(batch, channels, 14, 14, device=device).to(memory_format=torch.channels_last)

        def loss(images: torch.Tensor = images) -> torch.Tensor:
            return torch.nn.functional.conv2d(images, weight).sum()

        if batch >= most or min(_seconds(loss, device, torch.float32) for _ in range(4)) >= 0.005:
            return loss
        batch *= 2


def awake(device: torch.device) -> bool:
    """Whether this process has used the device. Asking a CUDA device for its random state would make a context on it:
    a second, and hundreds of MiB.
    """
    return device.type != "cuda" or torch.cuda.is_initialized()


@contextlib.contextmanager
def random_numbers_kept(device: torch.device) -> Iterator[None]:
    """PyTorch's random numbers go on after the block as if it had not been there, on the CPU and on `device`."""
    # Of an accelerator only one device: for all of them fork_rng warns, and Apple's has no state for each device.
    devices, asleep = [], not awake(device)
    if device.type in ("cuda", "xpu") and not asleep:
        devices = [torch.accelerator.current_device_index() if device.index is None else device.index]
    try:
        with torch.random.fork_rng(devices, device_type=device.type if devices else "cuda"):
            yield
    finally:
        if asleep:  # it has the seed of `torch.manual_seed`, which the block may have called
            torch.cuda.manual_seed_all(torch.initial_seed())
