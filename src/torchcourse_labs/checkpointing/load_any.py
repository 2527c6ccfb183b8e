"""Load what fits from someone else's file, report the rest, and run no code from it."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, call, equal, observe, same, wrong_if

OTHER = {"head.weight": (10, 4), "head.bias": (10,), "submodule.weight": (5, 4), "norm.bias": (1,), "extra.bias": (2,)}


def network() -> nn.ModuleDict:
    """Some of its names have "module." inside."""
    tower = nn.ModuleDict({"module": nn.Linear(4, 4)})
    layers = {"embed": nn.Linear(6, 5), "submodule": nn.Linear(5, 4), "tower": tower, "norm": nn.BatchNorm1d(4)}
    return nn.ModuleDict({**layers, "head": nn.Linear(4, 3)})


def weights(rng: Inputs) -> dict[str, Tensor]:
    return {
        name: (rng.randn(*value.shape, 1)[..., 0] + 2).to(value.dtype) for name, value in network().state_dict().items()
    }


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


class Attack:
    """Makes a folder as soon as it is unpickled."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.folder,)


def loading(answer: Callable, own: dict, saved: dict, place: str = "cpu") -> dict[str, Any]:
    """A probe: the answer loads this file, saved at some place, into a model with weights of its own."""
    model = network()
    model.load_state_dict(own)
    with tempfile.TemporaryDirectory(prefix="torchcourse-") as folder:
        with mock.patch("torch.serialization.location_tag", lambda storage: place):
            torch.save(saved, Path(folder, "theirs.pt"))
        result = call(answer, Path(folder, "theirs.pt"), model, may_change=True, may_return_none=True)
    if isinstance(result, tuple | list) and all(isinstance(part, list | tuple | set | dict) for part in result):
        result = [sorted(map(str, part)) for part in result]
    return {"lists": result, "state": dict(model.state_dict())}


def attacked(answer: Callable, own: dict) -> dict[str, bool]:
    """A probe: whether code in a file ran, and whether the file was refused."""
    with tempfile.TemporaryDirectory(prefix="torchcourse-") as folder:
        ran = Path(folder, "ran")
        try:
            loading(answer, own, {**own, "embed.bias": Attack(str(ran))})
        except AnswerRaised:
            return {"ran": ran.exists(), "refused": True}
        return {"ran": ran.exists(), "refused": False}


def judge(answer: Any, rng: Inputs) -> None:
    for prefix in ("", "module.", "module._orig_mod.", "_orig_mod.module."):
        judge_case(answer, weights(rng), weights(rng), prefix)
    half = {name: value.half() if value.is_floating_point() else value for name, value in weights(rng).items()}
    other = {name: value for name, value in half.items() if name != "embed.bias"}
    other |= {name: rng.randn(*shape).half() for name, shape in OTHER.items()}
    judge_case(answer, weights(rng), other, "_orig_mod.")
    judge_case(answer, weights(rng), half, "module.", "cuda:63")
    seen = observe(answer, attacked, weights(rng))
    wrong_if(
        seen["ran"] is not False,
        "ran_code",
        "Your function lets the file run code on your machine. Here, the code only made a folder.",
        look="`weights_only=True`, the default, and no second attempt without it",
    )
    wrong_if(
        seen["refused"] is not True,
        "swallowed",
        "A file with something other than tensors in it should be refused: let the error of `torch.load` through.",
        look="`except`",
    )


def judge_case(answer: Any, own: dict, theirs: dict, prefix: str, place: str = "cpu") -> None:
    fits = {name: value for name, value in theirs.items() if name in own and value.shape == own[name].shape}
    right = [sorted({*own} - {*fits}), sorted({*theirs} - {*fits})]
    try:
        seen = observe(answer, loading, own, {prefix + name: value for name, value in theirs.items()}, place)
    except AnswerRaised as raised:
        wrong_if(
            any(words in str(raised) for words in ("size mismatch", "Missing key", "Unexpected key")),
            "all_or_nothing",
            "Not everything in the file fits, and your function raises: load what fits, and report the rest.",
            look="`strict=False` leaves out names that do not fit, but not shapes: compare them first",
        )
        raise
    lists = seen["lists"]
    if not isinstance(lists, list) or len(lists) != 2 or not all(isinstance(part, list) for part in lists):
        raise Incorrect("Your function should return two lists of names.", "(missing, unexpected)", lists)
    missing, unexpected = lists
    lost, silent = {*missing} - {*right[0]}, {*right[0]} - {*missing}
    wrong_if(
        lost and all("module." in name for name in lost),
        "inside",
        f'"module." in the middle of a name belongs to it: {sorted(lost)} should have been loaded.',
        look="`startswith`, `removeprefix`; not `replace` or `split`",
    )
    wrong_if(
        prefix and len(lost) == len(fits),
        "prefix",
        f"With the prefix {prefix!r}, nothing fits: {unexpected[:2]} and so on are names that the model does not have.",
        look='both "module." and "_orig_mod.", in either order',
    )
    wrong_if(
        any(name in own and not equal(seen["state"].get(name), own[name]) for name in silent),
        "shape",
        f"You load {sorted(silent)}, although the shape does not fit: `reshape` mixes the numbers up, and `copy_` "
        "spreads a single one.",
        look="compare `shape` before you copy",
    )
    look = "the names of `model.state_dict()`, buffers included; a name with another shape is in both lists"
    same(missing, right[0], "The list of missing names", look=look)
    same(unexpected, right[1], "The list of unexpected names", look=look)
    look = "`load_state_dict` of the model that comes in; it copies and converts, but not with `assign=True`"
    now = own | {name: value.to(own[name].dtype) for name, value in fits.items()}
    same(seen["state"], now, "The state of the model", rtol=1e-6, look=look)


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
        '`name.startswith(("module.", "_orig_mod."))` tells whether there is a prefix, '
        '`name.partition(".")[2]` is the name without it; a `while` takes off several.',
        "`fits = {…}`, `model.load_state_dict(fits, strict=False)`, then `[name for name in model.state_dict() if name "
        "not in fits]` for what is missing.",
    ),
    judge=judge,
)
