"""A training under a budget: 80 batches of garments, once."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, call, observe, wrong_if
from labcheck.probes import Batch
from torchcourse import data
from torchcourse_labs.mnist_cnn.small_net import solution as SmallNet

STEPS = 80  # batches that the answer gets
ENOUGH = 0.65  # accuracy after so few steps: sound trainings are above, real garments or drawn, unsound ones far below


@functools.cache
def garments() -> Any:
    """Some of Fashion-MNIST's training images."""
    return data.load("fashion_mnist", "train").subset(slice(8000))


def normalized(images: Tensor) -> Tensor:
    (mean,), (std,) = data.MEAN_STD["fashion_mnist"]
    return (images.float() / 255 - mean) / std


def solution(batches: Any) -> nn.Module:
    model = SmallNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=len(batches))
    model.train()
    for images, labels in batches:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return model


class OnePass:
    """Batches that come once. `given` counts them."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches, self.passes, self.given = batches, 0, 0

    def __iter__(self) -> Iterator[Batch]:
        self.passes += 1
        if self.passes > 1:
            raise RuntimeError(f"the {len(self.batches)} batches come only once")
        for batch in self.batches:
            self.given += 1
            yield batch

    def __len__(self) -> int:
        return len(self.batches)


def watched(answer: Callable, images: Tensor, labels: Tensor, unseen: Tensor, seed: int) -> dict[str, Any]:
    """A probe: train on these garments, and see what the network says about some that it has not seen."""
    torch.manual_seed(seed)
    batches = OnePass(list(zip(images.split(64), labels.split(64), strict=True)))
    steps, rates, with_gradient = Counter(), [], []

    def see(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        steps[id(parameters[0])] += 1  # a new optimizer for a second round counts, too
        rates.append(max(float(group["lr"]) for group in optimizer.param_groups))
        with_gradient.append(any(each.grad is not None for each in parameters))

    with register_optimizer_step_pre_hook(see):
        model = call(answer, batches, may_change=True, may_return_none=True)
    seen = {"passes": batches.passes, "given": batches.given, "steps": max(steps.values(), default=0), "rates": rates}
    seen["with gradient"] = sum(with_gradient)
    if not isinstance(model, nn.Module):
        return seen | {"instead": model}
    model.cpu().eval()
    with torch.no_grad():
        seen["logits"] = call(model, unseen, may_return_none=True)
        seen["between"] = call(model, (unseen[::2] + unseen[1::2]) / 2, may_return_none=True)
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    order, n = rng.permutation(len(garments())), 64 * STEPS
    learned, unseen = garments().subset(order[:n]), garments().subset(order[n : n + 1000])
    images = normalized(learned.images), learned.labels, normalized(unseen.images)
    try:
        seen = observe(answer, watched, *images, rng.size(0, 10**6))
    except AnswerRaised as raised:
        if "batches come only once" not in str(raised):
            raise
        seen = {"passes": 2}
    wrong_if(
        seen["passes"] > 1,
        "second_pass",
        "You went through the batches a second time: they come only once.",
        look="one loop, no epochs; `next(iter(batches))` counts as a pass, too",
    )
    if "instead" in seen:
        raise Incorrect(
            "Your function should return the trained network.", yours=seen["instead"], look="`return model`"
        )
    logits = seen["logits"]
    if not isinstance(logits, Tensor) or logits.shape != (1000, 10):
        raise Incorrect("The network should give logits for 1,000 images.", "a tensor of shape (1000, 10)", logits)
    judge_training(seen, logits.float(), unseen.labels)


def judge_training(seen: dict[str, Any], logits: Tensor, classes: Tensor) -> None:
    accuracy = (logits.argmax(1) == classes).float().mean().item()
    low, rates = accuracy < ENOUGH, seen["rates"]
    it_gets = f"{accuracy:.1%} of the garments are right, and at least 65% should be."
    bounded = ((logits >= 0) & (logits <= 1)).all() or torch.allclose(logits.exp().sum(1), torch.ones(1000), atol=1e-4)
    wrong_if(
        bounded,
        "softmax",
        "Your network ends with a softmax, a log-softmax, or a sigmoid, but the exercise asks for logits: "
        "`cross_entropy` has a softmax inside.",
        look="the last line of `forward`, or the last layer in `__init__`",
    )
    wrong_if(
        seen["steps"] > STEPS,
        "more_steps",
        f"Your optimizer took {seen['steps']} steps with 80 batches. Use each batch for one step.",
        look="a loop inside the loop over the batches, or batches that are kept for a second round",
    )
    wrong_if(
        low and seen["given"] < STEPS,
        "stopped_early",
        f"Your loop ended after {seen['given']} of 80 batches. {it_gets}",
        look="a `return` or `break` inside the loop, or no loop",
    )
    wrong_if(
        low and not seen["with gradient"],
        "no_gradient",
        f"Your optimizer took {seen['steps']} steps, none of them with a gradient. {it_gets}",
        look="`loss.backward()`, then `optimizer.step()`, and no `zero_grad` between the two",
    )
    wrong_if(
        low and sum(rate < max(rates) / 1000 for rate in rates) > STEPS / 2,
        "rate_fell",
        f"For more than half of the steps, your learning rate was less than a thousandth of its maximum. {it_gets}",
        look="the scheduler counts the calls of its `step()`, and here that is one for each batch",
    )
    wrong_if(
        not low and torch.allclose(seen["between"].float(), (logits[::2] + logits[1::2]) / 2, atol=1e-3),
        "linear",
        "Your network is linear: the logits of the mean of two images are the mean of their logits. In so few "
        "steps, that does as well as a small convolutional network, but with more steps it would fall behind.",
        look="at least two layers, with a nonlinearity such as ReLU between them",
    )
    if low:
        look = f"the learning rate, by factors of three (yours went up to {max(rates, default=0):g}), and `zero_grad` "
        look += "once for each batch. Near 10%, it is guessing: does the loss fall, and is it the network you trained?"
        raise Incorrect("Your network has not learned enough.", "at least 65% right", f"{accuracy:.1%}", look)


exercise = Exercise(
    seconds=120.0,
    title="Learn from few batches",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Under a budget, the learning rate and its schedule matter more than the network.",
    hints=(
        "A network, an optimizer, and the loop of chapter 02, once over the batches. Then tune the learning rate.",
        "`len(batches)` is known in advance, so the learning rate can rise and fall within it: OneCycleLR.",
        "`optimizer = torch.optim.Adam(model.parameters(), lr=0.01)`, `OneCycleLR(optimizer, 0.01, "
        "total_steps=len(batches))`, and `scheduler.step()` after each `optimizer.step()`.",
    ),
    judge=judge,
)
