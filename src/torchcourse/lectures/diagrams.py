"""Pictures of tensors: where their elements lie in memory, and how shapes meet.

    diagrams.memory({"x": x, "x.T": x.T})     the row of boxes in memory, and the tensors that read it
    diagrams.broadcast(a, b)       two shapes stretched to one; stretched cells are dashed, they exist in no memory
    diagrams.reductions(x)         what `dim=0` and `dim=1` sum over
    diagrams.einsum("ij,jk->ik", a, b)     which elements meet in one element of the result

Each draws small tensors of at most two dimensions (einsum: three) and returns the figure; `plots.show(alt)` shows it.
"""

import operator
from collections.abc import Callable, Mapping, Sequence

import matplotlib
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from torchcourse.errors import CourseError
from torchcourse.plots import COLORS

UNIT = 0.44  # inches for one box
MOST = 32  # boxes in a row of memory: more cannot be read
BLUE, ORANGE, GREEN = "#A9D3EE", "#F6C9A8", "#A6DCC8"  # light tints of plots.COLORS: black numbers stay readable
PLAIN, BEHIND, GREY, INK = "#E9E9E9", "#D2D2D2", "#6B6B6B", "#1A1A1A"
OPERATIONS: dict[str, Callable] = {"+": operator.add, "-": operator.sub, "*": operator.mul, "==": operator.eq}


# ---------------------------------------------------------------------------------------------------------------------
# The pictures


def memory(tensors: torch.Tensor | Mapping[str, torch.Tensor]) -> Figure:
    """Draw memory as a row of boxes and, below it, each tensor as the grid that it makes of those boxes.

    tensors: one tensor of 0 to 2 dimensions, or several by name. Tensors that share memory are below one row, a copy
    gets a row of its own. A box has one color everywhere: that of its place in memory. Arrows give the strides: by how
    many boxes one step along an axis moves on.
    """
    shown = [("", tensors)] if isinstance(tensors, torch.Tensor) else list(tensors.items())
    for _, tensor in shown:
        _at_most_two_dimensions(tensor)
    blocks: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for name, tensor in shown:
        blocks.setdefault(tensor.untyped_storage().data_ptr(), []).append((name, tensor))

    width = max(max(len(_stored(block[0][1])), sum(_width(t) for _, t in block)) for block in blocks.values())
    heights = [4.75 + max(_grid_shape(t)[0] for _, t in block) for block in blocks.values()]
    figure, ax = _canvas(width + 0.6, sum(heights))
    top = 0.0
    for block, height in zip(blocks.values(), heights, strict=True):
        _memory_row(ax, block[0][1], 0.3, top + 0.9)
        left = 0.3
        for name, tensor in block:
            _strided_grid(ax, name, tensor, left + 0.75, top + 3.5)
            left += _width(tensor)
        top += height
    return figure


def broadcast(a: torch.Tensor, b: torch.Tensor, operation: str = "+") -> Figure:
    """Draw `a operation b`: both operands stretched to the common shape, and the result.

    a, b: tensors of 0 to 2 dimensions with shapes that broadcast. operation: "+", "-", "*" or "==".
    Dashed boxes are the stretched ones: PyTorch reads the same element again and stores nothing.
    """
    _at_most_two_dimensions(a, b)
    if operation not in OPERATIONS:
        raise CourseError(f"No picture for the operation {operation!r}: take one of {', '.join(OPERATIONS)}.")
    try:
        shape = torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError:
        raise CourseError(
            f"{_shape(a)} and {_shape(b)} do not broadcast: from the right, sizes must be equal, or one of them 1."
        ) from None
    rows, columns = (1, 1, *shape)[-2:]
    gap = 1.7
    figure, ax = _canvas(3 * columns + 2 * gap + 0.8, rows + 1.7)
    result = OPERATIONS[operation](a, b)
    parts = [(a, BLUE, operation.replace("-", "−").replace("*", "×")), (b, ORANGE, "="), (result, GREEN, "")]
    for index, (tensor, color, sign) in enumerate(parts):
        left = 0.4 + index * (columns + gap)
        stretched = tensor.expand(shape).reshape(rows, columns)
        own = (1, 1, *tensor.shape)[-2:]
        for row in range(rows):
            for column in range(columns):
                ghost = row >= own[0] or column >= own[1]
                _box(ax, left + column, 0.5 + row, _text(stretched[row, column]), color, ghost)
        ax.text(left + columns / 2, rows + 1.05, _shape(tensor), ha="center", va="center", family="monospace")
        ax.text(left + columns + gap / 2, 0.5 + rows / 2, sign, ha="center", va="center", fontsize=16)
    return figure


def reductions(x: torch.Tensor) -> Figure:
    """Draw a matrix with its sums over `dim=0` below it and over `dim=1` to its right.

    x: tensor [rows, columns].
    """
    if x.dim() != 2:
        raise CourseError(f"reductions draws a matrix, and this tensor has {x.dim()} dimensions.")
    rows, columns = x.shape
    figure, ax = _canvas(columns + 8.6, rows + 3.6)
    left, top = 2.6, 0.7
    for row in range(rows):
        for column in range(columns):
            _box(ax, left + column, top + row, _text(x[row, column]), PLAIN)
    for column, value in enumerate(x.sum(dim=0)):
        _arrow(ax, (left + column + 0.5, top + rows + 0.1), (left + column + 0.5, top + rows + 0.85), COLORS[0])
        _box(ax, left + column, top + rows + 1, _text(value), BLUE)
    for row, value in enumerate(x.sum(dim=1)):
        _arrow(ax, (left + columns + 0.1, top + row + 0.5), (left + columns + 0.85, top + row + 0.5), COLORS[1])
        _box(ax, left + columns + 1, top + row, _text(value), ORANGE)
    ax.text(left - 0.3, top + rows / 2, f"x\n{_shape(x)}", ha="right", va="center", family="monospace")
    below, beside = f"x.sum(dim=0)  {_shape(x.sum(0))}", f"x.sum(dim=1)\n{_shape(x.sum(1))}"
    ax.text(left + columns / 2, top + rows + 2.45, below, ha="center", va="center", family="monospace")
    ax.text(left + columns + 2.3, top + rows / 2, beside, ha="left", va="center", family="monospace")
    return figure


def einsum(equation: str, *operands: torch.Tensor) -> Figure:
    """Draw the operands and the result of `torch.einsum(equation, *operands)` with the letters along their axes.

    equation: with "->", for example "ij,jk->ik". operands: tensors of 1 to 3 dimensions (the first of three is drawn
    as layers, one behind the other). Colored boxes are those that meet in the one colored box of the result.
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    if not arrow:
        raise CourseError(f"Write the letters of the result into the equation: `{equation}->…`.")
    result = torch.einsum(equation, *operands)
    drawn = [*zip(inputs.split(","), operands, strict=True), (output, result)]
    if any(not 1 <= tensor.dim() <= 3 for _, tensor in drawn):
        raise CourseError("einsum draws tensors of one, two or three dimensions.")
    sizes = {letter: size for letters, tensor in drawn for letter, size in zip(letters, tensor.shape, strict=True)}
    # The element of the result whose making is shown; of several layers, the one in front.
    chosen = {letter: 0 if letter == output[-3:-2] else min(1, sizes[letter] - 1) for letter in output}
    summed = [letter for letter in sizes if letter not in output]

    gap, places = 2.0, []
    left = 1.0
    for letters, tensor in drawn:
        rows, columns, depth = _layers(tensor)
        places.append((letters, tensor, left))
        left += columns + 0.5 * (depth - 1) + gap
    height = max(_layers(t)[0] + 0.5 * (_layers(t)[2] - 1) for _, t in drawn)
    figure, ax = _canvas(left - gap + 0.6, height + 2.4)
    for index, (letters, tensor, left) in enumerate(places):
        color = GREEN if index == len(operands) else [BLUE, ORANGE][index % 2]
        rows, columns, depth = _layers(tensor)
        bottom = 0.6 + (height + rows + 0.5 * (depth - 1)) / 2  # all centered on one line
        _layered_grid(ax, letters, tensor, left, bottom, chosen, summed, color)
        sign = ("," if index < len(operands) - 1 else "→") if index < len(operands) else ""  # as in the equation
        ax.text(left + columns + 0.5 * (depth - 1) + 0.6, 0.6 + height / 2, sign, ha="center", va="center", size=16)
    note = f"{equation}:  " + (f"{', '.join(summed)} summed over" if summed else "nothing is summed over")
    ax.text(0.7, height + 1.85, note, ha="left", va="center", family="monospace")
    return figure


# ---------------------------------------------------------------------------------------------------------------------
# Their parts. Coordinates are boxes: x to the right, y downwards.


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty figure of width × height boxes without axes; small pictures stay small."""
    figure = plt.figure(figsize=(width * UNIT, height * UNIT), layout="none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    ax.axis("off")
    return figure, ax


def _box(ax: Axes, x: float, y: float, text: str, color: object, ghost: bool = False, size: float = 11) -> None:
    """One element; a ghost is drawn dashed and pale."""
    if ghost:
        ax.add_patch(Rectangle((x + 0.06, y + 0.06), 0.88, 0.88, facecolor="white", edgecolor=GREY, ls=(0, (3, 2))))
    else:
        ax.add_patch(Rectangle((x + 0.03, y + 0.03), 0.94, 0.94, facecolor=color, edgecolor="white"))
    ink = GREY if ghost else _ink(color)
    ax.text(x + 0.5, y + 0.52, text, ha="center", va="center", color=ink, fontsize=size if len(text) < 4 else size - 3)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    ax.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.4, "shrinkA": 0})


def _memory_row(ax: Axes, tensor: torch.Tensor, x: float, y: float) -> None:
    """All boxes of the memory that a tensor reads, with their positions."""
    stored = _stored(tensor)
    kind = f"memory: {len(stored)} × {str(tensor.dtype).removeprefix('torch.')}, {tensor.itemsize} bytes each"
    ax.text(x, y - 0.4, kind.replace("1 bytes", "1 byte"), ha="left", va="center", color=GREY, fontsize=10)
    for position, value in enumerate(stored):
        _box(ax, x + position, y, _text(value), _place_color(position, len(stored)))
        ax.text(x + position + 0.5, y + 1.25, str(position), ha="center", va="center", color=GREY, fontsize=8)


def _strided_grid(ax: Axes, name: str, tensor: torch.Tensor, x: float, y: float) -> None:
    """A tensor with its strides as arrows; each box in the color of its place in memory."""
    rows, columns = _grid_shape(tensor)
    stored = len(_stored(tensor))
    strides = (0, 0, *tensor.stride())[-2:]
    for row in range(rows):
        for column in range(columns):
            position = tensor.storage_offset() + row * strides[0] + column * strides[1]
            value = tensor[(row, column)[2 - tensor.dim() :]]
            _box(ax, x + column, y + row, _text(value), _place_color(position, stored))
    if columns > 1:
        _arrow(ax, (x + 0.45, y - 0.18), (x + 1.55, y - 0.18), INK)
        ax.text(x + 1.75, y - 0.2, f"+{strides[1]}", ha="left", va="center", fontsize=9)
    if rows > 1:
        _arrow(ax, (x - 0.16, y + 0.45), (x - 0.16, y + 1.55), INK)
        ax.text(x - 0.24, y + 1.0, f"+{strides[0]}", ha="right", va="center", fontsize=9)
    ax.text(x, y - 0.72, name, ha="left", va="center", family="monospace", weight="bold")
    about = f"shape {_shape(tensor)}\nstrides {tuple(tensor.stride())}"
    ax.text(x, y + rows + 0.5, about, ha="left", va="center", color=GREY, fontsize=9, linespacing=1.3)


def _layered_grid(
    ax: Axes,
    letters: str,
    tensor: torch.Tensor,
    x: float,
    bottom: float,
    chosen: dict[str, int],
    summed: Sequence[str],
    color: str,
) -> None:
    """A tensor for `einsum`: its axes lettered, the boxes that meet colored, layers one behind the other."""
    rows, columns, depth = _layers(tensor)
    for layer in reversed(range(depth)):  # the back first
        for row in range(rows):
            for column in range(columns):
                place = dict(zip(letters, (layer, row, column)[3 - tensor.dim() :], strict=True))
                meets = all(place[letter] == chosen[letter] for letter in place if letter in chosen)
                left, top = x + 0.5 * layer + column, bottom - rows - 0.5 * layer + row
                _box(ax, left, top, "", color if meets else PLAIN if layer == 0 else BEHIND)
                if meets:  # an outline, so that it also shows without color
                    ax.add_patch(Rectangle((left + 0.05, top + 0.05), 0.9, 0.9, fill=False, edgecolor=INK, lw=1.2))
    across, down, behind = letters[-1], letters[-2:-1], letters[-3:-2]
    behind_place = (x + columns + 0.25 * (depth - 1) + 0.35, bottom - 0.25 * (depth - 1) + 0.2)
    labels = [(across, x + columns / 2, bottom + 0.4), (down, x - 0.35, bottom - rows / 2), (behind, *behind_place)]
    for letter, left, top in labels:
        style = {"color": COLORS[1], "weight": "bold"} if letter in summed else {"color": INK}
        ax.text(left, top, letter, ha="center", va="center", family="monospace", fontsize=13, **style)


def _stored(tensor: torch.Tensor) -> torch.Tensor:
    """Everything in the memory that a tensor reads, as one row: perhaps more than the tensor shows."""
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    if count > MOST:
        raise CourseError(f"This memory has {count} elements; a picture of more than {MOST} cannot be read.")
    return torch.as_strided(tensor.detach(), (count,), (1,), 0)


def _at_most_two_dimensions(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        if tensor.dim() > 2:
            raise CourseError(f"A tensor of shape {_shape(tensor)} cannot be drawn: at most two dimensions.")


def _grid_shape(tensor: torch.Tensor) -> tuple[int, int]:
    """Rows and columns; a vector is one row, a single number one box."""
    rows, columns = (1, 1, *tensor.shape)[-2:]
    return rows, columns


def _layers(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Rows, columns and layers."""
    depth, rows, columns = (1, 1, 1, *tensor.shape)[-3:]
    return rows, columns, depth


def _width(tensor: torch.Tensor) -> float:
    """Boxes that a grid takes with its arrows and its lines of text."""
    return max(_grid_shape(tensor)[1], 3.6) + 1.5


def _shape(tensor: torch.Tensor) -> str:
    return str(tuple(tensor.shape))


def _text(value: torch.Tensor) -> str:
    """A number as short as it can be: 3, 0.5, T."""
    number = value.item()
    if isinstance(number, bool):
        return "T" if number else "F"
    return f"{number:.3g}"


def _place_color(position: int, count: int) -> tuple[float, ...]:
    """From dark to light along the memory: the order shows in grey as well."""
    return matplotlib.colormaps["viridis"](0.12 + 0.83 * position / max(count - 1, 1))


def _ink(color: object) -> str:
    """Black or white, whichever can be read on a color."""
    red, green, blue = matplotlib.colors.to_rgb(color)
    return INK if 0.30 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
