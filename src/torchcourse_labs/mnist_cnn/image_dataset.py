"""A data set with a transform that runs each time a sample is asked for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, call, equal, observe, same, wrong_if


class solution(Dataset):
    def __init__(self, images, labels, transform=None):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.transform:
            image = self.transform(image)
        return image, int(self.labels[index])


class Transform:
    """Adds a number that is different in every call, and remembers what it is given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self, image: Any) -> Any:
        self.given.append(image.clone() if isinstance(image, Tensor) else image)
        return image.float() / 255 + len(self.given) if isinstance(image, Tensor) else image


def looked_at(answer: Callable, images: Tensor, labels: Tensor, order: list[int]) -> dict[str, Any]:
    """A probe: samples in this order, what the transform was given, and a sample without one."""
    stored, transform = images.clone(), Transform()
    dataset = call(answer, stored, labels.clone(), transform, may_change=True)
    torch.rand(1)  # mid-sequence, so that seeding doesn't restore the state
    early, random_state = len(transform.given), torch.get_rng_state()
    samples = [call(lambda i=i: dataset[i], may_return_none=True) for i in order]
    seen = {
        "early": early,
        "samples": samples,
        "given": transform.given,
        "seeded": not equal(random_state, torch.get_rng_state()),
        "changed": not equal(stored, images),
        "length": call(lambda: len(dataset)),
    }
    if any(not isinstance(sample, tuple | list) or len(sample) != 2 for sample in samples):
        return seen
    plain = call(answer, images, labels)
    return seen | {"plain": call(lambda: plain[1][0])}


def is_whole(label: Any) -> bool:
    if isinstance(label, Tensor):
        return label.dim() == 0 and not label.is_floating_point() and label.dtype != torch.bool
    return isinstance(label, int | np.integer) and not isinstance(label, bool)


def judge(answer: Any, rng: Inputs) -> None:
    n = rng.size(11, 16)
    images, labels = rng.images(n, *rng.sizes(3, 2, 8)), rng.permutation(n) % 10
    order = rng.permutation(n).tolist()
    order.append(order[0])  # the same sample again
    try:
        seen = observe(answer, looked_at, images, labels, order)
    except AnswerRaised as raised:
        wrong_if(
            "'NoneType' object is not callable" in str(raised),
            "transform_is_none",
            "`transform` may be None, and your data set calls it anyway.",
            look="`if self.transform is not None:`",
        )
        raise
    wrong_if(
        seen["early"],
        "early",
        "The transform already ran when the data set was made. A random one would be random only once.",
        look="`__init__`: keep the transform, and call it in `__getitem__`",
    )
    wrong_if(
        seen["changed"],
        "changed",
        "The stored images have changed: in the next epoch, they will be different ones.",
        look="whatever works in place: a method that ends in an underscore, `+=`, an assignment to a slice",
    )
    wrong_if(
        seen["seeded"],
        "seeded",
        "Your `__getitem__` changes PyTorch's global random state. If it sets a seed, a random transform does the same "
        "thing every time.",
        look="`torch.manual_seed`: seed once, at the start of the program, not in a data set",
    )
    same(seen["length"], n, "The length of your data set", look="`__len__`: the number of samples")
    judge_samples(seen, images, labels, order)


def judge_samples(seen: dict[str, Any], images: Tensor, labels: Tensor, order: list[int]) -> None:
    for sample in seen["samples"]:
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise Incorrect(
                "A sample should be the pair (image, label).", yours=sample, look="`return` in `__getitem__`"
            )
    first, second = seen["samples"][0]
    wrong_if(
        is_whole(first) and isinstance(second, Tensor),
        "swapped",
        "The image and its label are in the wrong order: (image, label) is right.",
        look="`return` in `__getitem__`",
    )
    others = [each for each in seen["given"] if not isinstance(each, Tensor) or each.shape != images.shape[1:]]
    if others:
        raise Incorrect("The transform takes one image at a time, a tensor [C, H, W].", yours=others[0])
    wrong_if(
        len(seen["given"]) != len(order),
        "calls",
        f"For {len(order)} samples, the transform ran {len(seen['given'])} times: once for each is right, even if you "
        "ask for the same one again.",
        look="`image = self.transform(image)` in `__getitem__`",
    )
    wrong_if(
        equal(first, images[order[0]]),
        "unused",
        "You call the transform, but return the image from before it.",
        look="`image = self.transform(image)`",
    )
    for number, (index, (image, label)) in enumerate(zip(order, seen["samples"], strict=True), 1):
        same(
            image,
            images[index].float() / 255 + number,
            f"The image of sample {index}",
            look="what the transform returns",
        )
        if not is_whole(label):
            raise Incorrect(
                "A label should be one whole number, the number of its class.", yours=label, look="`int(…)`"
            )
        same(int(label), int(labels[index]), f"The label of sample {index}")
    same(seen["plain"], images[1], "Without a transform, the image of sample 1", look="return it as it is stored")


exercise = Exercise(
    title="Your own Dataset",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Two methods make a data set. The transform runs each time you ask for a sample, so a random one stays "
    "random.",
    hints=(
        "Keep the three arguments in `__init__`; nothing else happens there.",
        "`__getitem__` takes one image, applies the transform if there is one, and returns the image with its label.",
        "`image = self.images[index]`, `if self.transform: image = self.transform(image)`, "
        "`return image, int(self.labels[index])`.",
    ),
    judge=judge,
    lends=solution,
)
