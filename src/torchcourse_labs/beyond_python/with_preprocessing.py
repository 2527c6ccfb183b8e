"""Write a network together with its preprocessing as an exported program that takes bytes."""

import copy
import tempfile
from typing import Any

import torch
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import Exercise, Inputs, call, near, observe, raises_like, same, wrong_if
from torchcourse_labs.beyond_python._shared import SECONDS, program, quietly, results


def solution(net: nn.Module, mean: tuple, std: tuple, images: Tensor, path: str) -> None:
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net
            self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
            self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

        def forward(self, images):
            return self.net((images.float() / 255 - self.mean) / self.std)

    example = torch.zeros_like(images[:2])
    dynamic = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(Reader().eval(), (example,), dynamic_shapes=dynamic)
    torch.export.save(program, path)


def written(answer: Any, net: nn.Module, mean: tuple, std: tuple, images: Tensor, batches: list) -> dict[str, Any]:
    """A probe: the file that the answer writes, and what the program in it does with each batch."""
    with tempfile.TemporaryDirectory() as folder, quietly():
        path = f"{folder}/reader.pt2"
        call(answer, net, mean, std, images, path, may_change=True, may_return_none=True)
        return program(path, batches)


def judge(answer: Any, rng: Inputs) -> None:
    for channels in (3, 1):
        height, width, classes = rng.sizes(3, 8, 16)
        net = nn.Sequential(nn.Dropout(0.4), *probes.network(rng, channels * height * width, classes, norm=True))
        mean, std = ((low + 0.3 * rng.rand(channels, 1, 1)) for low in (0.2, 0.15))
        images = rng.images(240_000 // (channels * height * width), channels, height, width)
        batches = [rng.images(size, channels, height, width) for size in (300, 1, 7, 2)]
        numbers = tuple(mean.flatten().tolist()), tuple(std.flatten().tolist())
        given = [*batches, (batches[0] / 255 - mean) / std]  # the last one is for a program without preprocessing
        with raises_like(
            "constant_batch",
            "Your export is refused: an axis that you declare as dynamic has a constant size. The batch is axis 0, and "
            "one image as the example, or `len(images)` in `forward`, makes it constant.",
            "Constraints violated",
            "specialized",
            look="`{0: …}`, and an example of at least two images",
        ):
            seen = observe(answer, written, copy.deepcopy(net), *numbers, images, given)
        judge_logits(seen, net.eval(), mean, std, batches)
        wrong_if(
            seen["bytes"] >= 100_000,
            "images_in_file",
            f"The file has {seen['bytes']:,} bytes, for a network of a few kB: all images are in it; a slice has all.",
            look="two images are enough: `torch.zeros_like(images[:2])`, or `images[:2].clone()`",
        )


def judge_logits(seen: dict, net: nn.Module, mean: Tensor, std: Tensor, batches: list[Tensor]) -> None:
    train = copy.deepcopy(net).train()[1:]  # dropout aside
    trained = results(lambda x: train((x / 255 - mean) / std), batches[:1])
    expected = results(lambda x: net((x / 255 - mean) / std), batches)
    example = "the example that you export with: its dtype, and two images at least; `dynamic_shapes`"
    if near(seen["logits"].pop(), expected[0], atol=1e-4):
        example = "your program takes images that are normalized already: put that into the `forward` that you export"
    for batch, yours, again, right in zip(batches, seen["logits"], seen["again"], expected, strict=False):
        wrong_if(
            isinstance(yours, str),
            "refused",
            f"Your program refuses a batch of {len(batch)} uint8 images.",
            look=example,
            yours=yours,
        )
        wrong_if(
            not near(yours, again) or near([yours], trained, atol=1e-4),
            "train_mode",
            "Your program works in train mode: dropout drops, or batch norm takes the mean of a batch.",
            look="`.eval()` before the export",
        )
        look = "(pixels / 255 - mean) / std, with mean and std as given, by channel; the logits of `net`, no softmax"
        same(yours, right, f"Your program's result for {len(batch)} images", atol=1e-4, look=look)
    same(seen["takes"], [torch.uint8], "The dtype that your program declares for its input", look=example)


exercise = Exercise(
    title="Preprocessing inside",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="What is inside the file cannot be forgotten, and the example comes along: a few zeros will do.",
    hints=(
        "Write a module whose `forward` takes uint8 images, prepares them as in the formula, and calls `net`. With "
        "the shape [C, 1, 1], each channel gets a mean and std of its own.",
        "`.eval()` before the export. The example needs two images of the right shape and dtype, "
        '`torch.zeros_like(images[:2])`; the batch size: `dynamic_shapes=({0: torch.export.Dim("batch")},)`.',
    ),
    judge=judge,
    seconds=SECONDS,
    lends=solution,
)
