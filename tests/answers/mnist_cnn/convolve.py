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


RIGHT = [by_places, by_matmul]

WRONG = {
    "last_places": [
        mutant(by_places, ("range(rows)", "range(rows - 1)"), ("range(columns)", "range(columns - 1)")),
        lambda images, weight, bias: solution(images, weight, bias)[:, :, :-1],
    ],
    "window": [*mutants(by_places, "h, w =", "w, h ="), *mutants(solution, "weight.shape[3]", "weight.shape[2]")],
    "library": [F.conv2d],
    None: [
        mutant(solution, ("ochw->boij", "ochw->bocij"), (" + bias[:, None, None]", "")),
        lambda images, weight, bias: F.conv2d(images, weight, bias, padding=1),
        lambda images, weight, bias: F.conv2d(images, weight.flip(2, 3), bias),
    ],
}
