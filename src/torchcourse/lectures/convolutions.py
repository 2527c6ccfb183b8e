"""Pictures of convolution: a window that slides over numbers, and a network as a row of boxes.

    convolutions.sliding(image, kernel, row=1, column=2)    where one number of the output comes from
    convolutions.boxes({"image": (1, 28, 28), "conv": (8, 26, 26), "logits": (10,)})    what each layer hands on

Each returns the figure; `plots.show(alt)` shows it.
"""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from torchcourse.errors import CourseError
from torchcourse.plots import COLORS

INK, GREY, PLAIN = "#1A1A1A", "#6B6B6B", "#F4F4F4"
WINDOW, WEIGHTS, RESULT = "#F6C9A8", "#A9D3EE", "#A6DCC8"  # light tints of plots.COLORS: black numbers stay readable


def sliding(image: torch.Tensor, kernel: torch.Tensor, row: int, column: int, stride: int = 1) -> Figure:
    """Draw an image, a kernel and the result of sliding one over the other, as boxes with numbers.

    image [H, W] and kernel [h, w]: whole numbers, small enough to be read; no padding.
    row, column: of the output whose window is marked.
    Raises CourseError when the output has no such place.
    """
    output = F.conv2d(image[None, None].float(), kernel[None, None].float(), stride=stride)[0, 0]
    if not (0 <= row < output.shape[0] and 0 <= column < output.shape[1]):
        raise CourseError(f"The output is {list(output.shape)}: there is no row {row} with column {column} in it.")
    (h, w), gap = kernel.shape, 1.5
    width = image.shape[1] + kernel.shape[1] + output.shape[1] + 2 * gap
    figure, ax = plt.subplots(figsize=(0.46 * width, 0.46 * (image.shape[0] + 1.1)))
    top, left = row * stride, column * stride
    window = {(i, j) for i in range(top, top + h) for j in range(left, left + w)}
    _grid(ax, image, 0, 0, "image", window, WINDOW)
    middle = image.shape[1] + gap
    _grid(ax, kernel, middle, (image.shape[0] - h) / 2, "kernel", {(i, j) for i in range(h) for j in range(w)}, WEIGHTS)
    right, drop = middle + w + gap, (image.shape[0] - output.shape[0]) / 2
    _grid(ax, output, right, drop, "output", {(row, column)}, RESULT)
    for x, sign in ((image.shape[1] + gap / 2, "∗"), (middle + w + gap / 2, "=")):
        ax.text(x, image.shape[0] / 2, sign, ha="center", va="center", fontsize=17, color=INK)
    ax.add_patch(Rectangle((left, top), w, h, fill=False, edgecolor=COLORS[1], linewidth=2.5))
    ax.add_patch(Rectangle((right + column, drop + row), 1, 1, fill=False, edgecolor=COLORS[2], linewidth=2.5))
    _bare(ax, (-0.1, width + 0.1), (image.shape[0] + 0.1, -1.0))
    return figure


def boxes(stages: Mapping[str, Sequence[int]]) -> Figure:
    """Draw what each layer of a network hands on: images as boxes, rows of numbers as bars.

    stages: what made it -> its shape without the batch, (C, H, W) or (N,). A box is as high (and as deep) as the image
    is large, and as thick as it has channels; a bar is as high as its row is long, on a scale of its own.
    """
    figure, ax = plt.subplots(figsize=(9.5, 3.3))
    largest = max((shape[-1] for shape in stages.values() if len(shape) == 3), default=1)
    longest = max((shape[0] for shape in stages.values() if len(shape) == 1), default=1)
    channels = sum(shape[0] for shape in stages.values() if len(shape) == 3)
    each, x = min(0.055, 10 / max(1, channels)), 0.0  # how thick a channel is: many have to share the width
    for index, (name, shape) in enumerate(stages.items()):
        if len(shape) == 3:
            side, thick = 2.6 * shape[-1] / largest, 0.12 + each * shape[0]
            right = _cuboid(ax, x, -side / 2, thick, side, 0.42 * side, COLORS[0] if index else GREY)
            label = f"{shape[0]} × {shape[1]} × {shape[2]}"
        elif len(shape) == 1:
            thick, side = 0.16, max(0.06, 2.6 * shape[0] / longest)
            right = _cuboid(ax, x, -side / 2, thick, side, 0.06, COLORS[2])
            label = f"{shape[0]}"
        else:
            raise CourseError(f"{name} has the shape {tuple(shape)}; only (C, H, W) and (N,) can be drawn.")
        middle = (x + right) / 2
        ax.text(middle, 2.25, label, ha="center", va="bottom", fontsize=10, color=INK)
        ax.text(middle, -1.85, name.replace(" ", "\n"), ha="center", va="top", fontsize=10, color=GREY)
        x = max(right + 0.45, middle + max(1.3, 0.18 * len(label)))
    _bare(ax, (-0.4, x - 0.2), (-2.7, 2.7))
    return figure


def _cuboid(ax: Axes, x: float, y: float, thick: float, high: float, deep: float, color: str) -> float:
    """A box whose lower left front corner is at (x, y), seen a bit from above; returns its right end."""
    dx, dy = 0.75 * deep, 0.55 * deep
    y -= dy / 2
    faces = (
        ([(x, y), (x + thick, y), (x + thick, y + high), (x, y + high)], 0.55),
        ([(x, y + high), (x + thick, y + high), (x + thick + dx, y + high + dy), (x + dx, y + high + dy)], 0.3),
        ([(x + thick, y), (x + thick + dx, y + dy), (x + thick + dx, y + high + dy), (x + thick, y + high)], 0.4),
    )
    for corners, strength in faces:
        ax.add_patch(Polygon(corners, facecolor=(*_rgb(color), strength), edgecolor=INK, linewidth=0.9))
    return x + thick + dx


def _grid(ax: Axes, values: torch.Tensor, x: float, y: float, name: str, marked: set, tint: str) -> None:
    for (i, j), value in ((place, values[place]) for place in _places(values)):
        face = tint if (i, j) in marked else PLAIN
        ax.add_patch(Rectangle((x + j, y + i), 1, 1, facecolor=face, edgecolor="white", linewidth=1.5))
        text = f"{value.item():g}".replace("-", "−")
        ax.text(x + j + 0.5, y + i + 0.5, text, ha="center", va="center", fontsize=11, color=INK)
    size = " × ".join(str(n) for n in values.shape)
    ax.text(x + values.shape[1] / 2, y - 0.25, f"{name}, {size}", ha="center", va="bottom", fontsize=10, color=GREY)


def _places(values: torch.Tensor) -> list[tuple[int, int]]:
    return [(i, j) for i in range(values.shape[0]) for j in range(values.shape[1])]


def _bare(ax: Axes, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
    ax.set(xlim=xlim, ylim=ylim, aspect="equal")
    ax.axis("off")


def _rgb(color: str) -> tuple[float, float, float]:
    return tuple(int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
