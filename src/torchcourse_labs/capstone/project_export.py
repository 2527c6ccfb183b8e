"""A file that needs none of your code: bytes in, logits out, any batch size, in eval mode."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, call, near, observe, same, wrong_if
from torchcourse_labs.capstone._exported import Small, program, silent


def export_and_read(answer: Callable, weights: Tensor, pixels: Tensor) -> dict:
    """A probe: export a model in train mode, with two images of many as the example; read the file back."""
    model = Small(weights)
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "model.pt2")
        with silent():
            call(answer, model, pixels[2:4], path, may_change=True, may_return_none=True)
        if not path.is_file():
            return {"kind": "no file"}
        size = path.stat().st_size
        try:
            read = program(path)
        except Exception:
            return {"kind": "no program"}
    results = {}
    with torch.no_grad():
        for count in (2, 1, 5, 600):
            try:
                results[count] = read(pixels[:count])
            except Exception as error:
                return {"kind": "refuses", "count": count, "error": f"{error}".strip().splitlines()[0][:200]}
        again = read(pixels[:5])
    return {"kind": "a program", "bytes": size, "logits": results[5], "single": results[1], "again": again}


def judge(answer: Any, rng: Inputs) -> None:
    weights, pixels = rng.randn(10, 36), rng.images(3000, 1, 6, 6)
    try:
        seen = observe(answer, export_and_read, weights, pixels)
    except AnswerRaised as raised:
        wrong_if(
            any(word in str(raised) for word in ("Constraints violated", "specialized")),
            "refused",
            "Your export is refused: the batch size becomes a constant, or an axis other than the first is dynamic.",
            look="an example of two images, and `dynamic_shapes=({0: batch},)`: axis 0",
            yours=str(raised).splitlines()[0][:200],
        )
        raise
    wrong_if(seen["kind"] == "no file", "no_file", "There is no file at `path` after the call.")
    wrong_if(
        seen["kind"] == "no program",
        "no_program",
        "`torch.export.load` cannot read your file: it should hold a program, not weights or a pickled object.",
        look="`torch.export.export`, then `torch.export.save`",
    )
    refuses = seen["kind"] == "refuses"
    wrong_if(
        refuses and seen["count"] != 2,
        "batch_size",
        f"The program refuses a batch of {seen.get('count')}.",
        look="`dynamic_shapes`",
        yours=seen.get("error"),
    )
    wrong_if(
        refuses,
        "bytes",
        "The program refuses two images of bytes (uint8), although the example was two such images.",
        look="the example is uint8, as the images of the caller, and scaling belongs to the model",
        yours=seen.get("error"),
    )
    model = Small(weights).eval()
    with torch.no_grad():
        logits, single = model(pixels[:5]), model(pixels[:1])
    if not isinstance(seen["logits"], Tensor):
        raise Incorrect("What the program returns is not a tensor of logits.", "a tensor", seen["logits"])
    wrong_if(
        not near(seen["again"], seen["logits"], 1e-4, 1e-4),
        "train_mode",
        "The same images get different logits the second time: the model was exported in train mode.",
        look="call `model.eval()` before the export; after it, it is too late",
    )
    wrong_if(
        near(seen["logits"], logits.softmax(1), 1e-4, 1e-4),
        "probabilities",
        "The program returns probabilities: it should return the logits of the model.",
    )
    for yours, expected in ((seen["logits"], logits), (seen["single"], single)):
        same(yours, expected, f"What the program returns for {len(expected)} images", rtol=1e-4, atol=1e-4)
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
        "Export keeps the mode of the model, and the sizes of the example unless you say which of them may change.",
        '`torch.export.Dim("batch")`, and `dynamic_shapes=({0: batch},)`: axis 0 of the first input.',
        "The example is saved with the program. A slice of a tensor brings all of the tensor along: `example.clone()`.",
    ),
    judge=judge,
)
