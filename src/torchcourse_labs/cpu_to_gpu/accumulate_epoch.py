"""An epoch in small pieces: the steps of whole batches, in a fraction of the memory."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, near, observe, same, wrong_if
from labcheck.probes import SLOW_START, Batch, graphs_at_once, network, weights
from torchcourse import simgpu
from torchcourse_labs.cpu_to_gpu._shared import as_numbers, busiest_line, device_work


def draw(rng: Inputs) -> tuple[nn.Module, list[Batch], int]:
    """Batches of many rows and few, so that `chunk(rows)` is not `split(rows)`."""
    rows, pixels, classes = rng.size(3, 4), rng.size(5, 9), rng.size(3, 5)
    sizes = [rows * rows + rng.size(1, rows - 1), 2 * rows + 1, rows * (rows + 1), rows - 1, 3 * rows - 1]
    batches = [(rng.randn(size, pixels), rng.ints(0, classes, (size,))) for size in sizes]
    return network(rng, pixels, classes), batches, rows


def solution(
    model: nn.Module,
    batches: list[Batch],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    rows: int,
    weighted: bool = True,
) -> float:
    total, seen = torch.zeros((), device=device), 0
    for images, labels in batches:
        optimizer.zero_grad()
        for x, y in zip(images.split(rows), labels.split(rows), strict=True):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            (loss * (len(x) / len(images) if weighted else 1)).backward()
            total += loss.detach() * len(x)
        optimizer.step()
        seen += len(images)
    return total.item() / seen


def start(model: nn.Module, device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A copy of the model, with old gradients, and its optimizer."""
    model = copy.deepcopy(model).to(device)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)


def accumulated(answer: Callable, given: nn.Module, batches: list[Batch], rows: int) -> dict:
    """A probe: loss and weights after the epoch, and what model, optimizer and device got to do."""
    gpu, came, steps = simgpu.accelerator(), [], []
    model, optimizer = start(given, gpu)
    model[0].register_forward_pre_hook(lambda _, inputs: came.append(len(inputs[0])))
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    graphs = graphs_at_once(model)
    loss, work = device_work(answer, model, copy.deepcopy(batches), optimizer, gpu, rows)
    seen = {"loss": as_numbers(loss), "weights": weights(model), "steps": len(steps), "rows": came, "graphs": graphs()}
    return seen | {"to device": work["to device"], "waits": work["synchronize"]}


def judge(answer: Any, rng: Inputs) -> None:
    model, batches, rows = draw(rng)
    seen = observe(answer, accumulated, model, batches, rows)
    most, count = max(seen["rows"], default=0), sum(len(images) for images, _ in batches)
    wrong_if(
        most > rows,
        "too_large",
        f"A piece is too large for the memory: at most {rows} rows fit, and yours has {most}.",
        look="`split(rows)` makes pieces of `rows` rows; `chunk(rows)` makes `rows` pieces",
    )
    look = "the last, short piece of a batch, and everything that calls the model: each row goes through it once"
    same(sum(seen["rows"]), count, "The number of rows that go through the model", look=look)
    look = "the indentation of `optimizer.step()`: once for each batch, after its last piece"
    same(seen["steps"], len(batches), "The number of steps of the optimizer that you are given", look=look)
    judge_values(seen, model, batches, rows)
    large = {images.nbytes for images, _ in batches if len(images) > rows}
    whole = [event for event in seen["to device"] if event[0] in large]
    look = f"{busiest_line(whole)}; first split, then `.to(device)`"
    wrong_if(whole, "whole_batch", "A whole batch travels to the device, where it does not fit.", look=look)
    look = "call `backward()` for each piece before you begin the next one: each graph keeps its activations in memory"
    same(seen["graphs"], 1, "The number of graphs that exist at the same time", look=look)
    look = f"{busiest_line(seen['waits'])}; add up `loss.detach()` on the device, and read the sum once, at the end"
    same(len(seen["waits"]), 1, "The number of times that Python waits for the device", look=look)


def judge_values(seen: dict, model: nn.Module, batches: list[Batch], rows: int) -> None:
    def trained(weighted: bool = True, cleared: bool = True) -> tuple[float, Tensor]:
        one, optimizer = start(model, torch.device("cpu"))
        optimizer.zero_grad = optimizer.zero_grad if cleared else lambda: None
        return solution(one, batches, optimizer, torch.device("cpu"), rows, weighted), weights(one)

    wrong_if(
        near(seen["weights"], trained(cleared=False)[1], 1e-3, 1e-4),
        "not_cleared",
        "The gradients are never cleared: `backward()` adds to those of the batch before, and to old ones.",
        look="`optimizer.zero_grad()` once per batch, before its first piece",
    )
    wrong_if(
        near(seen["weights"], trained(weighted=False)[1], 1e-3, 1e-4),
        "not_weighted",
        "Your step is not that of the whole batch: each piece should count by its share of the batch's rows.",
        look="the number that you multiply the loss of a piece by: a short piece counts less",
    )
    loss, expected = trained()
    look = "`backward()` for each piece, weighted by its share; clear once per batch, before its first piece"
    same(seen["weights"], expected, "The row of all trained weights", False, 1e-3, 1e-4, look)
    if not isinstance(seen["loss"], Tensor):
        raise Incorrect("Your loss is not a number.", loss, seen["loss"], "`.item()`, once, at the end")
    look = "the mean over all images of the epoch: what do you add up, and what do you divide by?"
    same(seen["loss"], torch.tensor(loss), "The training is right, but your loss", False, 1e-3, 1e-4, look)


exercise = Exercise(
    seconds=SLOW_START,
    title="Stretch: an epoch in small pieces, read once",
    minutes=10,
    difficulty=4,
    points=3,
    takeaway="Gradients add up, so pieces give the step of the whole batch, in a fraction of the memory.",
    hints=(
        "Gradients add up over `backward` calls: clear once per batch, step once per batch. The mean of the batch is "
        "the sum over the pieces of (mean of the piece) · (rows of the piece) / (rows of the batch).",
        "`for x, y in zip(images.split(rows), labels.split(rows)):` "
        "`loss = F.cross_entropy(model(x), y) * len(x) / len(images)`, then `loss.backward()`.",
    ),
    judge=judge,
)
