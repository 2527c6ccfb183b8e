"""The share of rows whose largest logit is at the label."""

import torch.nn.functional as F
from torch import Tensor, tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like


def draw(rng: Inputs) -> list[tuple]:
    """First as many images as classes: there, mixing up the two axes gives a number instead of an error. Then a prime
    number of images: no share of them is a round number. Then few images, all right, some with high probabilities."""
    square = rng.size(7, 12)
    cases = [ranked(rng, n, classes) for n, classes in ((square, square), (rng.pick((17, 19, 23, 29, 31)), 35))]
    labels = tensor([2, 0, 0])
    sure = rng.rand(3, 4).double() + F.one_hot(labels, 4) * tensor([[9], [8], [1.1]])
    return [*cases, (sure, labels)]


def ranked(rng: Inputs, n: int, classes: int) -> tuple[Tensor, Tensor]:
    """Logits and labels. Some labels have the largest logit, some the second largest, one the smallest, others any."""
    logits, labels = rng.randn(n, classes), rng.ints(0, classes, (n,))
    right, second = rng.size(2, n // 2 - 1), rng.size(1, 2)
    others = [rng.size(2, classes - 1) for _ in range(n - right - second - 1)]
    ranks = [0] * right + [1] * second + others + [classes - 1]
    for i, rank in zip(rng.permutation(n).tolist(), ranks, strict=True):
        other = logits[i].argsort(descending=True)[rank]
        logits[i, [labels[i], other]] = logits[i, [other, labels[i]]]
    return logits, labels


def solution(logits: Tensor, labels: Tensor) -> float:
    return (logits.argmax(dim=1) == labels).float().mean().item()


exercise = Exercise(
    title="Accuracy",
    minutes=3,
    difficulty=1,
    points=1,
    takeaway="The largest logit is also the largest probability: you don't need a softmax for the accuracy.",
    hints=(
        "Which class does the model choose for each image? Compare with the labels, then take the mean.",
        "`logits.argmax(dim=1)` gives one class for each row; `==` compares; a mean needs floats.",
        "`(logits.argmax(dim=1) == labels).float().mean()`, and `.item()` for a Python number.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        rtol=1e-5,
        atol=1e-6,
        says=[
            looks_like(
                "for_each_image",
                "You return one value for each image: take the mean of them.",
                lambda logits, labels: logits.argmax(1) == labels,
            ),
            looks_like(
                "count",
                "This is the number of right answers: divide it by the number of images.",
                lambda logits, labels: int((logits.argmax(1) == labels).sum()),
            ),
            looks_like(
                "percent",
                "This is the accuracy in percent; the exercise asks for a share from 0 to 1.",
                lambda logits, labels: 100 * solution(logits, labels),
            ),
            looks_like(
                "other_axis",
                "You took the argmax over the images, for each class. What counts is the best class for each image.",
                lambda logits, labels: (logits.argmax(0) == labels).float().mean().item(),
                look="the `dim` of argmax: the classes lie along axis 1",
            ),
            looks_like(
                "whole_tensor",
                "`argmax()` without `dim` looks for the largest logit of the whole tensor, not of each row.",
                lambda logits, labels: (logits.argmax() == labels).float().mean().item(),
            ),
            looks_like(
                "amax",
                "You compared the largest logits with the labels. What counts is where they are: `argmax`.",
                lambda logits, labels: (logits.amax(1) == labels).float().mean().item(),
            ),
            looks_like(
                "all_with_all",
                "You compared every prediction with every label: the shapes [N, 1] and [N] broadcast to [N, N].",
                lambda logits, labels: (logits.argmax(1, keepdim=True) == labels).float().mean().item(),
            ),
        ],
    ),
)
