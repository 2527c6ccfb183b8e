"""What the exercises of this chapter share: a watch on the precision in which a model works."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from labcheck.authoring import raises_like, wrong_if

NO_GRADIENT = raises_like("no_gradient", "A `grad` may be None: then skip the parameter.", "NoneType", "'None")


@contextlib.contextmanager
def watch(model: nn.Module) -> Iterator[dict[str, Any]]:
    """Write down how a model gets from a forward pass to a step.

    layers, weights: the dtypes in which linear layers compute, the model's or copies, and those of the model's weights
    meanwhile; steps: how many; used: the gradients that the last step uses, in one row; zeros: were any 0 in a step
    """
    own = [*model.parameters()]
    seen: dict[str, Any] = {"layers": [], "weights": [], "steps": 0, "used": None, "zeros": False}

    def forward(layer: nn.Module, given: Any, out: Any) -> None:
        if isinstance(layer, nn.Linear):
            seen["layers"].append(out.dtype)
            seen["weights"] += [p.dtype for p in own]

    def use(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        used = torch.cat([grad.detach().flatten().float() for grad in grads])
        seen.update(steps=seen["steps"] + 1, used=used, zeros=seen["zeros"] or not used.all())

    with register_module_forward_hook(forward), register_optimizer_step_pre_hook(use):
        yield seen
    seen["weights"] += [p.dtype for p in model.parameters()]


def judge_dtypes(seen: dict, dtype: torch.dtype) -> None:
    """Say whether the weights are float32, and the layers compute in this dtype."""
    wrong_if(
        {*seen["weights"]} != {torch.float32},
        "cast_weights",
        "You cast the weights of the model: in half precision, a small update is rounded away. Leave them in float32, "
        "and let autocast cast copies of them where that pays off.",
        look="`model.half()` or `model.to(…)`: autocast replaces it",
    )
    others = {*seen["layers"]} - {dtype}
    wrong_if(
        others,
        "other_dtype",
        f"Some layers, or all of them, do not compute in {dtype}.",
        look="`with torch.autocast(….device.type, dtype=…)` around each call of a model; one call a batch is enough",
        expected=dtype,
        yours=", ".join(sorted(map(str, others))),
    )
