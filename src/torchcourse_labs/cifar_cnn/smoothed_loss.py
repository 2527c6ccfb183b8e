"""Cross-entropy with smoothed targets, by hand."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from labcheck import probes
from labcheck.authoring import Exercise, Inputs, Spec, looks_like, observe, same, wrong_if


def draw(rng: Inputs) -> list[tuple[Tensor, Tensor, float]]:
    n, classes = rng.size(5, 9), rng.size(3, 6)
    logits, labels = rng.randn(n, classes) * 2, rng.ints(0, classes - 1, (n,))  # the last class is absent
    return [
        (logits, labels, round(0.15 + 0.2 * rng.rand(1).item(), 3)),
        (rng.randn(7, 2), rng.ints(0, 2, (7,)), round(0.6 + 0.2 * rng.rand(1).item(), 3)),
        (rng.randn(6, 4) * 200, rng.ints(0, 4, (6,)), 0.25),  # exp of such numbers overflows
        (rng.randn(4, 5), rng.ints(0, 5, (4,)), 0.0),
        (rng.randn(1, 3), rng.ints(0, 3, (1,)), 1.0),
    ]


def solution(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    return loss(logits.log_softmax(dim=1), labels, smoothing)


def loss(logs: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    classes = logs.shape[1]
    target = F.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes
    return -(target * logs).sum(dim=1).mean()


def explain(yours: Tensor, expected: Tensor, logits: Tensor, labels: Tensor, smoothing: float) -> None:
    wrong_if(
        yours.shape == expected.shape and logits.abs().max() > 80,
        "large_logits",
        "Your loss is right for small logits, but for large ones `exp` overflows, or the logarithm of a 0 is −inf.",
        look="`log_softmax` subtracts the largest logit first; a small number added before the logarithm is not enough",
        expected=expected,
        yours=yours,
    )


def afterward(answer: Any, *cases: tuple) -> None:
    for case in cases:
        _, gradient = observe(answer, probes.with_gradient, *case)
        look = "`.item()`, `torch.tensor(…)`, `.detach()`, `.data`, `no_grad` and NumPy cut the graph, or a part of it"
        expected, what = probes.with_gradient(solution, *case)[1], "The gradient that reaches the logits"
        same(case[0] * 0 if gradient is None else gradient, expected, what, False, 1e-2, 1e-4, look)
    wrong_if(
        any("cross_entropy" in name for name in observe(answer, probes.functions, *cases[0])),
        "pytorchs_own",
        "The result is right, but `F.cross_entropy` computed it. Here you compute the loss yourself.",
        look="`log_softmax`, and your own target",
    )


exercise = Exercise(
    title="Stretch: label smoothing by hand",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="With a target just below one, the loss no longer rewards ever more certainty.",
    hints=(
        "Cross-entropy is −Σ target · log(softmax), where the target is one-hot. Change the target, keep the sum.",
        "`target = F.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes`, then "
        "`-(target * logits.log_softmax(1)).sum(1).mean()`.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        explain=explain,
        afterward=afterward,
        dtype=False,
        look="the target, (1 − smoothing) · one-hot + smoothing / classes, which adds up to one, times "
        "`log_softmax(dim=1)`: minus the sum over the classes, and then the mean over the images; `[:, labels]` would "
        "take the columns of all labels from each row, `gather(1, labels[:, None])` takes one",
        says=[
            looks_like(
                "to_wrong_classes",
                "You give the smoothing to the wrong classes only. Here all classes share it: smoothing / classes.",
                lambda logits, labels, s: solution(logits, labels, s * logits.shape[1] / (logits.shape[1] - 1)),
            ),
            looks_like(
                "no_log_softmax",
                "The target multiplies log-probabilities, not logits, and not probabilities.",
                loss,
                lambda logits, labels, s: loss(logits.softmax(dim=1), labels, s),
                look="`logits.log_softmax(dim=1)`",
            ),
        ],
    ),
)
