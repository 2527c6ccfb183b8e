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
    x = torch.arange(12).reshape(3, 4)
    # x.T reads memory in the order 0 4 8, 1 5 9, ...; a slice begins at its offset.
    for view, places in ((x.T, (0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11)), (x[1:, ::2], (4, 6, 8, 10))):
        colors = [to_hex(box.get_facecolor()) for box in boxes(diagrams.memory({"view": view}))]
        assert len(set(colors[:12])) == 12
        assert colors[12:] == [colors[place] for place in places]


def test_memory_names_shapes_and_strides_and_views_share_a_row():
    x = torch.arange(6).reshape(2, 3)
    written = texts(diagrams.memory({"x": x, "x.T": x.T, "copy": x.clone()}))
    assert {"x", "x.T", "shape (2, 3)\nstrides (3, 1)", "shape (3, 2)\nstrides (1, 3)"} <= set(written)
    assert written.count("memory: 6 × int64, 8 bytes each") == 2


def test_memory_draws_small_tensors_of_every_kind_and_refuses_what_nobody_could_read():
    flags, leaf = torch.tensor([True, False]), torch.ones(3, 1, requires_grad=True)
    for tensor in (torch.tensor(3), torch.rand(2, 2), flags, leaf):
        assert len(boxes(diagrams.memory(tensor))) == 2 * tensor.numel()
    with pytest.raises(CourseError, match="100 elements"):
        diagrams.memory(torch.zeros(100)[:3])
    with pytest.raises(CourseError, match="two dimensions"):
        diagrams.memory(torch.zeros(2, 2, 2))


def test_broadcast_draws_stretched_boxes_dashed():
    figure = diagrams.broadcast(torch.ones(3, 1), torch.ones(4))
    assert len(boxes(figure)) == 3 + 4 + 12
    assert len(boxes(figure, dashed=True)) == (12 - 3) + (12 - 4)
    written = texts(diagrams.broadcast(torch.tensor([[10], [20]]), torch.tensor([1, 2, 3]), "-"))
    assert [text for text in written if text.startswith("(")] == ["(2, 1)", "(3,)", "(2, 3)"]
    assert {"−", "9", "8", "7", "19", "18", "17"} <= set(written)
    with pytest.raises(CourseError, match=r"\(3,\) and \(4,\) do not broadcast"):
        diagrams.broadcast(torch.ones(3), torch.ones(4))


def test_reductions_writes_both_sums():
    assert {"41", "52", "63", "6", "150"} <= set(texts(diagrams.reductions(torch.tensor([[1, 2, 3], [40, 50, 60]]))))


@pytest.mark.parametrize(
    ("equation", "shapes", "outlined", "said"),
    [
        ("ij,jk->ik", [(3, 4), (4, 2)], 4 + 4 + 1, "j summed over"),  # a row, a column, one element
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 3)], 4 + 4 + 1, "j summed over"),  # in the front layer only
        ("i,j->ij", [(3,), (4,)], 1 + 1 + 1, "nothing is summed over"),
        ("ij->j", [(3, 4)], 3 + 1, "i summed over"),
    ],
)
def test_einsum_outlines_the_elements_that_meet(equation, shapes, outlined, said):
    figure = diagrams.einsum(equation, *(torch.ones(shape) for shape in shapes))
    patches = figure.axes[0].patches
    assert sum(isinstance(patch, Rectangle) and not patch.get_fill() for patch in patches) == outlined
    assert f"{equation}:  {said}" in texts(figure)
