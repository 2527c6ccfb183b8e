"""A data set with a transform that runs each time a sample is asked for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from labcheck.authoring import Exercise, Incorrect, Inputs, call, near, observe, same, show, wrong_if


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


def looked_at(answer: Callable, images: Tensor, labels: Tensor, order: list[int]) -> dict[str, Any]:
    """A probe: samples in this order, the random numbers that the transform drew, and an image without a transform."""
    drawn = []

    def transform(image: Tensor) -> Tensor:
        if image.dim() != 3:
            raise ValueError(f"the transform takes one image [C, H, W], not a tensor of shape {tuple(image.shape)}")
        drawn.append(torch.rand(()).item())
        return image.float() / 255 + drawn[-1]

    dataset = call(answer, images.clone(), labels.clone(), transform, may_change=True)
    early, length = len(drawn), call(dataset.__len__, may_return_none=True)
    samples = [call(lambda i=i: dataset[i], may_return_none=True) for i in order]
    plain = call(lambda: call(answer, images, labels)[1], may_return_none=True)
    return {"early": early, "samples": samples, "drawn": drawn, "plain": plain, "length": length}


def is_whole(label: Any) -> bool:
    one = isinstance(label, Tensor) and label.dim() == 0 and not label.is_floating_point()
    return one or type(label) is int or isinstance(label, np.integer)


def judge(answer: Any, rng: Inputs) -> None:
    n = rng.size(11, 16)
    images, labels = rng.images(n, 1, *rng.sizes(2, 2, 8)), rng.permutation(n) % 10
    order = rng.permutation(n).tolist()
    order.append(order[0])  # the same sample again
    seen = observe(answer, looked_at, images, labels, order)
    wrong_if(
        seen["early"],
        "early",
        "The transform already ran when the data set was made. A random one would be random only once.",
        look="`__init__`: keep the transform, and call it in `__getitem__`",
    )
    same(seen["length"], n, "The length of your data set", look="`__len__` returns the number of samples")
    for sample in (*seen["samples"], seen["plain"]):
        if not isinstance(sample, tuple | list) or len(sample) != 2 or not is_whole(sample[1]):
            problem = "A sample should be (image, label), the label one whole number."
            yours = f"(…, {show(sample[1])})" if isinstance(sample, tuple | list) and len(sample) == 2 else sample
            look = "`return` in `__getitem__`, with and without a transform"
            raise Incorrect(problem, "(the image, the number of its class)", yours, look)
    drawn, calls = seen["drawn"], len(seen["drawn"])
    wrong_if(
        calls != len(order),
        "calls",
        f"For {len(order)} samples, the transform ran {calls} times. Once for each is right, even for a repeated one.",
        look="`image = self.transform(image)` in `__getitem__`",
    )
    for index, number, (image, label) in zip(order, drawn, seen["samples"], strict=True):
        look = "`image = self.transform(image)`: the transform returns a new image, made from the stored one (uint8)"
        others = [i for i, stored in enumerate(images) if near(image, stored.float() / 255 + number)]
        look = f"the index: this is the image of sample {others[0]}" if others else look
        same(image, images[index].float() / 255 + number, f"The image of sample {index}", look=look)
        same(int(label), int(labels[index]), f"The label of sample {index}")
    look = "`torch.manual_seed`: seed once, at the start of the program, not in a data set"
    same(len({*drawn}), calls, f"How many different numbers a random transform draws for {calls} samples", look=look)
    same(seen["plain"][0], images[1], "Without a transform, the image of sample 1", look="return it as it is stored")


exercise = Exercise(
    title="Your own Dataset",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Two methods make a data set. The transform runs for each sample anew, so a random one stays random.",
    hints=(
        "Keep the three arguments in `__init__`; nothing else happens there.",
        "`image = self.images[index]`, `if self.transform: image = self.transform(image)`, "
        "`return image, int(self.labels[index])`.",
    ),
    judge=judge,
    lends=solution,
)
