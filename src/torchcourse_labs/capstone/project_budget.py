"""The final run: accuracy on the test images, bytes of the file, and processor seconds, all within the budget."""

import os
from typing import Any

import torch
from torch import Tensor

from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, wrong_if
from torchcourse import data
from torchcourse.lab.targets import TARGETS
from torchcourse_labs.capstone._exported import program


def recorded(answer: Any) -> Any:
    """The record itself. The lab hands over a function that returns it: functions are asked where their files are."""
    return call(answer, may_return_none=True) if callable(answer) else answer


def final_run(answer: Any) -> dict:
    """A probe: what the record of the final run says, and the size of its file."""
    record = recorded(answer)
    if record is None or (isinstance(record, dict) and "cpu_seconds" in record and record.get("program") is None):
        return {"kind": "no run" if record is None else "no program"}
    record = record if isinstance(record, dict) else {}
    path, name, seconds = (record.get(key) for key in ("program", "data", "cpu_seconds"))
    if not isinstance(path, str | os.PathLike) or not isinstance(seconds, int | float) or name not in TARGETS:
        return {"kind": "no record"}
    if not os.path.isfile(path):
        return {"kind": "no file"}
    return {"kind": "a file", "data": name, "cpu_seconds": float(seconds), "bytes": os.path.getsize(path)}


def predictions(answer: Any, images: Tensor) -> Tensor | None:
    """A probe: what the file of the final run says about images. A part at a time: memory is limited."""
    try:
        read = program(recorded(answer)["program"])
        with torch.no_grad():
            return torch.cat([read(part).argmax(1) for part in images.split(500)])
    except Exception:
        return None


def judge(answer: Any, rng: Inputs) -> None:
    """Test images go to the exported file, in an order of their own; their labels stay here."""
    seen = observe(answer, final_run)
    wrong_if(
        seen["kind"] == "no run",
        "no_run",
        "`run` returned None: the program did not finish.",
        look="what the cell above prints",
    )
    wrong_if(
        seen["kind"] == "no program",
        "no_program",
        "This run exported no file.",
        look='`run("final", ..., "--export")`',
    )
    if seen["kind"] == "no record":
        raise Incorrect("This is not the record of a run.", "what `run(...)` returns", look="`final = run(...)`")
    if seen["kind"] == "no file":
        raise Incorrect("The exported file of this run no longer exists.", look="run the cell above once more")
    target, test_set = TARGETS[seen["data"]], data.load(seen["data"], "test")
    order = rng.permutation(len(test_set))
    found = observe(answer, predictions, test_set.images[order])
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
        "Your file is larger than the budget.",
        look="where most parameters are",
        expected=f"{target.bytes:,} bytes or fewer",
        yours=f"{seen['bytes']:,} bytes",
    )
    wrong_if(
        not 0 < seen["cpu_seconds"] <= target.cpu_seconds,
        "seconds",
        "The training took more processor time than the budget allows, or none that could be measured.",
        look="fewer epochs, a smaller image early in the network",
        expected=f"up to {target.cpu_seconds:g} seconds",
        yours=f"{seen['cpu_seconds']:.1f} seconds",
    )


exercise = Exercise(
    title="The final run",
    minutes=40,
    difficulty=3,
    points=5,
    seconds=60,
    takeaway="Accuracy, bytes, and processor seconds together make a result. Each of them alone is easy.",
    hints=(
        "Try settings on a few thousand images first (`--images 6000`), and look at the validation accuracy only.",
        "One cycle of the learning rate that ends at zero gets far in two or three epochs.",
        "If the file is too large, look at the linear layer; if the time is too long, make the image small early "
        "(`stride=2`).",
    ),
    judge=judge,
)
