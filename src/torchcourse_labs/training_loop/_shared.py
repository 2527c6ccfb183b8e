"""What the checks of training loops have in common: batches, what no training may change, the order of its steps."""

from collections.abc import Sequence

from labcheck import probes
from labcheck.authoring import Incorrect, Inputs, wrong_if
from labcheck.probes import Batch, in_order

KEPT = {
    "layers": "the layers of the model",
    "requires_grad": "`requires_grad` of the parameters",
    "batches": "the batches that it gets",
    "switch": "the gradient mode, `torch.is_grad_enabled()`,",
}


def make_batches(rng: Inputs, sizes: Sequence[int], height: int, width: int, classes: int) -> list[Batch]:
    return [probes.batch(rng, size, height, width, classes) for size in sizes]


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
