"""A network trained within a budget of 150 batches: good enough on images that were held out?"""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, call, observe, wrong_if
from torchcourse import data, models
from torchcourse.lab.budget import STEPS, Budget

ENOUGH = {"real": 0.40, "drawn": 0.58}  # share of right answers on images that were held out


@functools.cache
def pictures() -> data.ImageSet:
    return data.load("cifar10", "train")


def solution(budget: Budget) -> nn.Module:
    blocks = [models.ConvBlock(3, 16, stride=2), models.ConvBlock(16, 32, stride=2), models.ConvBlock(32, 64, stride=2)]
    model = nn.Sequential(models.Normalize("cifar10"), *blocks, nn.Flatten(), nn.Linear(64 * 4 * 4, 10))
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=len(budget))
    model.train()
    for images, labels in budget:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return model


def trained(answer: Callable, images: Tensor, labels: Tensor, held_out: Tensor, seed: int) -> dict[str, Any]:
    """A probe: what the trained model says about images that were held out, and how many steps it took."""
    torch.manual_seed(seed)
    budget = Budget(data.ImageSet(images, labels, ("",) * 10, "cifar10"), STEPS)
    steps: Counter[int] = Counter()  # of each parameter

    def count(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        steps.update({id(p) for group in optimizer.param_groups for p in group["params"]})

    hook = register_optimizer_step_post_hook(count)
    try:
        model = call(answer, budget, may_change=True)
    finally:
        hook.remove()
    if not isinstance(model, nn.Module):
        return {"instead": model}
    parameters = [*model.eval().parameters()]
    seen = {"most": max(steps.values(), default=0), "steps": max((steps[id(p)] for p in parameters), default=0)}
    with torch.no_grad():
        try:
            logits = call(model, held_out.to(parameters[0].device if parameters else "cpu"))
        except AnswerRaised as raised:
            if not any(name in str(raised) for name in ("unsigned char", "Byte", "uint8")):
                raise
            return seen | {"bytes": str(raised).splitlines()[0]}
    return seen | {"logits": logits}


def judge(answer: Any, rng: Inputs) -> None:
    order = rng.permutation(len(pictures()))
    train, held_out = pictures()[order[: STEPS * 64]], pictures()[order[-1000:]]
    enough = ENOUGH[pictures().origin]
    for seed in (0, 1):
        seen = observe(answer, trained, *train, held_out[0], seed)
        reached = judge_model(seen, held_out[1])
        if reached >= enough or reached < enough - 0.05:  # a little less may have been bad luck
            break
    steps = seen["steps"]
    wrong_if(
        reached < enough and steps < 0.6 * STEPS,
        "few_steps",
        f"The model that you return was trained for {steps} steps, but the budget has {STEPS} batches: it gets "
        f"{reached:.1%} of the held-out images right.",
        look="`optimizer.step()` for each batch; a `return` or `break` inside the loop; an optimizer for other weights "
        "than those of the model that you return",
    )
    if reached < enough:
        raise Incorrect(
            f"Your model is not good enough after {steps} steps.",
            expected=f"{enough:.0%} of the held-out images right",
            yours=f"{reached:.1%}",
            look="does the loss fall? Print it. Then normalized input, batch norm, learning rate and its schedule, in "
            "this order",
        )


def judge_model(seen: dict, right: Tensor) -> float:
    """The share of right answers. Says what is wrong with them in form."""
    if "instead" in seen:
        raise Incorrect("Your function does not return the trained model.", "an nn.Module", seen["instead"])
    wrong_if(
        seen["most"] > STEPS,
        "more_steps",
        f"Your optimizer took {seen['most']} steps, but there are {STEPS} batches: take one step with each batch.",
        look="a loop inside the loop over the budget, or batches kept for a second round",
    )
    wrong_if(
        "bytes" in seen,
        "bytes",
        "Your model doesn't accept bytes: whatever you do to the images first belongs inside the model.",
        look='`nn.Sequential(models.Normalize("cifar10"), …)`',
        yours=seen.get("bytes"),
    )
    logits = seen["logits"]
    if not isinstance(logits, Tensor) or logits.shape != (len(right), 10):
        raise Incorrect("Your model should return ten logits for each image.", f"shape ({len(right)}, 10)", logits)
    wrong_if(
        not logits.isfinite().all(),
        "nan",
        "Your model returns nan or inf, as it does when the training diverges.",
        look="a smaller learning rate",
    )
    wrong_if(
        (logits >= 0).all() and (logits.sum(1) - 1).abs().max() < 1e-3,
        "probabilities",
        "Your model ends with a softmax, so it returns probabilities. The loss has its own softmax: leave yours out.",
    )
    return (logits.argmax(1).cpu() == right).double().mean().item()


exercise = Exercise(
    title="Better, within a budget",
    minutes=15,
    difficulty=4,
    points=4,
    takeaway="Normalized input, batch norm, a learning rate that rises and falls: little code, most of the gain.",
    hints=(
        "Change one thing at a time and look at the accuracy: the input first, then the learning rate, then the "
        "network. The budget is 150 steps, so make each of them count.",
        '`models.Normalize("cifar10")` as the first layer; convolutions with 16 to 32 channels, each followed by batch '
        "norm and ReLU; Adam, or SGD with momentum; a one-cycle schedule over `len(budget)` steps.",
        "`OneCycleLR(optimizer, max_lr=0.01, total_steps=len(budget))` with Adam, `scheduler.step()` after each batch.",
    ),
    judge=judge,
    seconds=60.0,  # a training of a few seconds, on a machine that others use too
    lends=solution,
)
