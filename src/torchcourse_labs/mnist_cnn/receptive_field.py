"""How many pixels of the image one number of the last layer sees."""

import math

from labcheck.authoring import Exercise, Inputs, Spec, looks_like

Layers = list[tuple[int, int]]  # (kernel, stride), from first to last


def draw(rng: Inputs) -> list[tuple[Layers]]:
    networks = [[(rng.size(2, 7), rng.size(2, 3)) for _ in range(rng.size(3, 4))] for _ in range(4)]
    return [*((layers,) for layers in networks), ([(5, 1)],), ([],)]


def solution(layers: Layers) -> int:
    return 1 + sum((kernel - 1) * step_before(layers, i) for i, (kernel, _) in enumerate(layers))


def step_before(layers: Layers, i: int) -> int:
    """How many pixels of the image one step of layer i is."""
    return math.prod(stride for _, stride in layers[:i])


def added_strides(layers: Layers) -> int:
    return 1 + sum((kernel - 1) * (sum(s for _, s in layers[:i]) or 1) for i, (kernel, _) in enumerate(layers))


def latest_stride(layers: Layers) -> int:
    return 1 + sum((kernel - 1) * (layers[i - 1][1] if i else 1) for i, (kernel, _) in enumerate(layers))


exercise = Exercise(
    title="What one number sees",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="Every stride makes all later kernels reach farther: that is why networks shrink images early.",
    hints=(
        "Begin with a field of 1 pixel. A layer with kernel k adds k − 1 steps; how many pixels is one step there?",
        "A step is as many pixels as the product of the strides of all layers *before* this one.",
        "`field += (kernel - 1) * step`, then `step *= stride`, for each layer in turn.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        look="start with 1 pixel; each layer adds (kernel − 1) · the product of the strides before it",
        says=[
            looks_like(
                "no_strides",
                "The strides are missing: after a stride of 2, one step is two pixels.",
                lambda layers: 1 + sum(kernel - 1 for kernel, _ in layers),
            ),
            looks_like(
                "own_stride",
                "A layer's own stride does not matter: what counts is the product of the strides before it.",
                lambda layers: 1 + sum((k - 1) * step_before(layers, i + 1) for i, (k, _) in enumerate(layers)),
                lambda layers: 1 + sum((k - 1) * stride for k, stride in layers),
            ),
            looks_like(
                "whole_kernels",
                "You added the kernels. A kernel adds k − 1 steps: one pixel is counted already.",
                lambda layers: sum(kernel for kernel, _ in layers),
                lambda layers: 1 + sum(kernel for kernel, _ in layers),
                lambda layers: sum(k * step_before(layers, i) for i, (k, _) in enumerate(layers)),
                lambda layers: 1 + sum(k * step_before(layers, i) for i, (k, _) in enumerate(layers)),
            ),
            looks_like(
                "no_middle",
                "The pixel in the middle is missing: start with a field of 1.",
                lambda layers: solution(layers) - 1,
            ),
            looks_like(
                "strides_added",
                "You added the strides of the layers before, or used only the last one: they multiply.",
                added_strides,
                latest_stride,
                lambda layers: added_strides(layers) + sum(k - 1 for k, _ in layers[1:]),
            ),
            looks_like(
                "reversed",
                "This is right for the layers in the opposite order: which one comes first?",
                lambda layers: solution(layers[::-1]),
            ),
            looks_like(
                "product",
                "This is the product of the strides: how far one step moves, in pixels.",
                lambda layers: step_before(layers, len(layers)),
            ),
        ],
    ),
)
