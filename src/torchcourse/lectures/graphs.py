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

    names: tensors to name in the picture, for example `draw(loss, w=w, b=b, loss=loss)`; leaves without a name are
    "leaf". A named tensor with one element also shows its value and, if there is one, its gradient. (A tensor that is
    no leaf has a gradient only if you called its `retain_grad()` before `backward()`.)
    """
    every = nodes(result)
    leaves = {node: node.variable for node in every if hasattr(node, "variable")}
    column = {node: _height(node) for node in every}
    for leaf in leaves:  # right before its first use: then no arrow runs across another operation
        uses = [column[node] for node in every if leaf in (before for before, _ in node.next_functions)]
        column[leaf] = min(uses, default=1) - 1
    places: dict[Node, tuple[float, float]] = {}
    for x in range(max(column.values()) + 1):
        here = [node for node in every if column[node] == x]
        for i, node in enumerate(here):
            places[node] = (x, (len(here) - 1) / 2 - i)
    named = {node: name for name, tensor in names.items() for node in every if _made(node, tensor)}

    heights = [y for _, y in places.values()]
    figure, ax = plt.subplots(figsize=(1.75 * (max(column.values()) + 1), 1.2 + max(heights) - min(heights)))
    for node in every:
        for before, _ in node.next_functions:
            if before is not None:
                arrow = {"arrowstyle": "-|>", "color": "#555555", "shrinkA": 30, "shrinkB": 34, "lw": 1.5}
                ax.annotate("", places[node], places[before], arrowprops=arrow)
        tensor = names.get(named.get(node))
        name = named.get(node, "leaf" if node in leaves else "")
        value = f" = {_number(tensor)}" if tensor is not None and tensor.numel() == 1 else ""
        operation = "" if node in leaves else node.name().removesuffix("Backward0")
        color = COLORS[0] if node in leaves else COLORS[1] if node is result.grad_fn else "#555555"
        style = "circle,pad=0.5" if node in leaves and not value else "round,pad=0.5"
        box = {"boxstyle": style, "facecolor": "white", "edgecolor": color, "linewidth": 2}
        lines = [line for line in (operation, name + value) if line]
        ax.text(*places[node], "\n".join(lines), ha="center", va="center", fontsize=11, bbox=box)
        if value and _has_gradient(tensor):
            words = {"text": f"gradient {_number(tensor.grad)}", "color": COLORS[1], "fontsize": 10.5}
            place = {"xytext": (0, -27 if operation else -19), "textcoords": "offset points"}
            ax.annotate(xy=places[node], ha="center", va="top", **words, **place)
    ax.set(xlim=(-0.6, max(column.values()) + 0.6), ylim=(min(heights) - 0.7, max(heights) + 0.5))
    ax.axis("off")
    return figure


def _made(node: Node, tensor: Tensor) -> bool:
    """Whether this node is the tensor: the operation that made it, or the leaf that it is."""
    return node is tensor.grad_fn or getattr(node, "variable", None) is tensor


def _number(tensor: Tensor) -> str:
    return f"{tensor.item():g}".replace("-", "\N{MINUS SIGN}")


def _has_gradient(tensor: Tensor) -> bool:
    """Whether there is a gradient to show. Asking any other tensor for `.grad` would warn."""
    return (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None


def _height(node: Node) -> int:
    """The longest way from a node down to a leaf: its column in the picture."""
    return max((1 + _height(before) for before, _ in node.next_functions if before is not None), default=0)
