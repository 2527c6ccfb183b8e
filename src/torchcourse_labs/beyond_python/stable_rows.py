"""Turn int8 rows and their scales into floats, as an operator in C++."""

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Incorrect, Inputs, NotHere, call, near, observe, same, wrong_if
from torchcourse.errors import CourseError
from torchcourse_labs.beyond_python._native import build, invoke, lacks
from torchcourse_labs.beyond_python._shared import SECONDS

HEAD = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

Tensor unpack(const Tensor& numbers, const Tensor& scales) {
#line 1 "your line"
"""
TAIL = """
}

STABLE_TORCH_LIBRARY(lab, library) { library.def("unpack(Tensor numbers, Tensor scales) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(lab, CPU, library) { library.impl("unpack", TORCH_BOX(&unpack)); }
"""


def solution() -> str:
    return """
    STD_TORCH_CHECK(scales.size(0) == numbers.size(0), "there must be one scale for each row");
    int64_t rows = numbers.size(0), columns = numbers.size(1);
    Tensor dense = torch::stable::contiguous(numbers), factors = torch::stable::contiguous(scales);
    Tensor result = torch::stable::new_empty(numbers, {rows, columns}, ScalarType::Float);
    const int8_t* from = dense.const_data_ptr<int8_t>();
    const float* factor = factors.const_data_ptr<float>();
    float* to = result.mutable_data_ptr<float>();
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            to[row * columns + column] = factor[row] * from[row * columns + column];
    return result;
    """


def draw(rng: Inputs) -> tuple[dict[str, tuple[Tensor, Tensor]], dict[str, tuple[Tensor, Tensor]]]:
    """Inputs that have a result, and inputs that the operator should refuse."""
    rows, columns = rng.sizes(2, 3, 7)
    many, numbers = rng.rand(2 * rows) + 0.1, rng.ints(-127, 128, (rows, columns + 3), torch.int8)
    ordinary, scales = numbers[:, 3:].clone(), many[:rows]
    return {
        "an ordinary tensor": (ordinary, scales),
        "a transposed tensor": (ordinary.T.contiguous().T, scales),
        "a slice": (numbers[:, 1:-2], scales),
        "scales that are a slice": (ordinary, many[::2]),
        "a tensor without rows": (ordinary[:0], scales[:0]),
    }, {
        "float32 numbers": (ordinary.float(), scales),
        "uint8 numbers": (ordinary.to(torch.uint8), scales),
        "float64 scales": (ordinary, scales.double()),
        "one scale too few": (ordinary, scales[:-1]),
        "one scale too many": (ordinary, many[: rows + 1]),
    }


def built(answer: Callable, given: list[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """A probe: what the answer's C++ returns for each of the inputs, each in a process of its own."""
    lines = call(answer)
    if not isinstance(lines, str):
        raise Incorrect("Your function should return the C++ lines as a string.", yours=lines)
    if lacking := lacks():
        return {"lacks": lacking}
    with tempfile.TemporaryDirectory() as folder:
        try:
            return {"results": invoke(build(HEAD + lines + TAIL, folder), given)}
        except CourseError as error:
            look = "return only the lines between the braces of `unpack`, each with its semicolon"
            raise Incorrect("Your lines don't compile.", yours=f"the compiler says: {error}", look=look) from None


def judge(answer: Any, rng: Inputs) -> None:
    good, bad = draw(rng)
    seen = observe(answer, built, [*good.values(), *bad.values()])
    if "lacks" in seen:
        raise NotHere(f"This machine can't check it. {seen['lacks']} Or skip it: nothing else in the lab needs it.")
    results = dict(zip([*good, *bad], seen["results"], strict=False))  # a crash ends the list
    dtype = "`const_data_ptr<int8_t>()` of numbers, `<float>` of scales and of a `Float` result; a cast checks no dtype"
    size = "`STD_TORCH_CHECK(scales.size(0) == numbers.size(0), ...)` raises if that is false; rows or columns may be 0"
    for what, (numbers, scales) in good.items():
        result, expected = results[what], numbers * scales[:, None]
        wrong_if(
            result is None,
            "crash",
            f"For {what}, your operator crashed the process that ran it, or never came to an end. It may touch memory "
            "that it doesn't own, end without `return`, or loop forever.",
        )
        if isinstance(result, str):
            look = dtype if "data_ptr" in result else size
            raise Incorrect(f"For {what}, your operator raises an error.", yours=result, look=look)
        wrong_if(
            what != "an ordinary tensor" and numbers.numel() and not near(result, expected, dtype=True),
            "memory_order",
            f"Your operator is right for an ordinary tensor, but not for {what}: there, the values lie in memory in "
            "another order, or with gaps.",
            look="`torch::stable::contiguous(x)`, and the pointer of what it returns",
        )
        look = "which scale you take, and which number: in memory, row i begins at place `i * columns`"
        same(result, expected, f"The result for {what}", look=look)
    for what, (numbers, scales) in bad.items():
        wrong_if(
            not isinstance(results[what], str),
            "not_refused",
            f"With {what}, your operator {'crashes' if results[what] is None else 'returns a result'}; it should raise "
            "an error.",
            look=dtype if len(scales) == len(numbers) else size,
        )


exercise = Exercise(
    title="The same weights in C++",
    minutes=13,
    difficulty=4,
    points=3,
    takeaway="C++ trusts what you say about memory: check dtype, order, and sizes once, before you touch it.",
    hints=(
        'A check with `STD_TORCH_CHECK(condition, "message")`, then tensors whose memory is in order '
        "(`torch::stable::contiguous(x)`), then two loops that fill "
        "`torch::stable::new_empty(numbers, {rows, columns}, ScalarType::Float)`.",
        "`const int8_t* from = dense.const_data_ptr<int8_t>();` and `float* to = result.mutable_data_ptr<float>();`; "
        "row and column are at `from[row * columns + column]`.",
    ),
    judge=judge,
    seconds=2 * SECONDS,
)
