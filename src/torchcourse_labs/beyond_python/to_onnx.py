"""Write a network as one ONNX file for any batch size, with names that others can rely on."""

import copy
import os
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import (
    AnswerRaised,
    Exercise,
    Incorrect,
    Inputs,
    NotHere,
    attempted,
    call,
    near,
    observe,
    same,
    wrong_if,
)
from torchcourse.lectures import tracefile
from torchcourse_labs.beyond_python._shared import SECONDS, first_line, quietly

PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def solution(net: nn.Module, example: Tensor, path: str) -> None:
    torch.onnx.export(
        net,
        (example,),
        path,
        input_names=["features"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        external_data=False,
    )


def converted(
    answer: Callable, net: nn.Module, example: Tensor, batches: list[Tensor], packages: tuple[str, ...]
) -> dict[str, Any]:
    """A probe: what ONNX Runtime finds in the file that the answer writes, and what it computes for each batch."""
    attempted(answer)
    if not all(map(find_spec, packages)):
        return {"missing": True}
    with tracefile.quiet():  # on a GPU machine, its C++ code may complain about devices that it need not know
        import onnxruntime

    with tempfile.TemporaryDirectory() as folder, quietly():
        path = os.path.join(folder, "net.onnx")
        call(answer, net, example, path, may_change=True, may_return_none=True)
        found: dict[str, Any] = {"files": sorted(os.listdir(folder)), "results": []}
        try:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:
            return found | {"unreadable": first_line(error).replace(path, "net.onnx")}
        found["names"] = [[each.name for each in ends] for ends in (session.get_inputs(), session.get_outputs())]
        for batch in batches:
            try:
                result = session.run(None, {found["names"][0][0]: batch.numpy()})[0]
                found["results"].append(torch.from_numpy(np.array(result)))
            except Exception as error:
                found["results"].append(first_line(error))
    return found


def judge(answer: Any, rng: Inputs) -> None:
    features, classes = rng.sizes(2, 4, 11)
    net = nn.Sequential(*probes.network(rng, features, classes, norm=True), nn.Dropout(0.4)).eval()
    example, batches = rng.randn(2, features), [rng.randn(size, features) for size in (2, 1, 7)]
    try:
        seen = observe(answer, converted, copy.deepcopy(net), example, batches, PACKAGES)
    except AnswerRaised as raised:
        wrong_if(
            "Failed to export the model with torch.export" in str(raised),
            "not_traced",
            "`torch.onnx.export` cannot trace `net` with these arguments. A dict for `dynamic_shapes` has the names of "
            "`forward`'s arguments, which you don't know here; a tuple needs no names.",
            look='`dynamic_shapes=({0: torch.export.Dim("batch")},)`',
        )
        raise
    if "missing" in seen:
        raise NotHere(
            "This exercise needs three optional packages: `pip install onnx onnxscript onnxruntime`, then restart the "
            "kernel. Or leave it out: nothing else in the lab depends on it."
        )
    wrong_if(
        "unreadable" in seen,
        "no_onnx",
        "After your function has run, there is no ONNX file at `path` that ONNX Runtime can read.",
        yours=f"{seen.get('unreadable')} The files are {seen['files']}.",
        look="`torch.onnx.export`",
    )
    results = seen["results"]
    with torch.no_grad():
        expected = [net(batch) for batch in batches]
    if isinstance(results[0], str):
        raise Incorrect("ONNX Runtime cannot run your file with float32 features [2, features].", yours=results[0])
    wrong_if(
        not all(isinstance(result, Tensor) for result in results),
        "fixed_batch",
        f"Your file takes batches of {len(example)} rows, like the example, but not any number of them.",
        look="`dynamic_shapes`",
        yours=next((result for result in results if isinstance(result, str)), ""),
    )
    wrong_if(
        near(results, [each.softmax(dim=1) for each in expected], atol=1e-4),
        "probabilities",
        "Your file returns probabilities: there is a softmax in it. Return the logits.",
    )
    for batch, yours, right in zip(batches, results, expected, strict=True):
        same(yours, right, f"What your file computes for {len(batch)} rows", atol=1e-4, look="`net`, as it is")
    wrong_if(
        seen["names"] != [["features"], ["logits"]],
        "names",
        f"Your input is called {seen['names'][0]} and your output {seen['names'][1]}.",
        expected="features and logits",
        look="`input_names` and `output_names`",
    )
    wrong_if(
        seen["files"] != ["net.onnx"],
        "weights_apart",
        "There are several files, so a person who gets only net.onnx has no weights: put all into one file.",
        yours=seen["files"],
        look="`external_data`",
    )


exercise = Exercise(
    title="ONNX",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="Names, sizes, and files are all that the other side sees of your model: choose them, and test them.",
    hints=(
        "`torch.onnx.export(net, (example,), path, ...)` writes the file. Everything that the docstring asks for is an "
        "argument of it.",
        'Names: `input_names=["features"]` and `output_names=["logits"]`. The number of rows: `dynamic_shapes`, as in '
        "`torch.export.export`.",
        "`external_data=False` puts the weights into the same file.",
    ),
    judge=judge,
    seconds=SECONDS,
)
