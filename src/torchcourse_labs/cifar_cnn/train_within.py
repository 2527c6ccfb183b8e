"""A network trained within a budget of 150 batches: good enough on images that were held out?"""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, observe, raises_like, wrong_if
from torchcourse import data, models
from torchcourse.lab.budget import STEPS, Budget
from torchcourse_labs.mnist_cnn.train_garments import judge_form, trained

ENOUGH = {"real": 0.40, "synthetic": 0.58}  # share of right answers on images that were held out


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


def judge(answer: Any, rng: Inputs) -> None:
    order, enough = rng.permutation(len(pictures())), ENOUGH[pictures().origin]
    learned, (held_out, right) = pictures()[order[: STEPS * 64]], pictures()[order[-1000:]]
    for seed in rng.sizes(2, 0, 10**6):
        seen, reached = judge_model(answer, learned, held_out, right, seed)
        if reached >= enough or reached < enough - 0.05:  # a little less may have been bad luck
            break
    steps = seen["steps"]
    wrong_if(
        reached < enough and steps < 0.6 * STEPS,
        "few_steps",
        f"The model that you return was trained for {steps} steps, but the budget has {STEPS} batches: it gets "
        f"{reached:.1%} of the held-out images right.",
        look="`optimizer.step()` for each batch; a `return` or `break` inside the loop; an optimizer for other weights",
    )
    if reached < enough:
        look = "print the loss: does it fall? `zero_grad()` for each batch; normalized input, batch norm, learning rate"
        expected = f"{enough:.0%} of held-out images right"
        raise Incorrect(f"Your model is not good enough after {steps} steps.", expected, f"{reached:.1%}", look)


def judge_model(answer: Any, learned: tuple, held_out: Tensor, right: Tensor, seed: int) -> tuple[dict, float]:
    """What was seen of a training, and the accuracy of its model on images that were held out."""
    with raises_like(
        "bytes",
        "Your model doesn't accept bytes: whatever you do to the images first belongs inside the model.",
        "unsigned char",
        "Byte",
        "uint8",
        look='`nn.Sequential(models.Normalize("cifar10"), …)`',
    ):
        seen = observe(answer, trained, *learned, STEPS, held_out, seed)
    logits = judge_form(seen, len(right), STEPS)
    wrong_if(
        (logits >= 0).all() and (logits.sum(1) - 1).abs().max() < 1e-3,
        "probabilities",
        "Your model ends with a softmax, so it returns probabilities. The loss has its own softmax: leave yours out.",
    )
    return seen, (logits.argmax(1) == right).double().mean().item()


exercise = Exercise(
    title="Better, within a budget",
    minutes=15,
    difficulty=4,
    points=4,
    takeaway="Normalized input, batch norm, a learning rate that rises and falls: little code, most of the gain.",
    hints=(
        "Change one thing at a time and look at the accuracy: the input, then the learning rate, then the network.",
        '`models.Normalize("cifar10")` as the first layer; convolutions with 16 to 32 channels, each followed by batch '
        "norm and ReLU; Adam, or SGD with momentum; a one-cycle schedule over `len(budget)` steps.",
        "`OneCycleLR(optimizer, max_lr=0.01, total_steps=len(budget))` with Adam, `scheduler.step()` after each batch.",
    ),
    judge=judge,
    seconds=60.0,  # a training of a few seconds, on a machine that others use too
    lends=solution,
)
