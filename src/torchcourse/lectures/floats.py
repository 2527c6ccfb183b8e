"""Floating-point numbers, bit by bit: what a format can hold, and where its gaps are.

    floats.bits(0.1, "fp16")      '0 01011 1001100110': sign, exponent, fraction
    floats.spacing(1.0, "bf16")   the distance to the next larger number
    floats.rounded(x, "tf32")     x as the format would keep it, as float32
    floats.facts("e4m3")          largest and smallest numbers
    floats.draw_bits(0.1), draw_ranges(), draw_numbers("e4m3", "e5m2", low=0, high=4)     pictures

A format is meant by its short name or by its dtype: "fp16" or torch.float16. The numbers are not computed from a
textbook but read from PyTorch: a tensor of the dtype is viewed as whole numbers, or the other way round.

Layouts: fp32 and fp16 are binary32 and binary16 of IEEE 754. bf16 is the upper half of an fp32. The two 8-bit formats
are those of Micikevicius and others, "FP8 formats for deep learning", arXiv 2209.05433; PyTorch calls them
float8_e4m3fn ("finite": it has no infinity) and float8_e5m2. TF32 has no dtype anywhere: NVIDIA's matrix units read
float32 and use the first 10 bits of the fraction. It is *emulated* here, by rounding.
"""

import math
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from torchcourse.errors import CourseError
from torchcourse.plots import COLORS

INK, GREY = "#1A1A1A", "#6B6B6B"
SIGN, EXPONENT, FRACTION = "#D9D9D9", "#F6C9A8", "#A9D3EE"  # light, so that black digits stay readable; differ in grey


@dataclass(frozen=True)
class Format:
    """How the bits of a number are divided: one for the sign, then the exponent, then the fraction."""

    name: str
    dtype: torch.dtype  # in which such numbers are stored
    exponent: int  # bits of the exponent: how far the numbers reach
    fraction: int  # bits of the fraction: how close together they lie
    infinity: bool = True  # e4m3 uses that pattern for one more row of numbers

    @property
    def bias(self) -> int:
        """The exponent bits hold the power of two plus this number, so that they need no sign of their own."""
        return 2 ** (self.exponent - 1) - 1


FORMATS = {
    "fp32": Format("fp32", torch.float32, exponent=8, fraction=23),
    "tf32": Format("tf32", torch.float32, exponent=8, fraction=10),
    "fp16": Format("fp16", torch.float16, exponent=5, fraction=10),
    "bf16": Format("bf16", torch.bfloat16, exponent=8, fraction=7),
    "e5m2": Format("e5m2", torch.float8_e5m2, exponent=5, fraction=2),
    "e4m3": Format("e4m3", torch.float8_e4m3fn, exponent=4, fraction=3, infinity=False),
}
INTEGERS = {4: torch.int32, 2: torch.int16, 1: torch.uint8}  # bytes of a number -> whole numbers of the same size


def format_of(kind: str | torch.dtype) -> Format:
    """The format with a short name ("bf16") or a dtype (torch.bfloat16); CourseError for any other."""
    for name, form in FORMATS.items():
        if kind == name or kind == form.dtype:
            return form
    raise CourseError(f"There is no format {kind!r} here. Choose one of: {', '.join(FORMATS)}, or its torch dtype.")


# ---------------------------------------------------------------------------------------------------------------------
# Numbers and their bits


@dataclass(frozen=True)
class Facts:
    """What a format can hold. All are exact numbers of the format."""

    largest: float  # finite
    smallest_normal: float  # below it the fraction loses bits, one by one
    smallest: float  # above zero; "subnormal"
    epsilon: float  # the distance from 1 to the next larger number


def rounded(x: Tensor, kind: str | torch.dtype) -> Tensor:
    """The numbers of x as the format keeps them: float32 of the same shape, on the same device.

    x: floating-point tensor. What is too large becomes inf, or whatever PyTorch makes of it in that format.
    TF32 is an emulation: to the nearest number with 10 bits of fraction, and away from zero from halfway between two,
    like NVIDIA's conversion instruction (`cvt.rna.tf32.f32` in the PTX manual).
    """
    form = format_of(kind)
    if form.name != "tf32":
        return x.to(form.dtype).float()
    x = x.float().contiguous()
    dropped = 23 - form.fraction
    # The bits of a float32 above the sign count like a whole number: add half of the last bit kept, then cut.
    whole = (x.view(torch.int32) + (1 << (dropped - 1))) & ~((1 << dropped) - 1)
    return torch.where(x.isfinite(), whole.view(torch.float32), x)


def bits(value: float | Tensor, kind: str | torch.dtype) -> str:
    """The bits of one number, rounded to the format, as "sign exponent fraction".

    value: a number, or a tensor with one element.
    """
    form = format_of(kind)
    digits = f"{_pattern(float(value), form):0{1 + form.exponent + form.fraction}b}"
    return f"{digits[0]} {digits[1 : 1 + form.exponent]} {digits[1 + form.exponent :]}"


def number(pattern: str | int, kind: str | torch.dtype) -> float:
    """The number that some bits stand for; the reverse of `bits`.

    pattern: zeros and ones, spaces allowed, or the whole number that they make.
    """
    form = format_of(kind)
    whole = int(pattern.replace(" ", ""), 2) if isinstance(pattern, str) else pattern
    width = 1 + form.exponent + form.fraction
    if not 0 <= whole < 2**width:
        raise CourseError(f"{form.name} has {width} bits: {pattern!r} does not fit.")
    stored = 8 * form.dtype.itemsize
    whole <<= stored - width  # only TF32 leaves bits of its storage unused: the last ones
    if form.dtype.itemsize > 1 and whole >= 2 ** (stored - 1):
        whole -= 2**stored  # int16 and int32 have a sign
    return torch.tensor([whole], dtype=INTEGERS[form.dtype.itemsize]).view(form.dtype).float().item()


def spacing(value: float | Tensor, kind: str | torch.dtype) -> float:
    """The distance from a number, rounded to the format, to the next one further from zero.

    `torch.nextafter` knows it for float32, float16 and bfloat16; counting bits up by one does for every format. At the
    largest number there is no next one: inf (nan in e4m3).
    """
    form = format_of(kind)
    magnitude = _pattern(abs(float(value)), form)
    return number(magnitude + 1, kind) - number(magnitude, kind)


def facts(kind: str | torch.dtype) -> Facts:
    """Largest, smallest normal, smallest number and the distance after 1."""
    form = format_of(kind)
    # With an infinity the last exponent is not for numbers; without it only the very last pattern is taken, for nan.
    top = ((2**form.exponent - 1) << form.fraction) - 1 if form.infinity else 2 ** (form.exponent + form.fraction) - 2
    return Facts(number(top, kind), number(1 << form.fraction, kind), number(1, kind), spacing(1.0, kind))


def numbers(kind: str | torch.dtype, low: float, high: float) -> list[float]:
    """All numbers of a format from low to high, ascending; low and high are not negative.

    Raises CourseError when there are more than 5,000.
    """
    form = format_of(kind)
    first, last = _pattern(low, form), _pattern(high, form)
    if last - first > 5000:
        raise CourseError(f"{form.name} has {last - first + 1:,} numbers from {low} to {high}: too many to list.")
    found = [number(pattern, kind) for pattern in range(first, last + 1)]
    return [value for value in found if low <= value <= high]


def _pattern(value: float, form: Format) -> int:
    """The bits of a number as a whole number; those that TF32 does not have are cut off."""
    stored = rounded(torch.tensor([value], dtype=torch.float32), form.name).to(form.dtype)
    whole = stored.view(INTEGERS[form.dtype.itemsize]).item() % 2 ** (8 * form.dtype.itemsize)
    return whole >> (8 * form.dtype.itemsize - 1 - form.exponent - form.fraction)


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


def draw_bits(value: float, *kinds: str | torch.dtype) -> Figure:
    """Draw one number in several formats, one below the other, with what each really holds.

    kinds: the formats; all when none is given. The border between exponent and fraction is one line through all rows:
    left of it you see how far a format reaches, right of it how fine it is. Dashed boxes are stored and not used.
    """
    forms = [format_of(kind) for kind in kinds or FORMATS]
    left, right = 4.2, 9 + max(8 * form.dtype.itemsize - 1 - form.exponent for form in forms)
    figure, ax = _canvas(left + right + 6.2, 1.45 * len(forms) + 1.6, unit=0.235)
    border = left + 9
    for text, x, color in (("exponent", border - 0.4, COLORS[1]), ("fraction", border + 0.4, COLORS[0])):
        ax.text(x, 0.75, text, ha="right" if x < border else "left", va="center", color=color, fontsize=10)
    ax.text(left + right + 0.8, 0.75, "holds", ha="left", va="center", color=GREY, fontsize=10)
    for row, form in enumerate(forms):
        y, (sign, exponent, fraction) = 1.5 + 1.45 * row, bits(value, form.name).split()
        ax.text(0.2, y + 0.5, form.name, ha="left", va="center", family="monospace", weight="bold", color=INK)
        x = border - len(exponent) - 1.25
        for group, color in ((sign, SIGN), (exponent, EXPONENT), (fraction, FRACTION)):
            for digit in group:
                _bit(ax, x, y, digit, color)
                x += 1
            x += 0.25 if group is sign else 0
        for unused in range(8 * form.dtype.itemsize - 1 - form.exponent - form.fraction):
            _bit(ax, x + unused, y, "", None)
        held = number(bits(value, form.name), form.name)
        ax.text(left + right + 0.8, y + 0.5, f"{held:.9g}", ha="left", va="center", family="monospace", color=INK)
    ax.plot([border, border], [1.2, 1.5 + 1.45 * len(forms)], color=INK, linewidth=1.5, linestyle="-")
    return figure


def draw_ranges(*kinds: str | torch.dtype) -> Figure:
    """Draw from where to where each format reaches, on a scale of powers of ten.

    kinds: the formats; all when none is given. The pale part holds the subnormal numbers.
    """
    forms = [format_of(kind) for kind in kinds or FORMATS]
    figure, ax = plt.subplots(figsize=(9, 0.42 * len(forms) + 1.0))
    for row, form in enumerate(forms):
        f = facts(form.name)
        low, normal, high = (math.log10(value) for value in (f.smallest, f.smallest_normal, f.largest))
        ax.barh(row, normal - low, 0.62, left=low, color=FRACTION, edgecolor=COLORS[0], hatch="///", linewidth=0)
        ax.barh(row, high - normal, 0.62, left=normal, color=COLORS[0])
        ax.text(low - 0.8, row, _power(f.smallest), ha="right", va="center", fontsize=9, color=INK)
        ax.text(high + 0.8, row, _power(f.largest), ha="left", va="center", fontsize=9, color=INK)
    ticks = range(-45, 46, 15)
    ax.set(xlim=(-54, 46), ylim=(len(forms) - 0.4, -0.6), xticks=ticks, yticks=range(len(forms)))
    ax.set_xticklabels([f"$10^{{{power}}}$" if power else "1" for power in ticks])
    ax.set_yticklabels([form.name for form in forms], family="monospace")
    ax.set_xlabel("size of the numbers; hatched: subnormal, with fewer and fewer bits")
    ax.grid(visible=False, axis="y")
    return figure


def draw_numbers(*kinds: str | torch.dtype, low: float, high: float) -> Figure:
    """Draw every number of each format between low and high as a stroke on a line of its own."""
    forms = [format_of(kind) for kind in kinds]
    figure, ax = plt.subplots(figsize=(9, 0.55 * len(forms) + 0.8))
    for row, form in enumerate(forms):
        found = numbers(form.name, low, high)
        ax.plot([low, high], [row, row], color=GREY, linewidth=0.8, linestyle="-")
        ax.vlines(found, row - 0.3, row + 0.3, color=COLORS[row % len(COLORS)], linewidth=1.4)
        ax.text(high + 0.015 * (high - low), row, f"{len(found)} numbers", va="center", fontsize=9, color=INK)
    ax.set(xlim=(low - 0.01 * (high - low), high + 0.15 * (high - low)), ylim=(len(forms) - 0.4, -0.6), xlabel="value")
    ax.set_yticks(range(len(forms)), [form.name for form in forms], family="monospace")
    ax.grid(visible=False)
    return figure


def _canvas(width: float, height: float, unit: float) -> tuple[Figure, Axes]:
    """An empty figure of width × height boxes of `unit` inches, y downwards, without axes."""
    figure = plt.figure(figsize=(width * unit, height * unit), layout="none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    ax.axis("off")
    return figure, ax


def _bit(ax: Axes, x: float, y: float, digit: str, color: str | None) -> None:
    """One bit; without a color it is stored and not used, and drawn dashed."""
    if color is None:
        ax.add_patch(Rectangle((x + 0.08, y + 0.06), 0.84, 0.88, facecolor="white", edgecolor=GREY, ls=(0, (2, 2))))
        return
    ax.add_patch(Rectangle((x + 0.04, y), 0.92, 1, facecolor=color, edgecolor="none"))
    ax.text(x + 0.5, y + 0.54, digit, ha="center", va="center", fontsize=9, family="monospace", color=INK)


def _power(value: float) -> str:
    """A number in a few characters: 448, 65,504, 3.4e38."""
    return f"{value:,.0f}" if 1 <= value < 1e5 else f"{value:.1e}".replace("e+", "e").replace("e-0", "e-")
