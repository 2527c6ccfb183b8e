import torch
import torch.nn.functional as F
from support.answers import mutants

from torchcourse_labs.cifar_cnn.smoothed_loss import solution


def in_one(logits, labels, smoothing):
    classes = logits.shape[1]
    target = F.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes
    return -(target * logits.log_softmax(1)).sum(1).mean()


def by_a_loop(logits, labels, smoothing):
    total = 0
    for row, label in zip(logits, labels, strict=True):
        logs = F.log_softmax(row, dim=0)
        for k in range(len(row)):
            total = total - logs[k] * (smoothing / len(row) + (1 - smoothing) * (k == label))
    return total / len(labels)


def by_gather(logits, labels, smoothing):
    logs = logits - logits.logsumexp(1, keepdim=True)
    right = logs.gather(1, labels[:, None])[:, 0]
    return -((1 - smoothing) * right + smoothing * logs.mean(1)).mean()


RIGHT = [
    in_one,
    by_a_loop,
    by_gather,
    lambda logits, labels, s: (1 - s) * F.nll_loss(logits.log_softmax(1), labels) - s * logits.log_softmax(1).mean(),
]

WRONG = {
    "large_logits": mutants(
        in_one, "logits.log_softmax(1)", "logits.softmax(1).log()", "(logits.softmax(1) + 1e-9).log()"
    ),
    "gradient": [
        lambda logits, labels, s: solution(logits.detach(), labels, s),
        *mutants(in_one, "logits.log_softmax(1)", "(logits - logits.detach().logsumexp(1, keepdim=True))"),
    ],
    "pytorchs_own": [lambda logits, labels, s: F.cross_entropy(logits, labels, label_smoothing=s)],
    None: [
        *mutants(in_one, "F.one_hot(labels, classes)", "F.one_hot(labels)"),
        *mutants(in_one, "(1 - smoothing) + smoothing / classes", "smoothing + (1 - smoothing) / classes", "1"),
        *mutants(in_one, ".sum(1).mean()", ".sum(1)", ".sum(1).mean().item()"),
        *mutants(in_one, "return -", "return ", "loss = "),
        *mutants(in_one, "logits.log_softmax(1)", "logits.log_softmax(0)", "logits.softmax(1).log_softmax(1)"),
        lambda logits, labels, s: solution(logits, labels, 0.1),
        lambda logits, labels, s: F.kl_div(logits.log_softmax(1), F.one_hot(labels, logits.shape[1]) * (1 - s)),
        lambda logits, labels, s: torch.tensor(float(solution(logits, labels, s)))[None],
    ],
}
