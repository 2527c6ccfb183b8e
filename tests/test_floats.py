"""Number formats: bits, gaps and ranges against what PyTorch itself says, and pictures read back from the figure."""

import math

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.patches import Rectangle

from torchcourse import CourseError
from torchcourse.lectures import floats

WITH_DTYPE = [name for name in floats.FORMATS if name != "tf32"]
VALUES = [0.0, 1.0, -1.0, 0.1, -3.7, 2.0**-10, 300.0, 1e-3, 1e-42, 3e38]


@pytest.mark.parametrize("name", floats.FORMATS)
def test_bits_spell_the_formula_that_the_lecture_writes_down(name):
    form = floats.FORMATS[name]
    for value in VALUES:
        held = floats.rounded(torch.tensor(value), name).item()
        if not math.isfinite(held):
            continue
        assert floats.number(floats.bits(value, name), name) == held
        sign, exponent, fraction = floats.bits(value, name).split()
        assert (len(exponent), len(fraction)) == (form.exponent, form.fraction)
        if abs(held) >= floats.facts(name).smallest_normal:
            size = (1 + int(fraction, 2) / 2**form.fraction) * 2.0 ** (int(exponent, 2) - form.bias)
            assert (-1) ** int(sign) * size == held


@pytest.mark.parametrize("name", WITH_DTYPE)
def test_facts_are_those_of_finfo(name):
    dtype, facts = floats.FORMATS[name].dtype, floats.facts(name)
    info = torch.finfo(dtype)
    assert (facts.largest, facts.smallest_normal, facts.epsilon) == (info.max, info.smallest_normal, info.eps)
    assert torch.tensor(facts.smallest).to(dtype).float() > 0  # it exists
    assert torch.tensor(facts.smallest / 4).to(dtype).float() == 0  # and nothing lies below it


def test_spacing_agrees_with_nextafter():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for value in (0.0, 1.0, 0.1, 3.7, 256.0, 1e4):
            here = torch.tensor(value, dtype=dtype)
            expected = torch.nextafter(here, torch.tensor(torch.inf, dtype=dtype)).double() - here.double()
            assert floats.spacing(value, dtype) == floats.spacing(-value, dtype) == expected.item()
    assert floats.spacing(65504.0, "fp16") == math.inf, "there is nothing after the largest number"
    assert math.isnan(floats.spacing(448.0, "e4m3"))


def test_tf32_reaches_as_far_as_fp32_and_rounds_to_ten_bits():
    facts, fp32 = floats.facts("tf32"), floats.facts("fp32")
    assert facts.smallest_normal == fp32.smallest_normal and facts.largest > 0.99 * fp32.largest
    eps = 2.0**-10
    assert facts.epsilon == floats.facts("fp16").epsilon == eps
    x = torch.tensor([1 + 0.49 * eps, 1 + 0.5 * eps, -1 - 0.5 * eps, 1 + 1.2 * eps, 0.0, torch.inf, -torch.inf])
    before = x.clone()
    assert floats.rounded(x, "tf32").tolist() == [1, 1 + eps, -1 - eps, 1 + eps, 0, torch.inf, -torch.inf]
    assert torch.equal(x, before)
    assert floats.rounded(torch.tensor([torch.nan]), "tf32").isnan().all()
    y = torch.randn(20, 30).T
    z = floats.rounded(y, "tf32")
    assert z.shape == y.shape and z.dtype == torch.float32
    assert ((z - y).abs() <= eps / 2 * y.abs()).all() and not torch.equal(y, z)


def test_numbers_lists_all_of_them_and_what_does_not_fit_is_refused_in_a_sentence():
    assert floats.numbers("e5m2", 1, 2) == [1, 1.25, 1.5, 1.75, 2]
    assert floats.numbers("e4m3", 0.99, 1.2) == [1, 1.125]
    with pytest.raises(CourseError, match="too many"):
        floats.numbers("fp32", 0, 1)
    with pytest.raises(CourseError, match="fp16, bf16"):
        floats.bits(1.0, "float17")
    with pytest.raises(CourseError, match="16 bits"):
        floats.number("1" * 17, "fp16")


def test_pictures_show_the_bits_where_the_format_ends_and_each_number():
    ax = floats.draw_bits(0.1, "tf32", "e4m3").axes[0]
    written = [text.get_text() for text in ax.texts]
    digits = "".join(text for text in written if text in "01")
    assert digits == (floats.bits(0.1, "tf32") + floats.bits(0.1, "e4m3")).replace(" ", "")
    assert {"tf32", "e4m3", "0.1015625"} <= set(written)
    dashed = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_linestyle() not in ("solid", "-")]
    assert len(dashed) == 32 - 19

    bars = floats.draw_ranges("fp16", "e4m3").axes[0].patches[1::2]  # subnormal, normal, ...
    for row, name in enumerate(("fp16", "e4m3")):
        facts = floats.facts(name)
        (bar,) = (bar for bar in bars if round(bar.get_y() + bar.get_height() / 2) == row)
        assert bar.get_x() == pytest.approx(math.log10(facts.smallest_normal))
        assert bar.get_x() + bar.get_width() == pytest.approx(math.log10(facts.largest))

    (ax,) = floats.draw_numbers("e4m3", "e5m2", low=0, high=4).axes
    for name, strokes in zip(("e4m3", "e5m2"), ax.collections, strict=True):
        assert [segment[0][0] for segment in strokes.get_segments()] == floats.numbers(name, 0, 4)
    plt.close("all")
