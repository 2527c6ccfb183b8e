"""How many bytes of tensors exist at the same time, on any device.

    with memory.LiveBytes() as live:
        loss = model(x).sum()
        loss.backward()
    live.peak, live.now

A GPU's allocator keeps such a record itself (`torch.accelerator.max_memory_allocated()`); the CPU's does not.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the tensors that operations make in the block, as long as they exist.

    now: of those that exist at the moment; peak: the most at any time. What an operation needs inside and frees before
    it returns is not seen. Tensors that share their memory count once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, memory: torch.UntypedStorage) -> None:
        if memory._cdata not in self._known:
            self._known.add(memory._cdata)
            self.now += memory.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(memory, self._forget, memory._cdata, memory.nbytes())

    def _forget(self, memory: int, size: int) -> None:
        self._known.discard(memory)
        self.now -= size
