"""What the checks of training loops have in common: batches, what no training may change, the order of its steps."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from labcheck.authoring import Incorrect, Inputs, wrong_if
from labcheck.probes import Batch

KEPT = {
    "layers": "the layers of the model",
    "requires_grad": "`requires_grad` of the parameters",
    "batches": "the batches that it gets",
    "switch": "the gradient mode, `torch.is_grad_enabled()`,",
}


def make_batches(rng: Inputs, sizes: Sequence[int], height: int, width: int, classes: int) -> list[Batch]:
    """Pairs of images, float32 [size, 1, height, width], and labels, int64 [size]."""
    return [(rng.randn(size, 1, height, width), rng.ints(0, classes, (size,))) for size in sizes]


class Passes(list):
    """What went through a model, in order, a dict for each pass of images. It sees the last layer only, so a model that
    is called as `model.forward(images)` or layer by layer is seen as well, and so is a copy of it.

    images: how many; mode: "train", "eval", or "mixed"; graph: whether backward could start here; copy: of the model?
    """

    def __init__(self, model: nn.Module, events: list[str] | None = None) -> None:
        super().__init__()
        last = [*model.modules()][-1]

        def see(layer: nn.Module, given: tuple, output: Tensor) -> None:
            copy = layer is not last
            modes = {layer.training} if copy else {module.training for module in model.modules()}
            mode = "mixed" if len(modes) > 1 else "train" if modes == {True} else "eval"
            self.append({"images": len(output), "mode": mode, "graph": output.requires_grad, "copy": copy})
            if events is not None:
                events.append("forward of a copy" if copy else "forward")

        last.register_forward_hook(see)


class WatchedSGD(torch.optim.SGD):
    """SGD that writes down what happens to its model.

    passes: see Passes. events, in order: "forward", "forward of a copy", "zero_grad", "backward", "backward onto old
    gradients", "step", "step without gradients".
    """

    def __init__(self, model: nn.Module, lr: float) -> None:
        super().__init__(model.parameters(), lr=lr)
        self.events: list[str] = []
        self.passes = Passes(model, self.events)
        self.watched = next(model.parameters())
        arrived: list[Tensor] = []

        def arrive(gradient: Tensor) -> None:
            arrived.append(gradient.clone())
            self.events.append("backward")

        def compare(p: Tensor) -> None:  # torch.autograd.grad does not come here
            if not torch.equal(p.grad, arrived[-1]):
                self.events[-1] = "backward onto old gradients"

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


def in_order(events: list[str], longest: int = 8) -> str:
    """Events as a sentence shows them. Neighbors that are equal count once."""
    kept = [event for event, before in zip(events, [None, *events], strict=False) if event != before]
    return " → ".join([*kept[:longest], *(["…"] if len(kept) > longest else [])]) or "nothing"


def judge_changes(changed: Sequence[str], kept: dict[str, str] = KEPT) -> None:
    """Raise Incorrect if something in `kept` is among what `probes.changes` found."""
    what = next((words for name, words in kept.items() if name in changed), None)
    if what:
        raise Incorrect(f"Your function should leave {what} unchanged.")


def judge_order(events: Sequence[str]) -> None:
    """Raise Incorrect if the events of a training, see `WatchedSGD`, are not in order."""
    backward, step = (
        next((i for i, event in enumerate(events) if event.startswith(word)), len(events))
        for word in ("backward", "step")
    )
    details = {"expected": "for each batch: forward → zero_grad → backward → step", "yours": in_order(list(events))}
    wrong_if(
        backward == len(events),
        "no_backward",
        "No gradient ever reached the weights of the model that came in.",
        look="`loss.backward()`, with a loss that is not detached from this model",
        **details,
    )
    wrong_if(
        step == len(events),
        "no_step",
        "The optimizer that came in never took a step.",
        look="`optimizer.step()`",
        **details,
    )
    wrong_if(
        step < backward,
        "step_before_backward",
        "Your step comes before the backward pass: it uses old gradients, or none.",
        look="the order of `optimizer.step()` and `loss.backward()`",
        **details,
    )
    wrong_if(
        "step without gradients" in events,
        "cleared_before_step",
        "A step finds no gradients, or only zeros: there has to be a backward pass after clearing and before the step.",
        look="where `zero_grad` is",
        **details,
    )
