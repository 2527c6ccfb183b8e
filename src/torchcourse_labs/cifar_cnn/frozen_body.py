"""A model that trains a new head on a frozen body, batch norm included."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, call, equal, observe, same, wrong_if


class FrozenBody(nn.Module):
    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body.requires_grad_(False), head
        self.train()

    def train(self, mode: bool = True) -> nn.Module:
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


solution = FrozenBody


def frozen(answer: Callable, images: Tensor, seed: int) -> dict[str, Any]:
    """A probe: what a model does when it is new, and after `train()`, `eval()`, and another `train()`."""
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    head = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 10))
    before = copy.deepcopy(body.state_dict())
    model = call(answer, body, head, may_change=True)
    if not isinstance(model, nn.Module):
        return {"instead": model}
    kept = getattr(model, "body", None) is body and getattr(model, "head", None) is head
    seen: dict[str, Any] = {"kept": kept and {body, head} <= {*model.modules()}}
    seen["modes"], seen["returned"] = {"In a new model": any(m.training for m in body.modules())}, []
    for stage in ("train", "eval", "train"):
        seen["returned"].append(call(getattr(model, stage), may_return_none=True) is model)
        in_body = any(m.training for m in body.modules())
        seen["modes"][f"After `model.{stage}()`"] = in_body, [m.training for m in (model, *head.modules())]
        seen[stage] = call(model, images)
        if stage == "train" and isinstance(seen[stage], Tensor) and seen[stage].requires_grad:
            seen[stage].square().sum().backward()
        seen.setdefault("moved", not equal(body.state_dict(), before))
    return seen | {"gradients": [[p.grad is not None for p in part.parameters()] for part in (body, head)]}


def judge(answer: Any, rng: Inputs) -> None:
    inputs = rng.randn(12, 3, 8, 8) + 2, rng.size(0, 10**6)
    seen, wanted = observe(answer, frozen, *inputs), frozen(FrozenBody, *inputs)
    if "instead" in seen:
        raise Incorrect("Your class is not a module.", "`class FrozenBody(nn.Module)`", seen["instead"])
    if not seen["kept"]:
        raise Incorrect("`self.body` and `self.head` should be the two modules that `__init__` gets.")
    wrong_if(
        seen["moved"],
        "statistics_move",
        "After `model.train()`, one forward pass has changed buffers of the body: its batch norm isn't in eval mode.",
        look="in a `train` of your own, `self.body.eval()` comes after `super().train(mode)`, which reaches all layers",
    )
    others = [when for when, modes in wanted["modes"].items() if seen["modes"][when] != modes]
    wrong_if(
        others,
        "wrong_mode",
        f"{', '.join(others)}, some parts are in the wrong mode: the body belongs in eval mode, the rest as asked for.",
        look="`super().train(mode)`, then all of the body back into eval mode; new modules are in train mode, too",
    )
    same(seen["returned"], [True] * 3, "Whether `train` returns the model", look="`return self` at the end of `train`")
    same(seen["eval"], wanted["eval"], "What your model returns in eval mode", look="`self.head(self.body(x))` alone")
    in_body, in_head = seen["gradients"]
    wrong_if(
        any(in_body),
        "body_learns",
        "The weights of the body still learn: a training step gives them gradients.",
        look="`body.requires_grad_(False)`: `body.requires_grad = False`, or without the s, only sets an attribute",
    )
    same(in_head, [True, True], "Whether the head's weights get gradients", look="freeze the body alone; no `no_grad`")


exercise = Exercise(
    title="Freeze the body, batch norm included",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="Frozen means two things: no gradients, and eval mode that survives `model.train()`.",
    hints=(
        "`requires_grad_(False)` stops the weights. What moves the running mean of batch norm, and when does it not?",
        "`fit` calls `model.train()` in each epoch, and that reaches every layer. Override `train` so that the body "
        "goes back into eval mode and the head does not: `super().train(mode)`, then `self.body.eval()`.",
    ),
    judge=judge,
    seconds=probes.SLOW_START,
)
