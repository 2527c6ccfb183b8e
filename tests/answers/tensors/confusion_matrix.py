import torch
import torch.nn.functional as F
from support.answers import mutants

from torchcourse_labs.tensors.confusion_matrix import solution


def image_by_image(labels, predicted, classes):
    matrix = torch.zeros(classes, classes, dtype=torch.int64)
    for i, j in zip(labels, predicted, strict=True):
        matrix[i, j] += 1
    return matrix


def loop_over_cells(labels, predicted, classes):
    rows = [[((labels == i) & (predicted == j)).sum() for j in range(classes)] for i in range(classes)]
    return torch.tensor(rows)


def one_hot(labels, predicted, classes):
    return F.one_hot(labels, classes).float().T @ F.one_hot(predicted, classes).float()


def lost_in_a_copy(labels, predicted, classes):
    matrix = torch.zeros(classes, classes)
    matrix[labels][:, predicted] += 1
    return matrix


RIGHT = [loop_over_cells, one_hot]

WRONG = {
    "loop": [image_by_image],
    "minlength": mutants(solution, ", minlength=classes**2", "", ", minlength=classes"),
    "in_a_copy": [lost_in_a_copy],
    None: [
        lambda labels, predicted, classes: F.pad(solution(labels, predicted, classes)[:-1, :-1], (0, 1, 0, 1)),
        lambda labels, predicted, classes: solution(labels, predicted, 10),
        lambda labels, predicted, classes: (labels == predicted).float().mean(),
        lambda *given: solution(*given).flatten(),
    ],
}
