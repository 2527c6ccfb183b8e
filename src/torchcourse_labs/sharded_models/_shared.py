"""What two exercises share: the memory that operations take, and for how long."""

import time
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode


class Living(TorchDispatchMode):
    """The memory of tensors that operations in the block make; views of the tensors `there` are no new memory.

    most: bytes at a time, at most, counting only tensors of at least `least` bytes
    """

    def __init__(self, *there: Tensor, least: int = 0) -> None:
        super().__init__()
        self.there = {tensor.untyped_storage()._cdata for tensor in there}
        self.made: list[tuple[StorageWeakRef, int]] = []
        self.least, self.most = least, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if DTensor in types:
            return NotImplemented  # it turns into plain tensors first, and those come back here
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and not tensor.is_meta:
                storage = tensor.untyped_storage()
                if storage._cdata not in self.there:
                    self.made.append((StorageWeakRef(storage), storage.nbytes()))
        self.most = max(self.most, self.bytes(self.least))
        return result

    def bytes(self, least: int = 0) -> int:
        """How much of it still exists."""
        self.made = [each for each in self.made if not each[0].expired()]
        return sum({one.cdata: size for one, size in self.made if size >= least}.values())

    def settled(self, few: float) -> int:
        """The same, as soon as it is few, or after a second: a finished message may hold its tensor for a moment."""
        for _ in range(100):
            if self.bytes() <= few:
                break
            time.sleep(0.01)
        return self.bytes()
