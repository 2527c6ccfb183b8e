"""Write a network together with its preprocessing as an exported program that takes bytes."""

import copy
import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import AnswerRaised, Exercise, Inputs, attempted, call, near, observe, same, wrong_if
from torchcourse_labs.beyond_python._shared import SECONDS, first_line, quietly

LIMIT = 100_000  # bytes of a file


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


def written(answer: Callable, net: nn.Module, mean: tuple, std: tuple, images: Tensor, batches: list) -> dict[str, Any]:
    """A probe: the file that the answer writes, and what the program in it does with each batch, once or twice."""
    attempted(answer)
    with tempfile.TemporaryDirectory() as folder, quietly():
        path = os.path.join(folder, "reader.pt2")
        call(answer, net, mean, std, images, path, may_change=True, may_return_none=True)
        if not os.path.exists(path):
            return {"files": sorted(os.listdir(folder))}
        found: dict[str, Any] = {"bytes": os.path.getsize(path), "logits": [], "again": [], "refused": {}}
        try:
            program = torch.export.load(path).module()
        except Exception as error:
            return {"unreadable": first_line(error)}
        for batch in batches:
            try:
                with torch.no_grad():
                    logits, again = program(batch.clone()), program(batch.clone())
                    found["logits"].append(logits), found["again"].append(again)
            except Exception as error:
                found["refused"][len(batch)] = first_line(error)
    return found


def judge(answer: Any, rng: Inputs) -> None:
    for channels in (3, 1):
        height, width, classes = rng.sizes(3, 8, 16)
        net = nn.Sequential(nn.Dropout(0.4), *probes.network(rng, channels * height * width, classes, norm=True))
        mean = tuple((0.2 + 0.5 * rng.rand(channels)).tolist())
        std = tuple((0.15 + 0.2 * rng.rand(channels)).tolist())
        images = rng.images(240_000 // (channels * height * width), channels, height, width)
        batches = [rng.images(size, channels, height, width) for size in (2, 1, 7, 100)]
        judge_case(answer, net, mean, std, images, batches)


def judge_case(answer: Any, net: nn.Module, mean: tuple, std: tuple, images: Tensor, batches: list[Tensor]) -> None:
    try:
        seen = observe(answer, written, copy.deepcopy(net), mean, std, images, batches)
    except AnswerRaised as raised:
        wrong_if(
            "Constraints violated" in str(raised) or "specialized" in str(raised),
            "constant_batch",
            "Your export is refused: with an example of one image, or with `len(images)` in `forward`, the batch size "
            "becomes a constant, and you have asked for any.",
            look="an example of at least two images",
        )
        raise
    wrong_if(
        "files" in seen or "unreadable" in seen,
        "no_program",
        "After your function has run, there is no exported program at `path` that `torch.export.load` can read.",
        look="`torch.export.save(program, path)`, not `torch.save`",
        yours=seen.get("unreadable") or f"the files {seen.get('files')}",
    )
    sizes, why = list(seen["refused"]), next(iter(seen["refused"].values()), "")
    wrong_if(
        sizes,
        "refused",
        f"Your program refuses batches of {', '.join(map(str, sizes))} uint8 images. It says: {why}",
        look="the example that you export with: its dtype, and two images at least; `dynamic_shapes`",
    )
    wrong_if(
        not near(seen["logits"], seen["again"]),
        "dropout",
        "Your program gives different logits for the same images when it runs again: dropout is in the graph.",
        look="`.eval()` before the export",
    )
    net = net.eval()
    m, s = torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)

    def results(prepare: Callable) -> list[Tensor]:
        with torch.no_grad():
            return [net(prepare(batch.float())) for batch in batches]

    expected = results(lambda x: (x / 255 - m) / s)

    def looks(*prepare: Callable) -> bool:
        wrong = not near(seen["logits"], expected, atol=1e-4)
        return wrong and any(near(seen["logits"], results(each), atol=1e-4) for each in prepare)

    wrong_if(
        looks(lambda x: (x - m) / s, lambda x: x, lambda x: (x - m) / 255 / s, lambda x: (x / 256 - m) / s),
        "not_scaled",
        "Your program doesn't divide the pixels by 255 first: mean and std are for pixels from 0 to 1.",
    )
    wrong_if(
        looks(lambda x: x / 255, lambda x: x / 255 - m, lambda x: x / 255 - m / s, lambda x: (x / 255 - m) * s),
        "not_normalized",
        "Your program scales the pixels, but doesn't normalize them right: subtract the mean, then divide by std.",
        look="the parentheses: (x - mean) / std",
    )
    for batch, yours, right in zip(batches, seen["logits"], expected, strict=True):
        same(
            yours,
            right,
            f"Your program's result for {len(batch)} images",
            atol=1e-4,
            look="mean and std as given, one for each channel; the logits of `net`",
        )
    wrong_if(
        seen["bytes"] >= LIMIT,
        "images_in_file",
        f"Your program is right, but the file has {seen['bytes']:,} bytes, for a network of a few kB: the images are "
        "in it. A slice of a tensor saves all of it.",
        look="the example that you export with: `torch.zeros_like`, or a clone",
    )


exercise = Exercise(
    title="Preprocessing inside",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="What is inside the file cannot be forgotten, and the example comes along: a few zeros will do.",
    hints=(
        "Write a module whose `forward` takes uint8 images, prepares them as in the formula, and calls `net`. What "
        "shape do mean and std need so that each channel gets its own?",
        "Call `.eval()` on your module before you export it. The example needs two images of the right shape and "
        "dtype, with anything in them: `torch.zeros_like(images[:2])`.",
        '`program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))`, then '
        "`torch.export.save(program, path)`.",
    ),
    judge=judge,
    seconds=SECONDS,
    lends=solution,
)
