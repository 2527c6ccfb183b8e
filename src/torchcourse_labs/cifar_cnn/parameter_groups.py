"""An optimizer with parameter groups: weights decay, biases and norms do not, and the body takes small steps."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, call, observe, raises_like, same, show, wrong_if


def draw(rng: Inputs) -> nn.Module:
    """Norms without "norm" in their names, biases in some layers, and in the head a norm, too."""
    a, b, classes = rng.sizes(3, 4, 9)
    first, last = (nn.Conv2d(3, a, 3, bias=False), nn.BatchNorm2d(a)), (nn.Conv2d(a, b, 3), nn.BatchNorm2d(b))
    body = nn.Sequential(*first, nn.ReLU(), *last, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential()
    model.body, model.head = body, nn.Sequential(nn.LayerNorm(b), nn.Linear(b, classes))
    return model


def solution(model: nn.Module, body_lr: float, head_lr: float, weight_decay: float) -> torch.optim.Optimizer:
    groups = []
    for part, lr in ((model.body, body_lr), (model.head, head_lr)):
        decay = [p for p in part.parameters() if p.ndim > 1]
        others = [p for p in part.parameters() if p.ndim <= 1]
        groups.append({"params": decay, "lr": lr, "weight_decay": weight_decay})
        groups.append({"params": others, "lr": lr, "weight_decay": 0.0})
    return torch.optim.AdamW(groups)


def settings(answer: Callable, model: nn.Module, *given: float) -> Any:
    """A probe: by the parameter's name, its learning rate and its weight decay; anything but AdamW, in words."""
    optimizer = call(answer, model, *given, may_change=True)
    if not isinstance(optimizer, torch.optim.AdamW):
        return f"the optimizer {type(optimizer).__name__}" if hasattr(optimizer, "param_groups") else show(optimizer)
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = [(names.get(p), group) for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    return {name: (float(group["lr"]), float(group["weight_decay"])) for name, group in found}


def judge(answer: Any, rng: Inputs) -> None:
    model, head_lr, weight_decay = draw(rng), rng.size(2, 9) / 1000, rng.size(2, 9) / 100  # AdamW's own decay is 0.01,
    body_lr = head_lr / rng.pick((11, 20, 30))  # and its rate 0.001
    with raises_like(
        "two_groups",
        "A parameter is in two groups: each belongs to exactly one.",
        "more than one parameter group",
        look="four groups: weights and others, of the body and of the head; `model.parameters()` has all of them",
    ):
        seen = observe(answer, settings, model, body_lr, head_lr, weight_decay)
    if not isinstance(seen, dict):
        raise Incorrect("Your function should return an optimizer of the kind `torch.optim.AdamW`.", yours=seen)
    missing = next((name for name, _ in model.named_parameters() if name not in seen), "")
    look = "four groups: the weights of the body, the rest of the body, and the same for the head"
    wrong_if(missing, "left_out", f"`{missing}` is in no group, or frozen, so it never learns.", look=look)
    flat = {name: seen[name][1] for name, p in model.named_parameters() if p.ndim == 1}
    decaying = next((name for name in flat if flat[name]), "")
    wrong_if(
        flat.get(decaying) == 0.01,
        "default_decay",
        f"`{decaying}` decays by 0.01, although you didn't ask for it: that is AdamW's default.",
        look='`"weight_decay": 0.0` in the groups of biases and norms',
    )
    look = "a norm's scale is called `weight`, too: the number of dimensions, `p.ndim`, tells it from a layer's weight"
    wrong_if(decaying, "all_decay", f"`{decaying}` decays: the scales of norms, and biases, should not.", look=look)
    look = '`"lr"` in each group: `body_lr` for the parameters of `model.body`, `head_lr` for those of `model.head`'
    equal = len({lr for lr, _ in seen.values()}) == 1
    wrong_if(equal, "one_rate", "The body and the head have the same learning rate.", look=look)
    for name, parameter in model.named_parameters():
        same(seen[name][0], body_lr if name.startswith("body") else head_lr, f"The learning rate of `{name}`", atol=0)
        same(seen[name][1], weight_decay if parameter.ndim > 1 else 0.0, f"The weight decay of `{name}`")


exercise = Exercise(
    title="Parameter groups",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="An optimizer's settings belong to groups: a trained body takes small steps, and only real weights decay.",
    hints=(
        "Each parameter belongs to one of four groups: body or head, decay or none. How many dimensions has a bias?",
        '`{"params": [p for p in model.body.parameters() if p.ndim > 1], "lr": body_lr, "weight_decay": weight_decay}` '
        "is one of four groups in a list for `torch.optim.AdamW`.",
    ),
    judge=judge,
    seconds=probes.SLOW_START,
)
