"""Comparing a result with the expected one: `same` says what differs, `equal` answers yes or no."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from labcheck.show import show
from labcheck.verdict import Incorrect


def same(
    yours: Any,
    expected: Any,
    what: str = "Your result",
    dtype: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    look: str | None = None,
) -> None:
    """Raise Incorrect unless `yours` equals `expected`: kind, then shape, then dtype, then values.

    expected: a tensor, a number, or anything that `==` compares; or a tuple, a list or a dict of these
    dtype: False accepts every real dtype but bool (values are compared as float64). Tensors may be on any device.
    """
    options = {"dtype": dtype, "rtol": rtol, "atol": atol, "look": look}
    if isinstance(expected, torch.Tensor):
        _same_tensor(yours, expected, what, **options)
    elif isinstance(expected, dict) and isinstance(yours, dict) and yours.keys() == expected.keys():
        for key in expected:
            same(yours[key], expected[key], f'"{key}" in {what[0].lower()}{what[1:]}', **options)
    elif isinstance(expected, tuple | list) and any(isinstance(part, torch.Tensor) for part in expected):
        if not isinstance(yours, tuple | list) or len(yours) != len(expected):
            raise Incorrect(f"{what} should have {len(expected)} parts.", expected, yours, look)
        for number, parts in enumerate(zip(yours, expected, strict=True), 1):
            same(*parts, f"Part {number} of {what[0].lower()}{what[1:]}", **options)
    elif isinstance(expected, int | float) and not isinstance(expected, bool):
        _same_number(yours, expected, what, **options)
    elif not near(yours, expected, rtol, atol):
        raise Incorrect(f"{what} is not right.", show(expected), show(yours), look)


def near(yours: Any, expected: Any, rtol: float = 1e-4, atol: float = 1e-5, dtype: bool = False) -> bool:
    """Tell whether two results are the same up to rounding. Never raises."""
    if isinstance(expected, tuple | list) and isinstance(yours, tuple | list):
        pairs = zip(yours, expected, strict=False)
        return len(yours) == len(expected) and all(near(a, b, rtol, atol, dtype) for a, b in pairs)
    try:
        if isinstance(expected, torch.Tensor | dict | int | float) and not isinstance(expected, bool):
            same(yours, expected, dtype=dtype, rtol=rtol, atol=atol)
            return True
        return equal(yours, expected, unknown=False)
    except Exception:  # values that cannot be compared are not the same
        return False


def _same_tensor(
    yours: Any, expected: torch.Tensor, what: str, dtype: bool, rtol: float, atol: float, look: str | None
) -> None:
    if not isinstance(yours, torch.Tensor):
        raise Incorrect(f"{what} is not a tensor.", "a tensor", show(yours), look)
    if yours.is_meta or yours.layout != torch.strided:
        raise Incorrect(f"{what} is a tensor without readable values.", "an ordinary tensor", show(yours), look)
    if yours.shape != expected.shape:
        raise Incorrect(f"{what} has the wrong shape.", tuple(expected.shape), tuple(yours.shape), look)
    another_kind = (yours.dtype == torch.bool) != (expected.dtype == torch.bool) or yours.is_complex()
    if yours.dtype != expected.dtype and (dtype or another_kind):
        raise Incorrect(f"{what} has the wrong dtype.", str(expected.dtype), str(yours.dtype), look)
    a, b = _comparable(yours), _comparable(expected)
    close = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if not close.all():
        where = tuple(int(i) for i in (~close).nonzero()[0])
        place = f" at index {list(where)}" if where else ""
        digits = 5 if expected.is_floating_point() else 12
        differ = f"has the right shape, but {int((~close).sum())} of {close.numel()} values differ"
        raise Incorrect(
            f"{what} {differ if close.numel() > 1 else 'is not right'}.",
            f"{b[where].item():.{digits}g}{place}",
            f"{a[where].item():.{digits}g}{place}",
            look,
        )


def _same_number(
    yours: Any, expected: float, what: str, dtype: bool, rtol: float, atol: float, look: str | None
) -> None:
    one = isinstance(yours, torch.Tensor) and yours.numel() == 1 and not yours.is_meta
    number = yours.item() if one or isinstance(yours, np.number) else yours
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise Incorrect(f"{what} is not a number.", show(expected), show(yours), look)
    huge = isinstance(number, int) and abs(number) > 2**1000  # no float holds it
    if huge or number != number or abs(number - expected) > atol + rtol * abs(expected):
        raise Incorrect(f"{what} is not right.", show(expected), show(yours), look)
    if dtype and not isinstance(yours, int | np.integer if isinstance(expected, int) else int | float):
        kind = f"a Python {type(expected).__name__}"
        raise Incorrect(f"{what} has the right value, but another type.", kind, show(yours), look)


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, in a dtype that holds the integers and floats of the course exactly; complex stays complex."""
    tensor = tensor.detach().cpu()
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def equal(a: Any, b: Any, unknown: bool = True) -> bool:
    """Tell whether two values are equal, dtypes included. Never raises.

    unknown: the answer for objects that we cannot look into; by default they count as unchanged
    """
    try:
        if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
            both = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
            same_form = both and a.shape == b.shape and a.dtype == b.dtype
            return same_form and torch.allclose(_comparable(a), _comparable(b), rtol=0, atol=0, equal_nan=True)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return a.shape == b.shape and bool(np.array_equal(a, b))
        if isinstance(a, torch.nn.Module) and isinstance(b, torch.nn.Module):
            return equal(a.state_dict(), b.state_dict())
        if isinstance(a, list | tuple) and isinstance(b, list | tuple):
            return len(a) == len(b) and all(equal(x, y, unknown) for x, y in zip(a, b, strict=True))
        if isinstance(a, dict) and isinstance(b, dict):
            return a.keys() == b.keys() and all(equal(a[key], b[key], unknown) for key in a)
        if isinstance(a, str | bytes | int | float | complex | torch.dtype | torch.device | None):
            return type(a) is type(b) and (a == b or a != a)
    except Exception:
        return False
    return unknown
