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
from labcheck.authoring import Exercise, Inputs, NotHere, attempted, call, observe, raises_like, same, wrong_if
from torchcourse.lectures import tracefile
from torchcourse_labs.beyond_python._shared import SECONDS, attempt, quietly, results


def solution(net: nn.Module, example: Tensor, path: str) -> None:
    names = {"input_names": ["features"], "output_names": ["logits"]}
    dynamic = ({0: torch.export.Dim("batch")},)
    torch.onnx.export(net, (example,), path, **names, dynamic_shapes=dynamic, external_data=False)


def converted(answer: Callable, net: nn.Module, batches: list[Tensor]) -> dict[str, Any]:
    """A probe: what ONNX Runtime finds in the file that the answer writes, and what it computes for each batch."""
    attempted(answer)
    if not all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))):
        return {"missing": True}
    # on a GPU machine, the C++ code of ONNX Runtime may complain about devices that it need not know
    with tempfile.TemporaryDirectory() as folder, quietly(), tracefile.quiet():
        import onnxruntime

        path = os.path.join(folder, "net.onnx")
        call(answer, net, batches[0], path, may_change=True, may_return_none=True)
        files = sorted(os.listdir(folder))
        session = attempt(lambda: onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]))
        if isinstance(session, str):
            return {"unreadable": f"{session.replace(path, 'net.onnx')} The files are {files}."}
        names = [[each.name for each in ends] for ends in (session.get_inputs(), session.get_outputs())]

        def run(batch: Tensor) -> Tensor:
            return torch.from_numpy(np.array(session.run(None, {names[0][0]: batch.numpy()})[0]))

        return {"files": files, "names": names, "results": results(run, batches)}


def judge(answer: Any, rng: Inputs) -> None:
    features, classes = rng.sizes(2, 4, 11)
    net = nn.Sequential(*probes.network(rng, features, classes, norm=True), nn.Dropout(0.4)).eval()
    batches = [rng.randn(size, features) for size in (2, 1, 7)]  # the first one is the example
    with raises_like(
        "not_traced",
        "`torch.onnx.export` can't trace `net`. In `dynamic_shapes`, a tuple needs no names, and the rows are axis 0.",
        "Failed to export the model with torch.export",
        look='`dynamic_shapes=({0: torch.export.Dim("batch")},)`',
    ):
        seen = observe(answer, converted, copy.deepcopy(net), batches)
    if "missing" in seen:
        raise NotHere(
            "This exercise needs three optional packages: `pip install onnx onnxscript onnxruntime`, then restart the "
            "kernel. Or leave it out: nothing else in the lab depends on it."
        )
    wrong_if(
        "unreadable" in seen,
        "no_onnx",
        "After your function has run, there is no ONNX file at `path` that ONNX Runtime can read.",
        yours=seen.get("unreadable"),
    )
    for batch, yours, right in zip(batches, seen["results"], results(net, batches), strict=True):
        wrong_if(
            isinstance(yours, str) and len(batch) != 2,
            "fixed_batch",
            "Your file takes batches of 2 rows, like the example, but not any number of them.",
            look="`dynamic_shapes`: the rows are axis 0",
            yours=yours,
        )
        look = "`net`, as it is, in eval mode: float32 features go in, logits come out, without a softmax"
        same(yours, right, f"What your file computes for {len(batch)} rows", atol=1e-4, look=look)
    look = "`input_names`, `output_names`"
    same(seen["names"], [["features"], ["logits"]], "The list of input names and output names", look=look)
    look = "`external_data`: a person who gets only net.onnx needs the weights, too"
    same(seen["files"], ["net.onnx"], "The list of files that you wrote", look=look)


exercise = Exercise(
    title="ONNX",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="Names, sizes, and files are all that the other side sees of your model: choose them, and test them.",
    hints=(
        "Everything that the docstring asks for is an argument of `torch.onnx.export(net, (example,), path, ...)`.",
        '`input_names=["features"]`, `output_names=["logits"]`; the number of rows: `dynamic_shapes`, as in '
        "`torch.export.export`. `external_data=False` puts the weights into the same file.",
    ),
    judge=judge,
    seconds=SECONDS,
)
