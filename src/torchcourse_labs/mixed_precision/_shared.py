"""What the exercises of this chapter share: small layers, and a watch on the precision in which a model works."""

import contextlib
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from labcheck.authoring import AnswerRaised, Inputs, call, wrong_if


def linear(rng: Inputs, inputs: int, outputs: int, size: float = 1.0) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(rng.randn(outputs, inputs) * size / math.sqrt(inputs))
        layer.bias.copy_(rng.randn(outputs) * size / 10)
    return layer


class Watch(contextlib.ExitStack):
    """Writes down, while it is open, how a model gets from a forward pass to a step: see `seen`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.layers, self.weights = model, [], []
        self.came, self.used, self.added = [], [], False

    def __enter__(self) -> "Watch":
        super().__enter__()
        first = next(self.model.parameters())
        for hook in (
            register_module_forward_hook(self.forward),
            register_optimizer_step_pre_hook(self.use),
            first.register_hook(lambda gradient: self.came.append(gradient.clone())),
            first.register_post_accumulate_grad_hook(self.compare),
        ):
            self.callback(hook.remove)
        return self

    def forward(self, layer: nn.Module, given: Any, out: Any) -> None:
        if isinstance(layer, nn.Linear):
            self.layers.append(out.dtype)
            self.weights.append(layer.weight.dtype)

    def use(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.model.parameters()]
        self.used.append(torch.cat([grad.detach().flatten().float() for grad in grads]))

    def compare(self, p: Tensor) -> None:
        self.added |= not torch.allclose(p.grad, self.came[-1].to(p.grad.dtype), equal_nan=True)

    def call(self, answer: Any, *inputs: Any) -> Any:
        """What the answer returns. If it casts the weights and raises an error, the weights say more."""
        try:
            return call(answer, *inputs, may_change=True, may_return_none=True)
        except AnswerRaised:
            if {*self.seen()["weights"]} <= {torch.float32}:
                raise

    def seen(self) -> dict[str, Any]:
        """layers, weights: the dtypes in which linear layers compute, and those of weights; came: the gradient of the
        first parameter out of the last backward pass; used: the gradients that the last step uses, in one row, before
        it; steps: how many; added: whether gradients were added to old ones."""
        return {
            "layers": self.layers,
            "weights": self.weights + [p.dtype for p in self.model.parameters()],
            "came": self.came[-1] if self.came else None,
            "used": self.used[-1] if self.used else None,
            "steps": len(self.used),
            "added": self.added,
        }


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
        look="`with torch.autocast(…, dtype=…)` around each call of a model",
        expected=dtype,
        yours=", ".join(sorted(map(str, others))),
    )
