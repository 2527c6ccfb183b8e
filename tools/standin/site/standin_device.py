"""The stand-in in a Python process: kernels for its tensors, and what `torch.cuda` answers. See tools/standin."""

import contextlib
import functools
import os
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

SIMGPU = Path(__file__).parents[3] / "src" / "torchcourse" / "simgpu.py"
MEMORY = 8 * 2**30  # bytes that the device says it has
NAME = "Stand-in GPU"
COLLECTIVES = """allreduce_ broadcast_ reduce_ allgather_ _allgather_base_ reduce_scatter_ _reduce_scatter_base_ gather_
scatter_ alltoall_ alltoall_base_ allreduce_coalesced_ allgather_into_tensor_coalesced_
reduce_scatter_tensor_coalesced_"""  # those that gloo has for CUDA tensors: not send and recv


def install() -> None:
    """Make the device of this process."""
    import standin_tensors

    kernels = _kernels()
    kernels._relabel = lambda tensor, place: standin_tensors.relabel(tensor, place != kernels.ON_CPU)
    standin_tensors.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that CUDA has kernels for these already
        _register(kernels)
    _answer_for_cuda(kernels)
    _answer_for_accelerators(kernels)


def _kernels() -> ModuleType:
    """The practice GPU's module once more, for a device called cuda: without its package, which may not be there."""
    text = SIMGPU.read_text(encoding="utf-8")
    text = text.replace("from torchcourse.trace import trace\n", "trace = None\n")
    text = text.replace("from torchcourse.errors import CourseError\n", "CourseError = RuntimeError\n")
    text = text[: text.index("if torch.accelerator.current_accelerator(check_available=True) is None:\n    with")]
    module = types.ModuleType("standin_kernels")
    sys.modules[module.__name__] = module
    exec(compile(text, str(SIMGPU), "exec"), module.__dict__)
    module.NAME, module.DEVICE = "cuda", torch.device("cuda", 0)
    return module


def _register(kernels: ModuleType) -> None:
    """One kernel for all operations, and those of the practice GPU that need care."""
    everything, aten, c10d = (torch.library.Library(name, "IMPL") for name in ("_", "aten", "c10d"))
    kernels._libraries.extend((everything, aten, c10d))
    everything.fallback(kernels._kernel, "PrivateUse1")
    special: dict[str, Callable] = {
        "empty.memory_format": kernels._empty,
        "empty_strided": kernels._empty_strided,
        "copy_": lambda target, source, non_blocking=False: kernels._copy_from(source, target, non_blocking),
        "_copy_from": kernels._copy_from,
        "_copy_from_and_resize": kernels._copy_from,
        "_to_copy": kernels._to_copy,
        "_has_compatible_shallow_copy_type": kernels._may_take_its_place,
        "as_strided": kernels._as_strided,
        "view": kernels._reshaped,
        "resize_": kernels._resize,
        "set_.source_Storage": kernels._set_storage,
        "set_.source_Storage_storage_offset": kernels._set_storage,
        "convolution": kernels._convolution,
        "native_dropout": kernels._dropout,
        "native_dropout_backward": kernels._dropout_backward,
    }
    for name, kernel in special.items():
        aten.impl(name, kernel, "PrivateUse1")
    for name in kernels._NOT_BY_FALLBACK:
        aten.impl(name, functools.partial(kernels._kernel, kernels._operation(name)), "PrivateUse1")
    # A new tensor has no keys yet: PyTorch goes by its device, which is cuda.
    aten.impl("empty.memory_format", kernels._empty, "CUDA")
    aten.impl("empty_strided", kernels._empty_strided, "CUDA")
    for name in ("tril_indices", "triu_indices", "_efficientzerotensor"):
        aten.impl(name, functools.partial(_made_on_the_cpu, kernels, name), "CUDA")
    aten.impl("_pin_memory", kernels._pin, "CPU")
    aten.impl("is_pinned", kernels._is_pinned, "CPU")
    for name in COLLECTIVES.split():
        with contextlib.suppress(AttributeError):  # of an older PyTorch
            operation = getattr(torch.ops.c10d, name).default
            c10d.impl(name, functools.partial(kernels._kernel, operation), "PrivateUse1")


def _made_on_the_cpu(kernels: ModuleType, name: str, *args: Any, **options: Any) -> torch.Tensor:
    options = {key: value for key, value in options.items() if key == "dtype"}
    return kernels._device(kernels._operation(name)(*args, device="cpu", **options))


class Event:
    """`torch.cuda.Event`: the device is idle, so an event happens when it is recorded."""

    def __init__(self, *args: object, **options: object) -> None:
        self.moment = 0.0

    def record(self, stream: object = None) -> None:
        self.moment = time.perf_counter()

    def elapsed_time(self, later: "Event") -> float:
        return 1000 * (later.moment - self.moment)

    def query(self) -> bool:
        return True

    def synchronize(self, *args: object) -> None:
        """Nothing to wait for."""

    wait = synchronize


class Stream:
    """`torch.cuda.Stream`: there is one queue, and it is empty."""

    cuda_stream = 0

    def __init__(self, *args: object, **options: object) -> None:
        self.device = torch.device("cuda", 0)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        return True

    def synchronize(self, *args: object) -> None:
        """Nothing to wait for."""

    wait_stream = wait_event = synchronize

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing changes."""


class _Chosen:
    """`torch.cuda.device`: there is one to choose from."""

    def __init__(self, device: object = None) -> None:
        pass

    def __enter__(self) -> "_Chosen":
        return self

    def __exit__(self, *error: object) -> None:
        pass


def _answer_for_cuda(kernels: ModuleType) -> None:
    """`torch.cuda`, as far as the course and what it uses ask it."""
    awake: list[bool] = []  # not empty once the process has used the device

    def wake(*args: object) -> None:
        awake.append(True)

    def limit(fraction: float, device: object = None) -> None:
        kernels.set_memory_limit(None if fraction >= 1 else int(fraction * MEMORY))

    def dump(path: str = "snapshot.pickle", *args: object, **options: object) -> None:
        Path(path).write_bytes(b"a stand-in records nothing")

    properties = SimpleNamespace(
        name=NAME,
        major=9,
        minor=0,
        total_memory=MEMORY,
        multi_processor_count=132,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        L2_cache_size=50 * 2**20,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        gcnArchName="",
        uuid="",
        is_integrated=0,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_bf16_supported": lambda *args, **options: True,
        "is_initialized": lambda: bool(awake),
        "is_current_stream_capturing": lambda: False,
        "init": wake,
        "_lazy_init": wake,
        "_is_in_bad_fork": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": kernels._set_device,
        "_get_device_index": lambda *args, **options: 0,
        "get_device_name": lambda device=None: NAME,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_properties": lambda device=None: properties,
        "get_arch_list": lambda: ["sm_90"],
        "synchronize": wake,
        "empty_cache": _nothing,
        "ipc_collect": _nothing,
        "memory_stats": lambda device=None: {},
        "memory_allocated": lambda device=None: kernels.memory_allocated(),
        "max_memory_allocated": lambda device=None: kernels.max_memory_allocated(),
        "memory_reserved": lambda device=None: kernels.memory_allocated(),
        "max_memory_reserved": lambda device=None: kernels.max_memory_allocated(),
        "reset_peak_memory_stats": lambda device=None: kernels.reset_peak_memory_stats(),
        "mem_get_info": lambda device=None: (MEMORY - kernels.memory_allocated(), MEMORY),
        "set_per_process_memory_fraction": limit,
        "manual_seed": _nothing,  # torch.manual_seed has set the CPU's generator, the only one there is
        "manual_seed_all": _nothing,
        "seed": _nothing,
        "seed_all": _nothing,
        "initial_seed": torch.initial_seed,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
        "power_draw": lambda device=None: 350_000,
        "utilization": lambda device=None: 50,
        "clock_rate": lambda device=None: 1500,
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
        "stream": lambda stream: contextlib.nullcontext(),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _of_its_own(answer))
        if hasattr(torch.cuda.memory, name):
            setattr(torch.cuda.memory, name, _of_its_own(answer))
    torch.cuda.Event, torch.cuda.Stream, torch.cuda.device = Event, Stream, _Chosen
    torch.cuda.memory._record_memory_history = _of_its_own(_nothing)
    torch.cuda.memory._dump_snapshot = dump
    torch.backends.cudnn.is_available = lambda: False
    torch._C._cuda_init = _of_its_own(_nothing)
    torch._C._cuda_getDeviceCount = lambda: 1
    torch.random.fork_rng = _fork_rng
    torch.compile = functools.partial(_compile, torch.compile)


def _answer_for_accelerators(kernels: ModuleType) -> None:
    """`torch.accelerator`, and what PyTorch keeps in C++: generators, storages."""
    kernels._teach_torch()
    torch.accelerator.is_available = lambda: True
    torch.accelerator.device_count = lambda: 1
    torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")


def _nothing(*args: object, **options: object) -> None:
    """Nothing waits, nothing is cached."""


def _of_its_own(answer: Callable) -> Callable:
    """The same function as another object: the compiler has a rule for each name, and no object may have two."""
    return lambda *args, **options: answer(*args, **options)


@contextlib.contextmanager
def _fork_rng(*args: object, **options: object) -> Iterator[None]:
    """`torch.random.fork_rng`, where there is one generator."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _compile(real: Callable, model: Any = None, **options: Any) -> Any:
    """`torch.compile`; without Triton, what runs on the device can only be traced."""
    if model is None:
        return lambda function: _compile(real, function, **options)
    on_device = isinstance(model, torch.nn.Module) and any(parameter.is_cuda for parameter in model.parameters())
    if on_device or os.environ.get("STANDIN_EAGER"):
        options = {name: value for name, value in options.items() if name not in ("mode", "options")}
        options["backend"] = "eager"
    return real(model, **options)
