"""A training under a budget: 80 batches of garments, once."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import TensorDataset

from labcheck.authoring import Exercise, Incorrect, Inputs, call, near, observe, wrong_if
from torchcourse import data
from torchcourse.lab.budget import Budget
from torchcourse_labs.mnist_cnn.small_net import solution as SmallNet

STEPS = 80  # batches that the answer gets
ENOUGH = 0.65  # accuracy after so few steps: sound trainings are above, real garments or drawn, unsound ones far below


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


def trained(answer: Callable, images: Tensor, labels: Tensor, steps: int, unseen: Tensor, seed: int) -> dict[str, Any]:
    """A probe: batches used, most steps of a parameter with a gradient, those of the network, logits for new images."""
    torch.manual_seed(seed)
    budget = Budget(TensorDataset(images, labels), steps)
    taken: Counter[Tensor] = Counter()  # the parameters themselves: an id may be used again

    def count(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        taken.update(p for group in optimizer.param_groups for p in group["params"] if p.grad is not None)

    with register_optimizer_step_post_hook(count):
        model = call(answer, budget, may_change=True, may_return_none=True)
    if not isinstance(model, nn.Module):
        return {"instead": model}
    seen = {"used": budget.used, "most": max(taken.values(), default=0)}
    seen["steps"] = max((taken[p] for p in model.parameters()), default=0)
    with torch.no_grad():
        return seen | {"logits": call(model.cpu().eval(), unseen, may_return_none=True)}


def judge(answer: Any, rng: Inputs) -> None:
    garments, n = data.load("fashion_mnist", "train").subset(slice(8000)), 64 * STEPS
    order, (mean,), (std,) = rng.permutation(len(garments)), *data.MEAN_STD["fashion_mnist"]
    learned, unseen = garments.subset(order[:n]), garments.subset(order[n : n + 1000])
    given, images = ((each.images.float() / 255 - mean) / std for each in (learned, unseen))
    batches = given, learned.labels, STEPS
    seen = observe(answer, trained, *batches, torch.cat([images, (images[::2] + images[1::2]) / 2]), rng.size(0, 10**6))
    logits, between = judge_form(seen, 1500, STEPS).split([1000, 500])
    accuracy, steps = (logits.argmax(1) == unseen.labels).float().mean().item(), seen["steps"]
    wrong_if(
        ((logits >= 0) & (logits <= 1)).all() or near(logits.exp().sum(1), torch.ones(1000)),
        "softmax",
        "Your network ends with a softmax, a log-softmax, or a sigmoid, but the exercise asks for logits: "
        "`cross_entropy` has a softmax inside.",
        look="the last line of `forward`, or the last layer in `__init__`",
    )
    wrong_if(
        seen["used"] < STEPS or 0 < seen["most"] < STEPS or (accuracy < ENOUGH and steps < STEPS),
        "few_steps",
        f"You took {seen['used']} of the 80 batches, and the network that you return has taken {steps} steps with a "
        "gradient. Take one step with each batch, and with nothing else.",
        look="a `return` or `break` inside the loop, if you took few batches; if you took all, a `next(iter(batches))` "
        "before the loop, a batch without `backward()` and then `step()`, a `zero_grad` between them, an optimizer of "
        "another network, or a network made inside the loop",
    )
    wrong_if(
        accuracy >= ENOUGH and near(between, (logits[::2] + logits[1::2]) / 2, atol=1e-3),
        "linear",
        "Your network is linear: the logits of the mean of two images are the mean of their logits. In so few "
        "steps, that does as well as a small convolutional network, but with more steps it would fall behind.",
        look="at least two layers, with a nonlinearity such as ReLU between them",
    )
    if accuracy < ENOUGH:
        problem = f"Your network has not learned enough in {steps} steps."
        look = (
            "does the loss fall? Print it. Then `zero_grad` once for each batch, the images as they come (they are "
            "normalized already), and the learning rate, by factors of three: what does a scheduler leave of it?"
        )
        raise Incorrect(problem, "at least 65% of unseen garments right", f"{accuracy:.1%}", look)


def judge_form(seen: dict[str, Any], images: int, steps: int) -> Tensor:
    """The logits for so many images, of a network that took no more steps than it should."""
    if "instead" in seen:
        raise Incorrect("Your function should return the trained network.", "an nn.Module", seen["instead"])
    if not isinstance(seen["logits"], Tensor) or seen["logits"].shape != (images, 10):
        raise Incorrect("The network should give ten logits for each image.", (images, 10), seen["logits"])
    wrong_if(
        seen["most"] > seen["used"],
        "more_steps",
        f"Your optimizer took {seen['most']} steps, and you took {seen['used']} of the {steps} batches. Take one step "
        "with each batch, and with nothing else.",
        look="a loop in the loop over the batches, a batch used again (`next(iter(batches))`, a list), or other images",
    )
    return seen["logits"].float()


exercise = Exercise(
    seconds=120.0,
    title="Learn from few batches",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Under a budget, the learning rate and its schedule matter more than the network.",
    hints=(
        "A network, an optimizer, and the loop of chapter 02, once over the batches. Then tune the learning rate.",
        "`optimizer = torch.optim.Adam(model.parameters(), lr=0.01)`, and a learning rate that rises and falls: "
        "`OneCycleLR(optimizer, 0.01, total_steps=len(batches))`, `scheduler.step()` after each `optimizer.step()`.",
    ),
    judge=judge,
)
