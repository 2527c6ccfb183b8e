import torch.nn.functional as F
from support.answers import mutants

from torchcourse_labs.cifar_cnn.smoothed_loss import solution


def in_one(logits, labels, smoothing):
    classes = logits.shape[1]
    target = F.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes
    return -(target * logits.log_softmax(1)).sum(1).mean()


def by_gather(logits, labels, smoothing):
    logs = logits - logits.logsumexp(1, keepdim=True)
    right = logs.gather(1, labels[:, None])[:, 0]
    return -((1 - smoothing) * right + smoothing * logs.mean(1)).mean()


RIGHT = [in_one, by_gather]

WRONG = {
    "large_logits": mutants(in_one, "logits.log_softmax(1)", "logits.softmax(1).log()"),
    "pytorchs_own": [lambda logits, labels, s: F.cross_entropy(logits, labels, label_smoothing=s)],
    None: [
        lambda logits, labels, s: solution(logits.detach(), labels, s),
        *mutants(in_one, "F.one_hot(labels, classes)", "F.one_hot(labels)"),
        *mutants(in_one, "(1 - smoothing) + smoothing / classes", "smoothing + (1 - smoothing) / classes", "1"),
        *mutants(in_one, ".sum(1).mean()", ".sum(1)", ".sum()", ".mean()"),
    ],
}
