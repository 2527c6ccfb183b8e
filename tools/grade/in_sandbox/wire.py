"""Plain data, and how it gets in and out of the sandbox.

What a student's process sends is read by the grader, so the reader decides what can arrive: None, dots (`...`),
booleans, numbers, strings, bytes, dtypes, devices, tensors, arrays, and lists, tuples and dicts of these, up to a size.
Nothing in it is executed, and no class of the sender's is needed. Objects of other kinds arrive as a `Foreign`, which
holds one line.

A message is a JSON document followed by a block of bytes. Tensors put their numbers into the block, one after the
other. The reader takes them from there in the same order, each byte once: no message can become larger by being read.

This file is used on both sides: the grader imports it, and the sandbox finds it beside `run_submission.py`.
"""

import io
import json
import math
import socket
import struct
import time
from typing import Any

import numpy as np
import torch

from labcheck.show import Foreign, show

LARGEST = 64 * 2**20  # bytes of a message that is read
LONGEST = 8 * 2**20  # bytes of its document
DEEPEST = 40  # containers in containers
NUMBERS = 10**7  # places of a tensor or a range; a judge may make a list of them
PARTS = 10**5  # of all containers together
RANK = 64  # dimensions of a tensor: NumPy and many functions of PyTorch take no more, or crash
TEXT = 20_000  # characters of a string, bytes of a bytes object
HEAD = struct.Struct(">II")  # the lengths of document and block

WORDS = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128"
ARRAYS = {word: np.dtype(word) for word in WORDS.split()}
WORDS += " bfloat16 float8_e4m3fn float8_e5m2"
DTYPES = {word: getattr(torch, word) for word in WORDS.split()}


class Garbage(Exception):
    """What came is no message in this form."""


class Gone(Exception):
    """The other side has ended, or has not answered in time."""


def pack(value: Any) -> tuple[Any, bytes]:
    """A value as a JSON document and a block of bytes. Raises ValueError for what is too large or too deep."""
    block = bytearray()
    return _pack(value, block, 0), bytes(block)


def _pack(value: Any, block: bytearray, depth: int) -> Any:
    if depth > DEEPEST:
        raise ValueError("containers within containers, too deep to be compared")
    if value is None or type(value) is bool:
        return value
    if value is ...:  # an answer that is still open
        return {"dots": None}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return int(value) if abs(value) < 10**1000 else {"foreign": "an integer of more than a thousand digits"}
    if isinstance(value, str):
        return {"str": str(value)[:TEXT].encode("utf-8", "replace").decode()}
    if isinstance(value, bytes):
        return {"bytes": value[:TEXT].hex()}
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [_pack(each, block, depth + 1) for each in value]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, dict):
        pairs = [[_pack(key, block, depth + 1), _pack(each, block, depth + 1)] for key, each in value.items()]
        return {"dict": pairs}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.Tensor):
        return _pack_tensor(value, block)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.name in ARRAYS:
        _put(np.ascontiguousarray(value).tobytes(), block)
        return {"array": [value.dtype.name, list(value.shape), isinstance(value, np.generic)]}
    return {"foreign": show(value)[:TEXT]}


def _pack_tensor(value: torch.Tensor, block: bytearray) -> Any:
    name = str(value.dtype).removeprefix("torch.")
    if value.dim() > RANK:
        raise ValueError(f"a tensor of more than {RANK} dimensions")
    if value.layout != torch.strided or value.is_nested or name not in DTYPES:
        return {"foreign": show(value)[:TEXT]}
    if value.is_meta:
        return {"meta": [name, list(value.shape)]}
    # A copy: a part of one element counts as contiguous whatever its stride, an empty array of NumPy may have strides
    # of 0, and neither can be viewed as bytes.
    row = value.detach().cpu().reshape(-1).clone(memory_format=torch.contiguous_format)
    _put(row.view(torch.uint8).numpy().tobytes(), block)
    return {"tensor": [name, list(value.shape), value.requires_grad]}


def _put(numbers: bytes, block: bytearray) -> None:
    if len(block) + len(numbers) > LARGEST // 2:
        raise ValueError(f"more than {LARGEST // 2**21} MiB of numbers")
    block += numbers


def unpack(document: Any, block: bytes) -> Any:
    """The value that `pack` was given. Raises Garbage for what `pack` does not make."""
    try:
        return _unpack(document, Block(block), 0)
    except Garbage:
        raise
    except Exception as error:
        raise Garbage(f"{type(error).__name__}") from None


class Block(io.BytesIO):
    """The numbers of a message, read once from beginning to end; and how many parts may still come."""

    parts = PARTS

    def numbers(self, shape: list[int], size: int) -> bytearray:
        """Those of the next tensor, each of `size` bytes."""
        numbers = bytearray(self.read(math.prod(shape) * size))
        if len(numbers) != math.prod(shape) * size:
            raise Garbage("a tensor whose numbers are not there")
        return numbers


def _unpack(document: Any, block: Block, depth: int) -> Any:
    if depth > DEEPEST + 1:
        raise Garbage("too deep")
    if document is None or isinstance(document, (bool, int, float)):
        return document
    kind, content = next(iter(document.items()))
    if kind in ("size", "list", "tuple", "dict"):
        block.parts -= len(content)
        if block.parts < 0:
            raise Garbage("too many parts")
    match kind:
        case "dots":
            return ...
        case "str":
            return str(content)
        case "bytes":
            return bytes.fromhex(content)
        case "size":
            return torch.Size(int(each) for each in content)
        case "list" | "tuple":
            made = [_unpack(each, block, depth + 1) for each in content]
            return made if kind == "list" else tuple(made)
        case "range":
            made = range(*(int(each) for each in content))
            if len(made) > NUMBERS:
                raise Garbage("a range that is too long")
            return made
        case "dict":
            return {_unpack(key, block, depth + 1): _unpack(each, block, depth + 1) for key, each in content}
        case "dtype":
            return DTYPES[content] if content in DTYPES else Foreign(f"torch.{str(content)[:TEXT]}")
        case "device":
            return torch.device(str(content)[:100])
        case "meta":
            return torch.empty(_shape(content[1]), dtype=DTYPES[content[0]], device="meta")
        case "tensor":
            return _unpack_tensor(*content, block)
        case "array":
            name, shape, alone = content
            numbers = block.numbers(shape := _shape(shape), ARRAYS[name].itemsize)
            array = np.frombuffer(numbers, ARRAYS[name]).reshape(shape)
            return array[()] if alone else array
        case "foreign":
            return Foreign(str(content)[:TEXT])
    raise Garbage(f"an unknown kind: {str(kind)[:50]}")


def _shape(words: list) -> list[int]:
    """A shape, checked before anything is made of it, including the product of its numbers."""
    if len(words) > RANK or not all(0 <= int(each) <= NUMBERS for each in words):
        raise Garbage("a tensor of an impossible shape")
    shape = [int(each) for each in words]
    if math.prod(shape) > NUMBERS:
        raise Garbage("a tensor that is too large")
    return shape


def _unpack_tensor(name: str, shape: list[int], grad: bool, block: Block) -> torch.Tensor:
    dtype, shape = DTYPES[name], _shape(shape)
    numbers = block.numbers(shape, dtype.itemsize)
    tensor = torch.frombuffer(numbers, dtype=torch.uint8) if numbers else torch.empty(0, dtype=torch.uint8)
    tensor = tensor.view(dtype).reshape(shape)
    return tensor.requires_grad_() if grad is True and (dtype.is_floating_point or dtype.is_complex) else tensor


def send(channel: socket.socket, document: Any, block: bytes = b"") -> None:
    """Send one message. Raises OSError if the reader is gone."""
    text = json.dumps(document).encode()
    channel.sendall(HEAD.pack(len(text), len(block)) + text + block)


def receive(channel: socket.socket, seconds: float | None = None) -> tuple[Any, bytes]:
    """The next message: its document and its block.

    seconds: for the whole message; None waits forever
    Raises Gone at the end of the stream or of the time, Garbage for what is too large or no message.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    text_length, block_length = HEAD.unpack(_exactly(channel, HEAD.size, deadline))
    if text_length > LONGEST or text_length + block_length > LARGEST:
        raise Garbage("a message that is too large")
    text, block = _exactly(channel, text_length, deadline), _exactly(channel, block_length, deadline)
    try:
        return json.loads(text), block
    except (ValueError, RecursionError):
        raise Garbage("no JSON") from None


def _exactly(channel: socket.socket, count: int, deadline: float | None) -> bytes:
    parts, missing = [], count
    while missing:
        if deadline is not None:
            channel.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            part = channel.recv(min(missing, 2**20))
        except OSError:  # a time-out is one, too
            raise Gone from None
        if not part:
            raise Gone
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
