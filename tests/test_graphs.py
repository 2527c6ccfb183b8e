"""The list of a graph's nodes and its picture."""

import matplotlib.pyplot as plt
import torch

from torchcourse.lectures import graphs


def texts(result: torch.Tensor, **names: torch.Tensor) -> dict[str, tuple[float, float]]:
    """What the picture of a graph says, and where."""
    figure = graphs.draw(result, **names)
    found = {text.get_text(): text.get_position() for text in figure.axes[0].texts if text.get_text()}
    plt.close(figure)
    return found


def test_nodes_are_found_once_and_constants_are_not_part_of_the_graph():
    w = torch.tensor(2.0, requires_grad=True)
    square = w * w  # reaches the leaf w twice
    names = [node.name() for node in graphs.nodes(square + torch.tensor(1.0))]
    assert names == ["AddBackward0", "MulBackward0", "torch::autograd::AccumulateGrad"]
    assert graphs.nodes(w.detach()) == []
    assert len(graphs.nodes(square, square + 1)) == 3


def test_the_picture_names_operations_leaves_values_and_after_backward_gradients():
    w, b = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    place = texts((w * 3 + b) ** 2, w=w)
    assert {"Pow", "Add", "Mul", "w = 2", "leaf"} <= set(place)
    assert place["w = 2"][0] < place["Mul"][0] < place["Add"][0] < place["Pow"][0]
    square = w * w
    loss = square + 1
    square.retain_grad()
    assert {"w = 2", "Mul\nsquare = 4", "Add\nloss = 5"} == set(texts(loss, w=w, square=square, loss=loss))
    loss.backward()
    assert {"gradient 4", "gradient 1"} <= set(texts(loss, w=w, square=square, loss=loss))
    many = torch.ones(3, requires_grad=True)  # has a name and no value
    loss = (many * 2).sum()
    assert {"many", "Sum\nloss = 6"} <= set(texts(loss, many=many, loss=loss))
