"""Number formats: bits, gaps and ranges against what PyTorch itself says, and pictures read back from the figure."""

import math
import struct

import matplotlib
import pytest
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from torchcourse import CourseError
from torchcourse.lectures import floats

WITH_DTYPE = [name for name in floats.FORMATS if name != "tf32"]
VALUES = [0.0, 1.0, -1.0, 0.1, -3.7, 2.0**-10, 300.0, 1e-3]


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")


def test_bits_of_a_float32_are_those_that_struct_packs():
    for value in (*VALUES, 1e-42, 3e38, math.inf):
        expected = f"{struct.unpack('>I', struct.pack('>f', value))[0]:032b}"
        assert floats.bits(value, "fp32").replace(" ", "") == expected


@pytest.mark.parametrize("name", floats.FORMATS)
def test_bits_spell_the_formula_that_the_lecture_writes_down(name):
    form = floats.FORMATS[name]
    for value in VALUES:
        held = floats.rounded(torch.tensor(value), name).item()
        if not math.isfinite(held) or abs(held) < floats.facts(name).smallest_normal:
            continue
        sign, exponent, fraction = floats.bits(value, name).split()
        assert (len(exponent), len(fraction)) == (form.exponent, form.fraction)
        size = (1 + int(fraction, 2) / 2**form.fraction) * 2.0 ** (int(exponent, 2) - form.bias)
        assert (-1) ** int(sign) * size == held


@pytest.mark.parametrize("name", floats.FORMATS)
def test_number_is_the_reverse_of_bits(name):
    for value in VALUES:
        held = floats.rounded(torch.tensor(value), name).item()
        if math.isfinite(held):
            assert floats.number(floats.bits(value, name), name) == held


@pytest.mark.parametrize("name", WITH_DTYPE)
def test_facts_are_those_of_finfo(name):
    info, facts = torch.finfo(floats.FORMATS[name].dtype), floats.facts(name)
    assert (facts.largest, facts.smallest_normal, facts.epsilon) == (info.max, info.smallest_normal, info.eps)
    dtype = floats.FORMATS[name].dtype
    assert torch.tensor(facts.smallest).to(dtype).float() > 0  # it exists
    assert torch.tensor(facts.smallest / 4).to(dtype).float() == 0  # and nothing lies below it


def test_tf32_reaches_as_far_as_fp32_and_is_as_coarse_as_fp16():
    assert floats.facts("tf32").smallest_normal == floats.facts("fp32").smallest_normal
    assert floats.facts("tf32").largest > 0.99 * floats.facts("fp32").largest
    assert floats.facts("tf32").epsilon == floats.facts("fp16").epsilon


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_spacing_agrees_with_nextafter(dtype):
    for value in (0.0, 1.0, 0.1, 3.7, 256.0, 1e4):
        here = torch.tensor(value, dtype=dtype)
        expected = torch.nextafter(here, torch.tensor(torch.inf, dtype=dtype)).double() - here.double()
        assert floats.spacing(value, dtype) == expected.item()
        assert floats.spacing(-value, dtype) == expected.item()


def test_spacing_doubles_with_each_power_of_two():
    for name in floats.FORMATS:
        assert floats.spacing(2.0, name) == 2 * floats.spacing(1.0, name) == 2 * floats.spacing(1.75, name)


def test_there_is_nothing_after_the_largest_number():
    assert floats.spacing(65504.0, "fp16") == math.inf
    assert math.isnan(floats.spacing(448.0, "e4m3"))


def test_tf32_rounds_to_ten_bits_and_leaves_the_rest():
    eps = 2.0**-10
    x = torch.tensor([1 + 0.49 * eps, 1 + 0.5 * eps, -1 - 0.5 * eps, 1 + 1.2 * eps, 0.0, torch.inf, -torch.inf])
    assert floats.rounded(x, "tf32").tolist() == [1, 1 + eps, -1 - eps, 1 + eps, 0, torch.inf, -torch.inf]
    assert floats.rounded(torch.tensor([torch.nan]), "tf32").isnan().all()
    y = torch.randn(20, 30).T
    z = floats.rounded(y, "tf32")
    assert z.shape == y.shape and z.dtype == torch.float32
    assert ((z - y).abs() <= eps / 2 * y.abs()).all()
    assert torch.equal(floats.rounded(z, "tf32"), z)
    assert not torch.equal(y, z)


def test_rounding_leaves_its_input_alone():
    x = torch.tensor([1.0001, 2.0003])
    before = x.clone()
    for name in floats.FORMATS:
        floats.rounded(x, name)
    assert torch.equal(x, before)


def test_numbers_lists_all_of_them_and_no_other():
    found = floats.numbers("e5m2", 1, 2)
    assert found == [1, 1.25, 1.5, 1.75, 2]
    assert floats.numbers("e4m3", 0.99, 1.2) == [1, 1.125]
    with pytest.raises(CourseError, match="too many"):
        floats.numbers("fp32", 0, 1)


def test_unknown_formats_and_bits_are_refused_in_a_sentence():
    with pytest.raises(CourseError, match="fp16, bf16"):
        floats.bits(1.0, "float17")
    with pytest.raises(CourseError, match="16 bits"):
        floats.number("1" * 17, "fp16")
    assert floats.bits(1.0, torch.bfloat16) == floats.bits(1.0, "bf16")


def test_picture_of_bits_shows_them_and_what_is_held():
    ax = floats.draw_bits(0.1, "tf32", "e4m3").axes[0]
    written = [text.get_text() for text in ax.texts]
    digits = "".join(text for text in written if text in "01")
    assert digits == (floats.bits(0.1, "tf32") + floats.bits(0.1, "e4m3")).replace(" ", "")
    assert {"tf32", "e4m3", "0.1015625"} <= set(written)
    dashed = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_linestyle() not in ("solid", "-")]
    assert len(dashed) == 32 - 19


def test_picture_of_ranges_ends_where_the_format_ends():
    ax = floats.draw_ranges("fp16", "e4m3").axes[0]
    rows = {round(bar.get_y() + bar.get_height() / 2): bar for bar in ax.patches[1::2]}  # subnormal, normal, ...
    for row, name in enumerate(("fp16", "e4m3")):
        facts, bar = floats.facts(name), rows[row]
        assert bar.get_x() == pytest.approx(math.log10(facts.smallest_normal))
        assert bar.get_x() + bar.get_width() == pytest.approx(math.log10(facts.largest))


def test_picture_of_numbers_has_a_stroke_for_each():
    ax = floats.draw_numbers("e4m3", "e5m2", low=0, high=4).axes[0]
    for name, strokes in zip(("e4m3", "e5m2"), ax.collections, strict=True):
        assert [segment[0][0] for segment in strokes.get_segments()] == floats.numbers(name, 0, 4)
