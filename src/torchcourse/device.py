"""Which device to compute on, and what it is."""

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
