"""How many pixels of the image one number of the last layer sees."""

import math
from collections.abc import Callable

from labcheck.authoring import Exercise, Inputs, Spec, looks_like

Layers = list[tuple[int, int]]  # (kernel, stride), from first to last


def draw(rng: Inputs) -> list[tuple[Layers]]:
    networks = [[(rng.size(stride := rng.size(2, 3), 7), stride) for _ in range(rng.size(3, 4))] for _ in range(4)]
    return [*((layers,) for layers in networks), ([(5, 1)],), ([],)]


def solution(layers: Layers) -> int:
    return field(layers, math.prod)


def field(layers: Layers, step: Callable) -> int:
    """A pixel, and for each layer kernel - 1 steps; `step` makes the width of one from the strides before the layer."""
    strides = [stride for _, stride in layers]
    return 1 + sum((kernel - 1) * step(strides[:i]) for i, (kernel, _) in enumerate(layers))


exercise = Exercise(
    title="What one number sees",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="Every stride makes all later kernels reach farther.",
    hints=(
        "Begin with a field of 1 pixel. A layer with kernel k adds k − 1 steps; how many pixels is one step there?",
        "A step is as many pixels as the product of the strides of all layers *before* this one.",
        "`field += (kernel - 1) * step`, then `step *= stride`, for each layer in turn.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        look="(kernel, stride): from 1 on, each adds (kernel − 1) · the product of the strides before; `return` last",
        says=[
            looks_like(
                "no_strides",
                "The strides are missing: after a stride of 2, one step is two pixels.",
                lambda layers: field(layers, lambda before: 1),
            ),
            looks_like(
                "own_stride",
                "A layer's own stride does not matter: what counts is the product of the strides before it.",
                lambda layers: 1 + sum((k - 1) * stride for k, stride in layers),
                lambda layers: (
                    1 + sum((k - 1) * math.prod(s for _, s in layers[: i + 1]) for i, (k, _) in enumerate(layers))
                ),
            ),
            looks_like(
                "whole_kernels",
                "You added the kernels. A kernel adds k − 1 steps: one pixel is counted already.",
                lambda layers: sum(kernel for kernel, _ in layers),
                lambda layers: field([(kernel + 1, stride) for kernel, stride in layers], math.prod) - 1,
                lambda layers: field([(kernel + 1, stride) for kernel, stride in layers], math.prod),
            ),
            looks_like(
                "strides_added",
                "You added the strides of the layers before, or used only the last one: they multiply.",
                lambda layers: field(layers, lambda before: sum(before) or 1),
                lambda layers: field(layers, lambda before: [1, *before][-1]),
            ),
        ],
    ),
)
