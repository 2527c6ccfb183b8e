"""The practice GPU: a device that PyTorch treats as an accelerator, on a machine that has none.

    from torchcourse import simgpu

    gpu = simgpu.accelerator()          # the real accelerator if there is one, else the practice GPU
    model.to(gpu)                       # moves as to a real GPU; mixing devices and .numpy() fail as on a real GPU

It computes on the CPU, so it makes nothing faster. What it is for: everything that goes wrong on the way from the CPU
to a GPU goes wrong here too, with PyTorch's own words, and `simgpu.trace()` counts what a GPU would have to do.

How it works, in four ideas:

1. *A device with a name.* PyTorch keeps one place for a device that it does not know ("PrivateUse1"). `enable()` takes
   the place and names it "simgpu".
2. *Tensors that live there.* A CPU tensor and a "simgpu" tensor are the same bytes with another label. DLPack, the
   format in which libraries hand tensors to each other, says in two numbers where a tensor lives; `_relabel` writes
   them. The result is a plain `torch.Tensor` whose `device` is simgpu:0: checks and error messages are PyTorch's own.
3. *One kernel for all operations.* PyTorch looks up a kernel by operation and device. A fallback answers for every
   operation on simgpu: `_kernel` labels the arguments "CPU", calls the CPU's kernel, labels the results "simgpu".
4. *The few that need care.* Copies between host and device, views (they must share memory), dropout and convolution
   (PyTorch has other plans for an unknown device than for the CPU) have kernels of their own, below.

Random numbers come from the CPU's generator. So training on the practice GPU gives the losses of the CPU bit for bit,
dropout included; on a real GPU the numbers differ, because there every device has its own generator.

What differs from a real GPU: nothing runs in the background (a copy with `non_blocking=True` is complete when the call
returns, `torch.accelerator.synchronize()` has nothing to wait for), so errors come at once and not later; there is one
device; there are no streams and events, and no recurrent layers (`nn.LSTM`, `nn.GRU`).
"""

import contextlib
import ctypes
import functools
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch.utils import backend_registration

from torchcourse.errors import CourseError
from torchcourse.trace import trace

__all__ = [
    "accelerator",
    "enable",
    "max_memory_allocated",
    "memory_allocated",
    "reset_peak_memory_stats",
    "set_memory_limit",
    "trace",
]

NAME = "simgpu"
DEVICE = torch.device("cpu")  # replaced by enable(): before that, PyTorch does not know the name
aten = torch.ops.aten
CPU_KERNELS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
CPU_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


# ---------------------------------------- what people call


def accelerator() -> torch.device:
    """The real accelerator of this machine if one works, else the practice GPU (switched on if need be).

    returns: for example device("cuda") or device("simgpu:0"). Raises CourseError where there is neither.
    """
    found = torch.accelerator.current_accelerator(check_available=True)
    return enable() if found is None or found.type == NAME else found


def enable() -> torch.device:
    """Switch on the practice GPU for this process. Calling it again changes nothing.

    returns: device("simgpu:0"). Raises CourseError on a machine with a real accelerator (PyTorch has room for one
    kind of accelerator in a process), or where this PyTorch lacks what the practice GPU is made of.
    """
    global DEVICE
    if hasattr(torch, NAME):  # switched on before
        return _checked(torch.device(NAME, 0))
    real = torch.accelerator.current_accelerator(check_available=True)
    if real is not None:
        raise CourseError(
            f"This machine has a real accelerator, {real.type}: use it, for example with `gpu = simgpu.accelerator()`. "
            "The practice GPU is for machines without one."
        )
    try:
        guard = _reserve()
        backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_backend, device_guard=guard)
        _register_kernels()
    except (AttributeError, RuntimeError, TypeError) as problem:
        raise CourseError(
            f"PyTorch {torch.__version__} does not let Python add a device, so the practice GPU cannot be switched on; "
            f"install the newest torch, or use a machine with a GPU. (PyTorch said: {str(problem).splitlines()[0]})"
        ) from problem
    _teach_torch()
    DEVICE = torch.device(NAME, 0)
    return _checked(DEVICE)


def memory_allocated() -> int:
    """Bytes that tensors on the practice GPU take now, in blocks of 512 as on CUDA."""
    return _memory.now


def max_memory_allocated() -> int:
    """The largest value of `memory_allocated()` since the start or since `reset_peak_memory_stats()`."""
    return _memory.peak


def reset_peak_memory_stats() -> None:
    """Let `max_memory_allocated()` start again from what is allocated now."""
    _memory.peak = _memory.now


def set_memory_limit(limit: int | None) -> None:
    """Give the practice GPU a memory of `limit` bytes; None (as at the start) means as much as the computer has.

    A tensor that does not fit raises torch.OutOfMemoryError, with the words that CUDA has for it.
    """
    _memory.limit = limit


def _checked(device: torch.device) -> torch.device:
    """The device, if the backward pass works there. Raises CourseError if not."""
    try:
        torch.ones(1, device=device, requires_grad=True).sum().backward()
    except RuntimeError as problem:
        raise CourseError(
            "PyTorch counts the devices at the first backward() of a process, and the practice GPU came too late for "
            "that. Restart the kernel, and write `from torchcourse import simgpu` at the top, before any training."
        ) from problem
    return device


@functools.cache
def _reserve() -> object:
    """Announce a device that may be switched on later; nothing else changes. Done when this module is imported."""
    guard = backend_registration._DummyDeviceGuard()
    torch._C._acc.register_python_privateuseone_device_guard(guard)
    return guard


# ---------------------------------------- labels, memory


class _Place(ctypes.Structure):
    """The beginning of a DLPack tensor: where its bytes are, and on which device that address means something."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


ON_CPU, ON_PRACTICE_GPU = 1, 12  # DLPack's numbers for "CPU" and for "a device that DLPack does not know"
_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _relabel(tensor: torch.Tensor, device_type: int) -> torch.Tensor:
    """The same bytes as a tensor on another device. The memory lives as long as either tensor does."""
    capsule = torch._C._to_dlpack(tensor)
    place = _Place.from_address(_address(capsule, b"dltensor"))
    place.device_type, place.device_id = device_type, 0
    return torch._C._from_dlpack(capsule)


def _host(tensor: torch.Tensor) -> torch.Tensor:
    """A practice-GPU tensor as the CPU sees it."""
    return _relabel(tensor, ON_CPU)


def _device(tensor: torch.Tensor) -> torch.Tensor:
    """Fresh CPU memory becomes memory of the practice GPU, and is counted until its storage is freed."""
    size = -(-tensor.untyped_storage().nbytes() // 512) * 512
    _memory.take(size)
    tensor = _relabel(tensor, ON_PRACTICE_GPU)
    weakref.finalize(tensor.untyped_storage(), _memory.give_back, size).atexit = False
    return tensor


class _Memory:
    """What is allocated on the practice GPU, in bytes."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.limit: int | None = None

    def take(self, size: int) -> None:
        if self.limit is not None and self.now + size > self.limit:
            raise torch.OutOfMemoryError(
                f"{NAME} out of memory. Tried to allocate {_readable(size)}. GPU 0 has a total capacity of "
                f"{_readable(self.limit)} of which {_readable(max(0, self.limit - self.now))} is free. "
                f"Of the allocated memory {_readable(self.now)} is allocated by PyTorch."
            )
        self.now += size
        self.peak = max(self.peak, self.now)

    def free_and_total(self) -> tuple[int, int]:
        total = self.limit
        if total is None:
            import psutil

            total = psutil.virtual_memory().available + self.now
        return max(0, total - self.now), total

    def give_back(self, size: int) -> None:
        self.now -= size


def _readable(size: int) -> str:
    for unit, power in ("GiB", 30), ("MiB", 20), ("KiB", 10):
        if size >= 2**power:
            return f"{size / 2**power:.2f} {unit}"
    return f"{size} bytes"


_memory = _Memory()


# ---------------------------------------- one kernel for everything

# These take indices from the CPU, as CUDA does: `images[torch.tensor([3, 5])]` works for images on a GPU.
_INDICES_FROM_ANYWHERE = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}


def _kernel(func: torch._ops.OpOverload, *args: object, **kwargs: object) -> object:
    """Any operation on the practice GPU: compute with the CPU's kernel on the same bytes."""
    facts = _facts.get(func) or _facts.setdefault(func, _Facts(func))
    _same_device(facts, args, kwargs)
    labels = _Labels()
    cpu_args = [labels.to_host(value, False) for value in args]
    if not facts.takes_numbers:
        for position, _ in facts.inputs[: len(args)]:
            if isinstance(cpu_args[position], (bool, int, float)):  # PyTorch has unpacked `x % 3`; pack it again
                cpu_args[position] = torch.tensor(cpu_args[position], dtype=_number_type(cpu_args), device="cpu")
    cpu_kwargs = {name: labels.to_host(value, name in facts.outs) for name, value in kwargs.items()}
    with torch._C._ExcludeDispatchKeyGuard(CPU_AUTOCAST):  # autocast for "cpu" means tensors on the CPU
        try:
            outputs = func(*cpu_args, **cpu_kwargs)
        except NotImplementedError as problem:
            raise NotImplementedError(
                f"The practice GPU cannot compute {facts.name!r}: it borrows the CPU's kernels, and the CPU has none "
                "for this operation with these tensors. Move this part to the CPU, or use a real GPU."
            ) from problem
    if facts.outs:
        labels.fill_outs()
    return labels.to_device(outputs, args[0] if facts.views else None)


# Where the declaration says "Tensor", a call from Python may give a number to these only.
_TAKE_NUMBERS = {"add", "sub", "rsub", "mul", "div", "divide", "true_divide", "multiply", "subtract", "floor_divide"}


def _number_type(args: list) -> torch.dtype | None:
    """float64 beside float64 tensors, so that no digit is lost; else None, PyTorch's own choice."""
    return torch.float64 if any(isinstance(a, torch.Tensor) and a.dtype == torch.float64 for a in args) else None


class _Labels:
    """The arguments and results of one call, relabeled: which CPU tensor stands for which practice-GPU tensor?"""

    def __init__(self) -> None:
        self.pairs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # id of the CPU tensor -> it, its original

    def to_host(self, value: object, out: bool) -> object:
        if isinstance(value, torch.Tensor):
            if value.device.type != NAME:
                return value
            # A tiny `out=` tensor often asks the kernel for memory, and the CPU can only enlarge memory of its own.
            host = torch.empty(0, dtype=value.dtype, device="cpu") if out and value.numel() < 2 else _host(value)
            self.pairs[id(host)] = host, value
            return host
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, (list, tuple)):
            return [self.to_host(item, out) for item in value]
        return value

    def to_device(self, value: object, source: torch.Tensor | None) -> object:
        """source: the tensor of which results are views, or None."""
        if isinstance(value, torch.Tensor):
            if id(value) in self.pairs:  # in place: the result is the argument itself
                return self.pairs[id(value)][1]
            return _device(value) if source is None else _view(source, value)
        if isinstance(value, (list, tuple)):
            return [self.to_device(item, source) for item in value]
        return value

    def fill_outs(self) -> None:
        """Whatever the kernel did with memory of its own, the tensor that was given as `out=` has to have it."""
        for host, tensor in self.pairs.values():
            if host.shape != tensor.shape:
                _adopt(tensor, host)
            elif host.data_ptr() != tensor.data_ptr():
                _host(tensor).copy_(host)


class _Facts:
    """What the declaration of an operation says, read once."""

    def __init__(self, func: torch._ops.OpOverload) -> None:
        self.name = func._schema.name.removeprefix("aten::")
        arguments, returns = func._schema.arguments, func._schema.returns
        self.outs = {a.name for a in arguments if a.is_out}  # always given by name
        self.views = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        self.takes_numbers = self.name.removesuffix("_") in _TAKE_NUMBERS
        inputs = arguments[:1] if self.name in _INDICES_FROM_ANYWHERE else arguments
        self.inputs = [(i, a.name) for i, a in enumerate(inputs) if "Tensor" in str(a.type) and not a.is_out]


_facts: dict[object, _Facts] = {}


def _view(source: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
    """A view of `source` with size and strides of `host`, which lies in the same memory. They share a storage."""
    if host.dtype != source.dtype:
        return _relabel(host, ON_PRACTICE_GPU)
    offset = source.storage_offset()
    if host.numel() > 0:
        offset = (host.data_ptr() - source.untyped_storage().data_ptr()) // host.element_size()
    return _as_strided(source, host.size(), host.stride(), offset)


def _adopt(tensor: torch.Tensor, host: torch.Tensor) -> None:
    """Let an existing practice-GPU tensor have the memory and size of `host`."""
    new = _device(host)
    aten.set_.source_Storage_storage_offset.redispatch(
        CPU_KERNELS, tensor, new.untyped_storage(), 0, list(host.size()), list(host.stride())
    )


def _same_device(facts: _Facts, args: tuple, kwargs: dict) -> None:
    """Refuse what CUDA refuses, in PyTorch's words. A CPU tensor with a single value and no dimension may take part."""
    first = None
    for position, name in facts.inputs:
        value = args[position] if position < len(args) else kwargs.get(name)
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(tensor, torch.Tensor) or (tensor.dim() == 0 and tensor.device.type == "cpu"):
                continue
            first = tensor.device if first is None else first
            if tensor.device != first:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but got {name} is on {tensor.device}, different "
                    f"from other tensors on {first} (when checking argument in method wrapper_{NAME}_{facts.name})"
                )
    if getattr(kwargs.get("generator"), "_cdata", None) not in _generators:
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")


# ---------------------------------------- the few that need care


def _can_allocate(device: torch.device | None, pin_memory: bool | None = None) -> None:
    if pin_memory:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    if device is not None and device.index not in (None, 0):
        raise RuntimeError(f"{NAME} error: invalid device ordinal: there is one practice GPU, {NAME}:0")


def _empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    _can_allocate(device, pin_memory)
    memory_format = memory_format or torch.contiguous_format
    return _device(torch.empty(size, dtype=dtype, device="cpu", memory_format=memory_format))


def _empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    _can_allocate(device, pin_memory)
    return _device(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Every copy in which the practice GPU takes part: host to device, device to host, device to device."""
    here, there = (_host(t) if t.device.type == NAME else t for t in (source, target))
    aten.copy_.default.redispatch(CPU_KERNELS, there, here)
    return target


def _to_copy(tensor, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    """`.to(...)`, `.cpu()`, `.float()` of a practice-GPU tensor. The strides stay (channels_last too)."""
    memory_format = memory_format or torch.preserve_format
    device = tensor.device if device is None else device
    return torch.empty_like(tensor, dtype=dtype, device=device, memory_format=memory_format).copy_(tensor)


def _may_take_its_place(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether `tensor.data = other` is allowed. It is what `module.to(device)` does, so that parameters stay the same
    objects and an optimizer made before still knows them."""
    return tensor.layout == other.layout


def _as_strided(tensor: torch.Tensor, size: list[int], stride: list[int], offset: int | None = None) -> torch.Tensor:
    """The mother of all views. The CPU's kernel only makes a new label for the storage, so it serves any device."""
    return aten.as_strided.default.redispatch(CPU_KERNELS, tensor, size, stride, offset)


def _reshaped(tensor: torch.Tensor, size: list[int]) -> torch.Tensor:
    return aten.view.default.redispatch(CPU_KERNELS, tensor, size)


def _set_storage(tensor, storage, offset=0, size=None, stride=()):
    size = [storage.nbytes() // tensor.element_size()] if size is None else size
    return aten.set_.source_Storage_storage_offset.redispatch(CPU_KERNELS, tensor, storage, offset, size, stride)


def _resize(tensor: torch.Tensor, size: list[int], *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    """`resize_` in new memory that begins with the old values."""
    old = _host(tensor).as_strided([tensor.untyped_storage().nbytes() // tensor.element_size()], [1], 0)
    old = old[tensor.storage_offset() :]
    new = torch.empty(size, dtype=tensor.dtype, device="cpu", memory_format=memory_format or torch.contiguous_format)
    kept = min(old.numel(), new.numel())
    new.as_strided([new.numel()], [1])[:kept] = old[:kept]
    _adopt(tensor, new)
    return tensor


def _convolution(*args: object, **kwargs: object) -> torch.Tensor:
    image, weight = args[:2]
    if image.device != weight.device:
        raise RuntimeError(
            f"Input type ({image.type()}) and weight type ({weight.type()}) should be the same"
            + " or input should be a MKLDNN tensor and weight is a dense tensor" * (image.device.type == "cpu")
        )
    return _kernel(aten.convolution.default, *args, **kwargs)


def _dropout(values: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch asks accelerators for dropout in one piece; computed here as on the CPU, so that results are equal."""
    values = _host(values)
    if train is False:
        return _device(values.clone()), _device(torch.ones_like(values, dtype=torch.bool))
    kept = torch.empty_like(values).bernoulli_(1 - p)
    factor = kept.clone().div_(1 - p) if p < 1 else kept
    return _device(values * factor), _device(kept.bool())


def _dropout_backward(grad: torch.Tensor, kept: torch.Tensor, scale: float) -> torch.Tensor:
    grad, kept = _host(grad), _host(kept)
    return _device(grad * kept.to(grad.dtype).div_(1 / scale if scale else 1.0))


_libraries: list[torch.library.Library] = []  # a registration ends when its Library is collected


def _operation(name: str) -> torch._ops.OpOverload:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def _register_kernels() -> None:
    everything, some = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    _libraries.extend((everything, some))
    everything.fallback(_kernel, "PrivateUse1")
    special: dict[str, Callable] = {
        "empty.memory_format": _empty,
        "empty_strided": _empty_strided,
        "_copy_from": _copy_from,
        "_copy_from_and_resize": _copy_from,
        "_to_copy": _to_copy,
        "_has_compatible_shallow_copy_type": _may_take_its_place,
        "as_strided": _as_strided,
        "view": _reshaped,
        "resize_": _resize,
        "set_.source_Storage": _set_storage,
        "set_.source_Storage_storage_offset": _set_storage,
        "convolution": _convolution,
        "native_dropout": _dropout,
        "native_dropout_backward": _dropout_backward,
    }
    for name, kernel in special.items():
        some.impl(name, kernel, "PrivateUse1")
    for name in _NOT_BY_FALLBACK:
        some.impl(name, functools.partial(_kernel, _operation(name)), "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, to_lower in (_LOWER, True), (_FLOAT32, False):
        for name in names.split():
            some.impl(name, _autocast(_operation(name), to_lower), "AutocastPrivateUse1")
    some.impl("_pin_memory", _pin, "CPU")
    some.impl("is_pinned", _is_pinned, "CPU")


def _autocast(func: torch._ops.OpOverload, to_lower: bool) -> Callable:
    """The kernel that comes first where autocast is on: cast floating-point arguments, go on without autocast."""

    def cast(value: object) -> object:
        if isinstance(value, torch.Tensor):
            fits = value.device.type == NAME and value.is_floating_point() and value.dtype != torch.float64
            return value.to(torch.get_autocast_dtype(NAME) if to_lower else torch.float32) if fits else value
        return [cast(item) for item in value] if isinstance(value, (list, tuple)) else value

    def kernel(*args: object, **kwargs: object) -> object:
        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
            return func(*map(cast, args), **{name: cast(value) for name, value in kwargs.items()})

    return kernel


# As on CUDA: products and convolutions in the lower precision, what needs range or accuracy in float32.
_LOWER = "conv1d conv2d conv3d convolution linear matmul mm mv bmm addmm addmv addbmm baddbmm einsum prelu"
_LOWER += " conv_transpose1d conv_transpose2d.input scaled_dot_product_attention"
_FLOAT32 = "softmax.int log_softmax.int cross_entropy_loss nll_loss nll_loss_nd mse_loss l1_loss"
_FLOAT32 += " binary_cross_entropy_with_logits"
_FLOAT32 += " layer_norm group_norm exp log log1p log2 log10 pow.Tensor_Scalar pow.Tensor_Tensor rsqrt reciprocal"
_FLOAT32 += " softplus norm.Scalar cosine_similarity cumsum cumprod"


# Where the CPU has a kernel of its own, but an unknown device would get one built from simpler operations that round in
# another way, the fallback comes too late. (`.item()` is here because torch.tensor([loss]) calls it in an unusual way.)
_NOT_BY_FALLBACK = (
    "_local_scalar_dense",
    "convolution_backward",
    "native_layer_norm",
    "native_group_norm",
    "addr",
    "any.dims",
    "all.dims",
    "_stack",
    "linalg__powsum",
    "mish_backward",
    "silu_backward",
)


# ---------------------------------------- what torch itself wants to be told

_pinned: set[int] = set()
_generators: set[int | None] = {None}  # None: no generator was asked for


def _pin(tensor: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """Pinned memory is memory that the system may not move. Here it is remembered, so that the trace can tell."""
    pinned = tensor.clone(memory_format=torch.preserve_format)
    address = pinned.untyped_storage().data_ptr()
    _pinned.add(address)
    weakref.finalize(pinned.untyped_storage(), _pinned.discard, address).atexit = False
    return pinned


def _is_pinned(tensor: torch.Tensor, device: torch.device | None = None) -> bool:
    return tensor.untyped_storage().data_ptr() in _pinned


class _AnyGenerator(type(torch._C.Generator)):
    def __instancecheck__(cls, thing: object) -> bool:
        """Every generator that PyTorch itself made is a `torch.Generator` still."""
        return type.__instancecheck__(cls, thing) if cls is _Generator else isinstance(thing, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_AnyGenerator):
    """`torch.Generator` that also knows device="simgpu"."""

    def __new__(cls, device: torch.device | str = "cpu") -> torch._C.Generator:
        if torch.device(device).type == NAME:  # so is device=7, the seventh accelerator: a seed that landed here
            _can_allocate(torch.device(device))
            generator = torch._C.Generator.__new__(_Generator, device="cpu")
            # On its way through C++ a generator loses its Python class: remember it by its address.
            _generators.add(generator._cdata)
            weakref.finalize(generator, _generators.discard, generator._cdata).atexit = False
            return generator
        return torch._C.Generator(device)


class _Generator(Generator):
    """A random generator of the practice GPU: the CPU's, with another label."""

    @property
    def device(self) -> torch.device:
        return DEVICE


def _new_storage(cls: type, *args: object, **kwargs: object) -> torch.UntypedStorage:
    """Storages without a tensor: `copy.deepcopy`, `torch.save` and `torch.load` make them."""
    device = kwargs.get("device")
    if device is None or torch.device(device).type != NAME:
        return torch._C.StorageBase.__new__(cls, *args, **kwargs)
    _can_allocate(torch.device(device))
    size = args[0] if args else kwargs.get("size", 0)
    return torch.empty(size, dtype=torch.uint8, device=DEVICE).untyped_storage()


def _nothing(*args: object, **kwargs: object) -> None:
    """Nothing waits, nothing is cached."""


def _set_device(device: torch.device | str | int) -> None:
    """There is one device to choose from."""
    _can_allocate(torch.device(NAME, device) if isinstance(device, int) else torch.device(device))


# `torch.simgpu`, as there is `torch.cuda`: the functions that PyTorch looks for in the module of a device.
_backend = SimpleNamespace(
    is_available=lambda: True,
    is_initialized=lambda: True,
    is_bf16_supported=lambda: True,
    device_count=lambda: 1,
    current_device=lambda: 0,
    set_device=_set_device,
    device=lambda device=None: contextlib.nullcontext(),
    get_device_name=lambda device=None: "practice GPU, computes on the CPU",
    get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
    manual_seed=_nothing,  # torch.manual_seed has set the CPU's generator, the only one there is
    manual_seed_all=_nothing,
    get_rng_state=lambda device=None: torch.get_rng_state(),
    set_rng_state=lambda state, device=None: torch.set_rng_state(state),
    _is_in_bad_fork=lambda: False,
    synchronize=_nothing,
    empty_cache=_nothing,
    memory_allocated=lambda device=None: memory_allocated(),
    max_memory_allocated=lambda device=None: max_memory_allocated(),
    mem_get_info=lambda device=None: _memory.free_and_total(),
    reset_peak_memory_stats=lambda device=None: reset_peak_memory_stats(),
)


def _teach_torch() -> None:
    """Functions that PyTorch keeps in C++, where a device made in Python cannot answer: answer in their place."""
    torch.Generator = Generator
    torch.UntypedStorage.__new__ = _new_storage
    # One device, whose work is done when a call returns: these have nothing to do.
    torch.accelerator.synchronize = _nothing
    torch.accelerator.empty_cache = _nothing
    torch.accelerator.set_device_index = _set_device
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.memory_allocated = torch.accelerator.memory_reserved = _backend.memory_allocated
    torch.accelerator.max_memory_allocated = torch.accelerator.max_memory_reserved = _backend.max_memory_allocated
    torch.accelerator.get_memory_info = _backend.mem_get_info
    torch.accelerator.reset_peak_memory_stats = _backend.reset_peak_memory_stats


if torch.accelerator.current_accelerator(check_available=True) is None:
    with contextlib.suppress(AttributeError, RuntimeError):  # a PyTorch without the mechanism: enable() says so
        _reserve()
