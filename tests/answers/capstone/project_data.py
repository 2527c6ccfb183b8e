import torch
from answers.capstone._lab import written
from support.answers import mutants

from torchcourse import data
from torchcourse.data import ImageSet

split = written("images").split


def by_mask(seed):
    images = data.load("cifar10", "train")
    mask = torch.zeros(len(images), dtype=torch.bool)
    mask[torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[: len(images) // 10]] = True
    return [images.subset(~mask), images.subset(mask)]


def at_equal_distances(seed):
    images = data.load("mnist", "train")
    held_out = torch.zeros(len(images), dtype=torch.bool)
    held_out[torch.arange(len(images) // 10) * 10 + seed % 10] = True
    return images.subset(~held_out), images.subset(held_out)


RIGHT = [split, by_mask]

WRONG = {
    "test_images": [lambda seed: (data.load("mnist", "train"), data.load("mnist", "test"))],
    "each_once": mutants(split, "order[tenth:]", "order", "order[tenth + 1 :]"),
    "not_repeatable": mutants(split, ", generator=torch.Generator().manual_seed(seed)", ""),
    "not_random": [at_equal_distances, *mutants(split, "manual_seed(seed)", "manual_seed(0)")],
    None: [
        lambda seed: split(seed)[::-1],
        *mutants(split, "// 10", "// 5"),
        *mutants(split, "return images", "return images[:0], images"),
        lambda seed: (split(seed)[0], data.load("mnist", "train").subset(slice(30))),
        lambda seed: [ImageSet(255 - part.images, part.labels, part.classes, part.name) for part in split(seed)],
    ],
}
