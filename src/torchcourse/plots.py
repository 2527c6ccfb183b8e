"""Figures in one style: readable from the last row, in grey, and by people who see colors differently."""

import io
from collections.abc import Mapping, Sequence

import matplotlib
import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

from torchcourse.place import in_notebook

# Okabe and Ito's palette, told apart by people with any of the common color vision deficiencies; the darkest first.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
# Lines also differ without color.
LINE_STYLES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 1)), "-"]


def use_style() -> None:
    """Set matplotlib's defaults to the style of the course.

    It begins with matplotlib's own: fonts that are missing here, LaTeX, or 600 dots per inch in a user's matplotlibrc
    would make cells fail, or figures take megabytes.
    """
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(
        {
            "figure.figsize": (7, 3.6),
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "axes.prop_cycle": matplotlib.cycler(color=COLORS) + matplotlib.cycler(linestyle=LINE_STYLES),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.titlelocation": "left",
            "grid.color": "#E0E0E0",
            "grid.linewidth": 0.8,
            "lines.linewidth": 2.0,
            "font.size": 11,
            "legend.frameon": False,
            "image.cmap": "gray",
        }
    )


def show(alt: str, name: str | None = None, figure: Figure | None = None) -> None:
    """Show a figure under the cell, with words for those who cannot see it. Ends every cell that draws.

    alt: what the picture says, in one or two sentences.
    name: when given, the builder also writes the picture to slides/figures/ for the deck of the chapter.
    figure: the figure; None means matplotlib's current one. It is closed afterward.
    """
    figure = figure or plt.gcf()
    if in_notebook():
        from IPython.display import display

        metadata = {"alt": alt} | ({"name": name} if name else {})
        display({"image/png": _small_png(figure), "text/plain": alt}, raw=True, metadata={"image/png": metadata})
    else:
        plt.show()
    plt.close(figure)


def _small_png(figure: Figure) -> bytes:
    """The figure with a palette of 256 colors: a third of the size, with no visible difference."""
    from PIL import Image

    full = io.BytesIO()
    figure.savefig(full, format="png", facecolor="white")
    small = io.BytesIO()
    Image.open(full).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    return small.getvalue()


def image_grid(images: torch.Tensor, titles: Sequence[object] | None = None, columns: int = 8) -> Figure:
    """Draw images side by side.

    images: [N, C, H, W] with C = 1 (grey) or 3 (color), uint8 from 0 to 255 or float from 0 to 1, on any device.
    titles: one for each image, or None.
    columns: images in a row.
    """
    images = images.detach().cpu()
    if images.dtype != torch.uint8:
        images = images.float().clamp(0, 1)
    rows = -(-len(images) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(columns * 0.95, rows * (1.25 if titles is not None else 0.98)), squeeze=False
    )
    for ax in axes.flat:
        ax.axis("off")
    for index, (ax, image) in enumerate(zip(axes.flat, images, strict=False)):
        white = 255 if image.dtype == torch.uint8 else 1
        ax.imshow(image.permute(1, 2, 0).squeeze(-1).numpy(), vmin=0, vmax=white, interpolation="nearest")
        if titles is not None:
            ax.set_title(str(titles[index]), fontsize=9, loc="center")
    return figure


def curves(series: Mapping[str, Sequence[float]], xlabel: str, ylabel: str, start: float = 1) -> Figure:
    """Draw one line for each named series over 1, 2, 3, … with a legend.

    series: label -> values, all in the unit that ylabel names.
    start: the place of the first value on the x axis.
    """
    figure, ax = plt.subplots()
    for label, values in series.items():
        ax.plot([start + i for i in range(len(values))], [float(v) for v in values], label=label)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.legend()
    return figure
