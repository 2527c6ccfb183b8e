import torch
import torch.nn.functional as F
from support.answers import mutant, mutants

from torchcourse_labs.tensors.patches import solution


def by_functional_unfold(images, size):
    return F.unfold(images, size, stride=size).transpose(1, 2).unflatten(2, (-1, size, size))


def with_loops(images, size):
    h, w = images.shape[2:]
    corners = [(y, x) for y in range(0, h, size) for x in range(0, w, size)]
    return torch.stack([images[:, :, y : y + size, x : x + size] for y, x in corners], dim=1)


RIGHT = [
    lambda images, size: images.unfold(2, size, size).unfold(3, size, size).permute(0, 2, 3, 1, 4, 5).flatten(1, 2),
    lambda images, size: images.unflatten(3, (-1, size)).unflatten(2, (-1, size)).movedim((2, 4), (1, 2)).flatten(1, 2),
    lambda images, size: by_functional_unfold(images.double(), size).to(images.dtype),
]

WRONG = {
    "loop": [with_loops],
    None: [
        by_functional_unfold,
        *mutants(solution, ".reshape(n, -1, c", ".view(n, -1, c"),
        *mutants(solution, ".reshape(n, -1, c, size, size)", "", ".reshape(n, -1, c * size * size)"),
        mutant(solution, ("reshape(n, c,", "reshape(n, 3,"), ("reshape(n, -1, c", "reshape(n, -1, 3")),
        lambda images, size: solution(images, size, (0, 2, 4, 3, 5, 1)),
        lambda images, size: by_functional_unfold(images.float(), size).to(images.dtype),
    ],
}
