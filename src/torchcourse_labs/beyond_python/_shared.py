"""What several exercises of this chapter need, and those of the capstone that export."""

import io
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import Incorrect

SECONDS = 60.0  # for a check that exports, traces or compiles: the first one imports much of PyTorch


@contextmanager
def quietly() -> Iterator[None]:
    """Without what PyTorch prints, warns of and logs when an export or a file fails."""
    logging.disable(logging.ERROR)
    nowhere = io.StringIO()
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stderr(nowhere), redirect_stdout(nowhere):
            yield
    finally:
        logging.disable(logging.NOTSET)


def first_line(said: Any) -> str:
    """What an error says, without the places of PyTorch's own files, and without random names."""
    line = (str(said).strip().splitlines() or [type(said).__name__])[0]
    return re.sub(r" \(with implementation in <.*?>\)|_[0-9a-f]{12}", "", line)


def attempt(function: Callable, *inputs: Any) -> Any:
    """What the function returns, or the first line of its error."""
    try:
        return function(*inputs)
    except Exception as error:
        return first_line(error)


def results(model: Callable, batches: Sequence[Tensor]) -> list[Any]:
    """What a model or a program returns for each batch, or the first line of its error."""
    with torch.no_grad():  # as a decorator, it could not be sent to another process
        return [attempt(model, batch.clone()) for batch in batches]


def program(path: str, batches: Sequence[Tensor]) -> dict[str, Any]:
    """What an exported program in a file does with each batch, twice, the file's size, and the dtypes of the inputs."""
    with quietly():
        read = attempt(torch.export.load, path)
        if isinstance(read, str):
            problem = "At `path`, there is no exported program that `torch.export.load` can read."
            look = "`torch.export.export`, then `torch.export.save(program, path)`, not `torch.save`"
            raise Incorrect(problem, yours=read.replace(path, "path"), look=look)
        takes = [node.meta["val"].dtype for node in read.graph.nodes if node.name in read.graph_signature.user_inputs]
        model, size = read.module(), os.path.getsize(path)
        return {"bytes": size, "takes": takes, "logits": results(model, batches), "again": results(model, batches)}
