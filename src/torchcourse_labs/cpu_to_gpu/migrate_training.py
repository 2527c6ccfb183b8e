"""A training run that moves to the device: the same losses, few bytes, one wait per epoch."""

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, near, observe, raises_like, same, wrong_if
from labcheck.probes import SLOW_START, Batch, network, weights
from torchcourse import simgpu
from torchcourse_labs.cpu_to_gpu._shared import as_numbers, busiest_line, device_work


def draw(rng: Inputs) -> tuple[nn.Module, list[Batch], int]:
    """Copies are told apart by their bytes: those of images, labels, and parameters all differ. The last batch is short
    and of one class, so that its loss is another one."""
    (count, epochs), (height, width), classes = rng.pick(((4, 2), (5, 2), (4, 3))), rng.sizes(2, 5, 7), rng.size(3, 5)
    sizes = [rng.size(8, 11)] * (count - 1) + [3]
    batches = [(rng.images(n, 1, height, width), rng.ints(0, classes, (n,))) for n in sizes]
    batches[-1][1].fill_(rng.size(0, classes - 1))
    return network(rng, height * width, classes).append(nn.BatchNorm1d(classes)), batches, epochs


def solution(model: nn.Module, batches: list[Batch], device: torch.device, epochs: int, clear=True) -> list[float]:
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(epochs):
        total = torch.zeros((), device=device)
        for images, labels in batches:
            images, labels = images.to(device), labels.to(device)
            loss = F.cross_entropy(model(images.float() / 255), labels)
            if clear:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        losses.append(total.item() / len(batches))
    return losses


def trained(answer: Callable, model: nn.Module, batches: list[Batch], epochs: int) -> dict[str, Any]:
    """A probe: losses and weights after a training on the device, where the model is, and what the device had to do."""
    gpu, model = simgpu.accelerator(), copy.deepcopy(model)
    losses, work = device_work(answer, model, copy.deepcopy(batches), gpu, epochs)
    there = all(parameter.device.type == gpu.type for parameter in model.parameters())
    return {"losses": as_numbers(losses), "weights": weights(model), "there": there, "work": work}


def judge(answer: Any, rng: Inputs) -> None:
    model, batches, epochs = draw(rng)
    with raises_like(
        "left_behind",
        "Something is still on the CPU: the model, the images, and the labels should all be on the device.",
        "is on cpu",
        "got target",
        "other tensors on cpu",
        look="a model moves in place; for a tensor, `.to(device)` returns a copy: `images = images.to(device)`",
    ):
        seen = observe(answer, trained, model, batches, epochs)
    reference, piled = copy.deepcopy(model), copy.deepcopy(model)
    expected = solution(reference, batches, torch.device("cpu"), epochs)
    solution(piled, batches, torch.device("cpu"), epochs, clear=False)
    wrong_if(
        not seen["there"],
        "model_elsewhere",
        "After the training, your model is not on the device: it never was, it was moved back, or you trained a copy.",
        look="`model.to(device)` before the loop moves the model itself, and there it stays",
    )
    losses = seen["losses"]
    if not isinstance(losses, Tensor) or losses.shape != (epochs,):
        yours = losses.tolist() if isinstance(losses, Tensor) else losses
        look = "`.item()` or `.tolist()` after the loop over the batches, `return` after the loop over the epochs"
        raise Incorrect("Your function should return a list of Python numbers, one per epoch.", expected, yours, look)
    untrained, uncleared = near(seen["weights"], weights(model), 0, 0), near(seen["weights"], weights(piled), 1e-3)
    look = "`zero_grad()`, `backward()`, `step()`, all three, in this order, for each batch"
    wrong_if(untrained, "untrained", "Nothing is trained: the weights are as before.", look=look)
    wrong_if(uncleared, "not_cleared", "The gradients are never cleared: `backward()` adds to those before.", look=look)
    look = "the loss, the mean over batches, not the sum; the mode, the optimizer, the order of lines, `/ 255`"
    same(losses, torch.tensor(expected), "Your list of losses", False, 1e-3, 1e-3, look)
    same(seen["weights"], weights(reference), "The row of all trained weights", False, 1e-3, 1e-4, look)
    judge_work(seen["work"], len(model.state_dict()), batches, epochs)


def judge_work(work: dict[str, list[tuple[int, str]]], parameters: int, batches: list[Batch], epochs: int) -> None:
    there, waits, steps = work["to device"], work["synchronize"], len(batches) * epochs
    wrong_if(
        len(work["product"]) < steps,
        "not_there",
        f"Not all of the training was on the device, which computed only {len(work['product'])} matrix products for "
        f"{steps} batches.",
        look="move the model before the first batch, and each batch before its forward pass",
    )
    sizes = [images.nbytes for images, _ in batches]
    floats = [event for event in there if event[0] in {4 * size for size in (*sizes, sum(sizes))}]
    look = f"{busiest_line(floats)}; first `.to(device)`, then `.float()`"
    wrong_if(floats, "floats", "The images travel as floats, which takes four times the bytes.", look=look)
    needed = Counter(epochs * [tensor.nbytes for batch in batches for tensor in batch])
    extra = Counter(size for size, _ in there) - needed
    others = [event for event in there if event[0] in extra]
    wrong_if(
        extra.total() > parameters + 2 * epochs + 2,
        "too_much",
        f"More travels to the device than the images and the labels of each batch, once per epoch: there were "
        f"{extra.total()} other copies, including those of the {parameters} parameters and buffers.",
        look=f"{busiest_line(others)}; send the whole batch at once, and what stays the same before the loop",
    )
    wrong_if(
        len(waits) > epochs,
        "waits",
        f"Python waits for the device {len(waits)} times in {epochs} epochs; once per epoch is enough.",
        look=f"{busiest_line(waits)}; add up `loss.detach()` on the device, and read the sum after the inner loop",
    )


exercise = Exercise(
    seconds=SLOW_START,
    title="Move a training run",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="Model before the loop, bytes once per batch, one reading per epoch: that is the whole migration.",
    hints=(
        "`model.to(device)` belongs before the loop. `images.to(device)` comes before `.float()`, so that bytes "
        "travel. `loss.item()` waits in each step: add up `loss.detach()` instead.",
        "`total = torch.zeros((), device=device)`, in the loop `total += loss.detach()`, "
        "after the loop `losses.append(total.item() / len(batches))`.",
    ),
    judge=judge,
    lends=solution,
)
