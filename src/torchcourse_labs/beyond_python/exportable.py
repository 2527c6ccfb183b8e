"""A model that decides in tensors, so that it can be exported for any batch size."""

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, attempted, call, line_of, near, observe, same, wrong_if
from torchcourse_labs.beyond_python._shared import SECONDS, first_line, quietly


class Exportable(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(12 * 12, width), nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        images = torch.where(images.mean() > 0.5, 1 - images, images)
        largest = images.amax(dim=(1, 2, 3), keepdim=True)
        images = images / torch.where(largest > 0, largest, 1.0)
        return self.out(F.relu(self.hidden(images.flatten(1))))


solution = Exportable


def draw(rng: Inputs) -> tuple[int, dict[str, Tensor], list[Tensor]]:
    """Dark and light batches, some with a page of the other kind, an empty one, and a faint one."""
    width = rng.size(4, 9)
    shapes = {"hidden.weight": (width, 144), "hidden.bias": (width,), "out.weight": (10, width), "out.bias": (10,)}
    weights = {name: rng.randn(*shape) * 0.3 for name, shape in shapes.items()}
    batches = []
    for size, light in ((3, False), (2, True), (1, False), (1, True), (7, True), (8, False), (20, True)):
        images = rng.rand(size, 1, 12, 12) * (0.25 + 0.25 * rng.rand(size, 1, 1, 1))
        if size > 6:
            images[2] = 1 - images[2] * 0.3
            images[4] = 0
            images[5] *= 0.0015
        batches.append(1 - images if light else images)
    return width, weights, batches


def exported(answer: Callable, width: int, weights: dict[str, Tensor], batches: list[Tensor]) -> dict[str, Any]:
    """A probe: what a model computes for each batch, and what its program does, exported with the first batch."""
    attempted(answer)
    with quietly():
        model = answer if isinstance(answer, nn.Module) else call(answer, width)
        if model is answer or not isinstance(model, nn.Module):
            return {"instead": model}
        shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        if shapes != {name: tuple(value.shape) for name, value in weights.items()}:
            return {"instead": f"a model with {shapes}"}
        model.load_state_dict(weights)
        with torch.no_grad():
            eager = [call(model.eval(), batch.clone(), may_change=True) for batch in batches]
        found: dict[str, Any] = {"eager": eager, "refused": "", "program": []}
        try:
            dynamic = ({0: torch.export.Dim("batch")},)
            program = torch.export.export(model, (batches[0].clone(),), dynamic_shapes=dynamic).module()
        except Exception as error:
            lines = re.findall(r'File "[^"]*", line \d+, in \w+\n +(.*)', str(error).partition("raised this error")[2])
            return found | {
                "refused": str(error)[:5000] or type(error).__name__,
                "line": lines[-1].strip() if lines else line_of(error),
            }
        for batch in batches:
            try:
                with torch.no_grad():
                    found["program"].append(program(batch.clone()))
            except Exception as error:
                found["program"].append(first_line(error))
    return found


def inverted(images: Tensor) -> Tensor:
    return torch.where(images.mean() > 0.5, 1 - images, images)


def inverted_one_by_one(images: Tensor) -> Tensor:
    return torch.where(images.mean((1, 2, 3), keepdim=True) > 0.5, 1 - images, images)


def stretched(images: Tensor, more: float = 0, least: float = 0) -> Tensor:
    largest = images.amax(dim=(1, 2, 3), keepdim=True)
    return images / (torch.where(largest > 0, largest, 1.0).clamp(min=least) + more)


def judge(answer: Any, rng: Inputs) -> None:
    width, weights, batches = draw(rng)
    seen = observe(answer, exported, width, weights, batches)
    wrong_if(
        "instead" in seen,
        "no_class",
        "Give the check your class: it makes an `nn.Module` with the parameters of `Scanner`, so that its weights fit.",
        expected=f"a model with { {name: tuple(value.shape) for name, value in weights.items()} }",
        yours=seen.get("instead"),
    )

    def results(prepare: Callable) -> list[Tensor]:
        first, first_bias, last, last_bias = weights.values()
        inputs = [prepare(batch).flatten(1) for batch in batches]
        return [F.linear(F.relu(F.linear(x, first, first_bias)), last, last_bias) for x in inputs]

    expected = results(lambda x: stretched(inverted(x)))

    def looks(*prepare: Callable) -> bool:
        wrong = not near(seen["eager"], expected)
        return wrong and any(near(seen["eager"], results(each)) for each in prepare)

    others = (inverted_one_by_one, lambda x: x, lambda x: 1 - x, lambda x: 1 - inverted(x))
    wrong_if(
        looks(*(lambda x, other=other: stretched(other(x)) for other in others)),
        "wrong_pages",
        "You don't invert the same pages as the original. It inverts a whole batch if the mean of all its pixels is "
        "above 0.5, and leaves other batches as they are.",
        look="what you take the mean of; in `torch.where`: the condition, then what holds where it is true",
    )
    wrong_if(
        looks(lambda x: inverted(x) / inverted(x).amax(dim=(1, 2, 3), keepdim=True)),
        "empty_page",
        "An empty page gives nan: it is divided by its largest value, which is 0. The original leaves such a page "
        "alone.",
    )
    small = (1e-6, 1e-5, 1e-4, 1e-3, 1 / 255, 1e-2, 0.1)
    wrong_if(
        looks(*(lambda x, v=v, o=o: stretched(inverted(x), **{o: v}) for o in ("more", "least") for v in small)),
        "faint_pages",
        "You divide some pages by more than their largest value: you add a small number to it, or you limit it from "
        "below. Only an empty page needs a divisor other than its largest value.",
    )
    wrong_if(
        looks(lambda x: inverted(x) / inverted(x).max()),
        "one_largest",
        "You divide all images by the largest value of the batch; each image has its own.",
        look="`amax(dim=(1, 2, 3), keepdim=True)`",
    )
    names = [f"a batch of {len(batch)} with the mean {batch.mean():.2f}" for batch in batches]
    for name, yours, right in zip(names, seen["eager"], expected, strict=True):
        same(yours, right, f"Your model's result for {name}")
    wrong_if(
        "data-dependent" in seen["refused"],
        "decided_in_python",
        "Your model computes the right thing, but it can't be exported: a decision in Python depends on pixels, and "
        "during export there are none.",
        look=f"{seen.get('line') or 'each `if`'}: `torch.where` decides inside the graph",
    )
    wrong_if(
        "specialized" in seen["refused"],
        "constant_batch",
        "Your model computes the right thing, but the batch size is a constant in its graph. A loop over images, "
        "`len(images)` and `int(...)` make it one.",
        look="operations on the whole batch; `images.shape[0]` stays a symbol, and `flatten(1)` needs no size",
    )
    if seen["refused"]:
        raise Incorrect(
            "Your model computes the right thing, but it can't be exported.",
            yours=seen["refused"].strip().splitlines()[0],
            look=seen["line"],
        )
    for name, yours, right in zip(names, seen["program"], expected, strict=True):
        same(yours, right, f"The exported program's result for {name}")


exercise = Exercise(
    title="A model that can be exported",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="What Python decides is decided once, during export. What tensors decide stays in the graph.",
    hints=(
        "In three places, Python looks at pixels or counts images: two `if`s and a loop. Write each with tensors.",
        "In `torch.where(condition, a, b)`, the condition can have one element in all, or one for each image. "
        "`images.amax(dim=(1, 2, 3), keepdim=True)` has the largest value of each image.",
        "Make the divisor safe before you divide: `torch.where(largest > 0, largest, 1.0)`. `images.flatten(1)` "
        "needs no batch size.",
    ),
    judge=judge,
    seconds=SECONDS,
)
