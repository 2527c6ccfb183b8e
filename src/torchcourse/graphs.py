"""The graph that autograd records, as a list and as a picture."""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor
from torch.autograd.graph import Node

from torchcourse.plots import COLORS


def nodes(*results: Tensor) -> list[Node]:
    """All nodes of the graphs behind some results, each once: what `backward()` would visit, results first."""
    found: list[Node] = []
    seen = set()
    todo = [result.grad_fn for result in results]
    while todo:
        node = todo.pop(0)
        if node is not None and node not in seen:
            seen.add(node)
            found.append(node)
            todo += [before for before, _ in node.next_functions]
    return found


def draw(result: Tensor, **names: Tensor) -> Figure:
    """Draw the graph behind a result, from the leaves on the left to the result on the right.

    names: tensors to be named in the picture, for example `draw(loss, w=w, b=b)`; leaves without a name are "leaf".
    """
    every = nodes(result)
    column = {node: _height(node) for node in every}
    leaves = {node: node.variable for node in every if hasattr(node, "variable")}
    places: dict[Node, tuple[float, float]] = {}
    for x in range(max(column.values()) + 1):
        here = [node for node in every if column[node] == x]
        for i, node in enumerate(here):
            places[node] = (x, (len(here) - 1) / 2 - i)

    figure, ax = plt.subplots(figsize=(1.3 * (max(column.values()) + 1), 2.2))
    for node in every:
        for before, _ in node.next_functions:
            if before is not None:
                arrow = {"arrowstyle": "-|>", "color": "#555555", "shrinkA": 24, "shrinkB": 24, "lw": 1.5}
                ax.annotate("", places[node], places[before], arrowprops=arrow)
        name = next((n for n, tensor in names.items() if tensor is leaves.get(node)), "leaf")
        text = name if node in leaves else node.name().removesuffix("Backward0")
        color = COLORS[0] if node in leaves else COLORS[1] if node is result.grad_fn else "#555555"
        style = "circle,pad=0.5" if node in leaves else "round,pad=0.5"
        box = {"boxstyle": style, "facecolor": "white", "edgecolor": color, "linewidth": 2}
        ax.text(*places[node], text, ha="center", va="center", fontsize=11, bbox=box)
    heights = [y for _, y in places.values()]
    ax.set(xlim=(-0.6, max(column.values()) + 0.6), ylim=(min(heights) - 0.7, max(heights) + 0.7))
    ax.axis("off")
    return figure


def _height(node: Node) -> int:
    """The longest way from a node down to a leaf: its column in the picture."""
    return max((1 + _height(before) for before, _ in node.next_functions if before is not None), default=0)
