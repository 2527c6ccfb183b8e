"""An evaluation on the device that waits for its three numbers after the loop only."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, near, observe, same, wrong_if
from labcheck.probes import SLOW_START, Batch, network
from torchcourse import simgpu
from torchcourse_labs.cpu_to_gpu._shared import as_numbers, busiest_line, device_work


def draw(rng: Inputs) -> tuple[nn.Module, list[Batch]]:
    """The last batch is short, and all of it is right: its share is not that of the others, its losses are small."""
    pixels, classes, size = rng.size(5, 9), rng.size(3, 5), rng.size(12, 18)
    model = network(rng, pixels, classes).eval()
    batches = [(5 * rng.randn(n, pixels), rng.ints(0, classes, (n,))) for n in [size] * 6 + [rng.size(3, 5)]]
    with torch.no_grad():
        batches[-1] = (batches[-1][0], model(batches[-1][0]).argmax(1))
    return model, batches


def solution(model: nn.Module, batches: list[Batch]) -> tuple[float, float, int]:
    device = batches[0][0].device
    right, sure, worst, seen = 0, 0, torch.zeros((), device=device), 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            right = right + (logits.argmax(1) == labels).sum()
            losses = F.cross_entropy(logits, labels, reduction="none")
            worst = torch.maximum(worst, losses.max())
            sure = sure + (logits.softmax(1).amax(1) > 0.9).sum()
            seen += len(labels)
    return right.item() / seen, worst.item(), sure.item()


def evaluated(answer: Callable, model: nn.Module, batches: list[Batch]) -> dict[str, Any]:
    """A probe: the numbers, the waits for the device with their lines, and whether graphs were recorded."""
    gpu, graphs = simgpu.accelerator(), []
    model = copy.deepcopy(model).to(gpu)
    model.register_forward_hook(lambda _, given, out: graphs.append(out.requires_grad))
    result, work = device_work(answer, model, [(images.to(gpu), labels.to(gpu)) for images, labels in batches])
    return {"numbers": as_numbers(result), "waits": work["synchronize"], "graphs": any(graphs)}


def judge(answer: Any, rng: Inputs) -> None:
    model, batches = draw(rng)
    seen, expected = observe(answer, evaluated, model, batches), solution(model, batches)
    waits, numbers = seen["waits"], seen["numbers"]
    wrong_if(
        len(waits) > 3,
        "waits",
        f"Python waits for the device {len(waits)} times. Three are enough: one for each number, after the loop.",
        look=f"{busiest_line(waits)}; add up (`sum`) and decide (`torch.maximum`) on the device, then read once",
    )
    if not isinstance(numbers, Tensor) or numbers.shape != (3,):
        look = "the last line: read each number once, after the loop; a tensor that is printed later waits, too"
        raise Incorrect("Your function should return three Python numbers.", expected, numbers, look)
    share, worst, sure = numbers.tolist()
    close = {"dtype": False, "rtol": 1e-3, "atol": 1e-4}
    order = near(sorted(numbers.tolist()), sorted(expected)) and not near(numbers.tolist(), expected)
    look = "share of right answers, largest loss, number of sure answers"
    wrong_if(order, "order", "The three numbers are right, but their order is not.", look, expected, numbers.tolist())
    same(share, expected[0], "The share of right answers, from 0 to 1,", look="right / `seen`, at the end", **close)
    look = '`reduction="none"` gives a loss for each image, `torch.maximum` the largest of all batches'
    same(worst, expected[1], "The largest loss of a single image", look=look, **close)
    same(sure, expected[2], "The number of sure answers", look="`softmax(1)`, `amax(1)`, more than 0.9", **close)
    wrong_if(
        seen["graphs"],
        "graphs",
        "A graph was recorded, although nothing calls `backward`: what you keep of a batch keeps its graph in memory.",
        look="`with torch.no_grad():` around the loop",
    )


exercise = Exercise(
    seconds=SLOW_START,
    title="Find the hidden waits",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="A decision in Python about a value on the device is a wait. Let the device decide: maximum, where, sums.",
    hints=(
        "Go through the loop and ask at each line: does Python have to know a value, or a size that depends on values?",
        "`if` on a tensor is one, selecting with a mask is another, `float(...)` is the third: "
        "`worst = torch.maximum(worst, losses.max())`, `sure += (top > 0.9).sum()`.",
    ),
    judge=judge,
)
