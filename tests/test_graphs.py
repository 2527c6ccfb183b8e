"""The list of a graph's nodes and its picture."""

import matplotlib.pyplot as plt
import torch

from torchcourse.lectures import graphs


def test_nodes_are_found_once_and_constants_are_not_part_of_the_graph():
    w = torch.tensor(2.0, requires_grad=True)
    square = w * w  # reaches the leaf w twice
    names = [node.name() for node in graphs.nodes(square + torch.tensor(1.0))]
    assert names == ["AddBackward0", "MulBackward0", "torch::autograd::AccumulateGrad"]
    assert graphs.nodes(w.detach()) == []
    with torch.no_grad():
        assert graphs.nodes(w * 3) == []
    assert len(graphs.nodes(square, square + 1)) == 3


def test_picture_names_operations_and_leaves():
    w, b = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    place = texts((w * 3 + b) ** 2, w=w)
    assert {"Pow", "Add", "Mul", "w = 2", "leaf"} <= set(place)
    assert place["w = 2"][0] < place["Mul"][0] < place["Add"][0] < place["Pow"][0]


def test_picture_shows_values_and_after_backward_gradients():
    w = torch.tensor(2.0, requires_grad=True)
    square = w * w
    loss = square + 1
    square.retain_grad()
    assert {"w = 2", "Mul\nsquare = 4", "Add\nloss = 5"} == set(texts(loss, w=w, square=square, loss=loss))
    loss.backward()
    assert {"gradient 4", "gradient 1"} <= set(texts(loss, w=w, square=square, loss=loss))


def test_a_tensor_of_many_numbers_has_a_name_and_no_value():
    w = torch.ones(3, requires_grad=True)
    (w * 2).sum().backward()
    assert {"w", "Sum\nloss = 6"} <= set(texts(loss := (w * 2).sum(), w=w, loss=loss))


def texts(result: torch.Tensor, **names: torch.Tensor) -> dict[str, tuple[float, float]]:
    """What the picture of a graph says, and where."""
    figure = graphs.draw(result, **names)
    found = {text.get_text(): text.get_position() for text in figure.axes[0].texts if text.get_text()}
    plt.close(figure)
    return found
