"""A model that decides in tensors, so that it can be exported for any batch size."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, attempted, call, line_of, near, observe, same, wrong_if
from torchcourse_labs.beyond_python._shared import SECONDS, quietly, results


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


def draw(rng: Inputs) -> list[Tensor]:
    """Dark and light batches; the large ones have a page of the other kind, an empty one, and a faint one."""
    batches = []
    for size, light in ((3, False), (2, True), (1, False), (7, True), (8, False), (20, True)):
        images = rng.rand(size, 1, 12, 12) * (0.25 + 0.25 * rng.rand(size, 1, 1, 1))
        if size > 3:
            images[2] = 1 - images[2] * 0.3
            images[4] = 0
            images[5] *= 1e-6
        batches.append(1 - images if light else images)
    batches[1] = torch.cat([half := rng.ints(0, 257, (2, 1, 6, 12)) / 256, 1 - half], 2)  # the mean is exactly 0.5
    batches[2] = 0.6 * (batches[2] < batches[2].quantile(0.6))  # the median is above 0.5, the mean is not
    return batches


def exported(answer: Callable, width: int, weights: dict[str, Tensor], batches: list[Tensor]) -> dict[str, Any]:
    """A probe: what a model computes for each batch, and what its program does, exported with the first batch."""
    model = attempted(answer) if isinstance(answer, nn.Module) else call(answer, width)
    with quietly():
        try:
            model.eval().load_state_dict(weights)
        except (AttributeError, RuntimeError) as error:
            expected = "a class that makes an `nn.Module` with the parameters of `Scanner`, so that its weights fit"
            yours = f"an object of the class {type(model).__name__}: {' '.join(str(error).split())[:200]}"
            raise Incorrect("The weights of `Scanner` do not fit what your class makes.", expected, yours) from None
        with torch.no_grad():
            seen = {"eager": [call(model, batch) for batch in batches]}
        try:
            dynamic = ({0: torch.export.Dim("batch")},)
            program = torch.export.export(model, (batches[0].clone(),), dynamic_shapes=dynamic).module()
        except Exception as error:
            return seen | {"refused": str(error)[:5000] or type(error).__name__, "line": line_of(error)}
        return seen | {"program": results(program, batches)}


def judge(answer: Any, rng: Inputs) -> None:
    original, batches = Exportable(rng.size(11, 16)), draw(rng)
    weights = {name: rng.randn(*value.shape) * 0.3 for name, value in original.state_dict().items()}
    original.load_state_dict(weights)
    seen = observe(answer, exported, original.out.in_features, weights, batches)
    expected, eager = results(original, batches), seen["eager"]
    if [getattr(each, "shape", None) for each in eager] == [each.shape for each in expected]:
        judge_eager(eager, expected, original, batches)
    names = [f"a batch of {len(batch)} with the mean {batch.mean():.2f}" for batch in batches]
    for name, yours, right in zip(names, eager, expected, strict=True):
        look = "invert a batch whose mean is above 0.5; divide each image by its largest value alone; hidden, ReLU, out"
        same(yours, right, f"Your model's result for {name}", look=look)
    refused = seen.get("refused", "")
    wrong_if(
        "data-dependent" in refused,
        "decided_in_python",
        "Your model is right, but it can't be exported: a decision in Python depends on pixels, and export has none.",
        look=f"`torch.where` decides inside the graph; {seen.get('line') or 'each `if`'}",
    )
    wrong_if(
        "specialized" in refused,
        "constant_batch",
        "Your model is right, but its batch size is constant: loops over images, `len(images)`, `int(...)` fix it.",
        look="operations on the whole batch; `images.shape[0]` stays a symbol, and `flatten(1)` needs no size",
    )
    if refused:
        problem = "Your model computes the right thing, but it can't be exported."
        raise Incorrect(problem, yours=refused.strip().splitlines()[0], look=seen["line"])
    for name, yours, right in zip(names, seen["program"], expected, strict=True):
        same(yours, right, f"The exported program's result for {name}")


@torch.no_grad()
def judge_eager(eager: list[Tensor], expected: list[Tensor], original: Exportable, batches: list[Tensor]) -> None:
    """Name what is wrong before the export: other pages are inverted, or the divisor is another (4 empty, 5 faint)."""

    def logits(pages: list[Tensor]) -> list[Tensor]:
        stretched = [(page / page.amax((1, 2, 3), True)).nan_to_num().flatten(1) for page in pages]
        return [original.out(F.relu(original.hidden(x))) for x in stretched]

    pairs = [each for both in zip(eager, expected, strict=True) for each in enumerate(zip(*both, strict=True))]
    differ = {page for page, (yours, right) in pairs if not near(yours, right)}
    wrong_if(
        differ == {4} or any(result.isnan().any() for result in eager),
        "empty_page",
        "Your model changes an empty page. The original sends it through the network as it is, all 0: 0 / 0 is nan.",
    )
    one_by_one = [torch.where(batch.mean((1, 2, 3), True) > 0.5, 1 - batch, batch) for batch in batches]
    turned_around = [batch if batch.mean() > 0.5 else 1 - batch for batch in batches]
    wrong_if(
        any(near(eager, logits(pages)) for pages in (batches, one_by_one, turned_around)),
        "wrong_pages",
        "The original inverts other pages: a whole batch if the mean of all its pixels is above 0.5, otherwise none.",
        look="what you take the mean of; in `torch.where`: the condition, then what holds where it is true",
    )
    wrong_if(
        {5} in (differ, {page for page, (yours, right) in pairs if not near(yours, right, 0.03, 0.03)}),
        "faint_pages",
        "You divide a faint page by another number than its largest value. Only an empty page needs another divisor.",
        look="a number that you add to the largest value, a lower limit",
    )


exercise = Exercise(
    title="A model that can be exported",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="What Python decides is decided once, during export. What tensors decide stays in the graph.",
    hints=(
        "In three places, Python looks at pixels or counts images: two `if`s and a loop. Write each with tensors.",
        "`images.amax(dim=(1, 2, 3), keepdim=True)` has the largest value of each image. Make the divisor safe before "
        "you divide: `torch.where(largest > 0, largest, 1.0)`. `images.flatten(1)` needs no batch size.",
    ),
    judge=judge,
    seconds=SECONDS,
)
