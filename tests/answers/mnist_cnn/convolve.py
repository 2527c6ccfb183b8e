import torch
import torch.nn.functional as F
from support.answers import mutant, mutants

from torchcourse_labs.mnist_cnn.convolve import solution


def by_places(images, weight, bias):
    h, w = weight.shape[2:]
    rows, columns = images.shape[2] - h + 1, images.shape[3] - w + 1
    output = torch.zeros(len(images), len(weight), rows, columns)
    for row in range(rows):
        for column in range(columns):
            window = images[:, :, row : row + h, column : column + w]
            output[:, :, row, column] = torch.einsum("bchw,ochw->bo", window, weight) + bias
    return output


def by_matmul(images, weight, bias):
    h, w = weight.shape[2:]
    output = weight.flatten(1) @ F.unfold(images, (h, w)) + bias[:, None]
    return output.unflatten(2, (images.shape[2] - h + 1, images.shape[3] - w + 1))


def by_shifts(images, weight, bias):
    h, w = weight.shape[2:]
    rows, columns = images.shape[2] - h + 1, images.shape[3] - w + 1
    output = bias.view(1, -1, 1, 1)
    for i in range(h):
        for j in range(w):
            part = images[:, :, i : i + rows, j : j + columns].movedim(1, -1)
            output = output + (part @ weight[:, :, i, j].T).movedim(-1, 1)
    return output


RIGHT = [by_places, by_matmul, by_shifts]

WRONG = {
    "last_places": [
        mutant(by_places, ("range(rows)", "range(rows - 1)"), ("range(columns)", "range(columns - 1)")),
        lambda images, weight, bias: solution(images, weight, bias)[:, :, :-1],
    ],
    "library": [F.conv2d, lambda images, weight, bias: torch.conv2d(images, weight, bias)],
    None: [
        mutant(solution, ("ochw->boij", "ochw->bocij"), (" + bias[:, None, None]", "")),
        lambda images, weight, bias: F.conv2d(images, weight, bias, padding=1),
        *mutants(solution, "weight.shape[3]", "weight.shape[2]"),
        *mutants(solution, "windows, weight)", "windows, weight).movedim(1, -1)", "windows, weight).sum()"),
        lambda images, weight, bias: F.conv2d(images, weight, bias, stride=2),
        lambda images, weight, bias: solution(images, weight, bias).double(),
        lambda images, weight, bias: solution(images, weight, bias).tolist(),
    ],
}
