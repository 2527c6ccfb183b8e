"""A file that needs none of your code: bytes in, logits out, any batch size, in eval mode."""

import copy
import os
import tempfile
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from labcheck.authoring import Exercise, Inputs, call, near, observe, raises_like, same, wrong_if
from torchcourse_labs.beyond_python._shared import program, quietly, results
from torchcourse_labs.capstone._exported import Small


def export_and_read(answer: Callable, model: nn.Module, pixels: Tensor, batches: list[Tensor]) -> dict[str, Any]:
    """A probe: export a model in train mode, with two images of many as the example; read the file back."""
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "model.pt2")
        with quietly():
            call(answer, model, pixels[2:4], path, may_change=True, may_return_none=True)
        return program(path, batches)


def judge(answer: Any, rng: Inputs) -> None:
    model, pixels = Small(rng.randn(10, 36)), rng.images(3000, 1, 6, 6)
    batches = [pixels[:count] for count in (2, 1, 5, 600)]
    with raises_like(
        "refused",
        "Your export is refused: the batch size becomes a constant, or an axis other than the first is dynamic.",
        "Constraints violated",
        "specialized",
        look="an example of two images, and `dynamic_shapes=({0: batch},)`: axis 0",
    ):
        seen = observe(answer, export_and_read, copy.deepcopy(model), pixels, batches)
    expected = results(model.eval(), batches)
    for batch, yours, again, right in zip(batches, seen["logits"], seen["again"], expected, strict=True):
        wrong_if(
            isinstance(yours, str),
            "refuses",
            f"The program refuses a batch of {len(batch)} uint8 images.",
            look="`dynamic_shapes`; and the example: uint8, as the images of the caller, and not scaled",
            yours=yours,
        )
        wrong_if(
            not near(again, yours, 1e-4, 1e-4),
            "train_mode",
            "The same images get different logits the second time: the model was exported in train mode.",
            look="call `model.eval()` before the export; after it, it is too late",
        )
        look = "the logits of the model as it is, in eval mode: no softmax, no scaling of its images"
        same(yours, right, f"What the program returns for {len(batch)} images", rtol=1e-4, atol=1e-4, look=look)
    wrong_if(
        seen["bytes"] > 90_000,
        "images_inside",
        f"Your file has {seen['bytes']:,} bytes, most of them images: the example is a view and brings its whole data "
        "set along.",
        look="`example.clone()`, or zeros of its shape",
    )


exercise = Exercise(
    title="A file that needs none of your code",
    minutes=25,
    difficulty=3,
    points=4,
    seconds=30,
    takeaway="The file takes bytes, any batch size, in eval mode, and runs without your class.",
    hints=(
        "Export keeps the mode of the model, and the sizes of the example unless you say which of them may change: "
        '`torch.export.Dim("batch")`, and `dynamic_shapes=({0: batch},)`, axis 0 of the first input.',
        "The example is saved with the program. A slice of a tensor brings all of the tensor along: `example.clone()`.",
    ),
    judge=judge,
)
