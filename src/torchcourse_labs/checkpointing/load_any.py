"""Load what fits from someone else's file, report the rest, and run no code from it."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from labcheck.authoring import AnswerRaised, Exercise, Inputs, call, observe, raises_like, same, wrong_if

OTHER = {"embed.bias": (7,), "submodule.weight": (5, 4), "norm.bias": (1,), "extra.bias": (2,)}  # shapes that don't fit


def network() -> nn.ModuleDict:
    """In float64, which stays. Some of its names have "module." inside."""
    layers = {"embed": nn.Linear(6, 5), "submodule": nn.Linear(5, 4), "norm": nn.BatchNorm1d(4)}
    return nn.ModuleDict({**layers, "tower": nn.ModuleDict({"module": nn.Linear(4, 3)})}).double()


def weights(rng: Inputs) -> dict[str, Tensor]:
    state = network().state_dict().items()
    return {name: (rng.randn(1, *value.shape)[0] + 2).to(value.dtype) for name, value in state}


def solution(path: Path, model: nn.Module) -> tuple[list[str], list[str]]:
    saved = torch.load(path, map_location="cpu", weights_only=True)
    own, fits, unexpected = model.state_dict(), {}, []
    for name, tensor in saved.items():
        while name.startswith(("module.", "_orig_mod.")):
            name = name.partition(".")[2]
        if name in own and own[name].shape == tensor.shape:
            fits[name] = tensor
        else:
            unexpected.append(name)
    model.load_state_dict(fits, strict=False)
    return [name for name in own if name not in fits], unexpected


def loading(answer: Callable, own: dict, saved: dict, place: str = "cpu") -> dict[str, Any]:
    """A probe: the answer loads this file, saved at some place, into a model with weights of its own."""
    model = network()
    model.load_state_dict(own)
    tensors = model.state_dict(keep_vars=True)
    with tempfile.TemporaryDirectory(prefix="torchcourse-") as folder:
        with mock.patch("torch.serialization.location_tag", lambda storage: place):
            torch.save(saved, Path(folder, "theirs.pt"))
        result = call(answer, Path(folder, "theirs.pt"), model, may_change=True)
    parts = result if isinstance(result, tuple | list) else [result]
    lists = [sorted(map(str, part)) if isinstance(part, list | tuple | set | dict) else part for part in parts]
    kept = [name for name, tensor in model.state_dict(keep_vars=True).items() if tensor is tensors.get(name)]
    return {"lists": lists, "state": dict(model.state_dict()), "kept": kept}


def attacked(answer: Callable, own: dict) -> dict[str, bool]:
    """A probe: whether code in a file ran, which would make a folder, and whether the file was refused."""
    with tempfile.TemporaryDirectory(prefix="torchcourse-") as folder:
        ran = Path(folder, "ran")

        class Attack:
            def __reduce__(self) -> tuple:
                return os.mkdir, (str(ran),)

        try:
            loading(answer, own, {**own, "embed.bias": Attack()})
        except AnswerRaised:
            return {"ran": ran.exists(), "refused": True}
        return {"ran": ran.exists(), "refused": False}


def judge(answer: Any, rng: Inputs) -> None:
    for prefix in ("", "module.", "module._orig_mod.", "_orig_mod.module."):
        judge_case(answer, weights(rng), weights(rng), prefix)
    other = weights(rng) | {name: rng.randn(*shape) for name, shape in OTHER.items()}
    judge_case(answer, weights(rng), {name: value.half() for name, value in other.items()}, "_orig_mod.", "cuda:63")
    seen = observe(answer, attacked, weights(rng))
    wrong_if(
        seen["ran"] is not False,
        "ran_code",
        "Your function lets the file run code on your machine. Here, the code only made a folder.",
        look="`weights_only=True`, the default, and no second attempt without it",
    )
    look = "`except`: let the error of `torch.load` through"
    same(seen["refused"], True, "Whether a file with more than tensors and plain values is refused", look=look)


def judge_case(answer: Any, own: dict, theirs: dict, prefix: str, place: str = "cpu") -> None:
    fits = {name: value for name, value in theirs.items() if name in own and value.shape == own[name].shape}
    with raises_like(
        "all_or_nothing",
        "Not everything in the file fits, and your function raises: load what fits, and report the rest.",
        "loading state_dict",
        look="`strict=False` leaves out names that do not fit, but not shapes: compare them first",
    ):
        seen = observe(answer, loading, own, {prefix + name: value for name, value in theirs.items()}, place)
    same(len(seen["lists"]), 2, "The number of lists that your function returns", look="(missing, unexpected)")
    case = f'for a file with the prefix "{prefix}"' if prefix else "for a file without a prefix"
    look = "missing comes first; other shapes are in both, other dtypes fit; buffers; `removeprefix`, not `lstrip`"
    for what, yours, others in zip(("missing", "unexpected"), seen["lists"], (own, theirs), strict=True):
        same(yours, sorted({*others} - {*fits}), f"The list of {what} names, {case},", look=look)
    now = own | {name: value.to(own[name].dtype) for name, value in fits.items()}
    look = "a value of another shape in the file stays as it was; `load_state_dict` of `model`, without `assign=True`"
    same(seen["state"], now, "The state of the model", rtol=1e-6, look=look)
    look = "an optimizer updates the old ones: fill these, with `copy_`, or `load_state_dict` without `assign=True`"
    same(seen["kept"], [*own], "The list of tensors that the model keeps, and you only fill,", look=look)


exercise = Exercise(
    title="Load what fits",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="Strip prefixes at the front only, load what fits by name and shape, and report the rest: a "
    "`strict=False` without a report hides a model that is half random.",
    hints=(
        "Four steps: load safely to the CPU; clean each name at its front; take what is in the model with the same "
        "shape; load it, and return the names of the rest.",
        '`name.startswith(("module.", "_orig_mod."))` tells whether there is a prefix, `name.partition(".")[2]` is the '
        "name without it; a `while` takes off several. Then `model.load_state_dict(fits, strict=False)`.",
    ),
    judge=judge,
)
