"""The list of a graph's nodes and its picture."""

import matplotlib.pyplot as plt
import torch

from torchcourse import graphs


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
    figure = graphs.draw((w * 3 + b) ** 2, w=w)
    ax = figure.axes[0]
    texts = [text.get_text() for text in ax.texts]
    plt.close(figure)
    assert {"Pow", "Add", "Mul", "w", "leaf"} <= set(texts)
    place = {text.get_text(): text.get_position() for text in ax.texts}
    assert place["w"][0] < place["Mul"][0] < place["Add"][0] < place["Pow"][0]
