"""The pictures of tensors: what they draw is read back from the figure, box by box."""

import matplotlib
import pytest
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from torchcourse import CourseError
from torchcourse.lectures import diagrams


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")


def texts(figure):
    """Everything that is written in a figure, in the order of drawing."""
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


def boxes(figure, dashed=False):
    """The filled boxes, solid or dashed."""
    patches = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and patch.get_fill()]
    return [patch for patch in patches if (patch.get_linestyle() not in ("solid", "-")) == dashed]


def test_memory_draws_each_element_in_the_color_of_its_place():
    x = torch.arange(6).reshape(2, 3)
    figure = diagrams.memory({"x.T": x.T})
    colors = [to_hex(box.get_facecolor()) for box in boxes(figure)]
    row, grid = colors[:6], colors[6:]
    assert len(set(row)) == 6
    # x.T reads memory in the order 0 3, 1 4, 2 5.
    assert grid == [row[i] for i in (0, 3, 1, 4, 2, 5)]


def test_memory_starts_a_slice_at_its_offset():
    x = torch.arange(12).reshape(3, 4)
    colors = [to_hex(box.get_facecolor()) for box in boxes(diagrams.memory(x[1:, ::2]))]
    assert colors[12:] == [colors[i] for i in (4, 6, 8, 10)]


def test_memory_names_shapes_and_strides():
    x = torch.arange(6).reshape(2, 3)
    written = texts(diagrams.memory({"x": x, "x.T": x.T}))
    assert "x" in written and "x.T" in written
    assert "shape (2, 3)\nstrides (3, 1)" in written
    assert "shape (3, 2)\nstrides (1, 3)" in written
    assert "memory: 6 × int64, 8 bytes each" in written


def test_views_share_a_row_of_memory_and_copies_get_their_own():
    x = torch.arange(6).reshape(2, 3)
    rows = [text for text in texts(diagrams.memory({"x": x, "view": x.T, "copy": x.clone()})) if "memory:" in text]
    assert len(rows) == 2


@pytest.mark.parametrize("tensor", [torch.tensor(3), torch.rand(2, 2), torch.tensor([True, False]), torch.ones(3, 1)])
def test_memory_draws_small_tensors_of_every_kind(tensor):
    assert len(boxes(diagrams.memory(tensor))) == 2 * tensor.numel()


def test_memory_of_a_tensor_that_needs_gradients():
    assert boxes(diagrams.memory(torch.ones(2, requires_grad=True)))


def test_memory_refuses_what_nobody_could_read():
    with pytest.raises(CourseError, match="100 elements"):
        diagrams.memory(torch.zeros(100)[:3])
    with pytest.raises(CourseError, match="two dimensions"):
        diagrams.memory(torch.zeros(2, 2, 2))


def test_broadcast_draws_stretched_boxes_dashed():
    figure = diagrams.broadcast(torch.ones(3, 1), torch.ones(4))
    assert len(boxes(figure)) == 3 + 4 + 12
    assert len(boxes(figure, dashed=True)) == (12 - 3) + (12 - 4)


def test_broadcast_of_equal_shapes_stretches_nothing():
    assert not boxes(diagrams.broadcast(torch.ones(2, 3), torch.ones(2, 3)), dashed=True)


def test_broadcast_writes_shapes_and_results():
    written = texts(diagrams.broadcast(torch.tensor([[10], [20]]), torch.tensor([1, 2, 3]), "-"))
    assert [text for text in written if text.startswith("(")] == ["(2, 1)", "(3,)", "(2, 3)"]
    assert "−" in written
    assert {"9", "8", "7", "19", "18", "17"} <= set(written)


def test_broadcast_says_which_shapes_do_not_fit():
    with pytest.raises(CourseError, match=r"\(3,\) and \(4,\) do not broadcast"):
        diagrams.broadcast(torch.ones(3), torch.ones(4))
    with pytest.raises(CourseError, match="operation"):
        diagrams.broadcast(torch.ones(3), torch.ones(3), "%")


def test_reductions_writes_both_sums():
    x = torch.tensor([[1, 2, 3], [40, 50, 60]])
    written = texts(diagrams.reductions(x))
    assert {"41", "52", "63", "6", "150"} <= set(written)
    with pytest.raises(CourseError, match="matrix"):
        diagrams.reductions(torch.ones(3))


def meeting(figure):
    """How many boxes are outlined: those that meet in one element of the result."""
    patches = figure.axes[0].patches
    return sum(isinstance(patch, Rectangle) and not patch.get_fill() for patch in patches)


@pytest.mark.parametrize(
    ("equation", "shapes", "outlined"),
    [
        ("ij,jk->ik", [(3, 4), (4, 2)], 4 + 4 + 1),  # a row, a column, one element
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 3)], 4 + 4 + 1),  # in the front layer only
        ("i,j->ij", [(3,), (4,)], 1 + 1 + 1),
        ("ij->j", [(3, 4)], 3 + 1),
    ],
)
def test_einsum_outlines_the_elements_that_meet(equation, shapes, outlined):
    assert meeting(diagrams.einsum(equation, *(torch.ones(shape) for shape in shapes))) == outlined


def test_einsum_says_which_letters_are_summed_over():
    assert "ij,jk->ik:  j summed over" in texts(diagrams.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 2)))
    assert "i,j->ij:  nothing is summed over" in texts(diagrams.einsum("i,j->ij", torch.ones(2), torch.ones(3)))
    with pytest.raises(CourseError, match="->"):
        diagrams.einsum("ij,jk", torch.ones(2, 3), torch.ones(3, 2))
    with pytest.raises(CourseError, match="dimensions"):
        diagrams.einsum("ij->", torch.ones(2, 3))


def test_pictures_survive_being_saved(tmp_path):
    figure = diagrams.memory({"x": torch.arange(4)})
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000
