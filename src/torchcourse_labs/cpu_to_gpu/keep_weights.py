"""The values of a model, kept on the CPU, whatever the training does later."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, call, equal, observe, same, wrong_if
from labcheck.probes import CHANGES
from torchcourse import simgpu


def draw(rng: Inputs) -> list[tuple[nn.Module, str]]:
    """A model in train mode, with a frozen parameter, and a buffer that `state_dict()` leaves out."""
    model = probes.network(rng, *rng.sizes(2, 3, 8), norm=True)
    model[4].bias.requires_grad_(False)
    model.register_buffer("scratch", rng.randn(2), persistent=False)
    return [(model, "on the device"), (model, "on the CPU")]


def solution(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def kept(answer: Callable, model: nn.Module, place: str) -> dict[str, Any]:
    """A probe: what the answer keeps, the same after the model has changed, and what it changed in the model."""
    device = simgpu.accelerator() if place == "on the device" else torch.device("cpu")
    start, model = (copy.deepcopy(model).to(device) for _ in range(2))
    for parameter in (*start.parameters(), *model.parameters()):  # a copy comes without gradients
        parameter.grad = torch.ones_like(parameter)
    values = call(answer, model, may_change=True)
    if not isinstance(values, dict) or not all(isinstance(value, Tensor) for value in values.values()):
        return {"instead": values}
    moved = any(value.device.type != device.type for value in model.state_dict().values())
    seen = {
        "kept": {name: value.detach().cpu().clone() for name, value in values.items()},
        "on the device": sum(value.device.type != "cpu" for value in values.values()),
        "with a graph": sum(value.requires_grad for value in values.values()),
        "changed": "the device of the model" if moved else ", ".join(map(CHANGES.get, probes.changes(model, start))),
    }
    with torch.no_grad():  # the training goes on
        for value in (*model.parameters(), *model.buffers()):
            value.add_(1)
    return seen | {"later": {name: value.detach().cpu().clone() for name, value in values.items()}}


def judge(answer: Any, rng: Inputs) -> None:
    for model, place in draw(rng):
        seen, expected = observe(answer, kept, model, place), solution(model)
        if "instead" in seen:
            raise Incorrect("Your function should return a dictionary, name → tensor.", yours=seen["instead"])
        wrong_if(
            seen["changed"],
            "model_changed",
            f"Your function should only read the model, but it changes {seen['changed']}.",
            look="`model.cpu()`, `eval()`, `requires_grad_` and `zero_grad()` all work in place: you need none of them",
        )
        names = sorted(expected.keys() ^ seen["kept"].keys(), key=str)
        wrong_if(
            names and {*names} == expected.keys() - dict(model.named_parameters()).keys(),
            "no_buffers",
            "The buffers are missing: batch norm's running statistics belong to the model, too.",
            look="`model.state_dict()` has parameters and buffers; `model.named_parameters()` has no buffers",
        )
        if names:
            which = f"`{names[0]}` is {'missing' if names[0] in expected else 'not among them'}"
            told = (", ".join(map(str, each)) for each in (expected, seen["kept"]))
            look = "is `return` inside the loop?" if len(seen["kept"]) == 1 else None
            raise Incorrect(f"Your dictionary should have the names of `state_dict()`: {which}.", *told, look)
        look = "`.cpu()` for every value"
        wrong_if(
            seen["on the device"], "on_device", "Kept values are on the device, and take up its memory.", look=look
        )
        look = "the names and values of `model.state_dict()`, none of them converted"
        same(seen["kept"], expected, "The kept values", look=look, rtol=0, atol=0)
        wrong_if(
            not equal(seen["later"], seen["kept"]),
            "shared",
            f"When training goes on with a model {place}, your kept values change: they share its memory.",
            look="neither `.detach()` nor `.cpu()` nor a copy of the dictionary copies a tensor that is on the CPU",
        )
        what = "The number of kept values that still have a graph, or are parameters themselves,"
        same(seen["with a graph"], 0, what, look="`.detach()`, or take the values from `state_dict()`")


exercise = Exercise(
    title="Keep the best weights",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="`.cpu()` makes a copy only when there is something to bring back. To keep values, clone.",
    hints=(
        "The tensors of `state_dict()` share their memory with the model. Where does `.cpu()` copy, and where not?",
        "`{name: value.detach().cpu().clone() for name, value in model.state_dict().items()}`",
    ),
    judge=judge,
)
