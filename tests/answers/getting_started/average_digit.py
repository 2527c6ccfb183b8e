import torch
from support.answers import mutants

from torchcourse_labs.getting_started.average_digit import solution


def by_loop(images, labels, digit):
    chosen = [image.double() for image, label in zip(images, labels, strict=True) if label == digit]
    return sum(chosen) / len(chosen)


def blackened(images, labels, digit):
    images[labels != digit] = 0
    return images.float().sum(dim=0) / (labels == digit).sum()


RIGHT = [
    by_loop,
    lambda images, labels, digit: images[torch.where(labels == digit)[0]].mean(0, dtype=torch.float32),
    lambda images, labels, digit: torch.from_numpy(images.numpy()[labels.numpy() == digit].mean(axis=0)),
]

WRONG = {
    "one_number": mutants(solution, "mean(dim=0)", "mean()"),
    "not_averaged": mutants(solution, ".mean(dim=0)", ""),
    None: [
        blackened,
        *mutants(solution, "mean(dim=0)", "mean(dim=0, keepdim=True)", "mean(dim=0).to(torch.uint8)"),
        *mutants(solution, "dim=0", "dim=1"),
        *mutants(solution, ".mean(dim=0)", "[0]", "[:100].mean(dim=0)"),
        *mutants(solution, ".float()", ""),
    ],
}
