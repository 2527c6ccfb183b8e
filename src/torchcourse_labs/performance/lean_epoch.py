"""An epoch that is right, and slow in five ways: the check counts, names one, and says how many remain."""

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, observe, same, wrong_if
from labcheck.probes import SLOW_START, network, weights
from torchcourse import simgpu
from torchcourse_labs.cpu_to_gpu._shared import as_numbers, busiest_line, device_work


def solution(model, training, validation, class_weights, optimizer, device):
    def prepared(images):
        images = images.to(device).float()
        std, mean = torch.std_mean(images, (1, 2, 3), keepdim=True)
        return (images - mean) / std

    total, right, count = 0, 0, 0
    class_weights = torch.tensor(class_weights, device=device)
    model.train()
    for images, labels in training:
        loss = F.cross_entropy(model(prepared(images)), labels.to(device), weight=class_weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    model.eval()
    with torch.no_grad():
        for images, labels in validation:
            right += (model(prepared(images)).argmax(dim=1) == labels.to(device)).sum()
            count += len(labels)
    return total.item() / len(training), right.item() / count


def one_epoch(answer: Callable, model: nn.Module, *others: Any) -> dict[str, Any]:
    """A probe: the numbers and weights after an epoch on the device, what it got to do, and what evaluation saved."""
    gpu, kept, got = simgpu.accelerator(), [], []
    model, *given = copy.deepcopy((model, *others))
    optimizer = torch.optim.SGD(model.to(gpu).eval().parameters(), lr=0.1, momentum=0.9)
    model.register_forward_pre_hook(lambda module, given: got.extend(given))

    def save(tensor: Tensor) -> Tensor:
        kept.append(0 if model.training else tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        numbers, work = device_work(answer, model, *given, optimizer, gpu)
    squares = max((images.float().square().mean().item() for images in got), default=0.0)  # 1 - 1 / n, or 1
    return {"numbers": as_numbers(numbers), "weights": weights(model), "squares": squares, "kept": sum(kept), **work}


def judge(answer: Any, rng: Inputs) -> None:
    side, classes, size, seen = rng.size(7, 9), rng.size(3, 5), rng.size(10, 14), []
    model, ratios = network(rng, side * side, classes, norm=True), (rng.rand(classes) + 0.5).tolist()
    for count in (size, 2 * size):  # twice as many images in as many batches
        sizes = [*3 * [count], count // 2, *3 * [count], count - 3, count // 2]  # the last ones are shorter
        batches = [(rng.images(n, 1, side, side), rng.ints(0, classes, (n,))) for n in sizes]
        for images, _ in batches:  # dark ones, too, so that statistics of the whole batch are others
            images //= rng.ints(1, 9, (len(images), 1, 1, 1), torch.uint8)
        inputs = model, batches[:4], batches[4:], ratios
        seen.append(observe(answer, one_epoch, *inputs))
        yours, expected = seen[-1], one_epoch(solution, *inputs)
        if getattr(yours["numbers"], "shape", None) != (2,):
            right, look = tuple(expected["numbers"].tolist()), "the last line: `.item()` makes a number of each sum"
            raise Incorrect("Your function should return two Python numbers.", right, yours["numbers"], look)
        look = "what `wasteful_epoch` computes: mean and standard deviation (n - 1) of each image, modes, steps, sums"
        whats = "The pair (loss, accuracy)", "The row of trained weights", "The mean square of what the model gets"
        for key, what in zip(("numbers", "weights", "squares"), whats, strict=True):
            same(yours[key], expected[key], what, False, 1e-3, 1e-3, look)
    judge_waste(*seen, [tensor.nbytes for batch in batches for tensor in batch])


def judge_waste(few: dict, many: dict, needed: list[int]) -> None:
    waits, there, kept = many["synchronize"], many["to device"], many["kept"]
    size, more = sum(event[0] for event in there), len(there) - len(needed)
    grown = [*(Counter(line for _, line in many["kernel"]) - Counter(line for _, line in few["kernel"])).elements()]
    faults = len(waits) > 2, size > 1.25 * sum(needed), more > 3, len(grown) > len(needed), kept > 0
    rest = f"Kinds of waste that remain after this one: {sum(faults) - 1}."
    look = f"{busiest_line(waits)}; add up on the device, and read each sum after its loop"
    wrong_if(faults[0], "waits", f"Python waits for the device {len(waits)} times; twice is enough. {rest}", look=look)
    look = f"{busiest_line([each for each in there if each == max(there)])}; send first, then `.float()`"
    text = f"{sum(needed):,} bytes, the images and labels as they come"
    wrong_if(faults[1], "bytes", f"{size:,} bytes travel to the device. {rest}", look, expected=text)
    look = f"{busiest_line([each for each in there if each[0] not in needed])}; what stays the same travels once"
    wrong_if(faults[2], "again", f"Besides images and labels, {more} tensors travel to the device. {rest}", look=look)
    text = f"{len(grown)} more kernels for twice as many images in each batch"
    look = busiest_line([(0, line) for line in grown])
    wrong_if(faults[3], "one_by_one", f"An operation runs for each image. {rest}", look, "as many kernels", text)
    wrong_if(faults[4], "graph", f"The evaluation saves {kept:,} bytes for a backward pass that never comes. {rest}")


exercise = Exercise(
    title="Right, and slow",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="Waste raises no error, but you can count it: waits, bytes, copies, kernels, and what backward would use.",
    hints=(
        "Read the trace line by line. Why does this line copy, or wait, and does it have to in each step? One kind of "
        "waste isn't in the table: who needs the graph of the evaluation?",
        "`torch.std_mean(images, (1, 2, 3), keepdim=True)` has the statistics of all images at once. Send first, then "
        "`.float()`; add up `loss.detach()`, and take its `.item()` after the loop.",
    ),
    judge=judge,
    seconds=SLOW_START,
)
