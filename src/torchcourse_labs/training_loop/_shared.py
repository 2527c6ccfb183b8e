"""What the checks of training loops have in common: models and batches, a watched optimizer, what must not change."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from labcheck.authoring import Incorrect, Inputs, observe, raises_like, wrong_if
from labcheck.probes import CHANGES, Batch, network


def draw(rng: Inputs, sizes: Sequence[int], norm: bool = False) -> tuple[nn.Module, list[Batch]]:
    """A small model, and for each size a batch of images, float32 [size, 1, height, width], and labels."""
    (height, width), classes = rng.sizes(2, 3, 6), rng.size(3, 6)
    batches = [(rng.randn(size, 1, height, width), rng.ints(0, classes, (size,))) for size in sizes]
    return network(rng, height * width, classes, norm), batches


def watch_passes(model: nn.Module) -> list[dict[str, Any]]:
    """A list that fills with what goes through a model from now on: a dict for each pass.

    images: how many; train: whether in train mode; graph: whether one was recorded. The last layer is watched, so that
    `model.forward(images)` is seen as well, and a copy of the model.
    """
    passes = []

    def see(layer: nn.Module, given: tuple, output: Tensor) -> None:
        passes.append({"images": len(output), "train": layer.training, "graph": output.requires_grad})

    [*model.modules()][-1].register_forward_hook(see)
    return passes


class WatchedSGD(torch.optim.SGD):
    """SGD that writes down what happens to its model, in order, in `events`: "forward", "zero_grad", "backward",
    "backward onto old gradients", "step", "step without gradients"."""

    def __init__(self, model: nn.Module, lr: float) -> None:
        super().__init__(model.parameters(), lr=lr)
        self.events: list[str] = []
        self.watched = next(model.parameters())
        arrived: list[Tensor] = []

        def arrive(gradient: Tensor) -> None:
            arrived.append(gradient.clone())
            self.events.append("backward")

        def compare(p: Tensor) -> None:  # torch.autograd.grad does not come here
            if not torch.equal(p.grad, arrived[-1]):
                self.events[-1] = "backward onto old gradients"

        model.register_forward_hook(lambda *_: self.events.append("forward"))
        self.watched.register_hook(arrive)
        self.watched.register_post_accumulate_grad_hook(compare)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.events.append("zero_grad")
        super().zero_grad(set_to_none)

    def step(self, closure: Callable | None = None) -> Any:
        with torch.enable_grad():
            loss = closure() if closure else None
        empty = self.watched.grad is None or not self.watched.grad.any()
        self.events.append("step without gradients" if empty else "step")
        super().step()
        return loss


def observed(answer: Any, probe: Callable, *case: Any) -> Any:
    """What the probe sees; an error for a loss without a graph gets its sentence."""
    with raises_like(
        "graph_cut",
        "`backward()` finds no graph that leads to the weights: something before the loss has cut it.",
        "does not require grad",
        look="`no_grad`, `detach`, `item` or `argmax` before `loss.backward()`; the loss takes the logits themselves",
    ):
        return observe(answer, probe, *case)


def judge_changes(changed: Sequence[str], but: Sequence[str] = ("modes", "weights", "gradients")) -> None:
    """Raise Incorrect for what `probes.changes` found, but not for what the answer may change."""
    for name in changed:
        if name not in but:
            raise Incorrect(f"Your function should leave {CHANGES[name]} unchanged.")


def judge_order(events: Sequence[str]) -> None:
    """Raise Incorrect if the events of a training, see `WatchedSGD`, are not in order."""
    first = {word: i for i, event in reversed([*enumerate(events)]) for word in ("backward", "step") if word in event}
    shown = [event for event, before in zip(events, [None, *events], strict=False) if event != before][:8]
    details = {"expected": "for each batch: forward → zero_grad → backward → step", "yours": " → ".join(shown)}
    wrong_if(
        "backward" not in first,
        "no_backward",
        "No gradient ever reached the weights of the model that came in.",
        look="`loss.backward()`, with a loss that is not detached from this model",
        **details,
    )
    wrong_if(
        "step" not in first,
        "no_step",
        "The optimizer that came in never took a step.",
        look="`optimizer.step()`",
        **details,
    )
    wrong_if(
        first["step"] < first["backward"] or "step without gradients" in events,
        "step_without_backward",
        "A step uses old gradients, or finds none: between `zero_grad` and the step there has to be a backward pass.",
        look="the order of `optimizer.zero_grad()`, `loss.backward()` and `optimizer.step()`",
        **details,
    )
