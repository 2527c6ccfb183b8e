"""A model that trains a new head on a frozen body, batch norm included."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, same, wrong_if


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
        features = self.body(x)
        return self.head(features)


solution = FrozenBody


def frozen(answer: Callable, features: int, classes: int, images: Tensor, labels: Tensor) -> dict[str, Any]:
    """A probe: what a model does when it is new, and after `train()`, `eval()`, and another `train()`."""
    generator = torch.Generator().manual_seed(0)
    body = nn.Sequential(nn.Conv2d(images.shape[1], features, 3), nn.BatchNorm2d(features), nn.ReLU(), nn.Dropout(0.5))
    body.extend([nn.Conv2d(features, features, 3), nn.BatchNorm2d(features), nn.AdaptiveAvgPool2d(1), nn.Flatten()])
    head = nn.Sequential(nn.Dropout(0.5), nn.Linear(features, classes))
    with torch.no_grad():
        for value in (*body.parameters(), *head.parameters()):
            value.copy_(torch.randn(value.shape, generator=generator) * 0.5)
        head[1].weight[1], head[1].bias[:2] = -head[1].weight[0], 0.0  # logits of both signs
    before = copy.deepcopy(body.state_dict())
    model = call(answer, body, head, may_change=True)
    if not isinstance(model, nn.Module):
        return {"instead": model}
    inside = {id(module) for module in model.modules()}
    kept = getattr(model, "body", None) is body and getattr(model, "head", None) is head
    seen: dict[str, Any] = {"kept": kept and {id(body), id(head)} <= inside, "gradients": [[], [False]]}
    seen["new"], seen["stages"] = any(m.training for m in body.modules()), []
    for stage in ("train", "eval", "train"):
        returned = call(getattr(model, stage), may_return_none=True)
        in_body, modes = any(m.training for m in body.modules()), [m.training for m in (model, *head.modules())]
        logits = call(model, images)
        moved = any(not torch.equal(value, before[name]) for name, value in body.state_dict().items())
        if isinstance(logits, Tensor) and logits.requires_grad and logits.shape == (len(images), classes):
            F.cross_entropy(logits, labels).backward()
            seen["gradients"] = [[p.grad is not None for p in part.parameters()] for part in (body, head)]
        seen["stages"].append({"returned": returned is model, "in body": in_body, "modes": modes, "moved": moved})
        seen[stage] = logits.detach() if isinstance(logits, Tensor) else logits
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    channels, features, classes = rng.size(2, 3), rng.size(4, 7), rng.size(2, 5)
    inputs = features, classes, rng.randn(12, channels, 8, 8) + 2, rng.ints(0, classes, (12,))
    seen, wanted = observe(answer, frozen, *inputs), frozen(FrozenBody, *inputs)
    if "instead" in seen:
        raise Incorrect("Your class is not a module.", "`class FrozenBody(nn.Module)`", seen["instead"])
    wrong_if(
        not seen["kept"],
        "not_kept",
        "`self.body` and `self.head` should be the two modules that `__init__` received, not copies of them.",
        look="`self.body = body` and `self.head = head`",
    )
    wrong_if(
        seen["stages"][0]["moved"],
        "statistics_move",
        "After `model.train()`, one forward pass has changed the running statistics of the body's batch norm.",
        look="`fit` calls `model.train()`, which reaches all layers: in a `train` of your own, call `self.body.eval()` "
        "after it",
    )
    wrong_if(
        seen["new"],
        "new_in_train_mode",
        "The body, or a part of it, is in train mode in a new model, as every module is at first.",
        look="`self.body.eval()` also in `__init__`",
    )
    for stage, one, right in zip(("train", "eval", "train"), seen["stages"], wanted["stages"], strict=True):
        wrong_if(
            one["in body"] or one["modes"] != right["modes"],
            "wrong_mode",
            f"After `model.{stage}()`, some parts are in the wrong mode: the body should always be in eval mode, the "
            "head and the model itself in the mode that the caller asks for.",
            look="`super().train(mode)` passes the mode on; then put the body, and only the body, back into eval mode",
        )
        wrong_if(
            not one["returned"],
            "returns_nothing",
            "Your `train` does not return the model, as PyTorch's own does.",
            look="`return self` at the end of `train`",
        )
    same(seen["eval"], wanted["eval"], "What your model returns in eval mode", look=FORWARD)
    in_body, in_head = seen["gradients"]
    wrong_if(
        any(in_body),
        "body_learns",
        "The weights of the body still learn: a training step gives them gradients.",
        look="`body.requires_grad_(False)`, with the underscore: `body.requires_grad = False` only sets an attribute",
    )
    wrong_if(
        not all(in_head),
        "head_does_not_learn",
        "No gradient reaches the head, or a part of it, in a training step, but the head should learn.",
        look="`requires_grad_(False)`, `no_grad` and `detach` belong to the body alone",
    )


FORWARD = "`return self.head(self.body(x))`, and nothing after it: the loss has its own softmax"

exercise = Exercise(
    title="Freeze the body, batch norm included",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="Frozen means two things: no gradients, and eval mode that survives `model.train()`.",
    hints=(
        "`requires_grad_(False)` stops the weights. What moves the running mean of batch norm, and when does it not?",
        "`fit` calls `model.train()` in each epoch, and that reaches every layer. Override `train` so that the "
        "body goes back into eval mode and the head does not.",
        "`def train(self, mode=True): super().train(mode); self.body.eval(); return self`",
    ),
    judge=judge,
    seconds=probes.SLOW_START,
)
