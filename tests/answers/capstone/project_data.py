import torch
from support.answers import mutant, mutants

from torchcourse import data
from torchcourse.data import ImageSet


def split(seed):
    images = data.load("fashion_mnist", "train")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    held_out = len(images) // 10
    return images.subset(order[held_out:]), images.subset(order[:held_out])


def by_mask(seed):
    images = data.load("cifar10", "train")
    mask = torch.zeros(len(images), dtype=torch.bool)
    mask[torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[: len(images) // 10]] = True
    return [images.subset(~mask), images.subset(mask)]


def labels_apart(seed):
    parts = split(seed)
    for part in parts:
        part.labels = part.labels.sort().values
    return parts


def at_equal_distances(seed):
    images = data.load("mnist", "train")
    held_out = torch.zeros(len(images), dtype=torch.bool)
    held_out[torch.arange(len(images) // 10) * 10 + seed % 10] = True
    return images.subset(~held_out), images.subset(held_out)


RANDOM = "torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))"

RIGHT = [split, by_mask]

WRONG = {
    "form": mutants(split, "return images", "return images[:0], images"),
    "source": [lambda seed: (split(seed)[0], data.load("mnist", "train").subset(slice(30)))],
    "test_images": [lambda seed: (data.load("mnist", "train"), data.load("mnist", "test"))],
    "overlap": mutants(split, "order[held_out:]", "order"),
    "lost_or_twice": mutants(split, "order[held_out:]", "order[held_out + 1 :]"),
    "a_tenth": [lambda seed: split(seed)[::-1], *mutants(split, "// 10", "// 5")],
    "labels": [labels_apart],
    "not_repeatable": mutants(split, ", generator=torch.Generator().manual_seed(seed)", ""),
    "not_random": [
        at_equal_distances,
        *mutants(split, RANDOM, "torch.arange(len(images))"),
        mutant(split, ("manual_seed(seed)", "manual_seed(0)")),
    ],
    None: [
        lambda seed: [ImageSet(255 - part.images, part.labels, part.classes, part.name) for part in split(seed)],
    ],
}
