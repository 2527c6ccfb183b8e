"""The final run: accuracy on the test images, bytes of the file, and processor seconds, all within the budget."""

import os
from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, wrong_if
from torchcourse import data
from torchcourse.lab.targets import TARGETS


def final_run(answer: Any, images: Tensor | None = None) -> Any:
    """A probe: what the record of the final run says, and the size of its file; or what the file says about images.

    The lab hands over a function that returns the record: functions are asked where their files are.
    """
    record = call(answer, may_return_none=True) if callable(answer) else answer
    if images is not None:
        try:
            program = torch.export.load(record["program"]).module()
            with torch.no_grad():  # a part at a time: memory is limited
                return torch.cat([program(part).argmax(1) for part in images.split(500)])
        except Exception:
            return None
    if not isinstance(record, dict):
        return record
    path = record.get("program")
    size = os.path.getsize(path) if isinstance(path, str | os.PathLike) and os.path.isfile(path) else None
    return {"data": record.get("data"), "cpu_seconds": record.get("cpu_seconds"), "bytes": size}


def judge(answer: Any, rng: Inputs) -> None:
    """Test images go to the exported file, in an order of their own; their labels stay here."""
    seen = observe(answer, final_run)
    if not isinstance(seen, dict) or seen["data"] not in TARGETS or not isinstance(seen["cpu_seconds"], int | float):
        look = "`final = run(...)`, on one of the three data sets. None: the program failed; what does the cell print?"
        raise Incorrect("This is not the record of a finished run.", "what `run(...)` returns", seen, look)
    wrong_if(
        seen["bytes"] is None,
        "no_program",
        "This run exported no file, or its file no longer exists.",
        look='`run("final", ..., "--export")`',
    )
    target, test_set = TARGETS[seen["data"]], data.load(seen["data"], "test")
    order = rng.permutation(len(test_set))
    found = observe(answer, final_run, test_set.images[order])
    if not isinstance(found, Tensor) or found.shape != order.shape:
        raise Incorrect("The exported file does not classify the test images.", look='`check("project_export", …)`')
    accuracy = (found == test_set.labels[order]).float().mean().item()
    wrong_if(
        accuracy < target.accuracy,
        "accuracy",
        "Too many test images get the wrong class.",
        look="the validation accuracy: improve it first, and only then run this check again",
        expected=f"accuracy {target.accuracy:.1%} or more",
        yours=f"{accuracy:.2%}",
    )
    wrong_if(
        seen["bytes"] > target.bytes,
        "bytes",
        f"Your file has {seen['bytes']:,} bytes; the budget is {target.bytes:,}.",
        look="where most parameters are",
    )
    wrong_if(
        not 0 < seen["cpu_seconds"] <= target.cpu_seconds,
        "seconds",
        f"The training took {seen['cpu_seconds']:.1f} s of processor time; the budget is {target.cpu_seconds:g} s.",
        look="fewer epochs, a smaller image early in the network",
    )


exercise = Exercise(
    title="The final run",
    minutes=40,
    difficulty=3,
    points=5,
    seconds=60,
    takeaway="Accuracy, bytes, and processor seconds together make a result. Each of them alone is easy.",
    hints=(
        "Try settings on a few thousand images first (`--images 6000`), and look at the validation accuracy only. "
        "One cycle of the learning rate that ends at zero gets far in two or three epochs.",
        "If the file is too large, look at the linear layer; if the time is too long, make the image small early "
        "(`stride=2`).",
    ),
    judge=judge,
)
